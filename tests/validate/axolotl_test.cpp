// axolotl's kernels for adapters and cut cross entropy: what must follow from how they are made, and what is refused.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/memory.hpp"
#include "program/lower.hpp"
#include "validate/measured_rows.hpp"

namespace plimsoll {
namespace {

const MeasuredRow& row_of(const std::string& id) {
  for (const MeasuredRow& row : rows_in("allocator-axolotl"))
    if (row.id == id) return row;
  throw std::runtime_error("no row " + id);
}

const MeasuredRow& adapted() { return row_of("axolotl-llama-kernels-mlp-qkv-o-b2-s512"); }

std::int64_t peak_of(const MeasuredRow& row, const Strategy& asked) {
  const Strategy s = resolve(asked, *row.model, *row.cluster);
  return play_memory(program::lower_hf_eager(program::on_cluster(*row.cluster, *row.model, s)), {}).peak_allocated.count;
}

std::string problem_of(const Strategy& asked) {
  const MeasuredRow& row = adapted();
  try {
    const Strategy s = resolve(asked, *row.model, *row.cluster);
    program::lower_hf_eager(program::on_cluster(*row.cluster, *row.model, s));
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

// Logits of 1,024 tokens and 32,000 classes in fp32, which cross entropy widens them to, are never made.
TEST(Axolotl, CutCrossEntropyHasNoLogits) {
  Strategy cut = adapted().strategy;
  cut.loss = LossKernel::cut_cross_entropy;
  const std::int64_t logits = std::int64_t{2} * 512 * 32000 * 4;
  EXPECT_GT(peak_of(adapted(), adapted().strategy) - peak_of(adapted(), cut), logits);
}

// apply_lora_kernel_patches: where not all of a function's linears are adapted, they stay PEFT's.
TEST(Axolotl, HalfAdaptedModulesStayPefts) {
  Strategy with = adapted().strategy;
  with.lora->targets = {"q_proj", "v_proj", "up_proj"};
  Strategy without = with;
  without.lora->mlp_kernel = without.lora->qkv_kernel = without.lora->o_kernel = false;
  EXPECT_EQ(peak_of(adapted(), with), peak_of(adapted(), without));
}

TEST(Axolotl, WhatDoesNotGoTogetherIsSaid) {
  Strategy s = adapted().strategy;
  s.lora->dora = true;
  EXPECT_NE(problem_of(s).find("DoRA"), std::string::npos);
  s = adapted().strategy;
  s.param_dtype = DType::fp32;
  EXPECT_NE(problem_of(s).find("in 16 bits"), std::string::npos);
  s = adapted().strategy;
  s.loss = LossKernel::cut_cross_entropy;
  s.param_dtype = DType::fp32;
  s.lora->mlp_kernel = s.lora->qkv_kernel = s.lora->o_kernel = false;
  EXPECT_NE(problem_of(s).find("a head of 16 bits"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
