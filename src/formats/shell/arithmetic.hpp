// Arithmetic as $(( )) has it (bash 5.2, "Shell Arithmetic"): 64 bits that wrap, C's operators, assignments.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace plimsoll::formats::shell {

/// How an expression reads and sets variables; `index` is the text between the brackets, empty: none.
struct Names {
  std::function<std::string(const std::string& name, const std::string& index)> get;
  std::function<void(const std::string& name, const std::string& index, std::int64_t value)> set;
};

/// The value; nullopt: it hangs on what is not known, whose mark `unknown` is then. Throws Error: no expression, a division by nothing.
std::optional<std::int64_t> evaluate(const std::string& expression, const Names& names, const std::string& where, std::string& unknown);

}  // namespace plimsoll::formats::shell
