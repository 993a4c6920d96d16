// torchtune's recipes: what its optimizers ask of the host's link.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "devices.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "program/lower.hpp"

namespace plimsoll::program {
namespace {

/// Two layers: of each, q and o 1024 x 1024, k and v 256 x 1024, three of 2048 x 1024, so 8,912,896 weights; embedding and head 512 x 1024.
Model llama() {
  return parse_model(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512, "max_position_embeddings": 2048,
                         "hidden_size": 1024, "intermediate_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 4,
                         "tie_word_embeddings": false, "num_hidden_layers": 2})",
                     "llama", "llama");
}

/// Bytes that a step fetches from the host.
std::int64_t fetched(const std::string& optimizer, std::int64_t memory) {
  const Model model = llama();
  const std::string text =
      R"({"framework": "torchtune", "seq_len": 256, "micro_batch": 1, "optimizer_in_bwd": true, "optimizer": ")" + optimizer + "\"}";
  const Strategy strategy = resolve(parse_strategy(text, "strategy"), model, cluster_of("RTX4090-24GB", 1));
  TargetDevice device = h100();
  device.memory = memory;
  const StepProgram program = lower_torchtune({model, strategy, device});
  std::int64_t bytes = 0;
  for (const Instruction& instruction : program.step) {
    if (instruction.kind != InstructionKind::copy) continue;
    const Copy& copy = program.copies[instruction.id];
    if (copy.direction == Copy::Direction::host_to_device) bytes += copy.bytes;
  }
  return bytes;
}

// Matrices and tables have states in managed memory, norms of 1024 not: two bytes for each of 2 · 8,912,896 + 2 · 524,288 weights. They are
// fetched where they and the weights, two bytes too and 5 · 1024 norms, find no room together.
TEST(PagedOptimizers, StatesAreFetchedWhereTheyDoNotFit) {
  constexpr std::int64_t kWeights = 2 * 8'912'896 + 2 * 524'288, kStates = 2 * kWeights, kTogether = kStates + 2 * kWeights + 2 * 5 * 1024;
  EXPECT_EQ(fetched("paged-adamw-8bit", kTogether), 0);
  EXPECT_EQ(fetched("paged-adamw-8bit", kTogether - 1), kStates);
  EXPECT_EQ(fetched("adamw-8bit", 1), 0);
}

}  // namespace
}  // namespace plimsoll::program
