#include "cost/measured_collectives.hpp"

#include <algorithm>
#include <cmath>

namespace plimsoll::cost {
namespace {

/// Log-log interpolation; below the first point its time, above the last its bandwidth. Without the host's launch.
Seconds on_curve(const CollectiveCurve& curve, double bytes) {
  const auto& points = curve.points;
  const auto size = [](const CollectivePoint& point) { return static_cast<double>(point.bytes.count); };
  const auto time = [&](const CollectivePoint& point) { return (point.time - curve.launch).value; };
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

/// The group that a curve was measured over: a whole node's, alone.
GroupShape measured_group(const CollectiveCurve& curve, const GroupShape& group, const CollectiveLibrary& library) {
  if (same_group(curve, group)) return group;
  GroupShape shape;
  shape.size = shape.per_node = curve.gpus;
  shape.ring = shape.intra_ring = library.ring.value;
  shape.direct = group.direct;
  shape.intra_latency = group.intra_latency;
  return shape;
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
  const double sent = bytes_sent(kind, buffer, group.size), per_byte = bytes_sent(measured, Bytes(1 << 20), curve->gpus) / (1 << 20);
  const double bytes = std::clamp(sent / per_byte, static_cast<double>(curve->points.front().bytes.count),
                                  static_cast<double>(curve->points.back().bytes.count));
  const Bytes size(static_cast<std::int64_t>(std::llround(bytes)));
  return on_curve(*curve, static_cast<double>(size.count)) / modelled(measured, size, measured_group(*curve, group, library));
}

}  // namespace plimsoll::cost
