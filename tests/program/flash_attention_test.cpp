// transformers' flash_attention_2: what flash-attention launches, what the host asks for, and what has no such attention.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "devices.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "program/lower.hpp"

namespace plimsoll::program {
namespace {

constexpr std::int64_t kLayers = 2, kLength = 128;

Model small(const std::string& model_type, const std::string& architecture, const std::string& more) {
  return parse_model(R"({"vocab_size": 512, "max_position_embeddings": 2048, "hidden_size": 128, "intermediate_size": 256,
                         "num_attention_heads": 4, "num_hidden_layers": 2, "architectures": [")" +
                         architecture + R"("], "model_type": ")" + model_type + "\"" + more + "}",
                     model_type, model_type);
}

StepProgram flash(const Model& model, std::map<std::string, std::string> more = {}) {
  std::map<std::string, std::string> options{{"framework", "transformers"}, {"attention", "flash"},
                                             {"micro_batch", "2"},          {"seq_len", "128"},
                                             {"param_dtype", "bf16"},       {"precision", "pure-bf16"}};
  for (const auto& [key, value] : more) options[key] = value;
  Strategy said;
  set_options(said, {options.begin(), options.end()});
  return lower_transformers(on_h100(model, resolve(said, model, parse_cluster("1xh100-sxm"))));
}

std::vector<Attention> attention_of(const StepProgram& program) {
  std::vector<Attention> all;
  for (const Instruction& instruction : program.step) {
    if (instruction.kind != InstructionKind::kernel) continue;
    if (const auto* work = std::get_if<Attention>(&program.kernels[instruction.id].work)) all.push_back(*work);
  }
  return all;
}

std::int64_t waits_of(const StepProgram& program) {
  return std::count_if(program.step.begin(), program.step.end(),
                       [](const Instruction& each) { return each.kind == InstructionKind::synchronize; });
}

// flash_api.cpp: the forward kernel (4 heads of 2 sequences are 16 blocks of 64 queries, but 128 keys are one block of 256, which is not
// split); backward: row sums, the kernel, dQ's conversion, and dK and dV added up over the two query heads of a key head.
TEST(FlashAttention, LaunchesWhatItsInterfaceDoes) {
  const std::vector<Attention> all = attention_of(flash(small("llama", "LlamaForCausalLM", R"(, "num_key_value_heads": 2)")));
  const auto launches = [&](Attention::Part part) {
    return std::count_if(all.begin(), all.end(), [&](const Attention& each) { return each.part == part; });
  };
  for (const Attention::Part part : {Attention::Part::forward, Attention::Part::delta, Attention::Part::backward, Attention::Part::convert})
    EXPECT_EQ(launches(part), kLayers);
  EXPECT_EQ(launches(Attention::Part::combine), 0);
  EXPECT_EQ(launches(Attention::Part::sum_heads), 2 * kLayers);
  for (const Attention& each : all) {
    EXPECT_EQ(each.library, AttentionLibrary::flash2);
    EXPECT_EQ(each.queries, kLength);
    EXPECT_EQ(each.kv_heads, 2);
    EXPECT_EQ(each.window, 0);
  }
}

// _process_flash_attention_kwargs gives a window only where the keys are longer.
TEST(FlashAttention, WindowsAreTheKernelsWhereKeysAreLonger) {
  const auto window_of = [](const std::string& window) {
    return attention_of(flash(small("mistral", "MistralForCausalLM", R"(, "num_key_value_heads": 2, "sliding_window": )" + window)))
        .front()
        .window;
  };
  EXPECT_EQ(window_of("64"), 64);
  EXPECT_EQ(window_of("128"), 0);
}

// _is_packed_sequence reads a single sequence's positions in every layer; until 4.52 those of any batch were read, before 4.44 none.
TEST(FlashAttention, TheHostAsksEveryLayerWhetherASequenceIsPacked) {
  const Model model = small("llama", "LlamaForCausalLM", R"(, "num_key_value_heads": 4)");
  const std::int64_t apart = waits_of(flash(model));
  EXPECT_EQ(waits_of(flash(model, {{"micro_batch", "1"}})), apart + kLayers);
  EXPECT_EQ(waits_of(flash(model, {{"framework_version", "4.51.3"}})), apart + kLayers);
  EXPECT_EQ(waits_of(flash(model, {{"framework_version", "4.40.2"}, {"micro_batch", "1"}})), apart);
}

TEST(FlashAttention, TakesSixteenBitsAndClassesThatHaveIt) {
  const Model model = small("llama", "LlamaForCausalLM", R"(, "num_key_value_heads": 4)");
  EXPECT_THROW(flash(model, {{"param_dtype", "fp32"}, {"precision", "fp32"}}), Error);
  EXPECT_FALSE(flash(model, {{"param_dtype", "fp32"}, {"precision", "amp-bf16"}}).step.empty());
  EXPECT_THROW(flash(load_model("t5-large")), Error) << "_supports_flash_attn is false";
}

/// The same on another device.
StepProgram flash_on(const std::string& device, const std::string& attention) {
  const Model model = small("llama", "LlamaForCausalLM", R"(, "num_key_value_heads": 2)");
  Strategy said;
  set_options(said, {{"framework", "transformers"},
                     {"attention", attention},
                     {"micro_batch", "2"},
                     {"seq_len", "128"},
                     {"param_dtype", "bf16"},
                     {"precision", "pure-bf16"}});
  const Cluster cluster = parse_cluster("1x" + device);
  const Strategy strategy = resolve(said, model, cluster);
  return lower_transformers(on_cluster(cluster, model, strategy));
}

/// Bytes that the step allocates for tensors of these sizes.
std::int64_t allocations(const StepProgram& program, std::int64_t bytes) {
  return std::count_if(program.step.begin(), program.step.end(),
                       [&](const Instruction& each) { return each.kind == InstructionKind::alloc && each.bytes == bytes; });
}

// Heads of 32 have tiles of 64 in 3 and of 32 in 4. Backward needs, for 2 sequences of 128 queries, 4 heads and 2 key heads: 3's blocks of
// 128 rows make dQ 2 · 4 · 128 · 64 and dK and dV 2 · 2 · 128 · 64 numbers of fp32, 4's of 32 half of them. Neither keeps a generator's
// state, which is two int64 of each of 2's layers.
TEST(FlashAttention, LaterGenerationsKeepAndNeedLess) {
  constexpr std::int64_t kState = 16;
  const StepProgram second = flash_on("h100-sxm", "flash"), third = flash_on("h100-sxm", "flash-3"), fourth = flash_on("b200", "flash-4");
  EXPECT_EQ(allocations(second, kState), kLayers);
  for (const StepProgram* later : {&third, &fourth}) EXPECT_EQ(allocations(*later, kState), 0);
  for (const auto& [program, library, width] :
       {std::tuple(&third, AttentionLibrary::flash3, 64), std::tuple(&fourth, AttentionLibrary::flash4, 32)}) {
    EXPECT_GE(allocations(*program, 4LL * 2 * 4 * 128 * width), kLayers) << "dQ";
    EXPECT_GE(allocations(*program, 4LL * 2 * 2 * 128 * width), 2 * kLayers) << "dK and dV";
    for (const Attention& each : attention_of(*program)) EXPECT_EQ(each.library, library);
  }
}

// README.md of flash-attention: 2 asks for Ampere, 3 for Hopper, 4 for Hopper or Blackwell; on AMD 2 is Composable Kernel's.
TEST(FlashAttention, AGenerationIsRefusedWhereItDoesNotRun) {
  EXPECT_THROW(flash_on("v100-sxm2", "flash"), Error);
  EXPECT_THROW(flash_on("t4", "flash"), Error);
  EXPECT_THROW(flash_on("a100-80gb-sxm", "flash-3"), Error);
  EXPECT_THROW(flash_on("b200", "flash-3"), Error);
  EXPECT_THROW(flash_on("a100-80gb-sxm", "flash-4"), Error);
  EXPECT_THROW(flash_on("mi300x", "flash-3"), Error);
  EXPECT_FALSE(flash_on("h100-sxm", "flash-4").step.empty());
  for (const Attention& each : attention_of(flash_on("mi300x", "flash"))) EXPECT_EQ(each.library, AttentionLibrary::composable_kernel);
}

// torch.cuda.is_bf16_supported counts emulation since 2.4, and TrainingArguments asks it; tf32 needs Ampere in any release.
TEST(Trainer, RefusesArithmeticThatADeviceHasNot) {
  const Model model = small("llama", "LlamaForCausalLM", R"(, "num_key_value_heads": 2)");
  const auto resolved = [&](const std::string& device, const std::string& precision, const std::string& torch, const std::string& tf32) {
    Strategy said;
    set_options(said, {{"framework", "transformers"},
                       {"micro_batch", "2"},
                       {"seq_len", "128"},
                       {"precision", precision},
                       {"torch", torch},
                       {"tf32", tf32}});
    resolve(said, model, parse_cluster("1x" + device));
  };
  EXPECT_THROW(resolved("v100-sxm2", "bf16", "2.3", "false"), Error);
  EXPECT_NO_THROW(resolved("v100-sxm2", "bf16", "2.6", "false"));
  EXPECT_NO_THROW(resolved("v100-sxm2", "fp16", "2.3", "false"));
  EXPECT_NO_THROW(resolved("a100-80gb-sxm", "bf16", "2.3", "true"));
  EXPECT_THROW(resolved("t4", "fp16", "2.6", "true"), Error);
}

}  // namespace
}  // namespace plimsoll::program
