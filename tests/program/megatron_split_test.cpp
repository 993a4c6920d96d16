// Schedules of Primus whose weight gradients have slots of their own: what a rank does is its schedule's, and nothing is left out or done
// twice.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "devices.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/schedule.hpp"
#include "program/frameworks/megatron/split_schedule.hpp"
#include "program/lower.hpp"
#include "programs.hpp"

namespace plimsoll::program {
namespace {

Model llama() {
  return parse_model(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 1024, "hidden_size": 512,
                         "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 1024, "max_position_embeddings": 256,
                         "num_hidden_layers": 14, "tie_word_embeddings": false})",
                     "llama", "llama");
}

Strategy primus(const std::string& schedule, int vp, int global_batch, const std::string& more = "") {
  const std::string text = R"({"framework": "primus", "precision": "bf16", "data_parallel": "ddp", "seq_len": 256, "micro_batch": 1,
                               "optimizer": "adamw", "pp": 4, "gradient_accumulation_fusion": true, "overlap_grad_reduce": false,
                               "overlap_param_gather": false, "vp": )" +
                           std::to_string(vp) + R"(, "pp_schedule": ")" + schedule + R"(", "global_batch": )" +
                           std::to_string(global_batch) + more + "}";
  return resolve(parse_strategy(text, "strategy"), llama(), cluster_of("MI300X", 4));
}

/// The products of all ranks' steps.
double flops_of(const Strategy& strategy) {
  double flops = 0;
  for (int rank = 0; rank < strategy.pp; ++rank)
    flops += asked(lower_megatron(on_h100(llama(), strategy), {.pipeline = rank, .every_micro_batch = true})).flops;
  return flops;
}

struct Case {
  const char* schedule;
  int vp;
};
constexpr Case kSchedules[] = {{"zb-h1", 1}, {"zbv", 2}, {"v-half", 2}, {"v-min", 2}};

// However backward is cut, the four ranks multiply what they do in 1F1B.
TEST(MegatronSplit, ComputesWhat1f1bDoes) {
  const double whole = flops_of(primus("1f1b", 1, 16));
  for (const auto& [schedule, vp] : kSchedules) EXPECT_EQ(flops_of(primus(schedule, vp, 16)), whole) << schedule;
}

// What one rank sends, another receives: between each two as many each way.
TEST(MegatronSplit, EveryTransferHasTwoEnds) {
  for (const auto& [schedule, vp] : kSchedules) {
    const Strategy strategy = primus(schedule, vp, 16);
    std::map<std::pair<int, int>, int> open;
    for (int rank = 0; rank < strategy.pp; ++rank) {
      const StepProgram program = lower_megatron(on_h100(llama(), strategy), {.pipeline = rank, .every_micro_batch = true});
      for (const Instruction& instruction : program.step) {
        if (instruction.kind != InstructionKind::collective) continue;
        const Collective& each = program.collectives[instruction.id];
        if (each.kind == CollectiveKind::send) ++open[{rank, each.peer}];
        if (each.kind == CollectiveKind::receive) --open[{each.peer, rank}];
      }
    }
    EXPECT_EQ(open.size(), 6U) << schedule;  // three neighbours, each way
    for (const auto& [pair, count] : open) EXPECT_EQ(count, 0) << schedule << " " << pair.first << " to " << pair.second;
  }
}

// A V gives the first rank the first and the last layers, the last rank the middle ones.
TEST(MegatronSplit, AVHasBothEndsOnTheFirstRank) {
  EXPECT_EQ(stages_of_rank(primus("v-half", 2, 16), 0), (std::vector<int>{0, 7}));
  EXPECT_EQ(stages_of_rank(primus("v-half", 2, 16), 3), (std::vector<int>{3, 4}));
  EXPECT_EQ(stages_of_rank(primus("interleaved-1f1b", 2, 16), 3), (std::vector<int>{3, 7}));
}

// A step leaves alive what it found: every tensor that is born in it dies in it, or replaces one that does.
TEST(MegatronSplit, AStepLeavesNothingBehind) {
  for (const auto& [schedule, vp] : kSchedules) {
    const StepProgram program = lower_megatron(on_h100(llama(), primus(schedule, vp, 16)), {.pipeline = 1, .every_micro_batch = true});
    std::int64_t alive = 0;
    std::map<TensorId, std::int64_t> bytes;
    for (const auto* part : {&program.init, &program.first_step})
      for (const Instruction& each : *part)
        if (each.kind == InstructionKind::alloc) bytes[each.id] = each.bytes;
    for (const Instruction& each : program.step) {
      if (each.kind == InstructionKind::alloc) alive += bytes[each.id] = each.bytes;
      if (each.kind == InstructionKind::free) alive -= bytes[each.id];
    }
    EXPECT_EQ(alive, 0) << schedule;
  }
}

/// What a rank computes, and receives, in order.
std::vector<StageAction> actions(const char* schedule, int stages, int turns, int rank) {
  std::vector<StageAction> all = actions_of(make_schedule(schedule, stages, turns * stages))[static_cast<std::size_t>(rank)], kept;
  using Kind = StageAction::Kind;
  std::copy_if(all.begin(), all.end(), std::back_inserter(kept), [](const StageAction& action) {
    return action.kind != Kind::unshard && action.kind != Kind::reshard && action.kind != Kind::reduce;
  });
  return kept;
}

bool is_same(const StageAction& a, const StageAction& b) {
  return a.kind == b.kind && a.stage == b.stage && a.micro_batch == b.micro_batch;
}

// Of four turns the third may be run again and again, with the next micro-batches: what comes out is the schedule of as many turns. No
// more micro-batches than stages are on their way to one of them, so that as many events serve.
TEST(MegatronSplit, TheThirdOfFourTurnsRepeats) {
  using Kind = StageAction::Kind;
  for (const auto& [schedule, vp] : kSchedules)
    for (const int stages : {2, 3, 4, 7})
      for (int rank = 0; rank < stages; ++rank) {
        const std::vector<StageAction> four = actions(schedule, stages, 4, rank), six = actions(schedule, stages, 6, rank);
        const auto begins = [&](int turn) {
          const StageAction first{Kind::forward, rank, turn * stages};
          return std::find_if(four.begin(), four.end(), [&](const StageAction& each) { return is_same(each, first); });
        };
        std::vector<StageAction> repeated(four.begin(), begins(2));
        for (int times = 0; times < 3; ++times)
          for (auto each = begins(2); each != begins(3); ++each)
            repeated.push_back({each->kind, each->stage, each->micro_batch + times * stages});
        for (auto each = begins(3); each != four.end(); ++each)
          repeated.push_back({each->kind, each->stage, each->micro_batch + 2 * stages});
        EXPECT_TRUE(std::equal(repeated.begin(), repeated.end(), six.begin(), six.end(), is_same))
            << schedule << " " << stages << " " << rank;
        std::map<std::pair<int, bool>, int> on_their_way;
        int most = 0;
        for (const StageAction& each : six) {
          if (each.kind == Kind::receive_activation) most = std::max(most, ++on_their_way[{each.stage, true}]);
          if (each.kind == Kind::receive_gradient) most = std::max(most, ++on_their_way[{each.stage, false}]);
          if (each.kind == Kind::forward) --on_their_way[{each.stage, true}];
          if (each.kind == Kind::backward || each.kind == Kind::input_gradient) --on_their_way[{each.stage, false}];
        }
        EXPECT_LE(most, stages) << schedule << " " << stages << " " << rank;
      }
}

// One turn that stands for others does what they would: 48 micro-batches, 16 of which are recorded, against all of them.
TEST(MegatronSplit, ATurnStandsForThoseLeftOut) {
  for (const auto& [schedule, vp] : kSchedules) {
    const Strategy strategy = primus(schedule, vp, 48);
    for (const int rank : {0, 2}) {
      const StepProgram some = lower_megatron(on_h100(llama(), strategy), {rank}),
                        all = lower_megatron(on_h100(llama(), strategy), {.pipeline = rank, .every_micro_batch = true});
      EXPECT_EQ(some.repeated.times, 9) << schedule;
      EXPECT_LT(some.step.size(), all.step.size());
      const Asked short_step = asked(some), long_step = asked(all);
      EXPECT_EQ(short_step.launches, long_step.launches) << schedule << " " << rank;
      EXPECT_EQ(short_step.flops, long_step.flops) << schedule << " " << rank;
      EXPECT_EQ(short_step.collectives, long_step.collectives) << schedule << " " << rank;
    }
  }
}

/// Tensors copied on the device, and fused attentions of the forward pass.
struct Counted {
  std::int64_t copies = 0, attentions = 0;
};
Counted counted(const Strategy& strategy) {
  const StepProgram program = lower_megatron(on_h100(llama(), strategy), {.pipeline = 1, .every_micro_batch = true});
  Counted all;
  for (const Instruction& each : program.step) {
    all.copies += each.kind == InstructionKind::copy;
    if (each.kind != InstructionKind::kernel) continue;
    const auto* attention = std::get_if<Attention>(&program.kernels[each.id].work);
    all.attentions += attention && attention->part == Attention::Part::forward;
  }
  return all;
}

// Since 35f9c97c Primus copies the input and the output's gradient of all four linears of a layer; its own functions before held them.
TEST(MegatronSplit, WhatWaitsIsCopiedSincePrimusReplacesTheStore) {
  const Counted newest = counted(primus("zb-h1", 1, 16)), before = counted(primus("zb-h1", 1, 16, R"(, "framework_version": "2026-02")"));
  EXPECT_GT(before.attentions, 0);
  EXPECT_EQ(newest.attentions, before.attentions);
  EXPECT_EQ(newest.copies - before.copies, 2 * 4 * before.attentions);
  EXPECT_EQ(counted(primus("zb-h1", 1, 16, R"(, "framework_version": "v26.2")")).copies, before.copies);
  EXPECT_EQ(counted(primus("zb-h1", 1, 16, R"(, "framework_version": "v26.3")")).copies, newest.copies);
}

std::string refusal(const std::string& schedule, const std::string& more) {
  try {
    lower_megatron(on_h100(llama(), primus(schedule, 1, 16, more)), {.every_micro_batch = true});
  } catch (const Error& error) {
    return error.message();
  }
  return {};
}

// primus_pipeline.md lists what its schedules conflict with.
TEST(MegatronSplit, WhatPrimusPipelineConflictsWithIsNamed) {
  const auto resolved = [](const std::string& option) {
    const std::string text = R"({"framework": "primus", "precision": "bf16", "seq_len": 256, "micro_batch": 1, "pp": 4, "vp": 1,
                                 "pp_schedule": "zb-h1", "global_batch": 16, )" +
                             option + "}";
    try {
      resolve(parse_strategy(text, "strategy"), llama(), cluster_of("MI300X", 4));
    } catch (const Error& error) {
      return std::string(error.message());
    }
    return std::string();
  };
  EXPECT_EQ(resolved(R"("data_parallel": "ddp")"), "");
  EXPECT_NE(resolved(R"("gradient_accumulation_fusion": false)").find("gradient_accumulation_fusion"), std::string::npos);
  EXPECT_NE(resolved(R"("overlap_grad_reduce": true)").find("overlap_grad_reduce"), std::string::npos);
  EXPECT_NE(refusal("zb-h1", R"(, "lora": {"r": 8})").find("adapters"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::program
