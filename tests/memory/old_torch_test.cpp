// What training steps of PyTorch before 2.0 do otherwise: optimizer.zero_grad() fills gradients with zeros and keeps them, where later
// releases drop them (set_to_none), so that they are alive throughout the next forward.
#include <gtest/gtest.h>

#include "devices.hpp"
#include "plimsoll/memory.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"
#include "program/lower.hpp"

namespace plimsoll {
namespace {

MemoryTrace played_on(const Model& model, const char* torch) {
  Strategy strategy =
      parse_strategy(R"({"framework": "transformers", "seq_len": 64, "micro_batch": 1, "grad_accum": 2, "param_dtype": "fp32",
    "precision": "fp32", "attention": "eager", "recompute": "none", "optimizer": "adamw", "optimizer_impl": "for-loop", "clip_grad_norm": false})",
                     "strategy");
  set_option(strategy, "torch", torch);
  return play_memory(program::lower_hf_eager(program::on_h100(model, strategy)), {});
}

// Every parameter is a whole number of the allocator's blocks of 512 bytes, so between steps the gradients are parameters() · 4 bytes more.
// At the end of backward they are alive under either release, and the first step, which finds none, is the same. Both keep two BLAS
// workspaces, forward's and the engine's: of 4 MiB before 2.0 (pytorch#86167), of 32 MiB on Hopper since (pytorch#91564).
TEST(BeforeTorch2, GradientsStayBetweenSteps) {
  const Model model = parse_model(R"({"model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 512, "tie_word_embeddings": true})",
                                  "config.json", "small");
  const MemoryTrace old = played_on(model, "1.13"), now = played_on(model, "2.11");
  constexpr std::int64_t kWorkspaces = 2 * (std::int64_t{32 - 4} << 20);
  EXPECT_EQ(old.persistent.count + kWorkspaces - now.persistent.count, model.parameters() * 4);
  EXPECT_EQ(old.first_step_allocated.count + kWorkspaces, now.first_step_allocated.count);
  EXPECT_GE(old.peak_allocated.count + kWorkspaces, now.peak_allocated.count);
}

}  // namespace
}  // namespace plimsoll
