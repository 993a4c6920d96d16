// A module's text as Python's grammar has it (docs.python.org/3/reference/grammar.html): a tree of statements and expressions, names
// resolved to where their values are.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "code/names.hpp"
#include "code/value.hpp"

namespace plimsoll::code {

/// Where something stands in a text, both counted from 1.
struct Place {
  int line = 1, column = 1;
};

enum class Operator : std::uint8_t {
  none,
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  matrix_multiply,
  left_shift,
  right_shift,
  bit_and,
  bit_or,
  bit_xor,
  negative,
  positive,
  invert,
  logical_not,
  logical_and,
  logical_or,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  is,
  is_not,
  in,
  not_in
};

/// Where a name's value is kept.
enum class Storage : std::uint8_t {
  named,  ///< looked up by its name: the class body's own, the module's, the builtin ones
  local,  ///< a slot of the frame
  cell    ///< a slot of the frame that holds a cell, which functions within share
};

struct Expression;
struct Statement;
struct FunctionCode;
struct TextModule;
using ExpressionPtr = std::unique_ptr<Expression>;
using StatementPtr = std::unique_ptr<Statement>;
using Suite = std::vector<StatementPtr>;

/// One argument of a call.
struct CallArgument {
  enum class Kind : std::uint8_t { positional, keyword, sequence, mapping } kind = Kind::positional;  ///< the last two: *value, **value
  Symbol name = 0;
  ExpressionPtr value;
};

/// for target in source if conditions
struct Clause {
  ExpressionPtr target, source;
  std::vector<ExpressionPtr> conditions;
};

struct Expression {
  enum class Kind : std::uint8_t {
    constant,       ///< `text` or `value`
    name,           ///< `name`
    attribute,      ///< parts[0].name
    subscript,      ///< parts[0][parts[1]]
    call,           ///< parts[0](arguments)
    unary,          ///< op parts[0]
    binary,         ///< parts[0] op parts[1]
    comparison,     ///< parts[0] operators[0] parts[1] operators[1] …
    logical,        ///< parts joined by op
    conditional,    ///< parts[1] if parts[0] else parts[2]
    lambda,         ///< function
    tuple,          ///< parts
    list,           ///< parts
    set,            ///< parts
    dictionary,     ///< parts: key, value, …; a null key: **value
    slice,          ///< parts: start, stop, step, each of which may be null
    starred,        ///< *parts[0]
    comprehension,  ///< function, whose clauses and parts say what is made
    formatted,      ///< parts joined as text; of a replacement: `replacement`
    replacement,    ///< {parts[0]!name:parts[1]} of a formatted text
    assignment,     ///< name := parts[0]
    suspension      ///< yield or await
  };
  Kind kind = Kind::constant;
  Operator op = Operator::none;
  Storage storage = Storage::named;
  Place place;
  int depth = 1;  ///< of its tree
  int slot = -1;
  Symbol name = 0;
  std::optional<std::string> text;
  Value value;  ///< a number, None, True, False, …; of a text the object, once it was made
  std::vector<ExpressionPtr> parts;
  std::vector<Operator> operators;
  std::vector<CallArgument> arguments;
  std::unique_ptr<FunctionCode> function;
};

struct Parameter {
  enum class Kind : std::uint8_t { positional_only, usual, keyword_only, sequence, mapping } kind = Kind::usual;
  Symbol name = 0;
  Expression* default_value = nullptr;  ///< owned by FunctionCode::defaults
};

/// A function, a lambda, a comprehension, a class's or a module's body: what has names of its own.
struct FunctionCode {
  enum class Kind : std::uint8_t { function, lambda, comprehension, class_body, module } kind = Kind::function;
  enum class Result : std::uint8_t { list, set, dictionary, generator } result = Result::list;  ///< of a comprehension
  Symbol name = 0;
  Place place;
  TextModule* module = nullptr;  ///< the text in which it stands
  std::vector<Parameter> parameters;
  std::vector<ExpressionPtr> defaults;
  Suite body;                        ///< of a function, a class or a module
  std::vector<ExpressionPtr> parts;  ///< of a lambda: its value; of a comprehension: the element, or key and value
  std::vector<Clause> clauses;

  // What the resolver found.
  std::vector<Symbol> slots;  ///< names of the frame's slots, parameters first, then in the order in which they are met
  std::vector<int> cells;     ///< its own slots that functions within share
  /// A slot that comes from the function around: its cell there, its slot here.
  struct Captured {
    int outer = 0, slot = 0;
  };
  std::vector<Captured> captured;
};

struct Branch {
  ExpressionPtr condition;  ///< null: else
  Suite body;
};

/// except types as name: body
struct Handler {
  ExpressionPtr types, name;  ///< either may be null
  Suite body;
};

struct Statement {
  enum class Kind : std::uint8_t {
    expression,  ///< value
    assign,      ///< targets = value
    augmented,   ///< targets[0] op= value
    annotated,   ///< targets[0]: annotation = value, which may be null
    returns,     ///< value, which may be null
    raise,       ///< value, which may be null
    assertion,   ///< value, targets[0]: the message, if any
    deletion,    ///< targets
    pass,
    breaks,
    continues,
    condition,   ///< branches
    loop,        ///< while value: body
    each,        ///< for targets[0] in value: body
    with,        ///< items in targets (null: none) and contexts: body
    attempt,     ///< try: body, handlers, orelse, final_body
    function,    ///< targets[0] = function, decorators
    class_type,  ///< targets[0] = class of `bases`, decorators
    import,      ///< imports
    scope        ///< global or nonlocal, which the resolver has read
  };
  Kind kind = Kind::pass;
  Operator op = Operator::none;
  Place place;
  ExpressionPtr value, annotation;
  std::vector<ExpressionPtr> targets, contexts, decorators;
  std::vector<CallArgument> bases;
  std::vector<Branch> branches;
  std::vector<Handler> handlers;
  Suite body, orelse, final_body;
  std::unique_ptr<FunctionCode> function;
  /// import path as target, or from path import name as target.
  struct Import {
    std::string path;
    Symbol name = 0;    ///< 0: the module itself
    bool star = false;  ///< from path import *: no target
    ExpressionPtr target;
  };
  std::vector<Import> imports;
  std::vector<Symbol> scoped;
  bool outermost = false;  ///< of a scope statement: global
};

/// How deep brackets, blocks and operators may stand in each other.
inline constexpr int kMostNested = 90;

/// Parses a module's text; its names become symbols of `names`. Throws Error with file, line and column: what is no Python, deeper than
/// kMostNested, what no model code needs (async, match).
std::unique_ptr<FunctionCode> parse_module(const std::string& text, const std::string& where, Names& names);

/// Parses one expression, as a value on a command line is.
ExpressionPtr parse_expression(const std::string& text, const std::string& where, Names& names);

/// Tells every name where its value is kept, and every function which text it is of.
void resolve_names(FunctionCode& module, TextModule& of);

/// "model.py:12:5"; of line 0 the file alone.
std::string place_of(const std::string& where, Place place);

}  // namespace plimsoll::code
