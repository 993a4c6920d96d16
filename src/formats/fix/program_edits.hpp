// What a change is in the files of a program: the difference between two exports, without it and with it.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "formats/foreign/node.hpp"
#include "plimsoll/formats.hpp"

namespace plimsoll::formats {

/// What the exported files have with the change that they did not have without: a key of a format, or an option of a launch.
struct Edit {
  std::string format;  ///< "axolotl"; of options of a launch "shell"
  std::string path;
  Node value;
  bool gone = false;  ///< they have it no more
};

/// The name that export_run has for what writes files of such formats ("accelerate" of transformers'). Throws Error: nothing writes them.
const char* writer_of(const std::vector<std::string>& formats);

/// A run as its program's files would say it, without a change and with it.
struct ChangedExport {
  Strategy changed;  ///< what was said, with the change
  ExportedRun before, after;
  ForeignRun back;  ///< what `after` is read as
};
/// Throws Error: what cannot be exported.
ChangedExport export_changed(const ForeignRun& run, const std::vector<std::pair<std::string, std::string>>& change, const std::string& writer);

/// In the order of the exported files. Throws Error where the change has no key in them.
std::vector<Edit> edits_between(const ExportedRun& before, const ExportedRun& after);

/// "--recompute-granularity" and "recompute_granularity" are one name.
std::string name_of_option(std::string option);

/// What an exported file's key was read as; nullptr: as nothing.
const ForeignKey* read_as(const ForeignRun& exported, const Edit& edit);

/// Whether the run has that value already, said, by default, or because another follows from it.
bool is_there(const ForeignRun& run, const ForeignKey* wanted);

/// Whether what was read is one of the change's keys.
bool names(const std::vector<std::pair<std::string, std::string>>& change, const ForeignKey* key);

/// What the program cannot be told of the change, as the export says it; empty: all can be said.
std::string without_equal(const ExportedRun& before, const ExportedRun& after);

/// Options and their values of a script's words: "--recompute-granularity" → "full".
std::map<std::string, Node> options_of(const std::string& text);

/// "axolotl:axolotl.yaml" without the format.
std::string without_format(const std::string& input);

}  // namespace plimsoll::formats
