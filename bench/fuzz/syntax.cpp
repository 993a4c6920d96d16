// The syntaxes of other programs' files; the first byte chooses: YAML, TOML, JSON as they read it, a shell script that is followed.
#include "formats/foreign/node.hpp"
#include "formats/shell/shell.hpp"
#include "reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plimsoll;
  if (size == 0) return 0;
  return fuzz::read(data + 1, size - 1, [kind = data[0]](const std::string& bytes) {
    const std::string text = formats::plain_text(bytes);
    switch (kind % 4) {
      case 0:
        return (void)formats::parse_yaml_text(text, "input");
      case 1:
        return (void)formats::parse_toml_text(text, "input");
      case 2:
        return (void)formats::parse_json_text(text, "input");
      default:
        return formats::Shell("input", {}).follow(text);
    }
  });
}
