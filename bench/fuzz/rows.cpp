// Measured rows.
#include "plimsoll/rows.hpp"

#include "reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plimsoll::fuzz::read(data, size, [](const std::string& text) { (void)plimsoll::parse_rows(text, "input"); });
}
