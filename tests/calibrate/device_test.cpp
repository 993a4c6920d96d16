// The whole path to a HIP device, from finding its library to the fitted file, against a libamdhip64 whose devices are emulated
// (tests/calibrate/fake_hip), and what happens when it fails.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "calibrate/backend.hpp"
#include "calibrate/environment.hpp"
#include "calibrate/workload.hpp"
#include "plimsoll/calibrate.hpp"
#include "plimsoll/cost.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

std::map<std::string, std::string> with_device(std::map<std::string, std::string> values = {}) {
  values["PLIMSOLL_HIP_LIBRARY"] = PLIMSOLL_FAKE_HIP;
  values["FAKE_HIP_TIME"] = "model";
  values["FAKE_HIP_EXECUTE"] = "20000000";
  return values;
}

std::string samples_file() {
  return testing::TempDir() + std::to_string(getpid()) + testing::UnitTest::GetInstance()->current_test_info()->name() + ".jsonl";
}

MeasureOptions quick(const std::string& backend = "hip") {
  MeasureOptions options;
  options.backend = backend;
  options.seconds = 1;
  options.samples_path = samples_file();
  return options;
}

/// What measuring complains of; empty: of nothing.
std::string complaint(const MeasureOptions& options) {
  try {
    MeasureSession session(options);
    session.measure_machine();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    return error.what();
  }
  return {};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(HipDevice, IsFoundMeasuredAndFitted) {
  Environment environment(with_device({{"FAKE_HIP_COMPUTE_UNITS", "304"}, {"FAKE_HIP_MEMORY", "4294967296"}}));
  MeasureOptions options = quick();
  options.seconds = 8;
  options.largest = Bytes(32 << 20);
  MeasureSession session(options);  // every kernel has given the right answer
  environment.set("FAKE_HIP_EXECUTE", "0");
  session.measure_machine();
  const SampleSet& set = session.set();
  EXPECT_EQ(set.device.backend, "hip");
  EXPECT_EQ(set.device.target, "gfx942");
  EXPECT_FALSE(session.interrupted());

  // The samples file holds what the session holds.
  const SampleSet written = load_samples(options.samples_path);
  EXPECT_EQ(written.samples.size(), set.samples.size());

  const Calibration found = fit_hardware(set);
  const Accelerator& device = found.cluster.accelerator;
  EXPECT_EQ(found.base, "mi300x");  // gfx942 with 304 compute units
  // The device of modelled time moves 4 TB/s after 2 us, and multiplies bf16 at 600 TFLOP/s.
  const StreamingCurve& curve = device.streaming.front();
  const auto &last = curve.points.back(), &before = curve.points[curve.points.size() - 2];
  const double slope = (last.time.value - before.time.value) / static_cast<double>(last.bytes.count - before.bytes.count);
  EXPECT_NEAR(1 / slope, 4e12, 0.1e12);
  EXPECT_NEAR(curve.points.front().time.value, 2e-6, 0.3e-6);
  // No library ran its products, and our own kernels do not stand for one: the constants of the shipped device stay, and a note says so.
  EXPECT_GT(device.sustained(MathType::bf16).value, 300e12);
  EXPECT_TRUE(device.gemm_times.empty());
  // Copies take 8 us + bytes / 50 GB/s.
  EXPECT_NEAR(found.cluster.node.host_link.achieved.value.value, 50e9, 2e9);
  EXPECT_NEAR(found.cluster.node.host_link.latency.value.value, 8e-6, 1e-6);
}

/// Kernels of products by type, "gemm_bf16" apart from what libraries are called.
std::set<std::string> products_of(const SampleSet& set, const std::string& type) {
  std::set<std::string> kernels;
  for (const Sample& sample : set.samples)
    if (sample.kind == SampleKind::gemm && sample.type == type) kernels.insert(sample.kernel);
  return kernels;
}

TEST(HipDevice, VendorLibrariesAreCheckedAndMeasuredBesideOurOwnProducts) {
  Environment environment(
      with_device({{"PLIMSOLL_HIPBLASLT_LIBRARY", PLIMSOLL_FAKE_HIP}, {"PLIMSOLL_ROCBLAS_LIBRARY", PLIMSOLL_FAKE_HIP}}));
  MeasureOptions options = quick();
  options.largest = Bytes(1 << 20);
  MeasureSession session(options);  // products of every type through both libraries agree with the reference
  environment.set("FAKE_HIP_EXECUTE", "0");
  session.measure_machine();
  EXPECT_TRUE(contains(session.set().device.library, "hipblaslt, rocblas")) << session.set().device.library;
  EXPECT_EQ(products_of(session.set(), "bf16"), (std::set<std::string>{"gemm_bf16", "hipblaslt", "rocblas"}));
  EXPECT_EQ(products_of(session.set(), "fp8"), (std::set<std::string>{"gemm_fp8", "hipblaslt"}));  // rocBLAS has none
  const Calibration found = fit_hardware(session.set());
  EXPECT_FALSE(found.cluster.accelerator.gemm_times.empty());
}

/// D = op(A)·op(B) by columns for every layout that a linear layer's three products have, twice in a batch, against sums in double
/// precision.
TEST(HipDevice, LibrariesMultiplyEveryLayoutAndBatches) {
  Environment environment(
      with_device({{"PLIMSOLL_HIPBLASLT_LIBRARY", PLIMSOLL_FAKE_HIP}, {"PLIMSOLL_ROCBLAS_LIBRARY", PLIMSOLL_FAKE_HIP}}));
  const calibrate::FoundBackend found = calibrate::open_hip(0);
  ASSERT_TRUE(found.backend) << found.why_not;
  calibrate::Backend& backend = *found.backend;
  constexpr std::int64_t kM = 24, kN = 16, kK = 32, kBatch = 2;
  std::vector<float> a(kBatch * kM * kK), b(kBatch * kN * kK), d(kBatch * kM * kN);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i * 37 % 19) - 9;  // whole numbers: sums are exact
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i * 53 % 23) - 11;
  const auto there = [&](const std::vector<float>& data) {
    void* memory = backend.allocate(data.size() * sizeof(float));
    backend.copy(memory, data.data(), data.size() * sizeof(float), calibrate::CopyDirection::host_to_device, kComputeStream);
    return memory;
  };
  ASSERT_EQ(backend.gemm_libraries().size(), 2u);
  for (std::size_t library : {std::size_t{0}, std::size_t{1}})
    for (const auto& [transpose_a, transpose_b] : {std::pair{true, false}, {false, false}, {false, true}}) {
      calibrate::GemmCall call{DType::fp32, kM, kN, kK, kBatch, transpose_a, transpose_b};
      call.stride_a = kM * kK, call.stride_b = kN * kK, call.stride_d = kM * kN;
      call.a = there(a), call.b = there(b), call.d = there(d);
      ASSERT_TRUE(backend.library_gemm(call, library, kComputeStream));
      backend.copy(d.data(), call.d, d.size() * sizeof(float), calibrate::CopyDirection::device_to_host, kComputeStream);
      backend.synchronize();
      for (std::int64_t at = 0; at < kBatch * kM * kN; ++at) {
        const std::int64_t one = at / (kM * kN), column = at % (kM * kN) / kM, row = at % kM;
        double sum = 0;
        for (std::int64_t k = 0; k < kK; ++k)
          sum += static_cast<double>(a[static_cast<std::size_t>(one * kM * kK + (transpose_a ? row * kK + k : k * kM + row))]) *
                 static_cast<double>(b[static_cast<std::size_t>(one * kN * kK + (transpose_b ? k * kN + column : column * kK + k))]);
        ASSERT_EQ(d[static_cast<std::size_t>(at)], static_cast<float>(sum)) << library << transpose_a << transpose_b << " " << at;
      }
      for (void* memory : {call.a, call.b, call.d}) backend.release(memory);
    }
}

TEST(HipDevice, ATypeThatALibraryLacksIsLeftToOurOwnProducts) {
  Environment environment(with_device({{"PLIMSOLL_HIPBLASLT_LIBRARY", PLIMSOLL_FAKE_HIP}, {"FAKE_HIP_NO_BLAS", "fp8"}}));
  const calibrate::FoundBackend found = calibrate::open_hip(0);
  ASSERT_TRUE(found.backend) << found.why_not;
  EXPECT_TRUE(found.backend->library_takes({DType::bf16, 64, 64, 64}, 0));
  EXPECT_FALSE(found.backend->library_takes({DType::fp8, 64, 64, 128}, 0));
}

/// It costs that product alone: what is left out is named, and everything else is measured.
TEST(HipDevice, AWrongProductIsLeftOut) {
  Environment environment(with_device({{"PLIMSOLL_HIPBLASLT_LIBRARY", PLIMSOLL_FAKE_HIP}, {"FAKE_HIP_WRONG", "gemm_fp16"}}));
  MeasureOptions options = quick();
  options.largest = Bytes(1 << 20);
  MeasureSession session(options);
  environment.set("FAKE_HIP_EXECUTE", "0");
  session.measure_machine();
  const std::vector<std::string>& left_out = session.set().device.left_out;
  EXPECT_NE(std::find(left_out.begin(), left_out.end(), "gemm_fp16 fp16"), left_out.end());
  EXPECT_EQ(products_of(session.set(), "fp16").count("gemm_fp16"), 0u);
  EXPECT_GT(products_of(session.set(), "bf16").size(), 0u);
  EXPECT_TRUE(contains(session.warnings().front(), "wrong answer and is left out"));
  const Calibration found = fit_hardware(load_samples(options.samples_path));
  EXPECT_TRUE(contains(found.cluster.accelerator.note, "gemm_fp16"));
}

TEST(CudaDevice, VendorLibrariesAreCheckedAndMeasured) {
  Environment environment({{"PLIMSOLL_CUDA_LIBRARY", PLIMSOLL_FAKE_CUDA},
                           {"PLIMSOLL_CUBLASLT_LIBRARY", PLIMSOLL_FAKE_CUDA},
                           {"PLIMSOLL_CUBLAS_LIBRARY", PLIMSOLL_FAKE_CUDA},
                           {"PLIMSOLL_NVML_LIBRARY", PLIMSOLL_FAKE_CUDA},
                           {"FAKE_CUDA_TIME", "model"},
                           {"FAKE_CUDA_EXECUTE", "60000000"}});
  MeasureOptions options = quick("cuda");
  options.largest = Bytes(1 << 20);
  MeasureSession session(options);
  environment.set("FAKE_CUDA_EXECUTE", "0");
  session.measure_machine();
  EXPECT_EQ(products_of(session.set(), "fp8"), (std::set<std::string>{"cublaslt", "gemm_fp8", "gemm_fp8_wgmma"}));
  EXPECT_EQ(products_of(session.set(), "fp32"), (std::set<std::string>{"cublas", "cublaslt"}));
  EXPECT_DOUBLE_EQ(session.set().device.watts, 700);  // the cap, and some readings while it ran
  EXPECT_TRUE(std::any_of(session.set().samples.begin(), session.set().samples.end(),
                          [](const Sample& sample) { return sample.clock_hertz == 1755e6 && sample.watts == 431; }));
  EXPECT_EQ(products_of(session.set(), "tf32"), (std::set<std::string>{"cublas", "cublaslt", "gemm_tf32", "gemm_tf32_wgmma"}));
}

TEST(HipDevice, OfRocm5) {
  Environment environment(with_device());
  environment.set("PLIMSOLL_HIP_LIBRARY", PLIMSOLL_FAKE_HIP5);
  const calibrate::FoundBackend found = calibrate::open_hip(0);
  ASSERT_TRUE(found.backend) << found.why_not;
  EXPECT_EQ(found.backend->facts().target, "gfx942");
}

TEST(HipDevice, NoLibrary) {
  const Environment environment(
      {{"PLIMSOLL_HIP_LIBRARY", "/nonexistent/libamdhip64.so"}, {"PLIMSOLL_CUDA_LIBRARY", "/nonexistent/libcuda.so"}});
  const std::string why = complaint(quick());
  EXPECT_TRUE(contains(why, "no HIP runtime")) << why;
  EXPECT_TRUE(contains(why, "--backend cpu")) << why;
  std::vector<std::string> tried;
  EXPECT_EQ(calibrate::open_backend("auto", 0, tried)->facts().backend, "cpu");
  EXPECT_EQ(tried.size(), 2u);
}

TEST(HipDevice, NoDriver) {
  const Environment environment(with_device({{"FAKE_HIP_INIT_ERROR", "100"}}));
  EXPECT_TRUE(contains(complaint(quick()), "/dev/kfd"));
}

TEST(HipDevice, NotThatMany) {
  const Environment environment(with_device());
  MeasureOptions options = quick();
  options.device = 3;
  EXPECT_TRUE(contains(complaint(options), "no device 3"));
}

TEST(HipDevice, UnknownTarget) {
  const Environment environment(with_device({{"FAKE_HIP_ARCH", "gfx1100"}}));
  const std::string why = complaint(quick());
  EXPECT_TRUE(contains(why, "gfx1100") && contains(why, "gfx942")) << why;
}

TEST(HipDevice, TakenByAnother) {
  const Environment environment(with_device({{"FAKE_HIP_DEVICE_ERROR", "46"}}));
  EXPECT_TRUE(contains(complaint(quick()), "another process has the device"));
}

TEST(HipDevice, AMemoryErrorKeepsTheSamples) {
  Environment environment(with_device());
  MeasureOptions options = quick();
  options.largest = Bytes(1 << 20);
  std::string why;
  try {
    MeasureSession session(options);
    environment.set("FAKE_HIP_EXECUTE", "0");
    environment.set("FAKE_HIP_LAUNCH_ERROR", "triad:214");
    session.measure_machine();
  } catch (const Error& error) {
    why = error.what();
  }
  EXPECT_TRUE(contains(why, "cannot correct")) << why;
  const SampleSet kept = load_samples(options.samples_path);
  EXPECT_GE(kept.samples.size(), 3u);  // context, launch, round trip, the copy before the triad
}

TEST(HipDevice, AWrongAnswerIsNoMeasurement) {
  const Environment environment(with_device({{"FAKE_HIP_WRONG", "softmax_fp32"}}));
  const std::string why = complaint(quick());
  EXPECT_TRUE(contains(why, "softmax_fp32 gives a wrong answer")) << why;
}

TEST(HipDevice, NoisyTimingsAreFittedAllTheSame) {
  Environment environment(with_device({{"FAKE_HIP_COMPUTE_UNITS", "304"}, {"FAKE_HIP_NOISE", "0.2"}}));
  MeasureOptions options = quick();
  options.largest = Bytes(16 << 20);
  MeasureSession session(options);
  environment.set("FAKE_HIP_EXECUTE", "0");
  session.measure_machine();
  for (const Sample& sample : session.set().samples) EXPECT_GE(sample.seconds, sample.fastest);
  const Calibration found = fit_hardware(session.set());
  for (const FitResidual& residual : found.residuals) {
    if (residual.what.rfind("stream", 0) != 0) continue;
    EXPECT_LT(residual.median, 0.15) << residual.what;
  }
}

TEST(CudaDevice, IsFoundMeasuredAndFitted) {
  Environment environment({{"PLIMSOLL_CUDA_LIBRARY", PLIMSOLL_FAKE_CUDA}, {"FAKE_CUDA_TIME", "model"}, {"FAKE_CUDA_EXECUTE", "60000000"}});
  MeasureOptions options = quick("cuda");
  options.largest = Bytes(1 << 20);
  MeasureSession session(options);  // every kernel has given the right answer
  environment.set("FAKE_CUDA_EXECUTE", "0");
  session.measure_machine();
  EXPECT_EQ(session.set().device.backend, "cuda");
  EXPECT_EQ(session.set().device.target, "sm_90");
  const Calibration found = fit_hardware(session.set());
  ASSERT_FALSE(found.cluster.accelerator.streaming.empty());
  EXPECT_NEAR(found.cluster.accelerator.streaming.front().points.front().time.value, 2e-6, 0.3e-6);
}

// Without a limit of time nothing is cut short: each workload has two samples, and the bar counts down both visits.
TEST(Measurement, WithoutALimitEverythingIsVisitedTwice) {
  Environment environment(with_device());
  MeasureOptions options = quick();
  options.seconds.reset();
  options.largest = Bytes(16 << 10);
  std::vector<MeasureProgress> seen;
  options.progress = [&](const MeasureProgress& progress) { seen.push_back(progress); };
  MeasureSession session(options);
  environment.set("FAKE_HIP_EXECUTE", "0");
  session.measure_machine();
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.back().done + 1, seen.back().total);
  EXPECT_EQ(session.set().samples.size(), seen.back().total + 1);  // and the context's memory
  // At the pace so far: after a half as long as it took until then.
  const MeasureProgress& half = seen[seen.size() / 2];
  EXPECT_NEAR(half.remaining, half.elapsed, 0.05 * half.elapsed);
  for (const std::string& warning : session.warnings()) EXPECT_FALSE(contains(warning, "the time was up")) << warning;
}

TEST(Measurement, StopsWhenAsked) {
  Environment environment(with_device());
  int asked = 0;
  MeasureOptions options = quick();
  options.largest = Bytes(1 << 20);
  options.stop = [&] { return ++asked > 20; };
  MeasureSession session(options);
  environment.set("FAKE_HIP_EXECUTE", "0");
  session.measure_machine();
  EXPECT_TRUE(session.interrupted());
  EXPECT_EQ(load_samples(options.samples_path).samples.size(), session.set().samples.size());
  EXPECT_GE(session.set().samples.size(), 1u);
}

TEST(Measurement, UnknownBackend) { EXPECT_TRUE(contains(complaint(quick("rocm")), "no backend 'rocm'")); }

TEST(CpuDevice, EveryKernelGivesTheRightAnswer) {
  const calibrate::FoundBackend found = calibrate::open_cpu();
  calibrate::check_kernels(*found.backend);
}

TEST(CpuDevice, StreamsMoveExactlyTheirBytes) {
  const calibrate::FoundBackend found = calibrate::open_cpu();
  for (const auto& [read, written] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 0}, {7, 3}, {4096, 65536}, {1000003, 17}, {65536, 65536}}) {
    auto* from = static_cast<std::byte*>(found.backend->allocate(1 << 21));
    auto* to = static_cast<std::byte*>(found.backend->allocate(1 << 21));
    found.backend->fill(to, 0x7f, 1 << 21, kComputeStream);
    const calibrate::Work work = found.backend->stream_bytes(KernelKind::gather, from, read, to, written, kComputeStream);
    EXPECT_EQ(work.bytes_read, static_cast<double>(read));
    EXPECT_EQ(work.bytes_written, static_cast<double>(written));
    // Everything up to `written` is written (zeros from zeros), nothing behind it.
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < (1 << 21); ++i) count += to[i] != std::byte{0x7f};
    EXPECT_EQ(count, written);
    found.backend->release(from);
    found.backend->release(to);
  }
}

TEST(CpuDevice, MeasuredTimesAreSane) {
#ifdef __SANITIZE_ADDRESS__
  constexpr double kLeastFlops = 1e6;  // every access of the kernels is checked
#else
  constexpr double kLeastFlops = 1e8;
#endif
  MeasureOptions options = quick("cpu");
  options.seconds = 3;
  options.largest = Bytes(1 << 16);
  MeasureSession session(options);
  session.measure_machine();
  ASSERT_FALSE(session.set().samples.empty());
  for (const Sample& sample : session.set().samples) {
    EXPECT_GT(sample.seconds, 0) << name_of(sample.kind);
    EXPECT_LE(sample.fastest, sample.seconds);
    EXPECT_EQ(sample.tool, "plimsoll");
  }
  const Calibration found = fit_hardware(session.set(), {"this-cpu", ""});
  EXPECT_EQ(found.cluster.accelerator.vendor, "CPU");
  EXPECT_GT(found.cluster.accelerator.sustained(MathType::fp32).value, kLeastFlops);
}

}  // namespace
}  // namespace plimsoll
