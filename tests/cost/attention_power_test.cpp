// Attention among a step's kernels on boards that hold it up, and on those that do not (product_cost.hpp: slowdown).
#include <gtest/gtest.h>

#include "plimsoll/cost.hpp"
#include "plimsoll/hardware.hpp"

namespace plimsoll {
namespace {

Kernel long_attention() {
  Attention attention;
  attention.library = AttentionLibrary::flash2;
  attention.causal = true;
  attention.batch = 1;
  attention.heads = attention.kv_heads = 32;
  attention.queries = attention.keys = 32768;
  attention.head_dim = attention.value_dim = 128;
  return {attention};
}

// A step of nothing else draws p boards' power at the boost clock and takes p times as long; of three quarters attention, beside kernels that
// draw q, p − (1 − q) / 3 times. A kernel alone is not held up.
TEST(AttentionPower, ABoardOfLessPowerStretchesIt) {
  const Accelerator board = parse_cluster("8xh100-sxm-96gb-hbm2e-500w").accelerator;
  const double p = board.attention.power.value, q = board.gemm.power_elsewhere.value;
  ASSERT_GT(p, 1);
  const double alone = price(long_attention(), board).value;
  EXPECT_NEAR(price(long_attention(), board, {1.0}).value / alone, p, 1e-3);
  EXPECT_NEAR(price(long_attention(), board, {0.75}).value / alone, p - (1 - q) / 3, 1e-3);
}

// What a step draws on average: of the share s of its boost-clock time in attention, stretched to s·d, and the rest at q, (s·d·draw + (1 − s)·q) / (s·d + 1 − s).
// A board that is held up draws all that it may, one that is not s·p + (1 − s)·q.
TEST(AttentionPower, ABoardDrawsWhatItMayOrLess) {
  const Accelerator board = parse_cluster("8xh100-sxm-96gb-hbm2e-500w").accelerator;
  const double p = board.attention.power.value, q = board.gemm.power_elsewhere.value;
  const auto drawn = [&](double share) {
    const double stretched = share * slowdown(p, board, {share});
    return (stretched * draw(long_attention(), board, {share}) + (1 - share) * draw({Pointwise{}}, board, {share})) / (stretched + 1 - share);
  };
  EXPECT_NEAR(drawn(0.75), 1, 1e-9);
  EXPECT_NEAR(drawn(0.05), 0.05 * p + 0.95 * q, 1e-9);
  EXPECT_LT(drawn(0.05), 1);
}

TEST(AttentionPower, SevenHundredWattsAreEnough) {
  const Accelerator board = parse_cluster("8xh100-sxm").accelerator;
  EXPECT_EQ(price(long_attention(), board, {1.0}).value, price(long_attention(), board).value);
}

// What b200.json says of attention was measured of cuDNN's passes; FlashAttention-4's rates are of a board at its limit already.
TEST(AttentionPower, OnlyTheKernelsThatItWasMeasuredOnDrawIt) {
  const Accelerator board = parse_cluster("8xb200").accelerator;
  Kernel kernel = long_attention();
  const auto stretch = [&](AttentionLibrary library) {
    std::get<Attention>(kernel.work).library = library;
    return price(kernel, board, {1.0}).value / price(kernel, board).value;
  };
  EXPECT_GT(stretch(AttentionLibrary::cudnn), 1.3);
  EXPECT_EQ(stretch(AttentionLibrary::flash4), 1);
}

}  // namespace
}  // namespace plimsoll
