#include "formats/shell/arithmetic.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "formats/shell/syntax.hpp"
#include "formats/shell/unknown.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats::shell {
namespace {

using Value = std::int64_t;

std::uint64_t bits(Value value) { return static_cast<std::uint64_t>(value); }
Value wrapped(std::uint64_t value) { return static_cast<Value>(value); }

struct Operator {
  std::string_view sign;
  int rank;  ///< the higher, the closer it binds
};
/// Longest first.
constexpr Operator kOperators[] = {{"**", 11}, {"<<", 8}, {">>", 8}, {"<=", 7}, {">=", 7}, {"==", 6}, {"!=", 6},
                                   {"&&", 2},  {"||", 1}, {"*", 10}, {"/", 10}, {"%", 10}, {"+", 9},  {"-", 9},
                                   {"<", 7},   {">", 7},  {"&", 5},  {"^", 4},  {"|", 3}};
constexpr std::string_view kAssignments[] = {"<<=", ">>=", "*=", "/=", "%=", "+=", "-=", "&=", "^=", "|="};

class Evaluator {
 public:
  Evaluator(const std::string& text, const Names& names, const std::string& where, std::string& unknown, int depth)
      : text_(text), names_(names), where_(where), unknown_(unknown), depth_(depth) {}

  Value all() {
    skip();
    if (at_ >= text_.size()) return 0;
    const Value value = comma();
    skip();
    if (at_ < text_.size()) wrong();
    return value;
  }

 private:
  /// A variable, or an element of one.
  struct Place {
    std::string name, index;
  };

  [[noreturn]] void wrong() const { fail("'" + readable(text_).substr(0, 80) + "' is no arithmetic", where_); }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool starts(std::string_view sign) const { return text_.compare(at_, sign.size(), sign) == 0; }
  bool take(std::string_view sign) {
    skip();
    if (!starts(sign)) return false;
    at_ += sign.size();
    return true;
  }
  struct Deeper {
    explicit Deeper(Evaluator& e) : of(e) {
      if (++of.depth_ > kMostNested) fail("arithmetic within arithmetic without end", of.where_);
    }
    ~Deeper() { --of.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    Evaluator& of;
  };

  Value comma() {
    Value value = assignment();
    while (take(",")) value = assignment();
    return value;
  }

  Value assignment() {
    const Deeper deeper(*this);
    const std::size_t before = at_;
    if (const auto place = variable()) {
      skip();
      for (const std::string_view sign : kAssignments)
        if (starts(sign)) {
          at_ += sign.size();
          const Value right = assignment();
          return set(*place, apply(sign.substr(0, sign.size() - 1), get(*place), right));
        }
      if (starts("=") && !starts("==")) {
        ++at_;
        return set(*place, assignment());
      }
    }
    at_ = before;
    return choice();
  }

  Value choice() {
    const Value condition = binary(0);
    if (!take("?")) return condition;
    const Value yes = quietly(condition == 0, [&] { return comma(); });
    if (!take(":")) wrong();
    const Value no = quietly(condition != 0, [&] { return assignment(); });
    return condition != 0 ? yes : no;
  }

  /// Evaluates without effect where `quiet`: the side that is not taken.
  template <class Body>
  Value quietly(bool quiet, const Body& body) {
    quiet_ += quiet ? 1 : 0;
    const Value value = body();
    quiet_ -= quiet ? 1 : 0;
    return value;
  }

  const Operator* operator_here() {
    skip();
    for (const Operator& one : kOperators)
      if (starts(one.sign)) {
        const std::size_t behind = at_ + one.sign.size();
        const bool assigns = behind < text_.size() && text_[behind] == '=' && one.sign != "==" && one.sign != "!=" && one.sign != "<=" &&
                             one.sign != ">=" && one.sign != "<" && one.sign != ">" && one.sign != "&&" && one.sign != "||";
        return assigns ? nullptr : &one;
      }
    return nullptr;
  }

  Value binary(int rank) {
    const Deeper deeper(*this);
    Value left = unary();
    for (const Operator* next = operator_here(); next != nullptr && next->rank > rank; next = operator_here()) {
      at_ += next->sign.size();
      const bool skipped = (next->sign == "&&" && left == 0) || (next->sign == "||" && left != 0);
      const bool right_first = next->sign == "**";
      const Value right = quietly(skipped, [&] { return binary(right_first ? next->rank - 1 : next->rank); });
      left = apply(next->sign, left, right);
    }
    return left;
  }

  Value apply(std::string_view sign, Value a, Value b) {
    if (sign == "+") return wrapped(bits(a) + bits(b));
    if (sign == "-") return wrapped(bits(a) - bits(b));
    if (sign == "*") return wrapped(bits(a) * bits(b));
    if (sign == "**") return power(a, b);
    if (sign == "/" || sign == "%") {
      if (quiet_ > 0 || !unknown_.empty()) return 0;
      if (b == 0) fail("a division by 0 in '" + readable(text_).substr(0, 80) + "'", where_);
      if (b == -1) return sign == "/" ? wrapped(0 - bits(a)) : 0;
      return sign == "/" ? a / b : a % b;
    }
    constexpr std::uint64_t kShift = 63;
    if (sign == "<<") return wrapped(bits(a) << (bits(b) & kShift));
    if (sign == ">>") return a >> (bits(b) & kShift);
    if (sign == "<") return a < b;
    if (sign == ">") return a > b;
    if (sign == "<=") return a <= b;
    if (sign == ">=") return a >= b;
    if (sign == "==") return a == b;
    if (sign == "!=") return a != b;
    if (sign == "&") return wrapped(bits(a) & bits(b));
    if (sign == "^") return wrapped(bits(a) ^ bits(b));
    if (sign == "|") return wrapped(bits(a) | bits(b));
    if (sign == "&&") return a != 0 && b != 0;
    return a != 0 || b != 0;
  }
  Value power(Value a, Value b) const {
    if (b < 0) {
      if (quiet_ > 0) return 0;
      wrong();
    }
    std::uint64_t value = 1, base = bits(a);
    for (std::uint64_t rest = bits(b); rest != 0; rest >>= 1U) {
      if ((rest & 1U) != 0) value *= base;
      base *= base;
    }
    return wrapped(value);
  }

  Value unary() {
    const Deeper deeper(*this);
    skip();
    for (const std::string_view step : {"++", "--"})
      if (starts(step)) {
        const std::size_t before = at_;
        at_ += 2;
        skip();
        if (const auto place = variable()) return set(*place, wrapped(bits(get(*place)) + (step == "++" ? 1 : ~std::uint64_t{0})));
        at_ = before;
        break;
      }
    if (take("!")) return unary() == 0;
    if (take("~")) return wrapped(~bits(unary()));
    if (take("-")) return wrapped(0 - bits(unary()));
    if (take("+")) return unary();
    return atom();
  }

  Value atom() {
    skip();
    if (at_ >= text_.size()) wrong();
    if (take("(")) {
      const Value value = comma();
      if (!take(")")) wrong();
      return value;
    }
    if (text_[at_] == kUnknown) {
      const std::string mark = mark_of(text_.substr(at_));
      at_ = end_of_mark(text_, at_);
      while (at_ < text_.size() && (is_name_char(text_[at_]) || text_[at_] == kUnknown))
        at_ = text_[at_] == kUnknown ? end_of_mark(text_, at_) : at_ + 1;
      return not_known(mark);
    }
    if (const auto place = variable()) {
      skip();
      if (starts("++") || starts("--")) {
        const Value before = get(*place);
        set(*place, wrapped(bits(before) + (starts("++") ? 1 : ~std::uint64_t{0})));
        at_ += 2;
        return before;
      }
      return get(*place);
    }
    return number();
  }

  Value not_known(const std::string& mark) {
    if (quiet_ == 0 && unknown_.empty()) unknown_ = mark;
    return 0;
  }

  /// 12, 0x1f, 017, 2#101
  Value number() {
    const std::size_t from = at_;
    while (at_ < text_.size() && (is_name_char(text_[at_]) || text_[at_] == '#' || text_[at_] == '@')) ++at_;
    std::string_view digits = std::string_view(text_).substr(from, at_ - from);
    if (at_ < text_.size() && text_[at_] == kUnknown) return atom();  // "1$X"
    if (digits.empty() || std::isdigit(static_cast<unsigned char>(digits[0])) == 0) wrong();
    std::uint64_t base = 10;
    const std::size_t sharp = digits.find('#');
    constexpr std::uint64_t kMostBase = 64, kHex = 16, kOctal = 8;
    if (sharp != std::string_view::npos) {
      base = 0;
      for (const char c : digits.substr(0, sharp))
        base = std::isdigit(static_cast<unsigned char>(c)) != 0 && base < 100 ? base * 10 + static_cast<std::uint64_t>(c - '0') : 100;
      digits.remove_prefix(sharp + 1);
      if (base < 2 || base > kMostBase || digits.empty()) wrong();
    } else if (digits.size() > 1 && digits[0] == '0') {
      const bool hex = digits[1] == 'x' || digits[1] == 'X';
      base = hex ? kHex : kOctal;
      digits.remove_prefix(hex ? 2 : 1);
    }
    std::uint64_t value = 0;
    for (const char c : digits) {
      const std::uint64_t digit = digit_of(c, base);
      if (digit >= base) wrong();
      value = value * base + digit;
    }
    return wrapped(value);
  }
  static std::uint64_t digit_of(char c, std::uint64_t base) {
    constexpr std::uint64_t kLetters = 36;
    if (c >= '0' && c <= '9') return static_cast<std::uint64_t>(c - '0');
    if (c >= 'a' && c <= 'z') return static_cast<std::uint64_t>(c - 'a') + 10;
    if (c >= 'A' && c <= 'Z') return static_cast<std::uint64_t>(c - 'A') + (base <= kLetters ? 10 : kLetters);
    return c == '@' ? 62 : c == '_' ? 63 : 64;
  }

  std::optional<Place> variable() {
    skip();
    const std::size_t length = name_length(text_, at_);
    if (length == 0) return std::nullopt;
    Place place{text_.substr(at_, length), {}};
    at_ += length;
    if (at_ < text_.size() && text_[at_] == '[') {
      int depth = 0;
      const std::size_t from = at_ + 1;
      while (at_ < text_.size()) {
        if (text_[at_] == '[') ++depth;
        if (text_[at_] == ']' && --depth == 0) break;
        ++at_;
      }
      if (at_ >= text_.size()) wrong();
      place.index = text_.substr(from, at_ - from);
      ++at_;
    }
    return place;
  }

  /// A variable's text is an expression again.
  Value get(const Place& place) {
    if (quiet_ > 0) return 0;
    const Deeper deeper(*this);
    const std::string text = names_.get(place.name, place.index);
    if (is_unknown(text)) return not_known(mark_of(text));
    return Evaluator(text, names_, where_, unknown_, depth_).all();
  }
  Value set(const Place& place, Value value) {
    if (quiet_ == 0 && unknown_.empty()) names_.set(place.name, place.index, value);
    return value;
  }

  const std::string& text_;
  const Names& names_;
  const std::string& where_;
  std::string& unknown_;
  std::size_t at_ = 0;
  int depth_ = 0, quiet_ = 0;
};

}  // namespace

std::optional<std::int64_t> evaluate(const std::string& expression, const Names& names, const std::string& where, std::string& unknown) {
  const std::int64_t value = Evaluator(expression, names, where, unknown, 0).all();
  return unknown.empty() ? std::optional<std::int64_t>(value) : std::nullopt;
}

}  // namespace plimsoll::formats::shell
