// What other profilers than PyTorch's write: Nsight Systems' database and rocprofv3's tables.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "plimsoll/error.hpp"
#include "plimsoll/trace.hpp"
#include "text_file.hpp"

namespace plimsoll::trace {
namespace {

const std::string kKernels =
    "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT NOT NULL, end INT NOT NULL, deviceId INT NOT NULL, contextId INT NOT NULL, streamId INT NOT NULL,"
    " correlationId INT, globalPid INT, demangledName INT NOT NULL, shortName INT NOT NULL, gridX INT NOT NULL, gridY INT NOT NULL, gridZ INT NOT NULL,"
    " blockX INT NOT NULL, blockY INT NOT NULL, blockZ INT NOT NULL);"
    "INSERT INTO StringIds VALUES (1, 'nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT'), (2, 'nvjet'), (3, 'ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)'),"
    " (4, 'train_step');";

/// A database of these statements, for as long as this lives.
class Database {
 public:
  explicit Database(const std::string& statements) : file_("") {
    std::remove(file_.path().c_str());
    sqlite3* database = nullptr;
    sqlite3_open(file_.path().c_str(), &database);
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(database, statements.c_str(), nullptr, nullptr, &error), SQLITE_OK) << (error ? error : "");
    sqlite3_close(database);
  }
  const std::string& path() const { return file_.path(); }

 private:
  TextFile file_;
};

std::string why_not(const std::string& path) {
  try {
    read_trace(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "read";
}

/// A database is a program too: what would count for ever, or be of any length, is refused, and at once.
TEST(Nsys, TablesAlone) {
  const std::string names = "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);", columns = "(start INT, end INT, deviceId INT, streamId INT, demangledName INT, shortName INT)";
  const std::pair<const char*, std::string> hostile[] = {
      {"no table", names + "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n AS start, n + 1 AS end,"
                           " 0 AS deviceId, 7 AS streamId, 1 AS demangledName, 1 AS shortName FROM r;"},
      {"no table", "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL " + columns + "; INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 0, 7, 1, 1);"
                   "CREATE VIEW StringIds AS SELECT 1 AS id, hex(zeroblob(400000000)) AS value;"},
      {"computed", "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL " + columns + ";"
                   "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT AS (hex(zeroblob(400000000))));"},
      {"more work", "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL " + columns + "; CREATE TABLE StringIds (id TEXT, value TEXT);"
                    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 9000) INSERT INTO StringIds SELECT 1, 'a' FROM r;"
                    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 9000) INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT n, n + 1, 0, 7, 1, 1 FROM r;"}};
  for (const auto& [why, statements] : hostile) {
    const std::string told = why_not(Database(statements).path());
    EXPECT_NE(told.find(why), std::string::npos) << told;
  }
}

/// Two steps by NVTX, each a product of 2 µs and a collective of 3 µs; a copy of 4,096 bytes to the host in the second.
TEST(Nsys, KernelsCopiesStepsAndTheDevice) {
  const Database database(kKernels +
                          "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 3000, 0, 1, 7, 1, 1, 1, 2, 64, 2, 1, 384, 1, 1), (3000, 6000, 0, 1, 9, 2, 1, 3, 3, 8, 1, 1, 512, 1, 1),"
                          " (11000, 13000, 0, 1, 7, 3, 1, 1, 2, 64, 2, 1, 384, 1, 1), (13000, 16000, 0, 1, 9, 4, 1, 3, 3, 8, 1, 1, 512, 1, 1);"
                          "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, deviceId INT, streamId INT, bytes INT, copyKind INT);"
                          "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (16000, 16500, 0, 7, 4096, 2);"
                          "CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT);"
                          "INSERT INTO NVTX_EVENTS VALUES (500, 9000, 59, NULL, 4, 1), (10500, 19000, 59, 'train_step', NULL, 1), (600, 700, 59, 'forward', NULL, 1),"
                          " (650, 660, 59, 'optimizer_step', NULL, 1), (700, NULL, 34, 'a mark', NULL, 1);"
                          "CREATE TABLE TARGET_INFO_GPU (id INT, name TEXT, computeMajor INT, computeMinor INT, smCount INT, totalMemory INT);"
                          "INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100 80GB HBM3', 9, 0, 132, 85000000000);");
  const Trace trace = read_trace(database.path());
  ASSERT_EQ(trace.work.size(), 5u);
  EXPECT_EQ(trace.kernels[trace.work[0].id].kind(), KernelKind::gemm);
  EXPECT_FALSE(trace.work[0].shaped);  // a name is no size
  EXPECT_NEAR(trace.work[0].seconds, 2e-6, 1e-12);
  ASSERT_EQ(trace.work[1].kind, TracedWork::Kind::collective);
  EXPECT_EQ(trace.collectives[trace.work[1].id].what.kind, CollectiveKind::all_reduce);
  EXPECT_EQ(trace.work[1].stream, 9u);
  ASSERT_EQ(trace.work[4].kind, TracedWork::Kind::copy);
  EXPECT_EQ(trace.copies[trace.work[4].id], (Copy{Copy::Direction::device_to_host, 4096}));
  ASSERT_EQ(trace.steps.size(), 2u);
  EXPECT_EQ(trace.steps[0].name, "train_step");
  EXPECT_EQ(trace.steps[0].end - trace.steps[0].begin, 2u);
  EXPECT_EQ(trace.device.compute_units, 132);
}

TEST(Nsys, WhatIsNoneIsRefused) {
  EXPECT_NE(why_not(Database("CREATE TABLE t (a INT);").path()).find("CUPTI_ACTIVITY_KIND_KERNEL"), std::string::npos);
  EXPECT_NE(why_not(Database(kKernels).path()).find("holds no kernel"), std::string::npos);
  const Database backwards(kKernels + "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (3000, 1000, 0, 1, 7, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1);");
  EXPECT_NE(why_not(backwards.path()).find("ran backwards"), std::string::npos);
  EXPECT_NE(why_not(TextFile("SQLite format 3 and then nothing of it").path()).find("Nsight Systems"), std::string::npos);
}

/// Files of one run beside each other, for as long as this lives.
class RocprofFiles {
 public:
  RocprofFiles(const std::string& kernels, const std::string& copies, const std::string& marks) : folder_(std::filesystem::temp_directory_path() / "plimsoll-rocprof-XXXXXX") {
    std::string name = folder_.string();
    folder_ = mkdtemp(name.data());
    write("_kernel_trace.csv", kernels);
    write("_memory_copy_trace.csv", copies);
    write("_marker_api_trace.csv", marks);
  }
  ~RocprofFiles() { std::filesystem::remove_all(folder_); }
  RocprofFiles(const RocprofFiles&) = delete;
  RocprofFiles& operator=(const RocprofFiles&) = delete;
  std::string kernels() const { return (folder_ / "42_kernel_trace.csv").string(); }

 private:
  void write(const std::string& ending, const std::string& text) const { std::ofstream(folder_ / ("42" + ending)) << text; }
  std::filesystem::path folder_;
};

const std::string kHeader =
    "\"Kind\",\"Agent_Id\",\"Queue_Id\",\"Thread_Id\",\"Dispatch_Id\",\"Kernel_Id\",\"Kernel_Name\",\"Correlation_Id\",\"Start_Timestamp\",\"End_Timestamp\","
    "\"Private_Segment_Size\",\"Group_Segment_Size\",\"Workgroup_Size_X\",\"Workgroup_Size_Y\",\"Workgroup_Size_Z\",\"Grid_Size_X\",\"Grid_Size_Y\",\"Grid_Size_Z\"\n";
const std::string kGemm = "\"KERNEL_DISPATCH\",\"Agent 4\",1,7,1,12,\"Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1\",1,1000,3000,0,0,256,1,1,65536,1,1\n";

/// A grid of 65,536 work-items in groups of 256 is 256 blocks.
TEST(Rocprof, KernelsCopiesAndSteps) {
  const RocprofFiles files(kHeader + kGemm + "\"KERNEL_DISPATCH\",\"Agent 4\",2,7,2,13,\"void at::native::f<float, int>(int, float)\",2,11000,12000,0,0,256,1,1,256,1,1\r\n",
                           "\"Kind\",\"Direction\",\"Source_Agent_Id\",\"Destination_Agent_Id\",\"Correlation_Id\",\"Start_Timestamp\",\"End_Timestamp\"\n"
                           "\"MEMORY_COPY\",\"MEMORY_COPY_HOST_TO_DEVICE\",\"Agent 0\",\"Agent 4\",3,5000,6000\n",
                           "\"Domain\",\"Function\",\"Process_Id\",\"Thread_Id\",\"Correlation_Id\",\"Start_Timestamp\",\"End_Timestamp\"\n"
                           "\"MARKER_CORE_API\",\"iteration 1\",7,7,1,500,9000\n\"MARKER_CORE_API\",\"iteration 2\",7,7,2,10000,19000\n");
  const Trace trace = read_trace(files.kernels());
  EXPECT_TRUE(trace.device.amd);
  ASSERT_EQ(trace.work.size(), 3u);
  EXPECT_EQ(trace.kernels[trace.work[0].id].kind(), KernelKind::gemm);
  EXPECT_NEAR(trace.work[0].seconds, 2e-6, 1e-12);
  EXPECT_EQ(trace.work[1].kind, TracedWork::Kind::copy);
  EXPECT_EQ(trace.copies[trace.work[1].id].direction, Copy::Direction::host_to_device);
  EXPECT_EQ(trace.names[trace.work[2].name], "void at::native::f<float, int>(int, float)") << "a comma in quotes divides nothing";
  ASSERT_EQ(trace.steps.size(), 2u);
  EXPECT_EQ(trace.steps[1].begin, 2u);
}

/// rocprof 1 and 2 named their columns otherwise.
TEST(Rocprof, OlderTables) {
  const TextFile file("\"Index\",\"KernelName\",\"gpu-id\",\"queue-id\",\"BeginNs\",\"EndNs\"\n0,\"Cijk_Ailk_Bljk_HHS_BH_MT128x128x32\",2,0,100,400\n");
  const Trace trace = read_trace(file.path());
  ASSERT_EQ(trace.work.size(), 1u);
  EXPECT_NEAR(trace.work[0].seconds, 3e-7, 1e-15);
}

TEST(Rocprof, WhatIsDamagedIsRefusedWithItsLine) {
  EXPECT_NE(why_not(TextFile(kHeader).path()).find("holds no kernel"), std::string::npos);
  EXPECT_NE(why_not(TextFile(kHeader + kGemm.substr(0, 60)).path()).find("line 2"), std::string::npos);
  EXPECT_NE(why_not(TextFile(kHeader + kGemm.substr(0, kGemm.size() - 20)).path()).find("fields"), std::string::npos);
  EXPECT_NE(why_not(TextFile("Kernel_Name,Start_Timestamp\na,1\n").path()).find("End_Timestamp"), std::string::npos);
  EXPECT_NE(why_not(TextFile("Kernel_Name,Start_Timestamp,End_Timestamp\na,x,2\n").path()).find("whole number"), std::string::npos);
  EXPECT_NE(why_not(TextFile("Kernel_Name,Start_Timestamp,End_Timestamp\na,5,2\n").path()).find("ran backwards"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::trace
