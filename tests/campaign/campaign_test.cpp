// A run's numbers, by hand.
#include "plimsoll/campaign.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

/// Young: √(2 · 60 · 7200) = 929.5 s. Daly adds √(δ/2M)/3 and (δ/2M)/9 of it and takes δ off: 929.5 · (1 + 0.021517 + 0.000463) − 60.
TEST(Resilience, IntervalsAreYoungsAndDalys) {
  EXPECT_NEAR(young_interval(Seconds(60), Seconds(7200)).value, 929.516, 1e-3);
  EXPECT_NEAR(daly_interval(Seconds(60), Seconds(7200)).value, 929.516 * (1 + 0.0215166 + 0.00046296) - 60, 0.01);
  EXPECT_EQ(daly_interval(Seconds(100), Seconds(40)).value, 40);  // checkpoints longer than twice M: at every M
}

/// Daly's interval loses less than longer and shorter ones.
TEST(Resilience, DalysIntervalIsTheBest) {
  const Seconds write(60), restart(300), between(7200), best = daly_interval(write, between);
  const double at_best = goodput(best, write, restart, between);
  EXPECT_GT(at_best, goodput(best * 0.6, write, restart, between));
  EXPECT_GT(at_best, goodput(best * 1.6, write, restart, between));
  EXPECT_GT(at_best, 0.8);
  EXPECT_LT(at_best, 1.0);
}

CampaignReport gpt2_run(CampaignRequest request) {
  Strategy strategy;
  strategy.micro_batch = 8;
  strategy.global_batch = 64;
  strategy.seq_len = 1024;
  return campaign(load_model("gpt2"), parse_cluster("8xmi300x"), strategy, request);
}

/// 10 B tokens in steps of 64 · 1024 are 152,588; GPT-2 small has 124,439,808 parameters.
TEST(Campaign, CountsStepsHoursAndFlops) {
  CampaignRequest request;
  request.tokens = 10e9;
  request.dollars_per_gpu_hour = 2;
  const CampaignReport report = gpt2_run(request);
  EXPECT_EQ(report.steps, 152588);
  EXPECT_NEAR(report.gpu_hours, report.days.expected * 24 * 8, 1e-6);
  EXPECT_NEAR(report.dollars, 2 * report.gpu_hours, 1e-6);
  EXPECT_NEAR(report.flops_6nd, 6 * 124439808.0 * 10e9, 1e9);
  EXPECT_NEAR(report.chinchilla_tokens, 20 * 124439808.0, 1);
  EXPECT_NEAR(6 * report.optimal_parameters * report.optimal_tokens, report.flops_6nd, 1e-6 * report.flops_6nd);
  EXPECT_NEAR(report.flops_exact / report.flops_6nd, 1.0, 0.35);           // the embedding multiplies nothing, attention is no parameter
  const double power = report.step.time.board_power;
  EXPECT_GT(power, 0.3);
  EXPECT_LT(power, 1) << "a small model's step is not all products";
  EXPECT_NEAR(report.megawatt_hours, report.gpu_hours * 750 * power / 1e6, 1e-9);  // MI300X: 750 W
}

/// Several machines: the fastest and the cheapest are of those that fit, and one that refuses says why.
TEST(Campaign, MachinesAreAnsweredTogether) {
  CampaignRequest request;
  request.tokens = 10e9;
  std::vector<CampaignOffer> offers{{"8xmi300x", gpt2_run(request), {}}, {"8xh100-sxm", gpt2_run(request), {}}, {"4xabacus", {}, "unknown accelerator 'abacus'"}};
  offers[0].report->days = {0.3, 0.4, 0.5};
  offers[1].report->days = {0.1, 0.2, 0.3};
  offers[1].report->dollars = offers[0].report->dollars + 1;
  const std::string text = to_text(offers);
  EXPECT_EQ(text.find("fastest: 8xh100-sxm, 4.8 hours; cheapest: 8xmi300x, $"), 0u) << text;
  EXPECT_NE(text.find("4.8 hours (2.4 hours to 7.2 hours)"), std::string::npos) << text;
  EXPECT_NE(text.find("4xabacus: unknown accelerator 'abacus'"), std::string::npos) << text;
  offers[1].report->step.verdict = Verdict::does_not_fit;
  EXPECT_EQ(to_text(offers).find("fastest: 8xmi300x, "), 0u) << "what does not fit is no answer";
  EXPECT_NE(to_json(offers).find("\"refusal\": \"unknown accelerator 'abacus'\""), std::string::npos);
}

/// Hoffmann's law is of language models: nothing is said of it for images, nor where adapters learn alone.
TEST(Campaign, ScalingLawsAreOfLanguageModelsTrainedWhole) {
  CampaignRequest request;
  request.tokens = 1e9;
  Strategy strategy;
  strategy.micro_batch = 8;
  EXPECT_EQ(campaign(load_model("vit-b16"), parse_cluster("1xh100-sxm"), strategy, request).chinchilla_tokens, 0);
  strategy.seq_len = 512;
  EXPECT_GT(campaign(load_model("gpt2"), parse_cluster("1xh100-sxm"), strategy, request).chinchilla_tokens, 0);
  strategy.lora.emplace().r = 8;
  EXPECT_EQ(campaign(load_model("gpt2"), parse_cluster("1xh100-sxm"), strategy, request).chinchilla_tokens, 0);
}

/// fp32 weights and two fp32 moments under torch.autocast: 12 bytes for each parameter, written by one rank of DDP.
TEST(Campaign, CheckpointIsWhatTheFrameworkWrites) {
  CampaignRequest request;
  request.tokens = 1e9;
  request.storage_bytes_per_second = 1e9;
  const CampaignReport report = gpt2_run(request);
  EXPECT_EQ(report.checkpoint.bytes.count, 12 * 124439808LL);
  EXPECT_FALSE(report.checkpoint.sharded);
  ASSERT_TRUE(report.resilience);
  EXPECT_NEAR(report.checkpoint.write->value, 12 * 124439808.0 / 1e9, 1e-6);
  EXPECT_NEAR(report.resilience->between_failures.value, 50676.0 / 8 * 3600, 1);
  EXPECT_GT(report.days.expected, report.training.value / 86400);
}

TEST(Campaign, SpotCostsRestarts) {
  CampaignRequest request;
  request.tokens = 1e9;
  request.storage_bytes_per_second = 1e9;
  request.dollars_per_gpu_hour = request.spot_dollars_per_gpu_hour = 1;
  request.interruptions_per_hour = 1;
  const CampaignReport report = gpt2_run(request);
  EXPECT_GT(report.spot_dollars, report.dollars);
}

TEST(Campaign, LengthsAreReadAndMustBeSaid) {
  EXPECT_EQ(parse_tokens("15T", "--tokens"), 15e12);
  EXPECT_EQ(parse_tokens("2.5e9", "--tokens"), 2.5e9);
  EXPECT_EQ(parse_tokens("300B", "--tokens"), 300e9);
  for (const char* text : {"", "B", "-1B", "5X", "nan", "1e30"}) EXPECT_THROW(parse_tokens(text, "--tokens"), Error) << text;
  CampaignRequest request;
  EXPECT_THROW(gpt2_run(request), Error);
  request.epochs = 3;
  EXPECT_THROW(gpt2_run(request), Error);
  request.dataset_tokens = 1e9;
  EXPECT_EQ(gpt2_run(request).tokens, 3e9);
  request.tokens = 1e9;
  EXPECT_THROW(gpt2_run(request), Error);
}

TEST(Prices, HaveDatesAndSources) {
  for (const char* device : {"h100-sxm", "a100-80gb-sxm", "mi300x"}) {
    const auto prices = prices_of(device);
    ASSERT_FALSE(prices.empty()) << device;
    for (const GpuPrice& price : prices) EXPECT_FALSE(price.date.empty() || price.source.empty());
  }
  EXPECT_TRUE(prices_of("w7900").empty());
}

}  // namespace
}  // namespace plimsoll
