// What MS-AMP does not do, or is not played for, over transformers (bench/corpus/allocator-msamp.json: MS-AMP 0.4.0).
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "devices.hpp"
#include "validate/measured_rows.hpp"

namespace plimsoll {
namespace {

const std::vector<MeasuredRow>& rows() { return rows_in("allocator-msamp"); }

TEST(MsAmpRefusals, NameWhatIsNotPlayed) {
  EXPECT_FALSE(refused_after(row_of(rows(), "msamp-llama-O2"), [](Strategy&) {}));
  EXPECT_TRUE(refused_after(row_of(rows(), "msamp-llama-O2"), [](Strategy& s) { s.compile = Strategy::Compile::blocks; }));
  EXPECT_TRUE(refused_after(row_of(rows(), "msamp-llama-O2"), [](Strategy& s) { s.loss = LossKernel::liger_fused_linear; }));
  EXPECT_TRUE(refused_after(row_of(rows(), "msamp-o3-llama-z2-w4-r0"), [](Strategy& s) { s.loss = LossKernel::liger_fused_linear; }));
}

// O3 is for MS-AMP's own DeepSpeed engine, its casts are for Adam, and Accelerate raises where FSDP is asked for.
TEST(MsAmpRefusals, WhatMsAmpAndAccelerateRaise) {
  const auto impossible = [](const std::string& id, void (*change)(Strategy&)) {
    return failure_after(row_of(rows(), id), change) == ErrorCode::bad_input;
  };
  EXPECT_TRUE(impossible("msamp-llama-O2", [](Strategy& s) { s.precision = Precision::msamp_o3; }));
  EXPECT_TRUE(impossible("msamp-llama-O2", [](Strategy& s) { s.optimizer = OptimizerKind::sgd; }));
  EXPECT_TRUE(impossible("msamp-llama-O2-ddp", [](Strategy& s) { s.data_parallel = DataParallel::fsdp2; }));
  EXPECT_FALSE(impossible("msamp-o3-llama-z2-w4-r0", [](Strategy&) {}));
  EXPECT_TRUE(impossible("msamp-o3-llama-z2-w4-r0", [](Strategy& s) { s.data_parallel = DataParallel::zero3; }));
  EXPECT_TRUE(impossible("msamp-o3-llama-z2-w4-r0", [](Strategy& s) { s.deepspeed.contiguous_gradients = false; }));
  EXPECT_TRUE(impossible("msamp-o3-llama-z2-w4-r0", [](Strategy& s) { s.deepspeed.reduce_scatter = false; }));
  EXPECT_TRUE(impossible("msamp-o3-llama-z2-w4-r0", [](Strategy& s) { s.offload.optimizer = true; }));
  EXPECT_TRUE(impossible("msamp-o3-llama-z2-w4-r0", [](Strategy& s) { s.optimizer = OptimizerKind::lion; }));
  EXPECT_TRUE(impossible("msamp-o2-llama-z0-w4-fp16", [](Strategy& s) { s.precision = Precision::msamp_o3; }));
  EXPECT_TRUE(impossible("msamp-o2-llama-z0-w4-fp16", [](Strategy& s) { s.param_dtype = DType::bf16; }));
}

TEST(MsAmpRefusals, AReleaseAndAWeightThatItsEngineDoesNotTake) {
  EXPECT_TRUE(refused_after(row_of(rows(), "msamp-o3-llama-z2-w4-r0"), [](Strategy& s) { s.releases.put(Package::deepspeed, *Release::parse("0.19.8")); }));
  EXPECT_TRUE(refused_after(row_of(rows(), "msamp-o3-llama-z2-w4-r0"),
                            [](Strategy& s) { s.deepspeed.reduce_bucket_size = 16'000'000; }));  // the head has 16,384,000
}

/// Bytes of each collective of that kind and type in a steady step.
std::vector<std::int64_t> collectives_of(const std::string& id, CollectiveKind kind, DType type) {
  const MeasuredRow& row = row_of(rows(), id);
  const StepProgram program =
      program::lower_transformers(program::on_cluster(*row.cluster, *row.model, resolve(row.strategy, *row.model, *row.cluster)));
  std::vector<std::int64_t> bytes;
  for (const Instruction& instruction : program.step) {
    if (instruction.kind != InstructionKind::collective) continue;
    const Collective& collective = program.collectives[instruction.id];
    if (collective.kind == kind && collective.type == type) bytes.push_back(collective.bytes);
  }
  return bytes;
}

// Four ranks share the weights of llama's two layers and its head whole, the largest first, each to the rank that has least. The head,
// 32,000 · 512 = 16,384,000, fills rank 0; six of 512 · 1,408, four of 512 · 512 and four of 512 · 256 go to the three others, 1,966,080 to
// each: two large ones, then two, one and one, then none, two and two, so the fullest has five weights. All parts are as long as the
// longest, scales by fours: 4 · 16,384,000 bytes of weights and 4 · 8 scales of four bytes.
TEST(MsAmpRows, WeightsAreDealtOutWhole) {
  using Bytes = std::vector<std::int64_t>;
  EXPECT_EQ(collectives_of("msamp-o3-llama-z2-w4-r0", CollectiveKind::all_gather, DType::fp8), Bytes{65'536'000});
  EXPECT_EQ(collectives_of("msamp-o3-llama-z2-w4-r0", CollectiveKind::all_gather, DType::fp32), Bytes{128});
}

// Without a rank the worst is meant. Of three matrices of 512 · 768 = 393,216 elements the first and the third go to rank 0, the second to
// rank 1, which then gets both of 512 · 512, 917,504 together, before the two of 64 · 512 go to rank 0: 851,968. Gradients are kept in as
// many bytes.
TEST(MsAmpRows, TheFullestRankStandsForAll) {
  const Model model = parse_model(R"({"model_type": "llama", "hidden_size": 512, "intermediate_size": 768, "num_hidden_layers": 1,
      "num_attention_heads": 8, "num_key_value_heads": 1, "vocab_size": 1000, "tie_word_embeddings": true})",
                                  "config", "small llama");
  const MeasuredRow& row = row_of(rows(), "msamp-o3-qwen2-z2-w2-r0");
  const auto keeps = [&](std::optional<int> rank, std::int64_t bytes) {
    Strategy strategy = row.strategy;
    strategy.rank = rank;
    const StepProgram program = program::lower_transformers(program::on_h100(model, resolve(strategy, model, *row.cluster)));
    return std::any_of(program.step.begin(), program.step.end(),
                       [&](const Instruction& i) { return i.kind == InstructionKind::alloc && i.bytes == bytes; });
  };
  EXPECT_TRUE(keeps(std::nullopt, 917'504));
  EXPECT_TRUE(keeps(1, 917'504));
  EXPECT_TRUE(keeps(0, 851'968));
  EXPECT_FALSE(keeps(0, 917'504));
}

// Every 8-bit gradient goes to its weight's rank by itself, one byte an element: fifteen of them in every micro-batch of stage 2, and once
// at the end of stage 1's.
TEST(MsAmpRows, EveryGradientIsReducedByItself) {
  const auto reduced = [](const std::string& id) { return collectives_of(id, CollectiveKind::broadcast, DType::fp8); };
  EXPECT_EQ(reduced("msamp-o3-llama-z2-w8-r2-a3").size(), 45u);
  const std::vector<std::int64_t> once = reduced("msamp-o3-llama-z1-w8-r5-a3");
  EXPECT_EQ(once.size(), 15u);
  EXPECT_EQ(std::accumulate(once.begin(), once.end(), std::int64_t{0}), 16'384'000 + 3 * 1'966'080);
}

// The decoder's bias is tied to one of BERT's head, which nobody uses once MS-AMP has copied it; the reducer would wait for its gradient,
// or look for such parameters in every forward pass.
TEST(MsAmpRefusals, DdpWaitsForABiasThatWasCopied) {
  const MeasuredRow& row = row_of(rows(), "msamp-bert-O2");
  Strategy distributed = resolve(row.strategy, *row.model, *row.cluster);
  distributed.data_parallel = DataParallel::ddp;
  distributed.dp = 8;
  EXPECT_THROW(program::lower_transformers(program::on_cluster(*row.cluster, *row.model, distributed)), Error);
  distributed.ddp.find_unused_parameters = true;
  EXPECT_THROW(program::lower_transformers(program::on_cluster(*row.cluster, *row.model, distributed)), Error);
}

// Without ZeRO they are reduced together, once a step, in 8 bits; the others, 32,000 · 512 of the embedding and five norms of 512, in fp16.
TEST(MsAmpRows, WithoutZeroGradientsAreReducedTogether) {
  using Bytes = std::vector<std::int64_t>;
  EXPECT_EQ(collectives_of("msamp-o1-llama-z0-w2-a3-fp16", CollectiveKind::all_reduce, DType::fp8), Bytes{22'282'240});
  EXPECT_EQ(collectives_of("msamp-o1-llama-z0-w2-a3-fp16", CollectiveKind::all_reduce, DType::fp16), Bytes{2 * (16'384'000 + 2'560)});
}

// A step's gradients of a head that was tied are never cleared: the first step finds none, all later ones add to them.
TEST(MsAmpRows, AHeadThatWasTiedKeepsItsGradient) {
  const MeasuredRow& row = row_of(rows(), "msamp-opt-O2");
  const StepProgram program =
      program::lower_transformers(program::on_cluster(*row.cluster, *row.model, resolve(row.strategy, *row.model, *row.cluster)));
  EXPECT_FALSE(program.second_step.empty());
}

}  // namespace
}  // namespace plimsoll
