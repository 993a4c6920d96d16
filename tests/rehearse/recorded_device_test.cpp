// What a record says of the device that it was made on, and what may be otherwise on another.
#include "plimsoll/recorded_device.hpp"

#include <gtest/gtest.h>

#include "plimsoll/error.hpp"
#include "plimsoll/rehearse.hpp"
#include "rehearse/record_writer.hpp"

namespace plimsoll::rehearse {
namespace {

/// A step of one product, on an H100 that a program may have asked for its memory.
RecordWriter on_h100(bool asked, std::uint32_t processors = 132) {
  const Cluster cluster = parse_cluster("1xh100-sxm");
  RecordWriter writer;
  record::Device device{};
  device.name = writer.name(cluster.accelerator.title);
  device.memory_bytes = static_cast<std::uint64_t>(cluster.accelerator.memory_usable.value.count);
  device.processors = processors;
  device.major = 9;
  writer.write(record::Kind::device, device);
  if (asked) writer.mark(record::MarkKind::text, record::kAskedForMemory);
  return writer.phase("forward").gemm(4096, 4096, 4096).step_end();
}

std::vector<std::string> differences(const RecordWriter& writer, const char* cluster) {
  const TemporaryFile file(writer.bytes());
  return may_differ(recorded_device(file.path()), parse_cluster(cluster), file.path());
}

TEST(RecordedDevice, IsTold) {
  const TemporaryFile file(on_h100(true).bytes());
  const RecordedDevice device = recorded_device(file.path());
  EXPECT_EQ(device.name, parse_cluster("1xh100-sxm").accelerator.title);
  EXPECT_EQ(device.processors, 132);
  EXPECT_EQ(device.major, 9);
  EXPECT_TRUE(device.asked_for_memory);
}

/// An H200 is an H100 with more memory: all that a program could see otherwise is that.
TEST(RecordedDevice, MemoryMattersToWhoAskedForIt) {
  EXPECT_TRUE(differences(on_h100(false), "1xh200-sxm").empty());
  EXPECT_TRUE(differences(on_h100(true), "1xh100-sxm").empty());
  const std::vector<std::string> asked = differences(on_h100(true), "1xh200-sxm");
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_NE(asked[0].find("asked how much memory"), std::string::npos);
  const std::vector<std::string> fewer = differences(on_h100(false, 114), "1xh200-sxm");
  ASSERT_EQ(fewer.size(), 1u);
  EXPECT_NE(fewer[0].find("recorded on 114 processors"), std::string::npos);
}

TEST(RecordedDevice, OtherKernelsAreRefused) {
  for (const char* other : {"1xmi300x", "1xb200", "1xa100-80gb-sxm"}) EXPECT_THROW(differences(on_h100(false), other), Error) << other;
  EXPECT_THROW(differences(RecordWriter().phase("forward"), "1xh100-sxm"), Error) << "it used no device";
}

/// The same work takes as long on an H200, whose units are an H100's; its memory is another.
TEST(RecordedDevice, ItsRecordIsPricedElsewhere) {
  const TemporaryFile file(on_h100(false).bytes());
  const Rehearsal here = rehearsal_of({read_recording(file.path())}, parse_cluster("1xh100-sxm"));
  const Rehearsal there = rehearsal_of({read_recording(file.path())}, parse_cluster("1xh200-sxm"));
  EXPECT_GT(there.report.worst_rank().memory.capacity, here.report.worst_rank().memory.capacity);
  EXPECT_NEAR(there.timelines[0].compute.value, here.timelines[0].compute.value, 0.2 * here.timelines[0].compute.value);
}

}  // namespace
}  // namespace plimsoll::rehearse
