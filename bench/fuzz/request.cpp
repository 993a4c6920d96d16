// A request of the C function: every answer is JSON, errors too.
#include <nlohmann/json.hpp>

#include "plimsoll/plimsoll.h"
#include "reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plimsoll::fuzz::read(data, size, [](const std::string& text) {
    if (text.find("estimate") != std::string::npos) return;  // how long an estimate takes is not a reader's
    char* answer = plimsoll_call(text.c_str());
    if (answer == nullptr || !nlohmann::json::accept(answer)) std::abort();
    plimsoll_free(answer);
  });
}
