/// Hardware files of the caller's own.
#pragma once

#include <string>

namespace plimsoll {

/// Takes the JSON files of a folder in the place of the shipped ones of the same names (hosts.json, accelerators/h100-sxm.json), for as
/// long as the program runs and before anything else is asked of it. Throws Error: no folder, or a file whose name none has.
void use_hardware_files(const std::string& folder);

}  // namespace plimsoll
