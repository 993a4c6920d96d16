#include "calibrate/operand_plan.hpp"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "memory/caching_allocator.hpp"

namespace plimsoll::calibrate {
namespace {

using memory::CachingAllocator;
using memory::kNoBlock;

/// When each stretch of memory was last touched, counted in the bytes that were moved until then.
class Touches {
 public:
  /// Stretches are a page, or longer where the program holds more than 65,536 of them.
  explicit Touches(std::int64_t held) : stretch_(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(held >> 16, 4096)))) {}

  /// Bytes moved since this memory was touched, on average over its stretches; what never was counts as since the beginning.
  std::int64_t since(std::uint64_t address, std::int64_t bytes) const {
    double sum = 0;
    std::int64_t stretches = 0;
    each(address, bytes, [&](std::uint64_t stretch) {
      const auto found = last_.find(stretch);
      sum += static_cast<double>(moved_ - (found == last_.end() ? 0 : found->second));
      ++stretches;
    });
    return stretches == 0 ? 0 : static_cast<std::int64_t>(sum / static_cast<double>(stretches));
  }
  void touch(std::uint64_t address, std::int64_t bytes) {
    each(address, bytes, [&](std::uint64_t stretch) { last_[stretch] = moved_; });
  }
  void move(std::int64_t bytes) { moved_ += bytes; }

 private:
  template <class Do>
  void each(std::uint64_t address, std::int64_t bytes, Do what) const {
    if (bytes <= 0) return;
    for (std::uint64_t at = address / stretch_; at <= (address + static_cast<std::uint64_t>(bytes) - 1) / stretch_; ++at) what(at);
  }

  std::uint64_t stretch_;
  std::unordered_map<std::uint64_t, std::int64_t> last_;
  std::int64_t moved_ = 0;
};

class Planner {
 public:
  Planner(const PlayableRank& rank, const std::vector<Operands>& needs, Target target)
      : program_(rank.program),
        at_waits_(rank.options.delayed_free == DelayedFree::next_wait),
        allocator_({rank.options.allocator, INT64_MAX, rank.options.total.value_or(rank.options.capacity).count, rank.options.delayed_free,
                    rank.options.segments}),
        touches_(most_held(rank)) {
    for (std::size_t i = 0; i < program_.kernels.size(); ++i) {
      const plimsoll::Kernel& kernel = program_.kernels[i];
      const bool product = kernel.product() != nullptr || kernel.flops() > 8.0 * static_cast<double>(kernel.bytes_read());
      needs_.push_back({needs.at(i), product && target != Target::cpu});
    }
  }

  PlannedPart plan(const std::vector<Instruction>& part) {
    PlannedPart planned{&part, {}};
    planned.operands.reserve(part.size());
    for (const Instruction& instruction : part) planned.operands.push_back(plan(instruction));
    allocator_.complete_all();
    return planned;
  }

 private:
  static constexpr int kLookBack = 512;              // of tensors alive: a kernel's operands are young
  static constexpr std::int64_t kWholeParts = 4096;  // a collective's buffer has whole floats for every rank, of a thousand at most
  /// Where spare memory counts as lying: far from all that the allocator gives out.
  static constexpr std::uint64_t kSpareFrom = std::uint64_t{1} << 63, kSpareTo = kSpareFrom + (std::uint64_t{1} << 62);
  /// What a kernel works on. On a GPU products read random spare memory: results of results grow until a device multiplies infinities, at
  /// a clock that no training run sees.
  struct Needs {
    Operands bytes;
    bool fresh;
  };
  struct Tensor {
    memory::BlockId block = kNoBlock;
    std::int64_t bytes = 0;
    std::uint64_t birth = 0;
  };

  static std::int64_t most_held(const PlayableRank& rank) {
    PlayMemoryOptions options = rank.options;
    options.capacity = Bytes(INT64_MAX);
    return play_memory(rank.program, options).peak_reserved.count;
  }

  PlannedOperands plan(const Instruction& instruction) {
    switch (instruction.kind) {
      case InstructionKind::alloc:
        born(instruction);
        break;
      case InstructionKind::free:
        died(tensor(instruction.id));
        break;
      case InstructionKind::record_stream:
        if (const Tensor& used = tensor(instruction.id); used.block != kNoBlock) allocator_.record_stream(used.block, instruction.stream);
        break;
      case InstructionKind::empty_cache:
        allocator_.empty_cache();
        break;
      case InstructionKind::record_event:
        if (events_.size() <= instruction.id) events_.resize(instruction.id + std::size_t{1}, kComputeStream);
        events_[instruction.id] = instruction.stream;
        break;
      case InstructionKind::wait_event:
        if (at_waits_ && instruction.id < events_.size()) allocator_.complete(events_[instruction.id]);
        break;
      case InstructionKind::kernel:
        return of(needs_.at(instruction.id));
      case InstructionKind::copy: {
        const Copy& copy = program_.copies.at(instruction.id);
        return of({{copy.direction == Copy::Direction::device_to_device ? copy.bytes : 0, copy.bytes}, false});
      }
      case InstructionKind::collective:
        return of({{0, round_up(program_.collectives.at(instruction.id).bytes, kWholeParts)}, false});
      default:
        break;
    }
    return {};
  }

  Tensor& tensor(TensorId id) {
    if (id >= tensors_.size()) tensors_.resize(id + std::size_t{1});
    return tensors_[id];
  }
  void born(const Instruction& instruction) {
    Tensor& made = tensor(instruction.id);
    made = {kNoBlock, instruction.bytes, ++births_};
    if (instruction.bytes == 0) return;
    made.block = allocator_.allocate(instruction.bytes, instruction.stream);
    alive_.push_back({made.birth, instruction.id});
  }
  void died(Tensor& gone) {
    if (gone.block == kNoBlock) return;
    allocator_.free(gone.block);
    alive_.erase(std::lower_bound(alive_.begin(), alive_.end(), Alive{gone.birth, 0}, [](Alive a, Alive b) { return a.birth < b.birth; }));
    gone.block = kNoBlock;
  }

  /// The youngest tensor of at least that size that is alive, other than `taken`.
  TensorId youngest(std::int64_t bytes, TensorId taken) const {
    int looked = 0;
    for (auto entry = alive_.rbegin(); entry != alive_.rend() && looked < kLookBack; ++entry, ++looked)
      if (tensors_[entry->id].bytes >= bytes && entry->id != taken) return entry->id;
    return PlannedOperands::kSpare;
  }

  PlannedOperands of(const Needs& needs) {
    PlannedOperands planned;
    const Operands& bytes = needs.bytes;
    planned.to = youngest(bytes.written, PlannedOperands::kSpare);
    if (bytes.read > 0 && !needs.fresh) planned.from = youngest(bytes.read, planned.to);
    const std::uint64_t from = address(planned.from, kSpareFrom), to = address(planned.to, kSpareTo);
    planned.from_reuse = touches_.since(from, bytes.read);
    planned.to_reuse = touches_.since(to, bytes.written);
    touches_.move(bytes.read + bytes.written);
    touches_.touch(from, bytes.read);
    touches_.touch(to, bytes.written);
    return planned;
  }
  std::uint64_t address(TensorId id, std::uint64_t spare) const {
    return id == PlannedOperands::kSpare ? spare : allocator_.address(tensors_[id].block);
  }

  struct Alive {
    std::uint64_t birth;
    TensorId id;
  };
  const StepProgram& program_;
  std::vector<StreamId> events_;  ///< of each event: where it was last recorded
  bool at_waits_;
  CachingAllocator allocator_;
  Touches touches_;
  std::vector<Needs> needs_;
  std::vector<Tensor> tensors_;
  std::vector<Alive> alive_;  // by birth
  std::uint64_t births_ = 0;
};

}  // namespace

OperandPlan plan_operands(const PlayableRank& rank, const std::vector<Operands>& needs, Target target) {
  const StepProgram& program = rank.program;
  Planner planner(rank, needs, target);
  OperandPlan plan;
  plan.init = planner.plan(program.init);
  plan.first_step = planner.plan(program.first_step.empty() ? program.step : program.first_step);
  plan.second_step = planner.plan(program.second_step.empty() ? program.step : program.second_step);
  planner.plan(program.step);  // the last that may differ: tensors of the steps before are still alive at its beginning
  plan.step = planner.plan(program.step);
  return plan;
}

}  // namespace plimsoll::calibrate
