// What XLA makes of MaxText's step: the products of each remat policy, the collectives of its two scans, and the types that they carry.
#include <gtest/gtest.h>

#include <string>

#include "devices.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "program/lower.hpp"

namespace plimsoll::program {
namespace {

constexpr std::int64_t kHidden = 256, kFfn = 512, kWidth = 256, kKeyWidth = 128, kVocab = 1024, kLayers = 3, kRows = 2 * 128;

Model llama(const std::string& more = {}) {
  return parse_model(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 1024, "max_position_embeddings": 2048,
                         "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2,
                         "tie_word_embeddings": false, "num_hidden_layers": 3)" +
                         more + "}",
                     "llama", "llama");
}

StepProgram maxtext(const std::string& more, int gpus = 16) {
  const Model model = llama();
  const std::string text = R"({"framework": "jax-maxtext", "micro_batch": 2, "seq_len": 128)";
  return lower_maxtext(on_h100(model, resolve(parse_strategy(text + more + "}", "strategy"), model, cluster_of("H100-SXM5-80GB", gpus))));
}

struct Counts {
  std::int64_t gathers = 0, scatters = 0, sums = 0, attention = 0;
  std::int64_t gathered = 0, scattered = 0;  ///< bytes
  double products = 0;                       ///< FLOPs
};

Counts counts_of(const StepProgram& program) {
  Counts counts;
  for (const Instruction& instruction : program.step) {
    if (instruction.kind == InstructionKind::kernel) {
      const Kernel& kernel = program.kernels[instruction.id];
      if (kernel.product()) counts.products += kernel.flops();
      if (kernel.attention() && kernel.attention()->part == Attention::Part::forward) ++counts.attention;
    }
    if (instruction.kind != InstructionKind::collective) continue;
    const Collective& collective = program.collectives[instruction.id];
    const bool gather = collective.kind == CollectiveKind::all_gather, scatter = collective.kind == CollectiveKind::reduce_scatter;
    counts.gathers += gather;
    counts.scatters += scatter;
    counts.sums += collective.kind == CollectiveKind::all_reduce;
    if (gather) counts.gathered += collective.bytes;
    if (scatter) counts.scattered += collective.bytes;
  }
  return counts;
}

// Weights of a layer: queries and the output of attention are square, keys and values narrower, three in the MLP.
constexpr std::int64_t kAttentionWeights = 2 * kHidden * kWidth + 2 * kHidden * kKeyWidth, kMlpWeights = 3 * kHidden * kFfn;
constexpr std::int64_t kLayerWeights = kAttentionWeights + kMlpWeights, kVocabulary = kHidden * kVocab;

/// FLOPs of a product of all rows with so many weights.
double product(std::int64_t weights) { return 2.0 * kRows * static_cast<double>(weights); }

// Each weight is multiplied three times (forward, both gradients); base.yml's policy, full, computes all of a layer again but its last
// product, whose result nobody reads. The embedding is a lookup.
TEST(Maxtext, FullRematRunsEveryProductAgainButTheLast) {
  const Counts counts = counts_of(maxtext(""));
  const double layer = 3 * product(kLayerWeights) + product(kLayerWeights - kHidden * kFfn);
  EXPECT_DOUBLE_EQ(counts.products, kLayers * layer + 3 * product(kVocabulary));
  EXPECT_EQ(counts.attention, 2 * kLayers);
}

// NVIDIA's recipe of 24.11 keeps all but attention and the MLP's first products, that of 25.02 queries, keys and values alone: the output
// projection runs again. Both embed by a product with one-hot rows, whose table has a gradient and its input none.
TEST(Maxtext, RecipesKeepWhatTheirPolicySays) {
  const double both = 3 * product(kVocabulary) + 2 * product(kVocabulary), layer = 3 * product(kLayerWeights);
  const double again = 2 * product(kHidden * kFfn);
  const Counts older = counts_of(maxtext(R"(, "framework_version": "NeMo container 24.09")"));
  EXPECT_DOUBLE_EQ(older.products, kLayers * (layer + again) + both);
  const Counts newer = counts_of(maxtext(R"(, "framework_version": "NeMo container 24.12")"));
  EXPECT_DOUBLE_EQ(newer.products, kLayers * (layer + again + product(kHidden * kWidth)) + both);
  EXPECT_EQ(newer.attention, 2 * kLayers);
  const Counts kept = counts_of(maxtext(R"(, "recompute": "none")"));
  EXPECT_DOUBLE_EQ(kept.products, kLayers * layer + 3 * product(kVocabulary));
  EXPECT_EQ(kept.attention, kLayers);
}

// Each scan gathers every layer once, as one collective; gradients of seven weights a layer are scattered one by one. Embedding and head
// once each. A layer's norms, and the gradients' norm before clipping, are summed over all ranks.
TEST(Maxtext, GathersLayersTwiceAndScattersWeightsOnce) {
  const Counts counts = counts_of(maxtext(""));
  EXPECT_EQ(counts.gathers, 2 * kLayers + 2);
  EXPECT_EQ(counts.scatters, 7 * kLayers + 2);
  EXPECT_EQ(counts.sums, kLayers + 1);
  EXPECT_EQ(counts.gathered, 2 * (2 * kLayers * kLayerWeights + 2 * kVocabulary));  // bf16
  EXPECT_EQ(counts.scattered, 2 * (kLayers * kLayerWeights + 2 * kVocabulary));
}

// In 8 bits weights are quantized before they are gathered; gradients travel in 16 bits all the same. Embedding and head stay in 16 bits.
TEST(Maxtext, EightBitWeightsAreGatheredInEightBits) {
  const Counts counts = counts_of(maxtext(R"(, "precision": "fp8")"));
  EXPECT_EQ(counts.gathered, 2 * kLayers * kLayerWeights + 2 * 2 * kVocabulary);
  EXPECT_EQ(counts.scattered, 2 * (kLayers * kLayerWeights + 2 * kVocabulary));
  EXPECT_DOUBLE_EQ(counts.products, counts_of(maxtext("")).products);
}

// Replicas sum the shards of every weight's gradient; one rank alone communicates nothing.
TEST(Maxtext, ReplicasSumTheirShards) {
  const Counts hybrid = counts_of(maxtext(R"(, "data_parallel": "hsdp", "fsdp_degree": 8)"));
  EXPECT_EQ(hybrid.sums, (7 * kLayers + 2) + kLayers + 1);
  const Counts alone = counts_of(maxtext("", 1));
  EXPECT_EQ(alone.gathers + alone.scatters + alone.sums, 0);
}

std::string refusal(const Model& model, const std::string& more) {
  const std::string text = R"({"framework": "jax-maxtext", "micro_batch": 2, "seq_len": 128)";
  try {
    lower_maxtext(on_h100(model, resolve(parse_strategy(text + more + "}", "strategy"), model, cluster_of("H100-SXM5-80GB", 8))));
  } catch (const Error& error) {
    return error.message();
  }
  return {};
}

TEST(Maxtext, WhatIsNotModelledIsNamed) {
  EXPECT_NE(refusal(llama(), R"(, "grad_accum": 4)").find("gradient accumulation"), std::string::npos);
  EXPECT_NE(refusal(llama(), R"(, "optimizer": "sgd")").find("an optimizer other than adamw"), std::string::npos);
  EXPECT_NE(refusal(llama(), R"(, "recompute": "selective:core_attn")").find("recompute_modules core_attn"), std::string::npos);
  EXPECT_NE(refusal(load_model("gpt2"), "").find("layers other than Llama's"), std::string::npos);
  EXPECT_NE(refusal(load_model("qwen3-0.6b"), "").find("this attention"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::program
