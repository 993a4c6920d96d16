// LoRA over mixtures of experts whose router and stacked experts PEFT 0.21 adapts as parameters, against the peaks of PyTorch 2.15's own
// caching allocator on a CUDA runtime without a GPU (bench/corpus/allocator-peft-mixtures.json).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plimsoll/framework.hpp"
#include "plimsoll/memory.hpp"
#include "plimsoll/rows.hpp"
#include "program/lower.hpp"
#include "validate/measured_rows.hpp"

namespace plimsoll {
namespace {

const std::vector<MeasuredRow>& rows() {
  static const std::vector<MeasuredRow> all = load_rows(std::string(PLIMSOLL_SOURCE_DIR) + "/bench/corpus/allocator-peft-mixtures.json");
  return all;
}

StepProgram lowered(const MeasuredRow& row) {
  return program::lower_transformers(*row.model, resolve(row.strategy, *row.model, *row.cluster));
}

// Allocated bytes to the byte, reserved ones within one segment of 2 MiB.
TEST(PeftMixtureRows, AgreeWithPyTorch) {
  ASSERT_FALSE(rows().empty());
  for (const MeasuredRow& row : rows()) {
    const MemoryTrace trace = play_memory(lowered(row), {});
    EXPECT_EQ(static_cast<double>(trace.peak_allocated.count), measured(row, quantity::allocated)) << row.id;
    EXPECT_NEAR(static_cast<double>(trace.peak_reserved.count), measured(row, quantity::reserved), 0x1p21) << row.id;
    EXPECT_EQ(static_cast<double>(trace.backward_peak.count), measured(row, quantity::backward_peak)) << row.id;
  }
}

TEST(PeftMixtureRows, StepsLeaveWhatTheyFound) {
  for (const MeasuredRow& row : rows()) expect_leaves_what_it_found(lowered(row));
}

const MeasuredRow& row_of_type(const std::string& type) {
  for (const MeasuredRow& row : rows())
    if (row.model->model_type == type && row.strategy.data_parallel == DataParallel::none) return row;
  throw std::runtime_error("no row of " + type);
}

TEST(PeftMixtureRows, WhatIsNotModelledIsRefusedByName) {
  const MeasuredRow& row = row_of_type("qwen3_moe");
  EXPECT_EQ(failure_after(row, [](Strategy&) {}), std::nullopt);
  EXPECT_EQ(failure_after(row, [](Strategy& s) { s.lora->targets = {"q_proj", "up_proj"}; }), ErrorCode::bad_input);
  EXPECT_EQ(failure_after(row,
                          [](Strategy& s) {
                            s.lora->targets = {"all-linear"};
                            s.lora->dropout = 0.1;
                          }),
            ErrorCode::bad_input);
}

}  // namespace
}  // namespace plimsoll
