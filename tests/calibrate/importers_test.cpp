// What vendors' tools print becomes samples; what they would not print is refused with the place.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "plimsoll/calibrate.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

std::string data_file(const std::string& name) {
  std::ifstream file(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/calibrate/data/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

/// The message and hint of the error that importing raises; empty when it raises none.
std::string complaint(const std::string& tool, const std::string& text, const std::string& where = "out.txt") {
  try {
    import_samples(tool, text, where);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    return error.what();
  }
  return {};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Importers, RcclTests) {
  const auto samples = import_samples("rccl-tests", data_file("all_reduce_perf.txt"), "all_reduce_perf.txt");
  ASSERT_EQ(samples.size(), 9u);
  const Sample& last = samples.back();
  EXPECT_EQ(last.kind, SampleKind::collective);
  EXPECT_EQ(last.group, "all_reduce");
  EXPECT_EQ(last.type, "fp32");
  EXPECT_EQ(last.bytes, 1073741824);
  EXPECT_EQ(last.ranks, 8);
  EXPECT_EQ(last.nodes, 1);
  EXPECT_DOUBLE_EQ(last.seconds, 5970.60e-6);
}

TEST(Importers, RcclTestsOfTwoHostsAndOlderColumns) {
  // nccl-tests before 2.13: no root, "error" for "#wrong", no line that names the test: the file's name says it.
  const std::string text =
      "# Using devices\n#   Rank  0 Pid   1320 on host-a device  0 [0x00] Tesla V100\n#   Rank  1 Pid   2066 on host-b device  0 [0x00] "
      "Tesla V100\n"
      "#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n"
      "  1310720000     327680000     float     sum  1140000   1.15   1.15  0e+00  1140000   1.15   1.15  0e+00\n# Avg bus bandwidth    : "
      "1.15\n";
  const auto samples = import_samples("nccl-tests", text, "reduce_scatter_perf.log");
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].group, "reduce_scatter");
  EXPECT_EQ(samples[0].ranks, 2);
  EXPECT_EQ(samples[0].nodes, 2);
  EXPECT_DOUBLE_EQ(samples[0].seconds, 1.14);
  EXPECT_TRUE(contains(complaint("nccl-tests", text, "log.txt"), "which collective"));
}

TEST(Importers, RcclTestsRefused) {
  const std::string text = data_file("all_reduce_perf.txt");
  EXPECT_TRUE(contains(complaint("rccl-tests", text.substr(0, text.find("# Out of bounds"))), "cut off"));
  EXPECT_TRUE(contains(complaint("rccl-tests", replaced(replaced(text, "busbw", "bus"), "busbw", "bus")), "'busbw'"));
  EXPECT_TRUE(contains(complaint("rccl-tests", replaced(text, "1537.10  174.64  305.61", "1537.10")), "columns"));
  EXPECT_TRUE(contains(complaint("rccl-tests", replaced(text, "1537.10", "15x7.10")), "'15x7.10'"));
  EXPECT_TRUE(contains(complaint("rccl-tests", "hello\n"), "no output of rccl-tests"));
  EXPECT_TRUE(contains(complaint("rccl-test", text), "rccl-tests"));
}

TEST(Importers, HipblasltBench) {
  const auto samples = import_samples("hipblaslt-bench", data_file("hipblaslt_bench.csv"), "bench.csv");
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].type, "fp16");
  EXPECT_EQ(samples[0].m, 4096);
  EXPECT_EQ(samples[0].n, 4864);
  EXPECT_EQ(samples[0].k, 32896);
  EXPECT_DOUBLE_EQ(samples[0].seconds, 2361.71e-6);
  // The tool's own rate, 555009 GFLOP/s, must follow from shape and time.
  EXPECT_NEAR(samples[0].flops / samples[0].seconds / 1e9, 555009, 5);
  EXPECT_EQ(samples[1].batch, 2);
  EXPECT_DOUBLE_EQ(samples[1].flops, 2.0 * 8192 * 8192 * 4096 * 2);
}

TEST(Importers, HipblasltBenchWithTheNameOfItsFunctionAndOfKernels) {
  std::string text = data_file("hipblaslt_bench.csv");
  text = replaced(replaced(text, "[0]:transA", "[0]:function,transA"), "    N,N,", "    matmul,N,N,");
  text += "    --kernel name:    Cijk_Ailk_Bljk,MT256x128,MIWT4_4,N,SN,T,1\n";
  EXPECT_EQ(import_samples("hipblaslt-bench", text, "bench.csv").size(), 2u);
}

TEST(Importers, HipblasltBenchRefused) {
  const std::string text = data_file("hipblaslt_bench.csv");
  EXPECT_TRUE(contains(complaint("hipblaslt-bench", replaced(text, "GB/s,us", "GB/s,ms")), "'us'"));
  EXPECT_TRUE(contains(complaint("hipblaslt-bench", text.substr(0, text.rfind("    T,N"))), "cut off"));
  EXPECT_TRUE(contains(complaint("hipblaslt-bench", replaced(text, ",2361.71", "")), "values for"));
  EXPECT_TRUE(contains(complaint("hipblaslt-bench", replaced(text, "2361.71", "nan")), "'nan'"));
  EXPECT_TRUE(contains(complaint("hipblaslt-bench", ""), "no output of hipblaslt-bench"));
}

TEST(Importers, BabelStream) {
  const auto samples = import_samples("babelstream", data_file("babelstream.txt"), "stream.txt");
  ASSERT_EQ(samples.size(), 5u);
  // Copy moves two arrays of 2^28 doubles: 4,294,967,296 bytes, which rate times shortest time gives back within its rounding.
  EXPECT_NEAR(static_cast<double>(samples[0].bytes), 4294967296.0, 1e-4 * 4294967296.0);
  EXPECT_EQ(samples[0].group, "elementwise");
  EXPECT_EQ(samples[4].group, "reduction");
  EXPECT_DOUBLE_EQ(samples[3].seconds, 0.00157812);
  EXPECT_DOUBLE_EQ(samples[3].fastest, 0.00157106);
}

TEST(Importers, BabelStreamOfLaterVersionsAndItsCsv) {
  // After 5.0 the unit is one of choice; the numbers are those of the file above.
  const std::string text =
      replaced(replaced(data_file("babelstream.txt"), "MBytes/sec  Min", "GB/s        Min"), "4150321.000", "4150.321");
  const Sample copy = import_samples("babelstream", text, "stream.txt").front();
  EXPECT_NEAR(static_cast<double>(copy.bytes), 4294967296.0, 1e-4 * 4294967296.0);
  const auto samples = import_samples("babelstream",
                                      "function,num_times,n_elements,sizeof,max_mbytes_per_sec,min_runtime,max_runtime,avg_runtime\n"
                                      "Copy,100,268435456,8,4150321,0.00103485,0.0010621,0.00104012\n"
                                      "Triad,100,268435456,8,4100700,0.00157106,0.0016023,0.00157812\n",
                                      "stream.csv");
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[1].bytes, std::int64_t{3} * 268435456 * 8);
  EXPECT_EQ(samples[1].type, "fp64");
  EXPECT_DOUBLE_EQ(samples[1].seconds, 0.00157812);
  EXPECT_TRUE(contains(complaint("babelstream", "function,times,n\nTriad,1,2\n"), "columns are not function"));
}

TEST(Importers, BabelStreamRefused) {
  const std::string text = data_file("babelstream.txt");
  EXPECT_TRUE(contains(complaint("babelstream", text.substr(0, text.find("Triad"))), "cut off"));
  EXPECT_TRUE(contains(complaint("babelstream", replaced(text, "MBytes/sec  Min", "furlongs    Min")), "columns"));
  EXPECT_TRUE(contains(complaint("babelstream", replaced(text, "Precision: double\n", "")), "precision"));
}

TEST(Importers, TransferBench) {
  const auto samples = import_samples("transferbench", data_file("transferbench.txt"), "tb.txt");
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(samples[0].kind, SampleKind::peer_copy);
  EXPECT_EQ(samples[1].kind, SampleKind::host_to_device);
  EXPECT_EQ(samples[2].kind, SampleKind::device_to_host);
  EXPECT_EQ(samples[1].bytes, 268435456);
  EXPECT_DOUBLE_EQ(samples[1].seconds, 4.868e-3);
}

TEST(Importers, TransferBenchRefused) {
  const std::string text = data_file("transferbench.txt");
  EXPECT_TRUE(contains(complaint("transferbench", text.substr(0, text.rfind("Aggregate"))), "cut off"));
  EXPECT_TRUE(contains(complaint("transferbench", replaced(text, "    1.420 ms", " 1420.0 us")), "in ms"));
  EXPECT_TRUE(contains(complaint("transferbench", replaced(text, "G0 -> GPU00:008 -> G1", "G0 ->")), "no route"));
  EXPECT_TRUE(contains(complaint("transferbench", "Test 1:\n"), "no output of TransferBench"));
}

TEST(Importers, RocmBandwidthTest) {
  const auto samples = import_samples("rocm-bandwidth-test", data_file("rocm_bandwidth_test.txt"), "rbt.txt");
  // Two devices and a host: host to each, each to host, and the two ways between the devices.
  ASSERT_EQ(samples.size(), 6u);
  int peers = 0;
  for (const Sample& sample : samples) {
    if (sample.kind != SampleKind::peer_copy) continue;
    ++peers;
    EXPECT_NEAR(static_cast<double>(sample.bytes) / sample.seconds, 47.9e9, 0.1e9);
  }
  EXPECT_EQ(peers, 2);
}

TEST(Importers, RocmBandwidthTestRefused) {
  const std::string text = data_file("rocm_bandwidth_test.txt");
  const std::string cut = text.substr(0, text.find("          2         56.030"));
  EXPECT_TRUE(contains(complaint("rocm-bandwidth-test", cut), "cut off"));
  EXPECT_TRUE(contains(complaint("rocm-bandwidth-test", replaced(text, "Unidirectional copy", "One-way copy")), "no table"));
}

}  // namespace
}  // namespace plimsoll
