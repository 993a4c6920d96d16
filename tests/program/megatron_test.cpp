// Megatron-core's lowering, by what its papers and its code say must be alive.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "devices.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "program/lower.hpp"
#include "programs.hpp"

namespace plimsoll::program {
namespace {

constexpr std::int64_t kHidden = 512, kLength = 256, kBatch = 2, kHeads = 8;

/// A GPT of `layers` layers: learned positions, biases, GELU, dropout.
Model gpt(int layers) {
  return parse_model(R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 1024, "n_positions": 256,
                         "n_embd": 512, "n_head": 8, "activation_function": "gelu", "n_layer": )" +
                         std::to_string(layers) + "}",
                     "gpt", "gpt");
}

Strategy resolved(const Model& model, const std::string& more, int gpus, const std::string& layers = R"("local", "attention": "sdpa")") {
  const std::string text = R"({"framework": "megatron-core", "seq_len": 256, "micro_batch": 2, "precision": "bf16",
                               "loss": "vocab-parallel cross entropy", "optimizer": "adamw", "layer_spec": )" +
                           layers + more + "}";
  return resolve(parse_strategy(text, "strategy"), model, cluster_of("H100-SXM5-80GB", gpus));
}

StepProgram lowered(int layers, const std::string& more, int gpus, int rank = 0) {
  const Model model = gpt(layers);
  return lower_megatron(on_h100(model, resolved(model, more, gpus)), {rank});
}

/// Bytes alive after every instruction of a part; `start` lives on from the parts before.
struct Alive {
  std::int64_t peak = 0, end = 0, saved = 0;  ///< saved: of the category activation when the first backward begins
};

Alive played(const StepProgram& program) {
  std::map<TensorId, const Instruction*> live;
  Alive result;
  std::int64_t alive = 0;
  for (const auto* part : {&program.init, &program.first_step, &program.step}) {
    result = {};
    for (const Instruction& instruction : *part) {
      if (instruction.kind == InstructionKind::alloc) {
        live[instruction.id] = &instruction;
        alive += instruction.bytes;
      } else if (instruction.kind == InstructionKind::free) {
        alive -= live.at(instruction.id)->bytes;
        live.erase(instruction.id);
      } else if (instruction.kind == InstructionKind::phase && instruction.id == static_cast<std::uint32_t>(Phase::backward) &&
                 result.saved == 0) {
        for (const auto& [id, birth] : live) result.saved += birth->category == Category::activation ? birth->bytes : 0;
      }
      result.peak = std::max(result.peak, alive);
    }
    result.end = alive;
  }
  return result;
}

/// What one more layer saves.
std::int64_t saved_per_layer(const std::string& more, int gpus) {
  return played(lowered(3, more, gpus)).saved - played(lowered(2, more, gpus)).saved;
}

/// Calls of modules in the forward pass that one more layer makes.
std::int64_t modules_per_layer(const std::string& layers) {
  const auto calls = [&](int count) {
    const Model model = gpt(count);
    const StepProgram program = lower_megatron(on_h100(model, resolved(model, R"(, "data_parallel": "ddp")", 1, layers)), {0});
    std::int64_t modules = 0;
    for (const Instruction& each : program.step) {
      if (each.kind == InstructionKind::phase && each.id == static_cast<std::uint32_t>(Phase::backward)) break;
      if (each.kind == InstructionKind::host && each.id == static_cast<std::uint32_t>(HostWork::module)) modules += each.bytes;
    }
    return modules;
  };
  return calls(3) - calls(2);
}

// megatron-core 0.16.1, gpt_layer_specs.py: TransformerLayer calls its norm, SelfAttention (linear_qkv, core attention, linear_proj), its second norm
// and MLP (linear_fc1, linear_fc2): 10 with PyTorch's attention as the core. DotProductAttention calls its FusedScaleMaskSoftmax and its Dropout as
// well: 12. Over Transformer Engine norms are part of the linears behind them, and its core attention calls the kernel's own module: 9.
// Placeholders (IdentityOp) do nothing.
TEST(Megatron, ALayerCallsItsModules) {
  EXPECT_EQ(modules_per_layer(R"("local", "attention": "sdpa")"), 10);
  EXPECT_EQ(modules_per_layer(R"("local", "attention": "unfused")"), 12);
  EXPECT_EQ(modules_per_layer(R"("te", "attention": "te")"), 9);
}

TEST(Megatron, ALayerSavesWhatKorthikantiCounts) {
  // sbh·34: with flash attention (no a·s² term) 32h of 16-bit tensors and two dropout masks of h; layer norm adds two fp32 statistics per
  // token, twice, flash its log-sum-exp of 4 bytes per head.
  const std::int64_t tokens = kBatch * kLength;
  const std::int64_t expected = 34 * tokens * kHidden + 2 * 8 * tokens + 4 * kHeads * tokens;
  const std::int64_t saved = saved_per_layer(R"(, "data_parallel": "ddp")", 1);
  EXPECT_NEAR(static_cast<double>(saved), static_cast<double>(expected), 64) << "64: the generator's state of flash attention";
}

/// What one more layer saves over Transformer Engine's layers.
std::int64_t saved_by_transformer_engine(const std::string& precision, const std::string& more = {}) {
  const auto saved = [&](int layers) {
    const Model model = gpt(layers);
    const std::string text = R"({"framework": "megatron-core", "seq_len": 256, "micro_batch": 2, "optimizer": "adamw",
                                 "data_parallel": "ddp", "precision": ")" +
                             precision + "\"" + more + "}";
    const Strategy strategy = resolve(parse_strategy(text, "strategy"), model, cluster_of("H100-SXM5-80GB", 1));
    return played(lower_megatron(on_h100(model, strategy))).saved;
  };
  return saved(3) - saved(2);
}

TEST(Megatron, TransformerEngineSavesTheSameAndInEightBitsHalfOfTheProductsInputs) {
  // 16 bits: both norms' inputs and outputs 8h, queries, keys and values 6h, their result (the projection's input too) 2h, two masks 2h,
  // the activation's input and output 16h: again 34h, with two statistics per norm and the softmax's. 8 bits: the norms' outputs and the
  // second product's input lose half (2h and 4h), the projection's input is a copy of its own (h).
  const std::int64_t tokens = kBatch * kLength, statistics = 2 * 8 * tokens + 4 * kHeads * tokens;
  EXPECT_NEAR(static_cast<double>(saved_by_transformer_engine("bf16")), static_cast<double>(34 * tokens * kHidden + statistics), 64);
  EXPECT_NEAR(static_cast<double>(saved_by_transformer_engine("fp8")), static_cast<double>(29 * tokens * kHidden + statistics), 64);
}

constexpr std::int64_t kInner = 1024;

TEST(Megatron, ASquaredReluSavesItsInputAlone) {
  // Both norms' inputs and outputs 8h, queries, keys and values 6h, their result 2h, the activation's input and output 4f: what the square
  // needs is computed again. Two statistics per norm, the softmax's, no dropout.
  const auto saved = [](int layers) {
    const Model model = parse_model(
        R"({"model_type": "nemotron", "architectures": ["NemotronForCausalLM"], "vocab_size": 1024, "hidden_size": 512, "num_attention_heads": 8,
            "num_key_value_heads": 8, "intermediate_size": 1024, "max_position_embeddings": 256, "num_hidden_layers": )" +
            std::to_string(layers) + "}",
        "nemotron", "nemotron");
    const std::string text =
        R"({"framework": "megatron-core", "seq_len": 256, "micro_batch": 2, "data_parallel": "ddp", "precision": "bf16"})";
    return played(lower_megatron(on_h100(model, resolve(parse_strategy(text, "strategy"), model, cluster_of("H100-SXM5-80GB", 1))))).saved;
  };
  const std::int64_t tokens = kBatch * kLength, expected = tokens * (16 * kHidden + 4 * kInner + 2 * 8 + 4 * kHeads);
  EXPECT_NEAR(static_cast<double>(saved(3) - saved(2)), static_cast<double>(expected), 64);
}

/// What one more layer of four grouped experts saves over Transformer Engine's layers; every token goes to two of them.
std::int64_t saved_by_grouped_experts(const std::string& precision, const std::string& more = {}) {
  const auto saved = [&](int layers) {
    const Model model = parse_model(
        R"({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 1024, "hidden_size": 512, "num_attention_heads": 8,
            "num_key_value_heads": 8, "intermediate_size": 1024, "num_local_experts": 4, "num_experts_per_tok": 2,
            "max_position_embeddings": 256, "num_hidden_layers": )" +
            std::to_string(layers) + "}",
        "mixtral", "mixtral");
    const std::string text = R"({"framework": "megatron-core", "seq_len": 256, "micro_batch": 2, "data_parallel": "ddp", "precision": ")" +
                             precision + "\"" + more + "}";
    const Strategy strategy = resolve(parse_strategy(text, "strategy"), model, cluster_of("H100-SXM5-80GB", 1));
    return played(lower_megatron(on_h100(model, strategy))).saved;
  };
  return saved(3) - saved(2);
}

TEST(Megatron, GroupedExpertsInEightBitsSaveHalfOfTheirProductsInputs) {
  // 2T rows, of width h into the first product and f into the second, lose a byte per element. The norm before the attention loses one per
  // token and h, the projection's input gains a copy of one.
  EXPECT_EQ(saved_by_grouped_experts("bf16") - saved_by_grouped_experts("fp8"), 2 * kBatch * kLength * (kHidden + kInner));
}

TEST(Megatron, WhatRunsAgainKeepsNoOutput) {
  // layernorm: neither the outputs of a layer's two norms, 2h each, nor their two statistics per token.
  const std::int64_t tokens = kBatch * kLength;
  const auto local = [](const std::string& module) {
    return saved_per_layer(R"(, "data_parallel": "ddp", "recompute": "selective", "recompute_modules": [")" + module + "\"]", 1);
  };
  EXPECT_EQ(saved_per_layer(R"(, "data_parallel": "ddp")", 1) - local("layernorm"), 2 * (2 * tokens * kHidden + 8 * tokens));
  // moe_act: not what the second product of the experts reads, 2T rows of f.
  const std::int64_t again = saved_by_grouped_experts("bf16", R"(, "recompute": "selective", "recompute_modules": ["moe_act"])");
  EXPECT_EQ(saved_by_grouped_experts("bf16") - again, 2 * 2 * tokens * kInner);
}

TEST(Megatron, FrozenLinearsSaveNoInputs) {
  // Adapters of rank r on the attention's linears: of the 34h the inputs of the frozen products are not kept (the second norm's output 2h,
  // the activation's output 8h); the first norm's output and the attention's result are, by the adapters, with 2r of 16 bits each.
  constexpr std::int64_t kRank = 8;
  const std::int64_t tokens = kBatch * kLength, statistics = 2 * 8 * tokens + 4 * kHeads * tokens;
  const std::int64_t saved = saved_by_transformer_engine("bf16", R"(, "lora": {"r": 8, "target_modules": ["linear_qkv", "linear_proj"]})");
  EXPECT_NEAR(static_cast<double>(saved), static_cast<double>(24 * tokens * kHidden + 2 * 2 * kRank * tokens + statistics), 64);
  // Adapters on all four keep all four inputs.
  const std::int64_t all = saved_by_transformer_engine(
      "bf16", R"(, "lora": {"r": 8, "target_modules": ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]})");
  EXPECT_NEAR(static_cast<double>(all), static_cast<double>(34 * tokens * kHidden + 4 * 2 * kRank * tokens + statistics), 64);
}

TEST(Megatron, SequenceParallelismDividesALayerByTheRanks) {
  // Korthikanti: TP + SP: everything /t. Flash's q, k, v, statistics of heads are /t by the heads, norms' statistics by the sequence.
  const std::int64_t whole = saved_per_layer(R"(, "data_parallel": "ddp")", 1);
  const std::int64_t part = saved_per_layer(R"(, "data_parallel": "ddp", "tp": 2, "sequence_parallel": true)", 2);
  EXPECT_NEAR(static_cast<double>(part), static_cast<double>(whole) / 2, 64);
}

TEST(Megatron, FullRecomputationKeepsOneHiddenStatePerLayer) {
  const std::string full = R"(, "data_parallel": "ddp", "recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1)";
  EXPECT_EQ(saved_per_layer(full, 1), 2 * kBatch * kLength * kHidden);
}

TEST(Megatron, DistributedOptimizerKeepsSixBytesAndItsShareOfTwelve) {
  // bf16 parameters and fp32 gradients in buffers that pad nothing here, fp32 main parameters and two moments over 4 ranks; the rest that
  // stays is the loss scale. Every parameter's elements are a multiple of 64, their sum of 128.
  const Model model = gpt(2);
  const std::int64_t parameters = model.parameters();
  const Alive alive = played(lowered(2, R"(, "data_parallel": "megatron-distopt", "optimizer_impl": "foreach")", 4));
  EXPECT_EQ(alive.end, 6 * parameters + 12 * parameters / 4 + 4);
}

TEST(Megatron, EarlierStagesHoldMoreMicroBatches) {
  // 1F1B: rank r of p holds p − r micro-batches: stage 0 of two saves twice what one micro-batch of its own layers saves.
  const std::string pipeline = R"(, "data_parallel": "ddp", "pp": 2, "micro_batches_per_step": 4)";
  const Alive first = played(lowered(4, pipeline, 2, 0)), last = played(lowered(4, pipeline, 2, 1));
  const std::int64_t layers = 2 * saved_per_layer(R"(, "data_parallel": "ddp")", 1);
  EXPECT_GT(first.saved, 2 * layers - layers / 8);
  EXPECT_LT(last.saved, 2 * layers);
}

TEST(Megatron, TheLastGradientOfTheSteadyStateLivesToTheEndOfItsSchedule) {
  // Its handle, waited for or not, is a variable of the interleaved schedule, as is that of the last overlapped receive. Behind the last
  // call there is, beside them, what the last backward pass received, and the input that came last in the warm-up, with its gradient.
  const StepProgram program = lowered(8, R"(, "data_parallel": "ddp", "pp": 4, "vp": 2, "micro_batches_per_step": 8)", 4, 2);
  std::map<TensorId, std::int64_t> bytes;
  std::int64_t hidden_states = 0;
  for (const Instruction& instruction : program.step) {
    if (instruction.kind == InstructionKind::alloc) bytes[instruction.id] = instruction.bytes;
    if (instruction.kind == InstructionKind::collective && program.collectives[instruction.id].peer != Collective::kNoPeer)
      hidden_states = 0;
    if (instruction.kind == InstructionKind::phase && instruction.id == static_cast<std::uint32_t>(Phase::optimizer)) break;
    if (instruction.kind == InstructionKind::free) hidden_states += bytes[instruction.id] == 2 * kBatch * kLength * kHidden;
  }
  EXPECT_EQ(hidden_states, 5);
}

TEST(Megatron, FusedCrossEntropyOverwritesFp32Logits) {
  // calculate_logits_max widens logits of 16 bits to a copy of their own; those of fp32 it hands on.
  const Model model = parse_model(R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 1280, "n_positions": 256,
                                      "n_embd": 512, "n_head": 8, "n_layer": 1})",
                                  "gpt", "gpt");
  const auto fp32_logits = [&](const std::string& precision) {
    const std::string text =
        R"({"framework": "megatron-core", "seq_len": 256, "micro_batch": 2, "optimizer": "adamw", "layer_spec": "local",
                                 "attention": "sdpa", "data_parallel": "ddp", "loss": "native fused vocab-parallel cross entropy",
                                 "precision": ")" +
        precision + "\"}";
    const Strategy strategy = resolve(parse_strategy(text, "strategy"), model, cluster_of("H100-SXM5-80GB", 1));
    int count = 0;  // forward
    for (const Instruction& instruction : lower_megatron(on_h100(model, strategy)).step) {
      if (instruction.kind == InstructionKind::phase && instruction.id == static_cast<std::uint32_t>(Phase::backward)) break;
      count += instruction.kind == InstructionKind::alloc && instruction.bytes == 4 * kBatch * kLength * 1280;
    }
    return count;
  };
  EXPECT_EQ(fp32_logits("bf16"), 2);  // the copy and the exponentials
  EXPECT_EQ(fp32_logits("fp32"), 2);  // the product itself and the exponentials
}

TEST(Megatron, ThePrecisionAwareOptimizerKeepsWhatBf16LacksOfFp32) {
  // Two bytes of remainder in the place of four of main parameter, over 4 ranks. With gradients in 16 bits no fp32 copy of them either,
  // which otherwise lives from the optimizer's step into the next.
  const Model model = gpt(2);
  const auto kept = [&](const std::string& more) {
    const std::string all = R"(, "data_parallel": "megatron-distopt", "gradient_accumulation_fusion": false)" + more;
    return played(lower_megatron(on_h100(model, resolved(model, all, 4, R"("te")")))).end;
  };
  const std::string aware = R"(, "precision_aware_optimizer": true)", narrow = R"(, "grad_dtype": "bf16")";
  EXPECT_EQ(kept("") - kept(aware), 2 * model.parameters() / 4);
  EXPECT_EQ(kept(narrow) - kept(narrow + aware), 6 * model.parameters() / 4);
}

TEST(Megatron, AStepLeavesWhatItFound) {
  // Tensors may live into the next step (a stage's last input, 16-bit gradients' fp32 copies): each repetition drops those of the one
  // before.
  for (const char* more : {R"(, "data_parallel": "megatron-distopt", "overlap_grad_reduce": true)",
                           R"(, "data_parallel": "ddp", "tp": 2, "sequence_parallel": true, "grad_dtype": "bf16")",
                           R"(, "data_parallel": "megatron-distopt", "pp": 2, "vp": 2, "micro_batches_per_step": 4)"}) {
    const StepProgram program = lowered(4, more, 4);
    std::map<TensorId, std::int64_t> alive;
    std::int64_t bytes = 0, before = 0;
    for (const auto* part : {&program.init, &program.first_step, &program.step, &program.step, &program.step}) {
      before = bytes;
      for (const Instruction& instruction : *part) {
        if (instruction.kind == InstructionKind::alloc) {
          ASSERT_TRUE(alive.emplace(instruction.id, instruction.bytes).second) << more << ": a tensor is born twice";
          bytes += instruction.bytes;
        } else if (instruction.kind == InstructionKind::free) {
          ASSERT_EQ(alive.count(instruction.id), 1U) << more << ": a tensor that is not there is dropped";
          bytes -= alive.at(instruction.id);
          alive.erase(instruction.id);
        }
      }
    }
    EXPECT_EQ(bytes, before) << more;
  }
}

// local_multi_tensor_l2_norm and local_multi_tensor_scale (megatron/core/utils.py), where neither Transformer Engine nor a kernel of Apex
// is there: the host reads the norm of each gradient, then the square of them all, and each is scaled into a tensor that is copied back.
// Twelve parameters a layer, two embeddings and the last norm's two.
TEST(Megatron, WithoutListsGradientsAreNormedAndScaledOneByOne) {
  constexpr int kLayers = 2, kParameters = 12 * kLayers + 2 + 2;
  const auto counts = [](const std::string& fused_softmax) {
    const StepProgram program = lowered(kLayers, R"(, "masked_softmax_fusion": )" + fused_softmax, 1);
    std::map<std::string, int> found;
    for (const Instruction& each : phase_of(program, Phase::optimizer)) {
      found["reads"] += each.kind == InstructionKind::synchronize;
      found["copies"] += each.kind == InstructionKind::copy && program.copies[each.id].direction == Copy::Direction::device_to_device;
      found["norms"] += each.kind == InstructionKind::kernel && std::holds_alternative<Reduction>(program.kernels[each.id].work);
    }
    return found;
  };
  using Found = std::map<std::string, int>;
  EXPECT_EQ(counts("false"), (Found{{"reads", kParameters + 1}, {"copies", kParameters}, {"norms", kParameters}}));
  EXPECT_EQ(counts("true"), (Found{{"reads", 1}, {"copies", 0}, {"norms", 0}}));
}

/// HybridDeviceOptimizer: fp32 parameters and moments in pageable memory, gradients pinned; half of them on each of two ranks.
TEST(Megatron, AnOptimizerOnTheHostKeepsItsStatesThere) {
  for (const int ranks : {1, 2}) {
    const StepProgram program =
        lowered(2, R"(, "data_parallel": "megatron-distopt", "offload": "optimizer", "precision_aware_optimizer": true)", ranks);
    const std::int64_t own = gpt(2).parameters() / ranks;
    EXPECT_EQ(program.host_pageable.count, 12 * own) << ranks;
    EXPECT_EQ(program.host_pinned.count, 4 * own) << ranks;
  }
}

TEST(Megatron, WhatIsNotModelledIsRefusedByName) {
  for (const char* more :
       {R"(, "recompute": "selective", "recompute_modules": ["moe_act"])", R"(, "data_parallel": "megatron-fsdp", "pp": 2)",
        R"(, "data_parallel": "megatron-fsdp", "data_parallel_sharding_strategy": "no_shard")", R"(, "cp": 2)",
        R"(, "data_parallel": "megatron-distopt", "offload": "optimizer")",
        R"(, "data_parallel": "megatron-distopt", "offload": "optimizer+grads", "precision_aware_optimizer": true)",
        R"(, "data_parallel": "megatron-distopt", "offload": "optimizer", "precision_aware_optimizer": true, "optimizer_impl": "fused")"}) {
    try {
      lowered(2, more, 4);
      ADD_FAILURE() << more << " was lowered";
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::internal) << more << ": " << error.what();
    }
  }
}

TEST(Megatron, AnMlpWithBiasesIsRecomputedWithoutEnd) {
  EXPECT_THROW(lowered(2, R"(, "recompute": "selective", "recompute_modules": ["core_attn", "mlp"])", 4), Error);
  EXPECT_NO_THROW(lowered(2, R"(, "recompute": "selective", "recompute_modules": ["core_attn"])", 4));
}

TEST(Megatron, MicroBatchesThatAreWrittenOnceAreCountedAsOftenAsTheyRun) {
  const Model model = gpt(8);
  for (const char* more :
       {R"(, "data_parallel": "ddp", "micro_batches_per_step": 20)",
        R"(, "data_parallel": "megatron-distopt", "pp": 4, "micro_batches_per_step": 20)",
        R"(, "data_parallel": "megatron-distopt", "pp": 4, "vp": 2, "micro_batches_per_step": 20)",
        R"(, "data_parallel": "megatron-distopt", "pp": 4, "micro_batches_per_step": 20, "gradient_accumulation_fusion": true,
                              "defer_embedding_wgrad_compute": true)",
        R"(, "data_parallel": "megatron-distopt", "pp": 4, "vp": 2, "micro_batches_per_step": 20, "overlap_grad_reduce": true,
                              "overlap_param_gather": true, "align_param_gather": true, "gradient_accumulation_fusion": true, "defer_embedding_wgrad_compute": true,
                              "wgrad_deferral_limit": 9)"}) {
    const Strategy strategy = resolved(model, more, 8);
    MegatronPipeline pipeline(on_h100(model, strategy));
    for (int rank = 0; rank < strategy.pp; ++rank) {
      const StepProgram whole = lower_megatron(on_h100(model, strategy), {.pipeline = rank, .every_micro_batch = true}),
                        folded = pipeline.rank(rank);
      const Asked real = asked(whole), counted = asked(folded);
      EXPECT_LT(folded.step.size(), whole.step.size()) << more << " rank " << rank;
      EXPECT_EQ(counted.launches, real.launches) << more << " rank " << rank;
      EXPECT_EQ(counted.collectives, real.collectives) << more << " rank " << rank;
      EXPECT_EQ(counted.flops, real.flops) << more << " rank " << rank;
      EXPECT_EQ(counted.collective_bytes, real.collective_bytes) << more << " rank " << rank;
    }
  }
}

/// Passes that are called write what they say when they run: with a long steady state, and with as few micro-batches as there are stages.
TEST(MegatronPipeline, PassesThatAreCalledSayWhatPassesSayThatRun) {
  for (const std::string layers : {R"("local", "attention": "sdpa")", R"("te")"}) {
    for (const std::string pipeline : {R"("pp": 12, "global_batch": 64)", R"("pp": 12, "global_batch": 24)", R"("pp": 12, "global_batch": 30)",
                                       R"("pp": 12, "vp": 2, "global_batch": 48)"}) {
      const Model model = gpt(24);
      const Strategy strategy = resolved(model, R"(, "tp": 2, "sequence_parallel": true, )" + pipeline, 24, layers);
      for (int rank = 0; rank < 12; ++rank) {
        const StepProgram called = lower_megatron(on_h100(model, strategy), {rank}),
                          run = lower_megatron(on_h100(model, strategy), {.pipeline = rank, .calls_passes = false});
        EXPECT_EQ(difference(called, run), "") << layers << pipeline << " rank " << rank;
      }
    }
  }
}

/// The step without its tensors.
StepProgram work_alone(StepProgram program) {
  const auto names_tensor = [](const Instruction& each) {
    return each.kind == InstructionKind::alloc || each.kind == InstructionKind::free || each.kind == InstructionKind::record_stream;
  };
  const auto work_before = [&](std::size_t place) {
    return static_cast<std::size_t>(
        std::count_if(program.step.begin(), program.step.begin() + static_cast<std::ptrdiff_t>(place), std::not_fn(names_tensor)));
  };
  program.repeated = {work_before(program.repeated.begin), work_before(program.repeated.end), program.repeated.times};
  std::erase_if(program.step, names_tensor);
  return program;
}

/// What is lowered for its time alone does the same work in the same order, though its first step is a short one: with few micro-batches
/// and many, with passes that are called and with those that are not.
TEST(MegatronPipeline, WorkAloneIsThatOfTheWholeProgram) {
  for (const std::string more :
       {R"(, "pp": 2, "vp": 2, "micro_batches_per_step": 2)", R"(, "pp": 2, "vp": 4, "micro_batches_per_step": 32)",
        R"(, "pp": 4, "vp": 2, "micro_batches_per_step": 4, "recompute": "full")", R"(, "pp": 4, "vp": 2, "micro_batches_per_step": 24)",
        R"(, "pp": 4, "micro_batches_per_step": 32)", R"(, "pp": 4, "vp": 2, "micro_batches_per_step": 8, "overlap_grad_reduce": true,
                                                          "overlap_param_gather": true, "data_parallel": "megatron-distopt")"}) {
    for (const std::string layers : {R"("local", "attention": "sdpa")", R"("te")"}) {
      const Model model = gpt(8);
      const Strategy strategy = resolved(model, R"(, "tp": 2, "sequence_parallel": true)" + more, 8, layers);
      MegatronPipeline pipeline(on_h100(model, strategy));
      for (int rank = 0; rank < strategy.pp; ++rank)
        EXPECT_EQ(worked(work_alone(pipeline.work(rank))), worked(work_alone(pipeline.rank(rank)))) << more << layers << " rank " << rank;
    }
  }
}

}  // namespace
}  // namespace plimsoll::program
