// What a profiler wrote: Kineto's JSON, plain or gzipped, Nsight Systems' SQLite, rocprofv3's CSV.
#include "plimsoll/trace.hpp"

#include "reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plimsoll::fuzz::read(data, size, [](const std::string& bytes) { (void)plimsoll::read_trace(plimsoll::fuzz::file_of(bytes)); });
}
