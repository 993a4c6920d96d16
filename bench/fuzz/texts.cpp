// Short texts that people and compilers write: quantities, axes of a search, commands to rehearse, names of kernels. The first byte
// chooses.
#include <sstream>

#include "plimsoll/campaign.hpp"
#include "plimsoll/rehearse.hpp"
#include "plimsoll/search.hpp"
#include "plimsoll/units.hpp"
#include "reader.hpp"
#include "rehearse/kernel_names.hpp"

namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream words(text);
  std::vector<std::string> all;
  for (std::string word; words >> word;) all.push_back(word);
  return all;
}

void read_kernel(const std::string& name) {
  plimsoll::rehearse::Launch launch;
  launch.blocks[0] = 1024, launch.threads[0] = 256;
  launch.arguments = plimsoll::rehearse::Arguments(name);
  (void)plimsoll::rehearse::short_name(name);
  (void)plimsoll::rehearse::classify_kernel(name, launch, 8);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plimsoll;
  if (size == 0) return 0;
  return fuzz::read(data + 1, size - 1, [kind = data[0]](const std::string& text) {
    switch (kind % 8) {
      case 0:
        return (void)parse_bytes(text);
      case 1:
        return (void)parse_bytes_per_second(text);
      case 2:
        return (void)parse_flops_per_second(text);
      case 3:
        return (void)parse_seconds(text);
      case 4:
        return (void)parse_tokens(text, "input");
      case 5:
        return (void)parse_axis_values(text, "input");
      case 6:
        return (void)parse_launch_line(words_of(text));
      default:
        return read_kernel(text);
    }
  });
}
