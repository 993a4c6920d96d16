#include "formats/shell/braces.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

#include "formats/shell/syntax.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats::shell {
namespace {

bool is_quoting(const std::string& raw, std::size_t i) {
  const char c = raw[i];
  return c == '\\' || c == '\'' || c == '"' || c == '`' ||
         (c == '$' && i + 1 < raw.size() && std::string_view("{('\"").find(raw[i + 1]) != std::string_view::npos);
}

/// Where the braces that open at `open` close, and the commas between them.
struct Braces {
  std::size_t open = 0, close = 0;
  std::vector<std::size_t> commas;
};

std::optional<Braces> braces_at(const std::string& raw, std::size_t open, const std::string& where) {
  Braces found{open, 0, {}};
  int depth = 0;
  for (std::size_t i = open; i < raw.size();) {
    if (is_quoting(raw, i)) {
      i = end_of_quote(raw, i, where, 1);
      continue;
    }
    if (raw[i] == '{') ++depth;
    if (raw[i] == ',' && depth == 1) found.commas.push_back(i);
    if (raw[i] == '}' && --depth == 0) {
      found.close = i;
      return found;
    }
    ++i;
  }
  return std::nullopt;
}

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (error != std::errc() || end != text.data() + text.size() || value > kMost || value < -kMost) return std::nullopt;
  return value;
}

bool is_letter(std::string_view text) { return text.size() == 1 && std::isalpha(static_cast<unsigned char>(text[0])) != 0; }

bool is_padded(std::string_view text) {
  if (!text.empty() && text[0] == '-') text.remove_prefix(1);
  return text.size() > 1 && text[0] == '0';
}

/// 1..4, 01..10, a..e, each with ..step; nothing where it is none.
std::vector<std::string> range(const std::string& inner, Effort& effort) {
  std::vector<std::string_view> parts;
  const std::string_view text = inner;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find("..", at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 2;
  }
  if (parts.size() < 2 || parts.size() > 3) return {};
  const bool letters = is_letter(parts[0]) && is_letter(parts[1]);
  const auto from = letters ? std::optional<std::int64_t>(parts[0][0]) : number(parts[0]);
  const auto to = letters ? std::optional<std::int64_t>(parts[1][0]) : number(parts[1]);
  const auto step = parts.size() == 3 ? number(parts[2]) : std::optional<std::int64_t>(1);
  if (!from || !to || !step) return {};
  const std::size_t width = !letters && (is_padded(parts[0]) || is_padded(parts[1])) ? std::max(parts[0].size(), parts[1].size()) : 0;
  const std::int64_t by = std::max<std::int64_t>(1, std::abs(*step));
  std::vector<std::string> words;
  for (std::int64_t i = *from; *from <= *to ? i <= *to : i >= *to; i += *from <= *to ? by : -by) {
    effort.spend(16);
    std::string word = letters ? std::string(1, static_cast<char>(i)) : std::to_string(std::abs(i));
    const std::size_t sign = !letters && i < 0 ? 1 : 0;
    if (word.size() + sign < width) word.insert(0, width - sign - word.size(), '0');
    words.push_back((sign != 0 ? "-" : "") + word);
  }
  return words;
}

std::vector<std::string> expand(const std::string& raw, const std::string& where, Effort& effort, int depth) {
  if (depth > kMostNested) fail("braces within braces without end", where);
  effort.spend(raw.size() + 1);
  for (std::size_t i = 0; i < raw.size();) {
    if (is_quoting(raw, i)) {
      i = end_of_quote(raw, i, where, 1);
      continue;
    }
    if (raw[i] != '{') {
      ++i;
      continue;
    }
    const auto braces = braces_at(raw, i, where);
    if (!braces) return {raw};
    std::vector<std::string> middles;
    if (braces->commas.empty()) {
      middles = range(raw.substr(i + 1, braces->close - i - 1), effort);
    } else {
      std::vector<std::size_t> cuts = braces->commas;
      cuts.push_back(braces->close);
      std::size_t from = i + 1;
      for (const std::size_t cut : cuts) {
        for (std::string& each : expand(raw.substr(from, cut - from), where, effort, depth + 1)) middles.push_back(std::move(each));
        from = cut + 1;
      }
    }
    if (middles.empty()) {
      ++i;
      continue;
    }
    const std::vector<std::string> behind = expand(raw.substr(braces->close + 1), where, effort, depth + 1);
    std::vector<std::string> words;
    for (const std::string& middle : middles)
      for (const std::string& each : behind) {
        effort.spend(i + middle.size() + each.size() + 1);
        words.push_back(raw.substr(0, i) + middle + each);
      }
    return words;
  }
  return {raw};
}

}  // namespace

std::vector<std::string> expand_braces(const std::string& raw, const std::string& where, Effort& effort) {
  if (raw.find('{') == std::string::npos) return {raw};
  return expand(raw, where, effort, 0);
}

}  // namespace plimsoll::formats::shell
