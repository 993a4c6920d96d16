// One job on several machines: lists of machines, prices, what a token costs.
#include "plimsoll/offers.hpp"

#include <gtest/gtest.h>

#include "plimsoll/error.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {
namespace {

using Names = std::vector<std::string>;

MachineOffer gpt2_on(const std::string& machine) {
  const Model model = load_model("gpt2");
  const Cluster cluster = parse_cluster(machine);
  Strategy strategy;
  set_options(strategy, {{"micro_batch", "4"}, {"seq_len", "256"}});
  return offer_of(machine, cluster, estimate(model, cluster, strategy));
}

TEST(Offers, AListIsSplitAtItsCommas) {
  EXPECT_EQ(machines_of("8xh100-sxm"), Names{"8xh100-sxm"});
  EXPECT_EQ(machines_of("h100-sxm, 8xmi300x"), (Names{"h100-sxm", "8xmi300x"}));
  EXPECT_EQ(machines_of("16,384 x h100-sxm"), Names{"16,384 x h100-sxm"}) << "the comma of a number";
  EXPECT_EQ(machines_of("8xmi300x,16,384xh100-sxm"), (Names{"8xmi300x", "16,384xh100-sxm"}));
  EXPECT_EQ(machines_of("clusters/a,b.json"), Names{"clusters/a,b.json"}) << "a path";
  EXPECT_THROW(machines_of("h100-sxm,h100-sxm"), Error);
}

TEST(Offers, AnyIsANodeOfEveryDeviceWithAPrice) {
  const Names all = machines_of("any");
  ASSERT_GT(all.size(), 5U);
  for (const std::string& each : all) EXPECT_FALSE(prices_of(parse_cluster(each).accelerator.name).empty()) << each;
}

// A GPU that costs p dollars an hour and trains on r tokens a second pays p / 3600 / r for one; the slow end of the band costs most.
TEST(Offers, ATokenCostsItsShareOfAnHour) {
  const MachineOffer offer = gpt2_on("8xh100-sxm");
  ASSERT_TRUE(offer.price && offer.dollars());
  const double expected = 1e9 * offer.price->dollars_per_gpu_hour / 3600 / offer.report->time.tokens_per_second_per_gpu;
  EXPECT_NEAR(offer.dollars()->expected, expected, 1e-9 * expected);
  EXPECT_NEAR(offer.dollars()->high / offer.dollars()->expected,
              offer.report->time.step_seconds.high / offer.report->time.step_seconds.expected, 1e-9);
  EXPECT_NEAR(offer.rate(), 8 * offer.report->time.tokens_per_second_per_gpu, 1e-6 * offer.rate());
}

TEST(Offers, OnDemandIsReckonedWithWhereThereIsOne) {
  for (const char* device : {"h100-sxm", "mi300x"}) {
    const auto price = reckoned_price(device);
    ASSERT_TRUE(price);
    EXPECT_EQ(price->kind, "on-demand");
    for (const GpuPrice& other : prices_of(device)) {
      if (other.kind == "on-demand") EXPECT_LE(price->dollars_per_gpu_hour, other.dollars_per_gpu_hour);
    }
  }
  EXPECT_FALSE(reckoned_price("mi250x"));
}

TEST(Offers, TheAnswerNamesTheFastestAndTheCheapestThatFit) {
  std::vector<MachineOffer> offers{gpt2_on("1xh100-sxm"), gpt2_on("8xh100-sxm"), {"8xt4", {}, "bf16 is not there", {}, {}}};
  const std::string text = to_text(offers, {});
  EXPECT_EQ(text.rfind("fastest: 8xh100-sxm", 0), 0U) << text;
  EXPECT_NE(text.find("8xt4: bf16 is not there"), std::string::npos) << text;
  offers.erase(offers.begin(), offers.begin() + 2);
  EXPECT_EQ(to_text(offers, {}).rfind("it fits none of these machines", 0), 0U);
}

}  // namespace
}  // namespace plimsoll
