// TorchTitan's releases: what the code of a day did, and that all of it is played.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/torchtitan.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {
namespace {

using Options = std::vector<std::pair<std::string, std::string>>;

Report estimated(const std::string& model, const std::string& on, Options options) {
  options.insert(options.begin(), {"framework", "torchtitan"});
  Strategy strategy;
  set_options(strategy, options);
  return estimate(load_model(model), parse_cluster(on), strategy);
}

int day_of(const std::string& version) {
  Strategy strategy;
  strategy.framework = "torchtitan";
  for (const auto& [package, release] : releases_in(version, packages_of("torchtitan"))) strategy.releases.put(package, release);
  return framework::titan_release(strategy).day();
}

// The days on which PyPI got the releases; a text's first day; of a month its middle; none is the newest.
TEST(TitanRelease, IsTheDayOfItsCode) {
  EXPECT_EQ(day_of("0.1.0"), 20250618);
  EXPECT_EQ(day_of("0.1"), 20250618);
  EXPECT_EQ(day_of("v0.2.0"), 20251018);
  EXPECT_EQ(day_of("0.2.1"), 20251226);
  EXPECT_EQ(day_of("0.2.2"), 20260220);
  EXPECT_EQ(day_of("torchtitan 9dec370 (2024-12-26), torch 1963fc8 (2024-12-23), torchao eab345c"), 20241226);
  EXPECT_EQ(day_of("torch 2.9.0.dev20250811+rocm6.4, torchao 0.13.0, torchtitan 2c8b594"), 20250811);
  EXPECT_EQ(day_of("2024-08"), 20240815);
  EXPECT_EQ(day_of("0.3.0"), day_of(""));
}

// Commits of pytorch/torchtitan: each rule holds from its day on.
TEST(TitanRelease, RulesBeginOnTheDayOfTheirCommit) {
  using framework::TitanRelease;
  EXPECT_FALSE(TitanRelease(20250727).wraps_ends());
  EXPECT_TRUE(TitanRelease(20250728).wraps_ends());
  EXPECT_FALSE(TitanRelease(20250828).recomputes_to_the_end());
  EXPECT_TRUE(TitanRelease(20250829).recomputes_to_the_end());
  EXPECT_TRUE(TitanRelease(20260124).rescales_loss());
  EXPECT_FALSE(TitanRelease(20260125).rescales_loss());
  EXPECT_FALSE(TitanRelease(20260126).groups_heads());
  EXPECT_TRUE(TitanRelease(20260127).groups_heads());
  EXPECT_EQ(TitanRelease(20250513).cudnn_attention_from(), std::nullopt);
  EXPECT_EQ(TitanRelease(20250514).cudnn_attention_from(), 100);
  EXPECT_EQ(TitanRelease(20251008).cudnn_attention_from(), 100);
  EXPECT_EQ(TitanRelease(20251009).cudnn_attention_from(), 0);
  EXPECT_FALSE(TitanRelease(20251130).keeps_cudnn_attention());
  EXPECT_TRUE(TitanRelease(20251201).keeps_cudnn_attention());
}

// ScaledDotProductAttention: PyTorch's order (flash before 2.11), then cuDNN first from Blackwell on, then on every NVIDIA GPU; ROCm has no cuDNN, and
// who asks for flash gets it.
TEST(TitanRelease, TakesCudnnsAttentionFirst) {
  const auto takes = [](const std::string& day, const std::string& on, const std::string& attention) {
    Strategy strategy;
    set_options(strategy, {{"framework", "torchtitan"},
                           {"releases.torchtitan", day},
                           {"releases.torch", "2.9"},
                           {"attention", attention},
                           {"micro_batch", "1"}});
    return resolve(strategy, load_model("llama-3.1-8b"), parse_cluster(on)).cudnn_attention.value();
  };
  EXPECT_FALSE(takes("2025-05-13", "8xb200", "sdpa"));
  EXPECT_TRUE(takes("2025-05-14", "8xb200", "sdpa"));
  EXPECT_FALSE(takes("2025-10-08", "8xh100-sxm", "sdpa"));
  for (const char* on : {"8xa100-80gb-sxm", "8xh100-sxm", "8xb200"}) EXPECT_TRUE(takes("2025-10-09", on, "sdpa")) << on;
  EXPECT_FALSE(takes("2025-10-09", "8xmi300x", "sdpa"));
  EXPECT_FALSE(takes("2025-10-09", "8xh100-sxm", "flash"));
}

void expect_played(const Report& report) {
  for (const RankReport& rank : report.ranks) EXPECT_EQ(rank.memory.basis, Basis::played) << rank.memory.closed_form_because;
}

// What had a closed form alone: eager blocks under tensor, context and pipeline parallelism, and mixtures.
TEST(TitanRelease, EverythingBefore03IsPlayed) {
  for (const char* version : {"0.1.0", "0.2.0", "0.2.2"}) {
    SCOPED_TRACE(version);
    const Options common = {{"framework_version", version}, {"micro_batch", "1"}, {"seq_len", "2048"}};
    for (const Options& more : std::vector<Options>{{{"tp", "2"}}, {{"cp", "2"}}, {{"pp", "2"}, {"global_batch", "16"}}}) {
      Options options = common;
      options.insert(options.end(), more.begin(), more.end());
      expect_played(estimated("llama-3.2-3b", "8xh100-sxm", options));
    }
  }
  expect_played(estimated("deepseek-v2-lite", "8xh100-sxm",
                          {{"framework_version", "0.2.0"}, {"ep", "8"}, {"micro_batch", "1"}, {"seq_len", "2048"}}));
}

// pytorch/torchtitan#1789: eight sequences of 4,096 with experts over eight H100 ran out of memory.
TEST(TitanRelease, ExpertParallelMixtureRunsOutOfMemory) {
  const Report report = estimated("deepseek-v2-lite", "8xh100-sxm",
                                  {{"framework_version", "0.2.0"},
                                   {"ep", "8"},
                                   {"micro_batch", "8"},
                                   {"seq_len", "4096"},
                                   {"recompute", "selective-ac-op"},
                                   {"loss", "compiled"}});
  expect_played(report);
  EXPECT_EQ(report.verdict, Verdict::does_not_fit);
}

// A rank that gets half as many tokens again reserves more, and is played all the same: the tokens of this rank's experts alone grow. The
// allocated peak may stand elsewhere.
TEST(TitanRelease, UnbalancedExpertsHoldMore) {
  for (const char* version : {"0.2.2", "0.3.0"}) {
    SCOPED_TRACE(version);
    const Options common = {{"framework_version", version}, {"ep", "8"}, {"micro_batch", "1"}, {"seq_len", "2048"}};
    Options uneven = common;
    uneven.emplace_back("moe_imbalance", "1.5");
    const Report even_report = estimated("deepseek-v2-lite", "8xh100-sxm", common);
    const Report uneven_report = estimated("deepseek-v2-lite", "8xh100-sxm", uneven);
    expect_played(uneven_report);
    EXPECT_GT(uneven_report.worst_rank().memory.reserved, even_report.worst_rank().memory.reserved);
  }
}

}  // namespace
}  // namespace plimsoll
