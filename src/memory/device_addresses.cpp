#include "memory/device_addresses.hpp"

#include <iterator>

namespace plimsoll::memory {
namespace {

constexpr std::uint64_t kFirstAddress = std::uint64_t{1} << 32, kSpace = std::uint64_t{1} << 62;
constexpr std::uint64_t kLarge = std::uint64_t{32} << 20;  ///< begins at a multiple of itself
constexpr std::uint64_t kPage = std::uint64_t{2} << 20;

}  // namespace

DeviceAddresses::DeviceAddresses(SegmentOrder order) : order_(order), next_(kFirstAddress) {
  if (order == SegmentOrder::by_address) gaps_[kFirstAddress] = kSpace;
}

std::uint64_t DeviceAddresses::take(std::int64_t size) {
  const auto bytes = static_cast<std::uint64_t>(size);
  if (order_ == SegmentOrder::by_age) return (next_ += bytes) - bytes;
  const std::uint64_t alignment = bytes >= kLarge ? kLarge : kPage;
  for (auto gap = gaps_.rbegin(); gap != gaps_.rend(); ++gap) {
    const std::uint64_t from = gap->first, to = from + gap->second;
    if (bytes > gap->second) continue;
    const std::uint64_t at = (to - bytes) / alignment * alignment;
    if (at < from) continue;
    gaps_.erase(from);
    if (at > from) gaps_[from] = at - from;
    if (at + bytes < to) gaps_[at + bytes] = to - at - bytes;
    return at;
  }
  return 0;  // never: the space is larger than what all devices hold
}

void DeviceAddresses::give_back(std::uint64_t address, std::int64_t size) {
  if (order_ == SegmentOrder::by_age) return;
  std::uint64_t from = address, to = address + static_cast<std::uint64_t>(size);
  const auto above = gaps_.find(to);
  if (above != gaps_.end()) to += above->second, gaps_.erase(above);
  const auto next = gaps_.lower_bound(from);
  if (next != gaps_.begin()) {
    const auto below = std::prev(next);
    if (below->first + below->second == from) from = below->first, gaps_.erase(below);
  }
  gaps_[from] = to - from;
}

}  // namespace plimsoll::memory
