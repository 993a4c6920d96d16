#include "formats/shell/quotes.hpp"

#include <cctype>
#include <string_view>

#include "formats/shell/unknown.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats::shell {
namespace {

void append_utf8(std::string& text, unsigned value) {
  constexpr unsigned kTail = 0x3F, kMark = 0x80;
  if (value < 0x80) {
    text += static_cast<char>(value);
  } else if (value < 0x800) {
    text += static_cast<char>(0xC0 | (value >> 6U));
    text += static_cast<char>(kMark | (value & kTail));
  } else {
    text += static_cast<char>(0xE0 | ((value >> 12U) & 0xFU));
    text += static_cast<char>(kMark | ((value >> 6U) & kTail));
    text += static_cast<char>(kMark | (value & kTail));
  }
}

/// At most `most` digits of a base from `i` on, which moves behind them.
unsigned digits(const std::string& text, std::size_t& i, std::size_t most, unsigned base) {
  unsigned value = 0;
  for (std::size_t taken = 0; taken < most && i < text.size(); ++taken, ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const unsigned digit = std::isdigit(c) != 0 ? c - '0' : std::isxdigit(c) != 0 ? static_cast<unsigned>(std::tolower(c)) - 'a' + 10 : 99;
    if (digit >= base) break;
    value = value * base + digit;
  }
  return value;
}

}  // namespace

std::string with_escapes(const std::string& text, Escapes kind) {
  static constexpr std::string_view kNames = "abeEfnrtv\\", kValues = "\a\b\033\033\f\n\r\t\v\\";
  constexpr unsigned kHex = 16, kOctal = 8, kByte = 255;
  std::string made;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] != '\\' || i + 1 >= text.size()) {
      made += text[i++];
      continue;
    }
    const char c = text[i + 1];
    i += 2;
    if (const std::size_t known = kNames.find(c); known != std::string_view::npos) {
      made += kValues[known];
    } else if (kind == Escapes::quoted && (c == '\'' || c == '"' || c == '?')) {
      made += c;
    } else if (c == 'x' && i < text.size() && std::isxdigit(static_cast<unsigned char>(text[i])) != 0) {
      made += static_cast<char>(digits(text, i, 2, kHex));
    } else if ((c == 'u' || c == 'U') && i < text.size() && std::isxdigit(static_cast<unsigned char>(text[i])) != 0) {
      append_utf8(made, digits(text, i, 4, kHex));
    } else if (c == '0' && kind == Escapes::printed) {
      made += static_cast<char>(digits(text, i, 3, kOctal) & kByte);
    } else if (c >= '0' && c <= '7' && kind == Escapes::quoted) {
      --i;
      made += static_cast<char>(digits(text, i, 3, kOctal) & kByte);
    } else {
      made += '\\';
      made += c;
    }
  }
  if (is_unknown(made)) fail("a text with the control character 127", {});  // which marks what is not known
  return made;
}

std::string in_quotes(const std::string& text) {
  std::string made = "'";
  for (const char c : text) c == '\'' ? made += "'\\''" : made += c;
  return made + "'";
}

}  // namespace plimsoll::formats::shell
