// JSON as Python writes it.
#pragma once

#include <string>

namespace plimsoll {

/// Python's json.dumps writes NaN, Infinity and -Infinity, which are no JSON. Outside of texts they become texts of the same length ("∞"), so
/// that places stay where they are: a key that nobody reads may hold one, and who reads it as a number finds none.
std::string json_of_python(std::string text);

}  // namespace plimsoll
