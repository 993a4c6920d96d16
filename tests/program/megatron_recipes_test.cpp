// Rules of Megatron-core's recipes: windows, sinks and other experts, 4 and 8 bits, dispatchers, offloaded activations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "devices.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "program/lower.hpp"
#include "program/modules/megatron/config.hpp"
#include "program/modules/megatron/flex_dispatch.hpp"
#include "program/modules/megatron/parameter_list.hpp"

namespace plimsoll::program {
namespace {

constexpr std::int64_t kHidden = 512, kLength = 256, kBatch = 2, kTokens = kBatch * kLength;
constexpr std::int64_t kLayers = 4, kExperts = 8, kTopK = 2, kInner = 512;

/// Two layers in four slide over 64 tokens; 8 experts with biases.
Model gpt_oss() {
  return parse_model(R"({"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "vocab_size": 1024, "hidden_size": 512,
                         "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 512,
                         "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 64, "max_position_embeddings": 256,
                         "num_hidden_layers": 4})",
                     "gpt-oss", "gpt-oss");
}

Model mixtral(const std::string& activation) {
  return parse_model(R"({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 1024, "hidden_size": 512,
                         "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 512, "num_local_experts": 8,
                         "num_experts_per_tok": 2, "max_position_embeddings": 256, "num_hidden_layers": 4, "hidden_act": ")" +
                         activation + "\"}",
                     "mixtral", "mixtral");
}

Model llama() {
  return parse_model(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 1024, "hidden_size": 512,
                         "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 1024, "max_position_embeddings": 256,
                         "num_hidden_layers": 4})",
                     "llama", "llama");
}

StepProgram lowered(const Model& model, const std::string& more, int gpus = 1, const TargetDevice& device = h100()) {
  const std::string text = R"({"framework": "megatron-core", "seq_len": 256, "micro_batch": 2, "optimizer": "adamw", )" + more + "}";
  const Strategy strategy = resolve(parse_strategy(text, "strategy"), model, cluster_of("B200-SXM-180GB", gpus));
  return lower_megatron({model, strategy, device});
}

/// Kernels of the steady step that `counts`.
std::int64_t kernels(const StepProgram& program, const std::function<bool(const Kernel&)>& counts) {
  std::int64_t found = 0;
  for (const Instruction& instruction : program.step)
    found += instruction.kind == InstructionKind::kernel && counts(program.kernels[instruction.id]) ? 1 : 0;
  return found;
}

template <class Work>
std::function<bool(const Kernel&)> is(std::function<bool(const Work&)> counts) {
  return [counts](const Kernel& kernel) {
    const Work* work = std::get_if<Work>(&kernel.work);
    return work != nullptr && counts(*work);
  };
}

/// Bytes of the collectives of one kind over one group in the steady step.
std::int64_t moved(const StepProgram& program, CollectiveKind kind, Group group) {
  std::int64_t bytes = 0;
  for (const Instruction& instruction : program.step) {
    if (instruction.kind != InstructionKind::collective) continue;
    const Collective& collective = program.collectives[instruction.id];
    if (collective.kind == kind && collective.group == group) bytes += collective.bytes;
  }
  return bytes;
}

std::int64_t copied(const StepProgram& program, Copy::Direction direction) {
  std::int64_t bytes = 0;
  for (const Instruction& instruction : program.step) {
    if (instruction.kind == InstructionKind::copy && program.copies[instruction.id].direction == direction)
      bytes += program.copies[instruction.id].bytes;
  }
  return bytes;
}

/// Latent attention without experts.
Model latent() {
  return parse_model(R"({"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "vocab_size": 1024, "hidden_size": 512,
                         "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 1024, "moe_intermediate_size": 256,
                         "q_lora_rank": 128, "kv_lora_rank": 64, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64,
                         "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 4,
                         "max_position_embeddings": 256, "num_hidden_layers": 4})",
                     "latent", "latent");
}

// Without apply_rope_fusion (_apply_rotary_pos_emb_bshd with multi_latent_attention) queries and keys put their pairs apart, rotate a half
// and join it with what is not turned, a cat each; then either is joined with its part that is not turned: 2 · 3 + 2 a layer. In
// backward the gradients of both splits and of both halves' chunks are put together again: 2 + 2.
TEST(MegatronLatentAttention, TurnsPartsByThemselvesWithoutTheFusedKernel) {
  const StepProgram fused = lowered(latent(), R"("precision": "bf16")");
  const StepProgram apart = lowered(latent(), R"("precision": "bf16", "rope_fusion": false)");
  const auto joins = is<Pointwise>([](const Pointwise& p) { return p.form == Pointwise::Form::concatenate; });
  EXPECT_EQ(kernels(apart, joins) - kernels(fused, joins), 12 * kLayers);
  const auto turns = is<RowWise>([](const RowWise& r) { return r.function == RowWise::Function::rope; });
  EXPECT_GT(kernels(fused, turns), 0);
  EXPECT_EQ(kernels(apart, turns), 0);
}

// Rows are taken by index_select and by the gradient of scatter_add, and added by scatter_add and by the gradient of index_select: no
// kernel of Transformer Engine moves any.
TEST(MegatronDispatch, RowsMoveByPyTorchsOperatorsWithoutTheFusedPermutation) {
  const StepProgram apart = lowered(mixtral("silu"), R"("precision": "bf16", "moe_permute_fusion": false)");
  const auto moves = [](Gather::Function function) {
    return is<Gather>([function](const Gather& g) { return g.function == function && g.elements == kTopK * kTokens * kHidden; });
  };
  EXPECT_EQ(kernels(apart, moves(Gather::Function::index)), 2 * kLayers);
  EXPECT_EQ(kernels(apart, moves(Gather::Function::scatter)), 2 * kLayers);
  EXPECT_EQ(kernels(apart, is<Gather>([](const Gather& g) { return g.function == Gather::Function::permute; })), 0);
}

TEST(MegatronWindows, EverySecondLayerSlides) {
  const StepProgram program = lowered(gpt_oss(), R"("precision": "bf16")");
  const auto attends = [](std::int64_t window) { return is<Attention>([window](const Attention& a) { return a.window == window; }); };
  // One forward and one backward of each layer.
  EXPECT_EQ(kernels(program, attends(64)), kLayers / 2 * 2);
  EXPECT_EQ(kernels(program, attends(0)), kLayers / 2 * 2);
}

TEST(MegatronWindows, SinksAndAWindowAreRefusedOverContextParallelRanksAndInEightBits) {
  EXPECT_THROW(lowered(gpt_oss(), R"("precision": "bf16", "cp": 2)", 2), Error);
  EXPECT_THROW(lowered(gpt_oss(), R"("precision": "fp8", "fp8_attention": true)"), Error);
}

// hidden_dropout keeps a mask of a byte an element of each branch (bias_dropout_add_fused_train, two a layer) and of the embeddings until the
// backward pass; attention_dropout is in the kernels of both passes, which draw the same numbers again and keep none.
TEST(MegatronDropout, BranchesKeepTheirMasksAndAttentionDrawsThemAgain) {
  const auto llama_with = [](const std::string& rates) {
    return parse_model(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 1024, "hidden_size": 512,
                           "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 1024, "max_position_embeddings": 256,
                           "num_hidden_layers": 4)" + rates + "}",
                       "llama", "llama");
  };
  const auto masks = [](const StepProgram& program) {
    return std::count_if(program.step.begin(), program.step.end(), [](const Instruction& each) {
      return each.kind == InstructionKind::alloc && each.category == Category::activation && each.bytes == kTokens * kHidden;
    });
  };
  const auto dropping = is<Attention>([](const Attention& work) { return work.dropout; });
  const std::string precision = R"("precision": "bf16")";
  const StepProgram none = lowered(llama_with(""), precision), hidden = lowered(llama_with(R"(, "hidden_dropout": 0.1)"), precision);
  EXPECT_EQ(masks(hidden) - masks(none), 2 * kLayers + 1);
  EXPECT_EQ(kernels(hidden, dropping), 0);
  const StepProgram attention = lowered(llama_with(R"(, "attention_dropout": 0.1)"), precision);
  EXPECT_EQ(masks(attention), masks(none));
  EXPECT_EQ(kernels(attention, dropping), 2 * kLayers);
}

// get_attention_backend of Transformer Engine 2.15: FusedAttention in 8 bits has windows and sinks on Blackwell, and not before, nor on
// Hopper. NeMo's container 26.06 has 2.16, 26.02 has 2.12.
TEST(MegatronWindows, SlideInEightBitsOnBlackwellFromTransformerEngine215On) {
  const auto bridge = [](const std::string& container, const TargetDevice& device) {
    const std::string text =
        R"({"framework": "megatron-bridge", "seq_len": 256, "micro_batch": 2, "optimizer": "adamw", "precision": "mxfp8",
                                 "fp8_attention": true, "releases": {"nemo-container": ")" +
        container + R"("}})";
    const Model model = gpt_oss();
    const Strategy strategy = resolve(parse_strategy(text, "strategy"), model, cluster_of("B200-SXM-180GB", 1));
    return lower_megatron({model, strategy, device});
  };
  const StepProgram program = bridge("26.06", device_named("b200"));
  const auto attends = [](std::int64_t window) {
    return is<Attention>([window](const Attention& a) { return a.window == window && a.type == DType::fp8; });
  };
  EXPECT_EQ(kernels(program, attends(64)), kLayers / 2 * 2);
  EXPECT_EQ(kernels(program, attends(0)), kLayers / 2 * 2);
  EXPECT_THROW(bridge("26.02", device_named("b200")), Error);
  EXPECT_THROW(bridge("26.06", h100()), Error);
}

TEST(MegatronGroupedExperts, ClampsAreEagerAndBiasesAreAddedExpertByExpert) {
  const StepProgram program = lowered(gpt_oss(), R"("precision": "bf16")");
  const auto joined = [](std::int64_t elements) {
    return is<Pointwise>([elements](const Pointwise& p) { return p.form == Pointwise::Form::concatenate && p.elements == elements; });
  };
  // Of 2T rows: the clamped halves are put together again [2T, 2f], and in backward their gradients; with f = h the sums with the biases
  // [2T, h], and in backward the gradients of the parts.
  EXPECT_EQ(kernels(program, joined(kTopK * kTokens * 2 * kInner)), 2 * kLayers);
  EXPECT_EQ(kernels(program, joined(kTopK * kTokens * kHidden)), 2 * kLayers);
  // Each expert's bias times the weights of its rows.
  const auto biased = is<Pointwise>([](const Pointwise& p) {
    return p.form == Pointwise::Form::map && p.elements == kTopK * kTokens / kExperts * kHidden && p.operands[0].elements == kHidden;
  });
  EXPECT_GE(kernels(program, biased), kExperts * kLayers);
}

TEST(MegatronGroupedExperts, OnlySiluAndQuickGeluGatesAreCompiled) {
  const auto compiled = is<Pointwise>([](const Pointwise& p) {
    return p.form == Pointwise::Form::fused && p.operands.bytes_read() == kTopK * kTokens * (2 * kInner + 1) * 2;
  });
  EXPECT_EQ(kernels(lowered(mixtral("silu"), R"("precision": "bf16")"), compiled), kLayers);
  EXPECT_EQ(kernels(lowered(mixtral("gelu"), R"("precision": "bf16")"), compiled), 0);
}

// Without bias_swiglu_fusion (MLP.forward's glu): silu of a half, the other half plus an offset, their product, times the weights of the
// rows; no compiled gate.
TEST(MegatronGroupedExperts, GatesAreEagerWithoutBiasSwigluFusion) {
  const std::int64_t half = kTopK * kTokens * kInner;
  const auto compiled = is<Pointwise>([](const Pointwise& p) {
    return p.form == Pointwise::Form::fused && p.operands.bytes_read() == kTopK * kTokens * (2 * kInner + 1) * 2;
  });
  const auto eager = is<Pointwise>([half](const Pointwise& p) { return p.form == Pointwise::Form::map && p.elements == half; });
  const StepProgram fused = lowered(mixtral("silu"), R"("precision": "bf16")");
  const StepProgram apart = lowered(mixtral("silu"), R"("precision": "bf16", "bias_swiglu_fusion": false)");
  EXPECT_EQ(kernels(fused, compiled), kLayers);
  EXPECT_EQ(kernels(apart, compiled), 0);
  EXPECT_GE(kernels(apart, eager) - kernels(fused, eager), 4 * kLayers);
}

// SequentialMLP where no token is dropped: an even split gives each of 8 experts 2 · 512 / 8 = 128 rows, and each of its two linears a
// product forward and two in backward; nothing is multiplied in groups, whoever dispatches.
TEST(MegatronSequentialExperts, EachExpertMultipliesItsRows) {
  constexpr std::int64_t kRows = kTopK * kTokens / kExperts, kProducts = 6;
  const auto of_expert = is<Product>([](const Product& p) { return !p.grouped && (p.n == kRows || p.k == kRows); });
  const auto grouped = is<Product>([](const Product& p) { return p.grouped; });
  const std::string apart = R"("precision": "bf16", "moe_grouped_gemm": false)";
  const StepProgram alone = lowered(mixtral("silu"), apart);
  EXPECT_EQ(kernels(alone, of_expert), kProducts * kExperts * kLayers);
  EXPECT_EQ(kernels(alone, grouped), 0);
  const StepProgram dispatched = lowered(mixtral("silu"), apart + R"(, "ep": 2, "moe_dispatcher": "deepep")", 2);
  EXPECT_EQ(kernels(dispatched, is<Product>([](const Product& p) { return p.n == 2 * kRows || p.k == 2 * kRows; })),
            kProducts * (kExperts / 2) * kLayers);
  EXPECT_THROW(lowered(mixtral("silu"), R"("precision": "fp8", "moe_grouped_gemm": false)"), Error);
}

TEST(MegatronGroupedExperts, QuantizedRowsArePaddedUnlessTheDispatcherDoesSo) {
  // Of each layer: tokens, their weights and the result, forward and backward, beside both permutations and the sorting of chunks.
  const auto moves = is<Gather>([](const Gather& g) { return g.function == Gather::Function::permute; });
  const std::int64_t wide = kernels(lowered(mixtral("silu"), R"("precision": "bf16")"), moves);
  EXPECT_EQ(kernels(lowered(mixtral("silu"), R"("precision": "mxfp8")"), moves) - wide, 6 * kLayers);
}

TEST(MegatronDispatch, ATokenGoesToTheRanksThatHoldItsExperts) {
  EXPECT_DOUBLE_EQ(parts_of_token(8, 1, 8), 1);
  EXPECT_DOUBLE_EQ(parts_of_token(8, 8, 4), 4);
  // Two of four experts on two ranks: both on the other one in 2 · 1 of 4 · 3 cases.
  EXPECT_DOUBLE_EQ(parts_of_token(4, 2, 2), 2 * (1 - 2.0 / 12));
  // In turn eight of 128 experts never leave the sixteen of a rank. Six of 160 begin at every second of a rank's twenty, and leave it from
  // the sixteenth and the eighteenth.
  EXPECT_DOUBLE_EQ(parts_of_token_in_turn(128, 8, 8), 1);
  EXPECT_DOUBLE_EQ(parts_of_token_in_turn(160, 6, 8), 1.2);
  EXPECT_DOUBLE_EQ(parts_of_token_in_turn(8, 8, 4), 4);
}

TEST(MegatronDispatch, FlexSendsATokenOnceToEachRankAndToEachDomain) {
  const auto sent = [](const std::string& dispatcher, std::int64_t domain) {
    TargetDevice device = device_named("b200");
    device.fast_domain = domain;
    const StepProgram program =
        lowered(mixtral("silu"), R"("precision": "bf16", "ep": 4, "moe_dispatcher": ")" + dispatcher + "\"", 4, device);
    return static_cast<double>(moved(program, CollectiveKind::all_to_all, Group::expert));
  };
  // Dispatched, combined, and both again in backward, of 16 bits. All-to-all sends a copy for each of two experts, and their weights.
  const double once = 4.0 * kLayers * kTokens * kHidden * 2;
  EXPECT_DOUBLE_EQ(sent("alltoall", 8), 2 * once + 2.0 * kLayers * kTopK * kTokens * 2);
  // 2 experts of 8 on 4 ranks of 2: none of both on a rank in 6 · 5 of 8 · 7 cases; on a domain of 2 ranks in 4 · 3.
  // Beside each copy HybridEP's dispatch, and its gradient, send the fp32 weights of the domain's experts.
  const double weights = 2.0 * kLayers * kTokens * 8 * 4;
  EXPECT_NEAR(sent("hybridep", 8), (once + weights) * 4 * (1 - 30.0 / 56), 64 * kLayers);
  EXPECT_NEAR(sent("deepep", 8), once * 4 * (1 - 30.0 / 56), 64 * kLayers);
  EXPECT_NEAR(sent("deepep", 2), once * 2 * (1 - 12.0 / 56), 64 * kLayers);
}

TEST(MegatronDispatch, FlexIsRefusedWhereExpertsAreCut) {
  const std::string cut = R"("precision": "bf16", "ep": 2, "tp": 2, "etp": 2, "sequence_parallel": true, "moe_dispatcher": "deepep")";
  EXPECT_THROW(lowered(mixtral("silu"), cut, 4), Error);
}

/// Of kernels that cast to 4 bits: the last thing that they write, and how many they write.
std::function<bool(const Kernel&)> casts(Walk walk, std::size_t written, bool greatest = false) {
  return is<RowWise>([=](const RowWise& r) {
    if (r.function != RowWise::Function::quantize) return false;
    const Operand& last = r.operands[r.operands.size() - 1];
    return last.walk == walk && r.operands.size() - r.operands.reads() == written && (last.elements == 1) == greatest;
  });
}

// Four inputs and four gradients of a layer, and the attention's output again in backward, since the attention saves it itself: nine are
// measured, behind the transform of their columns, and cast by rows; all but the first cast of the attention's output by columns too.
// Transformer Engine 2.14 casts those eight by one kernel each; before 2.8 nothing is transformed, and norms measure what they write.
TEST(MegatronPrecision, FourBitsOfColumnsAreTransformed) {
  const auto in_container = [](const std::string& release) {
    return lowered(llama(), R"("precision": "nvfp4", "releases": {"nemo_container": ")" + release + "\"}");
  };
  const StepProgram apart = in_container("26.02"), together = in_container("26.04"), plain = in_container("25.09");  // 2.12, 2.14, 2.7
  EXPECT_EQ(kernels(apart, casts(Walk::transposed, 1, true)), 9 * kLayers);
  EXPECT_EQ(kernels(apart, casts(Walk::contiguous, 1)), 9 * kLayers);
  EXPECT_EQ(kernels(apart, casts(Walk::transposed, 1)), 8 * kLayers);
  EXPECT_EQ(kernels(together, casts(Walk::transposed, 1, true)), 9 * kLayers);
  EXPECT_EQ(kernels(together, casts(Walk::contiguous, 1)), 1 * kLayers);
  EXPECT_EQ(kernels(together, casts(Walk::transposed, 2)), 8 * kLayers);
  EXPECT_EQ(kernels(plain, casts(Walk::transposed, 1)) + kernels(plain, casts(Walk::transposed, 1, true)), 0);
}

TEST(MegatronPrecision, FourBitsMultiplyEverywhereAndMeasureWhatTheyCast) {
  const StepProgram program = lowered(llama(), R"("precision": "nvfp4", "releases": {"transformer_engine": "2.7"})");
  const auto scaled = [](Scaling scaling) { return is<Product>([scaling](const Product& p) { return p.scaling == scaling; }); };
  // Four linears of a layer, three products each; the head stays in 16 bits.
  EXPECT_EQ(kernels(program, scaled(Scaling::nvfp4)), 12 * kLayers);
  EXPECT_EQ(kernels(program, scaled(Scaling::none)), 3);
  // The greatest value of the two row-parallel inputs and of all four outputs' gradients; norms measure what they write. The attention's
  // output, which the attention itself saves, is measured and cast again in backward.
  const auto greatest = is<Reduction>([](const Reduction& r) { return r.axis == Reduction::Axis::all && r.reduced >= kTokens * kHidden; });
  const std::int64_t of_16_bits = kernels(lowered(llama(), R"("precision": "bf16")"), greatest);
  EXPECT_EQ(kernels(program, greatest) - of_16_bits, 7 * kLayers);
}

TEST(MegatronPrecision, AFourBitInputTakesNineSixteenthsOfAByte) {
  // What the backward keeps of the second product of the MLP: [tokens, 1024] at half a byte and one for 16.
  std::set<std::int64_t> births;
  for (const Instruction& instruction : lowered(llama(), R"("precision": "nvfp4")").step)
    if (instruction.kind == InstructionKind::alloc) births.insert(instruction.bytes);
  EXPECT_EQ(births.count(kTokens * (1024 / 2 + 1024 / 16)), 1U);
}

TEST(MegatronFsdpPrecision, WeightsOfEightBitsAreGatheredAsSuch) {
  const auto gathered = [](const std::string& precision) {
    const StepProgram program = lowered(llama(), R"("data_parallel": "megatron-fsdp", )" + precision, 2);
    return moved(program, CollectiveKind::all_gather, Group::data_shard);
  };
  // Linears of a layer, forward and backward: 4 h² and 3 · 1024 h elements lose a byte.
  const std::int64_t linears = kLayers * (4 * kHidden * kHidden + 3 * 1024 * kHidden);
  const std::int64_t saved = gathered(R"("precision": "bf16")") - gathered(R"("precision": "fp8", "fp8_params": true)");
  const auto expected = static_cast<double>(2 * linears);
  EXPECT_NEAR(static_cast<double>(saved), expected, 0.02 * expected) << "buckets are padded";
}

TEST(MegatronAdapters, ARankHoldsItsPartOfWhatIsCut) {
  const std::string text = R"({"framework": "megatron-core", "seq_len": 256, "micro_batch": 2, "precision": "bf16", "tp": 2,
                               "lora": {"r": 16, "target_modules": ["linear_qkv", "linear_proj"]}})";
  const Model model = llama();
  const Strategy strategy = resolve(parse_strategy(text, "strategy"), model, cluster_of("B200-SXM-180GB", 2));
  std::int64_t trained = 0;
  for (const PlacedParameter& placed : megatron_parameters(megatron_config(model, strategy, h100()), {0, kLayers, true, true}, 2))
    trained += placed.parameter->trainable ? placed.parameter->sizes.product() : 0;
  // Beside queries, keys and values: r/2 · h in, 3h/2 · r out; beside the projection: r · h/2 in, h/2 · r out.
  EXPECT_EQ(trained, kLayers * (8 * kHidden + 16 * 3 * kHidden / 2 + 16 * kHidden / 2 + 16 * kHidden / 2));
}

TEST(MegatronAdapters, TensorParallelRanksGatherNarrowColumns) {
  const auto gathered = [](const std::string& adapters) {
    return moved(lowered(llama(), R"("precision": "bf16", "tp": 2)" + adapters, 2), CollectiveKind::all_gather, Group::tensor);
  };
  // The narrow product of r columns beside queries, keys and values, the wide one of h beside the projection, of 16 bits, forward.
  const std::int64_t with = gathered(R"(, "lora": {"r": 16, "target_modules": ["linear_qkv", "linear_proj"]})");
  EXPECT_EQ(with - gathered(""), kLayers * kTokens * (16 + kHidden) * 2);
}

// The embedding is frozen, so the first checkpoint's input would need no gradient and no checkpoint would run again: Megatron-Bridge makes
// it need one (peft/recompute.py). Whatever is checkpointed runs forward twice, and every layer has a backward.
TEST(MegatronAdapters, CheckpointedLayersAreRunAgain) {
  const auto attention = [](Attention::Part part) { return is<Attention>([part](const Attention& work) { return work.part == part; }); };
  const std::pair<const char*, std::int64_t> settings[] = {{R"("full-block-2-of-4-layers", "precision": "fp8")", 2},
                                                           {R"("full-block-2-of-4-layers", "precision": "bf16")", 2},
                                                           {R"("full", "precision": "bf16")", kLayers}};
  for (const auto& [recompute, again] : settings) {
    const StepProgram program =
        lowered(llama(), R"("lora": {"r": 8, "target_modules": ["linear_qkv"]}, "recompute": )" + std::string(recompute));
    EXPECT_EQ(kernels(program, attention(Attention::Part::forward)), kLayers + again) << recompute;
    EXPECT_EQ(kernels(program, attention(Attention::Part::backward)), kLayers) << recompute;
  }
}

TEST(MegatronOffload, WhatLeavesComesBack) {
  const StepProgram program = lowered(llama(), R"("precision": "bf16", "offload": "activations", "offload_layers": 2)");
  const std::int64_t out = copied(program, Copy::Direction::device_to_host);
  EXPECT_EQ(out, copied(program, Copy::Direction::host_to_device));
  // Of each of two layers in 16 bits: both norms' inputs and outputs 4h, queries, keys and values 3h, their result twice (the attention's
  // and the projection's) 2h, the activation's input and output 3 · 1024; one statistic per norm, the softmax's per head, the generator's
  // state.
  const std::int64_t layer = kTokens * (2 * (9 * kHidden + 3 * 1024) + 2 * 4 + 8 * 4) + 16;
  EXPECT_EQ(out, 2 * layer);
  // Meanwhile it lies in pinned memory, in blocks of powers of two: at least what left, and less than twice that.
  EXPECT_GE(program.host_pinned.count, out);
  EXPECT_LT(program.host_pinned.count, 2 * out);
}

TEST(MegatronOffload, StagesAndRecomputationAreErrors) {
  EXPECT_THROW(lowered(llama(), R"("precision": "bf16", "offload": "activations", "recompute": "full")"), Error);
  EXPECT_THROW(lowered(llama(), R"("precision": "bf16", "offload": "activations", "pp": 2)", 2), Error);
}

/// Bytes of parameters that are alive behind the first step.
std::int64_t parameter_bytes(const StepProgram& program) {
  std::map<std::uint32_t, std::int64_t> alive;
  for (const auto* part : {&program.init, &program.first_step}) {
    for (const Instruction& instruction : *part) {
      if (instruction.kind == InstructionKind::alloc && instruction.category == Category::parameter)
        alive[instruction.id] = instruction.bytes;
      if (instruction.kind == InstructionKind::free) alive.erase(instruction.id);
    }
  }
  std::int64_t bytes = 0;
  for (const auto& [tensor, size] : alive) bytes += size;
  return bytes;
}

// Four layers of 512 · 1536 + 512 · 512 + 512 · 2048 + 1024 · 512 weights. As bf16 with two copies in mxfp8 they take 2 + 2 · 33/32 bytes
// each, as MXFP8Tensors the copies alone; what ranks gather is bf16 either way, through the gradients' buffer
// (reuse_grad_buf_for_mxfp8_param_ag).
TEST(MegatronRecipes, PrimaryWeightsInMxfp8HaveNoSixteenBitsOfTheirOwn) {
  constexpr std::int64_t kWeights = 4 * (512 * 1536 + 512 * 512 + 512 * 2048 + 1024 * 512);
  const std::string recipe = R"("precision": "mxfp8", "data_parallel": "megatron-distopt", "fp8_params": )";
  const StepProgram copies = lowered(llama(), recipe + "false", 2), primary = lowered(llama(), recipe + "true", 2);
  EXPECT_NEAR(static_cast<double>(parameter_bytes(copies) - parameter_bytes(primary)), 2.0 * kWeights, 0.01 * kWeights);
  const std::int64_t gathered = moved(primary, CollectiveKind::all_gather, Group::data_shard);
  EXPECT_NEAR(static_cast<double>(gathered), static_cast<double>(moved(copies, CollectiveKind::all_gather, Group::data_shard)),
              0.01 * static_cast<double>(gathered));
}

// ParallelLinearAdapter beside grouped experts is one for all of them (share_expert_adapters): rank 8 beside 512 → 2 · 512 and 512 → 512.
TEST(MegatronRecipes, ExpertsOfARankShareAnAdapter) {
  const Model model = mixtral("silu");
  const auto trained = [&](const std::string& more) {
    const std::string text = R"({"framework": "megatron-core", "seq_len": 256, "micro_batch": 2, "optimizer": "adamw",
                                 "lora": {"r": 8, "target_modules": ["linear_fc1", "linear_fc2"]}, )" +
                             more + "}";
    const Strategy strategy = resolve(parse_strategy(text, "strategy"), model, cluster_of("B200-SXM-180GB", 1));
    std::int64_t elements = 0;
    for (const PlacedParameter& each : megatron_parameters(megatron_config(model, strategy, h100()), {0, kLayers, true, true}, 1))
      elements += each.parameter->trainable ? each.parameter->sizes.product() : 0;
    return elements;
  };
  constexpr std::int64_t kOfOne = 8 * (kHidden + 2 * kInner) + 8 * (kInner + kHidden);
  EXPECT_EQ(trained(R"("moe_grouped_gemm": true)"), kLayers * kOfOne);
  EXPECT_EQ(trained(R"("moe_grouped_gemm": false)"), kLayers * kExperts * kOfOne) << "an MLP per expert has adapters of its own";
}

}  // namespace
}  // namespace plimsoll::program
