// What kernels say of themselves, and which of them an operator launches: by layout, type, release and size.
#include "program/kernels.hpp"

#include <gtest/gtest.h>

#include "devices.hpp"
#include "program/ops/attention_choice.hpp"
#include "program/ops/attention_kernels.hpp"
#include "program/optimizers/optimizer.hpp"

namespace plimsoll::program {
namespace {

class KernelsTest : public ::testing::Test {
 protected:
  Tape tape{h100()};
  void SetUp() override { tape.record_into(Tape::Part::step); }

  /// The kernels of the step so far, in the order of their launches.
  std::vector<Kernel> launched() {
    std::vector<Kernel> all;
    for (const Instruction& instruction : tape.program().step)
      if (instruction.kind == InstructionKind::kernel) all.push_back(tape.program().kernels[instruction.id]);
    return all;
  }
  std::vector<Product> products() {
    std::vector<Product> all;
    for (const Kernel& kernel : launched())
      if (kernel.product()) all.push_back(*kernel.product());
    return all;
  }
  int count(InstructionKind kind) {
    int n = 0;
    for (const Instruction& instruction : tape.program().step) n += instruction.kind == kind ? 1 : 0;
    return n;
  }
  int memory_sets() {
    int n = 0;
    for (const Copy& copy : tape.program().copies) n += copy.direction == Copy::Direction::set ? 1 : 0;
    return n;
  }
  Tensor input(const Dims& sizes, DType type = DType::bf16) {
    Tensor x = tape.empty(sizes, type);
    x.set_requires_grad(true);
    return x;
  }
};

struct Expected {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b;
};

void expect_product(const Product& p, const Expected& e) {
  EXPECT_EQ(p.m, e.m);
  EXPECT_EQ(p.n, e.n);
  EXPECT_EQ(p.k, e.k);
  EXPECT_EQ(p.transpose_a, e.transpose_a);
  EXPECT_EQ(p.transpose_b, e.transpose_b);
}

// y[8, 32] = x[8, 16] · W[32, 16]ᵀ. Column-major, A is the right factor: W as it lies is [16, 32], so it is taken transposed (T N). The
// weight's gradient gᵀ · x has x as it lies and g transposed (N T), the input's g · W both as they lie (N N).
TEST_F(KernelsTest, ALinearIsTnForwardAndNtAndNnBackward) {
  const Tensor weight = tape.parameter({32, 16}, DType::bf16, true), x = input({8, 16});
  Tensor y = linear(x, weight);
  tape.backward(y);
  ASSERT_EQ(products().size(), 3U);
  expect_product(products()[0], {32, 8, 16, true, false});
  expect_product(products()[1], {16, 32, 8, false, true});
  expect_product(products()[2], {16, 8, 32, false, false});
}

// GPT-2's Conv1D keeps its weight as [in, out]: forward N N, the input's gradient g · Wᵀ T N, the weight's xᵀ · g N T with m = out.
TEST_F(KernelsTest, AConv1dMultipliesItsWeightAsItLies) {
  const Tensor weight = tape.parameter({16, 32}, DType::bf16, true), bias = tape.parameter({32}, DType::bf16, true), x = input({8, 16});
  Tensor y = addmm(bias, x, weight);
  tape.backward(y);
  ASSERT_EQ(products().size(), 3U);
  expect_product(products()[0], {32, 8, 16, false, false});
  EXPECT_EQ(products()[0].epilogue, Epilogue::bias);
  expect_product(products()[1], {16, 8, 32, true, false});
  expect_product(products()[2], {32, 16, 8, false, true});
}

// Rows of 50,257 elements of two bytes begin at odd multiples of two bytes; rows of 50,304 at multiples of 16.
TEST_F(KernelsTest, AnOddVocabularyIsAlignedToItsElements) {
  for (const std::int64_t vocabulary : {std::int64_t{50257}, std::int64_t{50304}})
    linear(input({8, 64}), tape.parameter({vocabulary, 64}, DType::bf16, true));
  EXPECT_EQ(products()[0].alignment, 2);
  EXPECT_EQ(products()[1].alignment, 16);
}

TEST_F(KernelsTest, Tf32IsTheTapesChoiceForFp32Alone) {
  tape.tf32 = true;
  for (const DType type : {DType::fp32, DType::bf16}) linear(input({8, 16}, type), tape.parameter({32, 16}, type, true));
  EXPECT_EQ(products()[0].arithmetic, Arithmetic::tf32);
  EXPECT_EQ(products()[1].arithmetic, Arithmetic::native);
}

// cuBLAS of wheels before 1.13 multiplied 16-bit batches on tensor cores where each matrix begins at a multiple of 16 bytes. Of
// [batch, length, heads, width] seen as a batch over heads, one head begins `width` elements behind the other: heads of 108 elements at multiples
// of 8 bytes, of 128 at multiples of 256.
TEST_F(KernelsTest, BatchesOff16BytesLeftTensorCoresBefore113) {
  const auto arithmetic = [&](std::int64_t width, const Release& torch, DType type) {
    tape.torch = TorchRelease(torch);
    const Tensor heads = transpose(tape.empty({64, 4, width}, type), 0, 1);
    bmm(heads, tape.empty({4, width, 64}, type));
    return products().back().arithmetic;
  };
  EXPECT_EQ(arithmetic(108, Release(1, 11), DType::fp16), Arithmetic::simt);
  EXPECT_EQ(arithmetic(128, Release(1, 11), DType::fp16), Arithmetic::native);
  EXPECT_EQ(arithmetic(108, Release(1, 13), DType::fp16), Arithmetic::native);
  EXPECT_EQ(arithmetic(108, Release(1, 11), DType::fp32), Arithmetic::native);
}

Pointwise pointwise_of(const Kernel& kernel) { return std::get<Pointwise>(kernel.work); }

// x · column: TensorIterator reads the column again for every element of its row.
TEST_F(KernelsTest, AFactorThatIsReadAgainIsBroadcast) {
  multiply(tape.empty({64, 32}, DType::fp32), tape.empty({64, 1}, DType::fp32));
  const Pointwise kernel = pointwise_of(launched().front());
  EXPECT_EQ(kernel.operands[0].walk, Walk::contiguous);
  EXPECT_EQ(kernel.operands[1].walk, Walk::broadcast);
  EXPECT_EQ(kernel.operands[1].elements, 64) << "each element counts once";
  EXPECT_EQ(kernel.operands[2].walk, Walk::contiguous);
}

// Two tensors of one permuted layout are walked in the order of memory; a part of each row is not.
TEST_F(KernelsTest, APermutedLayoutOfAllOperandsIsContiguousAndAPartOfRowsIsNot) {
  const Tensor a = transpose(tape.empty({2, 8, 4, 16}, DType::bf16), 1, 2);
  add(a, a);
  EXPECT_EQ(pointwise_of(launched().back()).operands[0].walk, Walk::contiguous);
  EXPECT_EQ(pointwise_of(launched().back()).operands[2].walk, Walk::contiguous);
  negate(slice(a, -1, 8, 16));
  EXPECT_EQ(pointwise_of(launched().back()).operands[0].walk, Walk::strided);
}

// The gradient of a bias keeps the innermost dimension; a mean over the last one reduces neighbours.
TEST_F(KernelsTest, AReductionSaysWhetherNeighboursAreReduced) {
  const Tensor x = tape.empty({64, 32}, DType::fp32);
  sum(x, {0}, false);
  sum(x, {1}, false);
  sum(x, {}, false);
  const std::vector<Kernel> kernels = launched();
  EXPECT_EQ(std::get<Reduction>(kernels[0].work).axis, Reduction::Axis::outer);
  EXPECT_EQ(std::get<Reduction>(kernels[1].work).axis, Reduction::Axis::inner);
  EXPECT_EQ(std::get<Reduction>(kernels[2].work).axis, Reduction::Axis::all);
}

// ---- releases --------------------------------------------------------------------------------------------------------

// 4 KB of arguments hold 320 blocks of 65,536 elements and 110 tensors of one list; 32 KB seven times that.
TEST_F(KernelsTest, ForeachIsCutByBlocksAndByTensors) {
  const std::vector<Tensor> large{tape.empty({65536 * 320 + 1}, DType::bf16)};
  const std::vector<Tensor> many(111, tape.empty({8}, DType::bf16));
  for (const int minor : {11, 15}) {
    tape.torch = TorchRelease(Release(2, minor));
    const std::size_t before = launched().size();
    launch_foreach(tape, large, 1, 1);
    launch_foreach(tape, many, 1, 1);
    EXPECT_EQ(launched().size() - before, minor == 11 ? 4U : 2U);
  }
}

// The same over lists whose tensors are not at hand: 2,240 blocks of 65,536 elements to a launch, whatever tensors they are of.
TEST_F(KernelsTest, ForeachOfSizesIsCutAsThatOfTensors) {
  constexpr std::int64_t kOneLaunch = std::int64_t{65536} * 2240;
  launch_foreach(tape, {kOneLaunch / 2, 0, kOneLaunch / 2}, DType::fp32, 2, 1, {.made = 1, .written_as = DType::bf16});
  ASSERT_EQ(launched().size(), 1U);
  EXPECT_EQ(launched().front().bytes_read(), kOneLaunch * 4);
  EXPECT_EQ(launched().front().bytes_written(), kOneLaunch * 2);
  launch_foreach(tape, {kOneLaunch, 1}, DType::fp32, 2, 1);
  EXPECT_EQ(launched().size(), 3U);
}

TEST_F(KernelsTest, ZerosAreAKernelInEarlierReleases) {
  zeros(tape, {64}, DType::fp32);
  EXPECT_EQ(launched().size(), 0U);
  EXPECT_EQ(memory_sets(), 1);
  tape.torch = TorchRelease(Release(2, 11));
  zeros(tape, {64}, DType::fp32);
  EXPECT_EQ(launched().size(), 1U);
  EXPECT_EQ(memory_sets(), 1);
}

// 2.11 keeps one workspace for forward's thread and one for the engine's; later every product takes its own and gives it back.
TEST_F(KernelsTest, AnEarlierReleaseKeepsTwoWorkspaces) {
  tape.torch = TorchRelease(Release(2, 11));
  tape.blas = blas_workspaces(tape.device, tape.torch);
  const Tensor weight = tape.parameter({32, 16}, DType::bf16, true);
  for (int pass = 0; pass < 2; ++pass) {
    Tensor y = linear(input({8, 16}), weight);
    tape.backward(y);
  }
  int made = 0;
  for (const Instruction& instruction : tape.program().step)
    made += instruction.kind == InstructionKind::alloc && instruction.bytes == tape.blas.blas ? 1 : 0;
  EXPECT_EQ(made, 2);
}

// 2,048 x 8,192 results are 8 · 64 tiles of 256 x 128, more than two waves of 132; 512 x 8,192 are 128 (traced on an H100).
TEST_F(KernelsTest, ProductsOfMoreThanTwoWavesSetACounterFirst) {
  linear(input({8192, 2048}), tape.parameter({512, 2048}, DType::bf16, true));
  EXPECT_EQ(memory_sets(), 0);
  linear(input({8192, 2048}), tape.parameter({2048, 2048}, DType::bf16, true));
  EXPECT_EQ(memory_sets(), 1);
}

// ---- scaled_dot_product_attention --------------------------------------------------------------------------------------

class AttentionChoiceTest : public KernelsTest {
 protected:
  Tensor heads(std::int64_t count, DType type) { return input({2, count, 64, 64}, type); }
  SdpaBackend choice(std::int64_t query_heads, std::int64_t key_heads, DType type, const Tensor& mask = {}, bool grouped = false) {
    const Tensor key = heads(key_heads, type);
    return sdpa_backend(heads(query_heads, type), key, key, mask, {.causal = !mask, .enable_gqa = grouped});
  }
};

TEST_F(AttentionChoiceTest, CudnnComesFirstWhereItIsAllowedAndTakesSixteenBits) {
  EXPECT_EQ(choice(8, 8, DType::bf16), SdpaBackend::flash);
  tape.cudnn_attention = true;
  EXPECT_EQ(choice(8, 8, DType::bf16), SdpaBackend::cudnn);
  EXPECT_EQ(choice(8, 2, DType::bf16, {}, true), SdpaBackend::cudnn);
  EXPECT_EQ(choice(8, 8, DType::fp32), SdpaBackend::efficient);
}

// Queries with heads outside rows have a result that lies so, and a gradient with heads within rows. From PyTorch 2.7 on, whose cuDNN is
// newer than 9.5, its backward takes that as it is; before, of the result's strides (MHA.cpp).
TEST_F(AttentionChoiceTest, CudnnCopiesGradientsOfOtherStridesBeforeRelease27) {
  const Tensor output = heads(8, DType::bf16), gradient = transpose(input({2, 64, 8, 64}), 1, 2);
  for (const int minor : {6, 7}) {
    tape.torch = TorchRelease(Release(2, minor));
    EXPECT_EQ(cudnn_gradient(gradient, output).impl() == gradient.impl(), minor == 7);
    EXPECT_EQ(cudnn_gradient(gradient, gradient).impl(), gradient.impl());
  }
}

// Llama in fp32 and Falcon's single key head under PyTorch 2.11: the expression is written out.
TEST_F(AttentionChoiceTest, Release211WritesOutWhatLaterKernelsTake) {
  tape.cudnn_attention = true;
  for (const int minor : {11, 15}) {
    tape.torch = TorchRelease(Release(2, minor));
    const bool early = minor == 11;
    EXPECT_EQ(choice(8, 2, DType::fp32, {}, true), early ? SdpaBackend::math : SdpaBackend::efficient);
    EXPECT_EQ(choice(8, 1, DType::fp32), early ? SdpaBackend::math : SdpaBackend::efficient);
  }
}

// T5's position bias is read from a table of [buckets, heads]: its heads lie inside, which no fused kernel takes.
TEST_F(AttentionChoiceTest, AMaskWhoseRowsAreNotDenseIsWrittenOut) {
  tape.cudnn_attention = true;
  const Tensor bias = unsqueeze(permute(tape.empty({64, 64, 8}, DType::bf16), {2, 0, 1}), 0);
  EXPECT_EQ(choice(8, 8, DType::bf16, bias), SdpaBackend::math);
  EXPECT_EQ(choice(8, 8, DType::bf16, contiguous(bias)), SdpaBackend::cudnn);
}

// The kernels of Llama-3.2-1B's attention in fp32, as a profiler of PyTorch 2.11 on an H100 lists them: scale, ones, tril, two scalars and
// where, both repeats, the keys' scale, the copy of the queries, the product, the mask, softmax with its guard (is minus infinity, all,
// zero, where), the product.
TEST_F(AttentionChoiceTest, MathAttentionIsWhatTheProfilerLists) {
  tape.torch = TorchRelease(Release(2, 11));
  const Tensor query = transpose(input({2, 64, 8, 16}, DType::fp32), 1, 2), key = transpose(input({2, 64, 2, 16}, DType::fp32), 1, 2);
  const std::size_t before = launched().size();
  scaled_dot_product_attention(query, key, key, {}, {.causal = true, .enable_gqa = true});
  std::string kinds;
  for (std::size_t i = before; i < launched().size(); ++i) {
    const Kernel kernel = launched()[i];
    kinds += kernel.product()                                 ? 'p'
             : std::holds_alternative<Pointwise>(kernel.work) ? 'e'
             : std::holds_alternative<Reduction>(kernel.work) ? 'r'
                                                              : 's';
  }
  EXPECT_EQ(kinds,
            "eeeeee"
            "ee"
            "e"
            "e"
            "p"
            "e"
            "s"
            "e"
            "r"
            "ee"
            "p");
}

// cuDNN's backward: row sums, the kernel itself, dQ in 16 bits, and dK and dV summed over the heads that share a key head.
TEST_F(AttentionChoiceTest, CudnnsBackwardHasItsHelpers) {
  tape.cudnn_attention = true;
  const Tensor key = heads(2, DType::bf16);
  Tensor y = scaled_dot_product_attention(heads(8, DType::bf16), key, key, {}, {.causal = true, .enable_gqa = true});
  tape.backward(y);
  std::vector<Attention::Part> parts;
  for (const Kernel& kernel : launched())
    if (kernel.attention()) parts.push_back(kernel.attention()->part);
  using Part = Attention::Part;
  EXPECT_EQ(parts, (std::vector<Part>{Part::forward, Part::delta, Part::backward, Part::convert, Part::sum_heads, Part::sum_heads}));
}

}  // namespace
}  // namespace plimsoll::program
