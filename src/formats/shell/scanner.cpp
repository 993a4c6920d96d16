#include "formats/shell/scanner.hpp"

#include <algorithm>

#include "formats/shell/unknown.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats::shell {
namespace {

constexpr std::string_view kBlanks = " \t";

}  // namespace

bool ends_word(char c) { return c == ' ' || c == '\t' || c == '\n' || std::string_view(";&|<>()").find(c) != std::string_view::npos; }

Scanner::Scanner(const std::string& text, const std::string& where, int line, std::size_t at)
    : text_(text), where_(where), at_(at), first_line_(line) {}

Scanner::Deeper::Deeper(Scanner& scanner) : scanner_(scanner) {
  if (++scanner_.depth_ > kMostNested) scanner_.wrong("commands within commands without end");
}

// ---- places and messages ----

void Scanner::count_lines() {
  for (std::size_t i = text_.find('\n'); i != std::string::npos; i = text_.find('\n', i + 1)) ends_.push_back(i);
}

int Scanner::line_of(std::size_t at) const {
  return first_line_ + static_cast<int>(std::lower_bound(ends_.begin(), ends_.end(), at) - ends_.begin());
}

/// "<path of the model>" on the line of `at`, as an example has it where something is to be written; empty: there is none.
std::string Scanner::placeholder(std::size_t at) const {
  const std::size_t from = at == 0 ? 0 : text_.rfind('\n', at - 1) + 1;  // npos + 1 is 0
  const std::string line = text_.substr(from, std::min(text_.find('\n', at), text_.size()) - from);
  for (std::size_t open = line.find('<'); open != std::string::npos; open = line.find('<', open + 1)) {
    const std::size_t close = line.find('>', open);
    const bool named = open + 1 < line.size() && std::isalpha(static_cast<unsigned char>(line[open + 1])) != 0;
    if (named && close != std::string::npos && line[close - 1] != ' ') return line.substr(open, close + 1 - open);
  }
  return {};
}

void Scanner::wrong(const std::string& what, std::size_t at) const {
  at = std::min(at, text_.size());
  if (const std::string open = placeholder(at); !open.empty())
    fail("'" + open.substr(0, 60) + "' stands for what is to be written there", where_ + ":" + std::to_string(line_of(at)),
         "write the value in its place");
  fail(what, where_ + ":" + std::to_string(line_of(std::min(at, text_.size()))), "bash -n FILE says what the script's grammar is");
}

// ---- blanks ----

void Scanner::skip_blanks() {
  while (at_ < text_.size()) {
    if (kBlanks.find(text_[at_]) != std::string_view::npos) {
      ++at_;
    } else if (starts("\\\n")) {
      at_ += 2;
    } else if (text_[at_] == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else {
      return;
    }
  }
}

void Scanner::skip_newline() {
  ++at_;
  std::vector<Redirection> documents;
  documents.swap(pending_);
  for (const Redirection& one : documents) read_document(one);
}

void Scanner::skip_newlines() {
  for (skip_blanks(); peek() == '\n' && at_ < text_.size(); skip_blanks()) skip_newline();
}

void Scanner::read_document(const Redirection& one) {
  std::string end;
  for (const char c : one.target.raw)
    if (c != '\'' && c != '"' && c != '\\') end += c;
  while (at_ < text_.size()) {
    const std::size_t stop = std::min(text_.find('\n', at_), text_.size());
    std::string each = text_.substr(at_, stop - at_);
    at_ = std::min(stop + 1, text_.size());
    if (one.operation == "<<-") each.erase(0, std::min(each.find_first_not_of('\t'), each.size()));
    if (each == end) return;
    *one.document += each + "\n";
  }
}

// ---- quotes: each moves behind what begins here ----

void Scanner::skip_quoted(bool in_double) {
  const Deeper deeper(*this);
  const char c = peek();
  if (c == '\\') {
    at_ = std::min(at_ + 2, text_.size());
  } else if (c == '\'' && !in_double) {
    close("'", false);
  } else if (c == '"') {
    skip_double();
  } else if (c == '`') {
    close("`", true);
  } else if (starts("$'") && !in_double) {
    ++at_;
    close("'", true);
  } else if (starts("$\"") && !in_double) {
    ++at_;
    skip_double();
  } else if (starts("$((") && skip_arithmetic(3)) {
  } else if (starts("$(") || starts("<(") || starts(">(")) {
    skip_substitution();
  } else if (starts("${")) {
    skip_braces(in_double);
  } else {
    ++at_;
  }
}

void Scanner::close(std::string_view quote, bool escapes) {
  const std::size_t from = at_;
  for (++at_; at_ < text_.size(); ++at_) {
    if (escapes && text_[at_] == '\\') {
      ++at_;
    } else if (text_[at_] == quote[0]) {
      ++at_;
      return;
    }
  }
  wrong("a quote has no end", from);
}

void Scanner::skip_double() {
  const std::size_t from = at_;
  for (++at_; at_ < text_.size();) {
    if (text_[at_] == '"') {
      ++at_;
      return;
    }
    skip_quoted_in_double();
  }
  wrong("a quote has no end", from);
}

void Scanner::skip_quoted_in_double() {
  const char c = peek();
  if (c == '\\' || c == '`' || starts("$(") || starts("${")) return skip_quoted(true);
  ++at_;
}

void Scanner::skip_braces(bool in_double) {
  const std::size_t from = at_;
  for (at_ += 2; at_ < text_.size();) {
    if (text_[at_] == '}') {
      ++at_;
      return;
    }
    if (text_[at_] == '\'' && in_double) {
      ++at_;
    } else if (std::string_view("\\'\"`$").find(text_[at_]) != std::string_view::npos) {
      skip_quoted(in_double);
    } else {
      ++at_;
    }
  }
  wrong("'${' has no end", from);
}

/// $((…)) or ((…)), `front` characters long at its beginning; false, and nothing moved, where its brackets are no arithmetic's.
bool Scanner::skip_arithmetic(std::size_t front) {
  const std::size_t from = at_;
  if (no_arithmetic_.count(from) != 0) return false;
  int depth = 2;
  for (at_ += front; at_ < text_.size();) {
    const char c = text_[at_];
    if (c == ')' && depth == 2) {
      if (peek(1) == ')') {
        at_ += 2;
        return true;
      }
      break;
    }
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if (c == '\\' || c == '\'' || c == '"' || c == '`' || (c == '$' && (peek(1) == '(' || peek(1) == '{'))) {
      skip_quoted(false);
    } else {
      ++at_;
    }
  }
  at_ = from;
  no_arithmetic_.insert(from);
  return false;
}

/// $( ) or <( ): commands up to the bracket.
void Scanner::skip_substitution() {
  const std::size_t from = at_;
  at_ += 2;
  std::vector<Redirection> outer;
  outer.swap(pending_);
  skip_commands();
  pending_.swap(outer);
  if (peek() != ')') wrong("'$(' has no end", from);
  ++at_;
}

void Scanner::skip_balanced() {  // an extended pattern's brackets
  const std::size_t from = at_;
  int depth = 0;
  while (at_ < text_.size()) {
    if (peek() == '(') ++depth;
    const bool last = peek() == ')' && --depth == 0;
    if (std::string_view("\\'\"`$").find(peek()) != std::string_view::npos) {
      skip_quoted(false);
    } else {
      ++at_;
    }
    if (last) return;
  }
  wrong("'(' has no end", from);
}

// ---- words ----

Word Scanner::word() {
  const std::size_t from = at_;
  Word read{{}, line()};
  while (at_ < text_.size()) {
    const char c = peek();
    if ((c == '<' || c == '>') && peek(1) == '(' && at_ == from) {
      skip_quoted(false);
    } else if (c == '(' && at_ > from && std::string_view("?*+@!").find(text_[at_ - 1]) != std::string_view::npos) {
      skip_balanced();
    } else if (ends_word(c)) {
      break;
    } else if (c == kUnknown) {
      at_ = end_of_mark(text_, at_);
    } else if (std::string_view("\\'\"`$").find(c) != std::string_view::npos) {
      skip_quoted(false);
    } else {
      ++at_;
    }
  }
  if (at_ == from)
    wrong(at_ >= text_.size() ? "the text ends within a command" : "'" + text_.substr(at_, 1) + "' stands where a word should");
  read.raw = text_.substr(from, at_ - from);
  return read;
}

/// The word of the grammar that stands here, if only letters and signs that such words have are in it.
std::string Scanner::reserved() const {
  std::size_t end = at_;
  while (end < text_.size() && !ends_word(text_[end])) ++end;
  return text_.substr(at_, std::min<std::size_t>(end - at_, 10));
}

/// The regular expression behind =~: brackets and | are of it.
Word Scanner::expression() {
  const std::size_t from = at_;
  Word read{{}, line()};
  int depth = 0;
  while (at_ < text_.size()) {
    const char c = peek();
    if (c == '(') ++depth;
    if (c == ')' && --depth < 0) break;
    if (depth == 0 && (c == ' ' || c == '\t' || c == '\n')) break;
    if (std::string_view("\\'\"`").find(c) != std::string_view::npos ||
        (c == '$' && (peek(1) == '{' || peek(1) == '(' || peek(1) == '\''))) {
      skip_quoted(false);
    } else {
      ++at_;
    }
  }
  read.raw = text_.substr(from, at_ - from);
  return read;
}

/// Where the ']' of the index that begins at `at` stands.
std::size_t Scanner::index_end(std::size_t at) {
  const std::size_t before = at_;
  int depth = 0;
  std::size_t found = std::string::npos;
  for (at_ = at; at_ < text_.size() && text_[at_] != '\n';) {
    if (text_[at_] == '[') ++depth;
    if (text_[at_] == ']' && --depth == 0) {
      found = at_;
      break;
    }
    if (std::string_view("\\'\"`$").find(text_[at_]) != std::string_view::npos) {
      skip_quoted(false);
    } else if (depth == 1 && (text_[at_] == ' ' || text_[at_] == ';')) {
      break;
    } else {
      ++at_;
    }
  }
  at_ = before;
  return found;
}

}  // namespace plimsoll::formats::shell
