// A request of the C function: every answer is JSON, errors too.
#include <cstring>
#include <nlohmann/json.hpp>

#include "plimsoll/plimsoll.h"
#include "reader.hpp"

namespace {

/// Requests whose answers cost more than to read them: whole programs played, lists of all that is shipped, files.
bool is_dear(const std::string& text) {
  const auto request = nlohmann::json::parse(text, nullptr, false);
  if (!request.is_object()) return false;
  const std::string command = request.contains("command") && request["command"].is_string() ? request["command"] : "";
  if (command == "options" || (command == "models" && !request.contains("model")) || (command == "hardware" && !request.contains("name")))
    return true;
  if (text.find('/') != std::string::npos || text.find("\\u") != std::string::npos) return true;  // a path
  const bool plays = command == "estimate" || command == "explain" || command == "view" || command == "report" || command == "export";
  return plays && (request.contains("on") || request.contains("from") || request.contains("launch"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plimsoll::fuzz::read(data, size, [](const std::string& text) {
    if (is_dear(text)) return;
    char* answer = plimsoll_call(text.c_str());
    if (answer == nullptr || !nlohmann::json::accept(answer) || std::strstr(answer, "\"code\": \"internal\"") != nullptr) std::abort();
    plimsoll_free(answer);
  });
}
