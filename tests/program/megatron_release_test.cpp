// What Megatron-LM's releases before Megatron-core do otherwise, rule by rule.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "devices.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "program/lower.hpp"
#include "programs.hpp"

namespace plimsoll::program {
namespace {

constexpr std::int64_t kHidden = 1024, kLength = 256, kBatch = 2;

/// A GPT of eight layers, heads of 64, learned positions.
Model gpt() {
  return parse_model(R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 1024, "n_positions": 256,
                         "n_embd": 1024, "n_head": 16, "activation_function": "gelu", "n_layer": 8})",
                     "gpt", "gpt");
}

Strategy resolved(const std::string& release, const std::string& more, int gpus, const std::string& precision = "fp16") {
  const std::string version = release.empty() ? "" : R"("framework_version": ")" + release + "\", ";
  const std::string text = R"({"framework": "megatron-lm", )" + version +
                           R"("seq_len": 256, "micro_batch": 2, "data_parallel": "ddp", "optimizer": "adam", "precision": ")" +
                           precision + "\"" + more + "}";
  return resolve(parse_strategy(text, "strategy"), gpt(), cluster_of("A100-SXM4-80GB", gpus));
}

StepProgram lowered(const std::string& release, const std::string& more, int gpus, int rank = 0) {
  return lower_megatron(on_h100(gpt(), resolved(release, more, gpus)), {rank});
}

const Collective* collective_at(const StepProgram& program, std::size_t i) {
  return program.step[i].kind == InstructionKind::collective ? &program.collectives[program.step[i].id] : nullptr;
}

/// Megatron-LM of 2021 on one GPU.
TEST(MegatronRelease, AnOldOneRunsLayersOfItsOwnWithGradientsInTheWeightsType) {
  const Strategy old = resolved("2021-04", "", 1), newest = resolved("", "", 1);
  EXPECT_EQ(old.megatron.layer_spec, "local");
  EXPECT_EQ(old.attention, AttentionKernel::unfused);
  EXPECT_EQ(old.grad_dtype, DType::fp16);
  EXPECT_EQ(newest.megatron.layer_spec, "te");
  EXPECT_EQ(newest.grad_dtype, DType::fp32);
  EXPECT_EQ(old.releases.of(Package::torch).text(), "1.9") << "the stable PyTorch of April 2021";
}

// gradient_accumulation_fusion came in February 2022, for gradients in fp32 alone.
TEST(MegatronRelease, WeightGradientsAreAddedByTheirProductsOnceApexCan) {
  const auto fused = [](const std::string& release, const std::string& type) {
    return *resolved(release, ", \"grad_dtype\": \"" + type + "\"", 1).megatron.gradient_accumulation_fusion;
  };
  EXPECT_FALSE(fused("v2.5", "fp32"));
  EXPECT_TRUE(fused("v3.0", "fp32"));
  EXPECT_FALSE(fused("v3.0", "fp16"));
}

// ScaledUpperTriangMaskedSoftmax reads and writes the 16-bit scores of b · a · s rows: one launch a layer forward, one backward, none again
// without recomputation. Nothing as large is cast to fp32.
TEST(MegatronRelease, SoftmaxOfTheScoresIsOneKernel) {
  const StepProgram program = lowered("2021-04", "", 1);
  const std::int64_t rows = kBatch * 16 * kLength;
  std::int64_t forward = 0, backward = 0;
  for (const Instruction& each : program.step) {
    if (each.kind != InstructionKind::kernel) continue;
    const auto* softmax = std::get_if<RowWise>(&program.kernels[each.id].work);
    if (softmax == nullptr || softmax->rows != rows) continue;
    forward += softmax->function == RowWise::Function::softmax;
    backward += softmax->function == RowWise::Function::softmax_backward;
  }
  EXPECT_EQ(forward, 8);
  EXPECT_EQ(backward, 8);
}

/// Products between the start of a backward pass' tensor-parallel sum and the wait for it.
std::int64_t products_beside_sums(const StepProgram& program) {
  std::int64_t products = 0;
  bool backward = false, under_way = false;
  for (std::size_t i = 0; i < program.step.size(); ++i) {
    const Instruction& each = program.step[i];
    if (each.kind == InstructionKind::phase) backward = each.id == static_cast<std::uint32_t>(Phase::backward);
    const Collective* collective = collective_at(program, i);
    if (backward && collective != nullptr && collective->group == Group::tensor) under_way = true;
    if (each.kind == InstructionKind::wait_event && each.stream == kComputeStream) under_way = false;
    products += under_way && each.kind == InstructionKind::kernel && program.kernels[each.id].product() != nullptr;
  }
  return products;
}

// Two column-parallel linears a layer and the head reduce their input's gradient: in 2021 behind both products, from September on beside
// the weight's.
TEST(MegatronRelease, InputGradientsAreReducedBesideProductsFromSeptember2021On) {
  EXPECT_EQ(products_beside_sums(lowered("2021-04", ", \"tp\": 2", 2)), 0);
  EXPECT_EQ(products_beside_sums(lowered("2021-09", ", \"tp\": 2", 2)), 2 * 8 + 1);
}

// scatter_gather_tensors_in_pipeline: each of two tensor-parallel ranks sends half of s · b · h 16-bit elements, and gathers the whole.
TEST(MegatronRelease, TensorParallelRanksSendTheirPartsAndGatherThem) {
  const auto largest = [](const StepProgram& program, CollectiveKind kind) {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < program.step.size(); ++i) {
      const Collective* collective = collective_at(program, i);
      if (collective != nullptr && collective->kind == kind) bytes = std::max(bytes, collective->bytes);
    }
    return bytes;
  };
  const std::string more = R"(, "tp": 2, "pp": 2, "micro_batches_per_step": 4)";
  const std::int64_t whole = kLength * kBatch * kHidden * 2;
  const StepProgram old = lowered("2021-04", more, 4), newest = lowered("", more, 4);
  EXPECT_EQ(largest(old, CollectiveKind::send), whole / 2);
  EXPECT_EQ(largest(old, CollectiveKind::all_gather), whole);
  EXPECT_EQ(largest(newest, CollectiveKind::send), whole);
  // Sequence parallelism has cut what is sent already.
  EXPECT_EQ(largest(lowered("2022-05", more + R"(, "sequence_parallel": true)", 4), CollectiveKind::send), whole / 2);
}

// Before overlap_p2p_comm the host waits for what every turn sent: with eight micro-batches on two chunks of each of four stages rank 0 runs
// 16 forward passes and 16 backward, 10 of the forward ones in its warm-up: 10 turns, then 6 of both passes, then 10 backward ones. Beside
// the turns it waits for its first receive on no first stage.
TEST(MegatronRelease, InterleavedTurnsSendBehindBothTheirPasses) {
  const StepProgram program = lowered("2021-04", R"(, "pp": 4, "vp": 2, "micro_batches_per_step": 8)", 8);
  std::int64_t waits = 0;
  bool sent = false;
  for (std::size_t i = 0; i < program.step.size(); ++i) {
    const Collective* collective = collective_at(program, i);
    sent |= collective != nullptr && collective->group == Group::pipeline;
    if (program.step[i].kind != InstructionKind::synchronize || !sent) continue;
    ++waits;
    sent = false;
  }
  EXPECT_EQ(waits, 10 + 6 + 10 - 1) << "the last turn of all sends nothing: rank 0's input has no gradient to give";
}

TEST(MegatronRelease, TwoStagesCannotBeInterleavedInTurn) {
  EXPECT_THROW(resolved("2021-04", R"(, "pp": 2, "vp": 2, "micro_batches_per_step": 4)", 2), Error);
  EXPECT_NO_THROW(resolved("", R"(, "pp": 2, "vp": 2, "micro_batches_per_step": 4)", 2));
}

// Losses are scaled in fp16: the host asks for infinite gradients and for their norm. bf16 has the norm alone.
TEST(MegatronRelease, TheHostAsksWhetherScaledGradientsAreFinite) {
  const auto waits = [](const std::string& precision) {
    const StepProgram program = lower_megatron(on_h100(gpt(), resolved("2021-04", "", 1, precision)));
    const std::vector<Instruction> optimizer = phase_of(program, Phase::optimizer);
    return std::count_if(optimizer.begin(), optimizer.end(), [](const Instruction& each) { return each.kind == InstructionKind::synchronize; });
  };
  EXPECT_EQ(waits("fp16"), 2);
  EXPECT_EQ(waits("bf16"), 1);
}

// apex's FastLayerNorm has rows of 1,024: with it a norm's weight and bias get their gradients in the kernel of its input's.
TEST(MegatronRelease, PersistentNormsHaveOneBackwardKernel) {
  const auto weight_kernels = [](const std::string& release) {
    const StepProgram program = lowered(release, "", 1);
    return std::count_if(program.step.begin(), program.step.end(), [&](const Instruction& each) {
      const auto* norm = each.kind == InstructionKind::kernel ? std::get_if<RowWise>(&program.kernels[each.id].work) : nullptr;
      return norm != nullptr && norm->function == RowWise::Function::norm_weight_backward;
    });
  };
  EXPECT_EQ(weight_kernels("2021-04"), 2 * 8 + 1);
  EXPECT_EQ(weight_kernels("2021-10"), 0);
}

// Its tape is that of the run's PyTorch. Four heads of 600 columns are 150 elements, 300 bytes apart: their products leave the tensor cores
// under 1.11 and not under 1.13; those of heads of 128 never.
TEST(MegatronRelease, MegatronDeepSpeedsProductsAreThoseOfItsPyTorch) {
  const auto without_tensor_cores = [](int columns, const char* torch) {
    const std::string config = R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 1024, "n_positions": 256,
                                   "n_head": 4, "activation_function": "gelu", "n_layer": 2, "n_embd": )";
    const Model model = parse_model(config + std::to_string(columns) + "}", "gpt", "gpt");
    const std::string text = R"({"framework": "megatron-deepspeed", "seq_len": 256, "micro_batch": 2, "precision": "fp16", "data_parallel": "zero1",
                                 "attention": "unfused", "pp": 2, "optimizer": "adam", "releases": {"torch": ")" + std::string(torch) + "\"}}";
    const Strategy strategy = resolve(parse_strategy(text, "strategy"), model, cluster_of("A100-SXM4-80GB", 2));
    const StepProgram program = lower_megatron_deepspeed(on_h100(model, strategy), {0});
    return std::count_if(program.kernels.begin(), program.kernels.end(),
                         [](const Kernel& kernel) { return kernel.product() && kernel.product()->arithmetic == Arithmetic::simt; });
  };
  EXPECT_GT(without_tensor_cores(600, "1.11"), 0);
  EXPECT_EQ(without_tensor_cores(600, "1.13"), 0);
  EXPECT_EQ(without_tensor_cores(512, "1.11"), 0);
}

TEST(MegatronRelease, MegatronDeepSpeedWithMegatronsDataParallelismIsMegatronOf2021) {
  const Strategy strategy =
      resolve(parse_strategy(R"({"framework": "megatron-deepspeed", "seq_len": 256, "micro_batch": 2, "precision": "fp16", "data_parallel": "ddp",
                                 "optimizer": "adam"})",
                             "strategy"),
              gpt(), cluster_of("A100-SXM4-80GB", 1));
  EXPECT_EQ(strategy.framework, "megatron-lm");
  EXPECT_EQ(strategy.releases.of(Package::megatron_lm).text(), "2021-08");
  EXPECT_TRUE(std::any_of(strategy.assumed.begin(), strategy.assumed.end(),
                          [](const std::string& each) { return each.find("Megatron-DeepSpeed") != std::string::npos; }));
}

}  // namespace
}  // namespace plimsoll::program
