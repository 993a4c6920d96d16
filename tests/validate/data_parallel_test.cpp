// What the wrappers of data parallelism refuse.
#include <gtest/gtest.h>

#include <vector>

#include "validate/measured_rows.hpp"

namespace plimsoll {
namespace {

const std::vector<MeasuredRow>& rows() { return rows_in("data_parallel_rows"); }

// What the wrappers raise themselves: the reducer's assertion that hooks are expected (a static graph under no_sync), FSDP1's demands of
// one type and of use_orig_params for frozen parameters, fully_shard's factor, DeepSpeed's mix of types and its options that are gone.
TEST(DataParallelRefusals, WhatTheWrappersRaise) {
  EXPECT_FALSE(refused_after(row_of(rows(), "ddp-qwen05-static-ga2-view"), [](Strategy&) {}));
  EXPECT_TRUE(refused_after(row_of(rows(), "ddp-qwen05-static-ga2-view"), [](Strategy& s) { s.no_sync = true; }));
  EXPECT_FALSE(refused_after(row_of(rows(), "f1-qwen05-lora-fp32"), [](Strategy&) {}));
  EXPECT_TRUE(refused_after(row_of(rows(), "f1-qwen05-lora-fp32"), [](Strategy& s) { s.fsdp.use_orig_params = false; }));
  EXPECT_TRUE(refused_after(row_of(rows(), "f1-qwen05-lora-fp32"), [](Strategy& s) { s.param_dtype = DType::bf16; }));
  EXPECT_FALSE(refused_after(row_of(rows(), "f2-qwen3-reshard4of16"), [](Strategy&) {}));
  EXPECT_TRUE(refused_after(row_of(rows(), "f2-qwen3-reshard4of16"), [](Strategy& s) { s.fsdp.reshard_to = 5; }));
  EXPECT_FALSE(refused_after(row_of(rows(), "z0-pythia-fp32"), [](Strategy&) {}));
  EXPECT_TRUE(refused_after(row_of(rows(), "z0-pythia-fp32"), [](Strategy& s) { s.deepspeed.grad_accum_dtype = DType::bf16; }));
  EXPECT_TRUE(refused_after(row_of(rows(), "z3-tiny-hpz8of16"), [](Strategy& s) { s.deepspeed.mics_shard_size = 8; }));
  EXPECT_TRUE(refused_after(row_of(rows(), "z3-tiny-hpz8of16"), [](Strategy& s) { s.deepspeed.zero_hpz_partition_size = 5; }));
}

// "Expected to mark a variable ready only once" (reducer.cpp), of LoRA by TRL's SFTTrainer with use_reentrant in PyTorch 2.15.
TEST(DataParallelRefusals, DdpThatLooksForUnusedParametersSeesNoReentrantCheckpoint) {
  const MeasuredRow& row = row_of(rows(), "ddp-qwen05-static-ga2-view");
  const auto looks = [](Strategy& s) {
    s.ddp.static_graph = false;
    s.ddp.find_unused_parameters = true;
    s.recompute.kind = Recompute::Kind::full;
    s.recompute.reentrant = false;
  };
  EXPECT_FALSE(refused_after(row, looks));
  EXPECT_TRUE(refused_after(row, [](Strategy& s) {
    s.ddp.static_graph = false;
    s.ddp.find_unused_parameters = true;
    s.recompute.kind = Recompute::Kind::full;
    s.recompute.reentrant = true;
  }));
}

}  // namespace
}  // namespace plimsoll
