// How close a predicted step comes to the same step executed on this machine's processor, calibrated just before: reported, never asserted.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <fstream>

#include "plimsoll/calibrate.hpp"
#include "plimsoll/strategy.hpp"

namespace {

using namespace plimsoll;

constexpr const char* kConfig =
    R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 2048, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": false, "hidden_act": "silu", "torch_dtype": "float32"})";
constexpr double kSeconds = 20;

Model small_llama() {
  const auto path = std::filesystem::temp_directory_path() / "plimsoll-bench-config.json";
  std::ofstream(path) << kConfig;
  Model model = load_model(path.string());
  std::filesystem::remove(path);
  return model;
}

/// This machine's processor, measured; its threads are gone when this returns, so that a replay has the cores to itself.
Cluster calibrated(const Model& model, const Strategy& strategy, benchmark::State& state) {
  MeasureOptions options;
  options.backend = "cpu";
  options.seconds = kSeconds;
  MeasureSession session(options);
  session.measure_machine(0.5);
  const Cluster first = fit_hardware(session.set()).cluster;
  session.measure_program(playable_rank(model, first, strategy, 0), 0.5);
  state.counters["warnings"] = static_cast<double>(session.warnings().size());
  return fit_hardware(session.set()).cluster;
}

void replayed_step(benchmark::State& state) {
  const Model model = small_llama();
  Strategy strategy;
  for (const auto& [key, value] : {std::pair{"micro_batch", "2"}, {"seq", "128"}, {"precision", "fp32"}, {"attention", "eager"}})
    set_option(strategy, key, value);
  for (auto _ : state) {
    const Cluster cluster = calibrated(model, strategy, state);
    ReplayOptions replay_options;
    replay_options.backend = "cpu";
    const Replay result = replay(playable_rank(model, cluster, strategy, 0), cluster, replay_options);
    state.counters["predicted_ms"] = result.predicted_step * 1e3;
    state.counters["measured_ms"] = result.measured_step * 1e3;
    state.counters["error_percent"] = 100 * (result.predicted_step / result.measured_step - 1);
  }
}
BENCHMARK(replayed_step)->Iterations(1)->Unit(benchmark::kSecond);

}  // namespace
