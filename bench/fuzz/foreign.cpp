// A file of another program, read by whatever format it is: its keys, what follows from them for a model, the strategy that they say.
#include "formats/foreign/read_run.hpp"
#include "plimsoll/model.hpp"
#include "reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plimsoll;
  static const Model model = load_model("gpt2");
  return fuzz::read(data, size, [](const std::string& text) {
    formats::Reading reading;
    reading.set_reader([](formats::Reading&, const std::string& path, const std::string&) { fail("a file beside the input: " + path); });
    reading.add_file("input", text);
    formats::read_file(reading, "input", {});
    (void)formats::strategy_of(reading, model);
  });
}
