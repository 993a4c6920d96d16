// TRL's command and its scripts.
#pragma once

#include "formats/foreign/reading.hpp"
#include "formats/foreign/trl_trainers.hpp"

namespace plimsoll::formats {

/// `trl sft`, `trl dpo` … with its flags: those of the script, and those of `accelerate launch` beside them, in --config's file as well.
/// Throws Error: a flag that is of neither.
void read_trl_command(Reading& reading, const Node& flags, TrlTrainer trainer);
/// A script that parses its flags by TrlParser, or one of TRL's examples; `program` is its path.
void read_trl_script(Reading& reading, const Node& flags, TrlTrainer trainer, const std::string& program);

}  // namespace plimsoll::formats
