// TorchTitan's pipelines and mixtures on the tape, each rule on the smallest case that shows it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "devices.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "program/lower.hpp"
#include "program/modules/expert_parallel.hpp"
#include "program/ops/ops.hpp"
#include "program/split_backward.hpp"
#include "program/stage_actions.hpp"
#include "programs.hpp"

namespace plimsoll::program {
namespace {

/// An action as torch.distributed.pipelining prints it, without the waits.
std::string text_of(const StageAction& action) {
  static const char* const names[] = {"UNSHARD", "RESHARD", "F", "B", "I", "W", "REDUCE_GRAD", "RECV_F", "RECV_B"};
  const bool whole_stage =
      action.kind == StageAction::Kind::unshard || action.kind == StageAction::Kind::reshard || action.kind == StageAction::Kind::reduce;
  const std::string text = std::to_string(action.stage) + names[static_cast<int>(action.kind)];
  return whole_stage ? text : text + std::to_string(action.micro_batch);
}

std::string actions_text(const std::string& name, int stages, int micro_batches, int chunks, int rank) {
  std::string all;
  const auto actions = actions_of(make_schedule(name, stages, micro_batches, chunks));
  for (const StageAction& action : actions.at(static_cast<std::size_t>(rank))) all += text_of(action) + " ";
  return all;
}

// pipeline_order_with_comms of PyTorch 2.15's ScheduleZBVZeroBubble (4 ranks, 8 micro-batches), rank 3, whose two stages are neighbours:
// only stage 3 receives activations and only stage 4 gradients. Sends and waits are left out.
TEST(TorchTitanActions, ZeroBubbleVReceivesAsPyTorchDoes) {
  EXPECT_EQ(actions_text("zbv", 4, 8, 2, 3),
            "3UNSHARD 4UNSHARD 3RECV_F0 3F0 3RECV_F1 4F0 3RECV_F2 3F1 4F1 3RECV_F3 3F2 4F2 3RECV_F4 3F3 4F3 4RECV_B0 4I0 4W0 3F4 4RECV_B1 "
            "3I0 3W0 3RECV_F5 4F4 4I1 4W1 3F5 4RECV_B2 3I1 3W1 3RECV_F6 4F5 4I2 4W2 3F6 4RECV_B3 3I2 3W2 3RECV_F7 4F6 4I3 4W3 3F7 4RECV_B4 "
            "3I3 3W3 4F7 4I4 4W4 4RECV_B5 3I4 4I5 3I5 4RECV_B6 4I6 3I6 4RECV_B7 4I7 3I7 3W4 4W5 4W6 4W7 4REDUCE_GRAD 3W5 3W6 3W7 "
            "3REDUCE_GRAD ");
}

// The same of ScheduleInterleaved1F1B, rank 3: a receive stands where the neighbour's send put it, before work that does not need it.
TEST(TorchTitanActions, InterleavedReceivesAheadOfUse) {
  EXPECT_EQ(actions_text("interleaved-1f1b", 4, 8, 2, 3),
            "3UNSHARD 7UNSHARD 3RECV_F0 3F0 3RECV_F1 3F1 3RECV_F2 3F2 3RECV_F3 3F3 7RECV_F0 7F0 7RECV_F1 7B0 7RECV_F2 7F1 7B1 7RECV_F3 7F2 "
            "7B2 3RECV_F4 7F3 3RECV_B0 7B3 3RECV_F5 3F4 3RECV_B1 3B0 3RECV_F6 3F5 3RECV_B2 3B1 3RECV_F7 3F6 3RECV_B3 3B2 7RECV_F4 3F7 3B3 "
            "7RECV_F5 7F4 7B4 7RECV_F6 7F5 7B5 7RECV_F7 7F6 3RECV_B4 7B6 7F7 3RECV_B5 7B7 3RECV_B6 7REDUCE_GRAD 3RECV_B7 3B4 3B5 3B6 3B7 "
            "3REDUCE_GRAD ");
}

// PipelineScheduleMulti, which ran the same schedule before, exchanges between two steps what the next one needs: the receives are the
// same, each right before its use, and no pass changes its place.
TEST(TorchTitanActions, BeforeTheRuntimeReceivesStandBeforeTheirUse) {
  using Kind = StageAction::Kind;
  const Schedule schedule = make_schedule("interleaved-1f1b", 4, 8, 2);
  const auto ahead = actions_of(schedule), before = actions_of(schedule, Receives::before_use);
  const auto receives = [](const StageAction& action) {
    return action.kind == Kind::receive_activation || action.kind == Kind::receive_gradient;
  };
  for (std::size_t rank = 0; rank < 4; ++rank) {
    std::vector<std::string> passes[2], received[2];
    for (const auto* list : {&ahead[rank], &before[rank]})
      for (const StageAction& action : *list) (receives(action) ? received : passes)[list == &before[rank]].push_back(text_of(action));
    EXPECT_EQ(passes[0], passes[1]);
    for (auto& list : received) std::sort(list.begin(), list.end());
    EXPECT_EQ(received[0], received[1]);
    for (std::size_t i = 0; i < before[rank].size(); ++i) {
      const StageAction& action = before[rank][i];
      if (!receives(action)) continue;
      const StageAction& user = before[rank].at(i + 1);
      EXPECT_EQ(user.kind, action.kind == Kind::receive_activation ? Kind::forward : Kind::backward);
      EXPECT_EQ(user.stage, action.stage);
      EXPECT_EQ(user.micro_batch, action.micro_batch);
    }
  }
}

class SplitBackward : public ::testing::Test {
 protected:
  static constexpr std::int64_t kRows = 96, kIn = 64, kInner = 128;
  Tape tape{h100()};
  Tensor first = tape.parameter({kInner, kIn}, DType::fp32, true), second = tape.parameter({kIn, kInner}, DType::fp32, true);
  Tensor input = tape.empty({kRows, kIn}, DType::fp32);

  void SetUp() override {
    tape.blas.blas = 0;
    tape.record_into(Tape::Part::step);
    input.set_requires_grad(true);
  }
  /// second(first(input)), whose inner activations [96, 128] the second product saves.
  Tensor run() {
    const Tensor inner = linear(input, first);
    return linear(inner, second);
  }
  /// Bytes alive on the program, without what was there before it.
  std::int64_t alive() const {
    std::int64_t bytes = 0;
    std::vector<std::int64_t> size(1000, 0);
    for (const Instruction& instruction : tape_program()) {
      if (instruction.kind == InstructionKind::alloc) bytes += size[instruction.id] = instruction.bytes;
      if (instruction.kind == InstructionKind::free) bytes -= size[instruction.id];
    }
    return bytes;
  }
  const std::vector<Instruction>& tape_program() const { return const_cast<Tape&>(tape).program().step; }
};

// The first half computes products with the weights only: the gradient of the inner activations and of the input. What each weight's
// gradient needs stays: the inner activations, and the gradients that arrived at both products.
TEST_F(SplitBackward, TheFirstHalfLeavesTheWeightsAlone) {
  Tensor output = run();
  const Tensor gradient = tape.empty(output.sizes(), DType::fp32);
  const InputBackward half = backward_to_input(tape, output, gradient, input, {first, second});
  EXPECT_FALSE(first.grad().defined());
  EXPECT_FALSE(second.grad().defined());
  ASSERT_TRUE(half.gradient.defined());
  EXPECT_EQ(half.gradient.sizes(), input.sizes());
  ASSERT_EQ(half.groups.size(), 2U) << "each weight meets the way to the input at its own product";
  constexpr std::int64_t kWide = kRows * kInner * 4, kNarrow = kRows * kIn * 4;
  // output and its gradient, the input's gradient; the inner activations and their gradient.
  EXPECT_EQ(alive(), 3 * kNarrow + 2 * kWide);
}

TEST_F(SplitBackward, TheSecondHalfGivesTheWeightsTheirGradientsAndFreesTheRest) {
  Tensor output = run(), gradient = tape.empty(output.sizes(), DType::fp32);
  InputBackward half = backward_to_input(tape, output, gradient, input, {first, second});
  output.reset();
  gradient.reset();
  half.gradient.reset();
  backward_to_weights(tape, std::move(half.groups), {first, second});
  EXPECT_EQ(first.grad().sizes(), first.sizes());
  EXPECT_EQ(second.grad().sizes(), second.sizes());
  EXPECT_EQ(alive(), 2 * kIn * kInner * 4) << "the two gradients and nothing else";
}

// Two micro-batches: the second one's gradients are added in place, so no more than two gradients remain.
TEST_F(SplitBackward, GradientsOfMicroBatchesAddUp) {
  for (int i = 0; i < 2; ++i) {
    InputBackward half = backward_to_input(tape, run(), {}, input, {first, second});
    half.gradient.reset();
    backward_to_weights(tape, std::move(half.groups), {first, second});
  }
  EXPECT_EQ(alive(), 2 * kIn * kInner * 4);
}

// spmd_types exchanges rank by rank: as many buffers as ranks, then one that holds them together; the functional collective fills one.
TEST(ExpertParallel, AnExchangeRankByRankNeedsItsTokensTwice) {
  Tape tape{h100()};
  tape.record_into(Tape::Part::step);
  const Tensor tokens = tape.empty({64, 32}, DType::bf16);
  const auto peak_beside = [&](bool functional) {
    const std::size_t from = tape.program().step.size();
    { const Tensor received = all_to_all({8, functional}, tokens); }
    std::int64_t alive = 0, peak = 0;
    std::vector<std::int64_t> size(1000, 0);
    for (std::size_t i = from; i < tape.program().step.size(); ++i) {
      const Instruction& instruction = tape.program().step[i];
      if (instruction.kind == InstructionKind::alloc) alive += size[instruction.id] = instruction.bytes;
      if (instruction.kind == InstructionKind::free) alive -= size[instruction.id];
      peak = std::max(peak, alive);
    }
    EXPECT_EQ(alive, 0);
    return peak;
  };
  EXPECT_EQ(peak_beside(false), 2 * tokens.bytes());
  EXPECT_EQ(peak_beside(true), tokens.bytes());
}

// ---- pipelines whose steady micro-batches are written once, and whose passes are called --------------------------

/// A llama of `layers` layers.
Model llama(int layers) {
  return parse_model(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512, "max_position_embeddings": 2048,
                         "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2,
                         "tie_word_embeddings": false, "num_hidden_layers": )" +
                         std::to_string(layers) + "}",
                     "llama", "llama");
}

Strategy titan(const Model& model, const std::string& more, int gpus) {
  const std::string text = R"({"framework": "torchtitan", "framework_version": "0.3.0", "torch": "2.15.0", "data_parallel": "fsdp",
                               "seq_len": 64, "micro_batch": 1, "loss": "chunked-ce", "optimizer": "adamw")" +
                           more + "}";
  return resolve(parse_strategy(text, "strategy"), model, cluster_of("H100-SXM5-80GB", gpus));
}

/// Bytes alive at most in any part, where every tensor lives from its birth to its death.
std::int64_t most_alive(const StepProgram& program) {
  std::map<TensorId, std::int64_t> alive;
  std::int64_t bytes = 0, most = 0;
  for (const auto* part : {&program.init, &program.first_step, &program.step}) {
    for (const Instruction& instruction : *part) {
      if (instruction.kind == InstructionKind::alloc) {
        most = std::max(most, bytes += alive[instruction.id] = instruction.bytes);
      } else if (instruction.kind == InstructionKind::free) {
        bytes -= alive.at(instruction.id);
      }
    }
  }
  return most;
}

constexpr const char* kPipelines[] = {
    R"(, "pp": 8, "pp_schedule": "1f1b", "recompute": "full", "global_batch": 96)",
    R"(, "pp": 8, "pp_schedule": "1f1b", "recompute": "none", "tp": 2, "global_batch": 96)",
    R"(, "pp": 16, "pp_schedule": "1f1b", "recompute": "none", "tp": 2, "global_batch": 16)",
    R"(, "pp": 8, "pp_schedule": "gpipe", "recompute": "none", "global_batch": 96)",
    R"(, "pp": 4, "vp": 2, "pp_schedule": "interleaved-1f1b", "recompute": "selective-ac-op", "global_batch": 64)",
    R"(, "pp": 4, "vp": 4, "pp_schedule": "interleaved-1f1b", "recompute": "full", "global_batch": 64)",
    R"(, "pp": 4, "vp": 2, "pp_schedule": "interleaved-zero-bubble", "recompute": "none", "global_batch": 64)",
    R"(, "pp": 4, "vp": 2, "pp_schedule": "zbv", "recompute": "none", "global_batch": 64)",
    R"(, "pp": 4, "vp": 2, "pp_schedule": "zbv", "recompute": "full", "global_batch": 64)",
    R"(, "pp": 4, "vp": 2, "pp_schedule": "dualpipev", "recompute": "none", "global_batch": 64)",
    R"(, "pp": 8, "vp": 2, "pp_schedule": "dualpipev", "recompute": "full", "global_batch": 96)"};
constexpr int kGpus = 32;

/// The sanitizers read code, which pipelines of one kind share: one of each kind of schedule is theirs.
std::vector<const char*> pipelines() {
#ifdef __SANITIZE_ADDRESS__
  return {kPipelines[3], kPipelines[4], kPipelines[6], kPipelines[9]};
#else
  return {std::begin(kPipelines), std::end(kPipelines)};
#endif
}

TEST(TitanPipeline, MicroBatchesThatAreWrittenOnceAreCountedAsOftenAsTheyRun) {
  const Model model = llama(22);
  for (const char* more : pipelines()) {
    const Strategy strategy = titan(model, more, kGpus);
    for (int rank = 0; rank < strategy.pp; ++rank) {
      const StepProgram whole = lower_torchtitan(on_h100(model, strategy), {.pipeline = rank, .every_micro_batch = true}),
                        folded = lower_torchtitan(on_h100(model, strategy), {rank});
      ASSERT_LE(folded.step.size(), whole.step.size()) << more << " rank " << rank;
      const Asked real = asked(whole), counted = asked(folded);
      EXPECT_EQ(counted.launches, real.launches) << more << " rank " << rank;
      EXPECT_EQ(counted.collectives, real.collectives) << more << " rank " << rank;
      EXPECT_EQ(counted.flops, real.flops) << more << " rank " << rank;
      EXPECT_EQ(counted.collective_bytes, real.collective_bytes) << more << " rank " << rank;
      EXPECT_NEAR(static_cast<double>(most_alive(folded)), static_cast<double>(most_alive(whole)),
                  1e-3 * static_cast<double>(most_alive(whole)))
          << more << " rank " << rank;
    }
  }
}

/// Passes that are called write what they say when they run, tensor by tensor and label by label: whole and in halves, on stages at either end
/// and between, in a step of one run and of several.
TEST(TitanPipeline, PassesThatAreCalledSayWhatPassesSayThatRun) {
  const Model model = llama(22);
  std::vector<const char*> all = pipelines();
  all.push_back(
      R"(, "pp": 4, "vp": 2, "pp_schedule": "interleaved-1f1b", "recompute": "none", "reshard_after_forward": "always", "global_batch": 64)");
  all.push_back(R"(, "pp": 4, "pp_schedule": "1f1b", "recompute": "full", "micro_batches_per_step": 16, "grad_accum": 2)");
  for (const char* more : all) {
    const Strategy strategy = titan(model, more, kGpus);
    for (int rank = 0; rank < strategy.pp; ++rank) {
      const StepProgram called = lower_torchtitan(on_h100(model, strategy), {rank}),
                        run = lower_torchtitan(on_h100(model, strategy), {.pipeline = rank, .calls_passes = false});
      EXPECT_EQ(difference(called, run), "") << more << " rank " << rank;
    }
  }
}

// torch.utils.checkpoint: "Trying to backward an extra time" on a region under selective activation checkpointing.
TEST(TitanPipeline, SelectiveCheckpointingIsRefusedUnderABackwardInHalves) {
  const Model model = llama(22);
  const Strategy strategy =
      titan(model, R"(, "pp": 4, "vp": 2, "pp_schedule": "zbv", "recompute": "selective-ac-op", "global_batch": 64)", kGpus);
  EXPECT_THROW(TitanPipeline(on_h100(model, strategy)), Error);
}

// ---- compiled blocks over tensor-parallel ranks, as of June 2025 -------------------------------------------------------------------

Strategy compiled(const Model& model, const std::string& more) {
  const std::string text = R"({"framework": "torchtitan", "framework_version": "torchtitan 820504e, 2025-06-14", "torch": "2.8.0",
                               "data_parallel": "fsdp", "compile": "blocks", "seq_len": 256, "micro_batch": 2, "global_batch": 2, "tp": 8,
                               "sequence_parallel": true, "optimizer": "adamw")" +
                           more + "}";
  return resolve(parse_strategy(text, "strategy"), model, cluster_of("H100-SXM5-80GB", 8));
}

/// Of the tensor-parallel group, in the steady step.
std::int64_t collectives_of(const StepProgram& program, CollectiveKind kind, DType type) {
  return std::count_if(program.step.begin(), program.step.end(), [&](const Instruction& instruction) {
    if (instruction.kind != InstructionKind::collective) return false;
    const Collective& collective = program.collectives[instruction.id];
    return collective.group == Group::tensor && collective.kind == kind && collective.type == type;
  });
}

std::int64_t products_of(const StepProgram& program, DType type) {
  return std::count_if(program.step.begin(), program.step.end(), [&](const Instruction& instruction) {
    if (instruction.kind != InstructionKind::kernel) return false;
    const Product* product = program.kernels[instruction.id].product();
    return product != nullptr && product->a == type;
  });
}

Model wide_llama(int layers) {
  return parse_model(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 1024, "max_position_embeddings": 2048,
                         "hidden_size": 1024, "intermediate_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 8,
                         "tie_word_embeddings": false, "num_hidden_layers": )" +
                         std::to_string(layers) + "}",
                     "llama", "llama");
}

/// What one layer more adds.
std::int64_t of_a_layer(const std::string& more, const std::function<std::int64_t(const StepProgram&)>& count) {
  const Model two = wide_llama(2), three = wide_llama(3);
  return count(lower_torchtitan(on_h100(three, compiled(three, more)))) - count(lower_torchtitan(on_h100(two, compiled(two, more))));
}

// A block gathers its input and the feed-forward's in the forward, again for a recomputation, and two gradients; it scatters two results,
// on recomputation the first alone, and two gradients. Scales per tensor let it gather 8 bits (Float8ColwiseParallel), rows do not.
TEST(TitanCompiled, ScalesPerTensorGatherEightBits) {
  const auto gathers = [](DType type) {
    return [type](const StepProgram& p) { return collectives_of(p, CollectiveKind::all_gather, type); };
  };
  const auto scatters = [](const StepProgram& p) { return collectives_of(p, CollectiveKind::reduce_scatter, DType::bf16); };
  const std::string full = R"(, "recompute": "full", "precision": )";
  EXPECT_EQ(of_a_layer(full + R"("bf16")", gathers(DType::bf16)), 6);
  EXPECT_EQ(of_a_layer(full + R"("fp8", "fp8_recipe": "tensorwise")", gathers(DType::fp8)), 6);
  EXPECT_EQ(of_a_layer(full + R"("fp8", "fp8_recipe": "tensorwise")", gathers(DType::bf16)), 0);
  EXPECT_EQ(of_a_layer(full + R"("fp8", "fp8_recipe": "rowwise")", gathers(DType::bf16)), 6);
  EXPECT_EQ(of_a_layer(full + R"("bf16")", scatters), 5);
}

// Seven products forward, seven pairs backward. A full recomputation makes all again but the last; one by operators every second, and with
// tensor parallelism not the projection whose reduced result it keeps: keys and the up projection.
TEST(TitanCompiled, EachProductIsMadeAgainOnceAtMost) {
  const auto products = [](const StepProgram& p) { return products_of(p, DType::bf16); };
  EXPECT_EQ(of_a_layer(R"(, "precision": "bf16", "recompute": "full")", products), 7 + 14 + 6);
  EXPECT_EQ(of_a_layer(R"(, "precision": "bf16", "recompute": "selective-ac-op")", products), 7 + 14 + 2);
  const auto scatters = [](const StepProgram& p) { return collectives_of(p, CollectiveKind::reduce_scatter, DType::bf16); };
  EXPECT_EQ(of_a_layer(R"(, "precision": "bf16", "recompute": "selective-ac-op")", scatters), 4);
}

// Asynchronous: products beside what comes or goes fall into a piece for each of the eight ranks. Forward all seven (five behind a gather,
// two before a scatter), recomputed six, backward the gradient of attention's output, which waits for nothing else; thirteen stay whole.
TEST(TitanCompiled, ProductsBesideCollectivesRunPieceByPiece) {
  const auto products = [](const StepProgram& p) { return products_of(p, DType::bf16); };
  EXPECT_EQ(of_a_layer(R"(, "precision": "bf16", "recompute": "full", "async_tp": true)", products), 8 * (7 + 6 + 1) + 13);
}

// Before 0.3 all layers turn by one table, which init_weights makes on the device whatever leaves it.
TEST(TitanOffload, TheSharedTableOfTheReleasesBefore03StaysOnTheDevice) {
  const Model model = load_model("llama-3.2-1b");
  const Cluster cluster = parse_cluster("8xh100-sxm");
  Strategy strategy;
  set_options(
      strategy,
      {{"framework", "torchtitan"}, {"framework_version", "2025-12"}, {"micro_batch", "1"}, {"seq_len", "1024"}, {"offload", "params"}});
  EXPECT_FALSE(lower_torchtitan(on_h100(model, resolve(strategy, model, cluster))).step.empty());
}

}  // namespace
}  // namespace plimsoll::program
