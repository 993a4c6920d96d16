// What kernels' names and grids tell.
#include "rehearse/kernel_names.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "rehearse/record.hpp"

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

/// 16 blocks of 128 queries, 32 heads of 64: causal attention of 2048 tokens does half of 4·s²·d·h. That both lengths are equal and no heads
/// are shared is not told, so no more is said than FLOPs and bytes.
TEST(KernelNames, FlashAttentionFlopsFollowFromTheGrid) {
  const NamedKernel flash = classify_kernel(kFlashForward, launch(16, 1, 32, 128), 8);
  EXPECT_EQ(flash.kernel.kind(), KernelKind::attention);
  EXPECT_EQ(flash.kernel.flops(), 4.0 * 2048 * 2048 * 64 * 32 / 2);
  EXPECT_EQ(flash.kernel.attention(), nullptr);
}

/// A foreach kernel's grid counts chunks of 65536 elements; addcmul reads three lists of bf16 and writes the first of them.
TEST(KernelNames, ForeachKernelsWalkTheirLists) {
  const NamedKernel foreach = classify_kernel(
      "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<3>, "
      "PointwiseOpScalarFunctor<c10::BFloat16, 3, 3, 0> >(x)",
      launch(10, 1, 1, 512), 8);
  EXPECT_EQ(foreach.kernel.kind(), KernelKind::multi_tensor);
  EXPECT_EQ(foreach.kernel.bytes_read() + foreach.kernel.bytes_written(), (3 + 1) * 10 * 65536 * 2);
}

/// CopyFunctor<written, read, …>: two chunks of 65536 elements, 4 bytes read and 2 written of each.
TEST(KernelNames, ForeachCopiesConvert) {
  const NamedKernel copy = classify_kernel(
      "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<2>, "
      "at::native::(anonymous namespace)::CopyFunctor<c10::BFloat16, float, 2, 1, 1>, at::native::Copy<c10::BFloat16, float> >(x)",
      launch(2, 1, 1, 512), 8);
  EXPECT_EQ(copy.kernel.bytes_read(), 2 * 65536 * 4);
  EXPECT_EQ(copy.kernel.bytes_written(), 2 * 65536 * 2);
}

TEST(KernelNames, UnknownKernelsAreCountedByTheirThreads) {
  const NamedKernel unknown = classify_kernel("my_kernel(float*)", launch(10, 2, 1, 256), 8);
  EXPECT_FALSE(unknown.bytes_known);
  EXPECT_EQ(unknown.kernel.bytes_read(), 10 * 2 * 256 * 16);
}

// ---- what arguments tell ---------------------------------------------------------------------------------------------

/// The tail of a record's Kernel event.
class Kept {
 public:
  Kept& value(std::uint16_t parameter, std::string_view bytes) {
    const record::Argument header{parameter, static_cast<std::uint16_t>(bytes.size()), 0};
    text_.append(reinterpret_cast<const char*>(&header), sizeof header).append(bytes).append((8 - bytes.size() % 8) % 8, '\0');
    return *this;
  }
  template <class Number>
  Kept& number(std::uint16_t parameter, Number value) {
    return this->value(parameter, {reinterpret_cast<const char*>(&value), sizeof value});
  }
  Arguments arguments() const { return Arguments(text_); }

 private:
  std::string text_;
};

/// Words of a structure, the rest of it zero.
class Structure {
 public:
  explicit Structure(std::size_t bytes) : words_(bytes / 4) {}
  Structure& at(std::size_t byte, std::initializer_list<std::int32_t> values) {
    std::copy(values.begin(), values.end(), words_.begin() + static_cast<std::ptrdiff_t>(byte / 4));
    return *this;
  }
  std::string_view bytes() const { return {reinterpret_cast<const char*>(words_.data()), words_.size() * 4}; }

 private:
  std::vector<std::int32_t> words_;
};

NamedKernel classify(const std::string& name, Launch launch, const Kept& kept) {
  launch.arguments = kept.arguments();
  return classify_kernel(name, launch, 8);
}

const std::string kMultiply =
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor<float, float, float, "
    "at::native::binary_internal::MulFunctor<float> > >(at::TensorIteratorBase&, at::native::BinaryFunctor<float, float, float, "
    "at::native::binary_internal::MulFunctor<float> > const&)::{lambda(int)#1}>(int, at::native::gpu_kernel_impl_nocast<F>(x)::{lambda(int)#1})";

/// x[8192, 768] · r[8192, 1]: sizes (768, 8192), the fastest first, each a divisor of 12 bytes behind the number of dimensions; strides in
/// bytes behind 25 of them: the result (4, 3072), x the same, r (0, 4), which is read 768 times over.
TEST(KernelArguments, StridesOfALegacyKernelSayHowItsOperandsAreWalked) {
  Structure closure(404);
  closure.at(0, {2}).at(4, {768}).at(16, {8192}).at(304, {4, 4, 0}).at(316, {3072, 3072, 4});
  const Kernel kernel = classify(kMultiply, launch(24576, 1, 1, 128), Kept().number<std::int32_t>(0, 8192 * 768).value(1, closure.bytes())).kernel;
  const std::int64_t all = 8192 * 768;
  EXPECT_EQ(kernel, Kernel{(Pointwise{Pointwise::Form::map, all,
                                      Operands({{all, DType::fp32}, {8192, DType::fp32, Walk::broadcast}}, {{all, DType::fp32}})})});
}

/// Without arguments, or with those of another layout (sizes that are not N elements together), the walk is open.
TEST(KernelArguments, WithoutStridesTheWalkIsNotGuessed) {
  Structure damaged(404);
  damaged.at(0, {2}).at(4, {768}).at(16, {77});
  for (const Kept& kept : {Kept(), Kept().number<std::int32_t>(0, 8192 * 768).value(1, damaged.bytes()), Kept().value(1, "short")}) {
    const NamedKernel named = classify(kMultiply, launch(24576, 1, 1, 128), kept);
    ASSERT_TRUE(std::holds_alternative<Unspecified>(named.kernel.work));
    EXPECT_EQ(named.kernel.bytes_read(), 2 * 8192 * 768 * 4);
  }
}

/// A cast from fp32 (ScalarType 6) to bf16 (15) by the kernel of any two types: a closure of int64, a loader and a storer with their types.
TEST(KernelArguments, CastsTakeTheTypesOfLoaderAndStorer) {
  const std::string cast =
      "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() "
      "const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul>, 4, TrivialOffsetCalculator<1, unsigned int>, TrivialOffsetCalculator<1, "
      "unsigned int>, at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >(int, at::native::f, std::array<char*, 2ul>, "
      "TrivialOffsetCalculator<1, unsigned int>, TrivialOffsetCalculator<1, unsigned int>, at::native::memory::LoadWithCast<1>, "
      "at::native::memory::StoreWithCast<1>)";
  const Kept kept = Kept().number<std::int32_t>(0, 1000).value(5, std::string_view("\6\0\0\0\4\0\0\0", 8)).value(6, std::string_view("\17\0\0\0\2\0\0\0", 8));
  const Kernel kernel = classify(cast, launch(2, 1, 1, 128), kept).kernel;
  EXPECT_EQ(kernel, Kernel{(Pointwise{Pointwise::Form::map, 1000, Operands({{1000, DType::fp32}}, {{1000, DType::bf16}})})});
}

/// ReduceConfig behind 8 bytes of operator: 8192 inputs of each of 768 outputs, whose threads stand side by side over the outputs.
TEST(KernelArguments, ReductionsAreFoundByTheirBlock) {
  const std::string sum =
      "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::BFloat16, at::native::func_wrapper_t<c10::BFloat16, f>, unsigned int, "
      "float, 4, 4> >(at::native::ReduceOp<c10::BFloat16, f, unsigned int, float, 4, 4>)";
  Structure structure(512);
  structure.at(8, {4, 8192, 768, 512, 32, 128, 0, 1, 4, 1, 0, 32, 4, 128, 0, 4});
  Launch of{{6, 128, 1}, {32, 4, 1}};
  const Kernel kernel = classify(sum, of, Kept().value(0, structure.bytes())).kernel;
  EXPECT_EQ(kernel, Kernel{(Reduction{Reduction::Axis::outer, 768, 8192, Operands({{8192 * 768, DType::bf16}}, {{768, DType::fp32}})})});
}

/// A row of the vocabulary for each block; log_softmax by its epilogue. Both gradients come in, one goes out.
TEST(KernelArguments, RowsAreReadOffTheSignature) {
  const std::string backward =
      "void at::native::(anonymous namespace)::cunn_SoftMaxBackward<4, c10::BFloat16, float, float, at::native::(anonymous "
      "namespace)::LogSoftMaxBackwardEpilogue>(c10::BFloat16*, float const*, float const*, long)";
  const Kept kept = Kept().number<std::int64_t>(0, 64).number<std::int64_t>(1, 128).number<std::int64_t>(2, 256).number<std::int64_t>(3, 50257);
  const Kernel kernel = classify(backward, launch(8192, 1, 1, 512), kept).kernel;
  const std::int64_t all = 8192 * 50257LL;
  EXPECT_EQ(kernel, Kernel{(RowWise{RowWise::Function::log_softmax_backward, 8192, 50257,
                                    Operands({{all, DType::fp32}, {all, DType::fp32}}, {{all, DType::bf16}})})});
}

/// An RMSNorm without a shift: the pointer to it is null, and there is no mean.
TEST(KernelArguments, NullPointersAreNotRead) {
  const std::string norm =
      "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, true>(int, float, c10::BFloat16 const*, "
      "c10::BFloat16 const*, c10::BFloat16 const*, float*, float*, c10::BFloat16*)";
  Kept kept;
  kept.number<std::int32_t>(0, 2048);
  for (const auto& [parameter, address] : {std::pair{2, 64}, {3, 128}, {4, 0}, {5, 0}, {6, 256}, {7, 512}})
    kept.number<std::int64_t>(static_cast<std::uint16_t>(parameter), address);
  const Kernel kernel = classify(norm, launch(4096, 1, 1, 128), kept).kernel;
  const std::int64_t all = 4096 * 2048;
  EXPECT_EQ(kernel, Kernel{(RowWise{RowWise::Function::rms_norm, 4096, 2048,
                                    Operands({{all, DType::bf16}, {2048, DType::bf16}}, {{4096, DType::fp32}, {all, DType::bf16}})})});
}

/// Flash_fwd_params: 32 heads over 8 at byte 96, batch 2, 4096 queries, 4000 keys, heads of 128 at 176 and on.
TEST(KernelArguments, FlashAttentionHasItsOwnSizes) {
  Structure parameters(216);
  parameters.at(96, {32, 8, 4}).at(176, {2, 4096, 4000, 0, 64});
  const Kernel kernel = classify(kFlashForward, launch(32, 2, 32, 128), Kept().value(0, parameters.bytes())).kernel;
  const Attention* attention = kernel.attention();
  ASSERT_NE(attention, nullptr);
  EXPECT_EQ(attention->heads, 32);
  EXPECT_EQ(attention->kv_heads, 8);
  EXPECT_EQ(attention->queries, 4096);
  EXPECT_EQ(attention->keys, 4000);
  EXPECT_TRUE(attention->causal);
}

/// PyTorch 2.6 has the traits in a namespace: whether it is causal stands behind them all the same.
TEST(KernelArguments, FlashAttentionHasItsFlagsBehindTheTraits) {
  std::string within = kFlashForward;
  within.insert(within.find("kernel<") + 7, "pytorch_flash::");
  Structure parameters(216);
  parameters.at(96, {32, 8, 4}).at(176, {2, 4096, 4000, 0, 64});
  const Kernel kernel = classify(within, launch(32, 2, 32, 128), Kept().value(0, parameters.bytes())).kernel;
  ASSERT_NE(kernel.attention(), nullptr);
  EXPECT_TRUE(kernel.attention()->causal);
}

/// Bytes that say no batch are no parameters of this kernel: its sizes are those of the grid, 32 blocks of 128 queries.
TEST(KernelArguments, FlashAttentionWithoutABatchIsReadOffItsGrid) {
  Structure parameters(216);
  parameters.at(96, {32, 8, 4}).at(176, {0, 4096, 4000, 0, 64});
  const Kernel without = classify(kFlashForward, launch(32, 2, 32, 128), Kept()).kernel;
  EXPECT_EQ(classify(kFlashForward, launch(32, 2, 32, 128), Kept().value(0, parameters.bytes())).kernel, without);
}

/// AttentionKernel::Params with sliding windows (PyTorch 2.15) and without (2.3): heads of 64, 1000 queries in 16 blocks of 64, a bias.
TEST(KernelArguments, MemoryEfficientAttentionIsReadInBothLayouts) {
  const std::string name =
      "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float, cutlass::arch::Sm80, true, 64, 64, 64, true, "
      "true>::Params)";
  Structure now(216), earlier(216);
  now.at(24, {1}).at(96, {64, 64, 1000, 1200, 0, 1});
  earlier.at(24, {1}).at(92, {64, 64, 1000, 1200, 0, 1});
  for (const Structure& parameters : {now, earlier}) {
    const Kernel kernel = classify(name, launch(16, 12, 8, 128), Kept().value(0, parameters.bytes())).kernel;
    const Attention* attention = kernel.attention();
    ASSERT_NE(attention, nullptr);
    EXPECT_EQ(attention->library, AttentionLibrary::memory_efficient);
    EXPECT_EQ(attention->queries, 1000);
    EXPECT_EQ(attention->keys, 1200);
    EXPECT_EQ(attention->heads, 12);
    EXPECT_EQ(attention->batch, 8);
    EXPECT_TRUE(attention->causal);
    EXPECT_TRUE(attention->masked);
  }
}

/// AttentionBackwardKernel::Params of PyTorch 2.15 and 2.6: heads of 80, 1536 queries, a bias and no causal mask. The first has the splits of
/// keys behind the heads and strides of eight bytes; the second strides of four, among them that of a gradient that is not asked for, -1.
TEST(KernelArguments, BackwardMemoryEfficientAttentionIsReadInBothLayouts) {
  const std::string name =
      "fmha_cutlassB_bf16_aligned_128x128_k128_seqaligned_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<cutlass::arch::Sm80, "
      "cutlass::bfloat16_t, true, false, true, 128, 128, 128, true>::Params)";
  for (const bool causal : {false, true}) {
    Structure now(216), earlier(216);
    now.at(24, {1}).at(144, {80, 80, 1536, 1536, 12, 1, causal, 0, 80, 0, 80, 0, 80, 0});
    earlier.at(24, {1}).at(144, {80, 80, 1536, 1536, 12, causal, 80, 80, 80, 1536, 960, -1});
    for (const Structure& parameters : {now, earlier}) {
      const Kernel kernel = classify(name, launch(12, 12, 1, 512), Kept().value(0, parameters.bytes())).kernel;
      ASSERT_NE(kernel.attention(), nullptr);
      EXPECT_EQ(kernel.attention()->part, Attention::Part::backward);
      EXPECT_EQ(kernel.attention()->queries, 1536);
      EXPECT_EQ(kernel.attention()->causal, causal);
    }
  }
}

/// Two inputs of one cat, whose sizes lie behind 128 addresses, offsets and extents.
TEST(KernelArguments, ConcatenationsCountTheirInputs) {
  const std::string cat =
      "void at::native::(anonymous namespace)::CatArrayBatchedCopy_contig<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int, 2, "
      "128, 1>(at::native::OpaqueType<2u>*, at::native::(anonymous namespace)::CatArrInputTensorMetadata<at::native::OpaqueType<2u>, unsigned "
      "int, 128, 1>, at::native::(anonymous namespace)::TensorSizeStride<unsigned int, 4u>, int, unsigned int)";
  Structure metadata(2560);
  metadata.at(2048, {300, 700});
  const Kernel kernel = classify(cat, launch(4, 2, 1, 512), Kept().value(1, metadata.bytes())).kernel;
  EXPECT_EQ(kernel, Kernel{(Pointwise{Pointwise::Form::concatenate, 1000,
                                      Operands({{300, DType::bf16}, {700, DType::bf16}}, {{1000, DType::bf16}})})});
}

TEST(KernelNames, ShortNames) {
  EXPECT_EQ(short_name(kSilu), "vectorized_elementwise_kernel silu_kernel");
  EXPECT_EQ(short_name(kFlashForward), "pytorch_flash::flash_fwd_kernel");
  EXPECT_EQ(short_name("triton_poi_fused_add_0"), "triton_poi_fused_add_0");
}

/// 16 tokens of two heads of 64, keys and values each: however large the cache is, into which they are put.
TEST(KernelArguments, ACacheIsWrittenWhereItsTokensAre) {
  const std::string put =
      "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, unsigned char, (vllm::Fp8KVCacheDataType)2>(__nv_bfloat16 const*, "
      "__nv_bfloat16 const*, unsigned char*, unsigned char*, long const*, long, long, long, long, long, int, int, int, float const*, float "
      "const*, int)";
  const Kept kept =
      Kept().number<std::int64_t>(2, 64).number<std::int32_t>(10, 2).number<std::int32_t>(11, 64).number<std::int32_t>(12, 16);
  const NamedKernel named = classify(put, launch(16, 1, 1, 128), kept);
  constexpr std::int64_t kAll = 2 * 16 * 2 * 64;
  EXPECT_TRUE(named.bytes_known);
  EXPECT_EQ(named.kernel,
            Kernel{(Gather{Gather::Function::scatter, kAll, Operands({{kAll, DType::bf16}}, {{kAll, DType::uint8, Walk::strided}})})});
}

/// FSDP2: eight chunks 1000 bytes apart are copied out; gradients of 3 slices of 800 bytes are put side by side as they are, and from bf16 as fp32,
/// of which a slice has 200.
TEST(KernelArguments, ChunksOfManyTensorsAreCutOutAndPutTogether) {
  const Kernel cut = classify("at::native::detail::split_with_sizes_copy_out_contiguous_no_cast_kernel(char**, char**, long*, long*, long*, long, long)",
                              launch(7, 2, 1, 128), Kept().number<std::int64_t>(5, 1000).number<std::int64_t>(6, 8))
                         .kernel;
  EXPECT_EQ(cut.kind(), KernelKind::multi_tensor);
  EXPECT_EQ(cut.bytes_read(), 8000);
  EXPECT_EQ(cut.bytes_written(), 8000);
  const Kept slices = Kept().number<std::int64_t>(8, 800).number<std::int64_t>(9, 100);
  const std::string parameters = "long*, long*, long*, long*, long*, long*, long, long, long)";
  const Kernel same = classify("void at::native::detail::chunk_cat_cuda_kernel<char, char>(char**, char*, " + parameters, launch(1, 8, 3, 128), slices).kernel;
  EXPECT_EQ(same.bytes_read(), 2400);
  EXPECT_EQ(same.bytes_written(), 2400);
  const Kernel wide =
      classify("void at::native::detail::chunk_cat_cuda_kernel<float, c10::BFloat16>(c10::BFloat16**, float*, " + parameters, launch(1, 8, 3, 128), slices)
          .kernel;
  EXPECT_EQ(wide.bytes_read(), 1200);
  EXPECT_EQ(wide.bytes_written(), 2400);
}

}  // namespace
}  // namespace plimsoll::rehearse
