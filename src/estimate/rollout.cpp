#include "estimate/rollout.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "plimsoll/engine.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll::estimation {
namespace {

RolloutRequest step_of(const Strategy& resolved) {
  RolloutRequest step;
  step.completions = resolved.micro_batch * resolved.grad_accum;
  step.prompt_tokens = resolved.post_training->prompt_len;
  step.lengths = {resolved.seq_len - step.prompt_tokens};
  return step;
}

/// vLLM as TRL's trainers hold it: one engine on each device, which writes the answers of that device's step.
EngineSetting setting_of(const Strategy& resolved) {
  const PostTraining& post = *resolved.post_training;
  EngineSetting setting;
  setting.memory_fraction = post.engine_share;
  setting.offline = true;
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
    text += fmt::format("; a step's {} answers take it {}, which is not in the step time", with_thousands(resolved.micro_batch * resolved.grad_accum),
                        to_string(plan.rollout->prompts + plan.rollout->decoding));
  return text;
}

}  // namespace

std::string rollout_note(const Model& model, const Cluster& cluster, const Strategy& resolved) {
  if (!resolved.post_training || resolved.post_training->rollout != PostTraining::Rollout::colocated) return {};
  Cluster device = cluster;
  device.nodes = device.gpus_per_node = 1;
  try {
    const EnginePlan plan = plan_engine(model, device, setting_of(resolved));
    if (!plan.refused.empty()) fail("vLLM would not start beside the trainer: " + plan.refused, "engine_share", "a larger share");
    return said_of(plan, resolved);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::refused) throw;
    return "rollout: what vLLM makes of its share is not known: " + error.message();
  }
}

}  // namespace plimsoll::estimation
