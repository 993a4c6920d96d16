// ms-swift's command.
#pragma once

#include <string>
#include <vector>

#include "formats/foreign/reading.hpp"

namespace plimsoll::formats {

constexpr const char* kSwiftRelease = "ms-swift 4.6";  ///< whose arguments and defaults are read

/// `swift sft` or `swift pt`, or `megatron sft` and `pt`, by what stands behind the verb: a file, flags, or both.
void read_swift_command(Reading& reading, const std::string& verb, const std::vector<Node>& words, bool megatron);

}  // namespace plimsoll::formats
