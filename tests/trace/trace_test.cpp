// Traces of torch.profiler: what is read of them, and what is refused.
#include "plimsoll/trace.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "plimsoll/error.hpp"
#include "text_file.hpp"

namespace plimsoll::trace {
namespace {

const std::string kGpt2 = PLIMSOLL_SOURCE_DIR "/tests/trace/data/h100-gpt2-amp-b8-s1024.json.gz";

/// An operator and the kernel that it launched, 10 µs each, as Kineto writes them.
std::string pair_of(int id, double at, const std::string& op, const std::string& shapes, const std::string& kernel, const std::string& more = {}) {
  const std::string number = std::to_string(id), time = std::to_string(at);
  return R"({"ph": "X", "cat": "cpu_op", "name": ")" + op + R"(", "pid": 9, "tid": 9, "ts": )" + time + R"(, "dur": 10, "args": {"External id": )" + number +
         (shapes.empty() ? "" : ", " + shapes) + R"(}}, {"ph": "X", "cat": "kernel", "name": ")" + kernel + R"(", "pid": 0, "tid": 7, "ts": )" + time +
         R"(, "dur": 10, "args": {"External id": )" + number + R"(, "device": 0, "stream": 7, "grid": [64, 1, 1], "block": [128, 1, 1])" + more + "}}";
}

std::string trace_of(const std::string& events, const std::string& members = {}) {
  return R"({"schemaVersion": 1, )" + members + R"("traceEvents": [)" + events + R"(], "traceName": "t.json"})";
}

const std::string kLinear = R"("Input Dims": [[8192, 2048], [2048, 512]], "Input type": ["c10::BFloat16", "c10::BFloat16"], "Input Strides": [[2048, 1], [1, 2048]])";

Trace read(const std::string& text, bool gzipped = false) {
  const TextFile file(text, gzipped);
  return read_trace(file.path());
}

std::string why_not(const std::string& text, bool gzipped = false) {
  try {
    read(text, gzipped);
  } catch (const Error& error) {
    return error.what();
  }
  return "read";
}

/// y[8192, 512] = x[8192, 2048] · Wᵀ of W[512, 2048], given as its transpose: in columns m = 512, n = 8192, k = 2048, T N.
TEST(Trace, AProductHasItsShapeAndLayout) {
  const Trace trace = read(trace_of(pair_of(1, 5, "aten::mm", kLinear, "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNT")));
  ASSERT_EQ(trace.work.size(), 1u);
  EXPECT_TRUE(trace.work[0].shaped);
  const Product* product = trace.kernels[trace.work[0].id].product();
  ASSERT_NE(product, nullptr);
  EXPECT_EQ(product->m, 512);
  EXPECT_EQ(product->n, 8192);
  EXPECT_EQ(product->k, 2048);
  EXPECT_TRUE(product->transpose_a);
  EXPECT_FALSE(product->transpose_b);
  EXPECT_EQ(product->alignment, 16);
  EXPECT_DOUBLE_EQ(trace.work[0].seconds, 1e-5);
}

/// The same by hipBLASLt, whose kernels are named otherwise; its device is an MI300X.
TEST(Trace, AmdsNamesAreKnown) {
  const Trace trace = read(trace_of(pair_of(1, 5, "aten::mm", kLinear, "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1"),
                                    R"("deviceProperties": [{"id": 0, "name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4, "numSms": 304}], )"));
  EXPECT_TRUE(trace.device.amd);
  EXPECT_EQ(trace.device.compute_units, 304);
  ASSERT_NE(trace.kernels[trace.work[0].id].product(), nullptr);
}

/// Without shapes a product's name is no size.
TEST(Trace, WithoutShapesNoSizeIsGuessed) {
  const Trace trace = read(trace_of(pair_of(1, 5, "aten::mm", "", "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNT")));
  EXPECT_FALSE(trace.work[0].shaped);
  EXPECT_EQ(trace.kernels[trace.work[0].id].kind(), KernelKind::gemm);
  EXPECT_FALSE(trace.shapes);
  EXPECT_FALSE(trace.notes.empty());
}

/// x[8, 1024, 768] + b[768]: the bias is read by every row.
TEST(Trace, ElementwiseKernelsWalkAsStridesSay) {
  const std::string shapes =
      R"("Input Dims": [[8, 1024, 768], [768], []], "Input type": ["float", "float", "Scalar"], "Input Strides": [[786432, 768, 1], [1], []])";
  const Trace trace = read(trace_of(pair_of(1, 5, "aten::add", shapes,
                                            "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<float> "
                                            ">(at::TensorIteratorBase&, at::native::CUDAFunctor_add<float> const&)::{lambda(int)#1}>(int, f)")));
  const std::int64_t all = 8 * 1024 * 768;
  EXPECT_EQ(trace.kernels[trace.work[0].id],
            Kernel{(Pointwise{Pointwise::Form::map, all, Operands({{all, DType::fp32}, {768, DType::fp32, Walk::broadcast}}, {{all, DType::fp32}})})});
}

/// 25,136 elements of bf16 of each of eight ranks: the whole buffer holds eight times as many.
TEST(Trace, CollectivesCountTheWholeBuffer) {
  const std::string call = R"(, "Collective name": "_allgather_base", "In msg nelems": 25136, "Out msg nelems": 201088, "Group size": 8, "dtype": "BFloat16", )"
                           R"("Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]")";
  const Trace trace = read(trace_of(pair_of(1, 5, "record_param_comms", "", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", call),
                                    R"("distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8}, )"));
  ASSERT_EQ(trace.work[0].kind, TracedWork::Kind::collective);
  const TracedCollective& collective = trace.collectives[trace.work[0].id];
  EXPECT_EQ(collective.what.kind, CollectiveKind::all_gather);
  EXPECT_EQ(collective.what.bytes, 201088 * 2);
  EXPECT_EQ(collective.ranks, 8);
  EXPECT_EQ(collective.nodes, 1);
  EXPECT_EQ(trace.rank, 3);
}

TEST(Trace, StepsAreCutByTheProgramsMarks) {
  const auto mark = [](int i) {
    return R"({"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#)" + std::to_string(i) + R"(", "pid": 9, "tid": 9, "ts": )" + std::to_string(100 * i) +
           R"(, "dur": 100}, )";
  };
  const std::string kernel = "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNT";
  const Trace trace = read(trace_of(mark(1) + mark(2) + pair_of(1, 110, "aten::mm", kLinear, kernel) + ", " + pair_of(2, 150, "aten::mm", kLinear, kernel) + ", " +
                                    pair_of(3, 210, "aten::mm", kLinear, kernel)));
  ASSERT_EQ(trace.steps.size(), 2u);
  EXPECT_EQ(trace.steps[0].end - trace.steps[0].begin, 2u);
  EXPECT_EQ(trace.steps[1].name, "ProfilerStep#2");
  EXPECT_EQ(trace.kernels.size(), 1u) << "equal kernels are one";
}

/// Brackets, quotes and commas inside of names are none of the file's.
TEST(Trace, TextsMayHoldAnything) {
  const std::string odd = R"({"ph": "X", "cat": "python_function", "name": "f(a=[{\"}, {\\", "ts": 1, "dur": 1}, )";
  const Trace trace = read(trace_of(odd + pair_of(1, 5, "aten::mm", kLinear, "nvjet_x_TNT")));
  EXPECT_EQ(trace.work.size(), 1u);
}

TEST(Trace, AnArrayOfEventsAndGzipAreTracesToo) {
  const std::string events = pair_of(1, 5, "aten::mm", kLinear, "nvjet_x_TNT");
  EXPECT_EQ(read("[" + events + "]").work.size(), 1u);
  EXPECT_EQ(read(trace_of(events), true).work.size(), 1u);
}

// ---- what is no trace ------------------------------------------------------------------------------------------------

TEST(Trace, RefusesWhatIsCutOff) {
  const std::string whole = trace_of(pair_of(1, 5, "aten::mm", kLinear, "nvjet_x_TNT"));
  for (const std::size_t size : {whole.size() - 1, whole.size() / 2, std::size_t{30}}) {
    const std::string why = why_not(whole.substr(0, size));
    EXPECT_NE(why.find("cut off"), std::string::npos) << size << ": " << why;
  }
  std::string packed;
  {
    const TextFile file(whole, true);
    std::ifstream stream(file.path(), std::ios::binary);
    std::stringstream text;
    text << stream.rdbuf();
    packed = text.str();
  }
  EXPECT_NE(why_not(packed.substr(0, packed.size() - 20)).find("cut off"), std::string::npos);
  packed[packed.size() / 2] = static_cast<char>(packed[packed.size() / 2] ^ 0x55);
  EXPECT_NE(why_not(packed), "read");
}

TEST(Trace, RefusesWhatIsForeign) {
  EXPECT_NE(why_not("").find("empty"), std::string::npos);
  EXPECT_NE(why_not("PK\x03\x04 an archive").find("no Chrome trace"), std::string::npos);
  EXPECT_NE(why_not(R"({"events": [1, 2]})").find("traceEvents"), std::string::npos);
  EXPECT_NE(why_not(R"({"traceEvents": [7]})").find("no Chrome trace"), std::string::npos);
  EXPECT_NE(why_not(R"({"traceEvents": []})").find("no kernel"), std::string::npos);
  EXPECT_THROW(read_trace("/nowhere/trace.json"), Error);
  EXPECT_THROW(read_trace("."), Error);
}

TEST(Trace, RefusesClocksThatRunBackwards) {
  const std::string why = why_not(trace_of(R"({"ph": "X", "cat": "kernel", "name": "k", "ts": 5, "dur": -3, "args": {}})"));
  EXPECT_NE(why.find("backwards"), std::string::npos) << why;
  EXPECT_NE(why_not(trace_of(R"({"ph": "X", "cat": "kernel", "name": "k", "args": {}})")).find("no time"), std::string::npos);
}

// ---- a real one ------------------------------------------------------------------------------------------------------

/// GPT-2 small: in each of 12 layers four products forward, and two for each of them backward; the head's three. 12·4·3 + 3 = 147, and
/// nothing is left of the device's time that is not known but attention (whose mask's constants were not kept) and sums over rows.
TEST(Trace, ARealStepIsKnownKernelByKernel) {
  const Trace trace = read_trace(kGpt2);
  EXPECT_EQ(trace.device.name, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(trace.work.size(), 1233u);
  std::size_t products = 0;
  double all = 0, known = 0;
  for (const TracedWork& work : trace.work) {
    all += work.seconds;
    known += work.shaped ? work.seconds : 0;
    products += work.kind == TracedWork::Kind::kernel && trace.kernels[work.id].product() != nullptr ? 1 : 0;
  }
  EXPECT_EQ(products, 147u);
  EXPECT_GT(known / all, 0.9);
}

}  // namespace
}  // namespace plimsoll::trace
