// A record of a rehearsed process.
#include "plimsoll/rehearse.hpp"
#include "reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plimsoll::fuzz::read(data, size, [](const std::string& bytes) { (void)plimsoll::read_recording(plimsoll::fuzz::file_of(bytes)); });
}
