// The files of tests/validate/held written anew, and what moved in them told.
#pragma once

#include <string>
#include <vector>

namespace plimsoll::digests {

/// Everything that is held: the files of rows, then "drawn".
std::vector<std::string> all_names();

/// Predicts all lines of that name and writes them. A row that is worse than what is held keeps its line, until somebody takes that line
/// out by hand. Tells what moved, grouped by where programs part first. Returns whether no row was worse.
bool write_held(const std::string& name);

/// The programs of a row, or of a drawn strategy, as text. Throws std::runtime_error: there is no such row.
std::string dump_of(const std::string& name, const std::string& id);

}  // namespace plimsoll::digests
