// torchtune's single-device and FSDP2 recipes: 16-bit weights without a master, chunked loss.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "framework/catalogue.hpp"

namespace plimsoll::framework {

namespace {

/// custom_sharded_layers of the full recipes' configs for Llama 3: its vocabulary is large.
void complete_torchtune(Strategy& s, const Model& model) {
  const bool large_vocabulary = model.model_type == "llama" && model.vocab_size > 100'000 && !model.tied_embeddings;
  if (s.data_parallel != DataParallel::fsdp2 || !s.fsdp.units.empty() || s.lora || !large_vocabulary) return;
  s.fsdp.units = {"tok_embeddings", "output"};
  s.assumed.push_back("fsdp.units: tok_embeddings, output (the recipe's custom_sharded_layers)");
}

}  // namespace

Entry torchtune() {
  FrameworkProfile p;
  p.name = "torchtune";
  p.title = "torchtune";
  p.source = "torchtune's recipes and configs";
  p.code = ModelCode::torchtune;
  p.bf16 = Precision::pure_bf16;
  p.data_parallel = DataParallel::fsdp2;
  p.optimizer_impl = OptimizerImpl::fused;
  p.loss = LossKernel::chunked;
  p.clip_grad_norm = false;
  p.kinds = {DataParallel::none, DataParallel::fsdp2};
  p.attentions = {AttentionKernel::sdpa, AttentionKernel::flash, AttentionKernel::memory_efficient};
  p.losses = {LossKernel::chunked, LossKernel::cross_entropy};
  p.recomputes = {Recompute::Kind::none, Recompute::Kind::full};
  p.low_precisions = {LowPrecision::none};
  p.adapters = p.offload_activations = true;
  p.fused_rms_norm = true;
  return {p, nullptr, complete_torchtune, nullptr};
}

}  // namespace plimsoll::framework

namespace plimsoll {

int torchtune_release(const Strategy& resolved) {
  constexpr int kNewest = 6;
  const std::string& version = resolved.framework_version;
  int year = 0, month = 0, day = 0, major = 0, minor = 0;
  if (std::sscanf(version.c_str(), "%4d-%2d-%2d", &year, &month, &day) == 3) {
    const int date = (year * 100 + month) * 100 + day;
    constexpr std::pair<int, int> kReleases[] = {{20250324, 6}, {20241220, 5}, {20241114, 4}, {0, 3}};
    for (const auto& [from, release] : kReleases)
      if (date >= from) return release;
  }
  if (std::sscanf(version.c_str(), "%3d.%3d", &major, &minor) == 2 && major == 0) return std::clamp(minor, 3, kNewest);
  return kNewest;
}

}  // namespace plimsoll
