#include "units/python_json.hpp"

#include <string_view>

namespace plimsoll {

std::string json_of_python(std::string text) {
  constexpr std::string_view kNan = "NaN", kInfinity = "Infinity", kInfinite = "\"\xE2\x88\x9E\"";
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && text.compare(i, kNan.size(), kNan) == 0) {
      text.replace(i, kNan.size(), "\"?\"");
      i += kNan.size() - 1;
    } else if (!quoted && text.compare(i, kInfinity.size(), kInfinity) == 0) {
      if (i > 0 && text[i - 1] == '-') text[i - 1] = ' ';
      text.replace(i, kInfinity.size(), std::string(kInfinite) + std::string(kInfinity.size() - kInfinite.size(), ' '));
      i += kInfinity.size() - 1;
    }
  }
  return text;
}

}  // namespace plimsoll
