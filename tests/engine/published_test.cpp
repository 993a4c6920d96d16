// Start-up logs of vLLM and SGLang (data/logs.json has their sources) against the plan of the same setting.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/parts.hpp"
#include "plimsoll/engine.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::json;

constexpr double kGib = 1 << 30;

const Json& logs() {
  static const Json kLogs = Json::parse(std::ifstream(PLIMSOLL_SOURCE_DIR "/tests/engine/data/logs.json"));
  return kLogs;
}

/// A row's setting holds the keys of engine_options.
EngineSetting setting_of(const Json& row) {
  std::vector<std::pair<std::string, std::string>> said{{"engine", row["engine"].get<std::string>()}};
  for (const auto& [key, value] : row["setting"].items())
    said.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
  return engine_setting(said);
}

Model model_of(const Json& row) {
  Model model = load_model(row["model"].get<std::string>());
  model.max_positions = row.value("max_positions", model.max_positions);
  return model;
}

Cluster cluster_of(const Json& row) {
  Cluster cluster = parse_cluster(row["on"].get<std::string>());
  if (row.contains("total_gib"))
    cluster.accelerator.memory_usable.value = Bytes(static_cast<std::int64_t>(row["total_gib"].get<double>() * kGib));
  return cluster;
}

/// The plan, of the rank that printed the log: of a first stage without the sampler, not of the rank whose cache is the smallest.
EnginePlan plan_of(const Json& row) {
  const Model model = model_of(row);
  EnginePlan plan = plan_engine(model, cluster_of(row), setting_of(row));
  if (!row.contains("first_stage")) return plan;
  const engine::Stage first = engine::stages_of(model, plan.setting).front();
  program::ServedRank rank{.model = model,
                           .device = program::target_device(cluster_of(row)),
                           .torch = engine::VllmRelease(*plan.setting.release, plan.runner).torch()};
  rank.tp = plan.setting.tp;
  rank.layers = first.layers;
  rank.tokens = *plan.setting.max_num_batched_tokens;
  rank.quantizes_inputs = engine::weight_format(plan.setting.weights).quantizes_inputs;
  plan.cache += plan.weights + plan.activation_peak;
  plan.weights = weights_on_rank(model, plan.setting, first);
  plan.activation_peak = engine::profile_of(rank).peak;
  plan.cache -= plan.weights + plan.activation_peak;
  return plan;
}

/// Predicted over published, less one, of what a log says of its cache.
double error_of(const Json& row, const EnginePlan& plan) {
  const Json& measured = row["measured"];
  if (measured.contains("kv_cache_tokens")) return static_cast<double>(plan.tokens) / measured["kv_cache_tokens"].get<double>() - 1;
  return plan.cache.gib() / measured["kv_cache_gib"].get<double>() - 1;
}

bool predicts(const Json& row) {
  return !row.contains("unsaid") && (row["measured"].contains("kv_cache_gib") || row["measured"].contains("kv_cache_tokens"));
}

TEST(PublishedEngines, TheWholeCacheIsPredictedWithinFivePercent) {
  struct Line {
    double error;
    std::string text;
  };
  std::vector<Line> lines;
  for (const Json& row : logs()["rows"]) {
    if (!predicts(row)) continue;
    const EnginePlan plan = plan_of(row);
    const double error = error_of(row, plan);
    const std::string id = row["id"].get<std::string>();
    EXPECT_LT(std::abs(error), 0.05) << id << ": " << plan.cache.gib() << " GiB, " << plan.tokens << " tokens";
    lines.push_back({std::abs(error), id + "  " + std::to_string(100 * error) + " %  " + std::to_string(plan.cache.gib()) + " GiB, " +
                                          std::to_string(plan.tokens) + " tokens" + (row.contains("calibrates") ? "  (calibrates)" : "")});
  }
  EXPECT_GE(lines.size(), 10u);
  std::sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.error > b.error; });
  for (const Line& line : lines) std::printf("  %s\n", line.text.c_str());
}

TEST(PublishedEngines, WeightsOfARankAreTheEnginesOwn) {
  for (const Json& row : logs()["rows"]) {
    if (!row["measured"].contains("weights_gib")) continue;
    const EnginePlan plan = plan_of(row);
    const double error = plan.weights.gib() / row["measured"]["weights_gib"].get<double>() - 1;
    EXPECT_LT(std::abs(error), row.value("weights_within", 0.0125)) << row["id"] << ": " << 100 * error << " %";
  }
}

// The peaks that rank 0 printed: the sampler's, whose sort holds 38 bytes for each of 256 x 128,256 logits (2 and 4 of the logits in 16
// bits and fp32, 4 and 8 of what is sorted, 8 of the indices before, 12 of CUB's copies), the hidden states and Hopper's workspace.
TEST(PublishedEngines, ThePeakOfTheProfileIsRead) {
  for (const Json& row : logs()["rows"]) {
    const Json& measured = row["measured"];
    if (!measured.contains("activation_peak_gib") || row.contains("unsaid") || row.contains("peak_unsaid")) continue;
    EXPECT_NEAR(plan_of(row).activation_peak.gib(), measured["activation_peak_gib"].get<double>(), 0.0051) << row["id"];
  }
}

// Ranks without the sampler: three tensors of hidden states that Python's frames hold, gate and up, their product, and the sum of the
// ranks' parts before and behind its collective.
TEST(PublishedEngines, ThePeakOfARankThatSamplesNothing) {
  int read = 0;
  for (const Json& row : logs()["rows"]) {
    if (!row["measured"].contains("other_rank_peak_gib")) continue;
    const Model model = model_of(row);
    const EnginePlan plan = plan_of(row);
    program::ServedRank rank{.model = model,
                             .device = program::target_device(cluster_of(row)),
                             .torch = engine::VllmRelease(*plan.setting.release, plan.runner).torch()};
    rank.tp = plan.setting.tp;
    rank.layers = model.layers;
    rank.samples = false;
    rank.gathers_everywhere = false;
    rank.tokens = *plan.setting.max_num_batched_tokens;
    rank.sequences = *plan.setting.max_num_seqs;
    EXPECT_NEAR(engine::profile_of(rank).peak.gib(), row["measured"]["other_rank_peak_gib"].get<double>(), 0.0051) << row["id"];
    ++read;
  }
  EXPECT_EQ(read, 2);
}

TEST(PublishedEngines, BlocksFollowFromTheirBytes) {
  for (const Json& row : logs()["pages"]) {
    const Model model = load_model(row["model"].get<std::string>());
    EngineSetting setting = engine_setting({{"engine", row["engine"].get<std::string>()}, {"tp", row["tp"].dump()}});
    setting.block_size = setting.engine == RolloutEngine::vllm ? 16 : 1;
    setting.max_num_batched_tokens = 8192;
    const engine::BlockPool pool(cache_groups(model, setting, engine::stages_of(model, setting).front()), setting, false);
    if (!row.contains("kv_cache_gib")) {
      EXPECT_EQ(pool.tokens(row["kv_cache_blocks"].get<std::int64_t>()), row["kv_cache_tokens"].get<std::int64_t>()) << row["id"];
      continue;
    }
    const std::int64_t blocks = pool.blocks(Bytes(static_cast<std::int64_t>(row["kv_cache_gib"].get<double>() * kGib)));
    const double found = static_cast<double>(row.contains("kv_cache_blocks") ? blocks : pool.tokens(blocks));
    const double printed = row[row.contains("kv_cache_blocks") ? "kv_cache_blocks" : "kv_cache_tokens"].get<double>();
    EXPECT_NEAR(found / printed, 1, row.value("within", 0.005)) << row["id"] << ": " << found;
  }
}

}  // namespace
}  // namespace plimsoll
