// A model that is no known family, given as a file of operators (docs/graph-format.md).
#pragma once

#include <string>

#include "plimsoll/model.hpp"
#include "units/json_reader.hpp"

namespace plimsoll::model {

/// The key that marks a graph file; its value is the version of the format.
constexpr const char* kGraphKey = "plimsoll-graph";

/// Reads a graph file. Throws Error: unknown kind of operator (nearest named), an input that nobody computes, operators in a cycle (named),
/// shapes that do not fit together (both named).
Model read_graph(const JsonValue& root, const std::string& name);

}  // namespace plimsoll::model
