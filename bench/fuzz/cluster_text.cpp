// What --on takes, but for files.
#include "plimsoll/hardware.hpp"
#include "reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plimsoll::fuzz::read(data, size, [](const std::string& text) {
    if (text.find('/') == std::string::npos && text.find(".json") == std::string::npos && text != "-") (void)plimsoll::parse_cluster(text);
  });
}
