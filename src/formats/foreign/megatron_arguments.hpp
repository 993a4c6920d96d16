// Megatron-LM's arguments, which Primus and NeMo carry in files of their own.
#pragma once

#include "formats/foreign/format.hpp"

namespace plimsoll::formats {

const Rows& megatron_rows();
/// Reads a table of arguments by their names with underscores.
void read_megatron(Reading& reading, const Node& tree, const ReadRelease& release, Unknown unknown = Unknown::own);

}  // namespace plimsoll::formats
