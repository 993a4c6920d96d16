// Layers of one branch each under Megatron-core (megatron/core/ssm of 0.16.1): Mamba-2 mixers, attention without positions, MLPs and
// experts without gates; the kernels of mamba_ssm's combined scan.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "devices.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "program/lower.hpp"

namespace plimsoll::program {
namespace {

constexpr std::int64_t kHidden = 256, kLength = 256, kHeads = 8, kHeadDim = 32, kGroups = 4, kStates = 64, kFfn = 512, kVocab = 1024;
constexpr std::int64_t kInner = kHeads * kHeadDim, kConvolved = kInner + 2 * kGroups * kStates, kProjected = kInner + kConvolved + kHeads;

Model hybrid(const std::string& pattern) {
  return parse_model(R"({"model_type": "nemotron_h", "architectures": ["NemotronHForCausalLM"], "vocab_size": 1024, "hidden_size": 256,
                         "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
                         "mamba_num_heads": 8, "mamba_head_dim": 32, "n_groups": 4, "ssm_state_size": 64, "conv_kernel": 4,
                         "mlp_hidden_act": "relu2", "max_position_embeddings": 2048, "tie_word_embeddings": false,
                         "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "n_shared_experts": 1,
                         "moe_shared_expert_intermediate_size": 256, "num_hidden_layers": )" +
                         std::to_string(pattern.size()) + R"(, "hybrid_override_pattern": ")" + pattern + "\"}",
                     "nemotron_h", "nemotron_h");
}

StepProgram lowered(const Model& model, const std::string& more = {}, int gpus = 1) {
  const std::string text = R"({"framework": "megatron-core", "precision": "bf16", "seq_len": 256, "micro_batch": 1, "optimizer": "adamw")";
  return lower_megatron(on_h100(model, resolve(parse_strategy(text + more + "}", "strategy"), model, cluster_of("H100-SXM5-80GB", gpus))));
}

/// FLOPs of the step's products, and of the kernels that the scan multiplies with.
struct Flops {
  double products = 0, scans = 0;
};

Flops flops_of(const StepProgram& program) {
  Flops flops;
  for (const Instruction& instruction : program.step) {
    if (instruction.kind != InstructionKind::kernel) continue;
    const Kernel& kernel = program.kernels[instruction.id];
    if (kernel.product()) flops.products += kernel.flops();
    if (const auto* own = std::get_if<Unspecified>(&kernel.work)) flops.scans += own->flops;
  }
  return flops;
}

double product(std::int64_t weights) { return 2.0 * kLength * static_cast<double>(weights); }

// A mixer's two linears and the head are multiplied three times each. The scan: products over head_dim and states (S), of the positions of
// a chunk of 128 over head_dim (Q, causal: a half), and over the states for each group (G). Forward S, G, Q/2 + S; backward makes S and G
// anew and adds S (states), Q/2 + S (channels), S and S (B and C), Q/2 (their product), G twice, Q/2 (decays).
TEST(MegatronMamba, ALayersProductsAndItsScans) {
  const Flops flops = flops_of(lowered(hybrid("M")));
  EXPECT_DOUBLE_EQ(flops.products, 3 * (product(kHidden * kProjected) + product(kInner * kHidden) + product(kHidden * kVocab)));
  const double states = product(kInner * kStates), chunk = product(128 * kInner), group = product(128 * kGroups * kStates);
  EXPECT_DOUBLE_EQ(flops.scans, (2 * states + group + chunk / 2) + (states + group) + 4 * states + 3 * chunk / 2 + 2 * group);
}

// Heads and groups are cut over the tensor-parallel ranks, and with them the scan.
TEST(MegatronMamba, TensorParallelRanksScanTheirHeads) {
  const double whole = flops_of(lowered(hybrid("M"))).scans;
  EXPECT_DOUBLE_EQ(flops_of(lowered(hybrid("M"), R"(, "tp": 4)", 4)).scans, whole / 4);
  EXPECT_THROW(lowered(hybrid("M"), R"(, "tp": 8)", 8), Error) << "four groups on eight ranks";
}

// Each letter is a layer of one branch: attention's of queries, keys, values and output (4 and 2 heads of 64), the MLP's two linears; the
// attention is not turned, so that no rotary table is made.
TEST(MegatronMamba, EveryLetterIsOneBranch) {
  const double mixer = product(kHidden * kProjected) + product(kInner * kHidden), head = product(kHidden * kVocab);
  const double attention = product(kHidden * (4 + 2 * 2) * 64) + product(4 * 64 * kHidden), mlp = 2 * product(kHidden * kFfn);
  const StepProgram program = lowered(hybrid("M*-"));
  EXPECT_DOUBLE_EQ(flops_of(program).products, 3 * (mixer + attention + mlp + head));
  for (const Kernel& kernel : program.kernels) {
    const auto* row = std::get_if<RowWise>(&kernel.work);
    EXPECT_FALSE(row != nullptr && row->function == RowWise::Function::rope);
  }
}

// Experts without gates: one up and one down product for each of a token's two, and those of the shared expert; the router's.
TEST(MegatronMamba, ExpertsWithoutGatesHaveTwoProducts) {
  const double routed = 2 * product(2 * kHidden * 128), shared = product(2 * kHidden * 256), router = product(kHidden * 8);
  EXPECT_DOUBLE_EQ(flops_of(lowered(hybrid("E"))).products, 3 * (routed + shared + router + product(kHidden * kVocab)));
}

Model latent(const std::string& pattern, const std::string& more = {}) {
  return parse_model(R"({"model_type": "nemotron_h", "architectures": ["NemotronHForCausalLM"], "vocab_size": 1024, "hidden_size": 256,
                         "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
                         "mamba_num_heads": 8, "mamba_head_dim": 32, "n_groups": 4, "ssm_state_size": 64, "conv_kernel": 4,
                         "mlp_hidden_act": "relu2", "max_position_embeddings": 2048, "tie_word_embeddings": false,
                         "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "n_shared_experts": 1,
                         "moe_shared_expert_intermediate_size": 256, "moe_latent_size": 64, "num_hidden_layers": )" +
                         std::to_string(pattern.size()) + R"(, "hybrid_override_pattern": ")" + pattern + "\"" + more + "}",
                     "nemotron_h", "nemotron_h");
}

// LatentMoE: experts multiply in the latent width, behind a product down to it and before one up; the router and the shared expert do not.
TEST(MegatronMamba, LatentExpertsWorkInTheirWidth) {
  const double routed = 2 * product(2 * 64 * 128), shared = product(2 * kHidden * 256), router = product(kHidden * 8);
  const double latents = 2 * product(kHidden * 64);
  EXPECT_DOUBLE_EQ(flops_of(lowered(latent("E"))).products, 3 * (routed + latents + shared + router + product(kHidden * kVocab)));
  EXPECT_EQ(latent("E").parameters() - hybrid("E").parameters(), 2 * kHidden * 64 - 8 * 2 * 128 * (kHidden - 64));
}

// A module of multi-token prediction: the product that joins two hidden states, its layers, and the output layer once more. The pattern is
// the config's where it has one, else a layer like the last.
TEST(MegatronPrediction, EachModuleIsItsLayersAndAnotherHead) {
  const double attention = product(kHidden * (4 + 2 * 2) * 64) + product(4 * 64 * kHidden);
  const double experts = 2 * product(2 * 64 * 128) + 2 * product(kHidden * 64) + product(2 * kHidden * 256) + product(kHidden * 8);
  const double joined = product(2 * kHidden * kHidden), head = product(kHidden * kVocab);
  const Model like_last = latent("*E"), own = latent("E*", R"(, "num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*E")");
  const auto further = [](const Model& model, const std::string& more) {
    return flops_of(lowered(model, more)).products - flops_of(lowered(model)).products;
  };
  EXPECT_DOUBLE_EQ(further(like_last, R"(, "mtp_num_layers": 1)"), 3 * (joined + experts + head));
  EXPECT_DOUBLE_EQ(further(own, R"(, "mtp_num_layers": 1)"), 3 * (joined + attention + experts + head));
  EXPECT_DOUBLE_EQ(further(own, R"(, "mtp_num_layers": 3)"), 9 * (joined + attention + experts + head));
}

std::set<std::string> labels_of(const StepProgram& program) {
  std::set<std::string> labels;
  for (const Instruction& instruction : program.step)
    if (instruction.kind == InstructionKind::kernel) labels.insert(program.labels[instruction.label]);
  return labels;
}

bool launches_within(const StepProgram& program, const std::string& module) {
  const std::set<std::string> labels = labels_of(program);
  return std::any_of(labels.begin(), labels.end(), [&](const std::string& label) { return label.find(module) != std::string::npos; });
}

// mtp_use_repeated_layer: the same products with the weights of one module.
TEST(MegatronPrediction, OneModulesWeightsMayServeAllDepths) {
  const StepProgram each = lowered(latent("*E"), R"(, "mtp_num_layers": 2)");
  const StepProgram one = lowered(latent("*E"), R"(, "mtp_num_layers": 2, "mtp_use_repeated_layer": true)");
  EXPECT_DOUBLE_EQ(flops_of(each).products, flops_of(one).products);
  EXPECT_TRUE(launches_within(each, "mtp.layers.1"));
  EXPECT_TRUE(launches_within(one, "mtp.layers.0"));
  EXPECT_FALSE(launches_within(one, "mtp.layers.1"));
}

// Of a pipeline the last stage predicts, with an embedding of its own.
TEST(MegatronPrediction, TheLastStageEmbedsOnceMore) {
  const auto stage = [](int rank, const std::string& more) {
    const std::string text =
        R"({"framework": "megatron-core", "precision": "bf16", "seq_len": 256, "micro_batch": 1, "global_batch": 4, "optimizer": "adamw", "pp": 2)";
    const Model model = latent("*E*E");
    return lower_megatron(on_h100(model, resolve(parse_strategy(text + more + "}", "strategy"), model, cluster_of("H100-SXM5-80GB", 2))),
                          {rank});
  };
  const std::string further = R"(, "mtp_num_layers": 1)";
  EXPECT_FALSE(launches_within(stage(1, ""), "word_embeddings"));
  EXPECT_TRUE(launches_within(stage(1, further), "word_embeddings"));
  EXPECT_GT(flops_of(stage(1, further)).products, flops_of(stage(1, "")).products);
  EXPECT_DOUBLE_EQ(flops_of(stage(0, further)).products, flops_of(stage(0, "")).products);
}

// quant_recipe and num_layers_at_end_in_bf16: products of modules that a pattern names, and of the last layers, have other bits.
TEST(MegatronPrecision, SingleModulesAndLastLayersHaveTheirOwnBits) {
  const auto quantized = [](const std::string& more, Scaling scaling) {
    const std::string text =
        R"({"framework": "megatron-core", "precision": "nvfp4", "seq_len": 256, "micro_batch": 1, "optimizer": "adamw")";
    const Model model = hybrid("M*M*");
    const StepProgram program =
        lower_megatron(on_h100(model, resolve(parse_strategy(text + more + "}", "strategy"), model, cluster_of("H100-SXM5-80GB", 1))));
    std::int64_t count = 0;
    for (const Instruction& instruction : program.step) {
      if (instruction.kind != InstructionKind::kernel) continue;
      const auto* own = std::get_if<Product>(&program.kernels[instruction.id].work);
      count += own != nullptr && own->scaling == scaling;
    }
    return count;
  };
  const auto in_four_bits = [&](const std::string& more) { return quantized(more, Scaling::nvfp4); };
  EXPECT_EQ(in_four_bits(""), 4 * 2 * 3);  // two linears of each layer, three products each
  EXPECT_EQ(in_four_bits(R"(, "module_precision": ["*.linear_qkv=bf16"])"), (4 * 2 - 2) * 3);
  EXPECT_EQ(in_four_bits(R"(, "bf16_tail_layers": 1)"), 3 * 2 * 3);
  const std::string mixed = R"(, "module_precision": ["*mixer.out_proj=mxfp8"])";
  EXPECT_EQ(quantized(mixed, Scaling::mxfp8), 2 * 3);
  EXPECT_EQ(quantized(mixed, Scaling::nvfp4), (4 * 2 - 2) * 3);
  EXPECT_THROW(in_four_bits(R"(, "module_precision": ["*.linear_qkv=fp7"])"), Error);
}

// What is launched of a mixer stands under its name, which CUDA graphs of the scope "mamba" replay.
TEST(MegatronMamba, MixersAreLabelled) {
  const StepProgram program = lowered(hybrid("M"));
  std::set<std::string> labels;
  for (const Instruction& instruction : program.step)
    if (instruction.kind == InstructionKind::kernel) labels.insert(program.labels[instruction.label]);
  EXPECT_EQ(labels.count("decoder.layers.0.mixer: mamba_split_conv1d_scan"), 1U);
}

}  // namespace
}  // namespace plimsoll::program
