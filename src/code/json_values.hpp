// Configurations as values.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "code/interpreter.hpp"

namespace plimsoll::code {

/// What Python's json.load gives. Throws Error: nested too deep, or a number that is too large; `where` names the file.
Value value_of_json(Interpreter& interpreter, const nlohmann::json& json, const std::string& where, int depth = 0);

}  // namespace plimsoll::code
