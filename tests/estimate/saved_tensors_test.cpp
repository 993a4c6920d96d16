// The census of saved tensors over operators, against PyTorch's own (docs/modelling.md, activations).
#include "estimate/saved_tensors.hpp"

#include <gtest/gtest.h>

#include "memory/activation_formulas.hpp"

namespace plimsoll::estimation {
namespace {

constexpr std::int64_t kTokens = 8192;

const Block& decoder_layer(const Model& model) {
  for (const Block& block : model.blocks)
    if (block.role == Block::Role::decoder) return block;
  throw std::logic_error("no decoder layer");
}

Strategy strategy_with(Precision precision, DType compute) {
  Strategy strategy;
  strategy.tp = strategy.pp = strategy.cp = strategy.ep = 1;
  strategy.micro_batch = 1;
  strategy.seq_len = kTokens;
  strategy.precision = precision;
  strategy.compute_dtype = compute;
  strategy.attention = AttentionKernel::flash;
  strategy.recompute.kind = Recompute::Kind::none;
  return strategy;
}

double per_token(const Strategy& strategy, bool fused_norm, bool fused_mlp) {
  static const Model model = load_model("llama-3-8b");
  FrameworkProfile framework;
  framework.fused_rms_norm = fused_norm;
  framework.fused_gated_mlp = fused_mlp;
  return saved_bytes(decoder_layer(model), 4096, strategy, framework, {kTokens, 0}).kept / kTokens;
}

TEST(SavedTensors, LlamaLayerUnderEveryCode) {
  // h 4096, f 14336, a 32, g 8, d 128.
  const Strategy pure = strategy_with(Precision::pure_bf16, DType::bf16);
  EXPECT_EQ(per_token(pure, false, false), 200'840);                                             // 16h + 8 + 4d(a+g) + 4a + 8f
  EXPECT_EQ(per_token(pure, true, false), 168'072);                                              // 8h + 8 + …
  EXPECT_EQ(per_token(pure, true, true), 139'400);                                               // 8h + 8 + 4d(a+g) + 4a + 6f
  EXPECT_EQ(per_token(strategy_with(Precision::amp_bf16, DType::bf16), false, false), 241'800);  // 26h + 8 + …
}

TEST(SavedTensors, RecomputationKeepsTheInputOfALayer) {
  Strategy strategy = strategy_with(Precision::pure_bf16, DType::bf16);
  strategy.recompute.kind = Recompute::Kind::full;
  EXPECT_EQ(per_token(strategy, true, false), 2 * 4096);
  strategy.recompute.kind = Recompute::Kind::operators;  // 2h + 2ad + 2gd + 2ad + 4a + 2f + 2h
  EXPECT_EQ(per_token(strategy, true, false), 63'616);
}

TEST(SavedTensors, SequenceParallelismDividesEverything) {
  Strategy strategy = strategy_with(Precision::mixed_bf16, DType::bf16);
  const double whole = per_token(strategy, true, true);
  strategy.tp = 8;
  strategy.sequence_parallel = true;
  EXPECT_EQ(per_token(strategy, true, true), whole / 8);
  strategy.sequence_parallel = false;
  EXPECT_GT(per_token(strategy, true, true), whole / 8);
}

TEST(SavedTensors, ContextParallelismDividesTheTokens) {
  Strategy strategy = strategy_with(Precision::pure_bf16, DType::bf16);
  const double whole = per_token(strategy, true, false);
  strategy.cp = 4;
  EXPECT_EQ(per_token(strategy, true, false), whole / 4);
}

}  // namespace
}  // namespace plimsoll::estimation
