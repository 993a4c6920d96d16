// What an agent may ask for: tools with their schemas, and what they answer.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace plimsoll::api {

/// What a tool says to a reader, and the same for programs.
struct ToolAnswer {
  std::string text;
  nlohmann::json structured;  ///< an object
};

struct Tool {
  const char *name, *title, *description;
  nlohmann::ordered_json schema;                       ///< of its arguments
  ToolAnswer (*run)(const nlohmann::json& arguments);  ///< throws Error
};

/// What the C function answers to that command, as it stands. Throws Error where it answers with one.
ToolAnswer called(nlohmann::json request, const char* command);

/// In the order in which they are offered.
const std::vector<Tool>& tools();

}  // namespace plimsoll::api
