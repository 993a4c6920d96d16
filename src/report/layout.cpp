#include "report/layout.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

namespace plimsoll {
namespace {

/// Columns that UTF-8 text takes on a terminal: continuation bytes take none, nor do the escape sequences of `painted`.
std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  bool escaped = false;
  for (const char c : text) {
    if (c == '\033') escaped = true;
    if (!escaped && (static_cast<unsigned char>(c) & 0xC0U) != 0x80U) ++width;
    if (c == 'm') escaped = false;
  }
  return width;
}

}  // namespace

std::string bar(double share, int width) {
  constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  if (!(share > 0)) return {};
  std::string text;
  const int eighths = static_cast<int>(std::lround(std::min(share, 1.0) * width * 8));
  for (int i = 0; i < eighths / 8; ++i) text += "█";
  text += kEighths[eighths % 8];
  return share > 1 ? text + ">" : text;
}

std::string spoken(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

namespace {

/// "GiB", "%", "ms,": what stands behind a number belongs to it.
bool is_unit(std::string word) {
  constexpr std::array<std::string_view, 17> kUnits{"%", "B", "KiB", "MiB", "GiB", "TiB", "KB", "MB", "GB", "TB", "ns", "us", "ms", "s", "W", "TFLOP/s", "tokens/s"};
  word.resize(word.find_last_not_of(",.;:)") + 1);
  return std::find(kUnits.begin(), kUnits.end(), word) != kUnits.end();
}

/// Words between which a line may end: a number and its unit are one.
std::vector<std::string> unbroken(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream all(text);
  for (std::string word; all >> word;) {
    const bool behind_number = !words.empty() && words.back().back() >= '0' && words.back().back() <= '9';
    if (behind_number && is_unit(word))
      words.back() += " " + word;
    else
      words.push_back(word);
  }
  return words;
}

}  // namespace

std::string wrapped(const std::string& lead, const std::string& text, std::size_t columns) {
  const std::string indent(display_width(lead), ' ');
  std::string out, line = lead;
  std::size_t width = display_width(lead);
  bool first = true;
  for (const std::string& word : unbroken(text)) {
    const std::size_t needed = display_width(word) + (first ? 0 : 1);
    if (!first && width + needed > columns) {
      out += line + "\n";
      line = indent + word;
      width = indent.size() + display_width(word);
      continue;
    }
    line += (first ? "" : " ") + word;
    width += needed;
    first = false;
  }
  return out + line + "\n";
}

std::string painted(const TextStyle& style, Ink ink, const std::string& text) {
  constexpr const char* kCodes[] = {"1", "1;32", "1;33", "1;31", "2"};
  if (!style.colour || text.empty()) return text;
  return std::string("\033[") + kCodes[static_cast<int>(ink)] + "m" + text + "\033[0m";
}

std::string gib_of(Bytes bytes) { return fmt::format("{:.1f} GiB", bytes.gib()); }

std::string columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i >= widths.size()) widths.push_back(0);
      widths[i] = std::max(widths[i], display_width(row[i]));
    }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - display_width(row[i]), ' ');
      line += i == 0 ? row[i] + pad : "  " + pad + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace plimsoll
