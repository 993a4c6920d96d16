// llm-foundry's MPT under Composer: its own modules sharded by FSDP1, autocast to bf16.
#include <cstdio>
#include <string>
#include <string_view>

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
  no(s.fsdp.min_num_params > 0, "sharding units by their size (Composer wraps MPT's blocks)", "fsdp.min_num_params");
  no(s.precision != Precision::fsdp_mixed_bf16, "a precision other than bf16", "precision");
  no(s.attention != AttentionKernel::flash && s.attention != AttentionKernel::automatic, "an attention other than flash", "attention");
  no(s.recompute.kind != Recompute::Kind::none && s.recompute.kind != Recompute::Kind::full, "this recomputation", "recompute");
  no(s.compile != Strategy::Compile::no, "torch.compile", "compile");
  no(s.lora.has_value() || s.offload.any(), "an adapter or offloading", "offload");
}

/// attn_impl of the recipes for pretraining: triton until v0.7 (March 2024), flash since; no release said is the newest. A release is named by
/// its date ("llm-foundry 2023-10") or its number ("llm-foundry v0.0.4", "llm-foundry 0.22").
AttentionLibrary attention_of(const Strategy& s) {
  constexpr int kFlashYear = 2024, kFlashMonth = 3, kFlashMinor = 7;
  constexpr std::string_view kName = "llm-foundry ";
  const auto at = s.framework_version.find(kName);
  if (at == std::string::npos) return AttentionLibrary::flash2;
  const char* release = s.framework_version.c_str() + at + kName.size();
  if (*release == 'v') ++release;
  int year = kFlashYear, month = kFlashMonth, minor = kFlashMinor;
  const bool numbered = std::sscanf(release, "0.%3d", &minor) == 1, dated = !numbered && std::sscanf(release, "%4d-%2d", &year, &month) == 2;
  const bool early = dated && (year < kFlashYear || (year == kFlashYear && month < kFlashMonth));
  return early || (numbered && minor < kFlashMinor) ? AttentionLibrary::triton : AttentionLibrary::flash2;
}

}  // namespace

StepProgram lower_llm_foundry(const Lowering& run, const Rank& rank) {
  const Model& model = run.model;
  const Strategy& strategy = run.strategy;
  check(strategy);
  Tape tape(run.device, run.torch());
  const std::unique_ptr<Module> root = foundry_modules(model, tape);
  const FoundryOptions options{.attention = attention_of(strategy), .recomputes = strategy.recompute.kind == Recompute::Kind::full};
  const std::unique_ptr<Network> network = make_foundry_mpt(model, options, *root, tape);
  return record_fsdp1(tape, model, *root, *network, strategy, rank.every_micro_batch);
}

}  // namespace plimsoll::program
