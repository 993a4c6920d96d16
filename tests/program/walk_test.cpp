// How pointwise kernels walk through their operands, against what TensorIterator launched for the same sizes and strides on an H100.
#include <gtest/gtest.h>

#include "devices.hpp"
#include "program/kernels.hpp"
#include "program/ops/ops.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {
namespace {

class WalkTest : public ::testing::Test {
 protected:
  Tape tape{h100()};
  void SetUp() override { tape.record_into(Tape::Part::step); }

  Tensor made(const Dims& sizes) { return tape.empty(sizes, DType::bf16); }
  /// Queries as attention takes them: [batch, heads, tokens, width] of a tensor that lies as [batch, tokens, heads, width].
  Tensor heads() { return transpose(made({2, 4096, 32, 128}), 1, 2); }

  Pointwise launched(const Tensor& out, std::initializer_list<const Tensor*> ins) {
    pointwise(out, ins);
    return std::get<Pointwise>(tape.program().kernels.back().work);
  }
};

TEST_F(WalkTest, TensorsOfOneLayoutAreContiguous) {
  const Tensor x = heads(), y = heads(), out = heads();
  const Pointwise kernel = launched(out, {&x, &y});
  EXPECT_EQ(kernel.dimensions, 1);
  for (const Operand& operand : kernel.operands) EXPECT_EQ(operand.walk, Walk::contiguous);
}

// A row scaled by its own number, and by the weight of its column: two dimensions.
TEST_F(WalkTest, RowsAndColumnsAreBroadcastOverTwoDimensions) {
  const Tensor x = made({2, 4096, 4096}), rows = made({2, 4096, 1}), weight = made({4096}), out = made({2, 4096, 4096});
  const Pointwise by_row = launched(out, {&x, &rows}), by_column = launched(out, {&weight, &x});
  EXPECT_EQ(by_row.dimensions, 2);
  EXPECT_EQ(by_row.operands[1], (Operand{2 * 4096, DType::bf16, Walk::broadcast}));
  EXPECT_EQ(by_column.dimensions, 2);
  EXPECT_EQ(by_column.operands[0], (Operand{4096, DType::bf16, Walk::broadcast}));
}

// Rotary embedding: heads and batch repeat the cosines of [1, 1, tokens, width], tokens do not; tokens lie between them in memory.
TEST_F(WalkTest, RotaryCosinesLeaveFourDimensions) {
  const Tensor query = heads(), cosine = made({1, 1, 4096, 128}), out = heads();
  const Pointwise kernel = launched(out, {&query, &cosine});
  EXPECT_EQ(kernel.dimensions, 4);
  EXPECT_EQ(kernel.operands[0].walk, Walk::contiguous);
  EXPECT_EQ(kernel.operands[1].walk, Walk::broadcast);
}

// The same on a query that was made contiguous: heads and batch are one dimension, tokens and width the other.
TEST_F(WalkTest, RotaryCosinesOfContiguousQueriesLeaveTwo) {
  const Tensor query = made({2, 32, 4096, 128}), cosine = made({1, 1, 4096, 128}), out = made({2, 32, 4096, 128});
  EXPECT_EQ(launched(out, {&query, &cosine}).dimensions, 2);
}

// The upper half of each head, negated: rows of 64 with gaps, which merge into one other dimension.
TEST_F(WalkTest, HalvesOfHeadsHaveGaps) {
  const Tensor query = made({2, 4096, 32, 128}), half = slice(query, -1, 64, 128), out = made({2, 4096, 32, 64});
  const Pointwise kernel = launched(out, {&half});
  EXPECT_EQ(kernel.dimensions, 2);
  EXPECT_EQ(kernel.operands[0].walk, Walk::strided);
}

// A copy into a part of a larger tensor leaves gaps in the result.
TEST_F(WalkTest, ResultsWithGapsWalk) {
  const Tensor whole = made({2, 4096, 128}), part = slice(whole, -1, 0, 64), in = made({2, 4096, 64});
  EXPECT_EQ(launched(part, {&in}).operands[1].walk, Walk::strided);
}

// x.t().contiguous(): neighbours of the result lie a row apart.
TEST_F(WalkTest, TransposedMatricesCostSectors) {
  const Tensor x = transpose(made({1024, 512}), 0, 1), out = made({512, 1024});
  EXPECT_EQ(launched(out, {&x}).operands[0].walk, Walk::transposed);
}

}  // namespace
}  // namespace plimsoll::program
