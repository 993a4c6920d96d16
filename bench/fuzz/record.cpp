// A record of a rehearsed process, which is read from a file.
#include <unistd.h>

#include <fstream>

#include "plimsoll/rehearse.hpp"
#include "reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string path = "/tmp/plimsoll-fuzz-" + std::to_string(getpid()) + ".record";
  return plimsoll::fuzz::read(data, size, [](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    (void)plimsoll::read_recording(path);
  });
}
