// llm-foundry's MPT under Composer: its own modules sharded by FSDP1, autocast to bf16.
#include <string>

#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "program/frameworks/transformers/training.hpp"
#include "program/lower.hpp"
#include "program/modules/llm_foundry/mpt.hpp"
#include "program/modules/transformers/expert_loop.hpp"

namespace plimsoll::program {

namespace {

void check(const Strategy& s) {
  const auto no = [](bool unknown, const char* what, const char* key) {
    if (unknown) refuse(std::string(what) + " is not modelled for llm-foundry", key);
  };
  const bool bf16 = s.precision == Precision::fsdp_mixed_bf16 || s.precision == Precision::amp_bf16;
  no(s.fsdp.min_num_params > 0, "sharding units by their size (Composer wraps MPT's blocks)", "fsdp.min_num_params");
  no(!bf16, "a precision other than bf16", "precision");
  no(s.recompute.kind != Recompute::Kind::none && s.recompute.kind != Recompute::Kind::full, "this recomputation", "recompute");
  no(s.compile != Strategy::Compile::no, "torch.compile", "compile");
  no(s.lora.has_value() || s.offload.any(), "an adapter or offloading", "offload");
}

/// attn_impl of the recipes for pretraining: triton until v0.7 (March 2024), flash since.
AttentionLibrary attention_of(const Strategy& s) {
  return s.releases.of(Package::llm_foundry).since(0, 7) ? AttentionLibrary::flash2 : AttentionLibrary::triton;
}

std::unique_ptr<Network> make_mpt(const Model& model, const Strategy& s, Module& root, Tape& tape) {
  if (s.attention != AttentionKernel::flash && s.attention != AttentionKernel::automatic)
    refuse("an attention other than flash is not modelled for llm-foundry's MPT", "attention", "flash");
  const FoundryOptions options{.attention = attention_of(s), .recomputes = s.recompute.kind == Recompute::Kind::full};
  return make_foundry_mpt(model, options, root, tape);
}

/// hf_causal_lm, with flash-attention where it is asked for (use_flash_attention_2).
std::unique_ptr<Network> make_transformer(const Model& model, const Strategy& s, Module& root, Tape& tape) {
  if (model.task != Model::Task::causal_lm) refuse("llm-foundry trains causal language models", "model");
  return make_foundry_transformer(model, hf_run_options(s), DType::bf16, root, tape);
}

}  // namespace

StepProgram lower_llm_foundry(const Lowering& run, const Rank& rank) {
  const Model& model = run.model;
  const Strategy& strategy = run.strategy;
  check(strategy);
  Tape tape(run.device, run.torch());
  const bool mpt = is_foundry_mpt(model);
  const std::unique_ptr<Module> root = mpt ? foundry_modules(model, tape) : build_modules(model, DType::fp32, tape);
  if (!mpt) separate_experts(*root, model, HfRelease(strategy.releases.of(Package::transformers)), tape);
  const std::unique_ptr<Network> network = mpt ? make_mpt(model, strategy, *root, tape) : make_transformer(model, strategy, *root, tape);
  switch (engine_of(strategy)) {
    case Engine::fsdp1:
      return record_fsdp1(tape, model, *root, *network, strategy, rank.every_micro_batch);
    case Engine::torch_ddp:
      return record_ddp(tape, model, *root, *network, strategy, rank.every_micro_batch);
    case Engine::plain:
      return record_plain(tape, model, *root, *network, strategy, rank.every_micro_batch);
    default:
      refuse("this data parallelism is not modelled for llm-foundry", "data_parallel", "fsdp1");
  }
}

}  // namespace plimsoll::program
