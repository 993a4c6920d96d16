// Every option acts, is refused, or is said not to be used: each key of the table of options is given to random strategies besides what
// they say. Where the report lists the key as not used, every number is what it was without; and no key is idle under all of them in
// silence.
#include "framework/idle_options.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "estimate/drawn_plans.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/estimate.hpp"

namespace plimsoll {
namespace {

using namespace drawn;

/// Whether a note of the report says that the key is not used.
bool says_idle(const Report& report, const std::string& key) {
  return std::any_of(report.notes.begin(), report.notes.end(), [&](const std::string& note) {
    const std::size_t end = note.find(": not used ");
    return end != std::string::npos && (", " + note.substr(0, end) + ",").find(", " + key + ",") != std::string::npos;
  });
}

TEST(Options, ActAreRefusedOrAreSaidNotToBeUsed) {
  // Which rank a report is about; the worst is reported anyway. And what the host holds and has, which no number of the device's tells.
  const std::set<std::string> views{"rank", "pp_rank", "host_loading", "host_memory"};
  const std::vector<Model> models{small_model(false), small_model(true)};
  std::map<std::string, bool> answered;
  int strategies = 0, idle = 0;
  for (unsigned seed = 0; strategies < 100; ++seed) {
    std::mt19937 random(seed);
    const Planned run{drawn_strategy(random), models[seed % 2]};
    std::string before;
    try {
      before = numbers(run.report());
    } catch (const Error& error) {
      ASSERT_NE(error.code(), ErrorCode::internal) << error.what() << text_of(run.options);
      continue;
    }
    ++strategies;
    for (const StrategyOption& option : strategy_options()) {
      if (random() % 2 == 0) continue;  // so that it takes seconds; about fifty strategies meet each key
      const Planned more = run.with(option.key, one_of(random, values_of(option)));
      try {
        const Report report = more.report();
        const std::string after = numbers(report);
        const bool acts = after != before, said = says_idle(report, option.key);
        EXPECT_FALSE(acts && said) << option.key << " is listed as not used and acts:" << text_of(more.options) << "\n" << before << "\n" << after;
        idle += said;
        answered[option.key] |= acts || said;
      } catch (const Error& error) {
        ASSERT_NE(error.code(), ErrorCode::internal) << error.what() << text_of(more.options);
        answered[option.key] = true;
      }
    }
  }
  for (const StrategyOption& option : strategy_options()) EXPECT_TRUE(answered[option.key] || views.count(option.key) > 0) << option.key;
  EXPECT_GT(idle, 1000);
}

TEST(Options, SayWhenTheyAreNotUsed) {
  const Model model = small_model(false);
  const Report report =
      Planned{{{"framework", "transformers"}, {"vp", "2"}, {"schedule", "1F1B"}, {"cuda-graph", "true"}, {"seq_len", "64"}}, model}
          .report();
  EXPECT_EQ(std::count(report.notes.begin(), report.notes.end(), "vp, schedule: not used without a pipeline (pp above 1)"), 1);
  EXPECT_TRUE(says_idle(report, "cuda-graph"));
}

TEST(Options, OfAFileSayWhenTheyAreNotUsed) {
  Strategy plan =
      parse_strategy(R"({"framework": "transformers", "vp": 2, "seq_len": 64, "allocator": {"expandable_segments": true}})", "plan.json");
  set_options(plan, {{"vp", "4"}});
  const Report report = estimate(small_model(false), parse_cluster("1xh100-sxm"), plan);
  EXPECT_EQ(std::count(report.notes.begin(), report.notes.end(), "vp: not used without a pipeline (pp above 1)"), 1);
}

/// What the run would not read at all is refused where the number would be another one's.
TEST(Options, ThatContradictAreRefusedByName) {
  const Model model = small_model(false);
  const auto message = [&](const Options& options) -> std::string {
    try {
      (void)Planned{options, model}.report();
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  const std::pair<std::string, std::string> megatron{"framework", "megatron-core"}, length{"seq_len", "64"};
  EXPECT_NE(message({megatron, length, {"recompute_modules", "mlp"}}).find("recompute_modules mlp without selective recomputation"),
            std::string::npos);
  EXPECT_NE(message({megatron, length, {"recompute_method", "uniform"}}).find("recompute_method without full"), std::string::npos);
  EXPECT_NE(message({megatron, length, {"recompute_num_layers", "2"}}).find("recompute_num_layers without full"), std::string::npos);
  EXPECT_EQ(message({megatron, length, {"recompute", "selective"}, {"recompute_modules", "mlp"}}), "");
  EXPECT_NE(message({length, {"base_weights", "nf4"}}).find("base_weights without adapters"), std::string::npos);
  EXPECT_NE(message({length, {"tgt_len", "32"}}).find("tgt_len for small-llama"), std::string::npos);
  EXPECT_NE(message({length, {"text_tokens", "32"}}).find("text_tokens for small-llama"), std::string::npos);
  EXPECT_NE(message({length, {"etp", "2"}}).find("tensor parallelism of its experts' own"), std::string::npos);
}

/// Megatron's layers of its own are nobody else's attention.
TEST(Options, LayerSpecIsMegatronsAlone) {
  const Model model = small_model(false);
  const Options options{{"framework", "transformers"}, {"seq_len", "64"}};
  const Planned run{options, model};
  EXPECT_EQ(numbers(run.report()), numbers(run.with("layer_spec", "local").report()));
}

}  // namespace
}  // namespace plimsoll
