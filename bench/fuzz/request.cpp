// A request of the C function: every answer is JSON, errors too.
#include <cstring>
#include <nlohmann/json.hpp>

#include "plimsoll/plimsoll.h"
#include "reader.hpp"

namespace {

/// Commands that play whole programs: how long that takes is not a reader's.
bool plays(const std::string& text) {
  const auto request = nlohmann::json::parse(text, nullptr, false);
  if (!request.is_object()) return false;
  for (const char* command : {"estimate", "explain", "view", "report"})
    if (request.value("command", nlohmann::json()) == command)
      return request.contains("on") || request.contains("from") || request.contains("launch");
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plimsoll::fuzz::read(data, size, [](const std::string& text) {
    if (plays(text)) return;
    char* answer = plimsoll_call(text.c_str());
    if (answer == nullptr || !nlohmann::json::accept(answer) || std::strstr(answer, "\"code\": \"internal\"") != nullptr) std::abort();
    plimsoll_free(answer);
  });
}
