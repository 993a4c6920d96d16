#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "plimsoll/engine.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::json;

Json rows() {
  std::ifstream file(PLIMSOLL_SOURCE_DIR "/tests/engine/data/logs.json");
  return Json::parse(file)["rows"];
}

/// A row's setting holds the keys of engine_options.
EngineSetting setting_of(const Json& row) {
  std::vector<std::pair<std::string, std::string>> said{{"engine", row["engine"].get<std::string>()}};
  for (const auto& [key, value] : row["setting"].items()) said.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
  return engine_setting(said);
}

EnginePlan plan_of(const Json& row) {
  Model model = load_model(row["model"].get<std::string>());
  model.max_positions = row.value("max_positions", model.max_positions);
  Cluster cluster = parse_cluster(row["on"].get<std::string>());
  if (row.contains("total_gib")) cluster.accelerator.memory_usable.value = Bytes(static_cast<std::int64_t>(row["total_gib"].get<double>() * (1 << 30)));
  return plan_engine(model, cluster, setting_of(row));
}

TEST(EngineProbe, Rows) {
  for (const Json& row : rows()) {
    const EnginePlan plan = plan_of(row);
    std::printf("%-28s w %.3f act %.3f (%s) out %.3f graphs %.2f%c cache %.3f blocks %ld tokens %ld T %ld N %ld %s | %s\n", row["id"].get<std::string>().c_str(), plan.weights.gib(), plan.activation_peak.gib(), plan.peak_label.c_str(), plan.outside.expected.gib(), plan.graphs.expected.gib(), plan.graphs_in_budget ? '*' : ' ',
      plan.cache.gib(), (long)plan.blocks, (long)plan.tokens, (long)*plan.setting.max_num_batched_tokens, (long)*plan.setting.max_num_seqs, plan.refused.c_str(), row["measured"].dump().c_str());
  }
}

}  // namespace
}  // namespace plimsoll
