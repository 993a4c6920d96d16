// What Megatron's launchers overlap: gathered weights of model chunks, exchanges of experts, gradients left to the end of a schedule; and
// expert MLPs whose kernels are fused, or run one expert after another.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

#include "devices.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "program/lower.hpp"

namespace plimsoll::program {
namespace {

constexpr std::int64_t kHidden = 512, kTokens = 2 * 256, kLayers = 4, kExperts = 8, kTopK = 2, kInner = 512, kVocabulary = 1024;

Model llama() {
  return parse_model(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 1024, "hidden_size": 512,
                         "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 1024, "max_position_embeddings": 256,
                         "num_hidden_layers": 4, "tie_word_embeddings": false})",
                     "llama", "llama");
}

Model mixtral(const std::string& activation = "silu") {
  return parse_model(R"({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 1024, "hidden_size": 512,
                         "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 512, "num_local_experts": 8,
                         "num_experts_per_tok": 2, "max_position_embeddings": 256, "num_hidden_layers": 4, "hidden_act": ")" +
                         activation + "\"}",
                     "mixtral", "mixtral");
}

StepProgram lowered(const Model& model, const std::string& more, int gpus, int rank = 0) {
  const std::string text = R"({"framework": "megatron-core", "seq_len": 256, "micro_batch": 2, "optimizer": "adamw", )" + more + "}";
  const Strategy strategy = resolve(parse_strategy(text, "strategy"), model, cluster_of("B200-SXM-180GB", gpus));
  return lower_megatron(on_h100(model, strategy), {.pipeline = rank, .every_micro_batch = true});
}

using Counts = std::function<bool(const StepProgram&, const Instruction&)>;

Counts collective(CollectiveKind kind, Group group) {
  return [=](const StepProgram& program, const Instruction& instruction) {
    if (instruction.kind != InstructionKind::collective) return false;
    const Collective& each = program.collectives[instruction.id];
    return each.kind == kind && each.group == group;
  };
}

template <class Work>
Counts kernel(std::function<bool(const Work&)> counts) {
  return [counts](const StepProgram& program, const Instruction& instruction) {
    if (instruction.kind != InstructionKind::kernel) return false;
    const Work* work = std::get_if<Work>(&program.kernels[instruction.id].work);
    return work != nullptr && counts(*work);
  };
}

/// Instructions of the steady step, up to the first that `ends`.
std::int64_t count(const StepProgram& program, const Counts& counts, const Counts& ends = {}) {
  std::int64_t found = 0;
  for (const Instruction& instruction : program.step) {
    if (ends && ends(program, instruction)) break;
    found += counts(program, instruction) ? 1 : 0;
  }
  return found;
}

const auto kAnyProduct = kernel<Product>([](const Product&) { return true; });

// ---- model chunks ------------------------------------------------------------------------------------------------------

// param_sync_func: the weights of both chunks are under way before the first product; else each chunk gathers its own when it comes to it.
TEST(MegatronChunks, AlignedGathersStartWithTheStep) {
  const std::string run = R"("precision": "bf16", "data_parallel": "megatron-distopt", "pp": 2, "vp": 2, "global_batch": 16,
                             "overlap_grad_reduce": true, "overlap_param_gather": true)";
  const Counts gathers = collective(CollectiveKind::all_gather, Group::data_shard);
  const StepProgram apart = lowered(llama(), run, 4, 1), aligned = lowered(llama(), run + R"(, "align_param_gather": true)", 4, 1);
  EXPECT_EQ(count(aligned, gathers), 2);  // one bucket a chunk behind the first rank
  EXPECT_EQ(count(apart, gathers), 2);
  EXPECT_EQ(count(aligned, gathers, kAnyProduct), 2);
  EXPECT_EQ(count(apart, gathers, kAnyProduct), 1);
}

TEST(MegatronChunks, LaunchersAlignTheirGathersAndTakeBucketsOf128MiElements) {
  const auto resolved = [](const std::string& framework, const std::string& more) {
    const std::string text =
        R"({"framework": ")" + framework + R"(", "precision": "bf16", "seq_len": 256, "micro_batch": 2, "pp": 2, )" + more + "}";
    return resolve(parse_strategy(text, "strategy"), llama(), cluster_of("B200-SXM-180GB", 4)).megatron;
  };
  for (const char* launcher : {"nemo", "megatron-bridge"}) {
    EXPECT_TRUE(*resolved(launcher, R"("vp": 2, "global_batch": 16)").align_param_gather) << launcher;
    EXPECT_FALSE(*resolved(launcher, R"("global_batch": 16)").align_param_gather) << launcher;
    EXPECT_EQ(resolved(launcher, R"("vp": 2, "global_batch": 16)").ddp_bucket_size, std::int64_t{128} << 20) << launcher;
  }
  EXPECT_FALSE(*resolved("megatron-lm", R"("vp": 2, "global_batch": 16)").align_param_gather);
  EXPECT_EQ(resolved("megatron-lm", R"("vp": 2, "global_batch": 16)").ddp_bucket_size, 0);
}

// start_grad_sync asks of every bucket whether its norm is no number, then whether it is infinite, and waits for both answers. Buckets of
// 64 elements hold one parameter each: embedding, head and last norm, and of a layer two norms and four products.
TEST(MegatronGradients, CheckedOnesAreAwaitedBeforeEveryReduction) {
  const std::string run =
      R"("precision": "bf16", "data_parallel": "megatron-distopt", "global_batch": 4, "overlap_grad_reduce": true, "ddp_bucket_size": 64)";
  const Counts reductions = collective(CollectiveKind::reduce_scatter, Group::data_shard);
  const Counts waits = [](const StepProgram&, const Instruction& instruction) { return instruction.kind == InstructionKind::synchronize; };
  const StepProgram plain = lowered(llama(), run, 2), checked = lowered(llama(), run + R"(, "check_for_nan_in_grad": true)", 2);
  EXPECT_EQ(count(plain, reductions), 3 + 6 * kLayers);
  EXPECT_EQ(count(checked, reductions), 3 + 6 * kLayers);
  EXPECT_EQ(count(checked, waits) - count(plain, waits), 2 * (3 + 6 * kLayers));
}

/// A gradient of the output layer's weight, 1,024 x 512 from all tokens of a micro-batch.
const auto kHeadGradient =
    kernel<Product>([](const Product& p) { return p.accumulates && p.m == kHidden && p.n == kVocabulary && p.k == kTokens; });

TEST(MegatronChunks, DeferredGradientsOfTheHeadComeLast) {
  const std::string run = R"("precision": "bf16", "data_parallel": "megatron-distopt", "pp": 2, "global_batch": 16, "dp": 2)";
  const Counts last = kernel<Attention>([](const Attention& a) { return a.part == Attention::Part::backward; });
  const auto behind_attention = [&](const StepProgram& program) {
    std::int64_t behind = 0;
    for (const Instruction& instruction : program.step) {
      if (last(program, instruction)) behind = 0;
      behind += kHeadGradient(program, instruction) ? 1 : 0;
    }
    return behind;
  };
  const auto deferred = [&](const char* limit) {
    return lowered(llama(), run + R"(, "defer_embedding_wgrad_compute": true, "wgrad_deferral_limit": )" + limit, 4, 1);
  };
  const StepProgram at_once = lowered(llama(), run, 4, 1);
  EXPECT_EQ(count(at_once, kHeadGradient), 4);  // 16 sequences over 2 replicas, 2 at a time
  EXPECT_EQ(behind_attention(at_once), 0);
  EXPECT_EQ(count(deferred("22"), kHeadGradient), 4);
  EXPECT_EQ(behind_attention(deferred("22")), 4);
  EXPECT_EQ(count(deferred("3"), kHeadGradient), 4);
  EXPECT_EQ(behind_attention(deferred("3")), 3);
}

TEST(MegatronChunks, WhatMegatronRaisesOnIsAnError) {
  const std::string bf16 = R"("precision": "bf16", )";
  for (const char* more : {R"("defer_embedding_wgrad_compute": true)",
                           R"("pp": 2, "defer_embedding_wgrad_compute": true, "gradient_accumulation_fusion": false)",
                           R"("delay_wgrad_compute": true, "ep": 2)", R"("moe_a2a_overlap": true)",
                           R"("moe_a2a_overlap": true, "ep": 2, "recompute": "full")", R"("moe_a2a_overlap": true, "ep": 2, "pp": 2)"})
    EXPECT_THROW(lowered(mixtral(), bf16 + more, 4), Error) << more;
}

// ---- experts -----------------------------------------------------------------------------------------------------------

// Four exchanges a layer forward (tokens, their weights and back; of the weights' gradients as many), all beside the compute stream.
TEST(MegatronExchanges, OverlappedOnesHaveAStreamAndAreAwaitedOneLater) {
  constexpr std::int64_t kMicroBatches = 3;
  const std::string run = R"("precision": "bf16", "ep": 2, "grad_accum": 3)";
  const Counts exchanges = collective(CollectiveKind::all_to_all, Group::expert);
  const auto beside = [&](const StepProgram& program) {
    return count(program, [&](const StepProgram& p, const Instruction& i) { return exchanges(p, i) && i.stream != kComputeStream; });
  };
  const StepProgram awaited = lowered(mixtral(), run, 2), overlapped = lowered(mixtral(), run + R"(, "moe_a2a_overlap": true)", 2);
  const std::int64_t all = count(awaited, exchanges);
  EXPECT_EQ(all, 3 * 2 * kLayers * kMicroBatches);
  EXPECT_EQ(beside(awaited), 0);
  EXPECT_EQ(beside(overlapped), all - 2 * 3 * kLayers);  // the first forward pass and the last backward pass run alone
  const auto waits = [](const StepProgram& program) {
    return count(program, [](const StepProgram&, const Instruction& i) {
      return i.kind == InstructionKind::wait_event && i.stream == kComputeStream;
    });
  };
  EXPECT_EQ(waits(overlapped) - waits(awaited), beside(overlapped));
}

// The gate and both quantizations of its rows and of their gradients are parts of products.
TEST(MegatronExperts, FusedOnesMultiplyTheSameWithoutKernelsBetween) {
  const std::string run = R"("precision": "mxfp8", "ep": 2, "moe_dispatcher": "hybridep")";
  const StepProgram apart = lowered(mixtral(), run, 2), fused = lowered(mixtral(), run + R"(, "moe_fused_mlp": true)", 2);
  const Counts grouped = kernel<Product>([](const Product& p) { return p.grouped; });
  EXPECT_EQ(count(apart, grouped), 6 * kLayers);
  EXPECT_EQ(count(fused, grouped), 6 * kLayers);
  const Counts quantizes = kernel<RowWise>([](const RowWise& r) { return r.function == RowWise::Function::quantize; });
  EXPECT_EQ(count(apart, quantizes) - count(fused, quantizes), 2 * kLayers);
  const Counts gates =
      kernel<Pointwise>([](const Pointwise& p) { return p.form == Pointwise::Form::fused && p.elements >= kTokens * kTopK * kInner; });
  EXPECT_EQ(count(apart, gates) - count(fused, gates), 2 * kLayers);
}

// general_grouped_gemm calls cuBLAS expert by expert: of each of its linears the host does two operators' work an expert forward (the
// product, what Python keeps) and three backward (two products), and in 8 bits one more either way (split_quantize makes each expert's tensor);
// where the kernels are fused, one either way for both linears. Halving the ranks' experts halves that.
TEST(MegatronExperts, TheHostWorksForEachExpert) {
  const auto operators = [](int ranks, const std::string& precision, const std::string& more = "") {
    const StepProgram program = lowered(
        mixtral(), R"("moe_dispatcher": "hybridep", "precision": ")" + precision + R"(", "ep": )" + std::to_string(ranks) + more, 8);
    std::int64_t pieces = 0;
    for (const Instruction& each : program.step)
      if (each.kind == InstructionKind::host && static_cast<HostWork>(each.id) == HostWork::operation) pieces += each.bytes;
    return pieces;
  };
  constexpr std::int64_t kFewer = kExperts / 2 - kExperts / 4, kLinears = 2;
  constexpr std::int64_t kCopies = kLayers * kLinears * kFewer;  // of what the optimizer updated, parameter by parameter
  EXPECT_EQ(operators(2, "bf16") - operators(4, "bf16"), kLayers * kLinears * (2 + 3) * kFewer + kCopies);
  EXPECT_EQ(operators(2, "mxfp8") - operators(4, "mxfp8"), kLayers * kLinears * (3 + 4) * kFewer + kCopies);
  const std::string fused = R"(, "moe_fused_mlp": true)";
  EXPECT_EQ(operators(2, "mxfp8", fused) - operators(4, "mxfp8", fused), kLayers * 2 * kFewer + kCopies);
}

// preprocess of the all-to-all dispatcher: a layer's tokens are counted by expert out of the map, and the counts of all ranks gathered (8 bytes each);
// DeepEP and HybridEP count by themselves, and a single rank gathers nothing.
TEST(MegatronExperts, TokensAreCountedBeforeAnAllToAll) {
  const auto of = [](const std::string& dispatcher, int ranks) {
    return lowered(mixtral(), R"("precision": "bf16", "moe_dispatcher": ")" + dispatcher + R"(", "ep": )" + std::to_string(ranks), 8);
  };
  const auto gathered = [](const StepProgram& program) {
    std::int64_t found = 0;
    for (const Instruction& each : program.step) {
      if (each.kind != InstructionKind::collective) continue;
      const Collective& collective = program.collectives[each.id];
      found += collective.kind == CollectiveKind::all_gather && collective.group == Group::expert && collective.type == DType::int64 &&
               collective.bytes == 8 * kExperts * 4;
    }
    return found;
  };
  const Counts counted = kernel<Reduction>([](const Reduction& r) { return r.outputs == kExperts && r.reduced == kTokens; });
  EXPECT_EQ(count(of("alltoall", 4), counted) - count(of("hybridep", 4), counted), kLayers);
  EXPECT_EQ(gathered(of("alltoall", 4)), kLayers);
  EXPECT_EQ(gathered(of("hybridep", 4)), 0);
  EXPECT_EQ(gathered(of("alltoall", 1)), 0);
}

TEST(MegatronExperts, WithoutGroupedProductsEachHasItsOwn) {
  const std::string run = R"("precision": "fp8", "moe.moe_expert_capacity_factor": 1.0, "moe.moe_pad_expert_input_to_capacity": true)";
  const StepProgram grouped = lowered(mixtral("gelu"), run, 1), apart = lowered(mixtral("gelu"), run + R"(, "moe_grouped_gemm": false)", 1);
  const Counts in_groups = kernel<Product>([](const Product& p) { return p.grouped; });
  EXPECT_EQ(count(grouped, in_groups), 6 * kLayers);
  EXPECT_EQ(count(apart, in_groups), 0);
  // Two linears an expert, three products each, one launch in place of those of eight experts.
  EXPECT_EQ(count(apart, kAnyProduct) - count(grouped, kAnyProduct), 6 * kLayers * (kExperts - 1));
}

// Transformer Engine's blocks take a row of a narrow norm with each of their four warps.
TEST(MegatronNorms, FourNarrowRowsShareABlock) {
  const Model model = parse_model(R"({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "vocab_size": 1024, "hidden_size": 2048,
                         "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 128, "intermediate_size": 1024,
                         "max_position_embeddings": 256, "num_hidden_layers": 1})",
                                  "qwen3", "qwen3");
  const StepProgram program = lowered(model, R"("precision": "bf16")", 1);
  const auto norms = [&](std::int64_t rows, std::int64_t columns) {
    return count(program, kernel<RowWise>([=](const RowWise& r) {
                   return r.function == RowWise::Function::rms_norm && r.rows == rows && r.columns == columns;
                 }));
  };
  EXPECT_EQ(norms(kTokens * 16 / 4, 4 * 128), 2);  // of queries and of keys
  EXPECT_EQ(norms(kTokens, 2048), 3);              // before attention, before the MLP, at the end
}

}  // namespace
}  // namespace plimsoll::program
