// llm-foundry's MPT under Composer: its own modules sharded by FSDP1, autocast to bf16.
#include <string>

#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "program/frameworks/transformers/training.hpp"
#include "program/lower.hpp"
#include "program/modules/llm_foundry/mpt.hpp"

namespace plimsoll::program {

namespace {

void check(const Strategy& s) {
  const auto no = [](bool unknown, const char* what, const char* key) {
    if (unknown) refuse(std::string(what) + " is not modelled for llm-foundry", key);
  };
  no(s.data_parallel != DataParallel::fsdp1, "data parallelism other than FSDP1", "data_parallel");
  no(s.precision != Precision::fsdp_mixed_bf16, "a precision other than bf16", "precision");
  no(s.attention != AttentionKernel::flash && s.attention != AttentionKernel::automatic, "an attention other than flash", "attention");
  no(s.recompute.kind != Recompute::Kind::none && s.recompute.kind != Recompute::Kind::full, "this recomputation", "recompute");
  no(s.compile != Strategy::Compile::no, "torch.compile", "compile");
  no(s.lora.has_value() || s.offload.any(), "an adapter or offloading", "offload");
}

/// The submit scripts take attn_impl triton until 2023, flash from 2024 on.
AttentionLibrary attention_of(const Strategy& s) {
  constexpr int kFlash = 2024;
  int year = 0;
  const auto at = s.framework_version.find("llm-foundry 20");
  if (at != std::string::npos) year = std::stoi(s.framework_version.substr(at + 12, 4));
  return year >= kFlash ? AttentionLibrary::flash2 : AttentionLibrary::triton;
}

}  // namespace

StepProgram lower_llm_foundry(const Model& model, const Strategy& strategy, bool every_micro_batch) {
  check(strategy);
  Tape tape;
  tape.torch = {torch_release(strategy)};
  const std::unique_ptr<Module> root = foundry_modules(model, tape);
  const FoundryOptions options{.attention = attention_of(strategy), .recomputes = strategy.recompute.kind == Recompute::Kind::full};
  const std::unique_ptr<Network> network = make_foundry_mpt(model, options, *root, tape);
  return record_fsdp1(tape, model, *root, *network, strategy, every_micro_batch);
}

}  // namespace plimsoll::program
