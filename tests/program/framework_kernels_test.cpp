// What the kernels of Megatron, TorchTitan and llm-foundry say of themselves: layouts, types, scaling, implementations.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "devices.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "program/kernels.hpp"
#include "program/lower.hpp"

namespace plimsoll::program {
namespace {

constexpr std::int64_t kHidden = 128, kVocabulary = 512, kLength = 64, kBatch = 2, kTokens = kBatch * kLength;
constexpr std::int64_t kHeads = 4, kKeyHeads = 2, kHeadDim = 32, kLayers = 2;

Model llama() {
  return parse_model(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512, "max_position_embeddings": 2048,
                         "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2,
                         "tie_word_embeddings": false, "num_hidden_layers": 2})",
                     "llama", "llama");
}

Strategy strategy_of(const Model& model, const std::string& text, int gpus) {
  return resolve(parse_strategy("{\"micro_batch\": 2, \"seq_len\": 64, \"optimizer\": \"adamw\", " + text + "}", "strategy"), model,
                 cluster_of("H100-SXM5-80GB", gpus));
}

StepProgram megatron(const std::string& more, int gpus = 1, const TargetDevice& device = h100(), const std::string& precision = "bf16") {
  const Model model = llama();
  const std::string text =
      R"("framework": "megatron-core", "data_parallel": "megatron-distopt", "layer_spec": "te", "precision": ")" + precision + "\"" + more;
  return lower_megatron({model, strategy_of(model, text, gpus), device});
}

/// The launches of a step of one kind of work, in order.
template <class Work>
std::vector<Work> launches(const StepProgram& program) {
  std::vector<Work> all;
  for (const Instruction& instruction : program.step) {
    if (instruction.kind != InstructionKind::kernel) continue;
    if (const auto* work = std::get_if<Work>(&program.kernels[instruction.id].work)) all.push_back(*work);
  }
  return all;
}

std::string layout(const Product& product) { return {product.transpose_a ? 'T' : 'N', product.transpose_b ? 'T' : 'N'}; }

/// How often each layout and each pair of types and scaling occurs.
std::map<std::string, int> layouts(const StepProgram& program) {
  std::map<std::string, int> count;
  for (const Product& product : launches<Product>(program)) ++count[std::string(name_of(product.a)) + " " + layout(product)];
  return count;
}

TEST(Kernels, ALinearLayersProductsReadWhatLiesInMemory) {
  // y = x · Wᵀ in BLAS's column-major terms: forward T N, the input's gradient N N, the weight's N T; m counts the width of the result.
  const LinearShape shape{.rows = 6, .in = 4, .out = 8};
  Tape tape{h100()};
  tape.record_into(Tape::Part::step);
  for (const LinearPass pass : {LinearPass::forward, LinearPass::input_gradient, LinearPass::weight_gradient})
    linear_product(tape, pass, shape, {.workspace = false});
  LinearShape turned = shape;
  turned.turned = true;
  for (const LinearPass pass : {LinearPass::forward, LinearPass::input_gradient, LinearPass::weight_gradient})
    linear_product(tape, pass, turned, {.workspace = false});
  const std::vector<Product> products = launches<Product>(tape.take());
  const std::vector<std::array<std::int64_t, 3>> sizes{{8, 6, 4}, {4, 6, 8}, {4, 8, 6}};
  const char* const plain[] = {"TN", "NN", "NT"};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(layout(products[i]), plain[i]);
    EXPECT_EQ(layout(products[i + 3]), "TN") << "of transposed copies";
    for (const Product& product : {products[i], products[i + 3]}) {
      EXPECT_EQ(product.m, sizes[i][0]);
      EXPECT_EQ(product.n, sizes[i][1]);
      EXPECT_EQ(product.k, sizes[i][2]);
    }
  }
}

TEST(MegatronKernels, ProductsOfTransformerEngineFollowTheRecipeAndTheDevice) {
  // Four linears a layer in three passes each, and the head's in 16 bits.
  const int linears = 4 * kLayers;
  EXPECT_EQ(layouts(megatron("")),
            (std::map<std::string, int>{{"bf16 TN", linears + 1}, {"bf16 NN", linears + 1}, {"bf16 NT", linears + 1}}));
  const std::string recipe = R"(, "fp8_recipe": "tensorwise")";
  EXPECT_EQ(layouts(megatron(recipe, 1, h100(), "fp8")),
            (std::map<std::string, int>{{"fp8 TN", 3 * linears}, {"bf16 TN", 1}, {"bf16 NN", 1}, {"bf16 NT", 1}}))
      << "Hopper multiplies 8 bits in one layout alone";
  const StepProgram blackwell = megatron(recipe, 1, device_named("b200"), "fp8");
  EXPECT_EQ(layouts(blackwell).at("fp8 NT"), linears);
  for (const Product& product : launches<Product>(blackwell))
    EXPECT_EQ(product.scaling, product.a == DType::fp8 ? Scaling::tensor : Scaling::none);
  const StepProgram blocks = megatron("", 1, device_named("b200"), "mxfp8");
  EXPECT_EQ(layouts(blocks).at("fp8 NT"), linears);
  EXPECT_TRUE(std::any_of(blocks.kernels.begin(), blocks.kernels.end(),
                          [](const Kernel& kernel) { return kernel.product() && kernel.product()->scaling == Scaling::mxfp8; }));
}

TEST(MegatronKernels, WeightsGradientsAreAddedInFp32WhereProductsDoSo) {
  for (const bool fused : {false, true}) {
    int added = 0;
    for (const Product& product :
         launches<Product>(megatron(fused ? R"(, "gradient_accumulation_fusion": true)" : R"(, "gradient_accumulation_fusion": false)"))) {
      added += product.accumulates;
      EXPECT_EQ(product.result, product.accumulates ? DType::fp32 : DType::bf16);
      EXPECT_TRUE(!product.accumulates || layout(product) == "NT");
    }
    EXPECT_EQ(added, fused ? 4 * kLayers + 1 : 0);
  }
}

TEST(MegatronKernels, AttentionIsTheLibrarysThatTransformerEngineTakes) {
  const std::pair<const char*, AttentionLibrary> devices[] = {{"h100-sxm", AttentionLibrary::cudnn},
                                                              {"b200", AttentionLibrary::cudnn},
                                                              {"a100-80gb-sxm", AttentionLibrary::flash2},
                                                              {"mi300x", AttentionLibrary::composable_kernel}};
  for (const auto& [device, library] : devices) {
    const std::vector<Attention> attention = launches<Attention>(megatron("", 1, device_named(device)));
    ASSERT_EQ(attention.size(), 2U * kLayers);
    for (const Attention& each : attention) {
      EXPECT_EQ(each.library, library);
      EXPECT_TRUE(each.causal);
      EXPECT_EQ(each.heads, kHeads);
      EXPECT_EQ(each.kv_heads, kKeyHeads);
      EXPECT_EQ(each.head_dim, kHeadDim);
      EXPECT_EQ(each.queries, kLength);
    }
  }
  EXPECT_EQ(launches<Attention>(megatron(R"(, "attention": "flash")")).front().library, AttentionLibrary::flash2) << "asked for by name";
}

TEST(MegatronKernels, ARingOfKeysDoesTheWorkOfWholeSequences) {
  // Two ranks hold half the sequence each: own keys under the diagonal, and those of the other rank met by half of the queries.
  const auto flops = [](const StepProgram& program) {
    double sum = 0;
    for (const Attention& each : launches<Attention>(program)) sum += Kernel{each}.flops();
    return sum;
  };
  const StepProgram ring = megatron(R"(, "cp": 2, "cp_comm_type": "p2p")", 2), whole = megatron("");
  EXPECT_DOUBLE_EQ(2 * flops(ring), flops(whole));
  const std::vector<Attention> attention = launches<Attention>(ring);
  EXPECT_TRUE(attention[0].causal);
  EXPECT_FALSE(attention[1].causal);
  EXPECT_EQ(attention[1].queries * 2, attention[1].keys);
}

// AttnFuncWithCPAndQKVOA2A: each rank attends with half of the heads over the whole sequence. Queries, keys and values go there and the
// result comes back, their gradients the other way: eight exchanges a layer, in 8 bits of half the bytes.
TEST(MegatronKernels, HeadsAreExchangedInTheBitsOfTheAttention) {
  const auto exchanges = [](const StepProgram& program) {
    std::vector<Collective> found;
    for (const Instruction& each : program.step)
      if (each.kind == InstructionKind::collective && program.collectives[each.id].kind == CollectiveKind::all_to_all)
        found.push_back(program.collectives[each.id]);
    return found;
  };
  const std::string split = R"(, "cp": 2, "cp_comm_type": "a2a")";
  const StepProgram narrow = megatron(split + R"(, "fp8_attention": true)", 2, h100(), "fp8"), wide = megatron(split, 2, h100(), "fp8");
  const std::vector<Collective> bytes = exchanges(narrow), words = exchanges(wide);
  ASSERT_EQ(bytes.size(), 8U * kLayers);
  ASSERT_EQ(words.size(), bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(bytes[i].type, DType::fp8);
    EXPECT_EQ(2 * bytes[i].bytes, words[i].bytes) << i;
  }
  for (const Attention& each : launches<Attention>(narrow)) {
    EXPECT_EQ(each.type, DType::fp8);
    EXPECT_EQ(each.heads, kHeads / 2);
    EXPECT_EQ(each.queries, kLength);
  }
}

/// Whether collectives of a kind stand behind the beginning of the optimizer's phase (true) or before it (false), one by one.
std::vector<bool> behind_the_passes(const StepProgram& program, CollectiveKind kind) {
  std::vector<bool> behind;
  bool optimizer = false;
  for (const Instruction& instruction : program.step) {
    if (instruction.kind == InstructionKind::phase) optimizer = instruction.id == static_cast<std::uint32_t>(Phase::optimizer);
    if (instruction.kind == InstructionKind::collective && program.collectives[instruction.id].kind == kind) behind.push_back(optimizer);
  }
  return behind;
}

TEST(MegatronStreams, OverlappedGathersOfParametersStandInTheForwardPass) {
  const std::string overlaps = R"(, "overlap_grad_reduce": true, "ddp_bucket_size": 100000, "overlap_param_gather": )";
  const std::vector<bool> at_once = behind_the_passes(megatron(overlaps + "false", 2), CollectiveKind::all_gather),
                          ahead = behind_the_passes(megatron(overlaps + "true", 2), CollectiveKind::all_gather);
  ASSERT_GT(at_once.size(), 1U) << "several buckets";
  EXPECT_EQ(ahead.size(), at_once.size());
  EXPECT_EQ(std::count(at_once.begin(), at_once.end(), true), static_cast<std::ptrdiff_t>(at_once.size()));
  EXPECT_EQ(std::count(ahead.begin(), ahead.end(), true), 0);
}

std::int64_t waits_of_the_host(const StepProgram& program) {
  return std::count_if(program.step.begin(), program.step.end(),
                       [](const Instruction& instruction) { return instruction.kind == InstructionKind::synchronize; });
}

TEST(MegatronHost, WaitsForTheLossTheNormAndTheNumbersOfTokens) {
  // One micro-batch: its loss is looked at, and the gradients' norm.
  EXPECT_EQ(waits_of_the_host(megatron("")), 2);
  const Model model =
      parse_model(R"({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 512, "hidden_size": 128,
                                      "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2,
                                      "max_position_embeddings": 2048, "num_local_experts": 4, "num_experts_per_tok": 2,
                                      "tie_word_embeddings": false, "num_hidden_layers": 2})",
                  "mixtral", "mixtral");
  const std::string text = R"("framework": "megatron-core", "precision": "bf16", "data_parallel": "megatron-distopt", "layer_spec": "te")";
  EXPECT_EQ(waits_of_the_host(lower_megatron(on_h100(model, strategy_of(model, text, 1)))), 2 + kLayers) << "tokens of every expert";
}

StepProgram compiled_titan(const std::string& more, int gpus) {
  const Model model = llama();
  const std::string text =
      R"("framework": "torchtitan", "framework_version": "2024-08", "data_parallel": "fsdp", "compile": "blocks", "recompute": "none")" +
      more;
  return lower_torchtitan(on_h100(model, strategy_of(model, text, gpus)));
}

TEST(TitanKernels, CompiledBlocksAttendOncePerContextRank) {
  const auto forwards = [](const StepProgram& program) {
    std::vector<Attention> all = launches<Attention>(program);
    all.erase(std::remove_if(all.begin(), all.end(), [](const Attention& each) { return each.part != Attention::Part::forward; }),
              all.end());
    return all;
  };
  EXPECT_EQ(forwards(compiled_titan("", 2)).size(), static_cast<std::size_t>(kLayers));
  const std::vector<Attention> ring = forwards(compiled_titan(R"(, "cp": 4)", 4));
  ASSERT_EQ(ring.size(), 4U * kLayers);
  double pairs = 0;
  for (const Attention& each : ring) pairs += each.pairs();
  EXPECT_DOUBLE_EQ(4 * pairs, kLayers * 0.5 * kLength * kLength) << "four ranks share the pairs under the diagonal";
}

// _op_sac_save_list: flash attention is kept; cuDNN's, which comes first on an H100 since 9 October 2025, is listed since 1 December. Two layers
// attend twice, or twice more in backward, compiled or not.
TEST(TitanKernels, SelectiveCheckpointsAttendAgainWhereTheirListLacksCudnn) {
  const auto forwards = [](const std::string& day, const std::string& compile) {
    const Model model = llama();
    const std::string text = R"("framework": "torchtitan", "data_parallel": "fsdp", "recompute": "selective-ac-op", "releases": {"torch": "2.9", "torchtitan": ")" +
                             day + R"("}, "compile": ")" + compile + "\"";
    std::vector<AttentionLibrary> libraries;
    for (const Attention& each : launches<Attention>(lower_torchtitan(on_h100(model, strategy_of(model, text, 2)))))
      if (each.part == Attention::Part::forward) libraries.push_back(each.library);
    return libraries;
  };
  using Libraries = std::vector<AttentionLibrary>;
  for (const char* compile : {"blocks", "false"}) {
    EXPECT_EQ(forwards("2025-10-08", compile), Libraries(kLayers, AttentionLibrary::flash2)) << compile;
    EXPECT_EQ(forwards("2025-10-09", compile), Libraries(2 * kLayers, AttentionLibrary::cudnn)) << compile;
    EXPECT_EQ(forwards("2025-12-01", compile), Libraries(kLayers, AttentionLibrary::cudnn)) << compile;
  }
}

TEST(TitanKernels, CompiledBlocksMultiplyIn8BitsWhatTheRecipeSays) {
  for (const auto& [recipe, scaling] : std::map<std::string, Scaling>{{"rowwise", Scaling::row}, {"tensorwise", Scaling::tensor}}) {
    int low = 0;
    for (const Product& product : launches<Product>(compiled_titan(R"(, "precision": "fp8", "fp8_recipe": ")" + recipe + "\"", 2))) {
      if (product.a != DType::fp8) continue;
      ++low;
      EXPECT_EQ(product.scaling, scaling);
      EXPECT_EQ(layout(product), "TN");
      EXPECT_EQ(product.result, DType::bf16);
    }
    EXPECT_GE(low, 3 * 7 * kLayers) << recipe << ": seven linears a layer in three passes, some of them run again";
  }
}

/// llm-foundry's MPT as a GPT-2 of its sizes.
Model small_mpt() {
  return parse_model(R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 512, "n_positions": 64,
                         "n_embd": 128, "n_head": 4, "activation_function": "gelu", "n_layer": 2, "attn_pdrop": 0,
                         "resid_pdrop": 0, "embd_pdrop": 0})",
                     "mpt", "mpt");
}

TEST(LlmFoundry, AStepIsThreeForwardPassesOfItsProducts) {
  const Model model = small_mpt();
  for (const bool recomputed : {false, true}) {
    const std::string text = R"("framework": "llm-foundry", "precision": "bf16", "data_parallel": "fsdp", "recompute": )" +
                             std::string(recomputed ? R"("full")" : R"("none")");
    const StepProgram program = lower_llm_foundry(on_h100(model, strategy_of(model, text, 8)));
    // Forward: 2 · tokens · 12h² a layer, 2 · tokens · h · V for the head. Backward twice as much. A recomputation stops at the last tensor
    // that is saved, in front of the last of a layer's products: 8h² of the 12h².
    double flops = 0;
    for (const Product& product : launches<Product>(program)) {
      flops += Kernel{product}.flops();
      EXPECT_EQ(product.a, DType::bf16);
    }
    const double layers = 2.0 * kTokens * 12 * kHidden * kHidden * kLayers, head = 2.0 * kTokens * kHidden * kVocabulary;
    EXPECT_DOUBLE_EQ(flops, 3 * (layers + head) + (recomputed ? layers * 8 / 12 : 0));
    const std::vector<Attention> attention = launches<Attention>(program);
    EXPECT_EQ(attention.front().library, AttentionLibrary::flash2);
    EXPECT_EQ(
        std::count_if(attention.begin(), attention.end(), [](const Attention& each) { return each.part == Attention::Part::forward; }),
        (recomputed ? 2 : 1) * kLayers);
  }
}

// Before 2.1 a checkpoint that is not reentrant runs to its end: all 12h² of a layer's products again.
TEST(LlmFoundry, BeforeTorch21ARecomputationRunsToItsEnd) {
  const Model model = small_mpt();
  const auto flops = [&](const std::string& torch) {
    const std::string text = R"("framework": "llm-foundry", "precision": "bf16", "data_parallel": "fsdp", "recompute": "full", "torch": ")" + torch + "\"";
    double sum = 0;
    for (const Product& product : launches<Product>(lower_llm_foundry(on_h100(model, strategy_of(model, text, 8)))))
      sum += Kernel{product}.flops();
    return sum;
  };
  const double last = 2.0 * kTokens * 4 * kHidden * kHidden * kLayers;
  EXPECT_DOUBLE_EQ(flops("1.13.1") - flops("2.1.0"), last);
  EXPECT_DOUBLE_EQ(flops("2.0.1") - flops("2.1.0"), last);
}

// attn_impl: triton was the recipes' until v0.7 of March 2024.
TEST(LlmFoundry, EarlyReleasesTakeTriton) {
  const Model model = small_mpt();
  for (const auto& [release, library] : std::map<std::string, AttentionLibrary>{{"llm-foundry 2023-10", AttentionLibrary::triton},
                                                                                {"torch 1.13.1, llm-foundry v0.0.4", AttentionLibrary::triton},
                                                                                {"llm-foundry 2024-01", AttentionLibrary::triton},
                                                                                {"llm-foundry 2024-03", AttentionLibrary::flash2},
                                                                                {"llm-foundry v0.6.0", AttentionLibrary::triton},
                                                                                {"llm-foundry v0.7.0", AttentionLibrary::flash2},
                                                                                {"llm-foundry v0.22.0", AttentionLibrary::flash2},
                                                                                {"llm-foundry 0.22", AttentionLibrary::flash2},
                                                                                {"llm-foundry 0.4", AttentionLibrary::triton}}) {
    const std::string text = R"("framework": "llm-foundry", "precision": "bf16", "data_parallel": "fsdp", "framework_version": ")" + release + "\"";
    EXPECT_EQ(launches<Attention>(lower_llm_foundry(on_h100(model, strategy_of(model, text, 8)))).front().library, library) << release;
  }
}

// With ALiBi and without biases: the same products as with learned positions, no position table, no bias to add up.
TEST(LlmFoundry, AlibiHasTheSameProductsAndNoPositions) {
  const Model alibi = parse_model(R"({"model_type": "mpt", "architectures": ["MPTForCausalLM"], "vocab_size": 512, "max_seq_len": 64,
                                      "d_model": 128, "n_heads": 4, "n_layers": 2, "no_bias": true, "attn_config": {"alibi": true}})",
                                  "mpt", "mpt");
  const auto flops = [](const Model& model) {
    double sum = 0;
    for (const Product& product : launches<Product>(lower_llm_foundry(
             on_h100(model, strategy_of(model, R"("framework": "llm-foundry", "precision": "bf16", "data_parallel": "fsdp")", 8)))))
      sum += Kernel{product}.flops();
    return sum;
  };
  EXPECT_DOUBLE_EQ(flops(alibi), flops(small_mpt()));
  const Model learned = small_mpt();
  constexpr std::int64_t kPositions = 64, kBiases = 3 + 1 + 4 + 1 + 2;  // widths, of a layer: qkv, projection, MLP, norms
  EXPECT_EQ(learned.parameters() - alibi.parameters(), (kPositions + kLayers * kBiases + 1) * kHidden);
}

// Composer's two training metrics take a log_softmax of the logits each, behind backward; the loss itself is flash-attention's.
TEST(LlmFoundry, TrainingMetricsReadTheLogitsAgain) {
  const Model model = small_mpt();
  const StepProgram program = lower_llm_foundry(
      on_h100(model, strategy_of(model, R"("framework": "llm-foundry", "precision": "bf16", "data_parallel": "fsdp")", 8)));
  int softmaxes = 0;
  for (const RowWise& each : launches<RowWise>(program)) softmaxes += each.function == RowWise::Function::log_softmax;
  EXPECT_EQ(softmaxes, 2);
}

// PyTorch 1 knows flat parameters alone and fills gradients with zeros: those of the three units (two layers, the root) outlive the step,
// and what backward reduces is added to them.
TEST(LlmFoundry, BeforeTorch2GradientsStay) {
  const Model model = small_mpt();
  const auto gradients_freed = [&](const std::string& torch) {
    const std::string text = R"("framework": "llm-foundry", "precision": "bf16", "data_parallel": "fsdp", "torch": ")" + torch + "\"";
    const Strategy strategy = strategy_of(model, text, 8);
    EXPECT_EQ(strategy.fsdp.use_orig_params, torch != "1.13.1");
    const StepProgram program = lower_llm_foundry(on_h100(model, strategy));
    std::map<std::uint32_t, bool> born;
    int freed = 0;
    for (const Instruction& instruction : program.step) {
      if (instruction.kind == InstructionKind::alloc && instruction.category == Category::gradient) born[instruction.id] = true;
      if (instruction.kind == InstructionKind::free) freed += born.erase(instruction.id) > 0;
    }
    EXPECT_TRUE(born.empty()) << torch;  // a steady step leaves as much as it found
    return freed;
  };
  EXPECT_GT(gradients_freed("1.13.1"), 0);
  EXPECT_GT(gradients_freed("2.1.0"), 0);
}

}  // namespace
}  // namespace plimsoll::program
