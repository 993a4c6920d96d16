// Which tensors a replay's kernels work on, and how cold they are.
#include "calibrate/operand_plan.hpp"

#include <gtest/gtest.h>

namespace plimsoll::calibrate {
namespace {

constexpr std::int64_t kKibi = 1024;

Instruction alloc(TensorId id, std::int64_t bytes) { return {InstructionKind::alloc, kComputeStream, Category::activation, id, bytes}; }
Instruction free(TensorId id) { return {InstructionKind::free, kComputeStream, Category::activation, id}; }
Instruction kernel(std::uint32_t index) { return {InstructionKind::kernel, kComputeStream, Category::temporary, index}; }

/// Two kernels over three tensors: `map` reads and writes 8 KiB, `shrink` reads 8 and writes 4.
PlayableRank small_rank() {
  PlayableRank rank{};
  const plimsoll::Kernel map{Unspecified{plimsoll::KernelKind::elementwise, DType::fp32, 0, 8 * kKibi, 8 * kKibi}};
  const plimsoll::Kernel shrink{Unspecified{plimsoll::KernelKind::elementwise, DType::fp32, 0, 8 * kKibi, 4 * kKibi}};
  rank.program.kernels = {map, shrink};
  rank.program.init = {alloc(0, 8 * kKibi)};
  rank.program.step = {alloc(1, 8 * kKibi), kernel(0), alloc(2, 4 * kKibi), kernel(1), kernel(0), free(2), free(1)};
  return rank;
}

/// Each kernel with the bytes that it says.
OperandPlan planned(const PlayableRank& rank, Target target) {
  std::vector<Operands> needs;
  for (const plimsoll::Kernel& each : rank.program.kernels) needs.push_back({each.bytes_read(), each.bytes_written()});
  return plan_operands(rank, needs, target);
}

TEST(OperandPlan, ResultsGoToTheYoungestThatHoldsThem) {
  const PlayableRank rank = small_rank();
  const PlannedPart step = planned(rank, Target::cpu).step;
  ASSERT_EQ(step.operands.size(), rank.program.step.size());
  EXPECT_EQ(step.operands[1].to, 1u);
  EXPECT_EQ(step.operands[1].from, 0u);
  EXPECT_EQ(step.operands[3].to, 2u);
  EXPECT_EQ(step.operands[3].from, 1u);
  EXPECT_EQ(step.operands[4].to, 1u);  // the youngest holds 4 KiB only
  EXPECT_EQ(step.operands[4].from, 0u);
}

TEST(OperandPlan, ReuseCountsWhatOtherWorkMoved) {
  const PlannedPart step = planned(small_rank(), Target::cpu).step;
  EXPECT_EQ(step.operands[3].from_reuse, 0);           // just written
  EXPECT_EQ(step.operands[4].from_reuse, 12 * kKibi);  // the 12 KiB of `shrink` lie between
  EXPECT_EQ(step.operands[4].to_reuse, 0);
  EXPECT_EQ(step.operands[1].from_reuse, 0);  // the last kernel of the step before read it
  // Where the third tensor was, `shrink` of the step before wrote: the two runs of `map` lie between.
  EXPECT_EQ(step.operands[3].to_reuse, 32 * kKibi);
}

TEST(OperandPlan, WhatNoTensorHoldsIsSpareMemory) {
  PlayableRank rank = small_rank();
  rank.program.kernels[0] = {Unspecified{plimsoll::KernelKind::elementwise, DType::fp32, 0, 8 * kKibi, 1 << 20}};
  const PlannedPart step = planned(rank, Target::cpu).step;
  EXPECT_EQ(step.operands[1].to, PlannedOperands::kSpare);
  EXPECT_EQ(step.operands[1].from, 1u);
  EXPECT_EQ(step.operands[4].to_reuse, 12 * kKibi);  // the same spare memory: `shrink` lies between
}

TEST(OperandPlan, ProductsOfAGpuReadSpareMemory) {
  PlayableRank rank = small_rank();
  Product product;
  product.m = product.n = product.k = 16;
  rank.program.kernels[0] = {product};
  EXPECT_EQ(planned(rank, Target::gfx942).step.operands[1].from, PlannedOperands::kSpare);
  EXPECT_NE(planned(rank, Target::cpu).step.operands[1].from, PlannedOperands::kSpare);
}

}  // namespace
}  // namespace plimsoll::calibrate
