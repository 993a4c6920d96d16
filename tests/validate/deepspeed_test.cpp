// What DeepSpeed's lowering asks of the host's memory, its buckets, and what it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "devices.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "program/lower.hpp"
#include "program/wrappers/deepspeed/quantized.hpp"
#include "validate/measured_rows.hpp"

namespace plimsoll {
namespace {

const std::vector<MeasuredRow>& rows() { return rows_in("allocator-deepspeed"); }

const MeasuredRow& row_called(const std::string& id) { return row_of(rows(), id); }

StepProgram lower_row(const MeasuredRow& row, const Strategy& strategy) {
  return program::lower_hf_deepspeed(program::on_cluster(*row.cluster, *row.model, resolve(strategy, *row.model, *row.cluster)));
}

// ZeRO-Offload of Qwen2.5-7B, 64 ranks, P = 7,615,616,512 parameters; CPUAdam. Stage 2: (4 + 2 + 4)·P/N of masters, their 16-bit copy and
// gradients, and 2 bytes of the largest parameter, 152,064 × 3,584. Stage 3: 6·P/N of gradients in fp32 and bf16, and with offloaded
// parameters 4·P/N more. torch.cuda.host_memory_stats() and Tensor.pin_memory() of the same runs say the same.
TEST(DeepSpeedOffload, PinnedHostMemory) {
  const auto pinned = [](const std::string& id) {
    const MeasuredRow& row = row_called("ds-qwen2.5-7b-" + id);
    return lower_row(row, row.strategy).host_pinned.count;
  };
  constexpr std::int64_t kParameters = 7'615'616'512, kLargest = 152'064LL * 3'584;
  EXPECT_EQ(pinned("z2-bf16-w64-b1-s2048-ckpt-cpu-adam-offload"), 10 * kParameters / 64 + 2 * kLargest);
  EXPECT_EQ(pinned("z3-bf16-w64-b1-s2048-ckpt-cpu-adam-offload"), 6 * kParameters / 64);
  EXPECT_EQ(pinned("z3-bf16-w64-b1-s2048-ckpt-cpu-adam-offload-all"), 10 * kParameters / 64);
}

// The same with the states on NVMe (ZeRO-Infinity), Llama-3.2-1B on 8 ranks, P = 1,235,814,400: bf16 gradients 2·P/N, and four swap buffers
// of the largest sub-group, here all P/N = 154,476,800 fp32 elements, a multiple of the 256 that a file is written in. With parameters
// there too, two bf16 copies of the shards that max_in_cpu keeps on the host, and five buffers of 1e8 elements, rounded up to 512 (1,024
// bytes).
TEST(DeepSpeedOffload, BuffersOfNvme) {
  const MeasuredRow& row = row_called("ds-llama-3.2-1b-z3-bf16-w8-b1-s2048");
  Strategy strategy = row.strategy;
  strategy.offload.optimizer = strategy.deepspeed.offload_optimizer.nvme = true;
  constexpr std::int64_t kShards = 1'235'814'400 / 8, kStates = 2 * kShards + 4 * 4 * kShards;
  EXPECT_EQ(lower_row(row, strategy).host_pinned.count, kStates);
  strategy.offload.params = strategy.deepspeed.offload_param.nvme = true;
  EXPECT_EQ(lower_row(row, strategy).host_pinned.count, kStates + 2 * kShards + 5 * 2 * 100'000'256);
}

// CUDAQuantizer.quantize: from one group per 8,000 elements on, the first number of groups that leaves them a multiple of 8 elements each.
TEST(DeepSpeedQuantizer, Groups) {
  EXPECT_EQ(program::quantizer_groups(8'000), 1);
  EXPECT_EQ(program::quantizer_groups(16'384), 4);  // 3 · 8 does not divide it
  EXPECT_THROW(program::quantizer_groups(4'100), Error);
}

// The bucket of stage 2 is reduce_bucket_size elements of 2 bytes, twice with overlap_comm: 8e8 bytes apart at 2e8 elements each. It lives
// from the first gradient to the end of backward, in which nothing of that size exists otherwise.
TEST(DeepSpeedBuckets, OverlapMakesASecond) {
  const MeasuredRow& row = row_called("ds-llama-3.2-1b-z2-bf16-w8-b1-s2048-ckpt-overlap");
  const auto buckets = [&](bool overlap) {
    Strategy strategy = row.strategy;
    strategy.deepspeed.overlap_comm = overlap;
    strategy.deepspeed.reduce_bucket_size = 213'000'000;
    const StepProgram program = lower_row(row, strategy);
    return std::count_if(program.step.begin(), program.step.end(), [](const Instruction& i) { return i.bytes == 426'000'000; });
  };
  EXPECT_EQ(buckets(false), 1);
  EXPECT_EQ(buckets(true), 2);
}

bool refused_when(void (*change)(Strategy&), const std::string& id = "ds-llama-3.2-1b-z3-bf16-w8-b1-s2048") {
  const MeasuredRow& row = row_called(id);
  Strategy strategy = resolve(row.strategy, *row.model, *row.cluster);
  change(strategy);
  try {
    program::lower_hf_deepspeed(program::on_cluster(*row.cluster, *row.model, strategy));
  } catch (const Error& error) {
    return error.code() == ErrorCode::refused;
  }
  return false;
}

TEST(DeepSpeedRefusals, NameWhatIsNotModelled) {
  EXPECT_FALSE(refused_when([](Strategy&) {}));
  EXPECT_TRUE(refused_when([](Strategy& s) {
    s.offload.params = s.deepspeed.offload_param.nvme = true;
    s.deepspeed.offload_param.max_in_cpu = 1'000'000;
  }));
  EXPECT_TRUE(refused_when([](Strategy& s) { s.deepspeed.zero_quantized_gradients = true; }));
  EXPECT_TRUE(refused_when([](Strategy& s) { s.precision = Precision::msamp_o2; }));
  // A bucket more in every backward pass.
  EXPECT_TRUE(
      refused_when([](Strategy& s) { s.deepspeed.contiguous_gradients = false; }, "ds-llama-3.2-1b-z2-bf16-w8-b1-s2048-ckpt-overlap"));
  EXPECT_TRUE(refused_when([](Strategy& s) { s.deepspeed.mics_shard_size = 4; }));
  EXPECT_TRUE(refused_when([](Strategy& s) { s.releases.put(Package::deepspeed, *Release::parse("0.8.3")); }));
  const auto read = [](const char* setting) {
    parse_strategy(std::string(R"({"framework": "deepspeed", "deepspeed": {"zero_optimization": {)") + setting + "}}}", "strategy");
  };
  EXPECT_NO_THROW(read(R"("stage": 3, "memory_efficient_linear": true)"));
  EXPECT_THROW(read(R"("stage": 3, "memory_efficient_linear": false)"), Error);
  EXPECT_NO_THROW(read(R"("stage": 3, "stage3_use_all_reduce_for_fetch_params": true)"));
  EXPECT_THROW(read(R"("stage": 2, "zenflow": {"topk_ratio": 0.1})"), Error);
  EXPECT_THROW(read(R"("stage": 3, "leaf_module": {"names": ["mlp"]})"), Error);
  EXPECT_THROW(read(R"("stage": 3, "stage3_module_granularity_threshold": 1000)"), Error);
  const auto read_beside = [](const char* setting) {
    parse_strategy(std::string(R"({"framework": "deepspeed", "deepspeed": {)") + setting + "}}", "strategy");
  };
  EXPECT_NO_THROW(read_beside(R"("sequence_parallel_size": 1, "tensor_parallel": {"autotp_size": 1}, "amp": {"enabled": false})"));
  EXPECT_NO_THROW(read_beside(R"("aio": {"block_size": 1048576, "queue_depth": 8})"));
  EXPECT_THROW(read_beside(R"("aio": {"block_size": 2097152})"), Error);
  EXPECT_THROW(read_beside(R"("sequence_parallel_size": 4)"), Error);
  EXPECT_THROW(read_beside(R"("tensor_parallel": {"autotp_size": 2})"), Error);
  EXPECT_THROW(read_beside(R"("compile": {"deepcompile": true})"), Error);
  EXPECT_THROW(read_beside(R"("hybrid_engine": {"enabled": true})"), Error);
}

}  // namespace
}  // namespace plimsoll
