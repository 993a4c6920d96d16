#include "estimate/rank_memory.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "estimate/host_pace.hpp"
#include "estimate/process_groups.hpp"
#include "estimate/residuals.hpp"
#include "estimate/rollout.hpp"
#include "memory/outside.hpp"
#include "memory/player.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/memory.hpp"
#include "program/lower.hpp"

namespace plimsoll::estimation {
namespace {

using memory::BytesBand;
using memory::OutsideAllocator;

/// What is outside PyTorch's allocator: the context and a communicator per process group of more than one rank.
OutsideAllocator outside_of(const Cluster& cluster, const Strategy& resolved) {
  OutsideAllocator outside = memory::outside_allocator(cluster.accelerator, communicating_groups(cluster, resolved));
  const Bytes more = memory::communicators_of_framework(resolved.framework);
  if (more > Bytes(0) && resolved.gpus > 1) outside.communicators.push_back({more, more, more});
  return outside;
}

Bytes communicators_of(const OutsideAllocator& outside) { return outside.total().expected - outside.context.expected; }

/// What a launch of a kernel adds to the step's work: FLOPs of products, attention and convolutions, and whether it is a product.
struct LaunchWork {
  double flops = 0;
  bool product = false;
};

std::vector<LaunchWork> works_of(const std::vector<Kernel>& kernels) {
  std::vector<LaunchWork> works;
  works.reserve(kernels.size());
  for (const Kernel& kernel : kernels) {
    const bool product = kernel.product(), computes = product || kernel.attention() || kernel.kind() == KernelKind::convolution;
    works.push_back({computes ? kernel.flops() : 0, product});
  }
  return works;
}

StepWork work_of(const StepProgram& program) {
  const std::vector<LaunchWork> works = works_of(program.kernels);
  StepWork work;
  for (std::size_t i = 0; i < program.step.size(); ++i) {
    if (program.step[i].kind != InstructionKind::kernel) continue;
    const LaunchWork& each = works[program.step[i].id];
    const std::int64_t runs = program.repeated.runs_of(i);
    work.launches += runs;
    work.flops += static_cast<double>(runs) * each.flops;
    if (!each.product) continue;
    work.gemms += runs;
    work.gemm_flops += static_cast<double>(runs) * each.flops;
  }
  return work;
}

MemoryTrace played(const StepProgram& program, const PlayMemoryOptions& options, bool& out_of_memory, std::string& at) {
  memory::BoundedTrace played = memory::play_beyond_capacity(program, options);
  if (const auto& failed = played.out_of_memory) {
    out_of_memory = true;
    at = fmt::format("{} of step {}{}{}", name_of(failed->phase), failed->step + 1, failed->label.empty() ? "" : ", ", failed->label);
  }
  return std::move(played.trace);
}

std::vector<MemoryPart> parts_of(const MemoryTrace& trace, const OutsideAllocator& outside, Basis basis) {
  std::vector<MemoryPart> parts;
  Bytes named;
  for (int i = 0; i < kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    if (trace.at_peak[category] == Bytes(0)) continue;
    parts.push_back({std::string(name_of(category)), trace.at_peak[category], basis});
    named += trace.at_peak[category];
  }
  if (named < trace.peak_allocated) parts.push_back({"block_rounding", trace.peak_allocated - named, basis});
  parts.push_back({"allocator_cache", trace.peak_reserved - trace.peak_allocated, basis});
  parts.push_back({"context", outside.context.expected, Basis::profile});
  if (const Bytes bytes = communicators_of(outside); bytes > Bytes(0)) parts.push_back({"communicators", bytes, Basis::profile});
  std::stable_sort(parts.begin(), parts.end(), [](const MemoryPart& a, const MemoryPart& b) { return a.bytes > b.bytes; });
  return parts;
}

/// Phases as a step goes through them.
int place_of(Phase phase) {
  constexpr Phase kOrder[] = {Phase::init, Phase::rollout, Phase::scoring, Phase::encoding, Phase::forward, Phase::backward, Phase::optimizer};
  return static_cast<int>(std::find(std::begin(kOrder), std::end(kOrder), phase) - std::begin(kOrder));
}

/// Whether frozen models are on the device before training alone, which may be when it holds most.
bool asks_before_training(const Strategy& resolved) {
  using Place = NeighbourPlaces::Place;
  return resolved.neighbours.text_encoders == Place::cached || resolved.neighbours.vae == Place::cached;
}

/// Whether a step has more phases than training's own.
bool has_more_phases(const Strategy& resolved) {
  return (resolved.post_training && resolved.post_training->writes_answers()) || resolved.neighbours.any();
}

/// The phases of the last step that was played, and what was before the first one, where that is told.
std::vector<PhaseMemory> phases_of(const StepProgram& program, const PlayMemoryOptions& options, const EngineBytes& engine, const Strategy& resolved,
                                   Bytes outside) {
  std::vector<PhaseMemory> phases;
  const std::vector<MemorySample> samples = memory_timeline(program, options);
  if (samples.empty()) return phases;
  const int last = samples.back().step;
  for (const MemorySample& sample : samples) {
    const Phase phase = sample.phase == Phase::loss ? Phase::forward : sample.phase;
    const bool before = sample.step < 0 && asks_before_training(resolved);
    if ((sample.step != last && !before) || phase == Phase::end) continue;
    auto found = std::find_if(phases.begin(), phases.end(), [&](const PhaseMemory& each) { return each.phase == phase; });
    if (found == phases.end()) found = phases.insert(phases.end(), PhaseMemory{phase, {}, {}, {}, {}});
    found->allocated = std::max(found->allocated, sample.allocated);
    found->reserved = std::max(found->reserved, sample.reserved);
  }
  std::sort(phases.begin(), phases.end(), [](const PhaseMemory& a, const PhaseMemory& b) { return place_of(a.phase) < place_of(b.phase); });
  for (PhaseMemory& each : phases) {
    each.engine = each.phase == Phase::rollout ? engine.awake : engine.resting;
    each.device = each.reserved + each.engine + outside;
  }
  return phases;
}

/// Takes the device's memory from the phase that asks most of it: an engine stands beside the trainer's allocator, whose part is what it keeps
/// then; frozen models were there before the first step.
void take_highest_phase(RankMemory& memory) {
  const auto most = std::max_element(memory.phases.begin(), memory.phases.end(),
                                     [](const PhaseMemory& a, const PhaseMemory& b) { return a.device < b.device; });
  if (most == memory.phases.end()) return;
  const double more = static_cast<double>(most->device.count) - memory.device.expected;
  const bool before_steps = most->phase == Phase::init && more > 0;
  if (most->engine == Bytes(0) && !before_steps) return;
  memory.device = {memory.device.low + more, memory.device.expected + more, memory.device.high + more};
  if (before_steps) {
    memory.parts.push_back({"before_training", Bytes(static_cast<std::int64_t>(more)), memory.basis});
    std::stable_sort(memory.parts.begin(), memory.parts.end(), [](const MemoryPart& a, const MemoryPart& b) { return a.bytes > b.bytes; });
    return;
  }
  if (most->reserved < memory.reserved) {
    const auto of_trainer = [](const MemoryPart& part) { return part.name != "context" && part.name != "communicators"; };
    memory.parts.erase(std::remove_if(memory.parts.begin(), memory.parts.end(), of_trainer), memory.parts.end());
    memory.parts.push_back({"trainer", most->reserved, memory.basis});
  }
  memory.parts.push_back({"rollout_engine", most->engine, Basis::profile});
  std::stable_sort(memory.parts.begin(), memory.parts.end(), [](const MemoryPart& a, const MemoryPart& b) { return a.bytes > b.bytes; });
}

/// The spread of reserved bytes over measured runs of this kind, and that of what lies outside the allocator.
Band device_band(Bytes reserved, const RunKind& kind, const BytesBand& outside) {
  const auto count = [](Bytes bytes) { return static_cast<double>(bytes.count); };
  const Band inside = band_of("bytes", kind, count(reserved));
  return {inside.low + count(outside.low), inside.expected + count(outside.expected), inside.high + count(outside.high)};
}

}  // namespace

program::RankSource& RankPrograms::source() {
  if (!source_) source_ = program::rank_source({model_, resolved_, program::target_device(cluster_)});
  return *source_;
}

StepProgram RankPrograms::work_of_stage(int stage) { return source().work(stage, std::exchange(spare_, {})); }

StepProgram RankPrograms::of_stage(int stage) {
  StepProgram program = source().rank(stage, std::exchange(spare_, {}));
  if (reader_) reader_(program);
  return program;
}

PlayMemoryOptions play_options(const StepProgram& program, const Model& model, const Cluster& cluster, const Strategy& resolved) {
  PlayMemoryOptions options;
  options.allocator = resolved.allocator;
  if (!resolved.launch_blocking) {  // a host that waits for each launch is never ahead of its device
    if (profile_of(resolved).code == ModelCode::nanotron) set_launches_behind(options, program, cluster, resolved);
    if (profile_of(resolved).code == ModelCode::megatron_legacy) options.delayed_free = DelayedFree::next_wait;
  }
  const bool takes_oldest = resolved.releases.of(Package::torch).since(2, 12);
  if (!takes_oldest && !cluster.accelerator.is_amd()) options.segments = SegmentOrder::by_address;
  options.total = cluster.accelerator.memory_usable.value;
  options.capacity = *options.total - outside_of(cluster, resolved).total().expected - engine_beside(model, cluster, resolved).resting;
  return options;
}

RankMemory rank_memory(RankPrograms& programs, const Model& model, int stage, const Cluster& cluster, const Strategy& resolved,
                       Basis basis, std::optional<StepWork>& work, PlayedTime& time) {
  RankMemory memory;
  memory.basis = basis;
  memory.capacity = cluster.accelerator.memory_usable.value;
  const OutsideAllocator outside = outside_of(cluster, resolved);
  StepProgram program = programs.of_stage(stage);
  work = work_of(program);
  time.add(stage, program);
  memory.host = program.host_pinned + program.host_pageable;
  const PlayMemoryOptions options = play_options(program, model, cluster, resolved);
  MemoryTrace trace = played(program, options, memory.out_of_memory, memory.out_of_memory_at);
  if (has_more_phases(resolved) && !memory.out_of_memory)
    memory.phases = phases_of(program, options, engine_beside(model, cluster, resolved), resolved, outside.total().expected);
  // XLA's buffers lie where the compiler planned them: no allocator keeps any between them.
  if (profile_of(resolved).code == ModelCode::maxtext) trace.peak_reserved = trace.optimizer_reserved = trace.peak_allocated;
  programs.give_back(std::move(program));
  memory.allocated = trace.peak_allocated;
  memory.reserved = trace.peak_reserved;
  memory.optimizer_reserved = trace.optimizer_reserved;
  memory.device = device_band(trace.peak_reserved, memory_kind(model, cluster, resolved, memory.basis), outside.total());
  memory.parts = parts_of(trace, outside, memory.basis);
  take_highest_phase(memory);
  memory.backward_peak = trace.backward_peak;
  memory.first_step_allocated = trace.first_step_allocated;
  memory.persistent = trace.persistent;
  memory.peak_phase = trace.peak_phase;
  memory.peak_label = trace.peak_label;
  memory.peak_step = trace.peak_step;
  memory.requested = trace.requested_at_peak;
  return memory;
}

}  // namespace plimsoll::estimation
