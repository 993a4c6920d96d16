#include "estimate/notes.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "framework/idle_options.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/power_limit.hpp"

namespace plimsoll::estimation {
namespace {

/// Whose bytes are those of buffers as they live, not those of an allocator.
void note_compiler(const Strategy& s, std::vector<std::string>& notes) {
  if (profile_of(s).code != ModelCode::maxtext) return;
  notes.push_back("memory: buffers as they live; how XLA packs them, and rematerializes what does not fit, is not modelled. JAX takes its "
                  "share of the device ahead (XLA_PYTHON_CLIENT_MEM_FRACTION, 75 % unless set): more than that does not fit");
}

void note_offload(const Report& report, const Strategy& s, std::vector<std::string>& notes) {
  if (!s.offload.any()) return;
  const RankReport& rank = report.worst_rank();
  const std::int64_t ranks = std::min(report.gpus, report.gpus_per_node);
  notes.push_back(fmt::format("offload: {} of host memory per GPU, {} per node of {}", to_string(rank.host),
                              to_string(Bytes(rank.host.count * ranks)), ranks));
  if (s.offload.optimizer || s.offload.params)
    notes.push_back("offload: the optimizer on the host goes at the node's memory bandwidth, shared by its ranks; fewer threads than that "
                    "takes (torchrun sets OMP_NUM_THREADS=1) make it slower");
  if (s.deepspeed.offload_optimizer.nvme || s.deepspeed.offload_param.nvme)
    notes.push_back("offload: what NVMe drives take to read and write is not in the step time");
}

/// verl's step is a rollout and the updates behind it; the way of the weights to the engine lies between.
void note_workers(const Strategy& s, std::vector<std::string>& notes) {
  const PostTraining::Workers& w = s.post_training->workers;
  if (w.updates > 1)
    notes.push_back(fmt::format("step: one of the {} updates behind a rollout of verl's, with its part of the scoring; verl's own step is all of them "
                                "and the rollout",
                                w.updates));
  notes.push_back("rollout: bringing the weights to the engine, which gathers them and fills buckets before the cache of keys wakes, is neither in the "
                  "memory nor in the step time");
}

void note_rollout(const Strategy& s, std::vector<std::string>& notes) {
  if (!s.post_training || !s.post_training->writes_answers()) return;
  if (s.post_training->by_verl()) note_workers(s, notes);
  const bool beside = s.post_training->rollout == PostTraining::Rollout::colocated;
  notes.push_back(beside ? "rollout: what rewards take is not in the step time"
                         : "rollout: what the engine takes to write the answers elsewhere, and what rewards take, is not in the step time");
}

/// The names of the longest part of the step that is no computation.
std::string longest_wait(const TimeReport& time) {
  const TimePart* longest = nullptr;
  for (const TimePart& part : time.breakdown)
    if (part.name != "compute" && (longest == nullptr || part.seconds > longest->seconds)) longest = &part;
  if (longest == nullptr || longest->seconds.value < 0.2 * time.step_seconds.expected) return {};
  std::string name = longest->name == "host" ? "waiting for the host to issue kernels" : longest->name;
  std::replace(name.begin(), name.end(), '_', ' ');
  return fmt::format("{:.0f} % of the step is {}", 100 * longest->seconds.value / time.step_seconds.expected, name);
}

/// Shares of the peak that hardly any run reaches, or that say that the device waits.
void note_utilisation(const Report& report, const Strategy& s, std::vector<std::string>& notes) {
  constexpr double kHigh = 0.75, kLow = 0.05;
  const double share = report.flops.hfu;
  if (share > kHigh) {
    notes.push_back(fmt::format("{:.0f} % of the device's peak is more than published runs reach: the step time takes matrix products at the "
                                "rate of the device's file and no host that is late",
                                100 * share));
  } else if (share > 0 && share < kLow) {
    std::string why = longest_wait(report.time);
    if (why.empty()) {
      const std::int64_t positions = s.micro_batch * s.seq_len;
      why = fmt::format("{} positions in a micro-batch are too few for the device's matrix units; memory traffic and launches take the time",
                        with_thousands(positions));
    }
    notes.push_back(fmt::format("only {:.1f} % of the device's peak: {}", 100 * share, why));
  }
}

void note_length(const Model& model, const Strategy& s, std::vector<std::string>& notes) {
  if (model.max_positions > 0 && s.seq_len > model.max_positions && model.task != Model::Task::diffusion)
    notes.push_back(fmt::format("sequences of {} tokens go past the {} positions that the model's config names", with_thousands(s.seq_len),
                                with_thousands(model.max_positions)));
}

Bytes part_of(const RankMemory& memory, std::string_view name) {
  for (const MemoryPart& part : memory.parts)
    if (part.name == name) return part.bytes;
  return {};
}

/// What makes a setting that saves memory elsewhere cost some here.
void note_memory(const Report& report, const Strategy& s, std::vector<std::string>& notes) {
  const RankMemory& memory = report.worst_rank().memory;
  const Bytes buffers = part_of(memory, "communication_buffers");
  const Bytes states = part_of(memory, "parameters") + part_of(memory, "gradients") + part_of(memory, "optimizer_states");
  if (buffers > states)
    notes.push_back(fmt::format("communication buffers ({}: buckets, gathered parameters) are larger than the parameters, gradients and "
                                "optimizer states of a rank ({}): sharing these further saves less than it buffers",
                                to_string(buffers), to_string(states)));
  const bool flash = s.attention != AttentionKernel::eager && s.attention != AttentionKernel::unfused;
  const bool attention_alone = s.recompute.modules.empty() || s.recompute.modules == std::vector<std::string>{"core_attn"};
  if (engine_of(s) == Engine::megatron && s.recompute.kind == Recompute::Kind::selective && attention_alone && flash)
    notes.push_back("selective recomputation saves nothing beside a fused attention kernel, which keeps no scores: its checkpoint keeps the "
                    "whole product of queries, keys and values, where the kernel keeps its parts");
}

/// Windows that overlap are unfolded image by image (slow_conv2d); patches that do not are one implicit product.
void note_convolutions(const Model& model, std::vector<std::string>& notes) {
  const auto unfolded = [](const Operator& op) { return op.kind == OperatorKind::convolution && (op.stride != op.kernel || op.padding > 0); };
  const auto unfolds = [&](const Block& block) { return std::any_of(block.operators.begin(), block.operators.end(), unfolded); };
  if (std::any_of(model.blocks.begin(), model.blocks.end(), unfolds))
    notes.push_back("convolutions run as PyTorch's own do with cuDNN off, image by image: with cuDNN the step takes a fraction of this time, "
                    "and a workspace that its heuristics choose is not counted");
}

constexpr std::string_view kNotUsed = ": not used ";

/// Options that were given and that this run does not read: "vp, schedule: not used without a pipeline (pp above 1)".
void note_idle_options(std::vector<framework::IdleOption> options, std::vector<std::string>& notes) {
  std::vector<framework::IdleOption> grouped;
  for (framework::IdleOption& idle : options) {
    const auto same = std::find_if(grouped.begin(), grouped.end(), [&](const auto& other) { return other.when == idle.when; });
    if (same == grouped.end())
      grouped.push_back(std::move(idle));
    else
      same->key += ", " + idle.key;
  }
  for (const framework::IdleOption& idle : grouped) notes.push_back(fmt::format("{}{}{}", idle.key, kNotUsed, idle.when));
}

}  // namespace

std::string note_of_own_device(const std::vector<Origin>& origins, const Accelerator& device) {
  const std::vector<std::string> shipped = shipped_accelerators();
  if (std::find(shipped.begin(), shipped.end(), std::string(board_of(device.name))) != shipped.end()) return {};
  std::string assumed;
  for (const Origin& origin : origins)
    if (origin.kind == Provenance::assumed && origin.source != name_of(Basis::profile)) assumed += (assumed.empty() ? "" : ", ") + origin.quantity;
  return assumed.empty() ? assumed : fmt::format("the file of {} only assumes {}", device.name, assumed);
}

std::vector<std::string> notes_of(const Report& report, const Model& model, const Strategy& resolved) {
  std::vector<std::string> notes;
  note_compiler(resolved, notes);
  note_length(model, resolved, notes);
  note_memory(report, resolved, notes);
  note_offload(report, resolved, notes);
  note_rollout(resolved, notes);
  note_utilisation(report, resolved, notes);
  note_convolutions(model, notes);
  note_idle_options(framework::idle_options(resolved, model), notes);
  return notes;
}

void note_idle_options_of_both(const Model& model, const Strategy& played, const Strategy& asked, std::vector<std::string>& notes) {
  std::erase_if(notes, [](const std::string& note) { return note.find(kNotUsed) != std::string::npos; });
  const std::vector<framework::IdleOption> others = framework::idle_options(asked, model);
  std::vector<framework::IdleOption> idle = framework::idle_options(played, model);
  std::erase_if(idle, [&](const framework::IdleOption& one) {
    return std::none_of(others.begin(), others.end(), [&](const framework::IdleOption& other) { return other.key == one.key; });
  });
  note_idle_options(std::move(idle), notes);
}

}  // namespace plimsoll::estimation
