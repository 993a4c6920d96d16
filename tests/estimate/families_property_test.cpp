// Every family under every runner: an answer whose numbers can be, or an error that says what is not understood; never a crash.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plimsoll/error.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {
namespace {

using Options = std::vector<std::pair<std::string, std::string>>;

/// The smallest shipped model of every type.
const std::vector<Model>& families() {
  static const std::vector<Model> smallest = [] {
    std::map<std::string, Model> by_type;
    for (const std::string& name : shipped_models()) {
      Model model = load_model(name);
      const auto found = by_type.find(model.model_type);
      if (found == by_type.end())
        by_type.emplace(model.model_type, std::move(model));
      else if (model.parameters() < found->second.parameters())
        found->second = std::move(model);
    }
    std::vector<Model> models;
    for (auto& [type, model] : by_type) models.push_back(std::move(model));
    return models;
  }();
  return smallest;
}

void expect_possible(const Report& report, const std::string& what) {
  EXPECT_TRUE(std::isfinite(report.time.step_seconds.expected) && report.time.step_seconds.expected > 0) << what;
  EXPECT_LE(report.time.step_seconds.low, report.time.step_seconds.high) << what;
  for (const RankReport& rank : report.ranks) {
    const RankMemory& memory = rank.memory;
    Bytes sum;
    for (const MemoryPart& part : memory.parts) sum += part.bytes;
    EXPECT_GT(memory.allocated, Bytes(0)) << what;
    EXPECT_LE(memory.allocated, memory.reserved) << what;
    EXPECT_GE(sum, memory.allocated) << what;
  }
  const RankMemory& worst = report.worst_rank().memory;
  if (report.verdict == Verdict::fits) {
    EXPECT_LE(worst.device.expected, static_cast<double>(worst.capacity.count)) << what;
  }
}

class Families : public testing::TestWithParam<Options> {};

TEST_P(Families, AnswerOrSayWhatTheyDoNotTake) {
  const Cluster cluster = parse_cluster("8xh100-sxm");
  int answered = 0;
  for (const Model& model : families()) {
    std::string what = model.name;
    for (const auto& [key, value] : GetParam()) what += " --" + key + " " + value;
    try {
      Strategy strategy;
      set_options(strategy, GetParam());
      expect_possible(estimate(model, cluster, strategy), what);
      ++answered;
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::internal) << error.what() << ": " << what;
      EXPECT_FALSE(std::string(error.what()).empty()) << what;
    }
  }
  EXPECT_GT(answered, 0);
}

INSTANTIATE_TEST_SUITE_P(Runners, Families,
                         testing::Values(Options{{"data_parallel", "ddp"}}, Options{{"data_parallel", "fsdp1"}}, Options{{"data_parallel", "fsdp2"}},
                                         Options{{"zero", "1"}}, Options{{"zero", "2"}, {"offload", "optimizer"}}, Options{{"zero", "3"}},
                                         Options{{"framework", "torchtitan"}}, Options{{"framework", "torchtitan"}, {"tp", "2"}, {"pp", "2"}},
                                         Options{{"framework", "megatron-core"}, {"tp", "2"}}, Options{{"framework", "nanotron"}},
                                         Options{{"lora.r", "8"}}, Options{{"recompute", "full"}}, Options{{"precision", "fp8"}}));

}  // namespace
}  // namespace plimsoll
