// What nvidia-smi, rocm-smi, lscpu, Slurm and Kubernetes print of machines.
#pragma once

#include "formats/foreign/format.hpp"
#include "plimsoll/hardware.hpp"

namespace plimsoll::formats {

/// Reads the text of `nvidia-smi topo -m`, `rocm-smi --showtopo`, `lscpu` or `sinfo -N`; false: it is none of these. Rates of links are not
/// in them: the device's usual node has those.
bool read_cluster_text(Reading& reading, const std::string& text, const std::string& where);

Format kubernetes_format();

}  // namespace plimsoll::formats
