/// Playing a StepProgram through a faithful model of PyTorch's caching allocator.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plimsoll/allocator_settings.hpp"
#include "plimsoll/program.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll {

/// When a block that was freed while another stream still used it (record_stream) can be given out again.
enum class DelayedFree : std::uint8_t {
  next_allocation,  ///< its event is over at the next allocation: the host waits for the device, or the device is quick
  next_wait,        ///< when some stream next waits for the stream that used it; at the latest at the end of the step
};

/// From which segment the caching allocator takes one of several equal free blocks; within a segment it is the one of the lowest address.
enum class SegmentOrder : std::uint8_t {
  oldest_first,    ///< PyTorch 2.12 and later
  youngest_first,  ///< before: of the lowest address of all, and CUDA's driver gives addresses downwards (seen on an H100)
};

/// What is alive at one instant, by category.
struct MemoryByCategory {
  std::array<Bytes, kCategories> bytes{};
  Bytes& operator[](Category category) { return bytes[static_cast<std::size_t>(category)]; }
  Bytes operator[](Category category) const { return bytes[static_cast<std::size_t>(category)]; }
};

/// One tensor alive at the peak.
struct LiveTensor {
  Category category;
  Bytes bytes;  ///< of its block, as the allocator rounds it
  std::string label;
  Bytes requested;  ///< of the tensor itself
};

/// The allocation that failed, when the device's capacity was reached.
struct OutOfMemory {
  Bytes requested;
  Bytes reserved;  ///< segments held at that moment, after freeing what could be freed
  Bytes allocated;
  Phase phase;
  int step;  ///< 0 = the first
  std::string label;
};

/// What the allocator did over the steps played.
struct MemoryTrace {
  Bytes peak_allocated;        ///< maximum over steady steps (2, 3, …), blocks rounded as the allocator rounds them;
                               ///< of step 1 where no steady step was played
  Bytes peak_reserved;         ///< maximum over all steps
  Bytes optimizer_reserved;    ///< maximum over the optimizer's phase of the last step: less than peak_reserved where segments were
                               ///< given back; 0 without such a phase
  Bytes first_step_allocated;  ///< peak of step 1
  Bytes persistent;            ///< allocated after the last step
  Bytes init_peak_allocated;
  Bytes backward_peak;  ///< running maximum of allocated at the end of backward, last step
  Bytes forward_peak;   ///< likewise at the end of forward (with the loss)
  Phase peak_phase = Phase::init;
  std::string peak_label;    ///< operator that reached the peak
  int peak_step = 0;         ///< step of the peak, 0 = the first
  Bytes requested_at_peak;   ///< tensor bytes alive at the peak, before the allocator rounds them to blocks
  MemoryByCategory at_peak;  ///< what was alive at the peak
  int alloc_retries = 0;     ///< times that cached segments had to be given back to serve an allocation
  std::optional<OutOfMemory> out_of_memory;
};

struct PlayMemoryOptions {
  AllocatorSettings allocator;
  Bytes capacity{INT64_MAX};   ///< segments that the driver can give in all
  std::optional<Bytes> total;  ///< memory that the device reports in all (memory fraction, address space); empty: `capacity`
  int steps = 4;
  DelayedFree delayed_free = DelayedFree::next_allocation;
  SegmentOrder segments = SegmentOrder::oldest_first;
  /// Entries of the launch queue by which the device lags behind the host: a block freed under record_stream can be given out again after
  /// as many more, at the latest when the host waits for the device (synchronize, the end of the step, memory running short). A kernel or
  /// a copy is one entry; a collective is three, its kernel and the events by which its stream and the one that issued it wait for each
  /// other. 0: it does not lag, `delayed_free` says when.
  std::int64_t launches_behind = 0;
  double lead =
      1;  ///< share of the device's time by which the host is quicker: how fast it comes to lag that far after each wait; 1: at once
  bool behind_in_stalls_only = false;  ///< it lags only from `stall` to `synchronize`: elsewhere the host is the slower one
  bool shortage_is_fatal = false;      ///< the run ends where segments would have to be given back to serve an allocation
  bool skip_recurring_steps = true;    ///< once the allocator's state recurs, later steps are known without playing them
};

/// Plays `init`, `first_step`, `second_step` (`step` where the program has none) and then `step` until `options.steps` steps are done,
/// or until an allocation fails. Throws Error(internal) when the program frees what is not alive or allocates what is; Error(bad_input) for
/// settings that PyTorch refuses.
MemoryTrace play_memory(const StepProgram& program, const PlayMemoryOptions& options);

/// The tensors alive at the peak of allocated bytes, largest first (a second playing: explain asks, estimate does not).
std::vector<LiveTensor> alive_at_peak(const StepProgram& program, const PlayMemoryOptions& options);

// ---- the course of memory ---------------------------------------------------------------------------------------------

/// What the allocator held after one instruction that changed it.
struct MemorySample {
  int step = -1;  ///< -1: init
  Phase phase = Phase::init;
  std::size_t instruction = 0;  ///< index in what is played: `init`, `first_step`, `second_step` or `step`
  std::uint32_t label = 0;      ///< index in the program's labels: who changed it
  Bytes allocated, reserved;
};

/// Plays the program as play_memory does, every step of it, and notes each change of allocated or reserved bytes.
std::vector<MemorySample> memory_timeline(const StepProgram& program, const PlayMemoryOptions& options);

// ---- the whole history, for a memory_viz snapshot -------------------------------------------------------------------

/// One event of the allocator, in order.
struct AllocatorEvent {
  enum class Kind : std::uint8_t { alloc, free, segment_alloc, segment_free, segment_map, segment_unmap, out_of_memory };
  Kind kind;
  StreamId stream = kComputeStream;
  Category category = Category::temporary;  ///< of alloc, free and out_of_memory
  std::uint32_t label = 0;                  ///< likewise: index in the program's labels
  std::uint64_t address = 0;
  Bytes bytes;  ///< alloc, free: as requested; segments: what the driver gave
};

/// A range that the allocator holds at the end, cut into blocks.
struct AllocatorSegment {
  struct Block {
    std::uint64_t address = 0;
    Bytes bytes, requested;  ///< requested: 0 when free
    bool in_use = false;
    Category category = Category::temporary;
    std::uint32_t label = 0;
  };
  std::uint64_t address = 0;
  Bytes bytes;
  StreamId stream = kComputeStream;
  bool small = false, expandable = false;
  std::vector<Block> blocks;
};

struct AllocatorHistory {
  std::vector<AllocatorEvent> events;
  std::vector<AllocatorSegment> segments;  ///< at the end, by address
};

/// Plays the program as play_memory does, every step of it, and keeps what happened.
AllocatorHistory record_memory(const StepProgram& program, const PlayMemoryOptions& options);

}  // namespace plimsoll
