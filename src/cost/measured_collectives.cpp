#include "cost/measured_collectives.hpp"

#include <algorithm>
#include <cmath>

namespace plimsoll::cost {
namespace {

/// Log-log interpolation; below the first point its time, above the last its bandwidth. Without the host's launch.
Seconds on_points(const std::vector<CollectivePoint>& points, Seconds launch, double bytes) {
  const auto size = [](const CollectivePoint& point) { return static_cast<double>(point.bytes.count); };
  const auto time = [&](const CollectivePoint& point) { return (point.time - launch).value; };
  if (bytes <= size(points.front())) return Seconds(time(points.front()));
  if (bytes >= size(points.back())) return Seconds(time(points.back()) * bytes / size(points.back()));
  const auto above = std::find_if(points.begin(), points.end(), [&](const CollectivePoint& point) { return bytes < size(point); });
  const auto below = above - 1;
  const double at = std::log(bytes / size(*below)) / std::log(size(*above) / size(*below));
  return Seconds(std::exp(std::log(time(*below)) * (1 - at) + std::log(time(*above)) * at));
}

bool same_group(const CollectiveCurve& curve, const GroupShape& group) {
  return curve.gpus == group.size && curve.nodes == group.nodes && group.uniform;
}

const CollectiveCurve* find(const std::vector<CollectiveCurve>& curves, const std::string& algorithm, const GroupShape& group) {
  const CollectiveCurve* near = nullptr;
  for (const auto& curve : curves) {
    if (curve.algorithm != algorithm) continue;
    if (same_group(curve, group)) return &curve;
    if (curve.nodes == 1 && group.nodes == 1 && !near) near = &curve;
  }
  return near;
}

/// A group of so many GPUs of a node, alone.
GroupShape group_of_node(std::int64_t gpus, const GroupShape& group, const CollectiveLibrary& library) {
  GroupShape shape;
  shape.size = shape.per_node = gpus;
  shape.ring = shape.intra_ring = library.ring.value;
  shape.direct = group.direct;
  shape.intra_latency = group.intra_latency;
  shape.all_to_all = group.all_to_all;
  return shape;
}

/// The size at which a rank of `gpus` sends as many bytes of `measured` as it does of this collective, within the curve's.
Bytes equal_size(double sent, CollectiveKind measured, std::int64_t gpus, const std::vector<CollectivePoint>& points) {
  const double per_byte = bytes_sent(measured, Bytes(1 << 20), gpus) / (1 << 20);
  const double bytes = std::clamp(sent / per_byte, static_cast<double>(points.front().bytes.count), static_cast<double>(points.back().bytes.count));
  return Bytes(static_cast<std::int64_t>(std::llround(bytes)));
}

/// Of that kind the one over as many GPUs, or over the number that is the fewest times larger or smaller.
const MeasuredCollective* nearest(CollectiveKind kind, std::int64_t gpus, const CollectiveLibrary& library) {
  const auto distance = [&](const MeasuredCollective& each) { return std::abs(std::log(static_cast<double>(gpus) / each.gpus)); };
  const MeasuredCollective* near = nullptr;
  for (const MeasuredCollective& each : library.measured)
    if (each.kind == name_of(kind) && (near == nullptr || distance(each) < distance(*near))) near = &each;
  return near;
}

}  // namespace

double measured_over_modelled(const std::string& algorithm, CollectiveKind kind, Bytes buffer, const GroupShape& group,
                              const CollectiveLibrary& library, const ModelledTime& modelled) {
  const bool reduces = kind == CollectiveKind::all_reduce;
  const CollectiveCurve* curve = find(reduces ? library.all_reduce : library.reduce_scatter, algorithm, group);
  CollectiveKind measured = reduces ? CollectiveKind::all_reduce : CollectiveKind::reduce_scatter;
  if (!curve && algorithm == "ring") {
    measured = reduces ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce;
    curve = find(reduces ? library.reduce_scatter : library.all_reduce, algorithm, group);
  }
  if (!curve) return 1;
  const Bytes size = equal_size(bytes_sent(kind, buffer, group.size), measured, curve->gpus, curve->points);
  const GroupShape over = same_group(*curve, group) ? group : group_of_node(curve->gpus, group, library);
  return on_points(curve->points, curve->launch, static_cast<double>(size.count)) / modelled(measured, size, over);
}

std::optional<Seconds> measured_time(CollectiveKind kind, Bytes buffer, const GroupShape& group, const CollectiveLibrary& library,
                                     const ModelledTime& modelled) {
  if (group.nodes != 1) return std::nullopt;
  const MeasuredCollective* curve = nearest(kind, group.size, library);
  if (curve == nullptr) return std::nullopt;
  if (curve->gpus == group.size) return on_points(curve->points, {}, static_cast<double>(buffer.count));
  const Bytes size = equal_size(bytes_sent(kind, buffer, group.size), kind, curve->gpus, curve->points);
  const double factor = on_points(curve->points, {}, static_cast<double>(size.count)) / modelled(kind, size, group_of_node(curve->gpus, group, library));
  return modelled(kind, buffer, group) * factor;
}

}  // namespace plimsoll::cost
