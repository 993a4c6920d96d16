// Several emulated devices in one process: copies between them and collectives by the table's kernels.
#include "calibrate/peers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "plimsoll/calibrate.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

class Peers : public testing::Test {
 protected:
  void SetUp() override {
    set("PLIMSOLL_HIP_LIBRARY", PLIMSOLL_FAKE_HIP);
    set("FAKE_HIP_DEVICES", "3");
    set("FAKE_HIP_TIME", "model");
  }
  void TearDown() override {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }
  void set(const char* name, const char* value) {
    setenv(name, value, 1);
    names_.emplace_back(name);
  }
  static PeerMeasurement measured() {
    const FoundBackend found = open_hip(0);
    EXPECT_TRUE(found.backend) << found.why_not;
    const DeviceFacts facts = found.backend->facts();
    return measure_peers(driver_of(*found.backend), found.backend->shape(), facts.devices, 0, 1 << 20, 0.01, {});
  }

 private:
  std::vector<std::string> names_;
};

// The answers of all three collectives are checked on the way. A copy takes 8 µs + bytes / 45 GB/s; a collective of three ranks 10 µs + the
// bytes that a rank reads / 90 GB/s: of 1 MiB in fp32 (cut to a multiple of 12 elements: 1,048,560 bytes) an all-reduce reads
// 5/3 of them, an all-gather 2/3, a reduce-scatter all.
TEST_F(Peers, CopiesAndCollectivesHaveTheirTimes) {
  const PeerMeasurement found = measured();
  EXPECT_EQ(found.why_not, "");
  ASSERT_EQ(found.samples.size(), 12u);  // 16 KiB, 128 KiB and 1 MiB of four kinds
  int copies = 0, collectives = 0;
  for (const Sample& sample : found.samples) {
    const double bytes = static_cast<double>(sample.bytes);
    double expected = 8e-6 + bytes / 45e9;
    if (sample.kind == SampleKind::peer_copy) {
      ++copies;
      EXPECT_EQ(sample.ranks, 2);
    } else {
      ++collectives;
      EXPECT_EQ(sample.ranks, 3);
      const double share = sample.group == "all_reduce" ? 5.0 / 3 : sample.group == "all_gather" ? 2.0 / 3 : 1;
      expected = 10e-6 + bytes * share / 90e9;
    }
    EXPECT_NEAR(sample.seconds, expected, 1e-8) << sample.group << " " << sample.bytes;
    EXPECT_EQ(sample.tool, "plimsoll peer kernels");
  }
  EXPECT_EQ(copies, 3);
  EXPECT_EQ(collectives, 9);
}

TEST_F(Peers, AreMeasuredWithTheMachine) {
  set("FAKE_HIP_EXECUTE", "20000000");
  MeasureOptions options;
  options.backend = "hip";
  options.seconds = 1;
  options.largest = Bytes(1 << 20);
  MeasureSession session(options);
  session.measure_machine();
  const auto of_kind = [&](SampleKind kind) {
    const auto& samples = session.set().samples;
    return std::count_if(samples.begin(), samples.end(), [&](const Sample& sample) { return sample.kind == kind; });
  };
  EXPECT_EQ(of_kind(SampleKind::peer_copy), 3);
  EXPECT_EQ(of_kind(SampleKind::collective), 9);
}

TEST_F(Peers, AWrongAnswerEndsTheMeasurement) {
  set("FAKE_HIP_WRONG", "all_gather_fp32");
  try {
    measured();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    EXPECT_NE(error.message().find("all_gather_fp32 over 3 devices gives a wrong answer: data[0] of rank 0"), std::string::npos)
        << error.message();
  }
}

TEST_F(Peers, ALaunchThatFailsIsNamed) {
  set("FAKE_HIP_LAUNCH_ERROR", "reduce_scatter_fp32:719");
  try {
    measured();
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("reduce_scatter_fp32: hipErrorLaunchFailure (719)"), std::string::npos) << error.message();
  }
}

TEST_F(Peers, DevicesThatCannotReachEachOtherAreSaidSo) {
  set("FAKE_HIP_NO_PEER", "1");
  EXPECT_EQ(measured().why_not, "device 0 cannot reach device 1's memory");
  set("FAKE_HIP_NO_PEER", "0");
  set("FAKE_HIP_DEVICES", "1");
  EXPECT_EQ(measured().why_not, "there is one device only");
}

}  // namespace
}  // namespace plimsoll::calibrate
