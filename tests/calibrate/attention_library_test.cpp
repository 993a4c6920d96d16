// Attention through cuDNN: the graphs that are composed, run operation by operation by the fake library (tests/calibrate/fake_hip), what is
// measured by it and what is fitted to that; and the real library's own word on the graphs, where one is named.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "calibrate/cudnn_attention.hpp"
#include "calibrate/environment.hpp"
#include "calibrate/fit.hpp"
#include "calibrate/kernels/elements.hpp"
#include "calibrate/workload.hpp"
#include "plimsoll/cost.hpp"
#include "units/files.hpp"

namespace plimsoll::calibrate {
namespace {

/// A fake Hopper with a fake cuDNN, all of whose work is really done.
std::map<std::string, std::string> with_cudnn(std::map<std::string, std::string> more = {}) {
  std::map<std::string, std::string> values{{"PLIMSOLL_CUDA_LIBRARY", PLIMSOLL_FAKE_CUDA},
                                            {"PLIMSOLL_CUDNN_LIBRARY", PLIMSOLL_FAKE_CUDA},
                                            {"FAKE_CUDA_TIME", "model"},
                                            {"FAKE_CUDA_EXECUTE", "1000000000"},
                                            {"FAKE_CUDA_COMPUTE_UNITS", "132"}};
  for (const auto& [name, value] : more) values[name] = value;
  return values;
}

Attention pass(bool backward, std::int64_t length, std::int64_t width) {
  Attention attention;
  attention.library = AttentionLibrary::cudnn;
  attention.part = backward ? Attention::Part::backward : Attention::Part::forward;
  attention.causal = true;
  attention.heads = 4, attention.kv_heads = 2;
  attention.queries = attention.keys = length;
  attention.head_dim = attention.value_dim = width;
  return attention;
}

MeasureOptions quick() {
  MeasureOptions options;
  options.backend = "cuda";
  options.seconds = 1;
  options.largest = Bytes(32 << 20);
  return options;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// ---- what is composed ----------------------------------------------------------------------------------------------------

// check_kernels runs causal passes of grouped heads, bf16 and fp16, heads of 64, 128 and 256, forward and backward, on the fake library,
// which does what the graph says, and holds them against the double-precision reference.
TEST(CudnnAttention, GraphsComputeAttentionAndItsGradients) {
  const Environment environment(with_cudnn());
  const FoundBackend found = open_cuda(0);
  ASSERT_TRUE(found.backend) << found.why_not;
  EXPECT_TRUE(contains(found.backend->facts().library, "cudnn 9.19.0")) << found.backend->facts().library;
  for (const auto& [each, kernel] : attention_passes()) {
    Attention attention = pass(each.backward, 256, each.width);
    attention.type = each.type;
    EXPECT_EQ(found.backend->library_cannot(attention, HeadOrder::heads_first), "") << kernel.name << " " << each.width;
  }
  EXPECT_EQ(attention_passes().size(), 12u);
  for (const WrongKernel& wrong : check_kernels(*found.backend)) ADD_FAILURE() << wrong.text();
}

TEST(CudnnAttention, AWrongAnswerIsSeen) {
  const Environment environment(with_cudnn({{"FAKE_CUDA_WRONG", "cudnn"}}));
  const FoundBackend found = open_cuda(0);
  ASSERT_TRUE(found.backend) << found.why_not;
  const std::vector<WrongKernel> wrong = check_kernels(*found.backend);
  ASSERT_FALSE(wrong.empty());
  EXPECT_EQ(wrong.front().kernel, "cudnn");
  // It costs the library's attention of that type, and no other.
  Sample sample;
  sample.kind = SampleKind::attention_backward;
  sample.kernel = "cudnn", sample.type = wrong.front().type;
  EXPECT_TRUE(wrong.front().ran(sample));
  sample.kernel = "attention_backward";
  EXPECT_FALSE(wrong.front().ran(sample));
}

// The tokens' order of memory only says where an element lies: the same numbers, permuted, give the same results, permuted.
TEST(CudnnAttention, EitherOrderOfMemoryGivesTheSame) {
  const Environment environment(with_cudnn());
  const FoundBackend found = open_cuda(0);
  ASSERT_TRUE(found.backend) << found.why_not;
  constexpr std::int64_t kHeads = 4, kKeyHeads = 2, kLength = 128, kWidth = 64;
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const auto numbers = [&](std::int64_t heads) {
    std::vector<std::uint16_t> list(static_cast<std::size_t>(heads * kLength * kWidth));
    for (std::uint16_t& each : list) each = bf16_of_float(uniform(random));
    return list;
  };
  const auto by_tokens = [&](const std::vector<std::uint16_t>& list, std::int64_t heads) {
    std::vector<std::uint16_t> moved(list.size());
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t s = 0; s < kLength; ++s)
        for (std::int64_t d = 0; d < kWidth; ++d)
          moved[static_cast<std::size_t>((s * heads + h) * kWidth + d)] = list[static_cast<std::size_t>((h * kLength + s) * kWidth + d)];
    return moved;
  };
  const auto q = numbers(kHeads), k = numbers(kKeyHeads), v = numbers(kKeyHeads);
  const auto output = [&](HeadOrder order, const auto& first, const auto& second, const auto& third) {
    std::vector<void*> memory;
    for (const auto* list : {&first, &second, &third, &first, &first}) {
      memory.push_back(found.backend->allocate(list->size() * 2));
      found.backend->copy(memory.back(), list->data(), list->size() * 2, CopyDirection::host_to_device, kComputeStream);
    }
    AttentionCall call;
    call.attention = pass(false, kLength, kWidth);
    call.order = order;
    call.q = memory[0], call.k = memory[1], call.v = memory[2], call.output = memory[3], call.log_sum = memory[4];
    found.backend->library_attention(call, kComputeStream);
    std::vector<std::uint16_t> result(first.size());
    found.backend->copy(result.data(), memory[3], result.size() * 2, CopyDirection::device_to_host, kComputeStream);
    found.backend->synchronize();
    for (void* each : memory) found.backend->release(each);
    return result;
  };
  EXPECT_EQ(by_tokens(output(HeadOrder::heads_first, q, k, v), kHeads),
            output(HeadOrder::tokens_first, by_tokens(q, kHeads), by_tokens(k, kKeyHeads), by_tokens(v, kKeyHeads)));
}

// ---- what it does not take -----------------------------------------------------------------------------------------------

TEST(CudnnAttention, WhatItDoesNotTakeIsNamed) {
  const Environment environment(with_cudnn({{"FAKE_CUDA_NO_CUDNN", "fp16"}}));
  const FoundBackend found = open_cuda(0);
  ASSERT_TRUE(found.backend) << found.why_not;
  const auto why = [&](Attention attention) { return found.backend->library_cannot(attention, HeadOrder::tokens_first); };
  Attention attention = pass(false, 128, 64);
  EXPECT_EQ(why(attention), "");
  attention.type = DType::fp16;
  EXPECT_TRUE(contains(why(attention), "no engine")) << why(attention);
  attention.type = DType::fp32;
  EXPECT_TRUE(contains(why(attention), "fp32")) << why(attention);
  EXPECT_TRUE(contains(why(pass(true, 128, 288)), "heads of 288")) << why(pass(true, 128, 288));
  attention = pass(false, 128, 64);
  attention.dropout = true;
  EXPECT_TRUE(contains(why(attention), "dropout"));
}

// cudnn_frontend refuses the backward pass of 9.10.0 and 9.10.1, and pads what is not a multiple of 128 up to 9.15.0.
TEST(CudnnAttention, OldReleases) {
  Environment environment(with_cudnn({{"FAKE_CUDA_CUDNN_VERSION", "91001"}}));
  const auto why = [&](const Attention& attention) { return open_cuda(0).backend->library_cannot(attention, HeadOrder::tokens_first); };
  EXPECT_EQ(why(pass(false, 200, 64)), "");
  EXPECT_TRUE(contains(why(pass(true, 256, 64)), "9.10.1"));
  environment.set("FAKE_CUDA_CUDNN_VERSION", "91100");
  EXPECT_EQ(why(pass(true, 256, 64)), "");
  EXPECT_TRUE(contains(why(pass(true, 200, 64)), "9.15.1"));
  environment.set("FAKE_CUDA_CUDNN_VERSION", "91900");
  EXPECT_EQ(why(pass(true, 200, 64)), "");
  environment.set("FAKE_CUDA_CUDNN_VERSION", "8907");
  EXPECT_TRUE(contains(open_cuda(0).backend->no_attention_library(), "9 is needed"));
}

TEST(CudnnAttention, WhereItIsAbsentOurOwnKernelsStandAndSaySo) {
  Environment environment(with_cudnn({{"PLIMSOLL_CUDNN_LIBRARY", "/nonexistent/libcudnn.so.9"}}));
  const MeasureSession session(quick());
  bool said = false;
  for (const std::string& warning : session.warnings())
    said = said || (contains(warning, "by our own kernels") && contains(warning, "/nonexistent/libcudnn.so.9"));
  EXPECT_TRUE(said);
}

// pip puts the library below site-packages, where no loader looks.
TEST(CudnnAttention, TheWheelOfTheActiveEnvironmentIsLookedAtAfterTheLoadersPaths) {
  const std::filesystem::path root = std::filesystem::path(testing::TempDir()) / ("venv" + std::to_string(getpid()));
  const std::filesystem::path folder = root / "lib/python3.11/site-packages/nvidia/cudnn/lib";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "libcudnn.so.9") << "no library";
  const std::filesystem::path toolkit = root / "lib/python3.11/site-packages/nvidia/cu13/lib";
  std::filesystem::create_directories(toolkit);
  std::ofstream(toolkit / "libcublas.so.13") << "no library";
  const Environment environment({{"VIRTUAL_ENV", root.string()}});
  const std::vector<std::string> candidates = wheel_candidates({"libcudnn.so.9"}, "libcudnn.so.9", {"cudnn"});
  const std::vector<std::string> blas = place_of("cublas").candidates;
  std::filesystem::remove_all(root);
  ASSERT_GE(candidates.size(), 2u);
  EXPECT_EQ(candidates[0], "libcudnn.so.9");
  EXPECT_EQ(candidates[1], (folder / "libcudnn.so.9").string());
  EXPECT_EQ(blas.front(), "libcublas.so.14");
  EXPECT_NE(std::find(blas.begin(), blas.end(), (toolkit / "libcublas.so.13").string()), blas.end());
}

// ---- what is measured and fitted -----------------------------------------------------------------------------------------

TEST(CudnnAttention, IsMeasuredAndNamedInSamplesAndFile) {
  const Environment environment(with_cudnn({{"FAKE_CUDA_EXECUTE", "0"}}));
  const FoundBackend found = open_cuda(0);
  ASSERT_TRUE(found.backend) << found.why_not;
  SampleSet set{found.backend->facts(), {}};
  std::size_t forward = 0, backward = 0;
  for (const auto& workload : machine_workloads(*found.backend, 32 << 20)) {
    if (workload->sample().kernel != "cudnn") continue;
    workload->prepare(*found.backend);
    const std::size_t first = found.backend->mark(kComputeStream);
    workload->run(*found.backend, 0);
    Sample sample = workload->sample();
    sample.seconds = sample.fastest = found.backend->between(first, found.backend->mark(kComputeStream));
    workload->finish(*found.backend);
    // The fake library runs at 300 TFLOP/s behind 2 us.
    EXPECT_NEAR(sample.seconds, 2e-6 + sample.flops / 300e12, 0.02 * sample.seconds);
    const Sample read = parse_samples(to_json_line(set.device) + to_json_line(sample), "samples").samples.front();
    EXPECT_EQ(read.causal, sample.causal);
    EXPECT_EQ(read.kv_batch, sample.kv_batch);
    ++(sample.kind == SampleKind::attention ? forward : backward);
    set.samples.push_back(sample);
  }
  EXPECT_GT(forward, 4u);
  EXPECT_EQ(forward, backward);
  const Calibration fitted = fit_hardware(set);
  EXPECT_EQ(fitted.cluster.accelerator.paces.attention_backward.provenance, Provenance::calibrated);
  bool kept = false;
  for (const Measurement& each : fitted.cluster.accelerator.measurements)
    kept = kept || (each.what == "attention" && contains(each.note, "cudnn"));
  EXPECT_TRUE(kept);
}

// An H100 whose kernels take 1.2 and 1.4 times what the laws of the main kernels say; helpers go by its bandwidth.
TEST(CudnnAttention, PacesAreFoundAgain) {
  Cluster planted = parse_cluster("1xh100-sxm");
  planted.accelerator.paces.attention_forward.value *= 1.2;
  planted.accelerator.paces.attention_backward.value *= 1.4;
  SampleSet set;
  set.device.backend = "cuda", set.device.target = "sm_90", set.device.name = "H100", set.device.compute_units = 132;
  for (const std::int64_t length : {2048, 4096, 8192})
    for (const std::int64_t width : {64, 128, 256})
      for (const bool backward : {false, true}) {
        Attention main = pass(backward, length, width);
        main.heads = 64, main.kv_heads = 16;
        Sample sample;
        sample.kind = backward ? SampleKind::attention_backward : SampleKind::attention;
        sample.kernel = "cudnn", sample.type = "bf16";
        sample.m = sample.n = length, sample.k = width, sample.batch = 64, sample.kv_batch = 16, sample.causal = true;
        sample.flops = plimsoll::Kernel{main}.flops();
        sample.seconds = sample.fastest = priced(main, planted.accelerator);
        set.samples.push_back(sample);
      }
  const Accelerator found = fit_hardware(set, {"", "h100-sxm"}).cluster.accelerator;
  EXPECT_NEAR(found.paces.attention_forward.value, planted.accelerator.paces.attention_forward.value, 1e-3);
  EXPECT_NEAR(found.paces.attention_backward.value, planted.accelerator.paces.attention_backward.value, 1e-3);
}

// ---- the real library ----------------------------------------------------------------------------------------------------

// cuDNN makes plans for a device that is not here from a description of it: its heuristics, support checks and compilation say whether
// each graph is attention to it, and the plan names its kernel. On an H100 PyTorch 2.11 launches these, of the same tiles.
TEST(RealCudnn, ItsFlashEnginesTakeTheGraphs) {
  const char* real = std::getenv("PLIMSOLL_CUDNN_LIBRARY");
  if (!real) GTEST_SKIP() << "PLIMSOLL_CUDNN_LIBRARY names no cuDNN";
  std::string why;
  const auto library = cudnn::Library::open_for(read_text_file(PLIMSOLL_SOURCE_DIR "/tests/calibrate/data/h100-device.json", 1 << 16), why);
  ASSERT_TRUE(library) << why;
  for (const DType type : {DType::bf16, DType::fp16})
    for (const std::int64_t width : {64, 96, 128, 256})
      for (const bool causal : {true, false})
        for (const bool backward : {false, true}) {
          if (type == DType::fp16 && width != 128) continue;  // each plan is compiled
          Attention attention = pass(backward, width == 96 ? 1000 : 2048, width);
          attention.type = type, attention.causal = causal, attention.batch = 2;
          attention.kv_heads = causal ? 2 : 4;
          cudnn::AttentionPlan plan(*library, attention, HeadOrder::tokens_first);
          EXPECT_GT(plan.workspace_bytes(), 0);
          // Heads of 96 run as 128. Tiles of 64 x 128 forward, of 64 x 64 backward.
          const std::string held = std::to_string(width == 96 ? 128 : width);
          const std::string kernel = backward ? "sdpa_sm90_flash_bprop_wgmma_f16" : "sdpa_sm90_flash_fprop_wgmma_f16";
          const std::string tile = (backward ? "_64x64x" : "_64x128x") + held;
          EXPECT_TRUE(contains(plan.text(), kernel) && contains(plan.text(), tile)) << kernel << " " << tile;
        }
}

}  // namespace
}  // namespace plimsoll::calibrate
