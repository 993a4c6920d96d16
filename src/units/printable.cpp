#include "plimsoll/printable.hpp"

#include <algorithm>

namespace plimsoll {
namespace {

/// Bytes of the character at `at` that must not be printed as it is; 0: it may be.
std::size_t unprintable(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(at + i < text.size() ? text[at + i] : 0); };
  if (byte(0) < 0x20 || byte(0) == 0x7F) return 1;
  if (byte(0) == 0xC2 && byte(1) >= 0x80 && byte(1) < 0xA0) return 2;                       // C1, which terminals obey too
  if (byte(0) == 0xE2 && byte(1) == 0x80 && byte(2) >= 0xA8 && byte(2) <= 0xAE) return 3;  // U+2028 to 202E: lines, directions
  if (byte(0) == 0xE2 && byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9) return 3;  // U+2066 to 2069: isolates
  return 0;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string clean(text);
  for (std::size_t at = 0; at < clean.size();) {
    const std::size_t bytes = unprintable(clean, at);
    std::fill_n(clean.begin() + static_cast<std::ptrdiff_t>(at), bytes, '?');
    at += std::max<std::size_t>(bytes, 1);
  }
  return clean;
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-";
  const std::string word = printable(text);
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace plimsoll
