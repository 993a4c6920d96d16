// A program beside a trace, and the alignment underneath.
#include <gtest/gtest.h>

#include "plimsoll/trace.hpp"
#include "trace/align.hpp"

namespace plimsoll::trace {
namespace {

using Pairs = std::vector<std::pair<std::size_t, std::size_t>>;

std::vector<Piece> pieces(const std::string& keys) {
  std::vector<Piece> list;
  for (const char key : keys) list.push_back({key == '?' ? "" : std::string(1, key), key >= 'a' ? "small" : key == '?' ? "small" : "large"});
  return list;
}

TEST(Align, WhatIsEqualInOrderIsPaired) {
  EXPECT_EQ(align(pieces("abcd"), pieces("abcd")), (Pairs{{0, 0}, {1, 1}, {2, 2}, {3, 3}}));
  EXPECT_EQ(align(pieces("abcd"), pieces("axcd")), (Pairs{{0, 0}, {2, 2}, {3, 3}}));
  EXPECT_EQ(align(pieces(""), pieces("ab")), Pairs{});
}

/// Of b only its class is known on the right: it takes the place between a and C.
TEST(Align, WhatIsUnknownIsPairedByItsClassBetweenItsNeighbours) {
  EXPECT_EQ(align(pieces("abC"), pieces("a?C")), (Pairs{{0, 0}, {1, 1}, {2, 2}}));
  EXPECT_EQ(align(pieces("aBC"), pieces("a?C")), (Pairs{{0, 0}, {2, 2}})) << "of another class";
}

TEST(Align, WhatMovedIsPairedAnyhow) { EXPECT_EQ(align(pieces("abcx"), pieces("xabc")), (Pairs{{0, 1}, {1, 2}, {2, 3}, {3, 0}})); }

Product product_of(std::int64_t m) {
  Product product;
  product.m = m, product.n = 4096, product.k = 4096;
  return product;
}

/// Two products and a map; the trace lacks the second product, has a softmax instead, and took twice as long for the first as predicted.
TEST(CompareTrace, SaysWhatLacksWhatIsThereBesideAndWhatDiffers) {
  StepProgram program;
  const Kernel map{Pointwise{Pointwise::Form::map, 1 << 20, Operands({{1 << 20, DType::bf16}}, {{1 << 20, DType::bf16}})}};
  program.kernels = {{product_of(4096)}, {product_of(512)}, map};
  program.labels = {"", "model.layers.3.mlp.up", "model.layers.4.mlp.up", "norm"};
  for (std::uint32_t i = 0; i < 3; ++i) {
    Instruction launch{InstructionKind::kernel};
    launch.id = i;
    launch.label = i + 1;
    program.step.push_back(launch);
  }
  Pricing pricing;
  pricing.cluster = parse_cluster("1xh100-sxm");
  const Timeline timeline = play_time(program, pricing);
  Trace trace;
  trace.names = {"", "nvjet", "softmax", "add"};
  trace.operations = {"", "aten::mm", "aten::_softmax", "aten::add"};
  RowWise softmax;
  softmax.rows = softmax.columns = 1024;
  trace.kernels = {program.kernels[0], {softmax}, map};
  const double product = (timeline.events[0].end - timeline.events[0].start).value;
  double at = 0;
  for (std::uint32_t i = 0; i < 3; ++i) {
    const double seconds = i == 0 ? 2 * product : 1e-5;
    trace.work.push_back({TracedWork::Kind::kernel, true, i, i + 1, i + 1, 7, at, seconds});
    at += seconds + 1e-6;
  }
  trace.steps = {{"step 1", 0, at, 0, 3}};
  const TraceComparison comparison = compare_trace(program, pricing, trace);
  EXPECT_EQ(comparison.matched, 2);
  EXPECT_NEAR(comparison.measured_busy, 2 * product + 2e-5, 1e-12);
  EXPECT_NEAR(comparison.measured_gaps, 3e-6, 1e-12);
  std::int64_t missing = 0, extra = 0;
  for (const TraceDifference& each : comparison.differences) {
    missing += each.kind == TraceDifference::Kind::missing ? each.count : 0;
    extra += each.kind == TraceDifference::Kind::extra ? each.count : 0;
    if (each.kind == TraceDifference::Kind::time && each.where == "model.layers.*.mlp.up") {
      EXPECT_NEAR(each.measured / each.predicted, 2, 1e-9);
    }
  }
  EXPECT_EQ(missing, 1);
  EXPECT_EQ(extra, 1);
  bool third_layer = false;
  for (const TraceLine& line : comparison.layers) third_layer = third_layer || line.what == "model.layers.3";
  EXPECT_TRUE(third_layer);
}

}  // namespace
}  // namespace plimsoll::trace
