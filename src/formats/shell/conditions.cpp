// Conditions: test, [ ] and [[ ]]. What is not known makes them unknown, unless the other side decides.
#include <algorithm>

#include "formats/shell/sink.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

using shell::Outcome;

Outcome truth(bool holds) { return {holds ? 0 : 1, {}}; }
Outcome inverted(Outcome outcome) {
  if (outcome.is_known()) outcome.code = outcome.code == 0 ? 1 : 0;
  return outcome;
}
/// One side that does not hold decides, whatever the other is.
Outcome conjunction(const Outcome& a, const Outcome& b) {
  if (a.is_known() && a.code != 0) return a;
  if (b.is_known() && b.code != 0) return b;
  return a.is_known() ? b : a;
}
Outcome disjunction(const Outcome& a, const Outcome& b) { return inverted(conjunction(inverted(a), inverted(b))); }

bool among(const std::string& word, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* one) { return word == one; });
}
bool is_unary(const std::string& word) {
  return word.size() == 2 && word[0] == '-' && std::string_view("abcdefghknoprstuvwxzGLNORS").find(word[1]) != std::string_view::npos;
}
bool is_binary(const std::string& word) {
  return among(word, {"=", "==", "!=", "<", ">", "=~", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"});
}

/// test's words, from the outermost sign inward, as POSIX counts them: by how many there are.
class TestReader {
 public:
  using Unary = std::function<Outcome(const std::string&, const std::string&)>;
  using Binary = std::function<Outcome(const std::string&, const std::string&, const std::string&)>;
  TestReader(std::vector<std::string> words, Unary unary, Binary binary, std::function<void(const std::string&)> wrong)
      : words_(std::move(words)), unary_(std::move(unary)), binary_(std::move(binary)), wrong_(std::move(wrong)) {}

  Outcome read() {
    const std::size_t n = words_.size();
    if (n == 0) return truth(false);
    if (n == 1) return unary_("-n", words_[0]);
    if (n == 2 && words_[0] == "!") return inverted(unary_("-n", words_[1]));
    if (n == 2 && is_unary(words_[0])) return unary_(words_[0], words_[1]);
    if (n == 3 && is_binary(words_[1])) return binary_(words_[0], words_[1], words_[2]);
    const Outcome all = either();
    constexpr int kTooMany = 2;  // "too many arguments": the script goes on
    return at_ < n ? Outcome{kTooMany, {}} : all;
  }

 private:
  bool take(const char* word) {
    if (at_ >= words_.size() || words_[at_] != word) return false;
    ++at_;
    return true;
  }
  Outcome either() {
    Outcome all = both();
    while (take("-o")) all = disjunction(all, both());
    return all;
  }
  Outcome both() {
    Outcome all = one();
    while (take("-a")) all = conjunction(all, one());
    return all;
  }
  Outcome one() {
    if (++depth_ > shell::kMostNested) wrong_("tests within tests without end");
    if (at_ + 1 < words_.size() && take("!")) {
      Outcome inner = inverted(one());
      --depth_;
      return inner;
    }
    const bool compares = at_ + 2 < words_.size() && is_binary(words_[at_ + 1]);
    if (!compares && at_ + 1 < words_.size() && take("(")) {
      Outcome inner = either();
      if (!take(")")) wrong_("'(' of a test has no end");
      --depth_;
      return inner;
    }
    --depth_;
    if (compares) {
      at_ += 3;
      return binary_(words_[at_ - 3], words_[at_ - 2], words_[at_ - 1]);
    }
    if (at_ + 1 < words_.size() && is_unary(words_[at_])) {
      at_ += 2;
      return unary_(words_[at_ - 2], words_[at_ - 1]);
    }
    if (at_ >= words_.size()) {
      wrong_("a test has no words");
      return {};
    }
    return unary_("-n", words_[at_++]);
  }

  std::vector<std::string> words_;
  Unary unary_;
  Binary binary_;
  std::function<void(const std::string&)> wrong_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

/// Words [from, to) of test or of [ ].
Shell::Outcome Shell::test(const Words& words, std::size_t from, std::size_t to) {
  const auto number = [&](const std::string& text, std::string& unknown) -> std::int64_t {
    if (is_unknown(text)) {
      unknown = mark_of(text);
      return 0;
    }
    const std::size_t first = text.find_first_not_of(" \t");
    char* end = nullptr;
    const std::int64_t value = std::strtoll(text.c_str(), &end, 10);
    if (first == std::string::npos || text.find_first_not_of(" \t", static_cast<std::size_t>(end - text.c_str())) != std::string::npos)
      wrong("'" + text.substr(0, 60) + "' is no whole number");
    return value;
  };
  const auto compare = [&](const std::string& a, const std::string& sign, const std::string& b) -> Outcome {
    if (!among(sign, {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})) return binary(a, sign, b);
    std::string unknown;
    const std::int64_t x = number(a, unknown), y = number(b, unknown);
    if (!unknown.empty()) return {1, unknown};
    return truth(sign == "-eq"   ? x == y
                 : sign == "-ne" ? x != y
                 : sign == "-lt" ? x < y
                 : sign == "-le" ? x <= y
                 : sign == "-gt" ? x > y
                                 : x >= y);
  };
  return TestReader(
             {words.begin() + static_cast<std::ptrdiff_t>(from), words.begin() + static_cast<std::ptrdiff_t>(to)},
             [&](const std::string& sign, const std::string& word) { return unary(sign, word); }, compare,
             [&](const std::string& what) { wrong(what); })
      .read();
}

Shell::Outcome Shell::unary(const std::string& sign, const std::string& word) {
  const std::string without = [&] {
    std::string rest;
    for (std::size_t i = 0; i < word.size();) {
      if (word[i] == kUnknown) {
        i = end_of_mark(word, i);
      } else {
        rest += word[i++];
      }
    }
    return rest;
  }();
  if (sign == "-n" || sign == "-z") {
    if (is_unknown(word) && without.empty()) return {1, mark_of(word)};
    return truth(word.empty() == (sign == "-z"));
  }
  if (is_unknown(word)) return {1, mark_of(word)};
  if (sign == "-v") {
    const auto found = state_.variables.find(word.substr(0, word.find('[')));
    if (found != state_.variables.end())
      return truth(!fetch(found->first, word.size() > found->first.size()
                                            ? word.substr(found->first.size() + 1, word.size() - found->first.size() - 2)
                                            : "")
                        .items.empty());
    return unknown_outcome(word, "whether the variable " + word.substr(0, 60) + " is set");
  }
  if (sign == "-t") return truth(false);
  if (sign == "-o") return unknown_outcome("-o " + word, "the shell's option " + word.substr(0, 60));
  const std::string path = path_of(word);
  const bool written = state_.files.count(path) != 0;
  if (written && among(sign, {"-f", "-e", "-r", "-s"})) return truth(sign != "-s" || !state_.files.at(path).empty());
  if (among(word, {"/dev/null"}) && among(sign, {"-e", "-r", "-w"})) return truth(true);
  return unknown_outcome(sign + " " + word, "whether " + word.substr(0, 80) + " is there (" + sign + ")");
}

Shell::Outcome Shell::binary(const std::string& a, const std::string& sign, const std::string& b) {
  const bool marked = is_unknown(a) || is_unknown(b);
  if (marked && a == b && (sign == "=" || sign == "==")) return truth(true);
  if (marked) return {1, mark_of(is_unknown(a) ? a : b)};
  if (sign == "=" || sign == "==") return truth(a == b);
  if (sign == "!=") return truth(a != b);
  if (sign == "<") return truth(a < b);
  if (sign == ">") return truth(a > b);
  return unknown_outcome(a + " " + sign + " " + b, "whether " + a.substr(0, 60) + " " + sign + " " + b.substr(0, 60));
}

/// The words between [[ and ]], whose signs are those that stand there, not those that a variable holds.
class Shell::BracketReader {
 public:
  BracketReader(Shell& shell, const std::vector<Word>& words) : shell_(shell), words_(words) {}

  Outcome read() {
    const Outcome all = either(true);
    if (at_ < words_.size()) shell_.wrong("'" + words_[at_].raw.substr(0, 60) + "' stands where ]] should");
    return all;
  }

 private:
  bool here(const char* sign) const { return at_ < words_.size() && words_[at_].raw == sign; }
  bool take(const char* sign) { return here(sign) ? (++at_, true) : false; }

  /// `counts`: false where the outcome no longer matters; words are passed over without being expanded.
  Outcome either(bool counts) {
    Outcome all = both(counts);
    while (take("||")) {
      const Outcome next = both(counts && !all.holds());
      all = disjunction(all, next);
    }
    return all;
  }
  Outcome both(bool counts) {
    Outcome all = one(counts);
    while (take("&&")) {
      const Outcome next = one(counts && !(all.is_known() && all.code != 0));
      all = conjunction(all, next);
    }
    return all;
  }
  Outcome one(bool counts) {
    const Deeper deeper(shell_);
    if (take("!")) return inverted(one(counts));
    if (take("(")) {
      const Outcome inner = either(counts);
      if (!take(")")) shell_.wrong("'(' of [[ has no end");
      return inner;
    }
    if (at_ >= words_.size()) shell_.wrong("a test has no words");
    const Word& first = words_[at_++];
    const bool operand = at_ < words_.size() && !here("&&") && !here("||") && !here(")");
    if (operand && is_binary(words_[at_].raw)) {
      const std::string sign = words_[at_++].raw;
      if (at_ >= words_.size()) shell_.wrong("a test ends behind '" + sign + "'");
      const Word& second = words_[at_++];
      return counts ? compare(first, sign, second) : truth(false);
    }
    if (operand && is_unary(first.raw)) {
      const Word& word = words_[at_++];
      return counts ? shell_.unary(first.raw, shell_.text_of(word)) : truth(false);
    }
    return counts ? shell_.unary("-n", shell_.text_of(first)) : truth(false);
  }

  Outcome compare(const Word& first, const std::string& sign, const Word& second) {
    const std::string a = shell_.text_of(first);
    if (sign == "=" || sign == "==" || sign == "!=") {
      const std::string pattern = shell_.text_of(second, Mode::pattern);
      if (is_unknown(a) || is_unknown(pattern)) {
        if (shell::unescaped(pattern) == a) return truth(sign != "!=");
        return {1, mark_of(is_unknown(a) ? a : pattern)};
      }
      return truth(shell::matches(pattern, a, shell_.effort_) == (sign != "!="));
    }
    if (sign == "=~") return by_expression(a, shell_.text_of(second, Mode::expression));
    const std::string b = shell_.text_of(second);
    if (!among(sign, {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})) return shell_.binary(a, sign, b);
    std::string unknown;
    const auto x = shell_.arithmetic(a, unknown), y = shell_.arithmetic(b, unknown);
    if (!x || !y) return {1, unknown};
    return truth(sign == "-eq"   ? *x == *y
                 : sign == "-ne" ? *x != *y
                 : sign == "-lt" ? *x < *y
                 : sign == "-le" ? *x <= *y
                 : sign == "-gt" ? *x > *y
                                 : *x >= *y);
  }

  Outcome by_expression(const std::string& text, const std::string& expression) {
    Variable found;
    found.array = true;
    if (is_unknown(text) || is_unknown(expression)) {
      const std::string mark = mark_of(is_unknown(text) ? text : expression);
      found.values[0] = mark;
      shell_.state_.variables["BASH_REMATCH"] = found;
      return {1, mark};
    }
    const auto parts = shell::matched_by_expression(expression, text, shell_.effort_);
    for (std::size_t i = 0; parts && i < parts->size(); ++i) found.values[static_cast<std::int64_t>(i)] = (*parts)[i];
    shell_.state_.variables["BASH_REMATCH"] = found;
    return truth(parts.has_value());
  }

  Shell& shell_;
  const std::vector<Word>& words_;
  std::size_t at_ = 0;
};

Shell::Outcome Shell::test_brackets(const std::vector<Word>& words) { return BracketReader(*this, words).read(); }

}  // namespace plimsoll::formats
