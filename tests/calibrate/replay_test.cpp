// A small transformer's step, executed on the processor. What is counted must be exactly what the program says; times are only sane.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "plimsoll/calibrate.hpp"
#include "plimsoll/cost.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/rows.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {
namespace {

constexpr const char* kConfig =
    R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 512, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": false, "hidden_act": "silu", "torch_dtype": "float32"})";

/// A processor of round numbers, as calibrate writes it.
Cluster machine() {
  SampleSet set;
  set.device.backend = "cpu";
  set.device.name = "test processor";
  set.device.compute_units = 2;
  set.device.memory_bytes = std::int64_t{8} << 30;
  for (std::int64_t n : {64, 128, 256, 512}) {
    for (const char* type : {"fp32", "bf16"}) {
      Sample product;
      product.kind = SampleKind::gemm;
      product.type = type;
      product.m = product.n = product.k = n;
      product.flops = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
      product.seconds = product.fastest = 2e-6 + product.flops / 50e9;
      set.samples.push_back(product);
    }
    Sample stream;
    stream.kind = SampleKind::stream;
    stream.group = "elementwise";
    stream.bytes = n * 4096;
    stream.seconds = stream.fastest = 1e-6 + static_cast<double>(stream.bytes) / 20e9;
    set.samples.push_back(stream);
  }
  return fit_hardware(set, {"test-cpu", ""}).cluster;
}

/// Emulated devices of both vendors, whose kernels take modelled time and compute nothing.
class FakeDevices {
 public:
  FakeDevices() {
    for (const auto& [name, value] : settings_) setenv(name, value, 1);
  }
  ~FakeDevices() {
    for (const auto& [name, value] : settings_) unsetenv(name);
  }
  FakeDevices(const FakeDevices&) = delete;
  FakeDevices& operator=(const FakeDevices&) = delete;

 private:
  std::vector<std::pair<const char*, const char*>> settings_{
      {"PLIMSOLL_HIP_LIBRARY", PLIMSOLL_FAKE_HIP},   {"FAKE_HIP_TIME", "model"},  {"FAKE_HIP_EXECUTE", "0"},
      {"PLIMSOLL_CUDA_LIBRARY", PLIMSOLL_FAKE_CUDA}, {"FAKE_CUDA_TIME", "model"}, {"FAKE_CUDA_EXECUTE", "0"}};
};

class ReplayTest : public testing::Test {
 protected:
  ReplayTest() {
    std::ofstream(config_) << kConfig;
    model_ = load_model(config_);
    for (const auto& [key, value] : settings_) set_option(strategy_, key, value);
    cluster_ = machine();
  }
  ~ReplayTest() override { std::remove(config_.c_str()); }
  PlayableRank rank() const { return playable_rank(model_, cluster_, strategy_, 0); }

  std::string config_ = testing::TempDir() + std::to_string(getpid()) + "small-llama-config.json";
  std::vector<std::pair<std::string, std::string>> settings_{
      {"micro_batch", "1"}, {"seq", "64"}, {"precision", "fp32"}, {"attention", "eager"}};
  Model model_;
  Strategy strategy_;
  Cluster cluster_;
};

TEST_F(ReplayTest, DoesExactlyWhatTheProgramSays) {
  const PlayableRank playable = rank();
  ReplayOptions options;
  options.backend = "cpu";
  options.steps = 2;
  const Replay result = replay(playable, cluster_, options);

  std::int64_t kernels = 0;
  double flops = 0, bytes = 0;
  for (const Instruction& instruction : playable.program.step) {
    if (instruction.kind != InstructionKind::kernel) continue;
    const Kernel& kernel = playable.program.kernels[instruction.id];
    ++kernels;
    flops += kernel.flops();
    bytes += static_cast<double>(kernel.bytes());
  }
  double done_flops = 0, done_bytes = 0;
  for (const ReplayLine& line : result.lines) {
    if (line.what == kCopiesLine || line.what == kHostLine) continue;
    done_flops += line.done_flops;
    done_bytes += line.done_bytes;
    EXPECT_GT(line.measured, 0) << line.what;
    EXPECT_GT(line.predicted, 0) << line.what;
  }
  EXPECT_GT(kernels, 100);
  EXPECT_EQ(result.kernels(), kernels);
  EXPECT_EQ(done_flops, flops);
  EXPECT_EQ(done_bytes, bytes);

  const MemoryTrace played = play_memory(playable.program, playable.options);
  EXPECT_EQ(result.replayed_allocated, played.peak_allocated);
  EXPECT_EQ(result.replayed_reserved, played.peak_reserved);
  EXPECT_EQ(result.driver_peak, played.peak_reserved);  // what the allocator reserves, the system really gave
  EXPECT_GT(result.measured_step, 0);
  EXPECT_GE(result.taken, 0);
  EXPECT_LT(result.taken, 1);
  EXPECT_EQ(result.steps, 2);
  // The step's lines are all there is on a processor, and this machine's file has no clock to compare with.
  double sum = 0;
  for (const ReplayLine& line : result.lines) sum += line.predicted;
  EXPECT_DOUBLE_EQ(result.predicted_step, sum);
  EXPECT_FALSE(result.slowdown.has_value());
  EXPECT_DOUBLE_EQ(result.predicted_now, result.predicted_step);
  EXPECT_NE(to_text(result).find("equal"), std::string::npos);
}

// Of twelve accumulated micro-batches eight are recorded, one of them for all that are left out: the replay runs all twelve.
TEST_F(ReplayTest, RepeatedMicroBatchesRunAsOftenAsTheyAreMeant) {
  set_option(strategy_, "grad_accum", "12");
  const PlayableRank playable = rank();
  const StepProgram& program = playable.program;
  ASSERT_GT(program.repeated.times, 1);
  std::int64_t kernels = 0;
  for (std::size_t i = 0; i < program.step.size(); ++i)
    if (program.step[i].kind == InstructionKind::kernel) kernels += program.repeated.runs_of(i);
  ReplayOptions options;
  options.backend = "cpu";
  options.steps = 1;
  const Replay result = replay(playable, cluster_, options);
  EXPECT_EQ(result.kernels(), kernels);
  const MemoryTrace played = play_memory(program, playable.options);
  EXPECT_EQ(result.replayed_allocated, played.peak_allocated);
  EXPECT_EQ(result.replayed_reserved, played.peak_reserved);
}

TEST_F(ReplayTest, ItsRowIsAMeasuredRow) {
  ReplayOptions options;
  options.backend = "cpu";
  options.steps = 1;
  const Replay result = replay(rank(), cluster_, options);
  const std::string machine_file = testing::TempDir() + std::to_string(getpid()) + "replay-cpu.json",
                    row_file = testing::TempDir() + std::to_string(getpid()) + "replay-row.json";
  std::ofstream(machine_file) << to_json(cluster_);
  std::ofstream(row_file) << replay_row(result, "small-llama", kConfig, machine_file, settings_);
  const auto rows = load_rows(row_file);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].refused, "");
  ASSERT_TRUE(rows[0].cluster.has_value());
  EXPECT_EQ(rows[0].cluster->accelerator.name, "test-cpu");
  double allocated = 0, step = 0;
  for (const Observed& observed : rows[0].measured) {
    if (observed.quantity == quantity::allocated) allocated = observed.value;
    if (observed.quantity == quantity::step_seconds) step = observed.value;
  }
  EXPECT_EQ(allocated, static_cast<double>(result.replayed_allocated.count));
  EXPECT_DOUBLE_EQ(step, result.measured_step);
  std::remove(machine_file.c_str());
  std::remove(row_file.c_str());
}

TEST_F(ReplayTest, FusedAttentionRunsWithItsShape) {
  // Heads of 64 over 128 tokens in bf16: the program's attention kernel is one of the table's.
  std::string config = kConfig;
  const std::string four = R"("num_attention_heads": 4, "num_key_value_heads": 4)";
  config.replace(config.find(four), four.size(), R"("num_attention_heads": 2, "num_key_value_heads": 2)");
  std::ofstream(config_) << config;
  model_ = load_model(config_);
  for (const auto& [key, value] : {std::pair{"precision", "pure-bf16"}, {"attention", "sdpa"}, {"seq", "128"}})
    set_option(strategy_, key, value);
  cluster_.accelerator.rates.push_back(
      {MathType::bf16, cluster_.accelerator.rates.front().peak, cluster_.accelerator.rates.front().sustained});
  ReplayOptions options;
  options.backend = "cpu";
  options.steps = 1;
  const Replay result = replay(rank(), cluster_, options);
  bool forward = false, backward = false;
  for (const ReplayLine& line : result.lines) {
    forward = forward || (line.what == "attention" && line.count >= 2);
    backward = backward || (line.what == "attention_backward" && line.count >= 2);
    // Causal pairs: the program counts n² / 2, the kernel n · (n + 1) / 2: one part in n more. Backward sums dO·O first: one part in 5n.
    if (line.what.rfind("attention", 0) == 0) {
      EXPECT_NEAR(line.done_flops, line.flops, 0.012 * line.flops) << line.what;
    }
  }
  EXPECT_TRUE(forward && backward);
}

TEST_F(ReplayTest, HeadsAndSequencesFillTheKernelsTiles) {
  cluster_.accelerator.rates.push_back(
      {MathType::bf16, cluster_.accelerator.rates.front().peak, cluster_.accelerator.rates.front().sustained});
  set_option(strategy_, "precision", "pure-bf16");
  set_option(strategy_, "attention", "sdpa");
  ReplayOptions options;
  options.backend = "cpu";
  options.steps = 1;
  bool ran = false;
  for (const ReplayLine& line : replay(rank(), cluster_, options).lines) {
    if (line.what != "attention") continue;
    ran = true;
    // Four heads of 32 over 64 positions run as heads of 64 over 128: 2 · 128 · 129 / 2 pairs and widths where the program has 64² / 2.
    EXPECT_DOUBLE_EQ(line.done_flops / line.flops, 2 * (128 * 129 / 2) / (64 * 64 / 2.0));
  }
  EXPECT_TRUE(ran);
}

TEST_F(ReplayTest, IsPredictedAtTheClockOfTheReplay) {
  // A machine that was calibrated when its reference kernels took no time to speak of: now everything takes longer.
  cluster_.accelerator.measurements.push_back(
      {"reference", "", "calibration", Provenance::measured, {{"product", "0.001 us"}, {"stream", "0.001 us"}}});
  ReplayOptions options;
  options.backend = "cpu";
  options.steps = 1;
  const Replay result = replay(rank(), cluster_, options);
  ASSERT_TRUE(result.slowdown.has_value());
  EXPECT_GT(result.slowdown->product, 1000);
  EXPECT_GT(result.slowdown->stream, 1000);
  EXPECT_GT(result.predicted_now, 1000 * result.predicted_step);
  for (const ReplayLine& line : result.lines) {
    if (line.what == name_of(KernelKind::gemm)) {
      EXPECT_NEAR(line.predicted_now, result.slowdown->product * line.predicted, 1e-9 * line.predicted_now);
    }
  }
}

TEST_F(ReplayTest, RefusesWhatNoKernelDoes) {
  set_option(strategy_, "attention", "sdpa");
  ReplayOptions options;
  options.backend = "cpu";
  try {
    replay(rank(), cluster_, options);
    FAIL() << "fused attention of fp32 has no kernel";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::refused) << error.what();
    EXPECT_NE(std::string(error.what()).find("attention of fp32"), std::string::npos) << error.what();
  }
}

TEST_F(ReplayTest, PeersWithoutOtherProcessesAreRefused) {
  ReplayOptions options;
  options.backend = "cpu";
  options.collectives = true;
  EXPECT_THROW(replay(rank(), cluster_, options), Error);
}

TEST_F(ReplayTest, ExpandableSegmentsGrowPageByPage) {
  set_option(strategy_, "allocator.expandable_segments", "true");
  const PlayableRank playable = rank();
  const MemoryTrace played = play_memory(playable.program, playable.options);
  ASSERT_EQ(played.peak_reserved.count % (2 << 20), 0);
  ReplayOptions options;
  options.steps = 1;
  for (const char* backend : {"cpu", "hip", "cuda"}) {
    const FakeDevices devices;
    options.backend = backend;
    const Replay result = replay(playable, cluster_, options);
    EXPECT_EQ(result.device.backend, backend);
    EXPECT_EQ(result.replayed_reserved, played.peak_reserved) << backend;
    EXPECT_EQ(result.driver_peak, played.peak_reserved) << backend;
  }
}

TEST_F(ReplayTest, ADeviceThatFailsOnTheWayIsAnError) {
  const FakeDevices devices;
  ReplayOptions options;
  for (const auto& [backend, variable, value] :
       {std::tuple{"hip", "FAKE_HIP_LAUNCH_ERROR", "gemm_fp32"}, {"cuda", "FAKE_CUDA_SYNCHRONIZE_ERROR", "214"}}) {
    options.backend = backend;
    setenv(variable, value, 1);
    try {
      replay(rank(), cluster_, options);
      ADD_FAILURE() << variable;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_input) << error.what();
    }
    unsetenv(variable);
  }
}

TEST_F(ReplayTest, ConvolutionsLayWindowsOutAndMultiply) {
  model_ = load_model("resnet-18");
  for (const auto& [key, value] : {std::pair{"precision", "fp32"}, {"micro_batch", "1"}, {"cudnn", "false"}}) set_option(strategy_, key, value);
  strategy_.seq_len = 0;  // images have a size
  ReplayOptions options;
  options.backend = "cpu";
  options.steps = 1;
  const PlayableRank playable = rank();
  const Replay result = replay(playable, cluster_, options);
  EXPECT_EQ(result.replayed_allocated, play_memory(playable.program, playable.options).peak_allocated);
  bool windows = false;
  for (const ReplayLine& line : result.lines) {
    windows = windows || line.what == name_of(KernelKind::gather);
    if (line.what != kCopiesLine && line.what != kHostLine) {
      EXPECT_NEAR(line.done_flops, line.flops, 1e-9 * line.flops) << line.what;
    }
  }
  EXPECT_TRUE(windows);
}

// PyTorch takes cuDNN's attention for bf16 on an H100: where the library is there the replay runs each pass by it, with the program's FLOPs
// (heads of 32 are no heads of 64 then), else by our own kernels; either way a note says so.
TEST_F(ReplayTest, AttentionRunsByTheFrameworksLibrary) {
  cluster_ = parse_cluster("1xh100-sxm");
  for (const auto& [key, value] : {std::pair{"precision", "pure-bf16"}, {"attention", "sdpa"}, {"seq", "128"}})
    set_option(strategy_, key, value);
  ReplayOptions options;
  options.backend = "cuda";
  options.steps = 1;
  for (const bool there : {true, false}) {
    const FakeDevices devices;
    setenv("PLIMSOLL_CUDNN_LIBRARY", there ? PLIMSOLL_FAKE_CUDA : "/nonexistent/libcudnn.so.9", 1);
    const Replay result = replay(rank(), cluster_, options);
    unsetenv("PLIMSOLL_CUDNN_LIBRARY");
    std::string notes;
    for (const std::string& note : result.notes) notes += note + "\n";
    EXPECT_NE(notes.find(there ? "attention ran by cudnn" : "passes of attention ran by our own kernels"), std::string::npos) << notes;
    for (const ReplayLine& line : result.lines)
      if (line.what.rfind("attention", 0) == 0) {
        EXPECT_EQ(line.done_flops == line.flops, there) << line.what;
      }
  }
}

TEST_F(ReplayTest, RunsOnAHipDevice) {
  const FakeDevices devices;
  ReplayOptions options;
  options.backend = "hip";
  options.steps = 2;
  const PlayableRank playable = rank();
  const Replay result = replay(playable, cluster_, options);
  EXPECT_EQ(result.device.backend, "hip");
  EXPECT_EQ(result.replayed_allocated, play_memory(playable.program, playable.options).peak_allocated);
  for (const ReplayLine& line : result.lines) {
    // The kernels of a GPU move vectors of 16 bytes, and what is only read in blocks of 16 KiB.
    if (line.what == "gemm") {
      EXPECT_EQ(line.done_flops, line.flops);
    } else if (line.what == "elementwise") {
      EXPECT_NEAR(line.done_bytes, line.bytes, 0.02 * line.bytes);
    }
  }
}

}  // namespace
}  // namespace plimsoll
