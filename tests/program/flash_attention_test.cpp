// transformers' flash_attention_2: what flash-attention launches, what the host asks for, and what has no such attention.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

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
  return lower_transformers(model, resolve(said, model, parse_cluster("1xh100-sxm")));
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

}  // namespace
}  // namespace plimsoll::program
