#include "estimate/host_pace.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "estimate/rank_groups.hpp"
#include "framework/nanotron.hpp"
#include "plimsoll/cost.hpp"
#include "program/lower.hpp"

namespace plimsoll::estimation {
namespace {

// Hugging Face's sweep on H100, December 2024. Within a node no layer of ten collectives takes less than 4.4 ms, whatever the model, tp and
// the micro-batch; across nodes never less than 8, so that there the collectives themselves are the slower ones.
constexpr double kAlone = 0.44e-3;  // s per collective
constexpr double kAcrossNodes = 1 - 4.4 / 8;

// With a pipeline it takes about 8.5, 13.5, 21.5 and 47 ms at tp 2, 4, 8 and 16 as long as the device is quicker: the hosts of a group wait
// for each other at every collective. Those whose backward pass takes longer than this hold what a whole queue holds, the others nothing of
// it.
constexpr double kInPipeline = 0.24e-3, kInPipelinePerRank = 0.21e-3;  // s per collective, and per rank of its group

/// Micro-batches of a step from which on some peer is late in one: such runs are as far behind as those of slow devices, and of runs with
/// half as many about half.
constexpr std::int64_t kManyMicroBatches = 16;

/// Micro-batches of a step below which no peer is late enough to fill a queue that the host's own lead does not fill.
constexpr std::int64_t kFewMicroBatches = 3;

/// Seconds of each distinct kernel once: a step repeats few of them.
class KernelPrices {
 public:
  explicit KernelPrices(const Accelerator& device) : device_(device) {}

  double operator()(const Kernel& kernel) {
    const auto key = std::make_tuple(kernel.kind, kernel.m, kernel.n, kernel.k, kernel.bytes_read, kernel.bytes_written);
    const auto [at, inserted] = prices_.try_emplace(key, 0.0);
    if (inserted) at->second = price(kernel, device_).value;
    return at->second;
  }

 private:
  const Accelerator& device_;
  std::map<std::tuple<KernelKind, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>, double> prices_;
};

/// Share of the device's time by which its host is quicker, in the forward passes or in the backward ones, whichever is more; 0: it is not.
double host_lead(const StepProgram& program, const Cluster& cluster, const Strategy& resolved) {
  if (resolved.tp == 1) return 0;  // what a pipeline alone marks as used elsewhere, its messages, is done by the time it is freed
  const GroupShape tensor = group_shapes(resolved, Topology(cluster))[static_cast<std::size_t>(Group::tensor)];
  const double host_seconds = resolved.pp > 1 ? kInPipeline + kInPipelinePerRank * resolved.tp : kAlone;
  KernelPrices kernel_seconds(cluster.accelerator);
  double device[2] = {}, host[2] = {};  // seconds: forward, backward
  bool backward = false;
  for (const Instruction& instruction : program.step) {
    if (instruction.kind == InstructionKind::phase) {
      const auto phase = static_cast<Phase>(instruction.id);
      if (phase == Phase::optimizer) break;
      backward = phase == Phase::backward;
    }
    if (instruction.kind == InstructionKind::kernel) device[backward] += kernel_seconds(program.kernels[instruction.id]);
    if (instruction.kind != InstructionKind::collective || program.collectives[instruction.id].group != Group::tensor) continue;
    device[backward] += price(program.collectives[instruction.id], tensor, cluster).value;
    host[backward] += host_seconds;
  }
  double lead = resolved.pp == 1 && tensor.nodes > 1 ? kAcrossNodes : 0;
  for (int i = 0; i < 2; ++i) {
    if (device[i] > 0) lead = std::max(lead, 1 - host[i] / device[i]);
  }
  return lead;
}

/// Entries of the launch queue that a step's passes take: PlayMemoryOptions::launches_behind.
std::int64_t entries_of_passes(const StepProgram& program) {
  std::int64_t entries = 0;
  for (const Instruction& instruction : program.step) {
    if (instruction.kind == InstructionKind::phase && static_cast<Phase>(instruction.id) == Phase::optimizer) break;
    if (instruction.kind == InstructionKind::kernel || instruction.kind == InstructionKind::copy) ++entries;
    if (instruction.kind == InstructionKind::collective) entries += 3;
  }
  return entries;
}

}  // namespace

void set_launches_behind(PlayMemoryOptions& options, const StepProgram& program, const Cluster& cluster, const Strategy& resolved) {
  options.launches_behind = program::nanotron_launch_queue();
  const bool often_late = resolved.pp == 1 && resolved.micro_batches >= kManyMicroBatches;
  // Waiting for sends means asking for each message ten times a second: no device is slower.
  const bool host_sleeps = resolved.pp > 1 && framework::nanotron_waits_for_sends(resolved);
  const double lead = host_sleeps ? 0 : host_lead(program, cluster, resolved);
  options.behind_in_stalls_only = !often_late && lead <= 0;
  if (options.behind_in_stalls_only || resolved.micro_batches >= kFewMicroBatches) return;
  // A queue fills by what the host is quicker, in a pipeline from receive to receive.
  const std::int64_t passes = resolved.pp > 1 ? resolved.micro_batches : 1;
  const double reached = lead * static_cast<double>(entries_of_passes(program) / passes);
  options.launches_behind = std::clamp(static_cast<std::int64_t>(reached), std::int64_t{1}, options.launches_behind);
}

}  // namespace plimsoll::estimation
