#include "formats/shell/pattern.hpp"

#include <regex.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>

#include "formats/shell/syntax.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats::shell {
namespace {

/// Alternatives of an extended pattern, cut at | outside of brackets.
std::vector<std::string_view> alternatives(std::string_view inner) {
  std::vector<std::string_view> all;
  std::size_t from = 0;
  int depth = 0;
  for (std::size_t i = 0; i < inner.size(); ++i) {
    if (inner[i] == '\\') {
      ++i;
    } else if (inner[i] == '(') {
      ++depth;
    } else if (inner[i] == ')') {
      --depth;
    } else if (inner[i] == '|' && depth == 0) {
      all.push_back(inner.substr(from, i - from));
      from = i + 1;
    }
  }
  all.push_back(inner.substr(from));
  return all;
}

bool of_class(std::string_view name, unsigned char c) {
  static constexpr std::array<std::pair<std::string_view, int (*)(int)>, 12> kClasses = {{{"alpha", std::isalpha},
                                                                                          {"digit", std::isdigit},
                                                                                          {"alnum", std::isalnum},
                                                                                          {"upper", std::isupper},
                                                                                          {"lower", std::islower},
                                                                                          {"space", std::isspace},
                                                                                          {"blank", std::isblank},
                                                                                          {"punct", std::ispunct},
                                                                                          {"print", std::isprint},
                                                                                          {"graph", std::isgraph},
                                                                                          {"cntrl", std::iscntrl},
                                                                                          {"xdigit", std::isxdigit}}};
  for (const auto& [known, has] : kClasses)
    if (known == name) return has(c) != 0;
  return false;
}

class Matcher {
 public:
  Matcher(std::string_view text, Effort& effort) : text_(text), effort_(effort) {}

  bool match(std::string_view pattern, std::size_t at) { return match(pattern, at, text_.size()); }

 private:
  /// Whether `pattern` is all of the text from `at` to `end`.
  bool match(std::string_view pattern, std::size_t at, std::size_t end) {
    if (++depth_ > kMostNested) fail("patterns within patterns without end", {});
    const bool found = match_here(pattern, at, end);
    --depth_;
    return found;
  }

  bool match_here(std::string_view pattern, std::size_t at, std::size_t end) {
    std::size_t star_pattern = std::string_view::npos, star_text = 0, p = 0;
    while (true) {
      effort_.spend(1);
      if (p < pattern.size() && is_extended(pattern, p)) {
        if (extended(pattern.substr(p), at, end)) return true;
      } else if (p < pattern.size() && pattern[p] == '*') {
        star_pattern = ++p;
        star_text = at;
        continue;
      } else if (p == pattern.size() && at == end) {
        return true;
      } else if (p < pattern.size() && at < end) {
        std::size_t next = p;
        if (one(pattern, next, text_[at])) {
          p = next;
          ++at;
          continue;
        }
      }
      if (star_pattern == std::string_view::npos || star_text >= end) return false;
      p = star_pattern;
      at = ++star_text;
    }
  }

  static bool is_extended(std::string_view pattern, std::size_t p) {
    return p + 1 < pattern.size() && pattern[p + 1] == '(' && std::string_view("?*+@!").find(pattern[p]) != std::string_view::npos &&
           closing(pattern, p + 1) != std::string_view::npos;
  }
  static std::size_t closing(std::string_view pattern, std::size_t open) {
    int depth = 0;
    for (std::size_t i = open; i < pattern.size(); ++i) {
      if (pattern[i] == '\\') {
        ++i;
      } else if (pattern[i] == '(') {
        ++depth;
      } else if (pattern[i] == ')' && --depth == 0) {
        return i;
      }
    }
    return std::string_view::npos;
  }

  /// X(a|b)rest
  bool extended(std::string_view pattern, std::size_t at, std::size_t end) {
    const std::size_t close = closing(pattern, 1);
    const std::string_view rest = pattern.substr(close + 1);
    const std::vector<std::string_view> each = alternatives(pattern.substr(2, close - 2));
    const char kind = pattern[0];
    for (std::size_t stop = at; stop <= end; ++stop) {
      effort_.spend(1);
      bool taken = kind == '!' ? !any(each, at, stop) : any(each, at, stop);
      if ((kind == '?' || kind == '*') && stop == at) taken = true;
      if (!taken && (kind == '*' || kind == '+') && stop > at) taken = repeated(each, at, stop);
      if (taken && match(rest, stop, end)) return true;
    }
    return false;
  }
  bool any(const std::vector<std::string_view>& each, std::size_t at, std::size_t end) {
    return std::any_of(each.begin(), each.end(), [&](std::string_view one) { return match(one, at, end); });
  }
  bool repeated(const std::vector<std::string_view>& each, std::size_t at, std::size_t end) {
    std::vector<bool> reached(end - at + 1, false);
    reached[0] = true;
    for (std::size_t from = at; from < end; ++from)
      if (reached[from - at])
        for (std::size_t to = from + 1; to <= end; ++to)
          if (!reached[to - at] && any(each, from, to)) reached[to - at] = true;
    return reached.back();
  }

  /// One character of the text against what begins at `p`, which moves behind it.
  static bool one(std::string_view pattern, std::size_t& p, char c) {
    const char kind = pattern[p];
    if (kind == '?') return ++p, true;
    if (kind == '\\' && p + 1 < pattern.size()) return p += 2, pattern[p - 1] == c;
    if (kind == '[') {
      std::size_t end = p;
      bool found = false;
      if (in_brackets(pattern, end, c, found)) return p = end, found;
    }
    return ++p, kind == c;
  }

  /// […] that begins at `p`; false: it has no end and is a character.
  static bool in_brackets(std::string_view pattern, std::size_t& p, char c, bool& found) {
    std::size_t i = p + 1;
    const bool inverted = i < pattern.size() && (pattern[i] == '!' || pattern[i] == '^');
    if (inverted) ++i;
    const std::size_t first = i;
    bool has = false;
    for (; i < pattern.size(); ++i) {
      if (pattern[i] == ']' && i > first) {
        found = has != inverted;
        p = i + 1;
        return true;
      }
      if (pattern.substr(i, 2) == "[:") {
        const std::size_t end = pattern.find(":]", i + 2);
        if (end != std::string_view::npos) {
          has = has || of_class(pattern.substr(i + 2, end - i - 2), static_cast<unsigned char>(c));
          i = end + 1;
          continue;
        }
      }
      if (pattern[i] == '\\' && i + 1 < pattern.size()) ++i;
      const char low = pattern[i];
      char high = low;
      if (i + 2 < pattern.size() && pattern[i + 1] == '-' && pattern[i + 2] != ']') {
        i += 2;
        if (pattern[i] == '\\' && i + 1 < pattern.size()) ++i;
        high = pattern[i];
      }
      const auto byte = [](char one_char) { return static_cast<unsigned char>(one_char); };
      has = has || (byte(low) <= byte(c) && byte(c) <= byte(high));
    }
    return false;
  }

  std::string_view text_;
  Effort& effort_;
  int depth_ = 0;
};

/// glibc's matcher is quick for expressions without counts that multiply and without references backwards.
void require_cheap(const std::string& expression) {
  constexpr std::size_t kMostLength = 512;
  constexpr int kMostCount = 64, kMostCounts = 2;
  if (expression.size() > kMostLength) fail("a regular expression of more than 512 characters", {});
  int counts = 0;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    if (expression[i] == '\\') {
      if (i + 1 < expression.size() && std::isdigit(static_cast<unsigned char>(expression[i + 1])) != 0)
        fail("a regular expression that refers backwards", {});
      ++i;
    } else if (expression[i] == '{') {
      ++counts;
      for (std::size_t at = i + 1; at < expression.size() && expression[at] != '}'; ++at)
        if (std::isdigit(static_cast<unsigned char>(expression[at])) != 0 && std::atoi(expression.c_str() + at) > kMostCount)
          fail("a regular expression that counts beyond 64", {});
    }
  }
  if (counts > kMostCounts) fail("a regular expression with more than two counts", {});
}

}  // namespace

void Effort::spend(std::size_t steps) {
  if (steps > left_) fail("the script does more than a launch script does, or does not end", {}, "give the launch line behind --");
  left_ -= steps;
}

bool is_special(char c) { return std::string_view("*?[]\\()|!+@-^&").find(c) != std::string_view::npos; }

std::string escaped(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (is_special(c)) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

bool has_pattern(std::string_view pattern) {
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\') {
      ++i;
    } else if (pattern[i] == '*' || pattern[i] == '?' || (pattern[i] == '[' && pattern.find(']', i) != std::string_view::npos)) {
      return true;
    }
  }
  return false;
}

std::string unescaped(std::string_view pattern) {
  std::string text;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) ++i;
    text += pattern[i];
  }
  return text;
}

bool matches(std::string_view pattern, std::string_view text, Effort& effort) { return Matcher(text, effort).match(pattern, 0); }

std::optional<std::vector<std::string>> matched_by_expression(const std::string& expression, const std::string& text, Effort& effort) {
  constexpr std::size_t kMostText = 1 << 16;
  require_cheap(expression);
  if (text.size() > kMostText) fail("a regular expression over more than 64 KiB", {});
  effort.spend(expression.size() * 16 + text.size() * 4);
  regex_t compiled;
  if (regcomp(&compiled, expression.c_str(), REG_EXTENDED) != 0) fail("'" + expression.substr(0, 60) + "' is no regular expression", {});
  constexpr std::size_t kMostBrackets = 10;
  std::array<regmatch_t, kMostBrackets> found;
  const bool matched = regexec(&compiled, text.c_str(), found.size(), found.data(), 0) == 0;
  const std::size_t brackets = std::min<std::size_t>(compiled.re_nsub + 1, kMostBrackets);
  regfree(&compiled);
  if (!matched) return std::nullopt;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < brackets; ++i)
    parts.push_back(found[i].rm_so < 0
                        ? std::string()
                        : text.substr(static_cast<std::size_t>(found[i].rm_so), static_cast<std::size_t>(found[i].rm_eo - found[i].rm_so)));
  return parts;
}

}  // namespace plimsoll::formats::shell
