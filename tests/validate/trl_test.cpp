// What TRL's trainers hold beside the policy, by the rows of bench/corpus/allocator-trl.json and by what must follow from them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "plimsoll/error.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/framework.hpp"
#include "validate/measured_rows.hpp"

namespace plimsoll {
namespace {

const MeasuredRow& row_of(const std::string& id) {
  const auto& rows = rows_in("allocator-trl");
  return *std::find_if(rows.begin(), rows.end(), [&](const MeasuredRow& row) { return row.id == id; });
}

RankMemory memory_of(const MeasuredRow& row, const Strategy& strategy) {
  return estimate(*row.model, *row.cluster, strategy).worst_rank().memory;
}

// A frozen copy in fp32 is the model's own bytes once more, and nothing else of what persists.
TEST(TrlRows, AFrozenCopyIsTheModelOnceMore) {
  const MeasuredRow& row = row_of("trl-dpo-base");
  Strategy without = row.strategy;
  without.post_training->reference = PostTraining::Reference::precomputed;
  const double copy = static_cast<double>(memory_of(row, row.strategy).persistent.count - memory_of(row, without).persistent.count);
  EXPECT_NEAR(copy, 4.0 * static_cast<double>(row.model->parameters()), 0.001 * copy);
}

// Whole logits in fp32 of 8 x 512 x 32,000 and their like are gone since 1.15.
TEST(TrlRows, AFusedHeadHoldsNoLogits) {
  const MeasuredRow& row = row_of("trl-dpo-gc_1.10.0");
  Strategy fused = row.strategy;
  set_option(fused, "releases.trl", "1.16");
  const std::int64_t logits = 8LL * 512 * 32000 * 4;
  EXPECT_GT(memory_of(row, row.strategy).allocated.count - memory_of(row, fused).allocated.count, 2 * logits);
}

// A language model's body under a head of one number: no logits of the vocabulary's size, and its head's parameters are gone.
TEST(TrlRows, ARewardModelHasNoLogits) {
  const MeasuredRow& row = row_of("trl-dpo-base");
  Strategy rewards = row.strategy;
  rewards.post_training->reference = PostTraining::Reference::automatic;
  rewards.post_training->prompt_len = 0;
  set_option(rewards, "task", "reward");
  const Report report = estimate(*row.model, *row.cluster, rewards);
  EXPECT_EQ(report.parameters, row.model->parameters() - 32000LL * 512 + 512);
  const std::int64_t logits = 8LL * 512 * 32000 * 2;
  Strategy pairs = rewards;
  set_option(pairs, "task", "cpo");
  EXPECT_GT(memory_of(row, pairs).allocated.count - report.worst_rank().memory.allocated.count, 2 * logits);
}

// Since 1.14 whole logits are scored by a kernel that keeps but four numbers a token; in backward the gradients of both terms of them stand
// beside the logits in either case, so that without the supervised term its softmax and copies are gone alone.
TEST(TrlRows, WithoutItsSupervisedTermCpoHoldsNoSoftmax) {
  const MeasuredRow& row = row_of("trl-cpo-base");
  Strategy alone = row.strategy;
  set_option(alone, "supervised_term", "false");
  const std::int64_t half = 4LL * 511 * 32000 * 4;  // of the better texts, fp32
  EXPECT_GE(memory_of(row, row.strategy).allocated.count - memory_of(row, alone).allocated.count, half);
}

// LLaMA-Factory's log_softmax of whole fp32 logits stands in backward beside its gradient, where TRL's fused head holds neither.
TEST(TrlRows, LlamaFactoryHoldsASoftmaxOfWholeLogits) {
  const MeasuredRow& row = row_of("trl-dpo-base");
  Strategy own = row.strategy;
  set_option(own, "trainer", "llama-factory");
  const std::int64_t softmax = 8LL * 511 * 32000 * 4;
  EXPECT_GT(memory_of(row, own).allocated.count - memory_of(row, row.strategy).allocated.count, 2 * softmax);
}

// The reference with adapters switched off is a pass of the model without DDP, and without a graph: DDP's sink, a copy of what the pass
// answers, is in the policy's alone.
TEST(TrlRows, DdpLooksForUnusedParametersInThePolicysPassAlone) {
  const MeasuredRow& row = row_of("trl-dpo-ddplora");
  Strategy looks = row.strategy, trusts = row.strategy;
  set_option(looks, "ddp.find_unused_parameters", "true");
  set_option(trusts, "ddp.find_unused_parameters", "false");
  EXPECT_GE(memory_of(row, looks).allocated, memory_of(row, trusts).allocated);
}

// The engine takes its share of the whole device in every phase, or, asleep, in the rollout alone.
TEST(TrlRows, TheEngineStandsInEveryPhaseUnlessItSleeps) {
  const MeasuredRow& row = row_of("trl-grpo-gr");
  Strategy beside = row.strategy;
  beside.post_training->rollout = PostTraining::Rollout::colocated;
  beside.post_training->engine_share = 0.5;
  const RankMemory awake = memory_of(row, beside);
  ASSERT_EQ(awake.phases.size(), 5U);
  EXPECT_EQ(awake.phases.front().phase, Phase::rollout);
  EXPECT_EQ(awake.phases.back().phase, Phase::optimizer);
  const auto half = static_cast<std::int64_t>(0.5 * static_cast<double>(awake.capacity.count));
  for (const PhaseMemory& each : awake.phases) EXPECT_EQ(each.engine.count, half);
  beside.post_training->engine_sleeps = true;
  const RankMemory asleep = memory_of(row, beside);
  for (const PhaseMemory& each : asleep.phases) EXPECT_EQ(each.engine.count, each.phase == Phase::rollout ? half : 0);
  EXPECT_LT(asleep.phases.front().reserved, awake.phases.front().reserved) << "the cache was not given back";
  double parts = 0;
  for (const MemoryPart& part : asleep.parts) parts += static_cast<double>(part.bytes.count);
  EXPECT_NEAR(parts, asleep.device.expected, 0.02 * asleep.device.expected);
}

// Whole logits of answers, of every piece that is scored, stand twice where their copy is divided by the temperature: [4, 385, 32,000] in
// 32 bits each. A head that begins its loss within a scoring pass ends no phase.
TEST(TrlRows, AllOfAScoringPassIsOfItsPhase) {
  Strategy scored = row_of("trl-grpo-gr-t1.10").strategy;
  set_option(scored, "reference", "model");
  const RankMemory memory = memory_of(row_of("trl-grpo-gr-t1.10"), scored);
  const auto scoring =
      std::find_if(memory.phases.begin(), memory.phases.end(), [](const PhaseMemory& each) { return each.phase == Phase::scoring; });
  ASSERT_NE(scoring, memory.phases.end());
  const std::int64_t logits = 4LL * 385 * 32000 * 4;
  EXPECT_GE(scoring->allocated.count, memory.persistent.count + 2 * logits);
}

// Weights of 8 billion parameters in 16 bits are 15.3 GiB: a fifth of 79 GiB holds them and nothing beside.
TEST(TrlRows, AShareInWhichTheEngineWouldNotStartIsRefused) {
  Strategy strategy;
  set_options(strategy, {{"task", "grpo"},
                         {"seq_len", "1024"},
                         {"prompt_len", "256"},
                         {"engine_share", "0.2"},
                         {"lora.r", "8"},
                         {"lora.target_modules", "q_proj"},
                         {"param_dtype", "bf16"},
                         {"precision", "amp-bf16"},
                         {"recompute", "full"}});
  const Model model = load_model("qwen3-8b");
  const Cluster cluster = parse_cluster("1xa100-80gb-sxm");
  try {
    estimate(model, cluster, strategy);
    FAIL() << "answered";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("vLLM would not start"), std::string::npos) << error.message();
  }
  set_option(strategy, "engine_share", "0.4");
  const Report report = estimate(model, cluster, strategy);
  EXPECT_TRUE(std::any_of(report.notes.begin(), report.notes.end(),
                          [](const std::string& note) { return note.find("answers of 1,024 tokens at once") != std::string::npos; }));
}

// Of two teachers in fp32 the larger one holds 4 bytes a parameter more, in what persists alone; both divergences of 512 x 151,936 words keep two
// tensors of that size for backward less than that from the mixture (its logarithm, and what the mixture's share weighs).
TEST(TrlRows, ATeacherIsAnotherModelBesideTheStudent) {
  const MeasuredRow& row = row_of("trl-gkd-base");
  const std::int64_t words = 511LL * 151936 * 4;
  Strategy other = row.strategy;
  set_option(other, "teacher", "qwen2.5-0.5b");
  const RankMemory larger = memory_of(row, row.strategy), smaller = estimate(beside_teacher(*row.model, other), *row.cluster, other).worst_rank().memory;
  const double more = 4.0 * static_cast<double>(row.model->teacher->parameters() - row.model->parameters());
  EXPECT_NEAR(static_cast<double>(larger.persistent.count - smaller.persistent.count), more, 0.001 * more);
  Strategy one_from_the_other = row.strategy;
  set_option(one_from_the_other, "divergence", "forward");
  EXPECT_GT(larger.allocated.count - memory_of(row, one_from_the_other).allocated.count, 2 * words);
}

TEST(TrlRows, ATeacherThatDoesNotGoWithTheStudentIsToldOf) {
  const MeasuredRow& row = row_of("trl-gkd-base");
  const auto told = [&](const char* key, const char* value) {
    Strategy strategy = row.strategy;
    set_option(strategy, key, value);
    try {
      estimate(as_task_has_it(*row.model, strategy), *row.cluster, strategy);
    } catch (const Error& error) {
      return std::string(error.message());
    }
    return std::string("answered");
  };
  EXPECT_NE(told("teacher", "llama-3.1-8b").find("a teacher of 128256 words cannot be compared with a model of 151936"), std::string::npos);
  EXPECT_NE(told("teacher", "qwen2.5-1.6b").find("qwen2.5-1.6b"), std::string::npos);
  EXPECT_NE(told("teacher", "opt-125m").find("cannot be compared"), std::string::npos);
  EXPECT_NE(told("task", "dpo").find("a teacher is GKD's"), std::string::npos);
  EXPECT_NE(told("data_parallel", "fsdp2").find("leaves the teacher on the host under FSDP"), std::string::npos);
  EXPECT_NE(told("releases.trl", "0.29").find("GKD of TRL before 1.0"), std::string::npos);
}

TEST(TrlRows, WhatIsNotModelledIsRefusedByName) {
  const MeasuredRow& row = row_of("trl-dpo-base");
  Strategy strategy = row.strategy;
  set_option(strategy, "releases.trl", "1.14");
  try {
    memory_of(row, strategy);
    FAIL() << "answered";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::refused);
    EXPECT_NE(error.message().find("1.14"), std::string::npos);
  }
}

}  // namespace
}  // namespace plimsoll
