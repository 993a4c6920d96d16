// {a,b} and {1..4}: the words that a word stands for before anything of it is expanded.
#pragma once

#include <string>
#include <vector>

#include "formats/shell/pattern.hpp"

namespace plimsoll::formats::shell {

/// The word itself where it has no such braces. Throws Error: more words than a script is worth.
std::vector<std::string> expand_braces(const std::string& raw, const std::string& where, Effort& effort);

}  // namespace plimsoll::formats::shell
