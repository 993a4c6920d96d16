// What bitsandbytes' 4-bit weights take below PEFT's adapters, and what of them is refused.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "devices.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/memory.hpp"
#include "program/lower.hpp"
#include "validate/measured_rows.hpp"

namespace plimsoll {
namespace {

const std::vector<MeasuredRow>& rows() { return rows_in("allocator-qlora"); }

Strategy resolved(const MeasuredRow& row) { return resolve(row.strategy, *row.model, *row.cluster); }

// One step's state of a single quantised weight: n / 2 bytes and 4 n / 64 of maxima; doubly n / 64 and 4 n / 16384.
TEST(QloraRows, DoubleQuantisationShrinksTheMaxima) {
  const MeasuredRow& row = rows().front();
  const auto persistent = [&](BaseWeights weights) {
    Strategy s = resolved(row);
    s.base_weights = weights;
    return static_cast<double>(play_memory(program::lower_hf_eager(program::on_cluster(*row.cluster, *row.model, s)), {}).persistent.count);
  };
  const double elements = 2.0 * (2048.0 * 5120 + 3 * 2048.0 * 5632);  // of two layers' linears
  const double saved = elements * (4.0 / 64 - 1.0 / 64 - 4.0 / 16384);
  EXPECT_NEAR(persistent(BaseWeights::nf4) - persistent(BaseWeights::nf4_double_quant), saved, 0.02 * saved);
}

std::string refusal_of(const Strategy& s) {
  try {
    program::lower_hf_eager(program::on_cluster(*rows().front().cluster, *rows().front().model, s));
  } catch (const Error& error) {
    return error.code() == ErrorCode::refused ? error.message() : "another error";
  }
  return "";
}

TEST(QloraRows, WhatIsNotModelledIsRefusedByName) {
  Strategy s = resolved(rows().front());
  s.lora.reset();
  EXPECT_NE(refusal_of(s).find("adapters"), std::string::npos);
  s = resolved(rows().front());
  s.base_weights = BaseWeights::int8;
  s.data_parallel = DataParallel::fsdp2;
  EXPECT_NE(refusal_of(s).find("8-bit weights under FSDP"), std::string::npos);
}

// fully_shard makes DTensors of all parameters, of which those of integers lose their quantisation: a loop of its own fails. Accelerate
// leaves them whole.
TEST(QloraRows, OnlyAccelerateLeavesIntegersWholeUnderFsdp2) {
  const MeasuredRow& row = rows().front();
  Strategy s = resolved(row);
  s.data_parallel = DataParallel::fsdp2;
  EXPECT_THROW(program::lower_hf_fsdp2(program::on_cluster(*row.cluster, *row.model, s)), Error);
  s.framework = "accelerate";
  EXPECT_FALSE(program::lower_hf_fsdp2(program::on_cluster(*row.cluster, *row.model, s)).step.empty());
}

}  // namespace
}  // namespace plimsoll
