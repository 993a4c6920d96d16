#include "code/text_module.hpp"

#include <algorithm>
#include <string_view>

namespace plimsoll::code {

namespace {

/// The names that a statement of a module binds or changes, the statements within it included.
class Binders {
 public:
  Binders(TextModule& module, std::size_t piece) : module_(module), piece_(piece) {}

  void bind(Symbol name) {
    auto& known = module_.binders[name];
    if (known.empty() || known.back() != piece_) known.push_back(piece_);
  }

  void visit(const Suite& suite) {
    for (const StatementPtr& each : suite) visit(*each);
  }

 private:

  void target(const Expression* expression) {
    if (expression == nullptr) return;
    switch (expression->kind) {
      case Expression::Kind::name:
        return bind(expression->name);
      case Expression::Kind::attribute:  // table.entry = …, table[key] = …: the table is not whole without it
      case Expression::Kind::subscript:
        return target(expression->parts[0].get());
      case Expression::Kind::tuple:
      case Expression::Kind::list:
      case Expression::Kind::starred:
        for (const ExpressionPtr& part : expression->parts) target(part.get());
        return;
      default:
        return;
    }
  }

  /// TABLE.update(…), TABLE.register(…): a call whose value nobody keeps changes what it is called on. register_block(…) changes what is
  /// elsewhere.
  void called(const Expression* expression) {
    if (expression == nullptr || expression->kind != Expression::Kind::call) return;
    const Expression* on = expression->parts[0].get();
    while (on->kind == Expression::Kind::attribute || on->kind == Expression::Kind::subscript) on = on->parts[0].get();
    if (on->kind != Expression::Kind::name) return;
    if (on != expression->parts[0].get())
      bind(on->name);
    else
      module_.registrations.push_back(piece_);
  }

  void visit(const Statement& s) {
    if (s.kind == Statement::Kind::expression) called(s.value.get());
    if (s.kind == Statement::Kind::annotated && !s.value) return;
    for (const ExpressionPtr& each : s.targets) target(each.get());
    if (s.value && s.value->kind == Expression::Kind::assignment) bind(s.value->name);
    for (const Statement::Import& import : s.imports) {
      if (import.target) target(import.target.get());
      if (!import.star) continue;
      const std::string path = absolute_path(module_, import.path);
      if (std::find(module_.stars.begin(), module_.stars.end(), path) == module_.stars.end()) module_.stars.push_back(path);
    }
    if (s.kind == Statement::Kind::function || s.kind == Statement::Kind::class_type) return;
    for (const Branch& branch : s.branches) visit(branch.body);
    for (const Handler& handler : s.handlers) visit(handler.body);
    for (const Suite* suite : {&s.body, &s.orelse, &s.final_body}) visit(*suite);
  }

  TextModule& module_;
  std::size_t piece_;
};

/// Cuts a text where its outermost statements begin: at the first column, outside of brackets and of texts.
class Cutter {
 public:
  explicit Cutter(std::string_view text) : text_(text) {}

  std::vector<TextModule::Piece> run() {
    while (at_ < text_.size()) {
      if (starts_here()) {
        if (!pieces_.empty()) pieces_.back().end = at_;
        pieces_.push_back({at_, text_.size(), line_, nullptr, false});
        decorates_ = text_[at_] == '@';
      }
      rest_of_line();
    }
    return std::move(pieces_);
  }

 private:
  bool starts_here() {
    const char c = text_[at_];
    if (open_ > 0 || continues_ || c == ' ' || c == '\t' || c == '#' || c == '\n' || c == '\r' || c == '\f') return false;
    if (pieces_.empty()) return true;
    if (decorates_) {  // what a decorator stands before is of its piece
      decorates_ = c == '@';
      return false;
    }
    for (const std::string_view word : {"else", "elif", "except", "finally"})
      if (text_.substr(at_).starts_with(word)) return false;
    return true;
  }

  void rest_of_line() {
    continues_ = false;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') {
        ++line_;
        ++at_;
        return;
      }
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
        continue;
      }
      if (c == '\\') {
        continues_ = at_ + 1 < text_.size() && text_[at_ + 1] == '\n';
        ++at_;
        continue;
      }
      if (c == '"' || c == '\'') {
        quoted(c);
        continue;
      }
      if (c == '(' || c == '[' || c == '{') ++open_;
      if ((c == ')' || c == ']' || c == '}') && open_ > 0) --open_;
      ++at_;
    }
  }

  void quoted(char quote) {
    const bool is_long = text_.substr(at_).starts_with(std::string(3, quote));
    at_ += is_long ? 3 : 1;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\\') {
        if (at_ + 1 < text_.size() && text_[at_ + 1] == '\n') ++line_;
        at_ += 2;
        continue;
      }
      if (c == '\n') {
        if (!is_long) return;  // what the scanner will say is wrong
        ++line_;
      }
      if (c == quote && (!is_long || text_.substr(at_).starts_with(std::string(3, quote)))) {
        at_ += is_long ? 3 : 1;
        return;
      }
      ++at_;
    }
    at_ = text_.size();
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1, open_ = 0;
  bool continues_ = false, decorates_ = false;
  std::vector<TextModule::Piece> pieces_;
};

bool is_name(char c) { return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string_view word_at(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && is_name(text[end])) ++end;
  return text.substr(at, end - at);
}

/// The one name that a piece binds, where its first words say so; empty: it must be parsed.
std::string_view plain_name(std::string_view piece) {
  while (piece.starts_with('@')) {  // behind decorators, whose own lines go on in brackets or indented
    std::size_t next = piece.find('\n');
    while (next != std::string_view::npos && next + 1 < piece.size() &&
           std::string_view(" \t\n#)]}").find(piece[next + 1]) != std::string_view::npos)
      next = piece.find('\n', next + 1);
    if (next == std::string_view::npos) return {};
    piece.remove_prefix(next + 1);
  }
  const std::string_view first = word_at(piece, 0);
  if (first == "class" || first == "def") return word_at(piece, piece.find_first_not_of(' ', first.size()));
  for (const std::string_view keyword : {"if", "try", "with", "for", "while", "import", "from", "async", "del", "global", "assert", "raise", "pass"})
    if (first == keyword) return {};
  const std::size_t behind = piece.find_first_not_of(' ', first.size());
  if (first.empty() || behind == std::string_view::npos) return {};
  const bool assigns = piece[behind] == '=' && piece.find('=', behind + 1) != behind + 1;
  if (!assigns) return {};
  // a = b = …: more names
  const std::string_view line = piece.substr(behind + 1, std::min(piece.find('\n'), piece.size()) - behind - 1);
  return line.find(" = ") == std::string_view::npos ? first : std::string_view();
}

}  // namespace

const FunctionCode& TextModule::parsed(Piece& piece, Names& names) {
  if (piece.code) return *piece.code;
  // Lines before it are empty, so that places are those of the file.
  const std::string padded = std::string(static_cast<std::size_t>(piece.line - 1), '\n') + text.substr(piece.start, piece.end - piece.start);
  piece.code = parse_module(padded, where, names);
  resolve_names(*piece.code, *this);
  return *piece.code;
}

void TextModule::index(Names& names) {
  pieces = Cutter(text).run();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    Binders found(*this, i);
    const std::string_view only = plain_name(std::string_view(text).substr(pieces[i].start, pieces[i].end - pieces[i].start));
    if (!only.empty())
      found.bind(names.of(only));
    else
      found.visit(parsed(pieces[i], names).body);
  }
}

std::string absolute_path(const TextModule& module, const std::string& path) {
  const std::size_t dots = std::min(path.find_first_not_of('.'), path.size());
  if (dots == 0) return path;
  std::string base = module.package;
  for (std::size_t up = 1; up < dots; ++up) {
    const std::size_t dot = base.rfind('.');
    if (dot == std::string::npos) return {};
    base.resize(dot);
  }
  const std::string rest = path.substr(dots);
  return base.empty() ? rest : rest.empty() ? base : base + "." + rest;
}

}  // namespace plimsoll::code
