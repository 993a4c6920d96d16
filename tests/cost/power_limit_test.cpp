// Boards that are held to less than they could draw (plimsoll/power_limit.hpp).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plimsoll/cost.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/power_limit.hpp"

namespace plimsoll {
namespace {

const ProductKernels& named(const Accelerator& device, const char* name) {
  return *std::find_if(device.gemm.kernels.begin(), device.gemm.kernels.end(), [&](const ProductKernels& one) { return one.name == name; });
}

// An H100's products draw 1.235 boards of 700 W; held to 500 W they take (700 / 500)^0.55 = 1.203 times as long again, the rest of a step
// draws 0.66 · 1.4 = 0.924. These are the constants of the boards of 500 W that TorchTitan's steps were measured on.
TEST(PowerLimit, AnH100At500WattsIsTorchTitansBoard) {
  const Cluster held = held_to(parse_cluster("8xh100-sxm"), Watts(500), "test");
  const Accelerator board = parse_cluster("8xh100-sxm-96gb-hbm2e-500w").accelerator;
  EXPECT_NEAR(named(held.accelerator, "wgmma").power.value, 1.235 * std::pow(1.4, 0.55), 1e-6);
  EXPECT_NEAR(named(held.accelerator, "wgmma").power.value, named(board, "wgmma").power.value, 2e-3);
  EXPECT_NEAR(held.accelerator.gemm.power_elsewhere.value, 0.924, 1e-6);
  EXPECT_NEAR(held.accelerator.gemm.power_elsewhere.value, board.gemm.power_elsewhere.value, 5e-3);
  EXPECT_EQ(held.accelerator.power.value.value, 500);
}

// Less power never makes a product shorter, and the board's own changes nothing.
TEST(PowerLimit, ProductsTakeLongerTheLessABoardMayDraw) {
  for (const char* on : {"8xh100-sxm", "8xb200", "8xmi300x", "8xa100-80gb-sxm"}) {
    const Cluster cluster = parse_cluster(on);
    const double watts = cluster.accelerator.power.value.value;
    const Kernel product{Product{8192, 8192, 8192}};
    double before = price(product, cluster.accelerator, {0.9}).value;
    EXPECT_EQ(price(product, held_to(cluster, Watts(watts), "test").accelerator, {0.9}).value, before) << on;
    for (const double share : {0.9, 0.7, 0.5, 0.3}) {
      const double now = price(product, held_to(cluster, Watts(share * watts), "test").accelerator, {0.9}).value;
      EXPECT_GT(now, before) << on << " at " << share;
      before = now;
    }
  }
}

// "8xh100-sxm@500W" is the same, and is read back from the device's own name; the host beside an A100 stays that of A100s.
TEST(PowerLimit, AClustersTextSaysIt) {
  const Cluster cluster = parse_cluster("2x8xh100-sxm@0.5 kW");
  EXPECT_EQ(cluster.accelerator.name, "h100-sxm@500W");
  EXPECT_EQ(cluster.name, "16 x h100-sxm@500W");
  EXPECT_EQ(parse_cluster("8x" + cluster.accelerator.name).accelerator.power.value.value, 500);
  EXPECT_EQ(board_of(cluster.accelerator.name), "h100-sxm");
}

// No driver holds a board above its power, or below a quarter of it.
TEST(PowerLimit, HasMeaningOrIsRefused) {
  for (const char* senseless : {"8xh100-sxm@900W", "8xh100-sxm@100W", "8xh100-sxm@0W", "8xh100-sxm@500", "8xh100-sxm@much"})
    EXPECT_THROW(parse_cluster(senseless), Error) << senseless;
}

}  // namespace
}  // namespace plimsoll
