// The model code of the named release of transformers is what runs.
#include "program/hf_release.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "devices.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "program/lower.hpp"

namespace plimsoll::program {
namespace {

constexpr std::int64_t kBatch = 2, kLength = 128, kVocabulary = 512, kLayers = 2, kExperts = 4;

Model small(const std::string& model_type, const std::string& architecture, const std::string& more) {
  return parse_model(R"({"vocab_size": 512, "max_position_embeddings": 2048, "hidden_size": 128, "intermediate_size": 256,
                         "num_attention_heads": 4, "num_hidden_layers": 2, "architectures": [")" +
                         architecture + R"("], "model_type": ")" + model_type + "\"" + more + "}",
                     model_type, model_type);
}
Model llama() { return small("llama", "LlamaForCausalLM", R"(, "num_key_value_heads": 2)"); }
Model qwen3_moe() {
  return small("qwen3_moe", "Qwen3MoeForCausalLM",
               R"(, "num_key_value_heads": 4, "head_dim": 32, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
                  "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [], "hidden_act": "silu")");
}

Strategy strategy_of(const Model& model, const std::string& release, std::map<std::string, std::string> more = {}, int gpus = 1) {
  std::map<std::string, std::string> options{{"framework", "transformers"},     {"micro_batch", "2"},       {"seq_len", "128"},
                                             {"param_dtype", "bf16"},           {"precision", "pure-bf16"}, {"torch", "2.15"},
                                             {"releases.transformers", release}};
  for (const auto& [key, value] : more) options[key] = value;
  Strategy said;
  set_options(said, {options.begin(), options.end()});
  return resolve(said, model, parse_cluster(std::to_string(gpus) + "xh100-sxm"));
}
StepProgram lowered(const Model& model, const std::string& release, std::map<std::string, std::string> more = {}) {
  return lower_transformers(on_h100(model, strategy_of(model, release, std::move(more))));
}

std::int64_t blocks_of(const StepProgram& program, std::int64_t bytes) {
  return std::count_if(program.step.begin(), program.step.end(),
                       [&](const Instruction& each) { return each.kind == InstructionKind::alloc && each.bytes == bytes; });
}
std::int64_t products_of(const StepProgram& program, bool grouped) {
  return std::count_if(program.step.begin(), program.step.end(), [&](const Instruction& each) {
    const auto* product = each.kind == InstructionKind::kernel ? std::get_if<Product>(&program.kernels[each.id].work) : nullptr;
    return product && product->grouped == grouped;
  });
}
std::int64_t waits_of(const StepProgram& program) {
  return std::count_if(program.step.begin(), program.step.end(),
                       [](const Instruction& each) { return each.kind == InstructionKind::synchronize; });
}

// ForCausalLMLoss of 4.48: logits.float(), then logits[..., :-1, :].contiguous(), whose rows log_softmax and its gradient have, too; since
// 4.49 labels are padded, and no tensor is one position shorter.
TEST(HfRelease, CopiesLogitsOnePositionShorterUntil448) {
  constexpr std::int64_t kShorter = kBatch * (kLength - 1) * kVocabulary * 4;
  EXPECT_GE(blocks_of(lowered(llama(), "4.48.3"), kShorter), 3);
  EXPECT_EQ(blocks_of(lowered(llama(), "4.49.0"), kShorter), 0);
  EXPECT_EQ(blocks_of(lowered(llama(), "5.23.0"), kShorter), 0);
}

// gpt-oss' attention subtracts max(scores, dim=-1) of its keys and the sink: a reduction that reads every score once, and no top-k; the
// router's top-k is of 4 experts. A layer's scores: 2 x 4 heads x 128 x (128 + 1).
TEST(HfRelease, TheLargestScoreIsAReduction) {
  const Model model = small("gpt_oss", "GptOssForCausalLM",
                            R"(, "num_key_value_heads": 2, "head_dim": 32, "num_local_experts": 4, "num_experts_per_tok": 2,
                               "sliding_window": 128, "layer_types": ["full_attention", "full_attention"])");
  const StepProgram program = lowered(model, "5.23.0", {{"attention", "eager"}});
  constexpr std::int64_t kRows = kBatch * 4 * kLength, kScores = kRows * (kLength + 1);
  constexpr std::int64_t kRead = 2 * kScores, kWritten = (2 + 8) * kRows;  // scores in bf16; values and their places
  int largest = 0;
  for (const Instruction& each : program.step) {
    if (each.kind != InstructionKind::kernel) continue;
    const Kernel& kernel = program.kernels[each.id];
    const auto* chosen = std::get_if<Gather>(&kernel.work);
    if (chosen && chosen->function == Gather::Function::top_k) {
      EXPECT_EQ(chosen->elements, kBatch * kLength * kExperts);
    }
    const auto* reduced = std::get_if<Reduction>(&kernel.work);
    if (reduced && reduced->outputs == kRows && kernel.bytes() == kRead + kWritten) ++largest;
  }
  EXPECT_EQ(largest, kLayers);
}

// Which class left its own loss when, read in the wheels: GPT-2 never made its logits fp32 before 4.48, Mistral did until 4.47, Llama
// until 4.45.
TEST(HfRelease, KnowsEachClassesLoss) {
  const auto loss = [](const char* release, const char* type) { return HfRelease(*Release::parse(release)).causal_loss(type); };
  EXPECT_TRUE(loss("4.45.2", "llama").upcasts_before && !loss("4.45.2", "llama").upcasts_within);
  EXPECT_TRUE(!loss("4.46.3", "llama").upcasts_before && loss("4.46.3", "llama").upcasts_within);
  EXPECT_TRUE(loss("4.47.1", "mistral").upcasts_before);
  EXPECT_TRUE(!loss("4.47.1", "gpt2").upcasts_before && !loss("4.47.1", "gpt2").upcasts_within);
  EXPECT_TRUE(loss("4.57.6", "gptj").upcasts_before && loss("4.57.6", "gptj").upcasts_within);
  EXPECT_TRUE(!loss("5.0.0", "gptj").upcasts_before && !loss("5.0.0", "gptj").copies_shifted);
}

// repeat_kv: two key heads become four, keys and values, in every layer; since 4.54 PyTorch is left to do that. Until 4.55 queries, keys
// and values are made contiguous, which copies keys and values that lie side by side anyway only where no heads were repeated.
TEST(HfRelease, RepeatsKeyHeadsUntil453) {
  const std::int64_t heads = kBatch * 4 * kLength * 32 * 2;
  const std::int64_t repeated = blocks_of(lowered(llama(), "4.53.3"), heads), left = blocks_of(lowered(llama(), "4.57.6"), heads);
  EXPECT_GE(repeated, left + 2 * kLayers);
}

// Qwen3MoeSparseMoeBlock of 4.51: three linears an expert, each with two products backward, in place of two grouped products.
TEST(HfRelease, LoopsOverExpertsBeforeTheyWereStacked) {
  const StepProgram loop = lowered(qwen3_moe(), "4.51.3"), stacked = lowered(qwen3_moe(), "5.23.0");
  EXPECT_EQ(products_of(loop, true), 0);
  EXPECT_EQ(products_of(stacked, true), kLayers * 2 * 3);
  EXPECT_EQ(products_of(loop, false) - products_of(stacked, false), kLayers * kExperts * 3 * 3);
}

// GroupedBlas.cpp: Hopper and data-centre Blackwell have a kernel of groups; elsewhere the host waits for the offsets, and each expert's
// rows are a product of their own, of the same FLOPs together.
TEST(HfRelease, ExpertsAreMultipliedOneByOneWhereNoKernelTakesGroups) {
  const Model model = qwen3_moe();
  const Strategy s = strategy_of(model, "5.23.0");
  const StepProgram grouped = lower_transformers({model, s, h100()}), apart = lower_transformers({model, s, device_named("a100-80gb-sxm")});
  const auto multiplied = [](const StepProgram& program) {
    std::int64_t sum = 0;
    for (const Instruction& each : program.step)
      if (each.kind == InstructionKind::kernel)
        if (const auto* p = std::get_if<Product>(&program.kernels[each.id].work)) sum += p->m * p->n * p->k * p->batch;
    return sum;
  };
  constexpr std::int64_t kGrouped = kLayers * 2 * 3;
  EXPECT_EQ(products_of(apart, true), 0);
  EXPECT_EQ(products_of(apart, false) - products_of(grouped, false), kGrouped * kExperts);
  EXPECT_EQ(waits_of(apart) - waits_of(grouped), kGrouped);
  EXPECT_EQ(multiplied(apart), multiplied(grouped));
}

// torch.where: the host waits for the number of rows of every expert; from 4.53 on it asks first which experts got any, and for each of
// their numbers.
TEST(HfRelease, TheHostWaitsForEveryExpert) {
  const std::int64_t waits = waits_of(lowered(qwen3_moe(), "4.51.3")), asked = waits_of(lowered(qwen3_moe(), "4.53.3"));
  EXPECT_EQ(waits - waits_of(lowered(qwen3_moe(), "5.23.0")), kLayers * kExperts);
  EXPECT_EQ(asked - waits, kLayers * (1 + kExperts));
}

// ZeRO-3 gathers a module's parameters when it runs: each linear of each expert (DeepSpeed 0.16), or a layer's stacked weights together.
// What is used again within stage3_max_reuse_distance stays until its backward.
TEST(HfRelease, ZeroThreeGathersExpertByExpert) {
  const auto gathers = [](const std::string& release) {
    const Model model = qwen3_moe();
    const Strategy s = strategy_of(model, release,
                                   {{"framework", "deepspeed"},
                                    {"data_parallel", "zero3"},
                                    {"precision", "bf16"},
                                    {"releases.deepspeed", "0.16.9"},
                                    {"deepspeed.zero_optimization.stage3_param_persistence_threshold", "0"},
                                    {"deepspeed.zero_optimization.stage3_prefetch_bucket_size", "0"}},
                                   2);
    const StepProgram program = lower_hf_deepspeed(on_h100(model, s));
    return std::count_if(program.step.begin(), program.step.end(), [&](const Instruction& each) {
      return each.kind == InstructionKind::collective && program.collectives[each.id].kind == CollectiveKind::all_gather;
    });
  };
  EXPECT_EQ(gathers("4.51.3") - gathers("5.23.0"), kLayers * (kExperts * 3 - 1));
}

// Classes that came later, and mixtures whose loop is not modelled, are refused by name.
TEST(HfRelease, RefusesWhatTheReleaseLacks) {
  const auto problem = [](const Model& model, const std::string& release) -> std::string {
    try {
      (void)lowered(model, release);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return {};
  };
  EXPECT_NE(problem(qwen3_moe(), "4.48.3").find("transformers 4.48.3 has no qwen3_moe, whose classes came with 4.51"), std::string::npos);
  EXPECT_NE(problem(llama(), "4.20").find("transformers 4.20 is not modelled"), std::string::npos);
  EXPECT_EQ(problem(llama(), "9.9"), "") << "taken as the newest";
}

}  // namespace
}  // namespace plimsoll::program
