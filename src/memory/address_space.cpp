#include "memory/address_space.hpp"

#include <iterator>

namespace plimsoll::memory {

std::uint64_t AddressSpace::take_gap(Gaps::iterator gap, std::uint64_t size) {
  const auto [start, length] = *gap;
  gaps_.erase(gap);
  const std::uint64_t rest = length - size;
  if (order_ == AddressOrder::ascending) {
    if (rest) gaps_[start + size] = rest;
    return start;
  }
  if (rest) gaps_[start] = rest;
  return start + rest;
}

std::uint64_t AddressSpace::reserve(std::int64_t bytes) {
  const auto size = static_cast<std::uint64_t>(bytes);
  if (order_ == AddressOrder::ascending) {
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap)
      if (gap->second >= size) return take_gap(gap, size);
    high_ += size;
    return high_ - size;
  }
  for (auto gap = gaps_.rbegin(); gap != gaps_.rend(); ++gap)
    if (gap->second >= size) return take_gap(std::prev(gap.base()), size);
  return low_ -= size;
}

/// A gap at the far end is no gap: what comes next starts there, whatever its size.
void AddressSpace::retract(Gaps::iterator gap) {
  if (order_ == AddressOrder::ascending && gap->first + gap->second == high_)
    high_ = gap->first;
  else if (order_ == AddressOrder::descending && gap->first == low_)
    low_ += gap->second;
  else
    return;
  gaps_.erase(gap);
}

void AddressSpace::release(std::uint64_t address, std::int64_t bytes) {
  auto gap = gaps_.emplace(address, static_cast<std::uint64_t>(bytes)).first;
  if (gap != gaps_.begin()) {
    const auto left = std::prev(gap);
    if (left->first + left->second == gap->first) {
      left->second += gap->second;
      gaps_.erase(gap);
      gap = left;
    }
  }
  const auto right = std::next(gap);
  if (right != gaps_.end() && gap->first + gap->second == right->first) {
    gap->second += right->second;
    gaps_.erase(right);
  }
  retract(gap);
}

}  // namespace plimsoll::memory
