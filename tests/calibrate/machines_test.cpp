// A measured machine, from samples to a file to a step: what `plimsoll calibrate` wrote on an H100, its vendor's libraries left out, and what
// steps of models took on one (bench/corpus/silicon-h100.json). An order of magnitude is no timing test: each class of kernels is within a
// factor of 2, a step within 30 %.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>

#include "plimsoll/calibrate.hpp"
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
    if (classes.count(each.what) > 0) EXPECT_LT(each.median, 1.0) << each.what;
  }
  for (const std::string& each : classes) EXPECT_EQ(priced.count(each), 1U) << each << " was measured and is held against nothing";
  for (const ComputeRate& rate : calibration.cluster.accelerator.rates)
    if (rate.sustained.provenance == Provenance::calibrated) EXPECT_GT(rate.sustained.value, 0.02) << name_of(rate.type);
}

// 117 products of cuBLAS and 147 of cuBLASLt left out: ours stand for none of theirs, so that the shipped constants stay, and are said to.
TEST(Machines, H100WithoutLibraries) {
  const Calibration found = fit_hardware(load_samples(data("h100-own-samples.jsonl")));
  EXPECT_EQ(found.base, "h100-sxm");
  expect_priced(found, {"stream elementwise", "stream reduction", "stream multi_tensor", "stream gather", "device_to_host", "host_to_device"});
  const Accelerator shipped = load_accelerator("h100-sxm");
  for (const ComputeRate& rate : found.cluster.accelerator.rates) EXPECT_EQ(rate.sustained.value, shipped.rate(rate.type).sustained.value) << name_of(rate.type);
  const auto said = [&](const std::string& text) {
    return std::any_of(found.notes.begin(), found.notes.end(), [&](const std::string& note) { return note.find(text) != std::string::npos; });
  };
  for (const char* type : {"bf16", "fp16", "fp8", "tf32", "fp64"}) EXPECT_TRUE(said("products of " + std::string(type) + ": no library's")) << type;
  EXPECT_TRUE(said("attention: our own kernels"));
  // Rows h100-sxm-gpt2-bf16-sdpa-b16-s1024-adamw and h100-sxm-llama-3.2-1b-bf16-sdpa-b4-s2048-adamw.
  const Cluster machine = through_its_file(found);
  const auto step = [&](const char* model, const char* micro_batch, const char* length) {
    Strategy strategy;
    set_options(strategy, {{"micro_batch", micro_batch}, {"seq_len", length}, {"precision", "pure-bf16"}, {"gpus", "1"}, {"clip_grad_norm", "false"}});
    Cluster one = machine;
    one.nodes = one.gpus_per_node = 1;
    return estimate(load_model(model), one, strategy).time.step_seconds.expected;
  };
  EXPECT_NEAR(step("gpt2", "16", "1024") / 0.0943908, 1, 0.3);
  EXPECT_NEAR(step("llama-3.2-1b", "4", "2048") / 0.1914729, 1, 0.3);
}

}  // namespace
}  // namespace plimsoll
