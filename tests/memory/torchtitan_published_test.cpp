// TorchTitan's lowered ranks against the reserved memory that its benchmark pages publish.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "devices.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/memory.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"
#include "program/lower.hpp"

namespace plimsoll {
namespace {

// The published 82.4 GiB is 68 GiB of tensors and 14 GiB of what the allocator does with them: no sum of tensors gets there.
TEST(TorchTitanPublished, ReservedMemoryOfDecember2024) {
  std::ifstream file(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/memory/data/torchtitan_published.json");
  const nlohmann::json document = nlohmann::json::parse(file);
  ASSERT_FALSE(document.at("rows").empty());
  for (const nlohmann::json& row : document.at("rows")) {
    const std::string name = row.at("name").get<std::string>();
    const Model model = load_model(row.at("model").get<std::string>());
    const Strategy strategy =
        resolve(parse_strategy(row.at("training").dump(), name), model, cluster_of("H100-SXM5-80GB", row.at("gpus").get<int>()));
    PlayMemoryOptions options;
    options.allocator = strategy.allocator;
    const MemoryTrace trace = play_memory(program::lower_torchtitan(program::on_h100(model, strategy)), options);
    const double published = row.at("reserved_gib").get<double>(), tolerance = row.at("tolerance").get<double>();
    EXPECT_NEAR(static_cast<double>(trace.peak_reserved.count) / 0x1p30 / published, 1.0, tolerance) << name;
  }
}

}  // namespace
}  // namespace plimsoll
