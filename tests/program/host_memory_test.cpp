// What leaves the device: the host's memory, and what its optimizer reads and writes there.
#include <gtest/gtest.h>

#include "devices.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "program/lower.hpp"
#include "program/optimizers/host_optimizer.hpp"
#include "program/save_on_cpu.hpp"

namespace plimsoll::program {
namespace {

std::int64_t host_traffic(const StepProgram& program) {
  std::int64_t bytes = 0;
  for (const Instruction& each : program.step)
    if (each.kind == InstructionKind::host && static_cast<HostWork>(each.id) == HostWork::memory_traffic) bytes += each.bytes;
  return bytes;
}

Strategy resolved(const std::vector<std::pair<std::string, std::string>>& options, const Model& model) {
  Strategy said;
  set_options(said, options);
  return resolve(said, model, parse_cluster("4xh100-sxm"));
}

// AdamW in one pass: p, m, v read and written, g read: 7 × 4 B. Operator by operator (torch/optim/adamw.py, _single_tensor_adamw):
// p·decay 8, m.lerp_(g) 12, v·β₂ 8, v + g² 12, √v 8, ∕correction 8, + ε 8, p + m∕denominator 16: 80 B.
TEST(HostOptimizer, MovesWhatItsOperatorsReadAndWrite) {
  EXPECT_EQ(host_step_traffic(OptimizerKind::adamw, OptimizerImpl::cpu), 28);
  EXPECT_EQ(host_step_traffic(OptimizerKind::adamw, OptimizerImpl::foreach), 80);
  EXPECT_EQ(host_step_traffic(OptimizerKind::lion, OptimizerImpl::cpu), 20);
  EXPECT_EQ(host_step_traffic(OptimizerKind::sgd, OptimizerImpl::foreach), 12);
}

// gpt2's 124,439,808 parameters on four ranks: whoever shards them, the host steps on a quarter each, padding aside. FSDP's clipping reads
// gradients once and scales them (12 B); ZeRO scales gradients (8 B; 1 and 2 not where there is nothing to scale by), its weights leave in 16 bits (6 B).
TEST(HostOptimizer, StepsOnTheRanksShare) {
  const Model model = load_model("gpt2");
  const double share = 124'439'808 / 4.0;
  const auto per_element = [&](const StepProgram& program) { return static_cast<double>(host_traffic(program)) / share; };
  const std::pair<std::string, std::string> length{"seq_len", "128"}, foreach{"optimizer_impl", "foreach"};
  const auto fsdp2 = resolved({{"data_parallel", "fsdp2"}, {"offload", "params+grads+optimizer"}, foreach, length}, model);
  EXPECT_NEAR(per_element(lower_hf_fsdp2(on_h100(model, fsdp2))), 80 + 12, 0.1);
  const auto fsdp1 = resolved({{"data_parallel", "fsdp1"}, {"offload", "params+grads+optimizer"}, foreach, length}, model);
  constexpr double kWithHead = 163'037'184 / 124'439'808.0;  // FSDP1 flattens the tied head a second time
  EXPECT_NEAR(per_element(lower_hf_fsdp1(on_h100(model, fsdp1))), kWithHead * (80 + 12), 0.1);
  for (const char* stage : {"1", "2", "3"}) {
    const auto zero = resolved({{"zero", stage}, {"offload", "optimizer"}, length}, model);
    EXPECT_NEAR(per_element(lower_hf_deepspeed(on_h100(model, zero))), 8 + 28 + 6, 0.1) << stage;
  }
  for (const auto& [stage, scaled] : {std::pair("2", 0), std::pair("3", 8)}) {  // stage3.py multiplies by one
    const auto zero = resolved({{"zero", stage}, {"offload", "optimizer"}, length, {"clip_grad_norm", "false"}}, model);
    EXPECT_NEAR(per_element(lower_hf_deepspeed(on_h100(model, zero))), scaled + 28 + 6, 0.1) << stage;
  }
}

// A Llama of two layers on four ranks, nothing kept from one pass to the next and nothing fetched ahead: 7 linears and 2 norms a layer, the last
// norm, embedding and head make 21 parameters, of which each is gathered by itself and given back in either pass; hooks are around these 21 modules,
// 2 layers, 2 × 2 of attention and MLP with 2 activations, the rotary table, the decoder and the model in the forward pass, 32 in all, and in the
// backward pass around all but the rotary table, behind which there is no gradient. DeepSpeed 0.19.8 counts the same over four layers: 58 and 57.
TEST(ZeroHooks, AreAroundModulesAndForEachParameterThatTravels) {
  const Model model = parse_model(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 1024, "hidden_size": 512,
                                      "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 1024,
                                      "max_position_embeddings": 256, "num_hidden_layers": 2})",
                                  "llama", "llama");
  const auto pieces = [](const StepProgram& program, HostWork work) {
    std::int64_t found = 0;
    for (const Instruction& each : program.step)
      if (each.kind == InstructionKind::host && static_cast<HostWork>(each.id) == work) found += each.bytes;
    return found;
  };
  const auto zero = resolved({{"zero", "3"}, {"seq_len", "128"}, {"deepspeed.zero_optimization.stage3_param_persistence_threshold", "0"},
                              {"deepspeed.zero_optimization.stage3_max_live_parameters", "0"},
                              {"deepspeed.zero_optimization.stage3_max_reuse_distance", "0"},
                              {"deepspeed.zero_optimization.stage3_prefetch_bucket_size", "0"}},
                             model);
  const StepProgram program = lower_hf_deepspeed(on_h100(model, zero));
  EXPECT_EQ(pieces(program, HostWork::zero_gather), 2 * 21);
  EXPECT_EQ(pieces(program, HostWork::zero_parameter), 2 * 21);
  EXPECT_EQ(pieces(program, HostWork::zero_module), 32 + 31);
  EXPECT_EQ(pieces(program, HostWork::unit), 0);
}

// Two tensors of 3 MiB wait at once, then one: the most is what is needed. Pinned blocks are powers of two.
TEST(SaveOnCpu, NeedsTheMostThatWaitsAtOnce) {
  for (const bool pinned : {false, true}) {
    Tape tape{h100()};
    {
      SaveOnCpu hooks(tape, pinned);
      const Tensor tensor = tape.empty({3 << 20}, DType::uint8);
      auto first = hooks.pack(tensor), second = hooks.pack(tensor);
      first.reset();
      const auto third = hooks.pack(tensor);
    }
    EXPECT_EQ(tape.program().host_pinned, Bytes(pinned ? 8 << 20 : 0));
    EXPECT_EQ(tape.program().host_pageable, Bytes(pinned ? 0 : 6 << 20));
  }
}

}  // namespace
}  // namespace plimsoll::program
