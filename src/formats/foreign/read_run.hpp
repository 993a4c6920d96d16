// Files that are not on a disk, read as those that are.
#pragma once

#include "formats/foreign/reading.hpp"
#include "plimsoll/formats.hpp"

namespace plimsoll::formats {

/// Reads what was exported: the files of `reads`, which may name the others.
ForeignRun read_exported(const ExportedRun& exported, const ExportPlan& plan);

/// The syntax of a text, by the name of its file or by its content.
enum class Syntax : std::uint8_t { json, yaml, toml, shell };
Syntax syntax_of(const std::string& path, const std::string& text);
/// The tree of a text of data.
Node parse(Syntax syntax, const std::string& text, const std::string& where);
/// The format that a tree is recognised as. Throws Error: none, or that of a program whose files are not read.
std::string recognised_format(const Node& tree, const std::string& path);

/// One file of whatever format; an empty `format`: by its content.
void read_file(Reading& reading, const std::string& path, const std::string& format);
/// What was read, as a strategy, with what follows from it for this model.
Strategy strategy_of(Reading& reading, const Model& model);
/// Whether a text is a shell script rather than data.
bool is_script(const std::string& path, const std::string& text);
/// The machines that were told. Throws Error: no device, or not how many.
Cluster cluster_of_run(const Reading& reading, const ForeignOptions& options);

}  // namespace plimsoll::formats
