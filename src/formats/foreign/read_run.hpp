// Files that are not on a disk, read as those that are.
#pragma once

#include "plimsoll/formats.hpp"

namespace plimsoll::formats {

/// Reads what was exported: the files of `reads`, which may name the others.
ForeignRun read_exported(const ExportedRun& exported, const ExportPlan& plan);

}  // namespace plimsoll::formats
