// Records that are whole, cut, and damaged.
#include "rehearse/record_file.hpp"

#include <gtest/gtest.h>

#include <random>

#include "plimsoll/error.hpp"
#include "plimsoll/rehearse.hpp"
#include "rehearse/record_writer.hpp"

namespace plimsoll::rehearse {
namespace {

std::string problem_of(const std::string& bytes) {
  const TemporaryFile file(bytes);
  try {
    const RecordFile record(file.path());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    return error.message() + " at " + error.where();
  }
  return {};
}

TEST(RecordFile, ReadsEventsAndNames) {
  RecordWriter writer;
  const std::uint32_t id = writer.name("silu_kernel");
  writer.gemm(2, 3, 4).write(record::Kind::end, record::End{});
  const TemporaryFile file(writer.bytes());
  const RecordFile record(file.path());
  ASSERT_EQ(record.events().size(), 3u);
  EXPECT_EQ(record.name(id), "silu_kernel");
  EXPECT_EQ(record.name(0), "");
  EXPECT_EQ(record.events()[1].as<record::Gemm>().k, 4);
  EXPECT_TRUE(record.ended());
}

TEST(RecordFile, ZerosEndTheRecordOfAKilledProcess) {
  RecordWriter writer;
  writer.gemm(2, 3, 4);
  writer.bytes().append(4096, '\0');
  const TemporaryFile file(writer.bytes());
  const RecordFile record(file.path());
  EXPECT_EQ(record.events().size(), 1u);
  EXPECT_FALSE(record.ended());
}

TEST(RecordFile, SaysWhereItIsCut) {
  RecordWriter writer;
  const std::size_t start = writer.bytes().size();
  writer.gemm(2, 3, 4);
  // one byte less than the 64 of the only event
  EXPECT_NE(problem_of(writer.bytes().substr(0, writer.bytes().size() - 1)).find("byte " + std::to_string(start)), std::string::npos);
  EXPECT_NE(problem_of(writer.bytes().substr(0, start + 3)).find("cut off"), std::string::npos);
  EXPECT_NE(problem_of(writer.bytes().substr(0, 10)).find("a header has 32 bytes"), std::string::npos);
}

TEST(RecordFile, RefusesWhatIsNoRecord) {
  EXPECT_NE(problem_of(std::string(64, 'x')).find("no record"), std::string::npos);
  RecordWriter writer;
  writer.bytes()[8] = 9;  // version
  EXPECT_NE(problem_of(writer.bytes()).find("version 9"), std::string::npos);
  RecordWriter turned;
  std::swap(turned.bytes()[12], turned.bytes()[15]);
  EXPECT_NE(problem_of(turned.bytes()).find("byte order"), std::string::npos);
  EXPECT_THROW(RecordFile("/nowhere/at/all"), Error);
}

TEST(RecordFile, RefusesEventsShorterThanTheirKind) {
  RecordWriter writer;
  writer.write(record::Kind::kernel, record::Synchronize{});  // 24 bytes, a kernel has 48
  EXPECT_NE(problem_of(writer.bytes()).find("48 are needed"), std::string::npos);
}

TEST(RecordFile, RefusesNamesThatDoNotFitTheirEvent) {
  RecordWriter writer;
  record::Name event{};
  event.id = 1;
  event.length = 1000;
  writer.write(record::Kind::name, event, "short");
  EXPECT_NE(problem_of(writer.bytes()).find("a name of 1000 bytes"), std::string::npos);
}

/// Whatever bytes come, an Error or a Recording: no crash, no endless loop, no memory beyond the file's own size.
TEST(RecordFile, SurvivesAnyDamage) {
  RecordWriter writer;
  writer.allocate(64, 1024).phase("forward").gemm(8, 8, 8).phase("backward").free(64, 1024).step_end();
  std::mt19937 random(7);
  for (int i = 0; i < 500; ++i) {
    std::string bytes = writer.bytes();
    for (int change = 0; change < 4; ++change) bytes[32 + random() % (bytes.size() - 32)] = static_cast<char>(random());
    const TemporaryFile file(bytes);
    try {
      read_recording(file.path());
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::internal) << error.what();
    }
  }
}

}  // namespace
}  // namespace plimsoll::rehearse
