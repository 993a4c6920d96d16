#include "framework/megatron.hpp"

namespace plimsoll::framework {
namespace {

/// The one whose code runs: of framework megatron-lm what is said of it, of Megatron-core, or the newest; of every other the newest.
Release megatron_of(const Strategy& strategy) {
  const bool by_core = strategy.framework == "megatron-lm" && !strategy.releases.says(Package::megatron_lm) &&
                       strategy.releases.says(Package::megatron_core);
  if (by_core) return strategy.releases.of(Package::megatron_core);
  return strategy.framework == "megatron-lm" ? strategy.releases.of(Package::megatron_lm) : facts_of(Package::megatron_lm).newest;
}

}  // namespace

MegatronRelease megatron_release(const Strategy& strategy) { return MegatronRelease(megatron_of(strategy)); }

bool defers_by_store(const Strategy& strategy) { return strategy.releases.of(Package::primus).since(26, 3); }

std::string megatron_layer_spec(const Strategy& strategy, const std::string& usual) {
  const bool own = !megatron_release(strategy).core() || strategy.attention == AttentionKernel::unfused;
  return !usual.empty() && own ? "local" : usual;
}

}  // namespace plimsoll::framework
