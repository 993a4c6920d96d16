// What vendors' benchmarks print; the first byte chooses whose.
#include "calibrate/importers/importers.hpp"

#include "reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plimsoll;
  if (size == 0) return 0;
  return fuzz::read(data + 1, size - 1, [kind = data[0]](const std::string& text) {
    switch (kind % 6) {
      case 0:
        return (void)calibrate::import_nccl_tests(text, "input", "rccl-tests");
      case 1:
        return (void)calibrate::import_hipblaslt_bench(text, "input");
      case 2:
        return (void)calibrate::import_babelstream(text, "input");
      case 3:
        return (void)calibrate::import_transferbench(text, "input");
      case 4:
        return (void)calibrate::import_rocm_bandwidth_test(text, "input");
      default:
        return (void)parse_samples(text, "input");
    }
  });
}
