// JAX frameworks: MaxText, and Paxml by name alone.
#include <fmt/format.h>

#include <algorithm>

#include "framework/catalogue.hpp"
#include "framework/maxtext.hpp"

namespace plimsoll::framework {
namespace {

/// What NVIDIA's recipe of a release computes again (dgxc-benchmarking, maxtext/configure.sh). Those before 24.12 keep every product but
/// the first of the MLP (save_dot_except_mlpwi, in 8 bits save_dot_except_mlp; the MLP's result is read by nobody either way), later ones
/// keep queries, keys and values alone (save_qkv_proj).
std::vector<std::string> recomputed_by_recipe(const Release& container) {
  if (!container.since(24, 12)) return {"context", "mlpwi"};
  return {"context", "mlpwi", "out_proj"};
}

/// The remat policy: base.yml's is full.
void complete_maxtext(Strategy& s, const Model&) {
  Recompute& recompute = s.recompute;
  if (recompute.kind != Recompute::Kind::selective || !recompute.modules.empty()) return;
  if (!s.releases.says(Package::nemo_container)) {
    recompute.kind = Recompute::Kind::full;
    s.assumed.push_back("recompute: full (remat_policy of MaxText's base.yml)");
    return;
  }
  recompute.modules = recomputed_by_recipe(s.releases.of(Package::nemo_container));
  s.assumed.push_back(fmt::format("recompute_modules: {} (the remat policy of NVIDIA's recipe)", fmt::join(recompute.modules, ", ")));
}

void check_maxtext(const Strategy& s, const Model&, Complaints& complaints) {
  static const std::vector<std::string> known = {"query_proj", "key_proj", "value_proj", "qkv_proj",
                                                 "context",    "out_proj", "mlpwi",      "mlpwo"};
  if (s.recompute.kind != Recompute::Kind::selective) return;
  for (const std::string& name : s.recompute.modules)
    if (std::find(known.begin(), known.end(), name) == known.end())
      complaints.add("MaxText has no recompute_modules " + name, fmt::format("it has {}", fmt::join(known, ", ")));
}

}  // namespace

MaxtextKept maxtext_kept(const Strategy& resolved) {
  if (resolved.recompute.kind == Recompute::Kind::none) return {true, true, true, true};
  if (resolved.recompute.kind == Recompute::Kind::full) return {};
  const std::vector<std::string>& again = resolved.recompute.modules;
  const auto kept = [&](const char* name) { return std::find(again.begin(), again.end(), name) == again.end(); };
  return {kept("query_proj") && kept("key_proj") && kept("value_proj") && kept("qkv_proj"), kept("context"), kept("out_proj"),
          kept("mlpwi")};
}

bool maxtext_embeds_by_product(const Strategy& strategy) { return strategy.releases.says(Package::nemo_container); }

Entry maxtext() {
  FrameworkProfile p;
  p.name = "jax-maxtext";
  p.title = "MaxText";
  p.aliases = {"maxtext"};
  p.source = "MaxText's base.yml of 2024-12, NVIDIA's recipes for it (dgxc-benchmarking 24.11 and 25.02)";
  p.code = ModelCode::maxtext;
  p.bf16 = Precision::amp_bf16;  // fp32 weights; dtype says what layers compute in
  p.data_parallel = p.fsdp = DataParallel::fsdp;
  p.optimizer_impl = OptimizerImpl::library;  // optax, fused by XLA
  p.attention = AttentionKernel::te;
  p.recompute = Recompute::Kind::selective;
  p.kinds = {DataParallel::none, DataParallel::fsdp};
  p.attentions = {AttentionKernel::te, AttentionKernel::cudnn};
  p.losses = {LossKernel::cross_entropy};
  p.recomputes = {Recompute::Kind::none, Recompute::Kind::full, Recompute::Kind::selective};
  p.low_precisions = {LowPrecision::none, LowPrecision::fp8};
  p.fused_rms_norm = p.fused_gated_mlp = true;
  return {p, nullptr, complete_maxtext, check_maxtext};
}

Entry paxml() {
  FrameworkProfile p;
  p.name = "jax-paxml";
  p.title = "Paxml";
  p.refused = "Praxis's layers have no lowering; MaxText's have one";
  return {p, nullptr, nullptr, nullptr};
}

}  // namespace plimsoll::framework
