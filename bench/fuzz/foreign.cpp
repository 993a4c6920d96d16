// A file of another program, read as a run: what a program takes by default, and what resolves the rest.
#include "plimsoll/formats.hpp"
#include "reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plimsoll;
  return fuzz::read(data, size, [](const std::string& text) {
    ForeignOptions options;
    options.model = "gpt2", options.on = "8xh100-sxm";
    (void)show_resolved(read_foreign({fuzz::file_of(text)}, options));
  });
}
