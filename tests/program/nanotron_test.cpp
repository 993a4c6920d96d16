// What nanotron's compute stream waits for, and what it launches around its collectives (functional.py, optim/zero.py, distributed.py).
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "devices.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "program/lower.hpp"

namespace plimsoll::program {
namespace {

/// Two layers: six parameters each, with the embedding and head tied and a final norm.
constexpr int kParameters = 2 * 6 + 2;

StepProgram nanotron(const std::string& more, int gpus) {
  const Model model = parse_model(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512,
                                      "max_position_embeddings": 2048, "hidden_size": 128, "intermediate_size": 256,
                                      "num_attention_heads": 4, "num_key_value_heads": 4, "tie_word_embeddings": true,
                                      "num_hidden_layers": 2})",
                                  "llama", "llama");
  const std::string text = R"({"framework": "nanotron", "precision": "bf16", "micro_batch": 1, "seq_len": 64, "optimizer": "adamw", )";
  return lower_nanotron(on_h100(model, resolve(parse_strategy(text + more + "}", "strategy"), model, cluster_of("H100-SXM5-80GB", gpus))));
}

/// Collectives of a group whose end the compute stream waits for before it runs `kernels` more, and all of them.
struct Awaited {
  int at_once = 0, all = 0;
};

Awaited awaited(const StepProgram& program, Group group, int kernels) {
  Awaited counts;
  for (std::size_t i = 0; i < program.step.size(); ++i) {
    if (program.step[i].kind != InstructionKind::collective || program.collectives[program.step[i].id].group != group) continue;
    ++counts.all;
    const StreamId stream = program.step[i].stream;
    std::map<std::uint32_t, StreamId> recorded;
    for (std::size_t j = i + 1, run = 0; j < program.step.size() && run <= static_cast<std::size_t>(kernels); ++j) {
      const Instruction& next = program.step[j];
      if (next.kind == InstructionKind::kernel && next.stream == kComputeStream) ++run;
      if (next.kind == InstructionKind::record_event) recorded[next.id] = next.stream;
      if (next.kind != InstructionKind::wait_event || next.stream != kComputeStream) continue;
      if (const auto found = recorded.find(next.id); found == recorded.end() || found->second != stream) continue;
      ++counts.at_once;
      break;
    }
  }
  return counts;
}

// A gather hides one product (the rank's own rows, or the gradient of the input), a scattered sum of backward the product behind it; none
// hides more.
TEST(Nanotron, TheComputeStreamWaitsForTensorParallelCollectives) {
  const StepProgram program = nanotron(R"("tp": 4, "dp": 1, "sequence_parallel": true)", 4);
  const Awaited within = awaited(program, Group::tensor, 4);
  EXPECT_GT(within.all, 2 * 10);
  EXPECT_EQ(within.at_once, within.all);
  EXPECT_LT(awaited(program, Group::tensor, 0).at_once, within.all);
}

// zero_stage 1: the fp32 gradients are all-reduced in one piece behind the backward pass, and the new weights gathered in one list, whose
// slices, one per parameter and rank, go to their places one by one.
TEST(Nanotron, ZeroReducesAtOnceAndCopiesEverySlice) {
  std::size_t before = 0;
  for (const int ranks : {2, 8}) {
    const StepProgram program = nanotron(R"("data_parallel": "zero1", "dp": )" + std::to_string(ranks), ranks);
    const Awaited all = awaited(program, Group::data_shard, 0);
    EXPECT_EQ(all.all, 2);
    EXPECT_EQ(all.at_once, 2);
    std::size_t launches = 0;
    for (const Instruction& instruction : program.step) launches += instruction.kind == InstructionKind::kernel;
    if (before > 0) {
      // Six more ranks: a flat copy before and behind the gather and a slice of every parameter each.
      EXPECT_EQ(launches, before + 6 * (2 + kParameters));
    }
    before = launches;
  }
}

// zero_stage 0: DDP's hook reduces the fp32 accumulators, twice the bytes of its 16-bit buckets, and holds up nothing before the optimizer.
TEST(Nanotron, DdpReducesAccumulators) {
  const StepProgram program = nanotron(R"("data_parallel": "ddp", "dp": 8)", 8);
  std::int64_t bytes = 0;
  for (const Instruction& instruction : program.step) {
    if (instruction.kind != InstructionKind::collective) continue;
    const Collective& collective = program.collectives[instruction.id];
    if (collective.group != Group::data_replicate) continue;
    EXPECT_EQ(collective.type, DType::fp32);
    bytes += collective.bytes;
  }
  const std::int64_t layer = 4 * 128 * 128 + 3 * 128 * 256 + 2 * 128;
  EXPECT_EQ(bytes, 4 * (2 * layer + 512 * 128 + 128));
}

}  // namespace
}  // namespace plimsoll::program
