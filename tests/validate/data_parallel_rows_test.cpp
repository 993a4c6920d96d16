// The wrappers of data parallelism against peaks that PyTorch's own caching allocator reported on a CUDA runtime without a GPU (torch 2.15,
// transformers 5.23, DeepSpeed 0.19.8): DDP's buckets and graphs, FSDP1's strategies, FSDP2's resharding, ZeRO's options, on other models
// and sizes than those of bench/corpus (tests/validate/data/data_parallel_rows.json).
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/memory.hpp"
#include "plimsoll/rows.hpp"
#include "program/lower.hpp"
#include "validate/measured_rows.hpp"

namespace plimsoll {
namespace {

const std::vector<MeasuredRow>& rows() {
  static const std::vector<MeasuredRow> all = load_rows(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/validate/data/data_parallel_rows.json");
  return all;
}

class DataParallelRow : public ::testing::TestWithParam<std::size_t> {
 protected:
  const MeasuredRow& row() const { return rows()[GetParam()]; }
  Strategy strategy() const { return resolve(row().strategy, *row().model, *row().cluster); }
};

// What lives long is allocated one for one. Left out are scalars and indices of 512-byte blocks: 64 of them are allowed. A product's weight
// gradient may be accumulated one event earlier or later than its input's: 6 in 10,000. FSDP1 frees by record_stream, so which free block a
// request gets, and with it what is not worth splitting off, may differ: 4 in 1,000.
TEST_P(DataParallelRow, AgreesWithPyTorch) {
  const Strategy resolved = strategy();
  PlayMemoryOptions options;
  options.allocator = resolved.allocator;
  const MemoryTrace trace = play_memory(program::lower_transformers(*row().model, resolved), options);
  const double allocated = measured(row(), quantity::allocated);
  const double tolerance = std::max(64 * 512.0, (engine_of(resolved) == Engine::fsdp1 ? 0.004 : 0.0006) * allocated);
  EXPECT_NEAR(static_cast<double>(trace.peak_allocated.count), allocated, tolerance);
  const double reserved = measured(row(), quantity::reserved);
  if (reserved > 0) {
    EXPECT_NEAR(static_cast<double>(trace.peak_reserved.count), reserved, 0.001 * reserved);
  }
}

TEST_P(DataParallelRow, TheStepLeavesWhatItFound) { expect_leaves_what_it_found(program::lower_transformers(*row().model, strategy())); }

INSTANTIATE_TEST_SUITE_P(Rows, DataParallelRow, ::testing::Range<std::size_t>(0, rows().size()),
                         [](const ::testing::TestParamInfo<std::size_t>& instance) { return test_name(rows()[instance.param]); });

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

}  // namespace
}  // namespace plimsoll
