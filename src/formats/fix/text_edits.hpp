// Values of a configuration set in its text: comments, order and spelling of all else stay.
#pragma once

#include <string>

#include "formats/foreign/node.hpp"

namespace plimsoll::formats {

/// `text` with `value`, a scalar or a list of them, at the dotted path; `name` names the file in errors, `tree` is what the text says. A list of lines
/// that stands there gets what it lacks. Throws Error where the value, or what it would stand in, is no line of its own.
std::string set_in_yaml(const std::string& text, const Node& tree, const std::string& path, const Node& value, const std::string& name);
std::string set_in_toml(const std::string& text, const Node& tree, const std::string& path, const Node& value, const std::string& name);
std::string set_in_json(const std::string& text, const Node& tree, const std::string& path, const Node& value, const std::string& name);

/// A script with an option of the launch that begins on line `line` (from 1): the option's value is replaced, or, where that is
/// a variable which one line above sets, the value there; an option that is not there is added at the end.
std::string set_in_launch(const std::string& text, std::size_t line, const std::string& option, const std::string& value, const std::string& name);

}  // namespace plimsoll::formats
