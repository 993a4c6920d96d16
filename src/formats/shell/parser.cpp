// The grammar: commands out of characters. What a quote or a substitution holds is passed over here and read when its word is expanded.
#include <algorithm>
#include <cctype>
#include <string_view>

#include "formats/shell/quotes.hpp"
#include "formats/shell/scanner.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats::shell {
namespace {

constexpr std::string_view kBlanks = " \t";

bool among(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

class Parser : private Scanner {
 public:
  Parser(const std::string& text, const std::string& where, int line, std::size_t at = 0) : Scanner(text, where, line, at) {}

  StatementPtr script() {
    count_lines();
    const StatementPtr all = sequence();
    if (at_ < text_.size()) wrong("'" + text_.substr(at_, 1) + "' starts no command");
    return all;
  }

  std::size_t quote() {
    skip_quoted(false);
    return at_;
  }
  std::size_t arithmetic(std::size_t front) { return skip_arithmetic(front) ? at_ : std::string::npos; }

 private:
  void skip_commands() override { sequence(); }
  void expect(std::string_view what) {
    skip_newlines();
    if (reserved() != what) wrong("'" + std::string(what) + "' is missing before this");
    at_ += what.size();
  }

  // ---- lists ----
  bool at_end_of_list() const {
    if (at_ >= text_.size() || peek() == ')' || starts(";;") || starts(";&")) return true;
    return among(reserved(), {"then", "else", "elif", "fi", "do", "done", "esac", "}"});
  }

  StatementPtr sequence() {
    const Deeper deeper(*this);
    auto all = std::make_shared<Statement>();
    all->kind = Statement::Kind::sequence;
    all->line = line();
    for (skip_newlines(); !at_end_of_list(); skip_newlines()) {
      all->parts.push_back(chain());
      skip_blanks();
      const bool background = peek() == '&';
      all->joints.emplace_back(background ? "&" : ";");
      if (background || (peek() == ';' && peek(1) != ';' && peek(1) != '&')) {
        ++at_;
      } else if (peek() != '\n' && !at_end_of_list()) {
        wrong("'" + text_.substr(at_, 1) + "' stands where a command should end");
      }
    }
    return all;
  }

  StatementPtr chain() {
    auto all = std::make_shared<Statement>();
    all->kind = Statement::Kind::chain;
    all->line = line();
    all->parts.push_back(pipeline());
    for (skip_blanks(); starts("&&") || starts("||"); skip_blanks()) {
      all->joints.push_back(text_.substr(at_, 2));
      at_ += 2;
      skip_newlines();
      all->parts.push_back(pipeline());
    }
    return all->joints.empty() ? all->parts.front() : all;
  }

  StatementPtr pipeline() {
    auto all = std::make_shared<Statement>();
    all->kind = Statement::Kind::pipeline;
    all->line = line();
    for (skip_blanks();; skip_blanks()) {
      if (reserved() == "!") {
        all->negated = !all->negated;
        ++at_;
      } else if (reserved() == "time") {
        at_ += 4;  // how long it takes is told nobody here
        skip_blanks();
        if (reserved() == "-p") at_ += 2;
      } else {
        break;
      }
    }
    all->parts.push_back(command());
    for (skip_blanks(); peek() == '|' && peek(1) != '|'; skip_blanks()) {
      at_ += peek(1) == '&' ? 2 : 1;
      skip_newlines();
      all->parts.push_back(command());
    }
    return all->parts.size() == 1 && !all->negated ? all->parts.front() : all;
  }

  // ---- commands ----
  StatementPtr command() {
    const Deeper deeper(*this);
    skip_blanks();
    auto read = std::make_shared<Statement>();
    read->line = line();
    if (!compound(*read)) {
      simple(*read);
      return read;
    }
    while (redirection(*read)) {
    }
    return read;
  }

  bool compound(Statement& read) {
    using Kind = Statement::Kind;
    if (peek() == '(') {
      const std::size_t from = at_;
      if (peek(1) == '(' && skip_arithmetic(2)) {
        read.kind = Kind::arithmetic;
        read.text = text_.substr(from + 2, at_ - from - 4);
        return true;
      }
      read.kind = Kind::subshell;
      ++at_;
      read.parts.push_back(sequence());
      if (peek() != ')') wrong("'(' has no end", from);
      ++at_;
      return true;
    }
    const std::string first = reserved();
    if (first == "{") {
      ++at_;
      read.kind = Kind::group;
      read.parts.push_back(sequence());
      expect("}");
    } else if (first == "if") {
      condition(read);
    } else if (first == "while" || first == "until") {
      at_ += 5;
      read.kind = Kind::loop;
      read.negated = first == "until";
      read.parts.push_back(sequence());
      body(read);
    } else if (first == "for" || first == "select") {
      each(read, first.size());
    } else if (first == "case") {
      choice(read);
    } else if (first == "[[") {
      test(read);
    } else if (first == "function") {
      at_ += first.size();
      skip_blanks();
      read.text = word().raw;
      skip_blanks();
      if (peek() == '(') empty_brackets();
      definition(read);
    } else {
      return is_definition() ? (named_definition(read), true) : false;
    }
    return true;
  }

  void body(Statement& read) {
    expect("do");
    read.parts.push_back(sequence());
    expect("done");
  }

  void condition(Statement& read) {
    read.kind = Statement::Kind::condition;
    at_ += 2;
    read.parts.push_back(sequence());
    expect("then");
    read.parts.push_back(sequence());
    for (skip_newlines(); reserved() == "elif"; skip_newlines()) {
      at_ += 4;
      read.parts.push_back(sequence());
      expect("then");
      read.parts.push_back(sequence());
    }
    if (reserved() == "else") {
      at_ += 4;
      read.parts.push_back(sequence());
    }
    expect("fi");
  }

  void each(Statement& read, std::size_t length) {
    if (length == std::string_view("select").size()) wrong("'select' asks whoever runs the script");
    at_ += length;
    skip_blanks();
    if (starts("((")) {
      const std::size_t from = at_;
      if (!skip_arithmetic(2)) wrong("'((' has no end");
      read.kind = Statement::Kind::count;
      counts(read, text_.substr(from + 2, at_ - from - 4));
      return repeated(read);
    }
    read.kind = Statement::Kind::each;
    read.text = word().raw;
    if (name_length(read.text) != read.text.size()) wrong("'" + read.text.substr(0, 40) + "' is no variable");
    skip_newlines();
    read.negated = reserved() != "in";
    if (!read.negated) {
      at_ += 2;
      for (skip_blanks(); at_ < text_.size() && peek() != '\n' && peek() != ';'; skip_blanks()) read.words.push_back(word());
    }
    repeated(read);
  }

  /// What stands behind the head of a for or a select: do … done, or braces.
  void repeated(Statement& read) {
    skip_blanks();
    if (peek() == ';') ++at_;
    skip_newlines();
    if (reserved() != "{") return body(read);
    ++at_;
    read.parts.push_back(sequence());
    expect("}");
  }

  void counts(Statement& read, const std::string& text) {
    std::size_t at = 0;
    for (int part = 0; part < 3; ++part) {
      const std::size_t end = part == 2 ? text.size() : text.find(';', at);
      if (end == std::string::npos) wrong("'for ((' has three parts");
      read.words.push_back({text.substr(at, end - at), read.line});
      at = end + 1;
    }
  }

  void choice(Statement& read) {
    read.kind = Statement::Kind::choice;
    at_ += 4;
    skip_blanks();
    read.words.push_back(word());
    expect("in");
    for (skip_newlines(); reserved() != "esac"; skip_newlines()) {
      Clause clause;
      if (peek() == '(') ++at_;
      do {
        if (!clause.patterns.empty()) ++at_;
        skip_blanks();
        clause.patterns.push_back(word());
        skip_blanks();
      } while (peek() == '|');
      if (peek() != ')') wrong("a pattern of 'case' has no ')'");
      ++at_;
      clause.body = sequence();
      for (const char* end : {";;&", ";;", ";&"})
        if (clause.end.empty() && starts(end)) clause.end = end;
      at_ += clause.end.size();
      read.clauses.push_back(std::move(clause));
      skip_newlines();
      if (read.clauses.back().end.empty() && reserved() != "esac") wrong("'esac' is missing before this");
    }
    at_ += 4;
  }

  /// [[ … ]]: words, and the signs between them.
  void test(Statement& read) {
    read.kind = Statement::Kind::test;
    at_ += 2;
    for (skip_newlines(); reserved() != "]]"; skip_newlines()) {
      if (at_ >= text_.size()) wrong("'[[' has no end", at_);
      const bool pattern = !read.words.empty() && read.words.back().raw == "=~";
      const bool sign = !pattern && (starts("&&") || starts("||") || peek() == '(' || peek() == ')' || peek() == '<' || peek() == '>');
      if (sign) {
        const std::size_t length = starts("&&") || starts("||") ? 2 : 1;
        read.words.push_back({text_.substr(at_, length), line()});
        at_ += length;
      } else {
        read.words.push_back(pattern ? expression() : word());
      }
    }
    at_ += 2;
  }

  bool is_definition() {
    const std::size_t from = at_;
    std::size_t end = at_;
    while (end < text_.size() && !ends_word(text_[end]) && std::string_view("\\'\"`$={}").find(text_[end]) == std::string_view::npos) ++end;
    if (end == from) return false;
    while (end < text_.size() && kBlanks.find(text_[end]) != std::string_view::npos) ++end;
    if (end >= text_.size() || text_[end] != '(') return false;
    end = text_.find_first_not_of(kBlanks, end + 1);
    return end != std::string::npos && text_[end] == ')';
  }
  void empty_brackets() {
    ++at_;
    skip_blanks();
    if (peek() != ')') wrong("a function's name is followed by ()");
    ++at_;
  }
  void named_definition(Statement& read) {
    read.text = word().raw;
    skip_blanks();
    empty_brackets();
    definition(read);
  }
  void definition(Statement& read) {
    read.kind = Statement::Kind::function;
    skip_newlines();
    read.parts.push_back(command());
  }

  // ---- simple commands ----
  void simple(Statement& read) {
    for (skip_blanks(); at_ < text_.size(); skip_blanks()) {
      if (redirection(read)) continue;
      const char c = peek();
      if (ends_word(c) && !((c == '<' || c == '>') && peek(1) == '(')) break;
      const bool declares = !read.words.empty() && among(read.words.front().raw, {"export", "declare", "local", "readonly", "typeset"});
      if ((read.words.empty() || declares) && assignment(read)) continue;
      read.words.push_back(word());
    }
    if (read.words.empty() && read.assignments.empty() && read.redirections.empty())
      wrong(at_ >= text_.size() ? "the text ends where a command should stand" : "'" + text_.substr(at_, 1) + "' starts no command");
  }

  /// NAME=…, NAME[…]=…, with += too; behind `declare` and its like a word without = stays a word.
  bool assignment(Statement& read) {
    std::size_t end = at_ + name_length(text_, at_);
    if (end == at_) return false;
    Assignment made;
    made.name = text_.substr(at_, end - at_);
    if (end < text_.size() && text_[end] == '[') {
      const std::size_t close = index_end(end);
      if (close == std::string::npos) return false;
      made.indexed = true;
      made.index = text_.substr(end + 1, close - end - 1);
      end = close + 1;
    }
    made.adds = text_.compare(end, 2, "+=") == 0;
    if (!made.adds && (end >= text_.size() || text_[end] != '=')) return false;
    made.value.line = line();
    at_ = end + (made.adds ? 2 : 1);
    if (peek() == '(' && !made.indexed) {
      made.array = true;
      ++at_;
      for (skip_newlines(); at_ < text_.size() && peek() != ')'; skip_newlines()) made.items.push_back(item());
      if (peek() != ')') wrong("'(' of the array " + made.name.substr(0, 60) + " has no end", end);
      ++at_;
    } else if (at_ < text_.size() && !ends_word(peek())) {
      made.value = word();
    } else if ((peek() == '<' || peek() == '>') && peek(1) == '(') {
      made.value = word();
    }
    read.assignments.push_back(std::move(made));
    return true;
  }
  /// A word of an array; [key]=word may have blanks within its brackets.
  Word item() {
    if (peek() == '[') {
      const std::size_t close = index_end(at_);
      if (close != std::string::npos && (text_.compare(close + 1, 1, "=") == 0 || text_.compare(close + 1, 2, "+=") == 0)) {
        Word read{text_.substr(at_, close + 2 - at_), line()};
        at_ = close + 2;
        if (at_ < text_.size() && !ends_word(peek())) read.raw += word().raw;
        return read;
      }
    }
    return word();
  }
  bool redirection(Statement& read) {
    skip_blanks();
    std::size_t end = at_;
    while (end < text_.size() && std::isdigit(static_cast<unsigned char>(text_[end])) != 0) ++end;
    const bool both = text_.compare(end, 2, "&>") == 0 && end == at_;
    if (end >= text_.size() || (!both && text_[end] != '<' && text_[end] != '>')) return false;
    if (end + 1 < text_.size() && text_[end + 1] == '(') return false;  // a process substitution
    Redirection made;
    constexpr std::size_t kMostDigits = 4;
    if (end > at_) made.descriptor = end - at_ > kMostDigits ? 99 : std::stoi(text_.substr(at_, end - at_));
    at_ = end;
    for (const char* sign : {"&>>", "<<<", "<<-", "&>", "<<", ">>", ">&", "<&", ">|", "<>", "<", ">"})
      if (made.operation.empty() && starts(sign)) made.operation = sign;
    at_ += made.operation.size();
    skip_blanks();
    made.target = word();
    if (made.operation == "<<" || made.operation == "<<-") {
      made.document = std::make_shared<std::string>();
      pending_.push_back(made);
    }
    read.redirections.push_back(std::move(made));
    return true;
  }
};

}  // namespace

StatementPtr parse_script(const std::string& text, const std::string& where, int line) { return Parser(text, where, line).script(); }

std::size_t end_of_quote(const std::string& text, std::size_t at, const std::string& where, int line) {
  return Parser(text, where, line, at).quote();
}

std::size_t end_of_arithmetic(const std::string& text, std::size_t at, std::size_t front, const std::string& where) {
  return Parser(text, where, 1, at).arithmetic(front);
}

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::size_t name_length(const std::string& text, std::size_t at) {
  if (at >= text.size() || !is_name_start(text[at])) return 0;
  std::size_t end = at;
  while (end < text.size() && is_name_char(text[end])) ++end;
  return end - at;
}

}  // namespace plimsoll::formats::shell
