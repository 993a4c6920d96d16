// The engine that wraps transformers' modules, chosen by the strategy.
#include "program/lower.hpp"

#include <string>
#include <utility>

#include "model/router_loss.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "program/carried.hpp"
#include "program/modules/transformers/text_encoders.hpp"

namespace plimsoll::program {

namespace {

StepProgram wrapped_by_engine(const Lowering& run, const Rank& rank) {
  const Strategy& strategy = run.strategy;
  if (strategy.tp > 1 || strategy.pp > 1 || strategy.cp > 1 || strategy.ep > 1)
    refuse("tensor, pipeline, context and expert parallel ranks of transformers have no lowering yet");
  switch (engine_of(strategy)) {
    case Engine::plain:
      return lower_hf_eager(run, rank);
    case Engine::torch_ddp:
      return lower_hf_ddp(run, rank);
    case Engine::fsdp1:
      return lower_hf_fsdp1(run, rank);
    case Engine::fsdp2:
      return lower_hf_fsdp2(run, rank);
    case Engine::deepspeed:
      return lower_hf_deepspeed(run, rank);
    default:
      refuse(std::string(name_of(engine_of(strategy))) + " has no lowering yet");
  }
}

StepProgram lowered_by_engine(const Lowering& run, const Rank& rank) {
  StepProgram program = wrapped_by_engine(run, rank);
  // Modules of code may keep what they made until their next call. DeepSpeed's programs are carried as they are.
  if (run.model.source && engine_of(run.strategy) != Engine::deepspeed) carry_across_steps(program);
  return program;
}

}  // namespace

StepProgram lower_transformers(const Lowering& run, const Rank& rank) {
  const auto& post = run.strategy.post_training;
  if (!post) return lowered_by_engine(run, rank);
  Model model = post->kind == PostTraining::Kind::reward ? with_auto_head(run.model, AutoHead::sequences, 1) : run.model;
  if (post->router_loss.value_or(false)) model::ask_for_router_logits(model);
  Strategy strategy = run.strategy;
  if (post->disable_dropout.value_or(false)) {  // disable_dropout_in_model, behind get_peft_model
    model = in_evaluation(std::move(model));
    if (strategy.lora) strategy.lora->dropout = 0;
  }
  return lowered_by_engine({model, strategy, run.device}, rank);
}

}  // namespace plimsoll::program
