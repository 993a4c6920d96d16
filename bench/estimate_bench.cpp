// What an answer costs: as a library call, and as a whole process from exec to exit.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "plimsoll/plimsoll.hpp"

extern char** environ;

namespace {

using namespace plimsoll;

struct Case {
  const char *name, *model, *cluster;
  std::vector<std::pair<const char*, const char*>> options;
};

/// The runs that the project promises: 8B in 4 ms through `serve`, the others in 60 ms as library calls. The second of them (128 micro-batches
/// on 16 pipeline stages) under TorchTitan as well, the first one with many micro-batches to accumulate over; MT-NLG 530B as Korthikanti 2022
/// ran it, on 35 stages of three chunks each.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"llama-3.1-8b_8_gpus", "llama-3.1-8b", "8xmi300x", {{"data_parallel", "fsdp"}, {"micro_batch", "2"}, {"seq_len", "8192"}}},
      {"llama-3.1-8b_8_gpus_1024_micro_batches",
       "llama-3.1-8b",
       "8xmi300x",
       {{"data_parallel", "fsdp"}, {"micro_batch", "2"}, {"global_batch", "16384"}, {"seq_len", "8192"}}},
      {"llama-3.1-405b_16384_gpus",
       "llama-3.1-405b",
       "2048x8xh100-sxm",
       {{"framework", "megatron"}, {"tp", "8"}, {"pp", "16"}, {"micro_batch", "1"}, {"global_batch", "16384"}, {"seq_len", "8192"}}},
      {"llama-3.1-405b_16384_gpus_torchtitan",
       "llama-3.1-405b",
       "2048x8xh100-sxm",
       {{"framework", "torchtitan"},
        {"tp", "8"},
        {"pp", "16"},
        {"sequence_parallel", "true"},
        {"recompute", "full"},
        {"micro_batch", "1"},
        {"global_batch", "16384"},
        {"seq_len", "8192"}}},
      {"mt_nlg_530b_280_gpus_interleaved",
       PLIMSOLL_BENCH_FOLDER "/mt-nlg-530b.json",
       "35x8xa100-80gb-sxm",
       {{"framework", "megatron"},
        {"tp", "8"},
        {"pp", "35"},
        {"vp", "3"},
        {"recompute", "full"},
        {"micro_batch", "1"},
        {"global_batch", "280"},
        {"seq_len", "2048"}}},
  };
  return all;
}

Strategy strategy_of(const Case& one) {
  Strategy strategy;
  for (const auto& [key, value] : one.options) set_option(strategy, key, value);
  return strategy;
}

void library_call(benchmark::State& state, const Case& one) {
  const Model model = load_model(one.model);
  const Cluster cluster = parse_cluster(one.cluster);
  const Strategy strategy = strategy_of(one);
  for (auto _ : state) benchmark::DoNotOptimize(estimate(model, cluster, strategy));
}

/// Everything from the names on: reading the model and the hardware, estimating, writing JSON.
void from_names(benchmark::State& state, const Case& one) {
  for (auto _ : state) benchmark::DoNotOptimize(to_json(estimate(load_model(one.model), parse_cluster(one.cluster), strategy_of(one))));
}

std::vector<std::string> command_line(const Case& one) {
  std::vector<std::string> words{PLIMSOLL_PROGRAM, "estimate", one.model, "--on", one.cluster};
  for (const auto& [key, value] : one.options) {
    std::string flag = std::string("--") + key;
    for (char& c : flag)
      if (c == '_') c = '-';
    words.push_back(flag);
    words.push_back(value);
  }
  return words;
}

int run_process(std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (failed != 0 || waitpid(child, &status, 0) < 0) return 128;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

void whole_process(benchmark::State& state, const Case& one) {
  auto words = command_line(one);
  for (auto _ : state)
    if (run_process(words) > 1) state.SkipWithError("the program failed");
}

const bool kRegistered = [] {
  for (const Case& one : cases()) {
    benchmark::RegisterBenchmark((std::string("library_call/") + one.name).c_str(), library_call, one)
        ->Unit(benchmark::kMillisecond)
        ->MeasureProcessCPUTime();
    benchmark::RegisterBenchmark((std::string("from_names/") + one.name).c_str(), from_names, one)->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark((std::string("whole_process/") + one.name).c_str(), whole_process, one)
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  }
  return true;
}();

}  // namespace
