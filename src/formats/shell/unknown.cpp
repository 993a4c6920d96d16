#include "formats/shell/unknown.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace plimsoll::formats {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";
constexpr char kBetween = 'x';  // between the name and the reason: no digit of either

std::string hex(const std::string& text) {
  std::string digits;
  for (const unsigned char c : text) {
    digits += kDigits[c >> 4U];
    digits += kDigits[c & 15U];
  }
  return digits;
}

std::string plain(std::string_view digits) {
  std::string text;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    const std::size_t high = kDigits.find(digits[i]), low = kDigits.find(digits[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return text;
    text += static_cast<char>(high * 16 + low);
  }
  return text;
}

/// Name and reason of the mark that begins at `at`.
std::pair<std::string, std::string> contents(const std::string& text, std::size_t at) {
  const std::string_view inner = std::string_view(text).substr(at + 1, end_of_mark(text, at) - at - 2);
  const std::size_t between = inner.find(kBetween);
  if (between == std::string_view::npos) return {};
  return {plain(inner.substr(0, between)), plain(inner.substr(between + 1))};
}

}  // namespace

std::string unknown_word(const std::string& name, const std::string& why) {
  constexpr std::size_t kMostTold = 160;
  return kUnknown + hex(name.substr(0, kMostTold)) + kBetween + hex(why.substr(0, kMostTold)) + kUnknown;
}

bool is_unknown(const std::string& text) { return text.find(kUnknown) != std::string::npos; }

std::size_t end_of_mark(const std::string& text, std::size_t at) {
  const std::size_t end = text.find(kUnknown, at + 1);
  return end == std::string::npos ? text.size() : end + 1;
}

std::string mark_of(const std::string& text) {
  const std::size_t at = text.find(kUnknown);
  return at == std::string::npos ? std::string() : text.substr(at, end_of_mark(text, at) - at);
}

std::string told(const std::string& unknown) {
  const std::size_t at = unknown.find(kUnknown);
  return at == std::string::npos ? std::string() : contents(unknown, at).second;
}

std::string name_of_unknown(const std::string& unknown) {
  const std::size_t at = unknown.find(kUnknown);
  return at == std::string::npos ? std::string() : contents(unknown, at).first;
}

std::string asked_for(const std::string& unknown) {
  const std::string name = name_of_unknown(unknown);
  if (name.empty()) return "write the value into the file, or give the line behind -- with it";
  const bool plain_name = std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  return "give it: --set " + (plain_name ? name + "=VALUE" : "'" + name + "=VALUE'") + ", nothing behind = where it is empty";
}

std::string readable(const std::string& text) {
  std::string told_text;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] != kUnknown) {
      told_text += text[i++];
      continue;
    }
    const std::string name = contents(text, i).first;
    told_text += name.empty() ? "?" : name[0] == '$' ? name : "$" + name;
    i = end_of_mark(text, i);
  }
  return told_text;
}

}  // namespace plimsoll::formats
