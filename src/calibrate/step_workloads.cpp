// The kernels of a model's step, as cold as they run in it. A kernel timed again and again on the same operands finds them in the nearest
// cache; in a step other work has moved so many bytes since they were last touched. So operands are taken from many places in turn, in
// an order in which as many bytes are moved between two visits of a place as between two uses in the step.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "calibrate/operand_plan.hpp"
#include "calibrate/program_kernels.hpp"
#include "calibrate/replay_memory.hpp"
#include "calibrate/workload.hpp"

namespace plimsoll::calibrate {
namespace {

/// Beyond so many times the largest cache everything is equally cold.
constexpr std::int64_t kCachesPassed = 2;
/// The buffers take at most this share of the free memory.
constexpr std::int64_t kMemoryShare = 6;
constexpr std::int64_t kAlignment = 512;  // of a framework's tensors

/// Memory that all workloads share, one after another, with room for the coldest.
struct Arena {
  Arena(Backend& device, std::int64_t size) : backend(device), bytes(size) {
    for (void** memory : {&from, &to}) {
      *memory = backend.allocate(static_cast<std::size_t>(bytes));
      randomise(backend, *memory, bytes, operand_numbers(backend.shape(), memory == &from ? 21 : 22));
    }
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    give_back([&] { backend.synchronize(), backend.release(from), backend.release(to); });
  }

  Backend& backend;
  std::int64_t bytes;
  void *from = nullptr, *to = nullptr;
};

/// A kernel and, for each of its runs in a step, how many bytes were moved since its operands were touched.
struct Distinct {
  plimsoll::Kernel kernel;
  std::vector<std::int64_t> from_reuse, to_reuse;
};

std::vector<Distinct> distinct_kernels(const PlayableRank& rank, Backend& backend) {
  const StepProgram& program = rank.program;
  const OperandPlan plan = plan_operands(rank, operands_of(program, backend), backend.shape().target);
  std::map<std::uint32_t, Distinct> by_work;
  for (std::size_t i = 0; i < program.step.size(); ++i) {
    if (program.step[i].kind != InstructionKind::kernel) continue;
    Distinct& entry = by_work[program.step[i].id];
    entry.kernel = program.kernels.at(program.step[i].id);
    entry.from_reuse.push_back(plan.step.operands[i].from_reuse);
    entry.to_reuse.push_back(plan.step.operands[i].to_reuse);
  }
  std::vector<Distinct> list;
  for (const auto& [work, entry] : by_work) list.push_back(entry);
  return list;
}

/// Places of one operand in the order in which they are taken. For each run the place is one that so many bytes were moved since, by runs
/// that move `traffic` each: the place at that position among all, the last taken first.
std::vector<std::uint32_t> places_in_turn(const std::vector<std::int64_t>& reuse, std::int64_t traffic, std::size_t places) {
  constexpr std::size_t kTurns = 4096;
  std::vector<std::uint32_t> recent(places), turns;
  std::iota(recent.begin(), recent.end(), 0U);
  for (std::size_t turn = 0; turn < kTurns; ++turn) {
    const auto position = std::min(static_cast<std::size_t>(reuse[turn % reuse.size()] / traffic), places - 1);
    std::rotate(recent.begin(), recent.begin() + static_cast<std::ptrdiff_t>(position),
                recent.begin() + static_cast<std::ptrdiff_t>(position) + 1);
    turns.push_back(recent.front());
  }
  return turns;
}

class StepWorkload : public Workload {
 public:
  StepWorkload(const Distinct& distinct, std::shared_ptr<Arena> arena, Sample sample, Backend& backend)
      : kernel_(distinct.kernel), arena_(std::move(arena)) {
    sample_ = std::move(sample);
    weight_ = 1 + std::log2(static_cast<double>(distinct.from_reuse.size()));
    const Operands operands = operands_of(kernel_, backend);
    const std::int64_t traffic = std::max<std::int64_t>(operands.read + operands.written, 1);
    from_ = offsets(distinct.from_reuse, traffic, operands.read);
    to_ = offsets(distinct.to_reuse, traffic, operands.written);
    double sum = 0;
    for (const auto* list : {&distinct.from_reuse, &distinct.to_reuse}) sum += std::accumulate(list->begin(), list->end(), 0.0);
    sample_.reuse = std::llround(sum / 2 / static_cast<double>(distinct.from_reuse.size()));
  }
  void prepare(Backend&) override {}
  void run(Backend& backend, std::size_t set) override {
    run_program_kernel(backend, kernel_, static_cast<std::byte*>(arena_->from) + from_[set % from_.size()],
                       static_cast<std::byte*>(arena_->to) + to_[set % to_.size()], kComputeStream);
  }
  void finish(Backend& backend) override { backend.synchronize(); }

 private:
  std::vector<std::int64_t> offsets(const std::vector<std::int64_t>& reuse, std::int64_t traffic, std::int64_t bytes) const {
    const std::int64_t each = round_up(std::max<std::int64_t>(bytes, 1), kAlignment);
    const std::int64_t farthest = *std::max_element(reuse.begin(), reuse.end()) / traffic + 1;
    const std::int64_t places = std::clamp<std::int64_t>(farthest, 1, std::max<std::int64_t>(arena_->bytes / each, 1));
    std::vector<std::int64_t> list;
    for (std::uint32_t place : places_in_turn(reuse, traffic, static_cast<std::size_t>(places))) list.push_back(place * each);
    return list;
  }

  plimsoll::Kernel kernel_;
  std::shared_ptr<Arena> arena_;
  std::vector<std::int64_t> from_, to_;
};

Sample sample_of(const plimsoll::Kernel& kernel, Backend& backend) {
  using Kind = plimsoll::KernelKind;
  if (const Attention* attention = kernel.attention()) return attention_sample(*attention, backend);
  Sample sample;
  sample.type = name_of(kernel.type());
  sample.kernel = plimsoll::name_of(kernel.kind());
  sample.flops = kernel.flops();
  if (const Product* product = kernel.product())
    sample.m = product->m, sample.n = product->n, sample.k = product->k, sample.batch = product->batch;
  if (kernel.kind() == Kind::gemm) {
    sample.kind = SampleKind::gemm;
    sample.type = name_of(math_of(*kernel.product()));
    sample.layout = layout_of(*kernel.product());
    sample.kernel = "model";
  } else {
    sample.kind = SampleKind::stream;
    sample.group = plimsoll::name_of(kernel.kind());
    sample.bytes = kernel.bytes();
  }
  return sample;
}

}  // namespace

Workloads program_workloads(const PlayableRank& rank, Backend& backend) {
  const std::vector<Distinct> kernels = distinct_kernels(rank, backend);
  std::int64_t largest = kAlignment;
  for (const Distinct& entry : kernels) {
    const Operands operands = operands_of(entry.kernel, backend);
    largest = std::max({largest, operands.read, operands.written});
  }
  const std::int64_t wanted = largest + kCachesPassed * cache_of(backend.facts());
  const auto arena =
      std::make_shared<Arena>(backend, round_up(std::max(largest, std::min(wanted, backend.memory().free / kMemoryShare)), kAlignment));
  Workloads list;
  for (const Distinct& entry : kernels)
    if (entry.kernel.bytes() > 0 && !runs_within_another(entry.kernel))
      list.push_back(std::make_unique<StepWorkload>(entry, arena, sample_of(entry.kernel, backend), backend));
  return list;
}

}  // namespace plimsoll::calibrate
