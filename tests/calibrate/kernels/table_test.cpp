#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "calibrate/kernels/elements.hpp"
#include "calibrate/kernels/kernel_table.hpp"
#include "kernels/problems.hpp"

namespace plimsoll::calibrate {
namespace {

constexpr DeviceShape kMi300x{Target::gfx942, 304};

TEST(KernelTable, NamesAreUniqueAndRowsAreWhole) {
  std::set<std::string_view> names;
  for (const Kernel& kernel : kernel_table()) {
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
    EXPECT_FALSE(kernel.targets.empty()) << kernel.name;
    EXPECT_FALSE(kernel.doc.empty()) << kernel.name;
    for (const Sizes& sizes : small_problems(kernel)) {
      EXPECT_EQ(sizes.size(), kernel.size_names.size()) << kernel.name;
      const Launch launch = kernel.launch(sizes, kMi300x);
      EXPECT_GT(launch.blocks, 0u) << kernel.name;
      EXPECT_EQ(launch.threads, 256u) << kernel.name;
    }
  }
}

TEST(KernelTable, AWrongNameNamesTheNearest) {
  try {
    kernel_named("gemm_bf15");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.hint().find("gemm_bf16"), std::string::npos) << error.hint();
  }
}

// What the buffers hold is what a kernel must read and write at least: bytes of every row whose traffic is not by reuse or by sampling.
TEST(KernelTable, BytesAreThoseOfTheBuffers) {
  for (const Kernel& kernel : kernel_table()) {
    if (kernel.collective() || kernel.kind == KernelKind::cache_read || kernel.kind == KernelKind::pointer_chase) continue;
    for (const Sizes& sizes : small_problems(kernel)) {
      double read = 0, written = 0;
      for (const Buffer& buffer : kernel.buffers) {
        const double bytes = static_cast<double>(buffer.count(sizes) * size_of(buffer.type));
        if (buffer.role != Role::out) read += bytes;
        if (buffer.role != Role::in) written += bytes;
      }
      const Work work = kernel.work(sizes, kMi300x);
      // Of its logits the cross-entropy reads one twice, and the row's target.
      const double extra = kernel.kind == KernelKind::cross_entropy ? 2.0 * static_cast<double>(sizes[0]) : 0;
      EXPECT_EQ(work.bytes_read, read + extra) << kernel.name;
      EXPECT_EQ(work.bytes_written, written) << kernel.name;
    }
  }
}

// 2·m·n·k; causal attention of n positions multiplies n(n + 1)/2 pairs twice.
TEST(KernelTable, FlopsAreTheAlgorithms) {
  EXPECT_EQ(kernel_named("gemm_bf16").work({8192, 8192, 8192}, kMi300x).flops, 2 * std::pow(8192.0, 3));
  EXPECT_EQ(kernel_named("attention_bf16_d128").work({32, 8, 4096, 0}, kMi300x).flops, 4.0 * 32 * 4096 * 4096 * 128);
  EXPECT_EQ(kernel_named("attention_bf16_d64").work({1, 1, 128, 1}, kMi300x).flops, 4.0 * (128 * 129 / 2) * 64);
  // Backward multiplies five times where forward does twice (Dao 2023, FlashAttention-2, section 4.1).
  EXPECT_EQ(kernel_named("attention_backward_bf16_d128").work({32, 8, 4096, 0}, kMi300x).flops, 2.5 * 4.0 * 32 * 4096 * 4096 * 128);
  EXPECT_EQ(kernel_named("triad").work({1024}, kMi300x).flops, 2 * 1024);
  // A wave's iteration: 16 rows by 64 rows by 128 bytes of k = 64 bf16; 4 waves of 64 lanes in a block.
  EXPECT_EQ(kernel_named("matrix_rate_bf16").work({10, 7}, kMi300x).flops, 10.0 * 4 * 7 * 2 * 16 * 64 * 64);
  EXPECT_EQ(kernel_named("matrix_rate_bf16").work({10, 7}, {Target::sm_90, 132}).flops, 10.0 * 8 * 7 * 2 * 16 * 64 * 64);
  // Hopper's groups of 128 lanes: 64 by 256 rows.
  EXPECT_EQ(kernel_named("matrix_rate_bf16_wgmma").work({132, 5}, {Target::sm_90a, 132}).flops, 132.0 * 2 * 5 * 2 * 64 * 256 * 64);
  EXPECT_EQ(kernel_named("matrix_rate_fp8_32x32").work({1, 1}, kMi300x).flops, 4.0 * 2 * 32 * 64 * 128);
}

TEST(KernelTable, SaysWhatItCannotRun) {
  EXPECT_NE(kernel_named("gemm_bf16").cannot({128, 128, 100}), "");
  EXPECT_NE(kernel_named("attention_bf16_d64").cannot({3, 2, 128, 0}), "");
  EXPECT_NE(kernel_named("attention_bf16_d64").cannot({2, 2, 100, 0}), "");
  EXPECT_NE(kernel_named("cache_read").cannot({3 * 1024, 4, 1}), "");
  EXPECT_NE(kernel_named("all_reduce_fp32").cannot({64, 1}), "");
  EXPECT_EQ(kernel_named("gemm_bf16").cannot({1, 50257, 768}), "");
}

TEST(KernelTable, InputsAreTheSameForTheSameSeed) {
  const Kernel& gemm = kernel_named("gemm_bf16");
  const Sizes sizes{8, 8, 32};
  EXPECT_EQ(make_buffers(gemm, sizes, kMi300x, 1), make_buffers(gemm, sizes, kMi300x, 1));
  EXPECT_NE(make_buffers(gemm, sizes, kMi300x, 1)[0], make_buffers(gemm, sizes, kMi300x, 2)[0]);
  EXPECT_NE(make_buffers(gemm, sizes, kMi300x, 1, 0)[0], make_buffers(gemm, sizes, kMi300x, 1, 1)[0]);
}

// A kernel that wrote nothing leaves NaN; the check must fail on it, and on a single wrong element of every output.
TEST(KernelTable, ChecksFailOnWhatWasNotComputed) {
  for (const Kernel& kernel : kernel_table()) {
    if (kernel.kind == KernelKind::empty) continue;
    const Sizes sizes = small_problems(kernel).front();
    std::vector<HostBuffers> ranks;
    for (int rank = 0; rank < (kernel.collective() ? sizes[1] : 1); ++rank) ranks.push_back(make_buffers(kernel, sizes, kMi300x, 3, rank));
    EXPECT_FALSE(check_answer(kernel, sizes, kMi300x, ranks, ranks).passed()) << kernel.name;
  }
}

TEST(KernelTable, ArgumentsArePackedInOrder) {
  int place;
  PackedArguments packed(kernel_named("all_reduce_fp32"), {64, 2}, {&place, nullptr}, {1, 5});
  void** p = packed.pointers();
  EXPECT_EQ(*static_cast<void**>(p[0]), &place);
  EXPECT_EQ(*static_cast<std::uint64_t*>(p[2]), 64u);
  EXPECT_EQ(*static_cast<std::int32_t*>(p[3]), 2);
  EXPECT_EQ(*static_cast<std::int32_t*>(p[4]), 1);
  EXPECT_EQ(*static_cast<std::int32_t*>(p[5]), 5);
  PackedArguments triad(kernel_named("triad"), {64}, {nullptr, nullptr, nullptr});
  EXPECT_EQ(*static_cast<float*>(triad.pointers()[4]), 0.4f);
  EXPECT_THROW(PackedArguments(kernel_named("triad"), {64}, {nullptr}), Error);
  EXPECT_THROW(PackedArguments(kernel_named("all_reduce_fp32"), {64, 2}, {nullptr, nullptr}, {1}), Error);
}

// Every 16-bit pattern survives the way through fp32, and halves are rounded to even.
TEST(Elements, HalfFormatsRoundTrip) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    ASSERT_TRUE(std::isnan(float_of_fp16(half)) || fp16_of_float(float_of_fp16(half)) == half) << bits;
    ASSERT_TRUE(std::isnan(float_of_bf16(half)) || bf16_of_float(float_of_bf16(half)) == half) << bits;
  }
  EXPECT_EQ(fp16_of_float(1 + 1.0f / 2048), 0x3C00);  // halfway between 1 and the next: to even
  EXPECT_EQ(fp16_of_float(1 + 3.0f / 2048), 0x3C02);
  EXPECT_EQ(fp16_of_float(65519), 0x7BFF);
  EXPECT_EQ(fp16_of_float(65520), 0x7C00);
  EXPECT_EQ(bf16_of_float(1 + 1.0f / 256), 0x3F80);
  EXPECT_EQ(bf16_of_float(1 + 3.0f / 256), 0x3F82);
  EXPECT_TRUE(std::isnan(float_of_bf16(bf16_of_float(std::numeric_limits<float>::quiet_NaN()))));
}

// OCP 8-bit floating point specification, table 2: largest 448; MI300's form (bias 8) has 240. Least subnormals 2⁻⁹ and 2⁻¹⁰.
TEST(Elements, BothFp8Formats) {
  EXPECT_EQ(float_of_fp8(0x7E, Fp8Format::e4m3_ocp), 448);
  EXPECT_EQ(float_of_fp8(0x7F, Fp8Format::e4m3_fnuz), 240);
  EXPECT_EQ(float_of_fp8(0x01, Fp8Format::e4m3_ocp), std::ldexp(1.0f, -9));
  EXPECT_EQ(float_of_fp8(0x01, Fp8Format::e4m3_fnuz), std::ldexp(1.0f, -10));
  EXPECT_EQ(float_of_fp8(0xB8, Fp8Format::e4m3_ocp), -1);
  EXPECT_TRUE(std::isnan(float_of_fp8(0xFF, Fp8Format::e4m3_ocp)));
  EXPECT_TRUE(std::isnan(float_of_fp8(0x80, Fp8Format::e4m3_fnuz)));
}

}  // namespace
}  // namespace plimsoll::calibrate
