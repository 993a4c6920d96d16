// What Python itself brings along.
#pragma once

#include <string>

#include "code/interpreter.hpp"

namespace plimsoll::code {

/// Builtin functions, types and exceptions.
void define_builtins(Interpreter& interpreter);
/// math, dataclasses, functools, typing, … as far as modelling code uses them.
void define_standard_library(Interpreter& interpreter);
/// The method of a text, a list, a tuple or a dictionary; unbound where there is none.
Value method_of_builtin(Interpreter& interpreter, const Value& of, Symbol name);
/// Names of such methods, for messages.
std::vector<std::string> builtin_methods(const Value& of);

/// callable(value)
bool is_callable(const Value& value);

/// __init__ of a dataclass.
void fill_fields(Interpreter& interpreter, InstanceObject& instance, CallArguments arguments);

/// format % arguments.
std::string percent_formatted(Interpreter& interpreter, const std::string& format, const Value& arguments);

}  // namespace plimsoll::code
