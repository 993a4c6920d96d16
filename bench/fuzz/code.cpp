// Python texts: parsed, resolved, run over the tape, within fewer steps than a model may take; and the words that go with them.
#include "plimsoll/code.hpp"

#include "code/interpreter.hpp"
#include "code/network.hpp"
#include "reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plimsoll;
  if (size == 0) return 0;
  return fuzz::read(data + 1, size - 1, [kind = data[0]](const std::string& text) {
    if (kind % 16 == 0) return (void)parse_code_arguments(text);
    if (kind % 16 == 1) return (void)code::parse_input(text);
    code::Limits limits;
    limits.steps = 200'000;
    limits.calls = 30;
    limits.expressions = 300;
    code::Interpreter interpreter(text, "input", limits);
    interpreter.run();
  });
}
