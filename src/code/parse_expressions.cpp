// Expressions of Python's grammar: binary operators by their precedence, all else by recursive descent.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "code/parser.hpp"
#include "plimsoll/error.hpp"
#include "units/real.hpp"

namespace plimsoll::code {

namespace {

constexpr int kMostDepth = 200;  ///< of one expression's tree

std::vector<ExpressionPtr> list_of(ExpressionPtr first, ExpressionPtr second = nullptr) {
  std::vector<ExpressionPtr> parts;
  parts.push_back(std::move(first));
  if (second) parts.push_back(std::move(second));
  return parts;
}

struct Binary {
  std::string_view sign;
  Operator op;
  int precedence;
};

constexpr Binary kBinary[] = {{"|", Operator::bit_or, 1},        {"^", Operator::bit_xor, 2},      {"&", Operator::bit_and, 3},
                              {"<<", Operator::left_shift, 4},   {">>", Operator::right_shift, 4}, {"+", Operator::add, 5},
                              {"-", Operator::subtract, 5},      {"*", Operator::multiply, 6},     {"/", Operator::divide, 6},
                              {"//", Operator::floor_divide, 6}, {"%", Operator::modulo, 6},       {"@", Operator::matrix_multiply, 6}};

}  // namespace

ExpressionPtr Parser::make(Expression::Kind kind, std::vector<ExpressionPtr> parts) const {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->place = place();
  if (!parts.empty() && parts.front()) made->place = parts.front()->place;
  made->parts = std::move(parts);
  return finished(std::move(made));
}

ExpressionPtr Parser::finished(ExpressionPtr made) const {
  int depth = 0;
  for (const ExpressionPtr& part : made->parts) depth = std::max(depth, part ? part->depth : 0);
  for (const CallArgument& argument : made->arguments) depth = std::max(depth, argument.value->depth);
  made->depth = depth + 1;
  if (made->depth > kMostDepth)
    fail("an expression of more than " + std::to_string(kMostDepth) + " operators within each other", place_of(where_, made->place));
  return made;
}

ExpressionPtr Parser::named(Symbol name) const {
  ExpressionPtr made = make(Expression::Kind::name);
  made->name = name;
  return made;
}

ExpressionPtr Parser::name_expression() {
  ExpressionPtr made = make(Expression::Kind::name);
  made->name = name();
  return made;
}

ExpressionPtr Parser::starred_or(ExpressionPtr (Parser::*read)()) {
  if (!token().is("*")) return (this->*read)();
  const Place at = place();
  ++at_;
  ExpressionPtr made = make(Expression::Kind::starred, list_of(bit_or()));
  made->place = at;
  return made;
}

ExpressionPtr Parser::expressions() {
  ExpressionPtr first = starred_or(&Parser::named_expression);
  if (!token().is(",")) return first;
  std::vector<ExpressionPtr> parts = list_of(std::move(first));
  while (take(",")) {
    const bool ends = token().kind == Token::Kind::newline || token().kind == Token::Kind::end || token().is("=") || token().is(")") ||
                      token().is("]") || token().is("}") || token().is(":") || token().is(";");
    if (ends) break;
    parts.push_back(starred_or(&Parser::named_expression));
  }
  return make(Expression::Kind::tuple, std::move(parts));
}

ExpressionPtr Parser::named_expression() {
  if (!is_free_name() || !token(1).is(":=")) return expression();
  ExpressionPtr made = make(Expression::Kind::assignment);
  made->name = name();
  need(":=");
  made->parts.push_back(expression());
  return finished(std::move(made));
}

ExpressionPtr Parser::expression() {
  const Deeper deeper(*this);
  if (token().is("lambda")) return lambda();
  if (token().is("yield") || token().is("await")) return suspension();
  ExpressionPtr read = logical_or();
  if (!take("if")) return read;
  ExpressionPtr asked = logical_or();
  need("else");
  std::vector<ExpressionPtr> parts = list_of(std::move(asked), std::move(read));
  parts.push_back(expression());
  return make(Expression::Kind::conditional, std::move(parts));
}

/// Read, so that the text is; refused where it runs.
ExpressionPtr Parser::suspension() {
  ExpressionPtr made = make(Expression::Kind::suspension);
  ++at_;
  (void)take("from");
  if (token().kind != Token::Kind::newline && !token().is(")")) (void)expressions();
  return made;
}

ExpressionPtr Parser::expression_of_target() { return starred_or(&Parser::bit_or); }

ExpressionPtr Parser::target_list() {
  ExpressionPtr first = target(expression_of_target());
  if (!token().is(",")) return first;
  std::vector<ExpressionPtr> parts = list_of(std::move(first));
  while (take(","))
    if (!token().is("in") && !token().is("=")) parts.push_back(target(expression_of_target()));
  return make(Expression::Kind::tuple, std::move(parts));
}

ExpressionPtr Parser::lambda() {
  ExpressionPtr made = make(Expression::Kind::lambda);
  ++at_;
  auto code = std::make_unique<FunctionCode>();
  code->kind = FunctionCode::Kind::lambda;
  code->name = names_.of("<lambda>");
  code->place = made->place;
  parameters(*code, ":");
  need(":");
  code->parts.push_back(expression());
  made->function = std::move(code);
  return made;
}

ExpressionPtr Parser::logical(Operator op) {
  const auto part = [&] { return op == Operator::logical_or ? logical(Operator::logical_and) : negation(); };
  const std::string_view word = op == Operator::logical_or ? "or" : "and";
  ExpressionPtr first = part();
  if (!token().is(word)) return first;
  std::vector<ExpressionPtr> parts = list_of(std::move(first));
  while (take(word)) parts.push_back(part());
  ExpressionPtr made = make(Expression::Kind::logical, std::move(parts));
  made->op = op;
  return made;
}

ExpressionPtr Parser::negation() {
  if (!token().is("not")) return comparison();
  const Deeper deeper(*this);
  ++at_;
  ExpressionPtr made = make(Expression::Kind::unary, list_of(negation()));
  made->op = Operator::logical_not;
  return made;
}

ExpressionPtr Parser::comparison() {
  static constexpr std::pair<std::string_view, Operator> kSigns[] = {
      {"==", Operator::equal}, {"!=", Operator::not_equal}, {"<=", Operator::less_equal}, {">=", Operator::greater_equal},
      {"<", Operator::less},   {">", Operator::greater},    {"in", Operator::in}};
  const auto next = [&] {
    for (const auto& [sign, op] : kSigns)
      if (take(sign)) return op;
    if (token().is("not") && token(1).is("in")) return at_ += 2, Operator::not_in;
    if (take("is")) return take("not") ? Operator::is_not : Operator::is;
    return Operator::none;
  };
  ExpressionPtr first = bit_or();
  Operator op = next();
  if (op == Operator::none) return first;
  ExpressionPtr made = make(Expression::Kind::comparison, list_of(std::move(first)));
  for (; op != Operator::none; op = next()) {
    made->operators.push_back(op);
    made->parts.push_back(bit_or());
  }
  return finished(std::move(made));
}

ExpressionPtr Parser::binary(int least) {
  ExpressionPtr left = unary();
  while (true) {
    const auto found = std::find_if(std::begin(kBinary), std::end(kBinary),
                                    [&](const Binary& each) { return token().kind == Token::Kind::sign && token().text == each.sign; });
    if (found == std::end(kBinary) || found->precedence <= least) return left;
    ++at_;
    ExpressionPtr right = binary(found->precedence);
    left = make(Expression::Kind::binary, list_of(std::move(left), std::move(right)));
    left->op = found->op;
  }
}

ExpressionPtr Parser::unary() {
  static constexpr std::pair<std::string_view, Operator> kSigns[] = {
      {"-", Operator::negative}, {"+", Operator::positive}, {"~", Operator::invert}};
  for (const auto& [sign, op] : kSigns) {
    if (!token().is(sign)) continue;
    const Deeper deeper(*this);
    ++at_;
    ExpressionPtr made = make(Expression::Kind::unary, list_of(unary()));
    made->op = op;
    return made;
  }
  return power();
}

ExpressionPtr Parser::power() {
  ExpressionPtr base = primary();
  if (!take("**")) return base;
  const Deeper deeper(*this);
  ExpressionPtr made = make(Expression::Kind::binary, list_of(std::move(base), unary()));
  made->op = Operator::power;
  return made;
}

ExpressionPtr Parser::primary() {
  ExpressionPtr read = atom();
  while (true) {
    if (take(".")) {
      read = make(Expression::Kind::attribute, list_of(std::move(read)));
      read->name = name();
    } else if (take("(")) {
      read = make(Expression::Kind::call, list_of(std::move(read)));
      read->arguments = arguments();
      read = finished(std::move(read));
      need(")");
    } else if (take("[")) {
      ExpressionPtr at = index();
      read = make(Expression::Kind::subscript, list_of(std::move(read), std::move(at)));
      need("]");
    } else {
      return read;
    }
  }
}

ExpressionPtr Parser::atom() {
  const Deeper deeper(*this);
  const auto constant = [&](Value value) {
    ExpressionPtr made = make(Expression::Kind::constant);
    made->value = std::move(value);
    ++at_;
    return made;
  };
  switch (token().kind) {
    case Token::Kind::number:
      return number();
    case Token::Kind::text:
      return text();
    case Token::Kind::name:
      if (token().text == "None") return constant(Value::none());
      if (token().text == "True" || token().text == "False") return constant(Value::boolean(token().text == "True"));
      return name_expression();
    default:
      break;
  }
  if (token().is("...")) return constant(Value::ellipsis());
  if (token().is("(")) return in_brackets();
  if (token().is("[")) return in_square_brackets();
  if (token().is("{")) return in_braces();
  expected("an expression");
}

ExpressionPtr Parser::in_brackets() {
  const Place at = place();
  need("(");
  if (take(")")) {
    ExpressionPtr made = make(Expression::Kind::tuple);
    made->place = at;
    return made;
  }
  ExpressionPtr read = expressions();
  if (begins_clause()) read = comprehension(FunctionCode::Result::generator, list_of(std::move(read)));
  need(")");
  return read;
}

ExpressionPtr Parser::in_square_brackets() {
  ExpressionPtr made = make(Expression::Kind::list);
  need("[");
  while (!token().is("]")) {
    made->parts.push_back(starred_or(&Parser::named_expression));
    if (begins_clause() && made->parts.size() == 1) {
      ExpressionPtr read = comprehension(FunctionCode::Result::list, std::move(made->parts));
      need("]");
      return read;
    }
    if (!take(",")) break;
  }
  need("]");
  return finished(std::move(made));
}

ExpressionPtr Parser::in_braces() {
  ExpressionPtr made = make(Expression::Kind::dictionary);
  need("{");
  while (!token().is("}")) {
    if (take("**")) {
      made->parts.push_back(nullptr);
      made->parts.push_back(bit_or());
    } else {
      ExpressionPtr key = starred_or(&Parser::named_expression);
      const bool pair = take(":");
      if (!pair) made->kind = Expression::Kind::set;
      made->parts.push_back(std::move(key));
      if (pair) made->parts.push_back(expression());
      if (begins_clause() && made->parts.size() <= 2) {
        const auto result = pair ? FunctionCode::Result::dictionary : FunctionCode::Result::set;
        ExpressionPtr read = comprehension(result, std::move(made->parts));
        need("}");
        return read;
      }
      if (pair && made->kind == Expression::Kind::set) wrong("a set with pairs");
    }
    if (!take(",")) break;
  }
  need("}");
  if (made->kind == Expression::Kind::dictionary && made->parts.size() % 2 != 0) wrong("a set with pairs");
  return finished(std::move(made));
}

ExpressionPtr Parser::comprehension(FunctionCode::Result result, std::vector<ExpressionPtr> parts) {
  const Deeper deeper(*this);
  ExpressionPtr made = make(Expression::Kind::comprehension);
  auto code = std::make_unique<FunctionCode>();
  code->kind = FunctionCode::Kind::comprehension;
  code->result = result;
  code->name = names_.of("<comprehension>");
  code->place = made->place;
  code->parts = std::move(parts);
  while (begins_clause()) {
    if (token().is("async")) wrong("async code is not read");
    need("for");
    Clause clause;
    clause.target = target_list();
    need("in");
    clause.source = logical_or();
    while (take("if")) clause.conditions.push_back(logical_or());
    code->clauses.push_back(std::move(clause));
  }
  made->function = std::move(code);
  return made;
}

// ---- calls, indices, parameters ------------------------------------------------------------------------------------------

std::vector<CallArgument> Parser::arguments() {
  std::vector<CallArgument> read;
  while (!token().is(")")) {
    CallArgument argument;
    if (take("*")) {
      argument.kind = CallArgument::Kind::sequence;
      argument.value = expression();
    } else if (take("**")) {
      argument.kind = CallArgument::Kind::mapping;
      argument.value = expression();
    } else if (is_free_name() && token(1).is("=")) {
      argument.kind = CallArgument::Kind::keyword;
      argument.name = name();
      need("=");
      argument.value = expression();
    } else {
      argument.value = named_expression();
      if (begins_clause()) argument.value = comprehension(FunctionCode::Result::generator, list_of(std::move(argument.value)));
    }
    read.push_back(std::move(argument));
    if (!take(",")) break;
  }
  return read;
}

ExpressionPtr Parser::index() {
  ExpressionPtr first = index_item();
  if (!token().is(",")) return first;
  std::vector<ExpressionPtr> parts = list_of(std::move(first));
  while (take(","))
    if (!token().is("]")) parts.push_back(index_item());
  return make(Expression::Kind::tuple, std::move(parts));
}

ExpressionPtr Parser::index_item() {
  const auto bound = [&]() -> ExpressionPtr { return token().is(":") || token().is("]") || token().is(",") ? nullptr : expression(); };
  if (token().is("*")) return starred_or(&Parser::named_expression);
  const Place at = place();
  ExpressionPtr start = token().is(":") ? nullptr : named_expression();
  if (start && !token().is(":")) return start;
  need(":");
  std::vector<ExpressionPtr> parts;
  parts.push_back(std::move(start));
  parts.push_back(bound());
  parts.push_back(take(":") ? bound() : nullptr);
  ExpressionPtr made = make(Expression::Kind::slice, std::move(parts));
  made->place = at;
  return made;
}

void Parser::parameters(FunctionCode& code, std::string_view end) {
  using Kind = Parameter::Kind;
  const bool annotated = end == ")";
  Kind kind = Kind::usual;
  while (!token().is(end)) {
    if (take("/")) {
      for (Parameter& each : code.parameters) each.kind = Kind::positional_only;
    } else if (take("*") && token().is(",")) {
      kind = Kind::keyword_only;
    } else {
      const bool sequence = at_ > 0 && tokens_[at_ - 1].is("*") && kind == Kind::usual, mapping = !sequence && take("**");
      Parameter parameter{sequence ? Kind::sequence : mapping ? Kind::mapping : kind, name(), nullptr};
      if (sequence) kind = Kind::keyword_only;
      if (annotated && take(":")) (void)expression();
      if (!sequence && !mapping && take("=")) {
        code.defaults.push_back(expression());
        parameter.default_value = code.defaults.back().get();
      }
      code.parameters.push_back(parameter);
    }
    if (!take(",")) break;
  }
}

// ---- numbers and texts -----------------------------------------------------------------------------------------------------

ExpressionPtr Parser::number() {
  std::string digits(token().text);
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  const bool based = digits.size() > 2 && digits[0] == '0' && std::string_view("xXbBoO").find(digits[1]) != std::string_view::npos;
  const bool real = !based && digits.find_first_of(".eE") != std::string::npos;
  ExpressionPtr made = make(Expression::Kind::constant);
  const char *first = digits.data() + (based ? 2 : 0), *last = digits.data() + digits.size();
  if (real) {
    double number = 0;
    const auto [end, error] = real_from_chars(first, last, number);
    if (error == std::errc::invalid_argument || end != last) wrong("'" + digits + "' is no number");
    made->value = Value::real(error == std::errc() ? number : HUGE_VAL);
  } else {
    const int base = !based ? 10 : digits[1] == 'x' || digits[1] == 'X' ? 16 : digits[1] == 'b' || digits[1] == 'B' ? 2 : 8;
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(first, last, number, base);
    if (error == std::errc::result_out_of_range) wrong("whole numbers of more than 63 bits are not read");
    if (error != std::errc() || end != last) wrong("'" + digits + "' is no number");
    made->value = Value::integer(number);
  }
  ++at_;
  return made;
}

ExpressionPtr Parser::text() {
  std::vector<ExpressionPtr> parts;
  const Place at = place();
  while (token().kind == Token::Kind::text) {
    const Token& read = token();
    if (read.formatted) {
      formatted(read, parts);
    } else {
      ExpressionPtr piece = make(Expression::Kind::constant);
      piece->text = unescaped(read.text, read.raw);
      parts.push_back(std::move(piece));
    }
    ++at_;
  }
  const bool plain =
      std::all_of(parts.begin(), parts.end(), [](const ExpressionPtr& part) { return part->kind == Expression::Kind::constant; });
  if (!plain) {
    ExpressionPtr made = make(Expression::Kind::formatted, std::move(parts));
    made->place = at;
    return made;
  }
  ExpressionPtr made = make(Expression::Kind::constant);
  made->place = at;
  made->text.emplace();
  for (const ExpressionPtr& part : parts) *made->text += *part->text;
  return made;
}

std::string Parser::unescaped(std::string_view text, bool raw) const {
  if (raw || text.find('\\') == std::string_view::npos) return std::string(text);
  static constexpr std::pair<char, char> kEscapes[] = {{'n', '\n'}, {'t', '\t'}, {'r', '\r'}, {'\\', '\\'}, {'\'', '\''}, {'"', '"'},
                                                       {'0', '\0'}, {'a', '\a'}, {'b', '\b'}, {'f', '\f'},  {'v', '\v'}};
  std::string read;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      read += text[i];
      continue;
    }
    ++i;
    const auto found = std::find_if(std::begin(kEscapes), std::end(kEscapes), [&](const auto& each) { return each.first == text[i]; });
    if (found != std::end(kEscapes)) read += found->second;
    if (found == std::end(kEscapes) && text[i] != '\n') (read += '\\') += text[i];
  }
  return read;
}

/// Pieces of an f-string: texts and replacements.
void Parser::formatted(const Token& read, std::vector<ExpressionPtr>& parts) {
  const std::string_view whole = read.text;
  std::string piece;
  const auto flush = [&] {
    if (piece.empty()) return;
    ExpressionPtr made = make(Expression::Kind::constant);
    made->text = unescaped(piece, read.raw);
    parts.push_back(std::move(made));
    piece.clear();
  };
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const bool doubled = i + 1 < whole.size() && whole[i + 1] == whole[i];
    if ((whole[i] == '{' || whole[i] == '}') && doubled) {
      piece += whole[i++];
    } else if (whole[i] == '{') {
      flush();
      int open = 1;
      const std::size_t start = ++i;
      for (; i < whole.size() && open > 0; ++i) open += whole[i] == '{' ? 1 : whole[i] == '}' ? -1 : 0;
      if (open > 0) wrong("'{' of a formatted text is never closed");
      parts.push_back(replacement(whole.substr(start, --i - start), place()));
    } else {
      piece += whole[i];
    }
  }
  flush();
}

/// What stands between the braces: an expression, !r or !s, a format behind a colon.
ExpressionPtr Parser::replacement(std::string_view text, Place at) {
  const Deeper deeper(*this);
  std::size_t end = text.size();
  int open = 0;
  char quote = '\0';
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quote != '\0') {
      if (text[i] == quote) quote = '\0';
    } else if (text[i] == '"' || text[i] == '\'') {
      quote = text[i];
    } else if (std::string_view("([{").find(text[i]) != std::string_view::npos) {
      ++open;
    } else if (std::string_view(")]}").find(text[i]) != std::string_view::npos) {
      --open;
    } else if (open == 0 && (text[i] == ':' || (text[i] == '!' && (i + 1 == text.size() || text[i + 1] != '=')))) {
      end = i;
      break;
    }
  }
  std::string_view inner = text.substr(0, end), rest = text.substr(end);
  ExpressionPtr made = make(Expression::Kind::replacement);
  made->place = at;
  while (!inner.empty() && inner.back() == ' ') inner.remove_suffix(1);  // {width = }
  if (!inner.empty() && inner.back() == '=' && inner.find_first_of("=!<>") == inner.size() - 1) inner.remove_suffix(1);
  const std::string source(inner);
  Parser within(source, where_, names_, at);
  within.depth_ = depth_;
  made->parts.push_back(within.whole_expression());
  if (rest.size() >= 2 && rest[0] == '!') {
    made->name = names_.of(rest.substr(1, 1));
    rest.remove_prefix(2);
  }
  if (!rest.empty()) {
    Token format = token();
    format.text = rest.substr(1);
    std::vector<ExpressionPtr> pieces;
    formatted(format, pieces);
    made->parts.push_back(make(Expression::Kind::formatted, std::move(pieces)));
  }
  return finished(std::move(made));
}

}  // namespace plimsoll::code
