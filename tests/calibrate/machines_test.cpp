// A measured machine, from samples to a file to a step: what `plimsoll calibrate` wrote on an H100, its vendor's libraries left out, on a
// processor, and on an MI300 that is emulated, and what steps of models took on each. An order of magnitude is no timing test: each class of
// kernels is within a factor of 2, a step within 30 %.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>

#include "calibrate/environment.hpp"
#include "plimsoll/calibrate.hpp"
#include "plimsoll/cost.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {
namespace {

std::string data(const std::string& name) { return PLIMSOLL_SOURCE_DIR "/tests/calibrate/data/" + name; }

/// The machine as its file says it, which is what a user hands to --on.
Cluster through_its_file(const Calibration& calibration) {
  const std::string path = testing::TempDir() + std::to_string(getpid()) + "machine.json";
  std::ofstream(path) << to_json(calibration.cluster);
  Cluster cluster = parse_cluster(path);
  std::remove(path.c_str());
  return cluster;
}

/// Every class that was measured is priced, each within a factor of 2 in the median; none of the shares ended where a file's end.
void expect_priced(const Calibration& calibration, const std::set<std::string>& classes) {
  std::set<std::string> priced;
  for (const FitResidual& each : calibration.residuals) {
    priced.insert(each.what);
    if (classes.count(each.what) > 0) {
      EXPECT_LT(each.median, 1.0) << each.what;
    }
  }
  for (const std::string& each : classes) EXPECT_EQ(priced.count(each), 1U) << each << " was measured and is held against nothing";
  for (const ComputeRate& rate : calibration.cluster.accelerator.rates) {
    if (rate.sustained.provenance == Provenance::calibrated) {
      EXPECT_GT(rate.sustained.value, 0.02) << name_of(rate.type);
    }
  }
}

bool is_said(const Calibration& calibration, const std::string& text) {
  return std::any_of(calibration.notes.begin(), calibration.notes.end(), [&](const std::string& note) { return note.find(text) != std::string::npos; });
}

double step_seconds(const Cluster& machine, const std::string& model, const std::vector<std::pair<std::string, std::string>>& options) {
  Strategy strategy;
  set_options(strategy, options);
  return estimate(load_model(model), machine, strategy).time.step_seconds.expected;
}

// 117 products of cuBLAS and 147 of cuBLASLt left out: ours stand for none of theirs, so that the shipped constants stay, and are said to.
TEST(Machines, H100WithoutLibraries) {
  const Calibration found = fit_hardware(load_samples(data("h100-own-samples.jsonl")));
  EXPECT_EQ(found.base, "h100-sxm");
  expect_priced(found, {"stream elementwise", "stream reduction", "stream multi_tensor", "stream gather", "device_to_host", "host_to_device"});
  const Accelerator shipped = load_accelerator("h100-sxm");
  for (const ComputeRate& rate : found.cluster.accelerator.rates) EXPECT_EQ(rate.sustained.value, shipped.rate(rate.type).sustained.value) << name_of(rate.type);
  for (const char* type : {"bf16", "fp16", "fp8", "tf32", "fp64"}) EXPECT_TRUE(is_said(found, "products of " + std::string(type) + ": no library's")) << type;
  EXPECT_TRUE(is_said(found, "attention: our own kernels"));
  // Rows h100-sxm-gpt2-bf16-sdpa-b16-s1024-adamw and h100-sxm-llama-3.2-1b-bf16-sdpa-b4-s2048-adamw.
  Cluster machine = through_its_file(found);
  machine.nodes = machine.gpus_per_node = 1;
  const auto step = [&](const char* model, const char* micro_batch, const char* length) {
    return step_seconds(machine, model,
                        {{"micro_batch", micro_batch}, {"seq_len", length}, {"precision", "pure-bf16"}, {"gpus", "1"}, {"clip_grad_norm", "false"}});
  };
  EXPECT_NEAR(step("gpt2", "16", "1024") / 0.0943908, 1, 0.3);
  EXPECT_NEAR(step("llama-3.2-1b", "4", "2048") / 0.1914729, 1, 0.3);
}

// Two threads of an EPYC, `calibrate --backend cpu --seconds 60`; `replay gpt2 --on cpu.json --micro-batch 1 --seq 128 --precision fp32
// --attention eager` took 1.1096 s a minute later (63.6 s were said once, with the share of products at the clamp).
TEST(Machines, Processor) {
  const Calibration found = fit_hardware(load_samples(data("cpu-samples.jsonl")));
  EXPECT_EQ(found.base, "");
  expect_priced(found, {"gemm fp32", "gemm fp64", "gemm bf16", "attention", "attention_backward", "stream elementwise", "stream reduction",
                        "stream multi_tensor", "stream gather", "stream convolution", "device_to_host", "host_to_device"});
  const Cluster machine = through_its_file(found);
  EXPECT_GT(machine.accelerator.sustained(MathType::fp32).value, 0.1e12) << "219 products of 96.7 GFLOP took 0.75 s";
  const double step = step_seconds(machine, "gpt2", {{"micro_batch", "1"}, {"seq_len", "128"}, {"precision", "fp32"}, {"attention", "eager"}});
  EXPECT_NEAR(step / 1.1096, 1, 0.3);
}

// The samples are of one head; GPT-2 has twelve, which its two cores share evenly. A replay of GPT-2 (1 x 128, bf16) on such a machine took
// 383 us for a layer's forward pass and 1.16 ms for its backward pass, helpers included (29 November 2026).
TEST(Machines, ProcessorAttendsWithAllHeads) {
  const Cluster machine = through_its_file(fit_hardware(load_samples(data("cpu-samples.jsonl"))));
  Attention pass;
  pass.library = AttentionLibrary::flash2;
  pass.causal = true;
  pass.heads = pass.kv_heads = 12;
  pass.queries = pass.keys = 128;
  pass.head_dim = pass.value_dim = 64;
  EXPECT_LT(std::abs(std::log2(price(pass, machine.accelerator).value / 383e-6)), 1);
  pass.part = Attention::Part::backward;
  EXPECT_LT(std::abs(std::log2(price(pass, machine.accelerator).value / 1.16e-3)), 1);
}

// 304 compute units of the emulator (tests/calibrate/fake_hip), whose kernels take modelled time, with its libraries of products: the file of
// its samples prices what a replay on it takes. Indices of gathers and copies within a device have no samples: their paces are an MI300X's.
TEST(Machines, Mi300ThroughTheEmulator) {
  const Environment environment({{"PLIMSOLL_HIP_LIBRARY", PLIMSOLL_FAKE_HIP},
                                 {"PLIMSOLL_HIPBLASLT_LIBRARY", PLIMSOLL_FAKE_HIP},
                                 {"PLIMSOLL_ROCBLAS_LIBRARY", PLIMSOLL_FAKE_HIP},
                                 {"FAKE_HIP_TIME", "model"},
                                 {"FAKE_HIP_EXECUTE", "0"},
                                 {"FAKE_HIP_COMPUTE_UNITS", "304"},
                                 {"FAKE_HIP_MEMORY", "4294967296"}});
  const Calibration found = fit_hardware(load_samples(data("mi300-emulated-samples.jsonl")));
  EXPECT_EQ(found.base, "mi300x");
  expect_priced(found, {"gemm bf16", "gemm fp16", "gemm fp8", "gemm tf32", "gemm fp32", "gemm fp64", "stream elementwise", "stream reduction",
                        "stream multi_tensor", "stream gather", "device_to_host", "host_to_device"});
  EXPECT_TRUE(is_said(found, "attention: our own kernels"));
  const Cluster machine = through_its_file(found);
  Strategy strategy;
  set_options(strategy, {{"micro_batch", "2"}, {"seq_len", "512"}, {"precision", "pure-bf16"}, {"attention", "eager"}});
  const Model model = parse_model(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 2816,
      "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 8192, "max_position_embeddings": 2048,
      "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "hidden_act": "silu"})", "config.json", "medium");
  ReplayOptions options;
  options.backend = "hip";
  options.steps = 2;
  const Replay replayed = replay(playable_rank(model, machine, strategy, 0), machine, options);
  std::set<std::string> held;
  for (const ReplayLine& line : replayed.lines) {
    if (line.what != "gemm" && line.what != "elementwise" && line.what != "reduction" && line.what != "multi_tensor") continue;
    held.insert(line.what);
    EXPECT_LT(line.predicted, 2 * line.measured) << line.what;
    EXPECT_GT(line.predicted, line.measured / 2) << line.what;
  }
  EXPECT_EQ(held.size(), 4U);
  EXPECT_NEAR(replayed.predicted_step / replayed.measured_step, 1, 0.3);
}

// A calibration that was cut off after its smallest products (2 us each, what a launch takes): they tell no rate, so that the shipped
// one stays, and a note says so. 2.1 TFLOP/s of bf16 stood in the file before.
TEST(Machines, SmallProductsTellNoRate) {
  SampleSet set = load_samples(data("mi300-emulated-samples.jsonl"));
  std::erase_if(set.samples, [](const Sample& sample) { return sample.kind == SampleKind::gemm && sample.flops > 5e6; });
  ASSERT_TRUE(std::any_of(set.samples.begin(), set.samples.end(), [](const Sample& sample) { return sample.kind == SampleKind::gemm && sample.type == "bf16"; }));
  const Calibration found = fit_hardware(set);
  EXPECT_EQ(found.cluster.accelerator.rate(MathType::bf16).sustained.value, load_accelerator("mi300x").rate(MathType::bf16).sustained.value);
  EXPECT_TRUE(is_said(found, "products of bf16: all take about as long as a call"));
}

}  // namespace
}  // namespace plimsoll
