/// Address space of the stand-in devices: ranges of it without memory behind them, given out and taken back, and the pages in them opened
/// and closed.
#pragma once

#include <cstdint>
#include <map>

namespace plimsoll::device {

inline constexpr std::uint64_t kPage = std::uint64_t{2} << 20;  ///< granularity of device memory

/// n rounded up to a multiple of unit.
constexpr std::uint64_t up(std::uint64_t n, std::uint64_t unit) { return (n + unit - 1) / unit * unit; }

/// Address space without memory behind it, given out by parts. It stays the process's until that ends.
class Range {
 public:
  /// As much of `most` bytes as there is, by halves, and not less than `least`: else a message says so and the range stays empty.
  Range(std::uint64_t most, std::uint64_t least);
  bool holds(std::uintptr_t address) const { return address >= start_ && address < end_; }

  /// The start of an allocation of device memory, where the runtime puts it: downwards as CUDA's driver does, or upwards
  /// (PLIMSOLL_REHEARSE_ADDRESSES=rising) as runtimes do that only count. 0: there is no room.
  std::uintptr_t take_for_device(std::uint64_t bytes);
  /// The highest start that is a multiple of `alignment` in the highest gap that has one, or 0.
  std::uintptr_t take_highest(std::uint64_t bytes, std::uint64_t alignment);
  /// What a take gave.
  void give_back(std::uintptr_t at, std::uint64_t bytes);

 private:
  using Gaps = std::map<std::uintptr_t, std::uint64_t>;

  std::uintptr_t take_lowest(std::uint64_t bytes, std::uint64_t alignment);
  std::uintptr_t cut(Gaps::iterator gap, std::uintptr_t at, std::uint64_t bytes);

  std::uintptr_t start_ = 0, end_ = 0;
  Gaps gaps_;  ///< bytes by where they start; neighbours are one
};

/// Makes pages readable and writable; false when the system has no more of them.
bool open_pages(std::uintptr_t at, std::uint64_t bytes);
/// Forgets the values and makes the pages untouchable.
void close_pages(std::uintptr_t at, std::uint64_t bytes);

}  // namespace plimsoll::device
