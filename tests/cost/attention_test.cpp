#include <gtest/gtest.h>

#include "cost/kernel_constants.hpp"
#include "plimsoll/cost.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

Attention cudnn(std::int64_t batch, std::int64_t heads, std::int64_t length, std::int64_t width) {
  Attention attention;
  attention.library = AttentionLibrary::cudnn;
  attention.batch = batch;
  attention.heads = attention.kv_heads = heads;
  attention.queries = attention.keys = length;
  attention.head_dim = attention.value_dim = width;
  return attention;
}

const cost::AttentionLaw& law(AttentionLibrary library, bool backward, const std::string& family) {
  for (const auto& each : cost::kernel_constants().attention)
    if (each.library == library && each.backward == backward && each.family == family && each.type == DType::bf16) return each;
  throw Error(ErrorCode::internal, "no such law");
}

double us(Seconds time) { return time.value * 1e6; }

/// Microseconds of so many tiles of heads of 128 on each of the H100's 132 units.
double tiles_h100(const cost::AttentionLaw& l, double tiles, double share) {
  const double flops = (l.backward ? 10.0 : 4.0) * static_cast<double>(l.tile.m * l.tile.n) * 128 * 132;
  return tiles * flops / (989.4e12 * share) * 1e6;
}

// 2048 queries and keys, 16 heads of 128, 4 sequences: 64 · 16 blocks of 16 tiles and a prologue over 132 units, and half of a block more.
TEST(Attention, BlocksOfEqualLength) {
  const auto& l = law(AttentionLibrary::cudnn, false, "Hopper");
  const double block = 16 + l.prologue, all = 64 * 16 * block / 132 + 0.5 * block;
  EXPECT_NEAR(us(price(cudnn(4, 16, 2048, 128), load_accelerator("h100-sxm"))), us(l.start) + tiles_h100(l, all, l.rates[1].share), 1e-3);
}

// Causal: block i of 128 queries sees i + 1 tiles: 136 instead of 256 of a head; the longest ends when others are long done.
TEST(Attention, CausalBlocksTakeTheirTilesOnly) {
  const auto& l = law(AttentionLibrary::cudnn, false, "Hopper");
  Attention causal = cudnn(4, 16, 2048, 128);
  causal.causal = true;
  const double all = 64 * (136 + 16 * l.prologue) / 132 + l.tail * (16 + l.prologue);
  EXPECT_NEAR(us(price(causal, load_accelerator("h100-sxm"))), us(l.start) + tiles_h100(l, all, l.rates[1].share), 1e-3);
}

// A window of 512 keys: blocks 0 to 3 see 1 to 4 tiles, the other twelve 5 (the first query of a block sees 511 keys before it).
TEST(Attention, WindowsLeaveABand) {
  const auto& l = law(AttentionLibrary::cudnn, false, "Hopper");
  Attention banded = cudnn(4, 16, 2048, 128);
  banded.causal = true;
  banded.window = 512;
  const double all = 64 * (1 + 2 + 3 + 4 + 12 * 5 + 16 * l.prologue) / 132 + l.tail * (5 + l.prologue);
  EXPECT_NEAR(us(price(banded, load_accelerator("h100-sxm"))), us(l.start) + tiles_h100(l, all, l.rates[1].share), 1e-3);
}

// Backward: 16 blocks of 128 keys; block i is seen by the queries from 128·i on, 32 − 2·i tiles of 64: 272 of 512.
TEST(Attention, BackwardWalksOverQueries) {
  const auto& l = law(AttentionLibrary::cudnn, true, "Hopper");
  Attention causal = cudnn(4, 16, 2048, 128);
  causal.causal = true;
  causal.part = Attention::Part::backward;
  const double all = 64 * (272 + 16 * l.prologue) / 132 + l.tail * (32 + l.prologue);
  EXPECT_NEAR(us(price(causal, load_accelerator("h100-sxm"))), us(l.start) + tiles_h100(l, all, l.rates[1].share), 1e-3);
}

// Heads of 80 and 96 run in the kernel for 128 and cost what it costs.
TEST(Attention, NarrowHeadsCostTheKernelThatHoldsThem) {
  const Accelerator device = load_accelerator("h100-sxm");
  EXPECT_EQ(price(cudnn(2, 32, 2048, 80), device).value, price(cudnn(2, 32, 2048, 128), device).value);
  EXPECT_LT(price(cudnn(2, 32, 2048, 64), device).value, price(cudnn(2, 32, 2048, 80), device).value);
}

// Few queries of many heads (a decoder's last token) are bound by the bytes of keys and values.
TEST(Attention, ShortQueriesAreBoundByBytes) {
  Attention decode = cudnn(256, 32, 8192, 128);
  decode.queries = 1;
  decode.batch = 256;
  const double bytes = static_cast<double>(Kernel{decode}.bytes());
  EXPECT_GE(price(decode, load_accelerator("h200")).value, bytes / 4800e9);
}

// A device whose kernels nobody measured takes the share that its file states, in the shape of the kernels that were.
TEST(Attention, OtherFamiliesTakeTheirOwnShare) {
  const Accelerator device = load_accelerator("a100-80gb-sxm");
  Attention flash = cudnn(1, 32, 16384, 128);
  flash.library = AttentionLibrary::flash2;
  const double flops = 4.0 * 32 * 16384 * 16384 * 128;
  const double share = flops / price(flash, device).value / device.sustained(MathType::bf16).value;
  EXPECT_NEAR(share, device.attention.forward.value, 0.04);
}

// An H20's units multiply a quarter of an H100's: what a kernel does beside its products takes less of its time, and a larger share of the
// peak is reached. Milliseconds of forward passes of 2 sequences of 2,048, width 2,048, on an H20: Dao-AILab/flash-attention issue 1310.
TEST(Attention, NarrowMatrixUnitsLeaveTheRestItsClocks) {
  struct Measured {
    AttentionLibrary library;
    std::int64_t width;
    bool causal;
    double milliseconds;
  };
  const Measured rows[] = {{AttentionLibrary::flash2, 64, false, 0.840},  {AttentionLibrary::cudnn, 64, false, 0.545},
                           {AttentionLibrary::flash3, 64, false, 0.572},  {AttentionLibrary::flash2, 64, true, 0.484},
                           {AttentionLibrary::cudnn, 64, true, 0.315},    {AttentionLibrary::flash3, 64, true, 0.342},
                           {AttentionLibrary::flash2, 128, false, 0.821}, {AttentionLibrary::cudnn, 128, false, 0.532},
                           {AttentionLibrary::flash3, 128, false, 0.545}, {AttentionLibrary::flash2, 128, true, 0.522},
                           {AttentionLibrary::cudnn, 128, true, 0.319},   {AttentionLibrary::flash3, 128, true, 0.319}};
  for (const Measured& row : rows) {
    Attention attention = cudnn(2, 2048 / row.width, 2048, row.width);
    attention.library = row.library;
    attention.causal = row.causal;
    EXPECT_NEAR(us(price(attention, load_accelerator("h20"))) / (row.milliseconds * 1e3), 1, 0.18)
        << name_of(row.library) << ", heads of " << row.width << (row.causal ? ", causal" : "");
  }
}

TEST(Attention, LibrariesWithoutAPriceAreRefusedByName) {
  Attention flash = cudnn(1, 32, 2048, 128);
  flash.library = AttentionLibrary::flash3;
  try {
    price(flash, load_accelerator("a100-80gb-sxm"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("flash3 attention in bf16 on Ampere"), std::string::npos) << error.message();
  }
}

// cuDNN 9.22 on GB200 and GB300, 9.19 on an H200 (NVIDIA/cudnn-frontend 3929da2, benchmark/sdpa_benchmark_training/results), causal, in milliseconds:
// heads of 128; 192 beside values of 128 (DeepSeek-V3, and Kimi K2, on which nothing is fitted); windows of 128 keys at heads of 64 (GPT-OSS), which
// the 8-bit backward pass does not see: four times the tokens take sixteen times as long.
TEST(Attention, CudnnOnBlackwellAsMeasured) {
  struct Row {
    const char* device;
    DType type;
    std::int64_t batch, heads, kv_heads, length, width, value, window;
    double forward, backward;
  };
  const Row rows[] = {{"gb200", DType::bf16, 2, 64, 8, 4096, 128, 128, 0, 0.391, 1.198},
                      {"gb200", DType::bf16, 2, 128, 128, 8192, 192, 128, 0, 3.470, 11.984},
                      {"gb200", DType::bf16, 2, 64, 64, 4096, 192, 128, 0, 0.518, 1.698},
                      {"gb200", DType::bf16, 2, 128, 128, 8192, 64, 64, 128, 0.414, 0.911},
                      {"gb300", DType::bf16, 2, 128, 128, 4096, 192, 128, 0, 0.864, 3.127},
                      {"gb300", DType::bf16, 2, 64, 64, 16384, 192, 128, 0, 5.442, 21.253},
                      {"gb200", DType::fp8, 2, 128, 128, 4096, 64, 64, 128, 0, 2.080},
                      {"gb200", DType::fp8, 2, 128, 128, 16384, 64, 64, 128, 0, 27.940},
                      {"h200", DType::bf16, 1, 128, 128, 4096, 192, 128, 0, 1.148, 4.424}};
  for (const Row& row : rows) {
    Attention attention = cudnn(row.batch, row.heads, row.length, row.width);
    attention.kv_heads = row.kv_heads;
    attention.value_dim = row.value;
    attention.type = row.type;
    attention.window = row.window;
    attention.causal = true;
    const Accelerator device = load_accelerator(row.device);
    if (row.forward > 0) {
      EXPECT_NEAR(us(price(attention, device)), row.forward * 1e3, 0.12 * row.forward * 1e3) << row.device << ' ' << row.width;
    }
    attention.part = Attention::Part::backward;
    EXPECT_NEAR(us(price(attention, device)), row.backward * 1e3, 0.14 * row.backward * 1e3) << row.device << ' ' << row.width;
  }
}

// AITER on an MI300X (AMD-AGI/Primus-Turbo 221d75f1, benchmark/results_optimized/attention_bf16_optimized.csv), causal, in milliseconds,
// in a step that is spent in products and attention for 85 %: queries and keys of 192 beside values of 128 fall off backward.
TEST(Attention, ComposableKernelOnAnMi300xAsMeasured) {
  struct Row {
    std::int64_t batch, heads, length, width, value;
    double forward, backward;
  };
  const Accelerator device = load_accelerator("mi300x");
  for (const Row& row : {Row{2, 64, 8192, 128, 128, 4.51, 14.65}, Row{4, 32, 4096, 128, 128, 1.29, 4.10},
                         Row{2, 32, 8192, 64, 64, 1.50, 4.01}, Row{1, 128, 4096, 192, 128, 1.70, 16.89}}) {
    Attention attention = cudnn(row.batch, row.heads, row.length, row.width);
    attention.library = AttentionLibrary::composable_kernel;
    attention.value_dim = row.value;
    attention.causal = true;
    EXPECT_NEAR(us(price(attention, device, {.matrix_share = 0.85})), row.forward * 1e3, 0.12 * row.forward * 1e3) << row.width;
    attention.part = Attention::Part::backward;
    EXPECT_NEAR(us(price(attention, device, {.matrix_share = 0.85})), row.backward * 1e3, 0.12 * row.backward * 1e3) << row.width;
  }
}

}  // namespace
}  // namespace plimsoll
