// `plimsoll hardware`: the list of devices and clusters, and a readable sheet of one, every number with where it comes from.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "plimsoll/error.hpp"
#include "plimsoll/hardware.hpp"

namespace plimsoll {
namespace {

std::string shown(double share) { return fmt::format("{:.3g}", share); }
std::string shown(std::int64_t count) { return std::to_string(count); }
template <class T>
std::string shown(const T& quantity) {
  return to_string(quantity);
}

template <class T>
std::string row(const std::string& label, const Sourced<T>& sourced) {
  return fmt::format("  {:<28}{:>18}  {:<10} {}\n", label, shown(sourced.value), name_of(sourced.provenance), sourced.source);
}

std::string link_rows(const std::string& label, const Link& link) {
  return row(label, link.bandwidth) + row("  achieved", link.achieved) + row("  latency", link.latency);
}

std::string source_rows(const std::vector<Accelerator::Source>& sources) {
  std::string text = "\nSources\n";
  for (const auto& source : sources) text += fmt::format("  {:<18}{}\n", source.key, source.text);
  return text;
}

std::string product_rows(const ProductConstants& gemm) {
  std::string text = "\nProducts: kernels of the libraries\n" + row("start of adding parts", gemm.reduction) +
                     row("power elsewhere, of board", gemm.power_elsewhere) +
                     (gemm.second_wave.value > 0 ? row("second wave, of a product", gemm.second_wave) : "");
  for (const ProductKernels& kernels : gemm.kernels) {
    std::string layouts;
    for (const std::string& layout : kernels.layouts) layouts += " " + layout;
    text += fmt::format("  {}, aligned to {} B{}, {} tiles\n", kernels.name, kernels.alignment, layouts, kernels.tiles.size());
    text += row("  start", kernels.start) + row("  feed of a unit", kernels.feed) + row("  store of a unit", kernels.store) +
            (kernels.drain.value > BytesPerSecond() ? row("  drain of a unit", kernels.drain) : "") + row("  power, of board", kernels.power);
    for (const ProductKernels::Rate& rate : kernels.rates) {
      std::string scalings;
      for (const Scaling scaling : rate.scalings) scalings += " " + std::string(name_of(scaling));
      text += row("  " + std::string(name_of(rate.type)) + scalings + ", share of peak", rate.share);
    }
  }
  return text + row("convolution forward share", gemm.convolution.forward) +
         row("  of its input's gradient", gemm.convolution.input_gradient) +
         row("  of its weight's gradient", gemm.convolution.weight_gradient);
}

std::string pace_rows(const KernelPaces& paces) {
  std::string text;
  const auto add = [&](const char* what, const Sourced<double>& pace) {
    if (!pace.source.empty()) text += row(what, pace);
  };
  add("issue, times the law's", paces.issue);
  add("attention forward, times the law's", paces.attention_forward);
  add("attention backward, times the law's", paces.attention_backward);
  return text;
}

std::string compute_rows(const Accelerator& device) {
  std::string text = fmt::format("\nCompute: {} {}{}\n", device.compute_units, device.is_amd() ? "CUs" : "SMs",
                                 device.dies > 1 ? fmt::format(" on {} dies", device.dies) : "");
  if (device.threads_per_unit.value > 0) text += row("threads a unit", device.threads_per_unit);
  if (device.shared_memory.value > Bytes(0)) text += row("shared memory a block", device.shared_memory);
  text += row("clock", device.clock);
  if (device.power.value.value > 0) text += row("board power", device.power);
  for (const auto& rate : device.rates)
    text += row(std::string(name_of(rate.type)) + " dense peak", rate.peak) + row("  sustained share", rate.sustained);
  text += row("attention forward share", device.attention.forward) + row("attention backward share", device.attention.backward);
  if (!device.attention.matrix_width.source.empty()) text += row("matrix units, of the family's", device.attention.matrix_width);
  text += pace_rows(device.paces);
  text += row("kernel start", device.gemm.start);
  return text + product_rows(device.gemm);
}

std::string measurement_rows(const Accelerator& device) {
  std::string text = "\nPublished measurements\n";
  for (const auto& curve : device.gemm_curves) {
    const auto best =
        std::max_element(curve.points.begin(), curve.points.end(), [](const GemmPoint& a, const GemmPoint& b) { return a.rate < b.rate; });
    if (best == curve.points.end()) continue;
    text += fmt::format("  {} GEMM, {} points, best {} at {} x {} x {} ({}) [{}]\n", name_of(curve.type), curve.points.size(),
                        to_string(best->rate), best->m, best->n, best->k, curve.software, curve.source);
  }
  for (const auto& measurement : device.measurements) {
    text += fmt::format("  {}:", measurement.what);
    for (const auto& [key, value] : measurement.values) text += fmt::format(" {} {};", key, value);
    text += fmt::format(" {}[{}]\n", measurement.note.empty() ? "" : measurement.note + " ", measurement.source);
  }
  return text;
}

std::string device_sheet(const Accelerator& device) {
  std::string text = fmt::format("{} ({}, {}, {}), {}\n", device.title, device.name, device.family, device.target, device.launch_year);
  if (!device.note.empty()) text += "  " + device.note + "\n";
  text += fmt::format("\nMemory: {}\n", device.memory_type);
  text += row("capacity, nominal", device.memory_nominal) + row("capacity, usable", device.memory_usable);
  text += row("bandwidth", device.memory_bandwidth) + row("  streaming share", device.memory_efficiency);
  text += row("last-level cache", device.last_level_cache);
  text += row("runtime context", device.overheads.context) + row("BLAS workspace", device.overheads.blas_workspace);
  text += row("first communicator", device.overheads.first_communicator) + row("each further one", device.overheads.further_communicator);
  text += compute_rows(device);
  text += fmt::format("\nUsual node: {} (plimsoll hardware {})\n", device.node, device.node);
  if (!device.server.empty()) text += fmt::format("Larger node: {} (plimsoll hardware {})\n", device.server, device.server);
  return text + measurement_rows(device) + source_rows(device.sources);
}

std::string cluster_sheet(const Cluster& cluster) {
  const Node& node = cluster.node;
  std::string text = fmt::format("{}: {}\n  {} of {} x {}\n", cluster.name, cluster.title, with_thousands(cluster.nodes),
                                 cluster.gpus_per_node, cluster.accelerator.title);
  text += fmt::format("\nNode: {} GPUs, {}\n", node.gpus, name_of(node.fabric));
  if (node.gpu_link.bandwidth.value.value > 0) text += link_rows("GPU link, per direction", node.gpu_link);
  text += link_rows("host link", node.host_link);
  if (node.gpus_per_pcie_switch > 0) text += link_rows("PCIe switch uplink", node.uplink);
  if (node.sockets > 1) text += link_rows("link between sockets", node.socket_link);
  if (node.nics > 0) text += link_rows(fmt::format("{} NICs, each", node.nics), node.nic);
  text += row("host memory bandwidth", node.host_memory_bandwidth);
  if (node.host_memory) text += row("host memory", *node.host_memory);
  text += fmt::format("\nCollectives: {}, {} channels\n", node.collectives.name, node.collectives.channels);
  text += row("ring bus bandwidth", node.collectives.ring);
  if (node.collectives.nvls.value.value > 0) text += row("in-switch all-reduce", node.collectives.nvls);
  if (node.collectives.all_to_all.value.value > 0) text += row("all-to-all", node.collectives.all_to_all);
  const auto curves = [&](const char* kind, const std::vector<CollectiveCurve>& measured) {
    for (const auto& curve : measured)
      text += fmt::format("  {} ({}) measured over {} GPUs on {} node(s), {} sizes [{}]\n", kind, curve.algorithm, curve.gpus, curve.nodes,
                          curve.points.size(), curve.source);
  };
  curves("all-reduce", node.collectives.all_reduce);
  curves("reduce-scatter", node.collectives.reduce_scatter);
  for (const MeasuredCollective& each : node.collectives.measured)
    text += fmt::format("  {} measured over {} GPUs, {} sizes [{}]\n", each.kind, each.gpus, each.points.size(), each.source);
  const Contention& contention = node.collectives.contention;
  text += row("memory-bound kernels beside one", contention.memory_bound);
  text += row("a collective beside computation", contention.communication);
  if (cluster.fabric.nodes_per_leaf > 0)
    text += fmt::format("\nFabric: leaves of {} nodes, oversubscribed {} : 1\n", cluster.fabric.nodes_per_leaf,
                        cluster.fabric.oversubscription);
  return text + source_rows(cluster.sources);
}

std::string peak_of(const Accelerator& device) {
  for (const auto& rate : device.rates)
    if (rate.type == MathType::bf16) return to_string(rate.peak.value);
  return "no bf16";
}

}  // namespace

std::string hardware_list() {
  std::string text = fmt::format("{:<26}{:>12}{:>13}{:>19}  {}\n", "device", "usable", "bandwidth", "bf16 dense peak", "name");
  for (const auto& name : shipped_accelerators()) {
    const Accelerator device = load_accelerator(name);
    text += fmt::format("{:<26}{:>12}{:>13}{:>19}  {}\n", name, to_string(device.memory_usable.value),
                        to_string(device.memory_bandwidth.value), peak_of(device), device.title);
  }
  text += fmt::format("\n{:<26}{:>6}  {}\n", "cluster", "GPUs", "name");
  for (const auto& name : shipped_clusters()) {
    const Cluster cluster = parse_cluster(name);
    text += fmt::format("{:<26}{:>6}  {}\n", name, with_thousands(cluster.gpus()), cluster.title);
  }
  return text;
}

std::string hardware_sheet(const std::string& name) {
  std::string lowered = name;
  for (char& c : lowered) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto clusters = shipped_clusters();
  if (lowered.size() > 5 && lowered.substr(lowered.size() - 5) == ".json") {  // what calibrate wrote: a node with its device
    const Cluster cluster = parse_cluster(name);
    return device_sheet(cluster.accelerator) + "\n" + cluster_sheet(cluster);
  }
  const bool counted = !name.empty() && std::isdigit(static_cast<unsigned char>(name.front()));
  if (counted || std::find(clusters.begin(), clusters.end(), lowered) != clusters.end()) return cluster_sheet(parse_cluster(name));
  return device_sheet(load_accelerator(name));
}

}  // namespace plimsoll
