// ms-swift's command.
#pragma once

#include <string>
#include <vector>

#include "formats/foreign/reading.hpp"

namespace plimsoll::formats {

constexpr const char* kSwiftRelease = "ms-swift 4.6";  ///< whose arguments and defaults are read

/// Which of its commands a line runs.
struct SwiftCommand {
  std::string verb;       ///< sft, pt
  bool megatron = false;  ///< over Megatron's layers
  bool script = false;    ///< swift/cli/sft.py itself, which starts no processes of its own
};

/// `swift sft` or `swift pt`, or `megatron sft` and `pt`, by what stands behind the verb: a file, flags, or both.
void read_swift_command(Reading& reading, const SwiftCommand& command, const std::vector<Node>& words);

}  // namespace plimsoll::formats
