/// A hardware file of machines that tools describe.
#pragma once

#include <string>
#include <vector>

#include "plimsoll/hardware.hpp"

namespace plimsoll {

/// The machines that these files show: `nvidia-smi topo -m`, `rocm-smi --showtopo`, `lscpu`, `sinfo -N`, Kubernetes' list of nodes, or a
/// script whose launcher counts nodes and processes. Seen are the device where one is named (else `on` names it), GPUs per node, which of
/// them NVLink joins and by how many links, PCIe switches, NICs, sockets, and the number of nodes; the sources of the cluster tell where.
/// All rates, and what was not seen, are those of the device's usual node, with provenance "assumed". Throws Error: unreadable,
/// contradicting files, no device.
Cluster read_machine(const std::vector<std::string>& files, const std::string& on);

}  // namespace plimsoll
