// Which shipped device a name means.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace plimsoll::hardware {

/// aliases.json: other names of devices, and names that mean no device plimsoll knows.
struct Aliases {
  std::vector<std::pair<std::string, std::string>> names, refused;
};
const Aliases& shipped_aliases();

/// The shipped name that a name means: its own, an alias, or either as makers, drivers and shops write it ("NVIDIA GeForce RTX 3090",
/// "Tesla V100-SXM2-32GB", "H100 SXM5 80GB"): makers' words, spaces and hyphens, the generation of a socket and a memory that is the
/// device's own say nothing more. Throws Error: unknown, or refused by name.
std::string canonical_device(const std::string& name);

}  // namespace plimsoll::hardware
