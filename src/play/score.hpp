// What play keeps of a program: its work with its time, in the order of issue.
#pragma once

#include <cstdint>
#include <vector>

#include "plimsoll/play.hpp"

namespace plimsoll {

/// What a stream, or the compute stream's wait for it, is counted as.
enum class Cause : std::uint8_t {
  nothing,
  compute,
  recompute,
  optimizer,
  copy,
  transfer,
  host,
  host_optimizer,
  bubble,
  collective,  ///< the first of kGroups: collective + Group
};
inline constexpr std::size_t kCauses = static_cast<std::size_t>(Cause::collective) + kGroups;

inline Cause cause_of(Group group) { return static_cast<Cause>(static_cast<std::size_t>(Cause::collective) + static_cast<std::size_t>(group)); }

/// What work takes of the device beside other streams' work.
enum class Claim : std::uint8_t {
  bandwidth,  ///< a kernel bound by memory; a transfer that holds next to no units
  units,      ///< a kernel bound by arithmetic (products, attention) whose blocks take units as they come free; communication that such kernels leave some
  blocks,     ///< a product of one block per unit, all at once; a collective that holds units as long as it runs
  device,     ///< all of it
};

struct Item {
  enum class What : std::uint8_t {
    kernel,
    copy,
    collective,
    meeting,      ///< a collective of all played ranks
    send,
    receive,
    record,       ///< event `id`
    wait,         ///< for event `id`
    host,         ///< the host works for `seconds`
    synchronize,  ///< the host waits for the device; `id` 1: for the stream
  };
  double seconds = 0;
  double issue = 0;  ///< host seconds since the item before it that has some, with those that issuing it takes
  std::uint32_t instruction = 0;
  std::uint32_t id = 0;  ///< event; of a send or receive the other's rank
  StreamId stream = kComputeStream;
  What what = What::kernel;
  Cause cause = Cause::nothing;
  Claim claim = Claim::bandwidth;  ///< of kernels and collectives
};

struct Score::Parts {
  std::vector<Item> items;
  std::size_t repeat_begin = 0, repeat_end = 0;  ///< items
  std::int64_t repeat_times = 1;
  std::array<bool, kGroups> repeats_meetings{};  ///< per group: collectives that all ranks might share are within the repeated items
  std::size_t streams = 1, events = 0;
  std::array<std::int64_t, kGroups> meetings{};  ///< per group: collectives that all ranks might share
  std::vector<KernelShare> dearest;
  Seconds communication, copies;
  std::array<Seconds, kKernelKinds> by_kernel{};
  std::array<Seconds, kGroups> by_group{};
  Seconds drawn;  ///< of kernels: their time at the boards' whole power that takes as much energy
};

}  // namespace plimsoll
