// What nobody doubts of a training step, over random models, strategies, frameworks and devices: its parts add up to it, it does no more
// than the device's peak, more work takes no less memory and time, what leaves the device is somewhere else, and adapters and sharding
// save states. Steps of different methods (played, closed form) are not compared: their difference is that of the methods.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "plimsoll/error.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {
namespace {

using Options = std::vector<std::pair<std::string, std::string>>;

struct Drawn {
  std::string model, cluster;
  Options options;

  Drawn with(const std::string& key, const std::string& value) const {
    Drawn more = *this;
    std::erase_if(more.options, [&](const auto& each) { return each.first == key; });
    more.options.emplace_back(key, value);
    return more;
  }
  std::string text() const {
    std::string line = model + " --on " + cluster;
    for (const auto& [key, value] : options) line += " --" + key + " " + value;
    return line;
  }
};

Drawn draw(unsigned seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](const std::vector<std::string>& values) {
    return values[std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random)];
  };
  Drawn run{
      one_of({"gpt2", "llama-3.2-1b", "qwen3-0.6b", "olmo-1b", "pythia-410m", "bert-base-uncased", "t5-small", "granite-3.0-1b-a400m"}),
      one_of({"1xh100-sxm", "8xh100-sxm", "8xmi300x", "4xa100-40gb", "2x8xh200", "1xl4", "8xv100-sxm2"}),
      {{"micro_batch", one_of({"1", "2"})}, {"seq_len", one_of({"128", "256"})}}};
  const std::vector<Options> runners{{},
                                     {{"data_parallel", "fsdp2"}},
                                     {{"data_parallel", "ddp"}},
                                     {{"zero", "1"}},
                                     {{"zero", "2"}},
                                     {{"zero", "3"}},
                                     {{"framework", "torchtitan"}},
                                     {{"framework", "torchtune"}},
                                     {{"framework", "megatron-core"}},
                                     {{"framework", "nemo"}},
                                     {{"framework", "accelerate"}, {"data_parallel", "fsdp1"}}};
  const Options runner = runners[std::uniform_int_distribution<std::size_t>(0, runners.size() - 1)(random)];
  run.options.insert(run.options.end(), runner.begin(), runner.end());
  return run;
}

std::optional<Report> estimated(const Drawn& run) {
  try {
    Strategy strategy;
    set_options(strategy, run.options);
    return estimate(load_model(run.model), parse_cluster(run.cluster), strategy);
  } catch (const Error& error) {
    EXPECT_NE(error.code(), ErrorCode::internal) << error.what() << ": " << run.text();
    return std::nullopt;
  }
}

double seconds(const Report& report) { return report.time.step_seconds.expected; }
double allocated(const Report& report) { return static_cast<double>(report.worst_rank().memory.allocated.count); }

double states(const Report& report) {
  double sum = 0;
  for (const MemoryPart& part : report.worst_rank().memory.parts)
    if (part.name == "parameters" || part.name == "gradients" || part.name == "optimizer_states")
      sum += static_cast<double>(part.bytes.count);
  return sum;
}

bool alike(const Report& one, const Report& other) {
  return one.time.basis == other.time.basis && one.worst_rank().memory.basis == other.worst_rank().memory.basis;
}

void expect_sound(const Drawn& run, const Report& report) {
  const RankMemory& memory = report.worst_rank().memory;
  double parts = 0, times = 0;
  for (const MemoryPart& part : memory.parts) {
    EXPECT_GE(part.bytes.count, 0) << part.name << ": " << run.text();
    parts += static_cast<double>(part.bytes.count);
  }
  for (const TimePart& part : report.time.breakdown) {
    EXPECT_GE(part.seconds.value, 0) << part.name << ": " << run.text();
    times += part.seconds.value;
  }
  EXPECT_NEAR(parts, memory.device.expected, 2) << run.text();
  EXPECT_NEAR(times, seconds(report), 1e-6 + 1e-3 * seconds(report)) << run.text();
  EXPECT_LE(memory.allocated, memory.reserved) << run.text();
  EXPECT_LT(report.flops.hfu, 1) << run.text();
  EXPECT_EQ(report.verdict == Verdict::does_not_fit,
            memory.out_of_memory || memory.device.expected > static_cast<double>(memory.capacity.count))
      << run.text();
}

// The allocator splits its blocks elsewhere when the tensors before them are larger: a peak among the states, which neither length nor
// batch changes, moves by a few blocks of 2 MiB.
constexpr double kBlocks = 32 << 20;

TEST(Steps, MoreWorkTakesNoLess) {
  int compared = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    const Drawn run = draw(seed);
    const auto before = estimated(run);
    if (!before) continue;
    expect_sound(run, *before);
    for (const auto& [key, value] : Options{{"micro_batch", "4"}, {"seq_len", "512"}, {"recompute", "full"}}) {
      const Drawn more = run.with(key, value);
      const auto after = estimated(more);
      if (!after || !alike(*before, *after)) continue;
      ++compared;
      expect_sound(more, *after);
      EXPECT_GE(seconds(*after), 0.999 * seconds(*before)) << more.text() << " against " << run.text();
      if (key == "recompute")
        EXPECT_LE(allocated(*after), allocated(*before) + kBlocks) << more.text();
      else
        EXPECT_GE(allocated(*after), allocated(*before) - kBlocks) << more.text() << " against " << run.text();
    }
  }
  EXPECT_GT(compared, 60);
}

TEST(Steps, WhatLeavesTheDeviceIsOnTheHost) {
  int played = 0;
  for (unsigned seed = 100; seed < 150; ++seed) {
    const Drawn run = draw(seed);
    const auto before = estimated(run);
    if (!before) continue;
    for (const char* what : {"activations", "optimizer", "params+grads+optimizer"}) {
      const Drawn away = run.with("offload", what);
      const auto after = estimated(away);
      if (!after || !alike(*before, *after) || after->time.basis != Basis::played) continue;
      ++played;
      EXPECT_GT(after->ranks.front().host.count, 0) << away.text();
      EXPECT_GE(seconds(*after), 0.999 * seconds(*before)) << away.text();
      EXPECT_LE(allocated(*after), allocated(*before) + kBlocks) << away.text();
    }
  }
  EXPECT_GT(played, 15);
}

// An optimizer on the host reads gradients that the device computed last, so that nothing is left to run beside it: to the step without the
// device's optimizer come all of its bytes, 28 of a parameter at least (AdamW in one pass), at the node's memory bandwidth, which its eight
// ranks share.
TEST(Steps, TheHostStepsBehindTheGradients) {
  const Cluster cluster = parse_cluster("2x8xh100-sxm");
  for (const Options& options :
       {Options{{"zero", "1"}}, Options{{"zero", "2"}}, Options{{"zero", "3"}}, Options{{"data_parallel", "fsdp1"}},
        Options{{"data_parallel", "fsdp2"}}, Options{{"framework", "torchtitan"}}}) {
    Drawn run{"llama-3.2-1b", "2x8xh100-sxm", options};
    run = run.with("seq_len", "512").with("micro_batch", "2");
    const bool zero = options.front().first == "zero";
    const auto on_device = estimated(run), on_host = estimated(run.with("offload", zero ? "optimizer" : "params+grads+optimizer"));
    ASSERT_TRUE(on_device && on_host) << run.text();
    double optimizer = 0;
    for (const TimePart& part : on_device->time.breakdown)
      if (part.name == "optimizer") optimizer = part.seconds.value;
    const Seconds least = Bytes(28 * on_host->parameters / 16 * 8) / cluster.node.host_memory_bandwidth.value;
    EXPECT_GE(seconds(*on_host), seconds(*on_device) - optimizer + 0.95 * least.value) << run.text();
  }
}

TEST(Steps, ShardingAndAdaptersSaveStates) {
  const std::vector<std::string> models{"gpt2", "llama-3.2-1b", "qwen3-0.6b", "olmoe-1b-7b"};
  for (const std::string& model : models) {
    double least = 0;
    for (const char* stage : {"3", "2", "1", "0"}) {  // each earlier stage shards no more of the states
      const Drawn run{model, "8xh100-sxm", {{"zero", stage}, {"micro_batch", "1"}, {"seq_len", "128"}}};
      const auto report = estimated(run);
      if (!report) continue;
      EXPECT_GE(states(*report), 0.999 * least) << run.text();
      least = states(*report);
    }
    const Drawn whole{model, "8xh100-sxm", {{"data_parallel", "fsdp2"}, {"micro_batch", "1"}, {"seq_len", "128"}}};
    const auto trained = estimated(whole), adapted = estimated(whole.with("lora.r", "8")),
               spread = estimated({model, "2x8xh100-sxm", whole.options});
    if (trained && adapted) EXPECT_LT(allocated(*adapted), allocated(*trained)) << whole.text();
    if (trained && spread) EXPECT_LE(states(*spread), 1.001 * states(*trained)) << whole.text();
  }
}

}  // namespace
}  // namespace plimsoll
