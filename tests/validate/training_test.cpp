// What optimizers, kernels and offloads of a training loop of transformers do not take.
#include <gtest/gtest.h>

#include <vector>

#include "validate/measured_rows.hpp"

namespace plimsoll {
namespace {

const std::vector<MeasuredRow>& rows() { return rows_in("training_rows"); }

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
  // _apply_liger_kernel_to_instance passes by a T5; a loss of Liger's is a program's own, which has none for it.
  EXPECT_FALSE(refused_after(row_of(rows(), "every2-t5-amp"), [](Strategy& s) { s.liger_kernel = true; }));
  EXPECT_TRUE(refused_after(row_of(rows(), "every2-t5-amp"), [](Strategy& s) { s.loss = LossKernel::liger; }));
  EXPECT_FALSE(refused_after(row_of(rows(), "offload-llama-bf16-save-on-cpu"), [](Strategy&) {}));
  EXPECT_TRUE(
      refused_after(row_of(rows(), "offload-llama-bf16-save-on-cpu"), [](Strategy& s) { s.offload.activations_by = Offload::By::trl; }));
  EXPECT_TRUE(refused_after(row_of(rows(), "offload-llama-bf16-save-on-cpu"), [](Strategy& s) { s.offload.activation_layers = 1; }));
}

}  // namespace
}  // namespace plimsoll
