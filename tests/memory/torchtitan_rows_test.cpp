// TorchTitan's lowered ranks against peaks that PyTorch's own caching allocator reported for the same configurations (TorchTitan 0.3.0 on
// PyTorch 2.15): FSDP2 and HSDP, recomputation by layer, every second layer and by operator, chunked and plain cross entropy, tensor and
// sequence parallelism, pipeline ranks, optimizers. The sequences of allocations agree, so allocated bytes may differ only by what the
// framework keeps in scalars and by the scratch of foreach copies (a MiB). Reserved bytes remember the trial step too by which a pipeline
// learns the shapes that its stages exchange.
#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>

#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/memory.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"
#include "program/lower.hpp"

namespace plimsoll {
namespace {

const nlohmann::json& document() {
  static const nlohmann::json all = [] {
    std::ifstream file(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/memory/data/torchtitan_rows.json");
    return nlohmann::json::parse(file);
  }();
  return all;
}
const nlohmann::json& rows() { return document().at("rows"); }

class TorchTitanRow : public ::testing::TestWithParam<std::size_t> {
 protected:
  const nlohmann::json& row() const { return rows().at(GetParam()); }
  std::string name() const { return row().at("name").get<std::string>(); }
  double measured(const char* key) const { return row().at(key).get<double>(); }

  Strategy strategy() const {
    const Strategy said = parse_strategy(row().at("training").dump(), name());
    return resolve(said, load_model(row().at("model").get<std::string>()), cluster_of("H100-SXM5-80GB", row().at("gpus").get<int>()));
  }
  StepProgram program() const {
    const Strategy s = strategy();
    return program::lower_torchtitan(load_model(row().at("model").get<std::string>()), s, s.pp_rank.value_or(0));
  }
};

TEST_P(TorchTitanRow, AgreesWithPyTorch) {
  const Strategy s = strategy();
  PlayMemoryOptions options;
  options.allocator = s.allocator;
  const MemoryTrace trace = play_memory(program(), options);
  constexpr double kMiB = 1048576;
  EXPECT_NEAR(static_cast<double>(trace.peak_allocated.count), measured("peak_allocated"), 1.0 * kMiB) << name();
  EXPECT_NEAR(static_cast<double>(trace.persistent.count), measured("persistent"), 1.0 * kMiB) << name();
  const double reserved = static_cast<double>(trace.peak_reserved.count) / measured("peak_reserved");
  EXPECT_NEAR(reserved, 1.0, 0.002) << name();
}

// A step is played over and over: what it frees it has allocated itself, and it gives everything back.
TEST_P(TorchTitanRow, TheStepLeavesWhatItFound) {
  std::int64_t allocs = 0, frees = 0;
  for (const Instruction& instruction : program().step) {
    allocs += instruction.kind == InstructionKind::alloc ? 1 : 0;
    frees += instruction.kind == InstructionKind::free ? 1 : 0;
  }
  EXPECT_GT(allocs, 0);
  EXPECT_EQ(allocs, frees) << name();
}

INSTANTIATE_TEST_SUITE_P(Rows, TorchTitanRow, ::testing::Range<std::size_t>(0, rows().size()),
                         [](const ::testing::TestParamInfo<std::size_t>& row) {
                           std::string name = rows().at(row.param).at("name").get<std::string>();
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

// The published 82.4 GiB is 68 GiB of tensors and 14 GiB of what the allocator does with them: no sum of tensors gets there.
TEST(TorchTitanPublished, ReservedMemoryOfDecember2024) {
  for (const nlohmann::json& row : document().at("published")) {
    const std::string name = row.at("name").get<std::string>();
    const Model model = load_model(row.at("model").get<std::string>());
    const Strategy strategy =
        resolve(parse_strategy(row.at("training").dump(), name), model, cluster_of("H100-SXM5-80GB", row.at("gpus").get<int>()));
    PlayMemoryOptions options;
    options.allocator = strategy.allocator;
    const MemoryTrace trace = play_memory(program::lower_torchtitan(model, strategy, 0), options);
    const double published = row.at("reserved_gib").get<double>(), tolerance = row.at("tolerance").get<double>();
    EXPECT_NEAR(static_cast<double>(trace.peak_reserved.count) / 0x1p30 / published, 1.0, tolerance) << name;
  }
}

}  // namespace
}  // namespace plimsoll
