// Plays the instructions of a StepProgram through the caching allocator and keeps the account by phase and category.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "memory/caching_allocator.hpp"
#include "plimsoll/memory.hpp"

namespace plimsoll::memory {

/// What a program does on a device, and what it would have taken where that ran out of memory.
struct BoundedTrace {
  MemoryTrace trace;                         // of the device without limit where there is an out_of_memory
  std::optional<OutOfMemory> out_of_memory;  // on the device as it is
};
BoundedTrace play_beyond_capacity(const StepProgram& program, const PlayMemoryOptions& options);

/// A point of a playing: step -1 is `init`; `instruction` counts within the part played.
struct Instant {
  int step = -1;
  std::size_t instruction = 0;
};

class Player {
 public:
  Player(const StepProgram& program, const PlayMemoryOptions& options);

  /// Plays all steps, or until an allocation fails.
  MemoryTrace play();
  /// Plays on from where it stands: what keep_beyond() left.
  MemoryTrace play_on();
  /// Where an allocation first does not fit, a copy of this player is put into `beyond`, whose device is without limit; `beyond` must
  /// outlive the playing. Segments that expand, and a limit on the process, leave nothing: how they fill up depends on the device's size.
  void keep_beyond(std::unique_ptr<Player>& beyond);
  /// From now on everything is noted in `history`, which must outlive the player; at the end of play() also the segments.
  void record(AllocatorHistory* history);
  /// From now on every change of allocated or reserved bytes is noted in `samples`, which must outlive the player.
  void sample(std::vector<MemorySample>* samples) { samples_ = samples; }
  /// Where peak_allocated was reached; only after play().
  Instant peak() const { return peak_instant_; }
  /// Plays up to and with that instant and lists the tensors alive there, largest first.
  std::vector<LiveTensor> alive_at(Instant instant);

 private:
  struct Tensor {
    const Instruction* birth = nullptr;  // its allocation while it is alive
    BlockId block = kNoBlock;            // none of a tensor without bytes
    bool alive() const { return birth != nullptr; }
  };

  /// A block freed while another stream used it, and the launches by which the device has come to that.
  struct Behind {
    std::int64_t launch;
    BlockId block;
  };

  const std::vector<Instruction>& part(int step) const;
  bool play_part(int step, std::size_t count);
  std::uint32_t passed_over() const;
  bool play_to(std::size_t count);
  bool play_init();
  void begin_step(int step);
  void stop_at_capacity(const Instruction& instruction);
  bool allocate(const Instruction& instruction);
  bool allocate_nothing(const Instruction& instruction);
  bool ask_driver(const Instruction& instruction, Tensor& tensor);
  bool passes_by(const Instruction& instruction);
  void hold(BlockId block, TensorId tensor);
  void free(const Instruction& instruction);
  void enter_phase(Phase phase);
  void note_reserved();
  void wait(const Instruction& instruction);
  void recorded(const Instruction& instruction);
  void launched(int entries);
  std::int64_t reached_at() const;
  void host_waits();
  void end_step(int step);
  void note(AllocatorEvent::Kind kind, const Tensor& tensor);
  void note_segments();
  void note_final_segments();
  void note_sample(const Instruction& instruction);
  void reach_peak(const Instruction& instruction);
  void fail_allocation(const Instruction& instruction);
  Tensor& tensor(std::uint32_t id);
  std::vector<std::uint64_t> state();
  bool recurs();
  bool recurs_midway();
  std::size_t midway() const;

  std::int64_t launches_ = 0;
  std::vector<StreamId> event_streams_;  ///< of each event: where it was last recorded
  std::int64_t waited_ = 0;              // launches when the host last waited for the device
  std::deque<Behind> behind_;            // in order
  bool lagging_;                         // the host is ahead of the device now
  const StepProgram& program_;
  PlayMemoryOptions options_;
  CachingAllocator allocator_;
  std::vector<Tensor> tensors_;
  std::vector<TensorId> holders_;        // by block: the tensor that was last put into it
  std::vector<TensorId> without_bytes_;  // tensors that are alive and have no block
  MemoryTrace trace_;
  AllocatorHistory* history_ = nullptr;
  std::vector<CachingAllocator::SegmentEvent> segment_log_;
  std::vector<MemorySample>* samples_ = nullptr;
  Phase phase_ = Phase::init;
  int step_ = -1;
  std::size_t position_ = 0;
  int retries_before_ = 0;             // this step
  std::vector<std::uint64_t> state_;   // of the allocator and of what lives across steps, behind the last step
  std::vector<std::uint64_t> midway_;  // the same at the end of the last steady step's first forward pass, and the peak until there
  std::unique_ptr<Player>* beyond_ = nullptr;

  // Of the part being played.
  std::int64_t part_peak_ = 0;  // running maximum of allocated bytes
  Phase part_peak_phase_ = Phase::init;
  Instant part_peak_instant_;
  std::uint32_t part_peak_label_ = 0;
  std::int64_t forward_peak_ = 0, backward_peak_ = 0;
  MemoryByCategory live_, part_peak_live_;
  std::int64_t requested_ = 0, part_peak_requested_ = 0;  // bytes of the live tensors themselves
  Instant peak_instant_;
};

}  // namespace plimsoll::memory
