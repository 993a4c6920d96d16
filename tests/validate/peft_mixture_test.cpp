// What PEFT 0.21 does not adapt of mixtures of experts.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "validate/measured_rows.hpp"

namespace plimsoll {
namespace {

const std::vector<MeasuredRow>& rows() { return rows_in("allocator-peft-mixtures"); }

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
