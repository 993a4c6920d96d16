// Statements of Python's grammar, by recursive descent.
#include "code/parser.hpp"

#include "plimsoll/error.hpp"

namespace plimsoll::code {

Parser::Parser(const std::string& text, const std::string& where, Names& names, Place origin)
    : where_(where), names_(names), origin_(origin), tokens_(scan(text, where)) {}

Parser::Deeper::Deeper(Parser& parser) : parser_(parser) {
  if (++parser_.depth_ > kMostNested) parser_.wrong("nested more than " + std::to_string(kMostNested) + " deep");
}

Place Parser::place() const {
  const Place at = token().place;
  return at.line == 1 ? Place{origin_.line, at.column + origin_.column - 1} : Place{at.line + origin_.line - 1, at.column};
}

void Parser::wrong(const std::string& what) const { fail(what, place_of(where_, place())); }

void Parser::expected(const std::string& what) const {
  switch (token().kind) {
    case Token::Kind::newline:
      wrong(what + " expected, but the line ends");
    case Token::Kind::end:
      wrong(what + " expected, but the text ends");
    case Token::Kind::indent:
    case Token::Kind::dedent:
      wrong(what + " expected, but the indentation changes");
    default:
      wrong(what + " expected, not '" + std::string(token().text.substr(0, 40)) + "'");
  }
}

bool Parser::take(std::string_view what) {
  if (!token().is(what)) return false;
  ++at_;
  return true;
}

void Parser::need(std::string_view what) {
  if (!take(what)) expected("'" + std::string(what) + "'");
}

Symbol Parser::name() {
  if (!is_free_name()) expected("a name");
  return names_.of(tokens_[at_++].text);
}

bool Parser::is_free_name() const {
  static constexpr std::string_view kReserved[] = {"False", "None",     "True",  "and",    "as",   "assert", "async",  "await",    "break",
                                                   "class", "continue", "def",   "del",    "elif", "else",   "except", "finally",  "for",
                                                   "from",  "global",   "if",    "import", "in",   "is",     "lambda", "nonlocal", "not",
                                                   "or",    "pass",     "raise", "return", "try",  "while",  "with",   "yield"};
  if (token().kind != Token::Kind::name) return false;
  for (const std::string_view each : kReserved)
    if (token().text == each) return false;
  return true;
}

std::unique_ptr<FunctionCode> Parser::module() {
  auto code = std::make_unique<FunctionCode>();
  code->kind = FunctionCode::Kind::module;
  code->name = names_.of("<module>");
  while (token().kind != Token::Kind::end) statement(code->body);
  return code;
}

ExpressionPtr Parser::whole_expression() {
  ExpressionPtr read = expressions();
  if (token().kind == Token::Kind::newline) ++at_;
  if (token().kind != Token::Kind::end) expected("an end");
  return read;
}

StatementPtr Parser::make(Statement::Kind kind) const {
  auto made = std::make_unique<Statement>();
  made->kind = kind;
  made->place = place();
  return made;
}

// ---- blocks -----------------------------------------------------------------------------------------------------------

Suite Parser::block() {
  const Deeper deeper(*this);
  need(":");
  Suite body;
  if (token().kind != Token::Kind::newline) {
    simple_statements(body);
    return body;
  }
  ++at_;
  if (token().kind != Token::Kind::indent) expected("an indented block");
  ++at_;
  while (token().kind != Token::Kind::dedent) statement(body);
  ++at_;
  return body;
}

void Parser::statement(Suite& into) {
  using Reader = StatementPtr (Parser::*)();
  static constexpr std::pair<std::string_view, Reader> kCompound[] = {
      {"if", &Parser::condition}, {"for", &Parser::each},     {"while", &Parser::loop},      {"with", &Parser::with},
      {"try", &Parser::attempt},  {"def", &Parser::function}, {"class", &Parser::class_type}};
  if (token().kind == Token::Kind::indent) wrong("indented without a block around");
  if (token().is("@")) return into.push_back(decorated());
  if (token().is("async") && token(1).is("def")) ++at_;  // refused where it awaits
  if (token().kind == Token::Kind::name)
    for (const auto& [word, reader] : kCompound)
      if (token().text == word) return into.push_back((this->*reader)());
  simple_statements(into);
}

void Parser::simple_statements(Suite& into) {
  do {
    if (token().kind == Token::Kind::newline) break;
    into.push_back(simple());
  } while (take(";"));
  if (token().kind != Token::Kind::newline) expected("an end of the line");
  ++at_;
}

StatementPtr Parser::condition() {
  StatementPtr made = make(Statement::Kind::condition);
  ++at_;
  do {
    ExpressionPtr asked = named_expression();
    made->branches.push_back({std::move(asked), block()});
  } while (take("elif"));
  if (take("else")) made->branches.push_back({nullptr, block()});
  return made;
}

StatementPtr Parser::loop() {
  StatementPtr made = make(Statement::Kind::loop);
  ++at_;
  made->value = named_expression();
  made->body = block();
  if (take("else")) made->orelse = block();
  return made;
}

StatementPtr Parser::each() {
  StatementPtr made = make(Statement::Kind::each);
  ++at_;
  made->targets.push_back(target_list());
  need("in");
  made->value = expressions();
  made->body = block();
  if (take("else")) made->orelse = block();
  return made;
}

StatementPtr Parser::with() {
  StatementPtr made = make(Statement::Kind::with);
  ++at_;
  const bool bracketed = token().is("(") && closes_before_colon();
  if (bracketed) ++at_;
  do {
    if (bracketed && token().is(")")) break;
    made->contexts.push_back(expression());
    made->targets.push_back(take("as") ? target(expression_of_target()) : nullptr);
  } while (take(","));
  if (bracketed) need(")");
  made->body = block();
  return made;
}

/// Whether the bracket that opens here is closed in front of the block's colon: `with (a as b, c):`.
bool Parser::closes_before_colon() const {
  int open = 0;
  for (std::size_t i = at_; i < tokens_.size(); ++i) {
    const Token& each = tokens_[i];
    if (each.kind != Token::Kind::sign) continue;
    if (each.is("(") || each.is("[") || each.is("{")) ++open;
    if ((each.is(")") || each.is("]") || each.is("}")) && --open == 0) return i + 1 < tokens_.size() && tokens_[i + 1].is(":");
  }
  return false;
}

StatementPtr Parser::attempt() {
  StatementPtr made = make(Statement::Kind::attempt);
  ++at_;
  made->body = block();
  while (take("except")) {
    Handler handler;
    if (!token().is(":")) handler.types = expressions();
    if (take("as")) handler.name = target(expression_of_target());
    handler.body = block();
    made->handlers.push_back(std::move(handler));
  }
  if (take("else")) made->orelse = block();
  const bool finally = take("finally");
  if (finally) made->final_body = block();
  if (made->handlers.empty() && !finally) expected("'except' or 'finally'");
  return made;
}

StatementPtr Parser::decorated() {
  std::vector<ExpressionPtr> decorators;
  while (take("@")) {
    decorators.push_back(named_expression());
    if (token().kind != Token::Kind::newline) expected("an end of the line");
    ++at_;
  }
  if (!token().is("def") && !token().is("class")) expected("'def' or 'class'");
  StatementPtr made = token().is("def") ? function() : class_type();
  made->decorators = std::move(decorators);
  return made;
}

StatementPtr Parser::function() {
  StatementPtr made = make(Statement::Kind::function);
  ++at_;
  auto code = std::make_unique<FunctionCode>();
  code->place = made->place;
  made->targets.push_back(name_expression());
  code->name = made->targets.front()->name;
  need("(");
  parameters(*code, ")");
  need(")");
  if (take("->")) (void)expression();
  code->body = block();
  made->function = std::move(code);
  return made;
}

StatementPtr Parser::class_type() {
  StatementPtr made = make(Statement::Kind::class_type);
  ++at_;
  made->targets.push_back(name_expression());
  if (take("(")) {
    made->bases = arguments();
    need(")");
  }
  auto code = std::make_unique<FunctionCode>();
  code->kind = FunctionCode::Kind::class_body;
  code->place = made->place;
  code->name = made->targets.front()->name;
  code->body = block();
  made->function = std::move(code);
  return made;
}

// ---- lines ------------------------------------------------------------------------------------------------------------

StatementPtr Parser::simple() {
  using Kind = Statement::Kind;
  if (token().kind == Token::Kind::name) {
    if (token().text == "import" || token().text == "from") return import();
    if (token().text == "global" || token().text == "nonlocal") return scope();
    for (const auto& [word, kind] :
         {std::pair{"pass", Kind::pass}, std::pair{"break", Kind::breaks}, std::pair{"continue", Kind::continues}})
      if (token().text == word) {
        StatementPtr made = make(kind);
        ++at_;
        return made;
      }
    if (token().text == "return" || token().text == "raise") {
      StatementPtr made = make(token().text == "return" ? Kind::returns : Kind::raise);
      ++at_;
      if (token().kind != Token::Kind::newline && !token().is(";")) made->value = expressions();
      if (made->kind == Kind::raise && take("from")) (void)expression();
      return made;
    }
    if (token().text == "assert") return assertion();
    if (token().text == "del") return deletion();
  }
  return assignment();
}

StatementPtr Parser::assertion() {
  StatementPtr made = make(Statement::Kind::assertion);
  ++at_;
  made->value = expression();
  if (take(",")) made->targets.push_back(expression());
  return made;
}

StatementPtr Parser::deletion() {
  StatementPtr made = make(Statement::Kind::deletion);
  ++at_;
  do made->targets.push_back(target(expression_of_target()));
  while (take(","));
  return made;
}

StatementPtr Parser::scope() {
  StatementPtr made = make(Statement::Kind::scope);
  made->outermost = token().text == "global";
  ++at_;
  do made->scoped.push_back(name());
  while (take(","));
  return made;
}

StatementPtr Parser::import() {
  StatementPtr made = make(Statement::Kind::import);
  const auto dotted = [&] {
    std::string path;
    while (take(".") || take("...")) path += tokens_[at_ - 1].text;
    if (!token().is("import")) {
      path += names_.text(name());
      while (take(".")) path += "." + names_.text(name());
    }
    return path;
  };
  if (take("import")) {
    do {
      Statement::Import item;
      item.path = dotted();
      if (take("as")) {
        item.target = name_expression();
      } else {  // binds the first name of the path alone
        item.target = named(names_.of(item.path.substr(0, item.path.find('.'))));
        item.path = item.path.substr(0, item.path.find('.'));
      }
      made->imports.push_back(std::move(item));
    } while (take(","));
    return made;
  }
  need("from");
  const std::string path = dotted();
  need("import");
  if (take("*")) {
    Statement::Import item;
    item.path = path;
    item.star = true;
    made->imports.push_back(std::move(item));
    return made;
  }
  const bool bracketed = take("(");
  do {
    if (bracketed && token().is(")")) break;
    Statement::Import item;
    item.path = path;
    item.name = name();
    item.target = take("as") ? name_expression() : named(item.name);
    made->imports.push_back(std::move(item));
  } while (take(","));
  if (bracketed) need(")");
  return made;
}

StatementPtr Parser::assignment() {
  static constexpr std::pair<std::string_view, Operator> kAugmented[] = {
      {"+=", Operator::add},           {"-=", Operator::subtract}, {"*=", Operator::multiply}, {"/=", Operator::divide},
      {"//=", Operator::floor_divide}, {"%=", Operator::modulo},   {"**=", Operator::power},   {"@=", Operator::matrix_multiply},
      {"&=", Operator::bit_and},       {"|=", Operator::bit_or},   {"^=", Operator::bit_xor},  {"<<=", Operator::left_shift},
      {">>=", Operator::right_shift}};
  StatementPtr made = make(Statement::Kind::expression);
  ExpressionPtr read = expressions();
  if (take(":")) {
    made->kind = Statement::Kind::annotated;
    made->targets.push_back(target(std::move(read)));
    made->annotation = expression();
    if (take("=")) made->value = expressions();
    return made;
  }
  for (const auto& [sign, op] : kAugmented) {
    if (!token().is(sign)) continue;
    ++at_;
    made->kind = Statement::Kind::augmented;
    made->op = op;
    made->targets.push_back(target(std::move(read)));
    made->value = expressions();
    return made;
  }
  while (take("=")) {
    made->kind = Statement::Kind::assign;
    made->targets.push_back(target(std::move(read)));
    read = expressions();
  }
  made->value = std::move(read);
  return made;
}

ExpressionPtr Parser::target(ExpressionPtr read) const {
  switch (read->kind) {
    case Expression::Kind::name:
    case Expression::Kind::attribute:
    case Expression::Kind::subscript:
      return read;
    case Expression::Kind::starred:
    case Expression::Kind::tuple:
    case Expression::Kind::list:
      for (ExpressionPtr& part : read->parts) part = target(std::move(part));
      return read;
    default:
      fail("what stands here cannot be assigned to", place_of(where_, read->place));
  }
}

std::unique_ptr<FunctionCode> parse_module(const std::string& text, const std::string& where, Names& names) {
  return Parser(text, where, names).module();
}

ExpressionPtr parse_expression(const std::string& text, const std::string& where, Names& names) {
  return Parser(text, where, names).whole_expression();
}

}  // namespace plimsoll::code
