// What MS-AMP does not do, or is not played for, over transformers (bench/corpus/allocator-msamp.json: MS-AMP 0.4.0).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plimsoll/memory.hpp"
#include "validate/measured_rows.hpp"

namespace plimsoll {
namespace {

const std::vector<MeasuredRow>& rows() {
  static const std::vector<MeasuredRow> all = load_rows(std::string(PLIMSOLL_SOURCE_DIR) + "/bench/corpus/allocator-msamp.json");
  return all;
}

bool refused_when(const std::string& id, void (*change)(Strategy&)) {
  return failure_after(row_of(rows(), id), change) == ErrorCode::refused;
}

TEST(MsAmpRefusals, NameWhatIsNotPlayed) {
  EXPECT_FALSE(refused_when("msamp-llama-O2", [](Strategy&) {}));
  EXPECT_TRUE(refused_when("msamp-llama-O2", [](Strategy& s) { s.compile = Strategy::Compile::blocks; }));
  EXPECT_TRUE(refused_when("msamp-llama-O2", [](Strategy& s) { s.loss = LossKernel::liger_fused_linear; }));
}

// O3 is for MS-AMP's own DeepSpeed engine, its casts are for Adam, and Accelerate raises where FSDP is asked for.
TEST(MsAmpRefusals, WhatMsAmpAndAccelerateRaise) {
  const auto impossible = [](const std::string& id, void (*change)(Strategy&)) {
    return failure_after(row_of(rows(), id), change) == ErrorCode::bad_input;
  };
  EXPECT_TRUE(impossible("msamp-llama-O2", [](Strategy& s) { s.precision = Precision::msamp_o3; }));
  EXPECT_TRUE(impossible("msamp-llama-O2", [](Strategy& s) { s.optimizer = OptimizerKind::sgd; }));
  EXPECT_TRUE(impossible("msamp-llama-O2-ddp", [](Strategy& s) { s.data_parallel = DataParallel::fsdp2; }));
}

// The decoder's bias is tied to one of BERT's head, which nobody uses once MS-AMP has copied it; the reducer would wait for its gradient.
TEST(MsAmpRefusals, DdpWaitsForABiasThatWasCopied) {
  const MeasuredRow& row = row_of(rows(), "msamp-bert-O2");
  Strategy distributed = resolve(row.strategy, *row.model, *row.cluster);
  distributed.data_parallel = DataParallel::ddp;
  distributed.dp = 8;
  EXPECT_THROW(lower_transformers(*row.model, distributed), Error);
  distributed.ddp.find_unused_parameters = true;
  EXPECT_NO_THROW(lower_transformers(*row.model, distributed));
}

// A step's gradients of a head that was tied are never cleared: the first step finds none, all later ones add to them.
TEST(MsAmpRows, AHeadThatWasTiedKeepsItsGradient) {
  const MeasuredRow& row = row_of(rows(), "msamp-opt-O2");
  const StepProgram program = lower_transformers(*row.model, resolve(row.strategy, *row.model, *row.cluster));
  expect_leaves_what_it_found(program);
  EXPECT_FALSE(program.second_step.empty());
  EXPECT_EQ(static_cast<double>(play_memory(program, {}).peak_reserved.count), measured(row, quantity::reserved));
}

}  // namespace
}  // namespace plimsoll
