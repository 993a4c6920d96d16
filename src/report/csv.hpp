// Fields of comma-separated values, RFC 4180.
#pragma once

#include <string>

namespace plimsoll {

/// The text as one field: quoted where it holds commas, quotes or line breaks. What a spreadsheet would run as a formula is made text.
std::string csv_field(const std::string& text);

}  // namespace plimsoll
