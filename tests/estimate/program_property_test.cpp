// Whatever changes the program changes the estimate: over random models, strategies and frameworks one more thing is said, and where the
// programs of the two runs differ in what they allocate, move, multiply, send or ask of the host, so do the numbers of their reports. Where
// either of them is a closed form, its report says why.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "estimate/rank_memory.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/framework.hpp"

namespace plimsoll {
namespace {

using Options = std::vector<std::pair<std::string, std::string>>;

template <class Random, class T>
const T& one_of(Random& random, const std::vector<T>& values) {
  return values[std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random)];
}

/// A run, and what is said of it besides.
struct Case {
  std::string model, cluster;
  Options said, more;

  std::string text() const {
    std::string line = model + " --on " + cluster;
    for (const Options* options : {&said, &more}) {
      for (const auto& [key, value] : *options) line += " --" + key + " " + value;
      line += options == &said ? " and" : "";
    }
    return line;
  }
};

Options runner(std::mt19937& random) {
  static const std::vector<Options> kRunners{
      {{"data_parallel", "ddp"}},        {{"data_parallel", "fsdp1"}}, {{"data_parallel", "fsdp2"}}, {{"zero", "1"}}, {{"zero", "2"}}, {{"zero", "3"}},
      {{"framework", "torchtitan"}},     {{"framework", "torchtitan"}, {"tp", "2"}, {"sequence_parallel", "true"}},
      {{"framework", "megatron-core"}, {"tp", "2"}}, {{"framework", "megatron-core"}, {"pp", "2"}}, {{"framework", "torchtune"}}};
  return one_of(random, kRunners);
}

Options change(std::mt19937& random) {
  static const std::vector<Options> kChanges{
      {{"micro_batch", "2"}},       {{"seq_len", "192"}},          {{"grad_accum", "3"}},         {{"recompute", "full"}},
      {{"recompute", "selective"}}, {{"optimizer", "sgd"}},        {{"optimizer", "lion"}},       {{"optimizer_impl", "fused"}},
      {{"optimizer_impl", "foreach"}}, {{"precision", "fp32"}},    {{"precision", "fp16"}},       {{"precision", "pure_bf16"}},
      {{"lora.r", "8"}},            {{"lora.r", "16"}},            {{"lora.r", "8"}, {"lora.target_modules", "q_proj"}},
      {{"offload", "optimizer"}},   {{"offload", "params"}},       {{"offload", "params+grads+optimizer"}}, {{"offload", "activations"}},
      {{"attention", "eager"}},     {{"attention", "flash"}},      {{"clip_grad_norm", "false"}}, {{"loss", "liger"}},
      {{"fsdp.reshard_after_forward", "never"}}, {{"ddp.gradient_as_bucket_view", "true"}}, {{"dropout", "0.1"}}};
  return one_of(random, kChanges);
}

Case draw(unsigned seed) {
  std::mt19937 random(seed);
  Case drawn;
  drawn.model = one_of<std::mt19937, std::string>(random, {"gpt2", "llama-3.2-1b", "qwen3-0.6b", "bert-base-uncased"});
  drawn.cluster = one_of<std::mt19937, std::string>(random, {"4xh100-sxm", "4xa100-80gb-sxm", "4xmi300x"});
  drawn.said = runner(random);
  drawn.more = change(random);
  if (drawn.more.front().first != "seq_len") drawn.said.emplace_back("seq_len", "128");
  return drawn;
}

/// What an instruction asks of the device, the network or the host: kernels that move and multiply as much are the same.
std::string asked(const StepProgram& program, const Instruction& each) {
  std::string text = std::to_string(static_cast<int>(each.kind)) + ' ' + std::to_string(each.stream) + ' ' + std::to_string(each.bytes);
  if (each.kind == InstructionKind::kernel) {
    const Kernel& kernel = program.kernels[each.id];
    text += ' ' + std::to_string(kernel.flops()) + ' ' + std::to_string(kernel.bytes());
  } else if (each.kind == InstructionKind::collective) {
    const Collective& collective = program.collectives[each.id];
    text += ' ' + std::to_string(static_cast<int>(collective.kind)) + ' ' + std::to_string(collective.bytes);
  } else if (each.kind == InstructionKind::copy) {
    text += ' ' + std::to_string(program.copies[each.id].bytes);
  }
  return text + ';';
}

std::string work_of(const StepProgram& program) {
  std::string text = to_string(program.host_pinned) + to_string(program.host_pageable);
  for (const auto* part : {&program.init, &program.first_step, &program.step}) {
    for (const Instruction& each : *part) text += asked(program, each);
    text += '\n';
  }
  return text;
}

struct Played {
  Report report;
  std::string work;

  bool played() const { return report.time.basis == Basis::played && report.worst_rank().memory.basis == Basis::played; }
  std::vector<double> numbers() const {
    std::vector<double> all{report.time.step_seconds.expected, report.flops.hfu, report.flops.hardware_flops_per_token};
    for (const RankReport& rank : report.ranks)
      for (const Bytes bytes : {rank.memory.allocated, rank.memory.reserved, rank.host}) all.push_back(static_cast<double>(bytes.count));
    return all;
  }
};

Played run(const Case& drawn, const Options& options) {
  const Model model = load_model(drawn.model);
  const Cluster cluster = parse_cluster(drawn.cluster);
  Strategy said;
  set_options(said, options);
  const Strategy resolved = resolve(said, model, cluster);
  Played result;
  result.report = estimate(model, cluster, said);
  estimation::RankPrograms programs(model, resolved, cluster);
  if (result.played()) result.work = work_of(programs.of_stage(0));
  return result;
}

void expect_said(const Played& run, const Case& drawn) {
  if (run.played()) return;
  const auto& notes = run.report.notes;
  EXPECT_TRUE(std::any_of(notes.begin(), notes.end(), [](const std::string& note) { return note.find("closed form") != std::string::npos; }))
      << drawn.text();
}

TEST(Estimates, ChangeWithTheProgram) {
  int changed = 0, closed = 0;
  for (unsigned seed = 0; seed < 160; ++seed) {
    const Case drawn = draw(seed);
    try {
      const Played before = run(drawn, drawn.said);
      Options both = drawn.said;
      both.insert(both.end(), drawn.more.begin(), drawn.more.end());
      const Played after = run(drawn, both);
      expect_said(before, drawn);
      expect_said(after, drawn);
      if (!before.played() || !after.played()) {
        ++closed;
        continue;
      }
      if (before.work == after.work) continue;
      ++changed;
      EXPECT_NE(before.numbers(), after.numbers()) << drawn.text();
    } catch (const Error& error) {
      ASSERT_NE(error.code(), ErrorCode::internal) << error.what() << ": " << drawn.text();
    }
  }
  EXPECT_GT(changed, 40);
}

}  // namespace
}  // namespace plimsoll
