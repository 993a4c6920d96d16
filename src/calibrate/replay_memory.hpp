// The memory of a replay: the allocator of the prediction decides, the device really gives.
#pragma once

#include <map>
#include <vector>

#include "calibrate/backend.hpp"
#include "memory/caching_allocator.hpp"
#include "plimsoll/memory.hpp"

namespace plimsoll::calibrate {

/// A megabyte of random numbers written over memory of the device again and again until `bytes` are full.
void randomise(Backend& backend, void* memory, std::int64_t bytes, const std::vector<std::byte>& numbers);

/// Runs what gives back to a device, in a destructor: a device that fails has said so by an error already, which is what is reported.
template <class Do>
void give_back(Do&& what) {
  try {
    what();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): see above
  }
}

/// Tensors of a program on real memory: a segment that the allocator asks of the driver is asked of the driver, and filled with random
/// numbers. Every call throws Error where the device is full.
class ReplayMemory {
 public:
  /// Refuses by name what is not replayed.
  ReplayMemory(Backend& backend, const PlayMemoryOptions& options);
  ~ReplayMemory();
  ReplayMemory(const ReplayMemory&) = delete;
  ReplayMemory& operator=(const ReplayMemory&) = delete;

  void allocate(const Instruction& instruction);
  void free(const Instruction& instruction);
  void record_stream(const Instruction& instruction);
  /// The host or another stream has waited for that stream.
  void waited(StreamId stream);
  void empty_cache();
  void end_step() { allocator_.complete_all(); }
  /// From now on the peak of allocated bytes is taken anew.
  void forget_peak() { peak_allocated_ = allocator_.allocated(); }

  /// Where a tensor lies; nullptr where it is not alive or holds nothing.
  void* of(TensorId id) const { return id < tensors_.size() && tensors_[id].block != memory::kNoBlock ? tensors_[id].memory : nullptr; }

  std::int64_t peak_allocated() const { return peak_allocated_; }
  std::int64_t peak_reserved() const { return peak_reserved_; }
  /// Bytes that the driver held for the replay at once.
  std::int64_t driver_peak() const { return driver_peak_; }

 private:
  struct Tensor {
    memory::BlockId block = memory::kNoBlock;
    std::byte* memory = nullptr;
  };
  /// Addresses of the allocator and the device's own: a segment, or the range that an expandable segment may grow into.
  struct Range {
    std::byte* memory;
    std::int64_t bytes;
    bool expandable;
  };
  using Event = memory::CachingAllocator::SegmentEvent;

  Tensor& tensor(TensorId id);
  void follow_driver();
  void got_segment(const Event& event);
  void gave_segment(const Event& event);
  void got_pages(const Event& event);
  void gave_pages(const Event& event);
  std::byte* pointer(std::uint64_t address) const;

  Backend& backend_;
  bool at_waits_;
  memory::CachingAllocator allocator_;
  std::vector<Event> events_;
  std::vector<Tensor> tensors_;
  std::map<std::uint64_t, Range> ranges_;  // by the allocator's address
  std::vector<std::byte> numbers_;
  std::int64_t peak_allocated_ = 0, peak_reserved_ = 0, driver_bytes_ = 0, driver_peak_ = 0;
};

}  // namespace plimsoll::calibrate
