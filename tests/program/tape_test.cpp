// The rules of eager PyTorch that decide when memory lives, each on the smallest graph that shows it.
#include "program/tape.hpp"

#include <gtest/gtest.h>

#include "devices.hpp"
#include "plimsoll/error.hpp"
#include "program/checkpoint.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {
namespace {

constexpr std::int64_t kRows = 64, kColumns = 64;
constexpr std::int64_t kBytes = kRows * kColumns * 4;

/// Bytes alive after every instruction of the part, without scratch that is given back at once.
std::int64_t peak_of(const std::vector<Instruction>& part, std::int64_t start = 0) {
  std::vector<std::int64_t> size(100000, 0);
  std::int64_t alive = start, peak = start;
  for (const Instruction& instruction : part) {
    if (instruction.kind == InstructionKind::alloc) {
      size[instruction.id] = instruction.bytes;
      alive += instruction.bytes;
      peak = std::max(peak, alive);
    } else if (instruction.kind == InstructionKind::free) {
      alive -= size[instruction.id];
    }
  }
  return peak;
}

int count(const std::vector<Instruction>& part, InstructionKind kind, std::int64_t bytes = -1) {
  int n = 0;
  for (const Instruction& instruction : part) n += instruction.kind == kind && (bytes < 0 || instruction.bytes == bytes) ? 1 : 0;
  return n;
}

class TapeTest : public ::testing::Test {
 protected:
  Tape tape{h100()};
  Tensor weight = tape.parameter({kRows, kColumns}, DType::fp32, true);
  void SetUp() override { tape.record_into(Tape::Part::step); }
  const std::vector<Instruction>& step() { return tape.program().step; }
};

TEST_F(TapeTest, AStorageDiesWithItsLastReference) {
  Tensor a = tape.empty({kRows, kColumns}, DType::fp32);
  Tensor view_of_a = view(a, {kRows * kColumns});
  a.reset();
  EXPECT_EQ(count(step(), InstructionKind::free), 0) << "the view keeps it";
  view_of_a.reset();
  EXPECT_EQ(count(step(), InstructionKind::free), 1);
}

TEST_F(TapeTest, ATensorThatNobodyMadeEndsInAnErrorInsteadOfACrash) {
  try {
    add(weight, Tensor());
    FAIL() << "an undefined tensor was added";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::internal);
  }
}

TEST_F(TapeTest, AddSavesNothingAndMultiplySavesBothFactors) {
  {
    Tensor sum = add(weight, weight);
    sum = add(sum, sum);
    EXPECT_EQ(count(step(), InstructionKind::free), 1) << "the first sum is needed by no gradient";
  }
  EXPECT_EQ(count(step(), InstructionKind::free), 2);
  Tensor product = multiply(add(weight, weight), add(weight, weight));
  EXPECT_EQ(count(step(), InstructionKind::free), 2) << "both factors are saved";
}

TEST_F(TapeTest, AFactorIsSavedOnlyForTheOtherOnesGradient) {
  const Tensor constant = tape.empty({kRows, kColumns}, DType::fp32);
  Tensor hidden = add(weight, weight);
  hidden = multiply(hidden, constant);
  EXPECT_EQ(count(step(), InstructionKind::free), 1) << "the gradient of `hidden` needs the constant only";
}

// loss = sum(relu(w)): the gradient of the leaf is the tensor that relu's backward made, without a copy.
TEST_F(TapeTest, ALeafStealsAGradientThatNobodyElseHolds) {
  Tensor loss = sum(relu(weight), {}, false);
  tape.backward(loss);
  ASSERT_TRUE(weight.grad());
  EXPECT_EQ(count(step(), InstructionKind::alloc, kBytes), 2) << "relu's output and its gradient";
}

// grad_layout_contract.h: a leaf with gaps takes a gradient that lies row by row; a dense one wants its own strides, and a copy where those
// differ.
TEST_F(TapeTest, AGradientLiesAsItsLeafWantsIt) {
  const Tensor wide = tape.empty({kRows, 2 * kColumns}, DType::fp32);
  const Tensor gaps = slice(wide, 1, 0, kColumns).detach();
  gaps.set_requires_grad(true);
  tape.backward(sum(relu(gaps), {}, false));
  EXPECT_EQ(count(step(), InstructionKind::alloc, kBytes), 2) << "relu's output and its gradient, which the leaf takes";
  const Tensor dense = transpose(tape.empty({kRows, kColumns}, DType::fp32), 0, 1).detach();
  dense.set_requires_grad(true);
  tape.backward(sum(relu(contiguous(dense)), {}, false));
  EXPECT_EQ(count(step(), InstructionKind::alloc, kBytes), 2 + 5)
      << "the leaf, its copy, relu's output and gradient, and the gradient's copy";
}

// bf16 weight · fp32 factor is fp32, and so is the weight's gradient. AccumulateGrad takes it in the weight's own type, unless the leaf's
// grad_dtype is None: then it stays as it came.
TEST_F(TapeTest, ALeafCastsAGradientUnlessItTakesAny) {
  const Tensor factor = tape.empty({kRows, kColumns}, DType::fp32);
  const auto type_of_gradient = [&](bool any) {
    const Tensor narrow = tape.parameter({kRows, kColumns}, DType::bf16, true);
    narrow.impl()->any_grad_dtype = any;
    Tensor loss = sum(multiply(narrow, factor), {}, false);
    tape.backward(loss);
    return narrow.grad().dtype();
  };
  EXPECT_EQ(type_of_gradient(false), DType::bf16);
  EXPECT_EQ(type_of_gradient(true), DType::fp32);
}

// loss = sum(w + w): both gradients of the sum are the same expanded tensor, so the leaf's two parts are added into a new one.
TEST_F(TapeTest, ASharedGradientIsNotAddedInPlace) {
  Tensor loss = sum(add(weight, weight), {}, false);
  tape.backward(loss);
  EXPECT_EQ(weight.grad().strides(), contiguous_strides(weight.sizes()));
  EXPECT_EQ(count(step(), InstructionKind::alloc, kBytes), 2) << "the sum, and the gradients added";
}

// Two branches, each with a gradient tensor of its own: the second is added into the first.
TEST_F(TapeTest, AnOwnGradientIsAddedInPlace) {
  Tensor hidden = relu(weight);
  Tensor loss = add(sum(relu(hidden), {}, false), sum(relu(hidden), {}, false));
  const int before = count(step(), InstructionKind::alloc, kBytes);
  tape.backward(loss);
  EXPECT_EQ(count(step(), InstructionKind::alloc, kBytes) - before, 3) << "one gradient per relu; no fourth tensor for their sum";
}

TEST_F(TapeTest, TheSecondMicroBatchAddsIntoTheGradient) {
  for (int i = 0; i < 2; ++i) tape.backward(sum(relu(weight), {}, false));
  const int twice = count(step(), InstructionKind::alloc, kBytes);
  EXPECT_EQ(twice, 4) << "relu's output and gradient in each; the second gradient is added in place and dies";
  EXPECT_EQ(count(step(), InstructionKind::free), count(step(), InstructionKind::alloc) - 1) << "only the gradient is left";
}

// y = relu(relu(relu(w))) · … keeps every output; checkpointed, forward keeps nothing but its input, and backward recomputes once.
TEST_F(TapeTest, ACheckpointKeepsItsInputAndRecomputesOnce) {
  const Region region = [](const std::vector<Tensor>& arguments) {
    Tensor x = relu(arguments[0]);
    x = relu(x);
    return relu(x);
  };
  Tensor loss = sum(checkpoint(tape, region, {weight}), {}, false);
  EXPECT_EQ(count(step(), InstructionKind::alloc, kBytes), 3);
  EXPECT_EQ(count(step(), InstructionKind::free), 3) << "all three outputs are gone";
  tape.backward(loss);
  // Early stop: the third relu saves its output, so it runs again too; then three gradients.
  EXPECT_EQ(count(step(), InstructionKind::alloc, kBytes), 9);
}

// The product's output is saved by nobody: since 2.1 it is not made again. relu's is, and dies with the product's backward.
TEST_F(TapeTest, BeforeTorch21ACheckpointRunsToItsEnd) {
  const Region region = [](const std::vector<Tensor>& arguments) {
    const Tensor x = relu(arguments[0]);
    return multiply(x, x);
  };
  const auto outputs = [&](const Release& release) {
    tape.torch = TorchRelease(release);
    const int before = count(step(), InstructionKind::alloc, kBytes);
    tape.backward(sum(checkpoint(tape, region, {weight}), {}, false));
    weight.grad().reset();
    return count(step(), InstructionKind::alloc, kBytes) - before;
  };
  EXPECT_EQ(outputs(Release(2, 0)) - outputs(Release(2, 1)), 1);
}

TEST_F(TapeTest, ReentrantAndOtherCheckpointsGiveTheSameGradientSizes) {
  const Region region = [](const std::vector<Tensor>& arguments) { return relu(multiply(arguments[0], arguments[0])); };
  tape.backward(sum(checkpoint_reentrant(tape, region, {relu(weight)}), {}, false));
  ASSERT_TRUE(weight.grad());
  EXPECT_EQ(weight.grad().sizes(), weight.sizes());
  weight.grad().reset();
  EXPECT_EQ(count(step(), InstructionKind::alloc), count(step(), InstructionKind::free)) << "nothing survives the step";
}

TEST_F(TapeTest, AutocastCastsALeafOncePerRegionAndANonLeafEveryTime) {
  const Tensor x = tape.empty({8, kColumns}, DType::fp32);
  {
    const AutocastScope autocast(tape, true, DType::bf16);
    const Tensor a = linear(x, weight), b = linear(x, weight);
    EXPECT_EQ(count(step(), InstructionKind::alloc, kBytes / 2), 1) << "the weight's cast is cached";
    EXPECT_EQ(count(step(), InstructionKind::alloc, 8 * kColumns * 2), 2 + 2) << "the input is cast twice; two outputs";
  }
}

TEST_F(TapeTest, EveryProductTakesAndReturnsItsWorkspace) {
  const Tensor x = tape.empty({8, kColumns}, DType::fp32);
  const Tensor y = linear(x, weight);
  EXPECT_EQ(count(step(), InstructionKind::alloc, 33554432), 1);
  EXPECT_LT(peak_of(step()), 33554432 + 3 * kBytes);
}

// setReduceConfig on an H100: 2048 × 2048 bf16 summed over rows is split over 32 blocks with 4-wide outputs: 2048 · 4 · 32 · 32 · 4 bytes.
TEST_F(TapeTest, AColumnSumHasItsScratch) {
  const Tensor x = tape.empty({2048, 2048}, DType::bf16);
  sum(x, {0}, false);
  EXPECT_EQ(count(step(), InstructionKind::alloc, 33554432), 1);
  EXPECT_EQ(count(step(), InstructionKind::alloc, 64), 1) << "one semaphore per block of outputs";
}

TEST_F(TapeTest, ADeepGraphDiesWithoutRecursion) {
  Tensor x = weight;
  for (int i = 0; i < 200000; ++i) x = add_scalar(x);
  x.reset();
  EXPECT_EQ(count(step(), InstructionKind::alloc), count(step(), InstructionKind::free));
}

}  // namespace
}  // namespace plimsoll::program
