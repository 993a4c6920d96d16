// Events per second of the caching allocator, on a program with a training step's mix of sizes and lifetimes.
#include <benchmark/benchmark.h>

#include <random>

#include "plimsoll/memory.hpp"

namespace {

using namespace plimsoll;

/// Each layer allocates a few tensors in the forward pass and frees them in the backward pass, with short-lived ones between.
StepProgram layered_program(int layers) {
  StepProgram program;
  std::mt19937 random(7);
  std::uniform_int_distribution<std::int64_t> exponent(9, 27);
  TensorId next = 0;
  const auto alloc = [&] {
    Instruction instruction{InstructionKind::alloc};
    instruction.id = next;
    instruction.bytes = std::int64_t{1} << exponent(random);
    program.step.push_back(instruction);
    return next++;
  };
  const auto release = [&](TensorId id) {
    Instruction instruction{InstructionKind::free};
    instruction.id = id;
    program.step.push_back(instruction);
  };
  std::vector<TensorId> saved;
  for (int layer = 0; layer < layers; ++layer)
    for (int i = 0; i < 12; ++i) {
      saved.push_back(alloc());
      release(alloc());
    }
  for (; !saved.empty(); saved.pop_back()) {
    const TensorId gradient = alloc();
    release(saved.back());
    release(gradient);
  }
  return program;
}

void allocator_events(benchmark::State& state) {
  const StepProgram program = layered_program(static_cast<int>(state.range(0)));
  PlayMemoryOptions options;
  options.skip_recurring_steps = false;
  for (auto _ : state) benchmark::DoNotOptimize(play_memory(program, options));
  state.counters["events/s"] = benchmark::Counter(
      static_cast<double>(program.step.size()) * options.steps * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(allocator_events)->Arg(32)->Arg(126)->Unit(benchmark::kMillisecond);

}  // namespace
