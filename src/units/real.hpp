// Numbers with a point, read as std::from_chars reads them.
#pragma once

#include <charconv>

namespace plimsoll {

/// std::from_chars of a double, which the standard library of the page's compiler has not: in no locale, without blanks or "+" in front.
std::from_chars_result real_from_chars(const char* first, const char* last, double& number);

}  // namespace plimsoll
