#include "estimate/rank_memory.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "estimate/closed_form_memory.hpp"
#include "estimate/host_pace.hpp"
#include "estimate/process_groups.hpp"
#include "estimate/residuals.hpp"
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

/// Free blocks that the allocator holds where no trace says how many: a tenth of what comes and goes.
Bytes assumed_cache(const MemoryTrace& trace) { return Bytes((trace.peak_allocated - trace.persistent).count / 10); }

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
  parts.push_back({"allocator_cache", trace.peak_reserved - trace.peak_allocated, basis == Basis::played ? basis : Basis::profile});
  parts.push_back({"context", outside.context.expected, Basis::profile});
  if (const Bytes bytes = communicators_of(outside); bytes > Bytes(0)) parts.push_back({"communicators", bytes, Basis::profile});
  std::stable_sort(parts.begin(), parts.end(), [](const MemoryPart& a, const MemoryPart& b) { return a.bytes > b.bytes; });
  return parts;
}

/// The closed form of a step that cannot be played; where there is none either, the refusal tells both reasons.
MemoryTrace unplayed(const Model& model, const std::vector<Stage>& stages, int stage, const Cluster& cluster, const Strategy& resolved,
                     const std::string& because) {
  try {
    MemoryTrace trace = closed_form_memory(model, stages, stage, cluster, resolved);
    trace.peak_reserved = trace.peak_allocated + assumed_cache(trace);
    return trace;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::refused || because == error.message()) throw;
    refuse(fmt::format("{} (nor has it a closed form: {})", because, error.message()), error.where(), error.hint());
  }
}

/// The spread of reserved bytes over measured runs of this kind, and that of what lies outside the allocator.
Band device_band(Bytes reserved, const Strategy& resolved, Basis basis, const BytesBand& outside) {
  const auto count = [](Bytes bytes) { return static_cast<double>(bytes.count); };
  const Band inside = band_of("reserved_bytes", name_of(profile_of(resolved).code), basis, count(reserved));
  return {inside.low + count(outside.low), inside.expected + count(outside.expected), inside.high + count(outside.high)};
}

/// NeMo's containers up to 24.07: their attention goes at the pace of flash-attention 2, whose share of a step shows at up to a million
/// tokens (NeMo's table of long sequences, 24.03).
bool runs_before_cudnn_attention(const Strategy& strategy) {
  int year = 0, month = 0;
  if (strategy.framework != "nemo" || std::sscanf(strategy.framework_version.c_str(), "NeMo %2d.%2d", &year, &month) != 2) return false;
  constexpr int kFirstContainer = 23;  // "NeMo 2.1.0" is the library's version
  return year >= kFirstContainer && year * 100 + month <= 2407;
}

/// Blackwell multiplies 8-bit matrices of any layout (Transformer Engine: is_non_tn_fp8_gemm_supported). Where both can run, Transformer
/// Engine takes cuDNN's attention before flash-attention from Hopper on, after it on Ampere and Ada (utils.py, get_attention_backend); on
/// AMD its fused attention is Composable Kernel's.
program::MegatronDevice megatron_device(const Cluster& cluster, const Strategy& strategy) {
  const std::string& family = cluster.accelerator.family;
  program::MegatronDevice device{.multiplies_untransposed_fp8 = family == "Blackwell", .nvlink_domain = cluster.node.gpus};
  if ((family != "Hopper" && family != "Blackwell") || runs_before_cudnn_attention(strategy)) device.attention = AttentionLibrary::flash2;
  if (family.rfind("CDNA", 0) == 0) device.attention = AttentionLibrary::composable_kernel;
  return device;
}

/// flash-attention as a package of its own, not PyTorch's: the frameworks that import it where a strategy asks for flash attention.
bool imports_flash_attention(const Strategy& resolved) {
  const ModelCode code = profile_of(resolved).code;
  return resolved.attention == AttentionKernel::flash && code != ModelCode::torchtitan && code != ModelCode::torchtune;
}

/// Programs name the kernels of CUDA. On ROCm those behind torch's scaled_dot_product_attention, flash and memory-efficient, are
/// AOTriton's, and the flash-attention package is Composable Kernel's.
void name_rocm_attention(StepProgram& program, const Strategy& resolved) {
  const AttentionLibrary flash = imports_flash_attention(resolved) ? AttentionLibrary::composable_kernel : AttentionLibrary::aotriton;
  for (Kernel& kernel : program.kernels) {
    auto* attention = std::get_if<Attention>(&kernel.work);
    if (!attention) continue;
    if (attention->library == AttentionLibrary::flash2) attention->library = flash;
    if (attention->library == AttentionLibrary::memory_efficient) attention->library = AttentionLibrary::aotriton;
  }
}

/// chooseWorkspaceSize of CUDABlas.cpp, by compute capability.
program::TuneDevice tune_device(const Cluster& cluster) {
  constexpr std::int64_t kBeforeHopper = 4096 * 2 * 1024 + 16 * 8 * 1024;
  const std::string& family = cluster.accelerator.family;
  const bool large = family == "Hopper" || family == "Blackwell";
  program::TuneDevice device{.memory = cluster.accelerator.memory_usable.value.count};
  if (!large) device.gemm_workspace = kBeforeHopper;
  return device;
}

}  // namespace

/// Throws Error (refused) where this framework, engine or model has no lowering yet.
StepProgram RankPrograms::lower(int stage) {
  switch (profile_of(resolved_).code) {
    case ModelCode::transformers:
    case ModelCode::diffusers:
      return program::lower_transformers(model_, resolved_);
    case ModelCode::torchtitan:
      if (!torchtitan_) torchtitan_ = std::make_unique<program::TitanPipeline>(model_, resolved_);
      return torchtitan_->rank(stage, std::exchange(spare_, {}));
    case ModelCode::torchtune:
      return program::lower_torchtune(model_, resolved_, tune_device(cluster_));
    case ModelCode::mpt:
      return program::lower_llm_foundry(model_, resolved_);
    case ModelCode::maxtext:
      return program::lower_maxtext(model_, resolved_);
    case ModelCode::nanotron:
      return program::lower_nanotron(model_, resolved_, stage);
    case ModelCode::megatron_legacy:
      return program::lower_megatron_deepspeed(model_, resolved_, stage);
    case ModelCode::megatron_local:
    case ModelCode::megatron_te:
      if (!megatron_) megatron_ = std::make_unique<program::MegatronPipeline>(model_, resolved_, megatron_device(cluster_, resolved_));
      return megatron_->rank(stage, std::exchange(spare_, {}));
    default:
      refuse(fmt::format("{}'s layers have no lowering yet", resolved_.framework));
  }
}

std::optional<StepProgram> RankPrograms::of_stage(int stage, std::string& reason) {
  try {
    StepProgram program = lower(stage);
    if (cluster_.accelerator.is_amd()) name_rocm_attention(program, resolved_);
    if (reader_) reader_(program);
    return program;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::refused) throw;
    reason = error.message();
    return {};
  }
}

PlayMemoryOptions play_options(const StepProgram& program, const Cluster& cluster, const Strategy& resolved) {
  PlayMemoryOptions options;
  options.allocator = resolved.allocator;
  if (profile_of(resolved).code == ModelCode::nanotron) set_launches_behind(options, program, cluster, resolved);
  if (profile_of(resolved).code == ModelCode::megatron_legacy) options.delayed_free = DelayedFree::next_wait;
  constexpr int kTakesOldest = 212;
  if (torch_release(resolved) < kTakesOldest && !cluster.accelerator.is_amd()) options.segments = SegmentOrder::by_address;
  options.total = cluster.accelerator.memory_usable.value;
  options.capacity = *options.total - outside_of(cluster, resolved).total().expected;
  return options;
}

RankMemory rank_memory(RankPrograms& programs, const Model& model, const std::vector<Stage>& stages, int stage, const Cluster& cluster,
                       const Strategy& resolved, std::optional<StepWork>& work, PlayedTime& time) {
  RankMemory memory;
  memory.capacity = cluster.accelerator.memory_usable.value;
  const OutsideAllocator outside = outside_of(cluster, resolved);
  MemoryTrace trace;
  if (auto program = programs.of_stage(stage, memory.closed_form_because)) {
    memory.basis = Basis::played;
    work = work_of(*program);
    time.add(*program);
    memory.host = program->host_pinned + program->host_pageable;
    trace = played(*program, play_options(*program, cluster, resolved), memory.out_of_memory, memory.out_of_memory_at);
    // XLA's buffers lie where the compiler planned them: no allocator keeps any between them.
    if (profile_of(resolved).code == ModelCode::maxtext) trace.peak_reserved = trace.optimizer_reserved = trace.peak_allocated;
    programs.give_back(std::move(*program));
  } else {
    time.lacks(memory.closed_form_because);
    trace = unplayed(model, stages, stage, cluster, resolved, memory.closed_form_because);
  }
  memory.allocated = trace.peak_allocated;
  memory.reserved = trace.peak_reserved;
  memory.optimizer_reserved = trace.optimizer_reserved;
  memory.device = device_band(trace.peak_reserved, resolved, memory.basis, outside.total());
  memory.parts = parts_of(trace, outside, memory.basis);
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
