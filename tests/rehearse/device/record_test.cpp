// The record and the names: complete libraries, a record that outlives its process, settings that make no sense.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "libraries.hpp"

namespace plimsoll::rehearse::test {
namespace {

std::vector<std::string> names_of(const std::filesystem::path& list) {
  std::ifstream file(list);
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);)
    if (!line.empty() && line[0] != '#' && line[0] != '<') names.push_back(line);
  return names;
}

TEST(Names, EveryLibraryExportsWhatItsListNames) {
  std::size_t lists = 0;
  for (const auto& entry : std::filesystem::directory_iterator(PLIMSOLL_DEVICE_NAMES)) {
    const std::string soname = entry.path().stem().string();
    const auto names = names_of(entry.path());
    EXPECT_GT(names.size(), 20u) << soname;
    for (const std::string& name : names) EXPECT_NE(library(soname).symbol(name.c_str()), nullptr) << soname << ": " << name;
    ++lists;
  }
  EXPECT_GE(lists, 9u);
}

// Programs are linked against names with the library's own version.
TEST(Names, HaveTheVendorsVersions) {
  EXPECT_NE(library("libcudart.so.12").symbol("cudaMalloc", "libcudart.so.12"), nullptr);
  EXPECT_NE(library("libcudart.so.13").symbol("cudaMalloc", "libcudart.so.13"), nullptr);
  EXPECT_NE(library("libcublasLt.so.13").symbol("cublasLtMatmul", "libcublasLt.so.13"), nullptr);
}

TEST(Names, PerThreadStreamsRunTheSameFunctions) {
  using Launch = int(const void*, unsigned long long, unsigned, unsigned long long, unsigned, void**, std::size_t, void*);
  const Recorded recorded;
  const int kernel = 0;
  // dim3 {1, 1, 1} as it is passed: two words, the second one half full.
  const unsigned long long one_one = 1ull << 32 | 1;
  EXPECT_EQ(library("libcudart.so.13").get<Launch>("cudaLaunchKernel_ptsz")(&kernel, one_one, 1, one_one, 1, nullptr, 0, nullptr), 0);
  EXPECT_EQ(recorded.of<record::Kernel>(record::Kind::kernel).size(), 1u);
}

TEST(Unmodelled, IsNamedOnce) {
  const Recorded recorded;
  const auto call = library("libcudart.so.13").get<int()>("cudaCreateTextureObject");
  EXPECT_EQ(call(), 0);
  EXPECT_EQ(call(), 0);
  const auto calls = recorded.of<record::Unmodelled>(record::Kind::unmodelled);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(recorded.name(calls[0].name), "cudaCreateTextureObject");
  EXPECT_EQ(recorded.name(calls[0].library), "libcudart.so.13");
}

TEST(Control, MarksAndBlocksGoIntoTheRecord) {
  const Recorded recorded;
  core().get<decltype(plimsoll_rehearse_mark)>("plimsoll_rehearse_mark")(1, "train", 3);
  core().get<decltype(plimsoll_rehearse_block)>("plimsoll_rehearse_block")(1, 4096, 512, nullptr, "model.py:7 forward");
  const auto marks = recorded.of<record::Mark>(record::Kind::mark);
  const auto blocks = recorded.of<record::Block>(record::Kind::block);
  ASSERT_GE(marks.size(), 1u);
  ASSERT_EQ(blocks.size(), 1u);
  const auto step = std::find_if(marks.begin(), marks.end(), [](const auto& m) { return m.kind == record::MarkKind::step_begin; });
  ASSERT_NE(step, marks.end());
  EXPECT_EQ(step->value, 3);
  EXPECT_EQ(recorded.name(step->text), "train");
  EXPECT_EQ(recorded.name(blocks[0].stack), "model.py:7 forward");
  EXPECT_EQ(blocks[0].bytes, 512u);
}

TEST(Control, NotesTheWorkOfALibraryThatIsNotThere) {
  const Recorded recorded;
  const auto call = core().get<decltype(plimsoll_rehearse_library_call)>("plimsoll_rehearse_library_call");
  const std::int64_t numbers[] = {2, 8, 512};
  EXPECT_EQ(call("some.attention", nullptr, static_cast<int>(record::Type::bf16), numbers, 3), 1);
  std::uint64_t none[8] = {};
  EXPECT_EQ(call("some.attention", none, static_cast<int>(record::Type::bf16), numbers, 3), 0);  // a stream that is none
  const auto calls = recorded.of_tail<record::LibraryCall, std::int64_t>(record::Kind::library_call);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(recorded.name(calls[0].first.name), "some.attention");
  EXPECT_EQ(calls[0].first.type, record::Type::bf16);
  EXPECT_EQ(calls[0].second, (std::vector<std::int64_t>{2, 8, 512}));
}

TEST(Control, PausesTheRecord) {
  const auto pause = core().get<decltype(plimsoll_rehearse_record)>("plimsoll_rehearse_record");
  const Recorded recorded;
  const auto memset = library("libcudart.so.13").get<int(void*, int, std::size_t)>("cudaMemset");
  char host[8];
  pause(0);
  EXPECT_EQ(memset(host, 0, 8), 0);
  pause(1);
  EXPECT_EQ(memset(host, 0, 8), 0);
  EXPECT_EQ(recorded.of<record::Memset>(record::Kind::memset).size(), 1u);
}

TEST(Control, ReadsAndWritesDeviceValues) {
  void* p = nullptr;
  ASSERT_EQ(library("libcudart.so.13").get<int(void**, std::size_t)>("cudaMalloc")(&p, 64), 0);
  const float loss = 1.5f;
  float back = 0;
  EXPECT_EQ(core().get<decltype(plimsoll_rehearse_write)>("plimsoll_rehearse_write")(p, &loss, sizeof loss), 1);
  EXPECT_EQ(core().get<decltype(plimsoll_rehearse_read)>("plimsoll_rehearse_read")(p, &back, sizeof back), 1);
  EXPECT_EQ(back, 1.5f);
  EXPECT_EQ(core().get<decltype(plimsoll_rehearse_write)>("plimsoll_rehearse_write")(&back, &loss, sizeof loss), 0) << "not on a device";
}

TEST(Control, ValuesAreForgottenWithTheirOwner) {
  const auto block = core().get<decltype(plimsoll_rehearse_block)>("plimsoll_rehearse_block");
  const auto write = core().get<decltype(plimsoll_rehearse_write)>("plimsoll_rehearse_write");
  const auto read = core().get<decltype(plimsoll_rehearse_read)>("plimsoll_rehearse_read");
  const auto note = core().get<decltype(plimsoll_rehearse_note_values)>("plimsoll_rehearse_note_values");
  const int allocate = static_cast<int>(record::BlockAction::allocate);
  void* p = nullptr;
  ASSERT_EQ(library("libcudart.so.13").get<int(void**, std::size_t)>("cudaMalloc")(&p, 4 << 20), 0);
  char* memory = static_cast<char*>(p);
  const auto value_at = [&](std::size_t offset) {
    int value = -1;
    EXPECT_EQ(read(memory + offset, &value, sizeof value), 1);
    return value;
  };
  const int seven = 7;
  for (const std::size_t offset : {0, 8192, 8704, 1 << 20}) EXPECT_EQ(write(memory + offset, &seven, sizeof seven), 1);
  std::memcpy(memory + 12288, &seven, sizeof seven);  // as Python's helpers do
  note(memory + 12288, sizeof seven, 2);
  // The allocator gives [8192, 8704) to another tensor: what lies beside it stays.
  block(allocate, reinterpret_cast<std::uint64_t>(memory + 8192), 512, nullptr, nullptr);
  EXPECT_EQ(value_at(8192), 0);
  for (const std::size_t offset : {0, 8704, 12288, 1 << 20}) EXPECT_EQ(value_at(offset), 7) << offset;
  // A copy from the host counts as written too, and a block over several of them forgets all.
  ASSERT_EQ(library("libcudart.so.13").get<int(void*, const void*, std::size_t, int)>("cudaMemcpy")(memory + 4096, &seven, sizeof seven, 1),
            0);
  block(allocate, reinterpret_cast<std::uint64_t>(memory), 2 << 20, nullptr, nullptr);
  for (const std::size_t offset : {0, 4096, 8704, 12288, 1 << 20}) EXPECT_EQ(value_at(offset), 0) << offset;
}

TEST(Control, KnowledgeOfValuesFollowsCopiesAndFills) {
  const auto note = core().get<decltype(plimsoll_rehearse_note_values)>("plimsoll_rehearse_note_values");
  const auto known = core().get<decltype(plimsoll_rehearse_known)>("plimsoll_rehearse_known");
  const auto& runtime = library("libcudart.so.13");
  const auto copy = runtime.get<int(void*, const void*, std::size_t, int)>("cudaMemcpy");
  void* p = nullptr;
  ASSERT_EQ(runtime.get<int(void**, std::size_t)>("cudaMalloc")(&p, 8 << 20), 0);
  char* memory = static_cast<char*>(p);
  EXPECT_EQ(known(memory, 4), 0) << "nobody put anything there";
  ASSERT_EQ(runtime.get<int(void*, int, std::size_t)>("cudaMemset")(memory, 0, 4096), 0);
  EXPECT_EQ(known(memory, 4096), 2);
  EXPECT_EQ(known(memory, 4097), 0) << "one byte beyond";
  note(memory + 1024, 512, 1);  // in the middle: assumed
  EXPECT_EQ(known(memory, 1024), 2);
  EXPECT_EQ(known(memory, 4096), 1) << "the least that is known of any byte";
  ASSERT_EQ(copy(memory + 8192, memory + 512, 1024, 3), 0);
  EXPECT_EQ(known(memory + 8192, 512), 1) << "a copy on the device is as known as the least of its source";
  ASSERT_EQ(copy(memory + 8192, memory + 512, 512, 3), 0);
  EXPECT_EQ(known(memory + 8192, 512), 2);
  EXPECT_EQ(known(memory + 8192, 1024), 1);
  ASSERT_EQ(copy(memory, memory + 65536, 256, 3), 0);
  EXPECT_EQ(known(memory, 256), 0) << "overwritten by what nobody knows";
  EXPECT_EQ(known(memory + 256, 256), 2);
  int value = 7;
  ASSERT_EQ(copy(memory + 2048, &value, sizeof value, 1), 0);
  note(memory, 4096, 0);
  EXPECT_EQ(known(memory + 2048, 4), 0);
  ASSERT_EQ(copy(&value, memory + 2048, sizeof value, 2), 0);
  EXPECT_EQ(value, 0) << "what is not known any more is nobody's result";
  // More than is copied: forgotten.
  note(memory, 4 << 20, 2);
  ASSERT_EQ(copy(memory, memory + (4 << 20), 2 << 20, 3), 0);
  EXPECT_EQ(known(memory, 4), 0);
  EXPECT_EQ(known(memory + (2 << 20), 2 << 20), 2);
  ASSERT_EQ(runtime.get<int(void*)>("cudaFree")(p), 0);
  ASSERT_EQ(runtime.get<int(void**, std::size_t)>("cudaMalloc")(&p, 8 << 20), 0);
  EXPECT_EQ(known(static_cast<char*>(p) + (3 << 20), 4), 0) << "freed memory is forgotten";
}

/// Runs this program again as `--child HOW` with one variable set; its wait status and what it wrote to the standard error.
int run_child(const char* how, const char* variable, const std::string& value, std::string* errors = nullptr) {
  const std::string output = testing::TempDir() + "plimsoll-device-child-" + std::to_string(getpid()) + ".errors";  // tests run side by side
  const pid_t child = fork();
  if (child == 0) {
    setenv(variable, value.c_str(), 1);
    if (std::freopen(output.c_str(), "w", stderr) == nullptr) _exit(99);
    execl("/proc/self/exe", "test_rehearse_device", "--child", how, nullptr);
    _exit(99);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (errors != nullptr) {
    std::ifstream file(output);
    *errors = std::string(std::istreambuf_iterator<char>(file), {});
  }
  std::filesystem::remove(output);
  return status;
}

std::string child_record() { return testing::TempDir() + "plimsoll-device-child-" + std::to_string(getpid()) + ".record"; }

TEST(Record, OutlivesAKilledProcess) {
  const std::string path = child_record();
  std::filesystem::remove(path);
  const int status = run_child("killed", "PLIMSOLL_REHEARSE_RECORD", path);
  ASSERT_TRUE(WIFSIGNALED(status));
  const RecordFile file(path);
  EXPECT_FALSE(file.ended());
  bool taken = false;
  for (const EventView& event : file.events())
    if (event.kind() == record::Kind::segment) taken = event.as<record::Segment>().bytes == std::uint64_t{4} << 20;
  EXPECT_TRUE(taken);
  std::filesystem::remove(path);
}

TEST(Record, EndsWithItsProcess) {
  const std::string path = child_record();
  std::filesystem::remove(path);
  EXPECT_EQ(run_child("ends", "PLIMSOLL_REHEARSE_RECORD", path), 0);
  const RecordFile file(path);
  EXPECT_TRUE(file.ended());
  EXPECT_LT(file.bytes(), 4096u) << "no trailing zeros";
  std::filesystem::remove(path);
}

TEST(Record, AForkedChildLeavesItAlone) {
  const Recorded recorded;
  const pid_t child = fork();
  if (child == 0) {
    char host[8];
    const int status = library("libcudart.so.13").get<int(void*, int, std::size_t)>("cudaMemset")(host, 0, 8);
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(recorded.of<record::Memset>(record::Kind::memset).size(), 0u);
}

TEST(Settings, ThatMakeNoSenseEndTheProgram) {
  for (const auto& [variable, value] : {std::pair<const char*, const char*>{"PLIMSOLL_REHEARSE_DEVICES", "many"},
                                        {"PLIMSOLL_REHEARSE_MEMORY", "-1"},
                                        {"PLIMSOLL_REHEARSE_CAPABILITY", "9"},
                                        {"PLIMSOLL_REHEARSE_CONTEXT", "99999999999999"}}) {
    std::string errors;
    const int status = run_child("ends", variable, value, &errors);
    ASSERT_TRUE(WIFEXITED(status)) << variable;
    EXPECT_EQ(WEXITSTATUS(status), 2) << variable;
    EXPECT_NE(errors.find(variable), std::string::npos) << errors;
    EXPECT_NE(errors.find(value), std::string::npos) << errors;
  }
}

TEST(Settings, ARecordThatCannotBeWrittenIsSaid) {
  std::string errors;
  EXPECT_EQ(run_child("ends", "PLIMSOLL_REHEARSE_RECORD", "/no/such/folder/record", &errors), 0) << "the program goes on";
  EXPECT_NE(errors.find("/no/such/folder/record"), std::string::npos) << errors;
}

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// The promise: below a microsecond a call, the record included. The best of several rounds, because the machine may be busy.
TEST(Speed, ACallCostsLessThanAMicrosecond) {
  struct Dim3 {
    unsigned x = 1, y = 1, z = 1;
  };
  const auto launch = library("libcudart.so.13").get<int(const void*, Dim3, Dim3, void**, std::size_t, void*)>("cudaLaunchKernel");
  const int kernel = 0;
  constexpr int kCalls = 20000;
  double best = 1;
  for (int round = 0; round < 5; ++round) {
    const double from = processor_seconds();
    for (int i = 0; i < kCalls; ++i) launch(&kernel, {}, {}, nullptr, 0, nullptr);
    best = std::min(best, (processor_seconds() - from) / kCalls);
  }
  EXPECT_LT(best, 1e-6);
  RecordProperty("nanoseconds", static_cast<int>(best * 1e9));
}

}  // namespace
}  // namespace plimsoll::rehearse::test
