#include <cstdio>

#include "framework/megatron.hpp"

namespace plimsoll::framework {
namespace {

constexpr int kNewest = 999912;

/// The month of a tag of NVIDIA/Megatron-LM.
int month_of_tag(int major, int minor) {
  if (major < 2 || (major == 2 && minor < 5)) return 202104;
  if (major == 2) return 202108;  // v2.5 and v2.6
  return major == 3 ? 202203 : kNewest;
}

}  // namespace

MegatronRelease megatron_release(const Strategy& strategy) {
  int first = 0, second = 0;
  if (strategy.framework != "megatron-lm") return MegatronRelease(kNewest);
  if (std::sscanf(strategy.framework_version.c_str(), "%4d-%2d", &first, &second) == 2) return MegatronRelease(first * 100 + second);
  if (std::sscanf(strategy.framework_version.c_str(), "v%1d.%2d", &first, &second) == 2)
    return MegatronRelease(month_of_tag(first, second));
  return MegatronRelease(kNewest);
}

bool defers_by_store(const Strategy& strategy) {
  constexpr int kFirstMonth = 202605, kFirstRelease = 2603;
  int first = 0, second = 0;
  const char* version = strategy.framework_version.c_str();
  if (std::sscanf(version, "%4d-%2d", &first, &second) == 2) return first * 100 + second >= kFirstMonth;
  if (std::sscanf(version, "v%2d.%2d", &first, &second) == 2) return first * 100 + second >= kFirstRelease;
  return true;
}

std::string megatron_layer_spec(const Strategy& strategy, const std::string& usual) {
  const bool own = !megatron_release(strategy).core() || strategy.attention == AttentionKernel::unfused;
  return !usual.empty() && own ? "local" : usual;
}

}  // namespace plimsoll::framework
