// Alpha-beta closed forms of collectives (Thakur, Rabenseifner and Gropp 2005; Patarasuk and Yuan 2009).
#include <cmath>

#include "plimsoll/cost.hpp"

namespace plimsoll {
namespace {

double steps_of(std::int64_t n) { return std::ceil(std::log2(static_cast<double>(n))); }
double others(std::int64_t n) { return static_cast<double>(n - 1); }
double share(std::int64_t n) { return others(n) / static_cast<double>(n); }

}  // namespace

Seconds ring_all_reduce(Bytes buffer, std::int64_t n, BytesPerSecond bandwidth, Seconds latency) {
  return n < 2 ? Seconds() : 2 * others(n) * latency + 2 * share(n) * (buffer / bandwidth);
}

Seconds ring_all_gather(Bytes buffer, std::int64_t n, BytesPerSecond bandwidth, Seconds latency) {
  return n < 2 ? Seconds() : others(n) * latency + share(n) * (buffer / bandwidth);
}

Seconds tree_all_reduce(Bytes buffer, std::int64_t n, BytesPerSecond bandwidth, Seconds latency) {
  return n < 2 ? Seconds() : 2 * steps_of(n) * latency + 2 * (buffer / bandwidth);
}

Seconds halving_doubling_all_reduce(Bytes buffer, std::int64_t n, BytesPerSecond bandwidth, Seconds latency) {
  return n < 2 ? Seconds() : 2 * steps_of(n) * latency + 2 * share(n) * (buffer / bandwidth);
}

Seconds direct_all_reduce(Bytes buffer, std::int64_t n, BytesPerSecond link, Seconds latency) {
  return 2 * direct_all_gather(buffer, n, link, latency);
}

Seconds direct_all_gather(Bytes buffer, std::int64_t n, BytesPerSecond link, Seconds latency) {
  return n < 2 ? Seconds() : latency + buffer / link / static_cast<double>(n);
}

Seconds ring_broadcast(Bytes buffer, std::int64_t n, BytesPerSecond bandwidth, Seconds latency) {
  return n < 2 ? Seconds() : others(n) * latency + buffer / bandwidth;
}

Seconds hierarchical_all_reduce(Bytes buffer, std::int64_t per_node, std::int64_t nodes, BytesPerSecond intra, BytesPerSecond inter) {
  const Bytes shard(ceil_div(buffer.count, per_node));
  return 2 * ring_all_gather(buffer, per_node, intra) + ring_all_reduce(shard, nodes, inter);
}

double bytes_sent(CollectiveKind kind, Bytes buffer, std::int64_t n) {
  const double bytes = static_cast<double>(buffer.count);
  switch (kind) {
    case CollectiveKind::all_reduce:
      return 2 * share(n) * bytes;
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_to_all:
      return share(n) * bytes;
    case CollectiveKind::broadcast:
    case CollectiveKind::send:
    case CollectiveKind::receive:
      return n > 1 ? bytes : 0;
  }
  return bytes;
}

}  // namespace plimsoll
