// More tokens, layers or passes never take less time or memory: pairs of plans drawn for every framework that differ in one of these. (Bytes,
// and ranks to reduce over: tests/cost/more_work_test.cpp.) By hand, by the ten thousand for each framework: PLIMSOLL_DRAWS=10000 test_estimate --gtest_filter='*MoreWork.*'
//
// A step that the host holds up takes as long as it has launches, and more work may have fewer: a product that fills the device is no longer
// split, whose parts were added by a kernel of their own; transformers looks through a batch of one, which may be packed, in every layer;
// Liger's loss takes its rows in chunks of a power of two, four of 16 at 64 tokens and three of 128 at 384. So the time for each launch, or
// for each product, is what takes no less where there are fewer of them, and the whole step where there are not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>

#include "estimate/drawn_plans.hpp"
#include "plimsoll/framework.hpp"

namespace plimsoll {
namespace {

using namespace drawn;

/// Pairs for each framework.
unsigned pairs(unsigned usual) {
  const char* asked = std::getenv("PLIMSOLL_DRAWS");
  return asked ? static_cast<unsigned>(std::strtoul(asked, nullptr, 10)) : usual;
}

struct Plan {
  bool experts = false;
  int layers = 4;
  std::string cluster;
  Options options;

  const Model& model() const {
    static std::map<std::pair<bool, int>, Model> all;
    const auto found = all.find({experts, layers});
    return found != all.end() ? found->second : all.emplace(std::pair(experts, layers), small_model(experts, layers)).first->second;
  }
  std::string text() const {
    return (experts ? "mixture of " : "dense of ") + std::to_string(layers) + " layers --on " + cluster + text_of(options);
  }
  void set(const std::string& key, const std::string& value) {
    std::erase_if(options, [&](const auto& each) { return each.first == key; });
    options.emplace_back(key, value);
  }
  std::string get(const std::string& key) const {
    const auto found = std::find_if(options.begin(), options.end(), [&](const auto& each) { return each.first == key; });
    return found == options.end() ? "" : found->second;
  }
  /// Nothing: it is refused, by name.
  std::optional<Report> report() const {
    try {
      Strategy said;
      set_options(said, options);
      return estimate(model(), parse_cluster(cluster), said);
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::internal) << error.what() << ": " << text();
      return std::nullopt;
    }
  }
};

const StrategyOption& option_named(const std::string& key) {
  const auto& options = strategy_options();
  return *std::find_if(options.begin(), options.end(), [&](const StrategyOption& option) { return option.key == key; });
}

Plan drawn_plan(const std::string& framework, std::mt19937& random) {
  static const std::vector<std::string> kClusters{"1xh100-sxm", "8xh100-sxm", "4xh100-sxm", "8xmi300x", "8xa100-80gb-sxm", "1xrtx4090", "8xv100-sxm2"};
  static const std::vector<std::string> kKeys{"data_parallel", "fsdp",    "zero",   "compile", "precision", "attention",  "loss",
                                              "optimizer",     "recompute", "offload", "lora.r",  "tp",        "pp",         "cp",
                                              "ep",            "sequence_parallel", "optimizer_impl", "grad_accum", "torch"};
  Plan plan;
  plan.experts = random() % 4 == 0;
  plan.cluster = one_of(random, kClusters);
  plan.options = {{"framework", framework}, {"seq_len", std::to_string(64 * (1 + random() % 8))}, {"micro_batch", std::to_string(1 + random() % 4)}};
  if (random() % 3 == 0) plan.set("data_parallel", "ddp");
  for (unsigned more = random() % 4; more > 0; --more) {
    const std::string& key = one_of(random, kKeys);
    plan.set(key, one_of(random, values_of(option_named(key))));
  }
  return plan;
}

/// The same with more of one thing, and what that is.
std::pair<Plan, std::string> grown(Plan plan, std::mt19937& random) {
  const auto raise = [&](const char* key, int by) { plan.set(key, std::to_string(std::stoi(plan.get(key)) + by)); };
  switch (random() % 4) {
    case 0:
      raise("seq_len", 64 * static_cast<int>(1 + random() % 8));
      return {plan, "length"};
    case 1:
      raise("micro_batch", static_cast<int>(1 + random() % 4));
      return {plan, "batch"};
    case 2:
      plan.layers += 4 * static_cast<int>(1 + random() % 2);
      return {plan, "layers"};
    default:
      plan.set("grad_accum", plan.get("grad_accum").empty() ? "2" : "4");
      return {plan, "passes"};
  }
}

/// The share of one's launches, or of its products, that the other has too, of all ranks together; 1 at most.
double share_of_launches(const Report& before, const Report& after) {
  double least = 1;
  for (const auto count : {&StepWork::launches, &StepWork::gemms}) {
    const auto sum = [&](const Report& report) {
      double all = 0;
      for (const RankReport& rank : report.ranks)
        if (rank.work) all += static_cast<double>((*rank.work).*count);
      return all / static_cast<double>(report.ranks.size());
    };
    if (sum(before) > 0) least = std::min(least, sum(after) / sum(before));
  }
  return least;
}

/// Inductor orders a compiled graph by the sizes of its buffers (reorder_for_peak_memory): where activations are as large as a weight's gradient it
/// makes that gradient before or after they die, so that two sequences of 64 tokens peak 0.2 % below one.
constexpr double kReordered = 5e-3;

/// Bytes are those of tensors: what the allocator's blocks leave beside them depends on which blocks were free.
void expect_no_less(const Plan& less, const Report& before, const Plan& more, const Report& after) {
  const std::string both = more.text() + "\n  against " + less.text();
  constexpr double kLag = 1e-3;  // a step lies between the ends of two that were played, of which the first may lag behind its host
  EXPECT_GE(after.time.step_seconds.expected, before.time.step_seconds.expected * share_of_launches(before, after) * (1 - kLag)) << both;
  ASSERT_EQ(after.ranks.size(), before.ranks.size()) << both;
  const double reordered = more.get("compile").empty() ? 0 : kReordered;
  for (std::size_t i = 0; i < before.ranks.size(); ++i)
    EXPECT_GE(static_cast<double>(after.ranks[i].memory.requested.count), static_cast<double>(before.ranks[i].memory.requested.count) * (1 - reordered))
        << "stage " << before.ranks[i].stage << " of " << both;
}

class MoreWork : public testing::TestWithParam<std::string> {};

TEST_P(MoreWork, TakesNoLess) {
  const std::string framework = GetParam();
  std::seed_seq seed(framework.begin(), framework.end());
  std::mt19937 random(seed);
  std::map<std::string, unsigned> compared;
  const unsigned wanted = pairs(60);
  unsigned done = 0;
  for (unsigned tries = 0; done < wanted && tries < 20 * wanted; ++tries) {
    const Plan less = drawn_plan(framework, random);
    const auto [more, what] = grown(less, random);
    const auto before = less.report();
    if (!before) continue;
    const auto after = more.report();
    if (!after || before->worst_rank().memory.out_of_memory || after->worst_rank().memory.out_of_memory) continue;
    ++compared[what], ++done;
    expect_no_less(less, *before, more, *after);
    if (testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count() > 30) return;
  }
  EXPECT_EQ(done, wanted) << "most draws are refused";
  for (const char* what : {"length", "batch", "layers"}) EXPECT_GT(compared[what], 0U) << what;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const FrameworkProfile& each : frameworks())
    if (each.refused.empty()) all.push_back(each.name);
  return all;
}

std::string name_of_test(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Frameworks, MoreWork, testing::ValuesIn(names()), name_of_test);

}  // namespace
}  // namespace plimsoll
