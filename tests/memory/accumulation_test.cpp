// Micro-batches of gradient accumulation that are written once, against programs in which each is recorded.
#include <gtest/gtest.h>

#include <string>

#include "devices.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/memory.hpp"
#include "plimsoll/model.hpp"
#include "program/lower.hpp"
#include "program/programs.hpp"

namespace plimsoll {
namespace {

Model llama() {
  return parse_model(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 2048, "max_position_embeddings": 512,
                         "hidden_size": 512, "intermediate_size": 1408, "num_attention_heads": 8, "num_key_value_heads": 2,
                         "tie_word_embeddings": false, "num_hidden_layers": 3})",
                     "llama", "llama");
}

StepProgram lowered(const Model& model, const Strategy& strategy, bool every_micro_batch) {
  if (strategy.framework == "torchtitan")
    return program::lower_torchtitan(program::on_h100(model, strategy), {.every_micro_batch = every_micro_batch});
  if (strategy.framework == "torchtune")
    return program::lower_torchtune(program::on_h100(model, strategy), {.every_micro_batch = every_micro_batch});
  return program::lower_transformers(program::on_h100(model, strategy), {.every_micro_batch = every_micro_batch});
}

struct Case {
  const char* keys;
  int gpus = 4;
};

void PrintTo(const Case& each, std::ostream* out) { *out << each.keys; }

class Accumulation : public testing::TestWithParam<Case> {};

/// The allocator is in the same state behind every micro-batch but the first few: one stands for all, whatever they are counted for.
TEST_P(Accumulation, OneMicroBatchStandsForThoseThatRepeatIt) {
  const Model model = llama();
  const std::string text = std::string(R"({"seq_len": 512, "micro_batch": 2, "grad_accum": 29, )") + GetParam().keys + "}";
  const Strategy strategy = resolve(parse_strategy(text, "strategy"), model, cluster_of("H100-SXM5-80GB", GetParam().gpus));
  const StepProgram whole = lowered(model, strategy, true), folded = lowered(model, strategy, false);
  EXPECT_LT(2 * folded.step.size(), whole.step.size());
  const program::Asked real = program::asked(whole), counted = program::asked(folded);
  EXPECT_EQ(counted.launches, real.launches);
  EXPECT_EQ(counted.collectives, real.collectives);
  EXPECT_EQ(counted.flops, real.flops);
  EXPECT_EQ(counted.collective_bytes, real.collective_bytes);
  const MemoryTrace a = play_memory(folded, {}), b = play_memory(whole, {});
  EXPECT_EQ(a.peak_allocated.count, b.peak_allocated.count);
  EXPECT_EQ(a.peak_reserved.count, b.peak_reserved.count);
  EXPECT_EQ(a.peak_phase, b.peak_phase);
  EXPECT_EQ(a.peak_label, b.peak_label);
  EXPECT_EQ(a.forward_peak.count, b.forward_peak.count);
  EXPECT_EQ(a.backward_peak.count, b.backward_peak.count);
  EXPECT_EQ(a.first_step_allocated.count, b.first_step_allocated.count);
  EXPECT_EQ(a.persistent.count, b.persistent.count);
  EXPECT_EQ(a.requested_at_peak.count, b.requested_at_peak.count);
}

INSTANTIATE_TEST_SUITE_P(
    Frameworks, Accumulation,
    testing::Values(
        Case{R"("framework": "transformers", "precision": "amp-bf16")", 1},
        Case{R"("framework": "transformers", "data_parallel": "ddp", "precision": "amp-bf16")"},
        Case{R"("framework": "transformers", "data_parallel": "ddp", "precision": "fp32", "recompute": "full")"},
        Case{R"("framework": "transformers", "data_parallel": "fsdp1", "precision": "fsdp-mixed-bf16")"},
        Case{R"("framework": "transformers", "data_parallel": "fsdp2", "precision": "fsdp-mixed-bf16")"},
        Case{R"("framework": "transformers", "data_parallel": "fsdp2", "precision": "fsdp-mixed-bf16", "fsdp": {"no_sync": true})"},
        Case{R"("framework": "deepspeed", "zero_stage": 1, "precision": "bf16")"},
        Case{R"("framework": "deepspeed", "zero_stage": 2, "precision": "bf16")"},
        Case{R"("framework": "deepspeed", "zero_stage": 3, "precision": "bf16")"},
        Case{R"("framework": "torchtune", "data_parallel": "fsdp2", "precision": "bf16", "recompute": "full")"},
        Case{R"("framework": "torchtitan", "data_parallel": "fsdp", "recompute": "full")"},
        Case{R"("framework": "torchtitan", "data_parallel": "fsdp", "recompute": "selective-ac-op", "loss": "chunked-ce")"}));

}  // namespace
}  // namespace plimsoll
