// What torchtune's recipes keep, offload and refuse.
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

const std::vector<MeasuredRow>& rows() { return rows_in("allocator-torchtune"); }

Strategy resolved(const MeasuredRow& row) { return resolve(row.strategy, *row.model, *row.cluster); }

StepProgram lowered(const MeasuredRow& row) {
  return program::lower_torchtune(program::on_cluster(*row.cluster, *row.model, resolved(row)));
}

const MeasuredRow& row_called(const std::string& id) { return row_of(rows(), id); }

std::string refusal_of(const MeasuredRow& row, Strategy strategy) {
  try {
    program::lower_torchtune(program::on_cluster(*row.cluster, *row.model, strategy));
  } catch (const Error& error) {
    return error.code() != ErrorCode::internal ? error.message() : "another error";
  }
  return "";
}

// The recipe itself raises: enable_activation_offloading should only be True when enable_activation_checkpointing is True.
TEST(Torchtune, RefusesOffloadedActivationsWithoutCheckpointing) {
  Strategy s = resolved(row_called("tune-small-offload"));
  s.recompute.kind = Recompute::Kind::none;
  EXPECT_NE(refusal_of(row_called("tune-small-offload"), s).find("activation checkpointing"), std::string::npos);
}

// NF4 weights take no gradient.
TEST(Torchtune, RefusesQuantizedWeightsWithoutAdapters) {
  Strategy s = resolved(row_called("tune-small-qlora"));
  s.lora.reset();
  EXPECT_NE(refusal_of(row_called("tune-small-qlora"), s).find("adapters"), std::string::npos);
}

// OffloadActivations keeps a layer's input on the device while at most five later ones are saved: of n layers n − 5 inputs are gone when
// the loss is computed, [batch, length, hidden] in 16 bits each. With two layers nothing is; the peak falls only by what a backward brings
// back.
TEST(Torchtune, OffloadingNeverCostsMoreThanKeeping) {
  Strategy s = resolved(row_called("tune-small-offload"));
  const Bytes offloaded =
      play_memory(program::lower_torchtune(program::on_h100(*row_called("tune-small-offload").model, s)), {}).peak_allocated;
  s.offload.activations = false;
  const Bytes kept = play_memory(program::lower_torchtune(program::on_h100(*row_called("tune-small-offload").model, s)), {}).peak_allocated;
  EXPECT_LE(offloaded, kept);
}

// A quantised weight of n elements holds n / 2 bytes of data, n / 64 of scales and 2 · n / 16384 of factors (bf16), 2.25 of 16 bits less.
TEST(Torchtune, QuantizedWeightsHoldFourBitsAndTheirScales) {
  const auto persistent = [](const char* id) { return static_cast<double>(play_memory(lowered(row_called(id)), {}).persistent.count); };
  // Two layers of 2048 · (2048 + 2 · 512 + 2048) + 3 · 2048 · 5632 elements.
  const double elements = 2.0 * (2048.0 * 5120 + 3 * 2048.0 * 5632);
  const double saved = elements * (2 - 0.5 - 1.0 / 64 - 2.0 / 16384);
  EXPECT_NEAR(persistent("tune-small-lora") - persistent("tune-small-qlora"), saved, 0.02 * saved);
}

// torchao's fake quantizers: of every linear autograd keeps what was clamped, in 32 bits, and the product its rounded operands, in 16. Of the
// weights alone that is 6 bytes an element beside the weight itself. Neither compiled blocks nor NF4 weights go with them.
TEST(Torchtune, FakeQuantizersKeepWhatTheyRound) {
  const MeasuredRow& row = row_called("tune-small-plain");
  const auto peak = [&](const Strategy& s) { return play_memory(program::lower_torchtune(program::on_cluster(*row.cluster, *row.model, s)), {}).peak_allocated; };
  Strategy s = resolved(row);
  const Bytes plain = peak(s);
  s.qat_group_size = 256;
  const std::int64_t elements = 2 * (2048 * 5120 + 3 * 2048 * 5632);
  EXPECT_GT((peak(s) - plain).count, 6 * elements);
  s.compile = Strategy::Compile::blocks;
  EXPECT_NE(refusal_of(row, s).find("compiled fake quantizers"), std::string::npos);
  Strategy quantised = resolved(row_called("tune-small-qlora"));
  quantised.qat_group_size = 256;
  EXPECT_NE(refusal_of(row, quantised).find("NF4"), std::string::npos);
}

// lora_dpo_*.py: while the reference answers, autograd keeps the policy's log-softmax, and the reference's own pass has its logits, the same
// divided by the temperature, and their log-softmax; those of the micro-batch before are still called `_`. Five tensors of [2 pairs, length,
// classes] in 32 bits.
TEST(Torchtune, PairsAreComparedOverWholeLogits) {
  const MeasuredRow& row = row_called("tune-small-loraac");
  Strategy said = row.strategy;
  said.post_training.emplace().kind = PostTraining::Kind::dpo;
  said.loss = LossKernel::automatic;
  const Strategy s = resolve(said, *row.model, *row.cluster);
  EXPECT_EQ(s.post_training->reference, PostTraining::Reference::adapter_off);
  const Bytes peak = play_memory(program::lower_torchtune(program::on_cluster(*row.cluster, *row.model, s)), {}).peak_allocated;
  const std::int64_t whole = 2 * s.micro_batch * (s.seq_len - 1) * row.model->vocab_size * 4;
  EXPECT_GT(peak.count, 5 * whole);
  EXPECT_LT(peak.count, 6 * whole);
  said.lora.reset();
  EXPECT_THROW((void)resolve(said, *row.model, *row.cluster), Error);
}

// "output_proj(attn)" is how measured rows tell which output projection; a name that no module has is bad input.
TEST(Torchtune, KnowsItsModulesByName) {
  Strategy s = resolved(row_called("tune-small-lora"));
  const MeasuredRow& row = row_called("tune-small-lora");
  const Bytes plain = play_memory(program::lower_torchtune(program::on_cluster(*row.cluster, *row.model, s)), {}).peak_allocated;
  for (std::string& target : s.lora->targets)
    if (target == "output_proj") target += "(attn)";
  EXPECT_EQ(play_memory(program::lower_torchtune(program::on_cluster(*row.cluster, *row.model, s)), {}).peak_allocated, plain);
  s.lora->targets = {"o_proj"};
  EXPECT_EQ(refusal_of(row, s), "torchtune's modules have no 'o_proj' to adapt");
}

// Batches of samples that are not packed are as long as the samples: 512 tokens under a limit of 1024 are a run of 512.
TEST(Torchtune, UnpackedBatchesAreAsLongAsTheirSamples) {
  const MeasuredRow& row = row_called("tune-small-plain");
  Strategy limited = resolved(row), half = resolved(row);
  limited.average_tokens = 511.5;
  half.seq_len = 512;
  const auto peak = [&](const Strategy& s) {
    return play_memory(program::lower_torchtune(program::on_cluster(*row.cluster, *row.model, s)), {}).peak_allocated;
  };
  EXPECT_EQ(peak(limited), peak(half));
  EXPECT_LT(peak(half), peak(resolved(row)));
}

}  // namespace
}  // namespace plimsoll
