// Graph files and diffusion transformers on the tape: what an operator in place saves, and what is refused by name.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "devices.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"
#include "program/lower.hpp"

namespace plimsoll {
namespace {

/// Convolutions by ATen's own kernels, unless `more` says otherwise.
Strategy strategy_of(const std::string& more = "") {
  return parse_strategy(
      R"({"micro_batch": 2, "seq_len": 1, "param_dtype": "fp32", "precision": "fp32", "optimizer": "sgd", "recompute": "none", "cudnn": false)" + more +
          "}",
      "strategy");
}

/// A convolution to 8 maps, batch norm, relu, the mean of each map, ten classes.
Model classifier(const std::string& image, const std::string& convolution, const std::string& relu) {
  return parse_model(R"({"plimsoll-graph": 1, "input": {"image": )" + image + R"(}, "blocks": [{"name": "net", "operators": [
    {"name": "conv", "kind": "convolution", "channels": 8, "kernel": 3, "padding": 1)" +
                         convolution + R"(},
    {"name": "norm", "kind": "batch_norm"},
    {"name": "relu", "kind": "activation", "function": "relu")" +
                         relu + R"(},
    {"name": "pool", "kind": "pool", "function": "global"},
    {"name": "fc", "kind": "linear", "out": 10}]}]})",
                     "graph", "graph");
}

std::int64_t allocations_of(const StepProgram& program, std::int64_t bytes) {
  std::int64_t count = 0;
  for (const Instruction& instruction : program.step)
    count += instruction.kind == InstructionKind::alloc && instruction.bytes == bytes ? 1 : 0;
  return count;
}

void expect_refused(const std::string& part, const std::function<void()>& lower) {
  try {
    lower();
    ADD_FAILURE() << "not refused: " << part;
  } catch (const Error& error) {
    EXPECT_NE(error.code(), ErrorCode::internal) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

// Maps of 2 x 8 x 16 x 16 fp32 = 16,384 bytes: outputs of convolution, norm and relu, then the gradients of pool, relu and norm. A relu in
// place writes into the norm's output, which nobody saves.
TEST(GraphNetworks, AReluInPlaceAllocatesNothing) {
  const StepProgram plain = program::lower_hf_eager(program::on_h100(classifier("[3, 16, 16]", "", ""), strategy_of()));
  const StepProgram in_place =
      program::lower_hf_eager(program::on_h100(classifier("[3, 16, 16]", "", R"(, "in_place": true)"), strategy_of()));
  EXPECT_EQ(allocations_of(plain, 16'384), 6);
  EXPECT_EQ(allocations_of(in_place, 16'384), 5);
}

// 3 channels in 3 groups to 9 maps: a kernel of its own, without the columns of 27 x 256 fp32 = 27,648 bytes that one group unfolds into.
TEST(GraphNetworks, ConvolutionsUnfoldUnlessDepthwise) {
  const auto lowered = [](const std::string& groups) {
    const Model model = parse_model(R"({"plimsoll-graph": 1, "input": {"image": [3, 16, 16]}, "blocks": [{"name": "net", "operators": [
      {"name": "conv", "kind": "convolution", "channels": 9, "kernel": 3, "padding": 1, "bias": false)" +
                                        groups + R"(},
      {"name": "pool", "kind": "pool", "function": "global"}]}]})",
                                    "graph", "graph");
    return program::lower_hf_eager(program::on_h100(model, strategy_of()));
  };
  EXPECT_EQ(allocations_of(lowered(""), 27'648), 2);  // forward, and the weight's gradient
  EXPECT_EQ(allocations_of(lowered(R"(, "groups": 3)"), 27'648), 0);
}

// cuDNN's workspace, forward and for the weight's gradient: the image of 3 channels filled up to 4, 2 x 256 x 4 fp32 = 8,192 bytes; the
// result of 9 maps, or its gradient, to 12, 2 x 256 x 12 fp32 = 24,576 bytes; 9 filters of 9 places, 4 channels, 1,296 bytes; for the
// gradient 32 parts of such filters (a tile of one of 132 multiprocessors each), 41,472 bytes. Columns are not made.
TEST(GraphNetworks, CudnnCopiesWhatItConvolves) {
  Strategy strategy = strategy_of();
  strategy.cudnn = true;
  const Model model = parse_model(R"({"plimsoll-graph": 1, "input": {"image": [3, 16, 16]}, "blocks": [{"name": "net", "operators": [
      {"name": "conv", "kind": "convolution", "channels": 9, "kernel": 3, "padding": 1, "bias": false},
      {"name": "pool", "kind": "pool", "function": "global"}]}]})",
                                  "graph", "graph");
  const StepProgram program = program::lower_hf_eager(program::on_h100(model, strategy));
  EXPECT_EQ(allocations_of(program, 34'064), 1);
  EXPECT_EQ(allocations_of(program, 75'536), 1);
  EXPECT_EQ(allocations_of(program, 27'648), 0);
  EXPECT_NO_THROW(program::lower_hf_eager(program::on_h100(classifier("[4, 16, 16]", R"(, "groups": 2)", ""), strategy)));
}

TEST(GraphNetworks, WhatIsNotModelledIsRefused) {
  expect_refused("groups of several channels",
                 [] { program::lower_hf_eager(program::on_h100(classifier("[4, 16, 16]", R"(, "groups": 2)", ""), strategy_of())); });
  expect_refused("not square", [] { program::lower_hf_eager(program::on_h100(classifier("[3, 16, 8]", "", ""), strategy_of())); });
  expect_refused("recomputation within a graph", [] {
    Strategy strategy = strategy_of();
    strategy.recompute.kind = Recompute::Kind::full;
    program::lower_hf_eager(program::on_h100(classifier("[3, 16, 16]", "", ""), strategy));
  });
}

TEST(GraphNetworks, OnlyReluWorksInPlace) {
  EXPECT_THROW(parse_model(R"({"plimsoll-graph": 1, "input": {"vectors": 4}, "blocks": [{"name": "b", "operators": [
    {"name": "a", "kind": "activation", "function": "gelu", "in_place": true}]}]})",
                           "graph", "graph"),
               Error);
}

// diffusers' DiT calls transformer_blocks[0].norm1.emb from outside of the block: no unit of blocks may shard it.
TEST(DiffusionNetworks, BlocksOfDitCannotBeSharded) {
  const Model dit =
      parse_model(R"({"_class_name": "DiTTransformer2DModel", "num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 4,
    "num_layers": 2, "sample_size": 8, "patch_size": 2})",
                  "dit", "dit");
  Strategy strategy = strategy_of();
  strategy.seq_len = 16;
  strategy.dp_shard = 4;
  expect_refused("outside of the block", [&] { program::lower_hf_fsdp2(program::on_h100(dit, strategy)); });
  strategy.seq_len = 15;
  EXPECT_THROW(program::lower_hf_eager(program::on_h100(dit, strategy)), Error);  // not a square of patches
}

}  // namespace
}  // namespace plimsoll
