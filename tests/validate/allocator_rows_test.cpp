// Peaks read from PyTorch's own allocator, framework by framework (bench/corpus/allocator-*.json), against the played programs.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "plimsoll/validate.hpp"

namespace plimsoll {
namespace {

Validation validate_file(const std::string& name) {
  return validate({{name, load_rows(std::string(PLIMSOLL_SOURCE_DIR) + "/bench/corpus/" + name + ".json")}});
}

const QuantitySummary& summary_of(const Validation& validation, const std::string& quantity) {
  const auto found = std::find_if(validation.quantities.begin(), validation.quantities.end(),
                                  [&](const QuantitySummary& summary) { return summary.quantity == quantity; });
  if (found == validation.quantities.end()) throw std::runtime_error("no row measured " + quantity);
  return *found;
}

struct Bound {
  double median, ninetieth;
};

/// |predicted / measured − 1|, median and nine in ten.
void expect_within(const Validation& validation, const std::string& quantity, Bound bound) {
  const QuantitySummary& summary = summary_of(validation, quantity);
  EXPECT_LE(summary.median, bound.median) << quantity;
  EXPECT_LE(summary.ninetieth, bound.ninetieth) << quantity;
}

void expect_verdicts_right(const Validation& validation) {
  ASSERT_FALSE(validation.fits.empty());
  EXPECT_GE(validation.fits.front().right(), 0.99);
}

constexpr Bound kExact{0, 0};

/// Every quantity of every row to the byte, not nine in ten.
void expect_all_exact(const Validation& validation) {
  EXPECT_TRUE(validation.refused.empty());
  ASSERT_FALSE(validation.rows.empty());
  const Comparison& worst = validation.rows.front();
  EXPECT_EQ(worst.error, 0) << worst.id << ", " << worst.quantity;
}

/// Every row is predicted, its allocated peaks of the step and of backward within one bound, its reserved peak within another.
void expect_peaks(const Validation& validation, Bound allocated, Bound reserved) {
  EXPECT_TRUE(validation.refused.empty());
  expect_within(validation, quantity::allocated, allocated);
  expect_within(validation, quantity::backward_peak, allocated);
  expect_within(validation, quantity::reserved, reserved);
}

TEST(AllocatorRows, TransformersOnOneDeviceDdpFsdpAndAdapters) {
  const Validation rows = validate_file("allocator-transformers");
  expect_peaks(rows, {0, 0.00005}, {0, 0.0002});
  expect_within(rows, quantity::parameters, kExact);
  expect_verdicts_right(rows);
}

// Every family of transformers at sizes and settings drawn at random: one device, DDP, FSDP1, FSDP2, HSDP, adapters, checkpointing,
// accumulation, types, optimizers; some on devices that are just too small, or just large enough once cached segments are given back.
TEST(AllocatorRows, TransformersFamilies) {
  const Validation rows = validate_file("allocator-families");
  expect_peaks(rows, {0, 0.0005}, {0, 0.001});
  expect_within(rows, quantity::parameters, kExact);
  expect_verdicts_right(rows);
}

// flash_attention_2 by the attention interface: grouped heads, windows, soft caps, values narrower than keys, head sizes that are padded.
TEST(AllocatorRows, TransformersFlashAttention) {
  const Validation rows = validate_file("allocator-flash-attention");
  expect_peaks(rows, {0, 0.00005}, {0, 0.0002});
  expect_within(rows, quantity::parameters, kExact);
}

// torch.compile of every block at random sizes and settings: sizes that make buffers equal, sums over rows cut into parts or not, an order
// of kernels that follows the sizes.
TEST(AllocatorRows, TransformersCompiled) { expect_all_exact(validate_file("allocator-compiled")); }

// torch.compile of whole models with their losses: graphs of thousands of operations, whose buffers' names decide ties that the lowering
// does not follow everywhere; the two rows of BERT, whose graph is not lowered, come from closed forms.
TEST(AllocatorRows, TransformersCompiledWhole) {
  const Validation rows = validate_file("allocator-compiled-model");
  expect_within(rows, quantity::allocated, {0.0001, 0.002});
  expect_within(rows, quantity::reserved, {0.015, 0.08});
  expect_within(rows, quantity::parameters, kExact);
  expect_verdicts_right(rows);
}

// torch.compile under DDP, of every block and of whole models with their losses, at sizes and caps drawn at random: graphs in one to
// fourteen parts, dropout and checkpoints among them. Most are followed to the byte; where the order of a large part's kernels is not the
// generated code's, a segment more or less is reserved (20 or 32 MiB, of models of a few hundred).
TEST(AllocatorRows, TransformersCompiledUnderDdp) {
  const Validation rows = validate_file("allocator-compiled-ddp");
  EXPECT_TRUE(rows.refused.empty());
  expect_within(rows, quantity::allocated, {0.0001, 0.0015});
  expect_within(rows, quantity::reserved, {0.0001, 0.04});
  expect_within(rows, quantity::parameters, kExact);
  expect_verdicts_right(rows);
}

// What PEFT trains beside LoRA: ia3, ln_tuning, prompt_tuning and p_tuning, on one device and under DDP, with and without checkpointing.
TEST(AllocatorRows, Peft) {
  const Validation rows = validate_file("allocator-peft");
  expect_peaks(rows, kExact, kExact);
  expect_within(rows, quantity::parameters, kExact);
}

// MS-AMP's O1 and O2 over transformers on one device and under its DDP, and all its levels under its engine of DeepSpeed, with
// checkpointing, accumulation and clipping. The last step's own peak of backward alternates where the gradient of a copied head, or without
// ZeRO a weight, moves from step to step; one row of those reserves more in its fourth step.
TEST(AllocatorRows, MsAmp) {
  const Validation rows = validate_file("allocator-msamp");
  EXPECT_TRUE(rows.refused.empty());
  expect_within(rows, quantity::allocated, kExact);
  expect_within(rows, quantity::backward_peak, {0, 0.002});
  expect_within(rows, quantity::reserved, kExact);
  expect_within(rows, quantity::parameters, kExact);
}

// torchao's Float8Linear as Accelerate puts it into transformers, run eagerly: scales per tensor with padding, and per row, there
// under FSDP2 too.
TEST(AllocatorRows, TorchAo) { expect_all_exact(validate_file("allocator-torchao")); }

// transformers' Trainer under Accelerate: autocast around what wraps the model, outputs copied in fp32, FSDP2's ends in units of their own
// and loaded tensor by tensor, the optimizer in two groups.
TEST(AllocatorRows, Accelerate) {
  const Validation rows = validate_file("allocator-accelerate");
  EXPECT_TRUE(rows.refused.empty());
  expect_within(rows, quantity::allocated, {0.000001, 0.00001});
  expect_within(rows, quantity::reserved, {0, 0.0005});
}

TEST(AllocatorRows, MegatronCore) {
  const Validation rows = validate_file("allocator-megatron");
  expect_peaks(rows, {0, 0.00005}, {0, 0.0002});
  expect_within(rows, quantity::rank_parameters, kExact);
  expect_verdicts_right(rows);
}

TEST(AllocatorRows, TorchTitan) {
  const Validation rows = validate_file("allocator-torchtitan");
  expect_peaks(rows, {0, 0.0000005}, kExact);
  expect_verdicts_right(rows);
}

// FLUX, Stable Diffusion 3 and DiT on one device, DDP, FSDP1 and FSDP2, with adapters and checkpointing.
TEST(AllocatorRows, Diffusers) {
  const Validation rows = validate_file("allocator-diffusers");
  expect_peaks(rows, kExact, {0, 0.001});
  expect_within(rows, quantity::parameters, kExact);
}

// Residual networks of transformers, cuDNN off.
TEST(AllocatorRows, ConvolutionalNetworks) {
  const Validation rows = validate_file("allocator-images");
  expect_peaks(rows, kExact, {0, 0.001});
  expect_within(rows, quantity::parameters, kExact);
}

// Kernels and matrix products of a steady step, as PyTorch asks the device for them.
TEST(AllocatorRows, Launches) {
  const Validation rows = validate_file("allocator-launches");
  EXPECT_TRUE(rows.refused.empty());
  expect_within(rows, quantity::launches, kExact);
  expect_within(rows, quantity::gemm_flops, kExact);
}

// The same of 35 model types: one device, DDP, FSDP1, FSDP2, HSDP and LoRA, types, optimizers, checkpointing, clipping and accumulation
// drawn at random.
TEST(AllocatorRows, LaunchesOfFamilies) {
  const Validation rows = validate_file("allocator-launches-families");
  EXPECT_TRUE(rows.refused.empty());
  expect_within(rows, quantity::launches, {0, 0.0001});
  expect_within(rows, quantity::gemm_flops, kExact);
}

// The same of TorchTitan and DeepSpeed. Ring attention and tensor parallelism copy more often than is told, which holds nine in ten back.
TEST(AllocatorRows, LaunchesOfFrameworks) {
  const Validation rows = validate_file("allocator-launches-frameworks");
  EXPECT_TRUE(rows.refused.empty());
  expect_within(rows, quantity::launches, {0.003, 0.025});
  expect_within(rows, quantity::gemm_flops, kExact);
}

TEST(AllocatorRows, DeepSpeed) {
  const Validation rows = validate_file("allocator-deepspeed");
  expect_peaks(rows, {0, 0.0000005}, kExact);
  expect_verdicts_right(rows);
}

}  // namespace
}  // namespace plimsoll
