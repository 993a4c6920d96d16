// A strategy's file, and the text of one flag: its first line is the key.
#include "plimsoll/strategy.hpp"

#include "reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plimsoll;
  return fuzz::read(data, size, [](const std::string& text) {
    const std::size_t end = text.find('\n');
    if (text.rfind('{', 0) == 0 || end == std::string::npos) return (void)parse_strategy(text, "input");
    const std::string key = text.substr(0, end);
    Strategy strategy;
    if (key != "deepspeed") set_options(strategy, {{key, text.substr(end + 1)}});
  });
}
