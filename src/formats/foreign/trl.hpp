// TRL's command and its scripts.
#pragma once

#include "formats/foreign/reading.hpp"

namespace plimsoll::formats {

/// `trl sft` with its flags: those of the script, and those of `accelerate launch` beside them, in --config's file as well. Throws Error: a
/// flag that is of neither.
void read_trl_command(Reading& reading, const Node& flags);
/// A script that parses its flags by TrlParser.
void read_trl_script(Reading& reading, const Node& flags);

}  // namespace plimsoll::formats
