// Links and collectives: straight lines of time over bytes, and the two protocols of a collective library.
#include <algorithm>
#include <cmath>
#include <map>

#include "calibrate/fit.hpp"
#include "calibrate/least_squares.hpp"
#include "calibrate/peers.hpp"
#include "calibrate/statistics.hpp"
#include "plimsoll/cost.hpp"

namespace plimsoll::calibrate {
namespace {

/// One straight line: a latency and a bandwidth. One size alone gives a bandwidth only.
Link link_of(const std::vector<Sample>& samples, const Link& before) {
  std::vector<TimedSize> points;
  double best = 0;
  for (const Sample& sample : samples) {
    points.push_back({static_cast<double>(sample.bytes), sample.seconds});
    best = std::max(best, static_cast<double>(sample.bytes) / sample.seconds);
  }
  Link link = before;
  const bool one_size =
      std::all_of(points.begin(), points.end(), [&](const TimedSize& point) { return point.size == points.front().size; });
  double bandwidth = best;
  if (!one_size) {
    const KinkedLine line = fit_kinked_line(points, 0);
    if (line.slopes.front() > 0) bandwidth = 1 / line.slopes.front();
    link.latency = calibrated(Seconds(std::max(line.start, 1e-9)));
  }
  link.achieved = calibrated(BytesPerSecond(bandwidth));
  if (link.bandwidth.value.value < bandwidth) link.bandwidth = {BytesPerSecond(std::max(best, bandwidth)), Provenance::measured, kSource};
  return link;
}

// ---- collectives ---------------------------------------------------------------------------------------------------

CollectiveKind kind_named(const std::string& name) {
  for (int i = 0; i < 7; ++i)
    if (name == name_of(static_cast<CollectiveKind>(i))) return static_cast<CollectiveKind>(i);
  return CollectiveKind::all_reduce;
}

bool is_ring_like(const Sample& sample) {
  return sample.group == "all_reduce" || sample.group == "all_gather" || sample.group == "reduce_scatter";
}

double transferred(const Sample& sample) { return bytes_sent(kind_named(sample.group), Bytes(sample.bytes), sample.ranks); }

/// time = min(launch + bytes / (bandwidth · share), pipeline · passes / 2 + bytes / bandwidth): cost/collectives.cpp.
struct Protocols {
  double launch = 0, slow = 0, pipeline = 0, fast = 0;  ///< slow, fast: seconds per byte sent
  double error = HUGE_VAL;

  double at(const Sample& sample) const {
    const double passes = sample.group == "all_reduce" ? 2 : 1, bytes = transferred(sample);
    return std::min(launch + bytes * slow, pipeline * passes / 2 + bytes * fast);
  }
};

double squares(const std::vector<Sample>& samples, const Protocols& protocols) {
  double sum = 0;
  for (const Sample& sample : samples) sum += std::pow(protocols.at(sample) / sample.seconds - 1, 2);
  return std::sqrt(sum / static_cast<double>(samples.size()));
}

/// The samples up to `split` belong to the low-latency protocol, the others to the pipelined one.
Protocols split_at(const std::vector<Sample>& samples, std::size_t split) {
  std::vector<Equation> low, high;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const double passes = samples[i].group == "all_reduce" ? 2 : 1, bytes = transferred(samples[i]);
    if (i < split)
      low.push_back({{1, bytes}, samples[i].seconds});
    else
      high.push_back({{passes / 2, bytes}, samples[i].seconds});
  }
  const std::vector<double> slow = fit_nonnegative(low), fast = fit_nonnegative(high);
  Protocols protocols{slow[0], slow[1], fast[0], fast[1], 0};
  if (protocols.slow < protocols.fast) protocols.slow = protocols.fast;  // else there is one protocol only
  protocols.error = squares(samples, protocols);
  return protocols;
}

Protocols fit_protocols(std::vector<Sample> samples) {
  std::sort(samples.begin(), samples.end(), [](const Sample& a, const Sample& b) { return transferred(a) < transferred(b); });
  Protocols best;
  for (std::size_t split = 2; split + 2 <= samples.size(); ++split) {
    const Protocols found = split_at(samples, split);
    if (found.fast > 0 && found.error < best.error) best = found;
  }
  return best;
}

/// One node's collectives as they were measured; of several nodes the all-reduce, as a ring's.
void keep_curves(const std::vector<Sample>& samples, CollectiveLibrary& library) {
  std::map<std::tuple<std::string, int, int>, std::map<std::int64_t, std::vector<double>>> shapes;
  for (const Sample& sample : samples)
    if (is_ring_like(sample) || sample.group == "all_to_all") shapes[{sample.group, sample.nodes, sample.ranks}][sample.bytes].push_back(sample.seconds);
  const std::string note = samples.front().tool == kPeerTool ? kPeerTool : "";
  for (const auto& [shape, sizes] : shapes) {
    const auto& [kind, nodes, gpus] = shape;
    if (sizes.size() < 2) continue;
    std::vector<CollectivePoint> points;
    for (const auto& [bytes, times] : sizes) points.push_back({Bytes(bytes), Seconds(median(times))});
    if (nodes == 1) {
      std::erase_if(library.measured, [&](const MeasuredCollective& old) { return old.kind == kind && old.gpus == gpus; });
      library.measured.push_back({kind, gpus, kSource, note, std::move(points)});
    } else if (kind == "all_reduce") {
      std::erase_if(library.all_reduce, [&](const CollectiveCurve& old) { return old.gpus == gpus && old.nodes == nodes; });
      library.all_reduce.insert(library.all_reduce.begin(), {gpus, nodes, kSource, note, std::move(points)});
    }
  }
}

/// The bus bandwidth of all-to-all at its best.
void fit_all_to_all(const std::vector<Sample>& samples, CollectiveLibrary& library) {
  double best = 0;
  for (const Sample& sample : samples)
    if (sample.group == "all_to_all" && sample.nodes == 1) best = std::max(best, transferred(sample) / sample.seconds);
  if (best > 0) library.all_to_all = calibrated(BytesPerSecond(best));
}

/// The links must carry what the ring was measured to carry.
void widen_links(Node& node, int ranks) {
  const double ring = node.collectives.ring.value.value;
  const double links = node.fabric == NodeFabric::mesh ? ranks - 1 : 1;
  if (node.fabric == NodeFabric::pcie_tree || node.gpu_link.achieved.value.value * links >= ring) return;
  node.gpu_link.achieved = {BytesPerSecond(ring / links), Provenance::derived, kSource};
  if (node.gpu_link.bandwidth.value.value < ring / links) node.gpu_link.bandwidth = node.gpu_link.achieved;
}

/// Collectives of a library stand for what a framework runs; those of our own peer kernels stand in where there are none.
std::vector<Sample> of_library(std::vector<Sample> collectives, Calibration& calibration) {
  const auto own = [](const Sample& sample) { return sample.tool == kPeerTool; };
  if (collectives.empty() || std::none_of(collectives.begin(), collectives.end(), own)) return collectives;
  if (std::all_of(collectives.begin(), collectives.end(), own)) {
    calibration.notes.push_back("collectives: fitted to plimsoll's own peer kernels, no library's were measured (mpirun … --collectives)");
    return collectives;
  }
  collectives.erase(std::remove_if(collectives.begin(), collectives.end(), own), collectives.end());
  return collectives;
}

}  // namespace

void fit_copies(const std::vector<Sample>& samples, Calibration& calibration) {
  Node& node = calibration.cluster.node;
  std::vector<Sample> host = of_kind(samples, SampleKind::host_to_device);
  for (const Sample& sample : of_kind(samples, SampleKind::device_to_host)) host.push_back(sample);
  if (!host.empty()) node.host_link = link_of(host, node.host_link);
  const std::vector<Sample> peers = of_kind(samples, SampleKind::peer_copy);
  if (!peers.empty() && node.fabric != NodeFabric::pcie_tree) node.gpu_link = link_of(peers, node.gpu_link);
}

void fit_collectives(const std::vector<Sample>& samples, Calibration& calibration) {
  const std::vector<Sample> collectives = of_library(of_kind(samples, SampleKind::collective), calibration);
  if (collectives.empty()) return;
  Node& node = calibration.cluster.node;
  CollectiveLibrary& library = node.collectives;
  keep_curves(collectives, library);
  fit_all_to_all(collectives, library);
  std::vector<Sample> rings;
  int most = 0;
  for (const Sample& sample : collectives)
    if (is_ring_like(sample) && sample.nodes == 1) most = std::max(most, sample.ranks);
  for (const Sample& sample : collectives)
    if (is_ring_like(sample) && sample.nodes == 1 && sample.ranks == most) rings.push_back(sample);
  const Protocols protocols = rings.size() < 4 ? Protocols{} : fit_protocols(rings);
  if (protocols.error == HUGE_VAL) {
    calibration.notes.push_back("collectives: " + std::to_string(rings.size()) + " samples in one node do not determine two protocols");
    return;
  }
  library.ring = calibrated(BytesPerSecond(1 / protocols.fast));
  library.launch = calibrated(Seconds(std::max(protocols.launch, 1e-9)));
  library.pipeline = calibrated(Seconds(std::max(protocols.pipeline, 1e-9)));
  library.ll_share = calibrated(std::clamp(protocols.fast / protocols.slow, 1e-3, 1.0));
  widen_links(node, most);
}

}  // namespace plimsoll::calibrate
