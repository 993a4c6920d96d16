// Predictions against measured rows: which quantities are compared, how errors are summed up, what is refused.
#include "plimsoll/validate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plimsoll/error.hpp"
#include "validate/compare.hpp"

namespace plimsoll {
namespace {

std::shared_ptr<const Model> small_model() {
  // One linear of 8 × 4 and nothing else: 32 parameters.
  auto model = std::make_shared<Model>();
  Block block;
  block.role = Block::Role::decoder;
  block.repeat = 3;
  Operator linear;
  linear.kind = OperatorKind::linear;
  linear.name = "self_attn.q_proj";
  linear.in_features = 4;
  linear.out_features = 8;
  ParameterTensor weight;
  weight.name = "self_attn.q_proj.weight";
  weight.shape = {8, 4};
  linear.parameters = {weight};
  block.operators = {linear};
  model->blocks = {block};
  return model;
}

MeasuredRow row(const std::string& id, std::vector<Observed> measured) {
  MeasuredRow r;
  r.id = id;
  r.model = small_model();
  r.cluster.emplace();
  r.cluster->accelerator.memory_usable.value = Bytes(100);
  r.measured = std::move(measured);
  return r;
}

/// Two stages: allocated 60 and 90, reserved 80 and 110 of 100 bytes; one second a step. Unbounded memory fits.
Report fixed(const Model&, const Cluster& cluster, const Strategy&) {
  Report report;
  report.ranks.resize(2);
  report.ranks[1].stage = 1;
  report.ranks[0].memory.allocated = Bytes(60);
  report.ranks[1].memory.allocated = Bytes(90);
  report.ranks[0].memory.reserved = Bytes(80);
  report.ranks[1].memory.reserved = Bytes(110);
  const bool fits = cluster.accelerator.memory_usable.value.count >= 110;
  report.ranks[1].memory.out_of_memory = !fits;
  if (!fits) report.ranks[1].memory.allocated = Bytes(70);  // cut short where it failed
  report.verdict = fits ? Verdict::fits : Verdict::does_not_fit;
  report.time.step_seconds = Band::exactly(1.0);
  report.time.tokens_per_second_per_gpu = 50;
  return report;
}

const Comparison& only(const Validation& v) {
  EXPECT_EQ(v.rows.size(), 1u);
  return v.rows.front();
}

TEST(Validate, ErrorIsPredictedOverMeasuredMinusOne) {
  const auto v = validate({{"s", {row("a", {{quantity::step_seconds, 0.8, false}})}}}, fixed);
  EXPECT_DOUBLE_EQ(only(v).predicted, 1.0);
  EXPECT_DOUBLE_EQ(only(v).error, 1.0 / 0.8 - 1);
  EXPECT_EQ(only(v).source, "s");
}

TEST(Validate, PeaksAreOfTheWorstRankUnlessOneIsAskedAbout) {
  MeasuredRow first = row("r0", {{quantity::reserved, 80, false}});
  first.strategy.pp_rank = 0;
  const auto v = validate({{"s", {row("worst", {{quantity::reserved, 100, false}}), first}}}, fixed);
  ASSERT_EQ(v.rows.size(), 2u);
  EXPECT_EQ(v.rows[0].id, "worst") << "the largest error comes first";
  EXPECT_DOUBLE_EQ(v.rows[0].predicted, 110);
  EXPECT_DOUBLE_EQ(v.rows[1].predicted, 80);
}

TEST(Validate, AMeasuredPeakIsPredictedWithoutTheLimitThatCutItShort) {
  const auto v = validate({{"s", {row("a", {{quantity::allocated, 90, false}, {quantity::fits, 0, false}})}}}, fixed);
  ASSERT_EQ(v.rows.size(), 2u);
  for (const auto& each : v.rows)
    EXPECT_DOUBLE_EQ(each.predicted, each.quantity == quantity::fits ? 0.0 : 90.0) << "not the 70 at which the device was full";
}

TEST(Validate, VerdictsAreCountedAndFalseFitsShown) {
  std::vector<MeasuredRow> rows;
  for (int i = 0; i < 3; ++i) rows.push_back(row("ran" + std::to_string(i), {{quantity::fits, 1, false}}));
  rows.push_back(row("oom", {{quantity::fits, 0, false}}));
  for (auto& each : rows) each.cluster->accelerator.memory_usable.value = Bytes(200);  // all are predicted to fit
  const auto v = validate({{"s", rows}}, fixed);
  ASSERT_EQ(v.fits.size(), 1u);
  EXPECT_EQ(v.fits[0].fits_right, 3u);
  EXPECT_EQ(v.fits[0].oom_wrong, 1u);
  EXPECT_DOUBLE_EQ(v.fits[0].right(), 0.75);
  EXPECT_DOUBLE_EQ(v.fits[0].false_fits(), 1.0) << "the one run that ran out was predicted to fit";
}

TEST(Validate, MedianAndNinetiethPercentileOfTheErrors) {
  // Predicted 1 s against 1/1.00 … 1/1.10 s measured: errors 0 %, 1 %, …, 10 %; median 5 %, nine in ten 9 %.
  std::vector<MeasuredRow> rows;
  for (int i = 0; i <= 10; ++i) rows.push_back(row(std::to_string(i), {{quantity::step_seconds, 1 / (1 + i / 100.0), false}}));
  const auto v = validate({{"s", rows}}, fixed);
  ASSERT_EQ(v.quantities.size(), 1u);
  EXPECT_EQ(v.quantities[0].rows, 11u);
  EXPECT_NEAR(v.quantities[0].median, 0.05, 1e-12);
  EXPECT_NEAR(v.quantities[0].ninetieth, 0.09, 1e-12);
  EXPECT_NEAR(v.quantities[0].bias, 0.05, 1e-12);
}

TEST(Validate, RowsThatAClosedFormStandsInForAreCounted) {
  const auto played = [](const Model& model, const Cluster& cluster, const Strategy& strategy) {
    Report report = fixed(model, cluster, strategy);
    for (RankReport& rank : report.ranks) rank.memory.basis = Basis::played;
    report.time.basis = Basis::played;
    return report;
  };
  const std::vector<RowSet> sets{{"s", {row("a", {{quantity::allocated, 90, false}, {quantity::step_seconds, 1, false}})}}};
  for (const auto& each : validate(sets, played).quantities) EXPECT_EQ(each.closed_form, 0u) << each.quantity;
  for (const auto& each : validate(sets, fixed).quantities) EXPECT_EQ(each.closed_form, 1u) << each.quantity;
}

TEST(Validate, ALowerBoundIsShownAndNotSummedUp) {
  const auto v = validate({{"s", {row("a", {{quantity::reserved, 50, true}})}}}, fixed);
  EXPECT_TRUE(only(v).lower_bound);
  EXPECT_TRUE(v.quantities.empty());
}

TEST(Validate, EveryRowIsPredictedOrRefusedAndNoneStopsTheOthers) {
  auto moody = [](const Model& model, const Cluster& cluster, const Strategy& strategy) -> Report {
    if (strategy.framework == "refused") refuse("mamba is not modelled");
    if (strategy.framework == "broken") throw std::runtime_error("defect");
    return fixed(model, cluster, strategy);
  };
  MeasuredRow refused = row("refused", {{quantity::step_seconds, 1, false}}), broken = row("broken", {{quantity::step_seconds, 1, false}});
  refused.strategy.framework = "refused";
  broken.strategy.framework = "broken";
  MeasuredRow unread = row("unread", {});
  unread.refused = "training.tp is absent";
  const auto v = validate({{"s", {refused, broken, unread, row("empty", {}), row("good", {{quantity::step_seconds, 1, false}})}}}, moody);
  EXPECT_EQ(only(v).id, "good");
  ASSERT_EQ(v.refused.size(), 4u);
  EXPECT_EQ(v.refused[0].reason, "mamba is not modelled");
  EXPECT_EQ(v.refused[1].reason, "defect");
  EXPECT_EQ(v.refused[2].reason, "training.tp is absent");
  EXPECT_EQ(v.sources[0].rows, 5u);
  EXPECT_EQ(v.sources[0].predicted, 1u);
}

TEST(Validate, ParametersNeedNoStepAndCountTheAdapters) {
  MeasuredRow r = row("p", {{quantity::parameters, 96, false}});
  r.cluster.reset();
  auto none = [](const Model&, const Cluster&, const Strategy&) -> Report { throw std::runtime_error("must not be called"); };
  EXPECT_DOUBLE_EQ(only(validate({{"s", {r}}}, none)).error, 0.0) << "3 layers of 8 · 4";
  // Rank 2 on q_proj: 2 · (4 + 8) = 24 per layer.
  r.strategy.lora.emplace();
  r.strategy.lora->r = 2;
  r.strategy.lora->targets = {"q_proj"};
  EXPECT_DOUBLE_EQ(only(validate({{"s", {r}}}, none)).predicted, 96 + 72);
}

TEST(Validate, JsonAndTextHoldEveryRow) {
  const auto v = validate({{"s", {row("a\"b", {{quantity::step_seconds, 2, false}})}}}, fixed);
  const std::string json = validation_json(v);
  EXPECT_NE(json.find("\"schema\":\"plimsoll/validation/1\""), std::string::npos);
  EXPECT_NE(json.find("{\"id\":\"a\\\"b\",\"quantity\":\"step_seconds\",\"predicted\":1,\"measured\":2,\"error\":-0.5,\"source\":\"s\"}"),
            std::string::npos)
      << json;
  EXPECT_NE(validation_text(v).find("-50.00%"), std::string::npos) << validation_text(v);
}

// A step of 2 s predicted as 1 s lies in a band from 0.8 to 2.5 s, one of 3 s does not; of tokens a second the band is turned round.
TEST(Validate, CountsWhatLiesInItsBand) {
  const Predictor banded = [](const Model& model, const Cluster& cluster, const Strategy& strategy) {
    Report report = fixed(model, cluster, strategy);
    report.time.step_seconds = {0.8, 1.0, 2.5};
    return report;
  };
  const auto v = validate({{"s",
                            {row("a", {{quantity::step_seconds, 2, false}}), row("b", {{quantity::step_seconds, 3, false}}),
                             row("c", {{quantity::tokens_per_second, 25, false}})}}},
                          banded);
  for (const Comparison& each : v.rows) {
    if (each.quantity == quantity::tokens_per_second) {
      EXPECT_DOUBLE_EQ(each.low, 20);
      EXPECT_DOUBLE_EQ(each.high, 62.5);
      EXPECT_TRUE(each.inside());
    } else {
      EXPECT_EQ(each.inside(), each.id == "a");
    }
  }
  const auto steps = std::find_if(v.quantities.begin(), v.quantities.end(),
                                  [](const QuantitySummary& one) { return one.quantity == quantity::step_seconds; });
  EXPECT_EQ(steps->banded, 2u);
  EXPECT_EQ(steps->inside, 1u);
  const std::string json = validation_json(v);
  EXPECT_NE(json.find(R"("low":0.8,"high":2.5,"inside":true)"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("banded":2,"inside":1)"), std::string::npos) << json;
  EXPECT_NE(validation_text(v).find("1 of 2"), std::string::npos) << validation_text(v);
}

}  // namespace
}  // namespace plimsoll
