// The values that an option takes, off the text that describes them.
#pragma once

#include <string>
#include <vector>

namespace plimsoll::strategy {

/// "none, full, selective, every-N-layers, …": the words of a list; nothing where the text describes instead ("ranks").
std::vector<std::string> listed_words(const std::string& list);

}  // namespace plimsoll::strategy
