// What kernels' names and grids tell.
#include "rehearse/kernel_names.hpp"

#include <gtest/gtest.h>

namespace plimsoll::rehearse {
namespace {

Launch launch(std::uint64_t x, std::uint64_t y, std::uint64_t z, std::uint64_t threads) { return {{x, y, z}, {threads, 1, 1}}; }

/// Names as PyTorch 2.15 registers them, demangled (a name that is not mangled is taken as it is).
const std::string kSilu =
    "void at::native::vectorized_elementwise_kernel<8, at::native::(anonymous "
    "namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}::operator()() "
    "const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul>, false>(int, at::native::(anonymous namespace)::silu_kernel)";
const std::string kFlashForward =
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t, "
    "Flash_kernel_traits<64, 128, 128, 4, "
    "cutlass::bfloat16_t> >, false, true, false, false, true, true, false, false>(pytorch_flash::Flash_fwd_params)";

/// silu of 2048 × 8192 bf16: 16384 blocks of 128 threads, 8 elements each; 2 bytes read and 2 written per element.
TEST(KernelNames, ElementwiseTrafficFollowsFromTheGrid) {
  const NamedKernel silu = classify_kernel(kSilu, launch(16384, 1, 1, 128), 8);
  EXPECT_EQ(silu.kernel.kind(), KernelKind::elementwise);
  EXPECT_EQ(silu.kernel.type(), DType::bf16);
  EXPECT_TRUE(silu.bytes_known);
  EXPECT_EQ(silu.kernel.bytes_read(), 2048 * 8192 * 2);
  EXPECT_EQ(silu.kernel.bytes_written(), 2048 * 8192 * 2);
}

/// 16 blocks of 128 queries, 32 heads of 64: causal attention of 2048 tokens does half of 4·s²·d·h.
TEST(KernelNames, FlashAttentionFlopsFollowFromTheGrid) {
  const NamedKernel flash = classify_kernel(kFlashForward, launch(16, 1, 32, 128), 8);
  EXPECT_EQ(flash.kernel.kind(), KernelKind::attention);
  EXPECT_EQ(flash.kernel.flops(), 4.0 * 2048 * 2048 * 64 * 32 / 2);
}

/// A foreach kernel's grid counts chunks of 65536 elements; three lists of bf16.
TEST(KernelNames, ForeachKernelsWalkTheirLists) {
  const NamedKernel foreach = classify_kernel(
      "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<3>, "
      "PointwiseOpScalarFunctor<c10::BFloat16, 3, 3, 0> >(x)",
      launch(10, 1, 1, 512), 8);
  EXPECT_EQ(foreach.kernel.kind(), KernelKind::multi_tensor);
  EXPECT_EQ(foreach.kernel.bytes_read() + foreach.kernel.bytes_written(), 3 * 10 * 65536 * 2);
}

TEST(KernelNames, UnknownKernelsAreCountedByTheirThreads) {
  const NamedKernel unknown = classify_kernel("my_kernel(float*)", launch(10, 2, 1, 256), 8);
  EXPECT_FALSE(unknown.bytes_known);
  EXPECT_EQ(unknown.kernel.bytes_read(), 10 * 2 * 256 * 16);
}

TEST(KernelNames, ShortNames) {
  EXPECT_EQ(short_name(kSilu), "vectorized_elementwise_kernel silu_kernel");
  EXPECT_EQ(short_name(kFlashForward), "pytorch_flash::flash_fwd_kernel");
  EXPECT_EQ(short_name("triton_poi_fused_add_0"), "triton_poi_fused_add_0");
}

}  // namespace
}  // namespace plimsoll::rehearse
