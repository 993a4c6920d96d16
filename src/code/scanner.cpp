#include "code/scanner.hpp"

#include <algorithm>
#include <array>

#include "plimsoll/error.hpp"

namespace plimsoll::code {

std::string place_of(const std::string& where, Place place) {
  if (place.line == 0) return where;
  return where + ":" + std::to_string(place.line) + ":" + std::to_string(place.column);
}

namespace {

constexpr std::size_t kMostBytes = std::size_t{4} << 20;
constexpr int kTab = 8;  ///< a tab ends at the next column that this divides

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name(char c) { return is_name_start(c) || is_digit(c); }

class Scanner {
 public:
  Scanner(const std::string& text, const std::string& where) : text_(text), where_(where) {
    if (text.size() > kMostBytes) fail("a text of more than 4 MiB", where);
  }

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      if (line_begins_ && brackets_.empty()) begin_line();
      if (at_ < text_.size()) next();
    }
    if (!brackets_.empty()) wrong(std::string("'") + text_[brackets_.back()] + "' is never closed", brackets_.back());
    if (!tokens_.empty() && tokens_.back().kind != Token::Kind::newline) add(Token::Kind::newline, at_, 0);
    for (; indents_.size() > 1; indents_.pop_back()) add(Token::Kind::dedent, at_, 0);
    add(Token::Kind::end, at_, 0);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void wrong(const std::string& what, std::size_t at) {
    const std::string_view before = std::string_view(text_).substr(0, at);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::size_t start = before.rfind('\n') + 1;
    fail(what, place_of(where_, {static_cast<int>(line), static_cast<int>(at - start) + 1}));
  }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  Place place(std::size_t at) const { return {line_, static_cast<int>(at - line_start_) + 1}; }
  Token& add(Token::Kind kind, std::size_t at, std::size_t length) {
    tokens_.push_back({kind, std::string_view(text_).substr(std::min(at, text_.size()), length), place(at), false, false});
    return tokens_.back();
  }
  void new_line() {
    ++line_;
    line_start_ = at_;
  }

  /// Indentation of a line that holds anything.
  void begin_line() {
    const std::size_t start = at_;
    int column = 0;
    for (; peek() == ' ' || peek() == '\t' || peek() == '\f'; ++at_) column = peek() == '\t' ? (column / kTab + 1) * kTab : column + 1;
    if (peek() == '#' || peek() == '\n' || peek() == '\r' || at_ >= text_.size() || peek() == '\\') {
      line_begins_ = false;
      return;
    }
    line_begins_ = false;
    if (column > indents_.back()) {
      indents_.push_back(column);
      if (indents_.size() > kMostNested) wrong("blocks nested more than " + std::to_string(kMostNested) + " deep", at_);
      add(Token::Kind::indent, start, at_ - start);
    }
    for (; column < indents_.back(); indents_.pop_back()) add(Token::Kind::dedent, at_, 0);
    if (column != indents_.back()) wrong("indented by " + std::to_string(column) + ", like no block around", at_);
  }

  void next() {
    const char c = peek();
    if (c == '\n') {
      const bool ends = brackets_.empty() && !tokens_.empty() && tokens_.back().kind != Token::Kind::newline &&
                        tokens_.back().kind != Token::Kind::indent && tokens_.back().kind != Token::Kind::dedent;
      if (ends) add(Token::Kind::newline, at_, 0);
      ++at_;
      new_line();
      line_begins_ = brackets_.empty();
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f') {
      ++at_;
    } else if (c == '#') {
      while (at_ < text_.size() && peek() != '\n') ++at_;
    } else if (c == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n'))) {
      at_ += peek(1) == '\r' ? 3 : 2;
      new_line();
    } else if (is_quote()) {
      text();
    } else if (is_name_start(c)) {
      const std::size_t start = at_;
      while (is_name(peek())) ++at_;
      add(Token::Kind::name, start, at_ - start);
    } else if (is_digit(c) || (c == '.' && is_digit(peek(1)))) {
      number();
    } else {
      sign();
    }
  }

  /// Whether a text begins here, with or without a prefix of letters.
  bool is_quote() const {
    std::size_t ahead = 0;
    while (ahead < 2 && std::string_view("rRbBuUfF").find(peek(ahead)) != std::string_view::npos && peek(ahead) != '\0') ++ahead;
    return peek(ahead) == '"' || peek(ahead) == '\'';
  }

  void text() {
    const std::size_t begin = at_;
    bool raw = false, formatted = false;
    for (; peek() != '"' && peek() != '\''; ++at_) {
      raw = raw || peek() == 'r' || peek() == 'R';
      formatted = formatted || peek() == 'f' || peek() == 'F';
    }
    const char quote = peek();
    const bool long_text = peek(1) == quote && peek(2) == quote;
    at_ += long_text ? 3 : 1;
    const std::size_t start = at_;
    const Place where = place(begin);
    const auto ends = [&] { return peek() == quote && (!long_text || (peek(1) == quote && peek(2) == quote)); };
    while (!ends()) {
      if (at_ >= text_.size() || (peek() == '\n' && !long_text)) wrong("a text without its closing quote", begin);
      if (peek() == '\\') ++at_;
      const bool line_ends = peek() == '\n';
      ++at_;
      if (line_ends) new_line();
    }
    tokens_.push_back({Token::Kind::text, std::string_view(text_).substr(start, at_ - start), where, raw, formatted});
    at_ += long_text ? 3 : 1;
  }

  void number() {
    const std::size_t start = at_;
    const bool hexadecimal = peek() == '0' && (peek(1) == 'x' || peek(1) == 'X');
    for (; is_name(peek()) || peek() == '.'; ++at_) {
      const bool exponent = !hexadecimal && (peek() == 'e' || peek() == 'E') && (peek(1) == '+' || peek(1) == '-');
      if (exponent) ++at_;
    }
    add(Token::Kind::number, start, at_ - start);
  }

  void sign() {
    static constexpr std::array<std::string_view, 25> kLong = {"**=", "//=", ">>=", "<<=", "...", "**", "//", ">>", "<<",
                                                               "<=",  ">=",  "==",  "!=",  "->",  "+=", "-=", "*=", "/=",
                                                               "%=",  "@=",  "&=",  "|=",  "^=",  ":=", "<>"};
    const std::string_view rest = std::string_view(text_).substr(at_);
    const auto found = std::find_if(kLong.begin(), kLong.end(), [&](std::string_view each) { return rest.substr(0, each.size()) == each; });
    const std::size_t length = found != kLong.end() ? found->size() : 1;
    if (length == 1 && std::string_view("+-*/%@&|^~<>()[]{},:.;=!").find(rest[0]) == std::string_view::npos)
      wrong("a character that Python has no use for", at_);
    if (std::string_view("([{").find(rest[0]) != std::string_view::npos) {
      brackets_.push_back(at_);
      if (brackets_.size() > kMostNested) wrong("brackets nested more than " + std::to_string(kMostNested) + " deep", at_);
    } else if (std::string_view(")]}").find(rest[0]) != std::string_view::npos) {
      const char open = rest[0] == ')' ? '(' : rest[0] == ']' ? '[' : '{';
      if (brackets_.empty() || text_[brackets_.back()] != open) wrong(std::string("'") + rest[0] + "' closes nothing", at_);
      brackets_.pop_back();
    }
    add(Token::Kind::sign, at_, length);
    at_ += length;
  }

  const std::string& text_;
  const std::string& where_;
  std::size_t at_ = 0, line_start_ = 0;
  int line_ = 1;
  bool line_begins_ = true;
  std::vector<int> indents_{0};
  std::vector<std::size_t> brackets_;  ///< where those that are open stand
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> scan(const std::string& text, const std::string& where) { return Scanner(text, where).run(); }

}  // namespace plimsoll::code
