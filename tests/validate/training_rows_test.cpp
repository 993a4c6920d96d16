// What a training loop of transformers may choose beside the model: checkpoints, optimizers, kernels, against peaks that PyTorch's own
// caching allocator reported on a CUDA runtime without a GPU (tests/validate/data/training_rows.json; a row names its libraries).
#include <gtest/gtest.h>

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
  static const std::vector<MeasuredRow> all = load_rows(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/validate/data/training_rows.json");
  return all;
}

class TrainingRow : public ::testing::TestWithParam<std::size_t> {
 protected:
  const MeasuredRow& row() const { return rows()[GetParam()]; }
  Strategy strategy() const { return resolve(row().strategy, *row().model, *row().cluster); }
};

TEST_P(TrainingRow, AgreesWithPyTorch) {
  const Strategy resolved = strategy();
  PlayMemoryOptions options;
  options.allocator = resolved.allocator;
  const MemoryTrace trace = play_memory(program::lower_transformers(*row().model, resolved), options);
  EXPECT_EQ(trace.peak_allocated.count, static_cast<std::int64_t>(measured(row(), quantity::allocated)));
  EXPECT_EQ(trace.backward_peak.count, static_cast<std::int64_t>(measured(row(), quantity::backward_peak)));
  const double reserved = measured(row(), quantity::reserved);
  EXPECT_NEAR(static_cast<double>(trace.peak_reserved.count), reserved, 0.001 * reserved);
}

TEST_P(TrainingRow, TheStepLeavesWhatItFound) { expect_leaves_what_it_found(program::lower_transformers(*row().model, strategy())); }

INSTANTIATE_TEST_SUITE_P(Rows, TrainingRow, ::testing::Range<std::size_t>(0, rows().size()),
                         [](const ::testing::TestParamInfo<std::size_t>& instance) { return test_name(rows()[instance.param]); });

/// Whether the row's step is refused once `change` was made.
// What torch.optim and bitsandbytes raise themselves: DTensors without a sharding strategy, gradients without a kernel, fused=True.
TEST(TrainingRefusals, OptimizersThatFailOnWhatTheyAreGiven) {
  EXPECT_FALSE(refused_after(row_of(rows(), "opt-nadam-fsdp2"), [](Strategy&) {}));
  EXPECT_TRUE(refused_after(row_of(rows(), "opt-nadam-fsdp2"), [](Strategy& s) { s.optimizer = OptimizerKind::rprop; }));
  EXPECT_TRUE(refused_after(row_of(rows(), "opt-nadam-fsdp2"), [](Strategy& s) { s.optimizer = OptimizerKind::torch_adafactor; }));
  EXPECT_TRUE(refused_after(row_of(rows(), "opt-nadam-fsdp2"), [](Strategy& s) { s.optimizer = OptimizerKind::adafactor; }));
  EXPECT_TRUE(refused_after(row_of(rows(), "opt-nadam-fsdp2"), [](Strategy& s) { s.optimizer = OptimizerKind::paged_adamw; }));
  EXPECT_FALSE(refused_after(row_of(rows(), "opt-lion-8bit-bf16"), [](Strategy&) {}));
  EXPECT_TRUE(refused_after(row_of(rows(), "opt-lion-8bit-bf16"), [](Strategy& s) { s.optimizer = OptimizerKind::rmsprop_8bit; }));
  EXPECT_TRUE(refused_after(row_of(rows(), "opt-nadam-fp32-foreach"), [](Strategy& s) { s.optimizer_impl = OptimizerImpl::fused; }));
}

// What Liger does not patch, or patches without effect; who offloads activations otherwise.
TEST(TrainingRefusals, KernelsAndOffloadsThatAreNotThere) {
  EXPECT_FALSE(refused_after(row_of(rows(), "liger-qwen3-bf16"), [](Strategy&) {}));
  EXPECT_TRUE(refused_after(row_of(rows(), "opt-nadam-fsdp2"), [](Strategy& s) {
    s.liger_kernel = true;
    s.fsdp.units.push_back("lm_head");
  }));
  EXPECT_TRUE(refused_after(row_of(rows(), "every2-t5-amp"), [](Strategy& s) { s.liger_kernel = true; }));
  EXPECT_FALSE(refused_after(row_of(rows(), "offload-llama-bf16-save-on-cpu"), [](Strategy&) {}));
  EXPECT_TRUE(
      refused_after(row_of(rows(), "offload-llama-bf16-save-on-cpu"), [](Strategy& s) { s.offload.activations_by = Offload::By::trl; }));
  EXPECT_TRUE(refused_after(row_of(rows(), "offload-llama-bf16-save-on-cpu"), [](Strategy& s) { s.offload.activation_layers = 1; }));
}

}  // namespace
}  // namespace plimsoll
