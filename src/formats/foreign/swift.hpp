// ms-swift's command.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/foreign/reading.hpp"

namespace plimsoll::formats {

constexpr const char* kSwiftRelease = "ms-swift 4.6";  ///< whose arguments and defaults are read

/// Which of its commands a line runs.
struct SwiftCommand {
  std::string verb;       ///< sft, pt, rlhf
  bool megatron = false;  ///< over Megatron's layers
  bool script = false;    ///< swift/cli/sft.py itself, which starts no processes of its own
};

/// Of swift.cli.sft, swift/cli/rlhf.py or swift/cli/_megatron/sft.py what it runs; of another program, and of one that is not read, none.
std::optional<SwiftCommand> swift_script_of(const std::string& program);

/// `swift sft`, `swift pt` or `swift rlhf`, or `megatron sft` and `pt`, by what stands behind the verb: a file, flags, or both.
void read_swift_command(Reading& reading, const SwiftCommand& command, const std::vector<Node>& words);

/// The keys of training by preferences and rewards, and what is left. Throws Error (refused): a trainer that has a teacher, packed
/// pairs.
struct SwiftPreferences {
  Node own, rest;
};
SwiftPreferences split_swift_preferences(const Node& tree);
/// Of a trainer that writes answers: says how long prompts and answers are, and answers true. Throws Error: nothing says it.
bool read_answer_lengths(Reading& reading, const SwiftPreferences& split);
/// Says the task that they stand for, in place of what adapters said; `model` is the key of that name. Throws Error (refused): a reference of
/// its own.
void read_swift_preferences(Reading& reading, const Node& own, const Node* model);

}  // namespace plimsoll::formats
