/// Hardware files of one's own: of machines that tools describe, and to begin with.
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

/// A hardware file to begin with: kind "gpu", that of the device `on`, or "cluster", of its usual nodes; empty: h100-sxm. Every number has what it
/// is beside it and is marked as assumed, so that a report lists what still stands in; measured curves are left out. Throws Error: unknown kind or
/// device.
std::string hardware_template(const std::string& kind, const std::string& on);

}  // namespace plimsoll
