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

}  // namespace
}  // namespace plimsoll::estimation
