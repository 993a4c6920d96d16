// Files that are not on a disk, read as those that are.
#pragma once

#include "formats/foreign/reading.hpp"
#include "plimsoll/formats.hpp"

namespace plimsoll::formats {

/// Reads what was exported: the files of `reads`, which may name the others.
ForeignRun read_exported(const ExportedRun& exported, const ExportPlan& plan);

/// One file of whatever format; an empty `format`: by its content.
void read_file(Reading& reading, const std::string& path, const std::string& format);
/// What was read, as a strategy, with what follows from it for this model.
Strategy strategy_of(Reading& reading, const Model& model);
/// Whether a text is a shell script rather than data.
bool is_script(const std::string& path, const std::string& text);
/// The machines that were told. Throws Error: no device, or not how many.
Cluster cluster_of_run(const Reading& reading, const ForeignOptions& options);

}  // namespace plimsoll::formats
