// From the events of a record to a StepProgram: parts by the step marks, tensors by the allocator's blocks, work by launches.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "plimsoll/rehearse.hpp"
#include "rehearse/kernel_names.hpp"
#include "rehearse/record_file.hpp"

namespace plimsoll::rehearse {

/// Reads the events in order into a Recording; `finish` makes its program.
class ProgramBuilder {
 public:
  /// Memory is that of `recording.device`, or of all devices.
  ProgramBuilder(const RecordFile& file, Recording& recording, int per_thread)
      : file_(file), recording_(recording), per_thread_(per_thread), parts_(1) {}

  void build();

 private:
  /// init, or one step.
  struct Part {
    std::vector<Instruction> instructions;
    RecordedStep totals;
    std::uint32_t first_tensor = 0;  ///< ids given in this part: from here to the next part's
    std::size_t optimized = 0;       ///< behind the optimizer's last kernel
    bool stepped = false;            ///< the program's helpers said where that is
    bool validates = false;          ///< passes without gradients are in it
  };
  struct LiveBlock {
    TensorId id;
    std::int64_t bytes;
  };
  struct Communicator {
    std::uint32_t group;  ///< index of groups
    RecordedMeeting meeting;
    std::uint64_t parts = 0;  ///< made of it until now
  };
  struct RecordedEvent {
    EventId id;        ///< in the program
    std::size_t part;  ///< in which it was last recorded
  };
  struct Tensor {
    std::int64_t bytes;
    std::uint32_t born_part, born_phase, died_part, died_phase;
    bool dead = false;
  };

  void read(const EventView& event);
  void read_memory(const EventView& event);
  void kernel(const EventView& view);
  void read_pointers(const std::string& name, const Launch& launch, NamedKernel& named) const;
  void gemm(const record::Gemm& event, bool grouped = false);
  void library_call(const EventView& event);
  void collective(const record::CollectiveCall& event);
  void communicator(const record::Communicator& event);
  std::uint64_t key_of(const record::Communicator& event, const std::vector<std::int64_t>& ranks);
  void copy(StreamId on, Copy::Direction direction, std::int64_t bytes, bool captured);
  void event_recorded(const record::EventRecord& event);
  void wait(const record::StreamWait& event);
  void host_waits(const record::Synchronize& event);
  void mark(const record::Mark& event);
  void text_mark(const std::string& text, std::int64_t value);
  void phase_begins(const std::string& name);
  void host_count_begins();
  void host_count_ends();
  void host_work_told(const std::string& what, std::int64_t pieces);
  void host_step(const std::string& what, std::int64_t bytes);
  void host_moves(std::int64_t bytes);
  void spread_host_work(std::vector<Instruction>& step) const;
  void step_ended(std::int64_t boundary);
  std::vector<Instruction> take_transfers();
  void put_first(const std::vector<Instruction>& taken);
  void block(const record::Block& event);
  void allocated(const record::Block& event);
  void freed(std::uint64_t address);
  void segment(const record::Segment& event);
  bool is_told(const record::EventHeader& event) const;
  void activity_begins(const std::string& name);
  void raise_activity();
  void graph_launch(const record::GraphLaunch& event);

  void issue(Instruction instruction, bool captured);
  std::uint32_t kernel_id(const Kernel& kernel, std::uint32_t name_label, bool bytes_known);
  std::uint32_t label(const std::string& text);
  StreamId stream(std::uint32_t recorded, std::uint8_t device = 0);
  std::uint32_t group_of(std::uint32_t communicator) const;
  void count(const Kernel& kernel);
  void reserve(std::int64_t change);

  void finish();
  std::size_t last_of_training() const;
  void merge_parts();
  void close_the_step(std::vector<Instruction>& step, std::vector<Instruction>& before, std::uint32_t first_own);
  void name_categories();
  Category category_of(const Tensor& tensor) const;
  void name_groups();
  void point_collectives_at_groups();
  void put_compute_first();
  Part& part() { return parts_.back(); }

  const RecordFile& file_;
  Recording& recording_;
  int per_thread_;
  std::vector<Part> parts_;
  std::map<std::pair<std::size_t, std::size_t>, std::int64_t> host_work_;  ///< pieces of the step that was counted, by Phase and HostWork
  std::optional<std::pair<std::size_t, std::size_t>> counted_from_;        ///< part and instruction where the count began, until it is told
  std::array<std::int64_t, kPhases> counted_launches_{};  ///< that the host's work was counted of, by phase; zeros where nobody said
  std::vector<Tensor> tensors_;
  std::map<std::uint64_t, LiveBlock> blocks_;  ///< by address
  std::map<std::uint64_t, StreamId> streams_;  ///< by device and number
  std::unordered_map<std::uint32_t, RecordedEvent> events_;
  std::unordered_map<std::uint32_t, Communicator> communicators_;  ///< by recorded id
  std::unordered_map<std::uint64_t, std::uint64_t> made_;          ///< communicators of the same ranks
  std::unordered_multimap<std::size_t, std::uint32_t> work_;       ///< hash of kernel and name → index
  std::unordered_map<std::string, std::uint32_t> labels_;
  std::unordered_map<std::uint32_t, std::uint32_t> name_labels_;
  std::map<std::uint32_t, std::vector<Instruction>> graphs_;
  std::vector<std::int64_t> announced_;           ///< members of the next communicator
  std::optional<record::Gemm> grouped_;           ///< shape of the next grouped product, which its kernel does not tell
  std::optional<Attention> flex_;                 ///< of the next kernel of Triton's, likewise
  std::vector<std::size_t> unlabelled_;           ///< allocations waiting for the kernel that fills them
  std::vector<std::uint32_t> collective_groups_;  ///< per collective: index of groups
  std::uint32_t capturing_ = 0;
  Phase phase_ = Phase::init;
  std::optional<std::size_t> activity_;  ///< index of the recording's
  std::int64_t allocated_ = 0, reserved_ = 0, pinned_ = 0;
};

}  // namespace plimsoll::rehearse
