// The disk, as the planner sees it: rooms that read files ask here, so that a process that answers strangers can have none.
#pragma once

#include <cstdint>
#include <string>

namespace plimsoll {

/// The bytes of a file of at most `most_bytes`; "-" is standard input. Throws Error: missing, unreadable, a folder, too large.
std::string read_text_file(const std::string& path, std::int64_t most_bytes);

namespace files {

bool exists(const std::string& path);
bool is_folder(const std::string& path);

/// From now on this process sees no file and no standard input, whatever a path says: nothing exists. For workers of `plimsoll serve`,
/// whose requests must not tell what is on the machine.
void close();

}  // namespace files
}  // namespace plimsoll
