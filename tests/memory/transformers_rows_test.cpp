// Lowered steps of transformers' and diffusers' modules and of graph files against peaks that PyTorch's own caching allocator reported for
// the same configurations: every family, type, attention, recomputation, optimizer and adapter once. Allocated bytes are exact; reserved
// bytes may differ by one segment (an embedding gradient's scratch memory follows cub's temporary storage, which is measured, not read).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "plimsoll/memory.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"
#include "program/lower.hpp"

namespace plimsoll {
namespace {

const nlohmann::json& rows() {
  static const nlohmann::json all = [] {
    nlohmann::json joined = nlohmann::json::array();
    for (const char* name : {"transformers_rows", "diffusers_rows"}) {
      std::ifstream file(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/memory/data/" + name + ".json");
      const nlohmann::json document = nlohmann::json::parse(file);
      for (const nlohmann::json& row : document.at("rows")) joined.push_back(row);
    }
    return joined;
  }();
  return all;
}

/// A CUDA runtime without a GPU has no cuDNN.
Strategy strategy_of(const nlohmann::json& row, const std::string& name) {
  Strategy strategy = parse_strategy(row.at("training").dump(), name);
  strategy.cudnn = false;
  return strategy;
}

class TransformersRow : public ::testing::TestWithParam<std::size_t> {
 protected:
  const nlohmann::json& row() const { return rows().at(GetParam()); }
  std::string name() const { return row().at("name").get<std::string>(); }
  std::int64_t measured(const char* key) const { return row().at(key).get<std::int64_t>(); }
};

TEST_P(TransformersRow, AgreesWithPyTorch) {
  const Model model = parse_model(row().at("config").dump(), name(), name());
  const Strategy strategy = strategy_of(row(), name());
  const StepProgram program = program::lower_hf_eager(model, strategy);
  PlayMemoryOptions options;
  options.allocator = strategy.allocator;
  const MemoryTrace trace = play_memory(program, options);
  EXPECT_EQ(trace.peak_allocated.count, measured("peak_allocated")) << name();
  EXPECT_EQ(trace.first_step_allocated.count, measured("first_step_allocated")) << name();
  EXPECT_EQ(trace.persistent.count, measured("persistent")) << name();
  const double reserved = static_cast<double>(trace.peak_reserved.count) / static_cast<double>(measured("peak_reserved"));
  EXPECT_NEAR(reserved, 1.0, 0.001) << name();
}

// A step is played over and over: what it frees it has allocated itself, and it gives everything back.
TEST_P(TransformersRow, TheStepLeavesWhatItFound) {
  const Model model = parse_model(row().at("config").dump(), name(), name());
  const Strategy strategy = strategy_of(row(), name());
  const StepProgram program = program::lower_hf_eager(model, strategy);
  std::int64_t allocs = 0, frees = 0;
  for (const Instruction& instruction : program.step) {
    allocs += instruction.kind == InstructionKind::alloc ? 1 : 0;
    frees += instruction.kind == InstructionKind::free ? 1 : 0;
  }
  EXPECT_GT(allocs, 0);
  EXPECT_EQ(allocs, frees) << name();
}

INSTANTIATE_TEST_SUITE_P(Rows, TransformersRow, ::testing::Range<std::size_t>(0, rows().size()),
                         [](const ::testing::TestParamInfo<std::size_t>& row) {
                           std::string name = rows().at(row.param).at("name").get<std::string>();
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace plimsoll
