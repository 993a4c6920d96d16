// What a run's steps are priced by beside its kernels' and collectives' own prices.
#include "estimate/played_time.hpp"

#include <gtest/gtest.h>

#include "plimsoll/cost.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"

namespace plimsoll::estimation {
namespace {

Pricing pricing_with(const std::string& graphs) {
  Strategy said;
  set_options(said, {{"framework", "megatron-core"}, {"cuda_graph", graphs}, {"micro_batch", "1"}, {"seq_len", "4096"}});
  const Cluster cluster = parse_cluster("8xh100-sxm");
  return run_pricing(cluster, resolve(said, load_model("llama-3.1-8b"), cluster), {});
}

// A graph of the whole step leaves the host nothing and puts its kernels closer together: 1 µs between two measured, 1.5 where each is launched.
TEST(RunPricing, AGraphOfTheWholeStepPutsKernelsCloserTogether) {
  const Accelerator device = load_accelerator("h100-sxm");
  ASSERT_LT(kernel_gap_in_graph(device), kernel_gap(device));
  const Pricing whole = pricing_with("full_iteration"), launched = pricing_with("false"), in_part = pricing_with("transformer_engine:['attn']");
  EXPECT_EQ(whole.gap.value, kernel_gap_in_graph(device).value);
  EXPECT_EQ(whole.host.launch.value, 0);
  EXPECT_EQ(launched.gap.value, kernel_gap(device).value);
  EXPECT_EQ(in_part.gap.value, kernel_gap(device).value);
  EXPECT_FALSE(in_part.replayed.empty());
}

// hardware/hosts.json, "software": Megatron-LM under PyTorch 1.9 issues 1.52 times as slowly as under 2.0; transformers does not.
TEST(RunPricing, MegatronBeforePyTorch2HasASlowerHost) {
  const Cluster cluster = parse_cluster("8xa100-80gb-sxm");
  const auto host = [&](const char* framework, const char* torch) {
    Strategy said;
    set_options(said, {{"framework", framework}, {"micro_batch", "1"}, {"seq_len", "1024"}});
    said.releases.put(Package::torch, parse_release("torch", torch, "").second);
    return run_pricing(cluster, resolve(said, load_model("gpt2"), cluster), {}).host;
  };
  const HostPace old = host("megatron-lm", "1.9"), later = host("megatron-lm", "2.0");
  for (std::size_t i = 0; i < kHostWorks; ++i)
    EXPECT_NEAR(old.work[i].value, (static_cast<HostWork>(i) == HostWork::memory_traffic ? 1 : 1.52) * later.work[i].value, 1e-12);
  EXPECT_NEAR(old.launch.value, 1.52 * later.launch.value, 1e-12);
  EXPECT_EQ(host("transformers", "1.13").launch.value, host("transformers", "2.0").launch.value);
}

}  // namespace
}  // namespace plimsoll::estimation
