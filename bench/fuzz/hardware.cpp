// A device's file and a cluster's.
#include "hardware/read_values.hpp"
#include "reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plimsoll;
  return fuzz::read(data, size, [](const std::string& text) {
    const JsonDocument document = JsonDocument::parse(text, "input");
    if (document.root().is_object() && document.root().has("compute"))
      (void)hardware::read_accelerator(document.root());
    else
      (void)hardware::read_cluster(document.root());
  });
}
