// How many plans a second are composed on one core, and what is allocated for each.
#include <benchmark/benchmark.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

#include "plimsoll/plimsoll.hpp"
#include "search/finalists.hpp"

namespace {

std::atomic<std::uint64_t> allocations{0};

}  // namespace

// Not inlined, or GCC 12 sees new and free meet in one function and warns.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

using namespace plimsoll;
using namespace plimsoll::searching;

/// GPT-3 on 64 A100: every layout's degrees, sharding and micro-batch, recomputation with every number of layers. Tables are made of a
/// sample of its layouts: what a plan costs does not depend on how many there are.
SearchRequest gpt3_on_64() {
  SearchRequest request;
  request.model = load_model("gpt-3-175b");
  request.cluster = parse_cluster("8x8xa100-80gb-sxm");
  request.sample = 600;
  set_options(request.base, {{"global_batch", "1536"}, {"seq", "2048"}, {"framework", "megatron-core"}});
  SearchAxis depths{kRecomputedLayers, {""}};
  for (int n = 1; n < 96; ++n) depths.values.push_back(std::to_string(n));
  request.axes = {{"data_parallel", {"ddp", "megatron-distopt"}}, {"recompute", {"none", "selective", "full"}}, depths};
  return request;
}

/// The tables of a space, made once: what follows is what a plan costs.
struct Prepared {
  SearchRequest request;
  SearchWatcher nobody;
  Watch watch{nobody};
  Space space;
  Layouts layouts;
  State state;
  Screen screen;

  explicit Prepared(SearchRequest of)
      : request(std::move(of)), space(request), layouts(find_layouts(space, request, watch)), screen(space, request, layouts, state) {
    screen.summarize(watch);
  }
};

Prepared& prepared() {
  static Prepared made(gpt3_on_64());
  return made;
}

/// Composing alone.
void compose(benchmark::State& state) {
  Prepared& of = prepared();
  std::uint64_t plans = 0;
  const std::uint64_t before = allocations;
  for (auto _ : state)
    for (std::uint32_t layout = 0; layout < of.layouts.legal.size(); ++layout)
      of.screen.each(layout, [&](const Screened& plan) {
        benchmark::DoNotOptimize(plan.seconds + plan.bytes);
        plans += plan.known;
      });
  state.counters["plans_per_second"] = benchmark::Counter(static_cast<double>(plans), benchmark::Counter::kIsRate);
  state.counters["allocations_per_plan"] = static_cast<double>(allocations - before) / static_cast<double>(plans);
}
BENCHMARK(compose)->Unit(benchmark::kMillisecond);

/// With everything that a search keeps of them, on one core and on two.
void sift_all(benchmark::State& state) {
  Prepared& of = prepared();
  of.request.threads = static_cast<int>(state.range(0));
  std::uint64_t plans = 0;
  const std::uint64_t before = allocations;
  for (auto _ : state) plans += sift(of.screen, of.layouts, of.request, of.watch).screened;
  state.counters["plans_per_second"] = benchmark::Counter(static_cast<double>(plans), benchmark::Counter::kIsRate);
  state.counters["allocations_per_plan"] = static_cast<double>(allocations - before) / static_cast<double>(plans);
}
BENCHMARK(sift_all)->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK(sift_all)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();

/// From the request to the answer: layouts judged, instances estimated, plans composed, the best estimated.
void whole_search(benchmark::State& state, const char* model, const char* cluster, const char* batch, const char* sequence) {
  SearchRequest request;
  request.model = load_model(model);
  request.cluster = parse_cluster(cluster);
  set_options(request.base, {{"global_batch", batch}, {"seq", sequence}, {"framework", "megatron-core"}});
  for (auto _ : state) {
    const SearchResult result = search(request);
    state.counters["plans"] = static_cast<double>(result.screened);
    state.counters["estimates"] = static_cast<double>(result.estimated);
  }
}
BENCHMARK_CAPTURE(whole_search, gpt_3_175b_64_gpus, "gpt-3-175b", "8x8xa100-80gb-sxm", "1536", "2048")
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Iterations(1);
BENCHMARK_CAPTURE(whole_search, llama_3_1_405b_16384_gpus, "llama-3.1-405b", "2048x8xh100-sxm", "16384", "8192")
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Iterations(1);

}  // namespace
