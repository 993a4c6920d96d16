// PEFT's adapters under DeepSpeed 0.19.8 against peaks that PyTorch's own caching allocator reported while both ran transformers' models on
// a CUDA runtime without a GPU (bench/corpus/allocator-deepspeed-lora.json): stages 0 to 3, all ranks, models made inside zero.Init or on
// the host, checkpoints, accumulation, offload.
#include <gtest/gtest.h>

#include <vector>

#include "devices.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/memory.hpp"
#include "program/lower.hpp"
#include "validate/measured_rows.hpp"

namespace plimsoll {
namespace {

const std::vector<MeasuredRow>& rows() { return rows_in("allocator-deepspeed-lora"); }

const MeasuredRow& row_of_stage(DataParallel stage) {
  for (const MeasuredRow& row : rows())
    if (row.strategy.data_parallel == stage && row.model->model_type == "llama" && row.strategy.deepspeed.zero_init.value_or(false))
      return row;
  throw std::runtime_error("no such row");
}

Strategy resolved_with(const MeasuredRow& row, bool zero_init, std::optional<DType> said) {
  Strategy strategy = row.strategy;
  strategy.deepspeed.zero_init = zero_init;
  strategy.lora->adapter_dtype = said;
  return resolve(strategy, *row.model, *row.cluster);
}

// engine.py, _cast_module_mixed_precision: all parameters, or none of a model that zero.Init has cut up.
TEST(DeepSpeedLora, AdaptersAreCastButBehindZeroInit) {
  const MeasuredRow& row = row_of_stage(DataParallel::zero3);
  EXPECT_EQ(resolved_with(row, true, std::nullopt).lora->adapter_dtype, DType::fp32);
  EXPECT_EQ(resolved_with(row, true, DType::bf16).lora->adapter_dtype, DType::bf16);
  EXPECT_EQ(resolved_with(row, false, DType::fp32).lora->adapter_dtype, resolved_with(row, false, {}).param_dtype);
}

// r (in + out) elements an adapter: masters and two moments of a rank's piece of them, and nothing of the frozen weights.
TEST(DeepSpeedLora, StatesAreOfAdaptersAlone) {
  const MeasuredRow& row = row_of_stage(DataParallel::zero3);
  Strategy strategy = resolved_with(row, true, std::nullopt);
  strategy.lora->targets = {"q_proj"};
  const auto persistent = [&](int rank) {
    strategy.lora->r = rank;
    return play_memory(program::lower_hf_deepspeed(program::on_cluster(*row.cluster, *row.model, strategy)), {}).persistent.count;
  };
  const double hidden = static_cast<double>(row.model->hidden_size), elements = 64 * 2 * hidden * row.model->layers / strategy.dp;
  // Per element: fp32 shard, 16-bit gradient, master, two moments; gathered persistent ones and blocks' roundings are what else may differ.
  const double least = elements * (4 + 2 + 4 + 8);
  const double grown = static_cast<double>(persistent(128) - persistent(64));
  EXPECT_GE(grown, least);
  EXPECT_LE(grown, least + 64 * 2 * hidden * row.model->layers * 4 + 0x1p20);
}

TEST(DeepSpeedLora, WhatIsNotModelledIsRefusedByName) {
  const MeasuredRow& row = row_of_stage(DataParallel::zero3);
  EXPECT_EQ(failure_after(row, [](Strategy&) {}), std::nullopt);
  const auto refused = [&](void (*change)(Strategy&)) { return failure_after(row, change) == ErrorCode::refused; };
  EXPECT_TRUE(refused([](Strategy& s) { s.lora->dora = true; }));
  EXPECT_TRUE(refused([](Strategy& s) { s.lora->modules_to_save = {"lm_head"}; }));
  EXPECT_TRUE(refused([](Strategy& s) { s.base_weights = BaseWeights::nf4; }));
  EXPECT_TRUE(refused([](Strategy& s) { s.deepspeed.zero_quantized_weights = true; }));
  EXPECT_TRUE(refused([](Strategy& s) { s.releases.put(Package::deepspeed, *Release::parse("0.16.9")); }));
  // get_only_unique_item of fp32 adapters and 16-bit weights.
  EXPECT_EQ(failure_after(row, [](Strategy& s) { s.deepspeed.use_all_reduce_for_fetch_params = true; }), ErrorCode::bad_input);
}

}  // namespace
}  // namespace plimsoll
