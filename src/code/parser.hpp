// The parser of a module's text.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "code/scanner.hpp"
#include "code/syntax.hpp"

namespace plimsoll::code {

class Parser {
 public:
  /// `text` must outlive it. `origin`: where the text itself begins in the file.
  Parser(const std::string& text, const std::string& where, Names& names, Place origin = {});

  std::unique_ptr<FunctionCode> module();
  /// The text as one expression.
  ExpressionPtr whole_expression();

 private:
  struct Deeper {
    explicit Deeper(Parser& parser);
    ~Deeper() { --parser_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    Parser& parser_;
  };

  // ---- tokens and messages ----
  const Token& token(std::size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  Place place() const;
  [[noreturn]] void wrong(const std::string& what) const;
  [[noreturn]] void expected(const std::string& what) const;
  bool take(std::string_view what);
  void need(std::string_view what);
  Symbol name();
  bool is_free_name() const;

  // ---- statements (parser.cpp) ----
  StatementPtr make(Statement::Kind kind) const;
  Suite block();
  void statement(Suite& into);
  void simple_statements(Suite& into);
  StatementPtr condition();
  StatementPtr loop();
  StatementPtr each();
  StatementPtr with();
  bool closes_before_colon() const;
  StatementPtr attempt();
  StatementPtr decorated();
  StatementPtr function();
  StatementPtr class_type();
  StatementPtr simple();
  StatementPtr assertion();
  StatementPtr deletion();
  StatementPtr scope();
  StatementPtr import();
  StatementPtr assignment();
  /// The expression as what is assigned to.
  ExpressionPtr target(ExpressionPtr read) const;

  // ---- expressions (parse_expressions.cpp) ----
  ExpressionPtr make(Expression::Kind kind, std::vector<ExpressionPtr> parts = {}) const;
  /// Sets the depth of a finished tree.
  ExpressionPtr finished(ExpressionPtr made) const;
  ExpressionPtr named(Symbol name) const;
  ExpressionPtr name_expression();
  /// One or more, a tuple if there is a comma.
  ExpressionPtr expressions();
  ExpressionPtr starred_or(ExpressionPtr (Parser::*read)());
  ExpressionPtr named_expression();
  ExpressionPtr expression();
  ExpressionPtr expression_of_target();
  ExpressionPtr target_list();
  ExpressionPtr lambda();
  ExpressionPtr suspension();
  ExpressionPtr logical(Operator op);
  ExpressionPtr logical_or() { return logical(Operator::logical_or); }
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr binary(int least);
  ExpressionPtr bit_or() { return binary(0); }
  ExpressionPtr unary();
  ExpressionPtr power();
  ExpressionPtr primary();
  ExpressionPtr atom();
  ExpressionPtr in_brackets();
  ExpressionPtr in_square_brackets();
  ExpressionPtr in_braces();
  ExpressionPtr number();
  ExpressionPtr text();
  ExpressionPtr index();
  ExpressionPtr index_item();
  void parameters(FunctionCode& code, std::string_view end);
  std::vector<CallArgument> arguments();
  bool begins_clause() const { return token().is("for") || (token().is("async") && token(1).is("for")); }
  ExpressionPtr comprehension(FunctionCode::Result result, std::vector<ExpressionPtr> parts);
  void formatted(const Token& token, std::vector<ExpressionPtr>& parts);
  ExpressionPtr replacement(std::string_view text, Place at);
  std::string unescaped(std::string_view text, bool raw) const;

  const std::string& where_;
  Names& names_;
  Place origin_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace plimsoll::code
