// What vendors' benchmarks print; the first byte chooses whose.
#include "calibrate/importers/importers.hpp"
#include "reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plimsoll;
  return fuzz::read(data, size, [](const std::string& text) {
    switch (text.empty() ? 0 : text.front() % 3) {
      case 0:
        return (void)calibrate::import_nccl_tests(text, "input", "rccl-tests");
      case 1:
        return (void)calibrate::import_hipblaslt_bench(text, "input");
      default:
        return (void)calibrate::import_babelstream(text, "input");
    }
  });
}
