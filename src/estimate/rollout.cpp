#include "estimate/rollout.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "plimsoll/engine.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll::estimation {
namespace {

bool is_colocated(const Strategy& resolved) {
  return resolved.post_training && resolved.post_training->rollout == PostTraining::Rollout::colocated;
}

/// Of the whole device (vLLM's gpu_memory_utilization).
Bytes share_of(const Cluster& cluster, const Strategy& resolved) {
  return Bytes(static_cast<std::int64_t>(resolved.post_training->engine_share * static_cast<double>(cluster.accelerator.memory_usable.value.count)));
}

/// Answers of one engine and a rollout.
std::int64_t answers_of(const Strategy& resolved) {
  const PostTraining& post = *resolved.post_training;
  if (!post.by_verl()) return resolved.micro_batch * resolved.grad_accum;
  return post.workers.answers * post.workers.updates * post.workers.engine_tp;
}

RolloutRequest step_of(const Strategy& resolved) {
  RolloutRequest step;
  step.completions = answers_of(resolved);
  step.prompt_tokens = resolved.post_training->prompt_len;
  step.lengths = {resolved.seq_len - step.prompt_tokens};
  return step;
}

/// vLLM as TRL's trainers hold it, one engine on each device, which writes the answers of that device's step; or as verl starts it, servers over
/// some devices each, with the bounds of its own configuration (verl/trainer/config/rollout/rollout.yaml).
EngineSetting setting_of(const Strategy& resolved) {
  const PostTraining& post = *resolved.post_training;
  EngineSetting setting;
  setting.memory_fraction = post.engine_share;
  setting.offline = !post.by_verl();
  setting.tp = post.by_verl() ? post.workers.engine_tp : 1;
  if (post.by_verl()) setting.max_num_batched_tokens = std::max<std::int64_t>(8192, resolved.seq_len), setting.max_num_seqs = 256;
  setting.sleep_mode = post.engine_sleeps;
  setting.max_model_len = resolved.seq_len;
  setting.rollout = step_of(resolved);
  return setting;
}

std::string said_of(const EnginePlan& plan, const Strategy& resolved) {
  const std::int64_t answers = plan.tokens / std::max<std::int64_t>(1, resolved.seq_len);
  std::string text = fmt::format("rollout: vLLM {} keeps {} of cache in its share, {} answers of {} tokens at once", plan.setting.release->text(),
                                 to_string(plan.cache), with_thousands(answers), with_thousands(resolved.seq_len));
  if (plan.rollout)
    text += fmt::format("; a {}'s {} answers take it {}, which is not in the step time", resolved.post_training->by_verl() ? "rollout" : "step",
                        with_thousands(answers_of(resolved)), to_string(plan.rollout->prompts + plan.rollout->decoding));
  return text;
}

EnginePlan plan_of(const Model& model, const Cluster& cluster, const Strategy& resolved) {
  const EngineSetting setting = setting_of(resolved);
  Cluster devices = cluster;
  devices.gpus_per_node = static_cast<int>(std::min<std::int64_t>(setting.tp, cluster.gpus_per_node));
  devices.nodes = static_cast<int>(setting.tp / devices.gpus_per_node);
  return plan_engine(model, devices, setting);
}

}  // namespace

EngineBytes engine_beside(const Model& model, const Cluster& cluster, const Strategy& resolved) {
  if (!is_colocated(resolved)) return {};
  const Bytes share = share_of(cluster, resolved);
  EngineBytes bytes{share, resolved.post_training->engine_sleeps ? Bytes() : share};
  if (!resolved.post_training->by_verl()) return bytes;
  try {
    const EnginePlan plan = plan_of(model, cluster, resolved);
    const Bytes apart = plan.context.expected + (plan.graphs_in_budget ? Bytes() : plan.graphs.expected);  // a process of its own
    bytes.awake += apart;
    bytes.resting = plan.sleep.empty() ? bytes.awake : plan.sleep.front().stays;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::refused) throw;
  }
  return bytes;
}

std::string rollout_note(const Model& model, const Cluster& cluster, const Strategy& resolved) {
  if (!is_colocated(resolved)) return {};
  try {
    const EnginePlan plan = plan_of(model, cluster, resolved);
    if (!plan.refused.empty()) fail("vLLM would not start beside the trainer: " + plan.refused, "engine_share", "a larger share");
    return said_of(plan, resolved);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::refused) throw;
    return "rollout: what vLLM makes of its share is not known: " + error.message();
  }
}

}  // namespace plimsoll::estimation
