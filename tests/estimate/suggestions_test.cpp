// Every change that explain suggests, appended to the command line that it was given, is the change that it promised.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <sstream>

#include "estimate/single_changes.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/explain.hpp"
#include "plimsoll/framework.hpp"

namespace plimsoll {
namespace {

using Options = std::vector<std::pair<std::string, std::string>>;

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}

  template <class T>
  T one_of(std::initializer_list<T> values) {
    return *(values.begin() + std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random_));
  }

  /// A command line in any of its spellings.
  Options options() {
    Options all{{"micro_batch", one_of<std::string>({"1", "2", "4"})}, {one_of<std::string>({"seq", "seq_len"}), "256"}};
    switch (one_of({0, 1, 2, 3, 4, 5, 6})) {
      case 0:
        all.emplace_back(one_of<std::string>({"zero", "zero_stage", "deepspeed.zero_optimization.stage"}),
                         one_of<std::string>({"0", "1", "2", "3"}));
        break;
      case 1:
        all.emplace_back("data_parallel", one_of<std::string>({"ddp", "fsdp1", "fsdp2", "zero1"}));
        break;
      case 2:
        all.emplace_back("fsdp", one_of<std::string>({"full", "grad-op", "hybrid", "none"}));
        break;
      case 3:
        all.emplace_back("framework", "megatron-core");
        all.emplace_back("tp", one_of<std::string>({"1", "2"}));
        break;
      case 4:
        all.emplace_back("framework", "torchtitan");
        all.emplace_back("pp", one_of<std::string>({"1", "2"}));
        break;
      case 5:
        all.emplace_back("tp", "2");
        break;
      default:
        break;
    }
    if (one_of({false, true})) all.emplace_back(one_of<std::string>({"global_batch", "grad_accum"}), one_of<std::string>({"64", "4"}));
    if (one_of({false, false, true})) all.emplace_back("recompute", one_of<std::string>({"full", "none"}));
    if (one_of({false, false, true})) all.emplace_back("offload", one_of<std::string>({"activations", "optimizer"}));
    if (one_of({false, false, true})) all.emplace_back("cross_entropy_fusion", "te");
    return all;
  }

 private:
  std::mt19937 random_;
};

std::string text_of(const Options& options) {
  std::string text;
  for (const auto& [key, value] : options) text += " --" + key + " " + value;
  return text;
}

/// "--micro-batch 1 --loss 'a b'" as a shell takes it apart.
Options parsed(const std::string& flags) {
  Options options;
  std::istringstream words(flags);
  std::string key, value;
  while (words >> key >> value) {
    if (value.front() == '\'') {
      std::string rest;
      std::getline(words, rest, '\'');
      value = value.substr(1) + rest;
    }
    options.emplace_back(key.substr(2), value);
  }
  return options;
}

double device_of(const Model& model, const Cluster& cluster, const Strategy& strategy) {
  return estimate(model, cluster, strategy).worst_rank().memory.device.expected;
}

TEST(Suggestions, PastedBackGiveWhatTheyPromised) {
  const Model model = load_model("gpt2");
  int suggestions = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    Draw draw(seed);
    const Cluster cluster = parse_cluster(draw.one_of<std::string>({"1xh100-sxm", "8xh100-sxm"}));
    const Options said = draw.options();
    Strategy strategy, resolved;
    try {
      set_options(strategy, said);
      resolved = resolve(strategy, model, cluster);
    } catch (const Error&) {
      continue;
    }
    auto changes = estimation::memory_changes(strategy, resolved, model, cluster);
    for (auto& change : estimation::time_changes(strategy, resolved, model, cluster)) changes.push_back(std::move(change));
    for (const auto& change : changes) {
      Options pasted = said;
      const Options more = parsed(change.flag);
      pasted.insert(pasted.end(), more.begin(), more.end());
      Strategy again;
      ASSERT_NO_THROW(set_options(again, pasted)) << text_of(said) << " and then " << change.flag;
      EXPECT_EQ(summary(resolve(again, model, cluster)), summary(resolve(change.strategy, model, cluster))) << text_of(pasted);
      EXPECT_EQ(resolve(again, model, cluster).framework, resolved.framework) << text_of(pasted);
      ++suggestions;
      if (seed % 30 != 0) continue;  // the estimate itself, of some
      try {
        EXPECT_EQ(device_of(model, cluster, again), device_of(model, cluster, change.strategy)) << text_of(pasted);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::refused) << error.what();
      }
    }
  }
  EXPECT_GT(suggestions, 1000);
}

// 16 B · 8.03e9 = 128 GB of states alone: eight devices that share them have room, with or without more changes.
TEST(Suggestions, ARunThatDoesNotFitGetsOneThatDoes) {
  const Model model = load_model("llama-3.1-8b");
  const Cluster cluster = parse_cluster("8xh100-sxm");
  Strategy strategy;
  const Options said{{"data_parallel", "ddp"}, {"micro_batch", "1"}, {"seq_len", "1024"}};
  set_options(strategy, said);
  const auto change = fitting_change(model, cluster, strategy);
  ASSERT_TRUE(change.has_value());
  Options pasted = said;
  const Options more = parsed(change->flag);
  pasted.insert(pasted.end(), more.begin(), more.end());
  Strategy again;
  set_options(again, pasted);
  EXPECT_NE(estimate(model, cluster, again).verdict, Verdict::does_not_fit) << change->flag;
}

Strategy strategy_of(const Options& said) {
  Strategy strategy;
  set_options(strategy, said);
  return strategy;
}

// Recomputation and offload both make it fit; the one costs a quarter of the step, the other several steps.
TEST(Suggestions, TheWayOutIsTheOneThatCostsLeast) {
  const auto change = fitting_change(load_model("llama-3.1-8b"), parse_cluster("8xh100-sxm"),
                                     strategy_of({{"fsdp", "full"}, {"micro_batch", "2"}, {"seq_len", "8192"}}));
  ASSERT_TRUE(change.has_value());
  EXPECT_EQ(change->flag.find("offload"), std::string::npos) << change->flag;
  EXPECT_EQ(change->flag.find("precision"), std::string::npos) << change->flag;
  EXPECT_LT(change->slowdown.value_or(2), 1.35) << change->flag;
}

/// Every pair of changes that fits with room to spare, without fewer bits, by its slowdown: the fastest.
double fastest_pair(const Model& model, const Cluster& cluster, const Options& said) {
  const Strategy strategy = strategy_of(said);
  const double before = estimate(model, cluster, strategy).time.step_seconds.expected;
  double fastest = 1e9;
  std::vector<estimation::SingleChange> changes = estimation::memory_changes(strategy, resolve(strategy, model, cluster), model, cluster);
  std::erase_if(changes, [](const estimation::SingleChange& change) { return change.fewer_bits; });
  for (const estimation::SingleChange& first : changes)
    for (const estimation::SingleChange& second : changes) {
      Options both = said;
      for (const estimation::SingleChange* each : {&first, &second}) {
        const Options more = parsed(each->flag);
        both.insert(both.end(), more.begin(), more.end());
      }
      try {
        const Report report = estimate(model, cluster, strategy_of(both));
        if (report.verdict == Verdict::fits) fastest = std::min(fastest, report.time.step_seconds.expected / before);
      } catch (const Error&) {
      }
    }
  return fastest;
}

// No change alone is enough. What saves most (offload) is slow; recomputation with a fused loss saves less, enough, and is faster.
TEST(Suggestions, OfSeveralTogetherTheFastestIsNamed) {
  const Model model = load_model("llama-3.1-8b");
  for (const char* micro_batch : {"6", "8"}) {
    const Options said{{"fsdp", "full"}, {"micro_batch", micro_batch}, {"seq_len", "8192"}, {"global_batch", "64"}};
    const Cluster cluster = parse_cluster("8xh100-sxm");
    Options one = said;
    if (std::string(micro_batch) == "6") one[3].second = "48";
    const auto change = fitting_change(model, cluster, strategy_of(one));
    ASSERT_TRUE(change.has_value());
    EXPECT_EQ(change->flag.find("offload"), std::string::npos) << change->flag;
    EXPECT_LE(change->slowdown.value_or(1e9), 1.02 * fastest_pair(model, cluster, one)) << change->flag;
  }
}

// 8 B in AdamW on one device: offloaded activations save most, and take four times as long as recomputing them.
TEST(Suggestions, OffloadIsNotNamedWhereRecomputationSuffices) {
  const Model model = load_model("llama-3.1-8b");
  const Cluster cluster = parse_cluster("1xh100-sxm");
  const Options said{{"micro_batch", "4"}, {"seq_len", "8192"}};
  const auto change = fitting_change(model, cluster, strategy_of(said));
  ASSERT_TRUE(change.has_value());
  Options offloaded = said;
  for (const auto& [key, value] : parsed("--offload activations --precision pure-bf16 --loss liger-fused-linear")) offloaded.emplace_back(key, value);
  const Report other = estimate(model, cluster, strategy_of(offloaded));
  ASSERT_NE(other.verdict, Verdict::does_not_fit);
  const double before = estimate(model, cluster, strategy_of(said)).time.step_seconds.expected;
  EXPECT_LT(change->slowdown.value_or(1e9), 0.7 * other.time.step_seconds.expected / before) << change->flag;
}

// 14 B frozen weights of 2 bytes are more than a card of 24 GB: they are held in fewer bits.
TEST(Suggestions, FrozenWeightsMayTakeFewerBits) {
  const auto change = fitting_change(load_model("qwen2.5-14b"), parse_cluster("1xrtx4090"),
                                     strategy_of({{"lora.r", "16"}, {"micro_batch", "1"}, {"seq_len", "2048"}}));
  ASSERT_TRUE(change.has_value());
  EXPECT_NE(change->flag.find("--base-weights nf4"), std::string::npos) << change->flag;
}

// Megatron reduces gradients behind the passes unless told otherwise. What is promised is what the line with both flags takes; where
// somebody decided the first, the second (which needs it) is no way out either.
TEST(Suggestions, WhatCouldRunBesideTheComputeIsNamedWithItsTime) {
  const Model model = load_model("llama-3.1-8b");
  const Cluster cluster = parse_cluster("8xh100-sxm");
  const Options said{{"framework", "megatron-core"}, {"tp", "2"}, {"data_parallel", "megatron-distopt"}, {"micro_batch", "1"}, {"seq_len", "8192"}};
  const Report before = estimate(model, cluster, strategy_of(said));
  const auto change = overlapping_change(model, cluster, strategy_of(said), before);
  ASSERT_TRUE(change.has_value());
  EXPECT_EQ(change->flag.find("--overlap-grad-reduce true"), 0u) << change->flag;
  Options pasted = said;
  pasted.insert(pasted.end(), change->options.begin(), change->options.end());
  const Report after = estimate(model, cluster, strategy_of(pasted));
  EXPECT_NEAR(*change->slowdown * before.time.step_seconds.expected, after.time.step_seconds.expected, 1e-9);
  EXPECT_EQ(change->device.count, static_cast<std::int64_t>(after.worst_rank().memory.device.expected));
  Options decided = said;
  decided.emplace_back("overlap_grad_reduce", "false");
  EXPECT_FALSE(overlapping_change(model, cluster, strategy_of(decided), before).has_value());
}

}  // namespace
}  // namespace plimsoll
