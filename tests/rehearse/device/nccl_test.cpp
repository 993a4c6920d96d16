// NCCL: one process as any rank of any world.
#include <gtest/gtest.h>

#include "libraries.hpp"

namespace plimsoll::rehearse::test {
namespace {

using Handle = void*;
constexpr int kOk = 0, kInvalidArgument = 4, kInvalidUsage = 5, kF32 = 7, kBf16 = 9, kSum = 0;

struct UniqueId {
  char bytes[128];
};

class Nccl : public testing::Test {
 protected:
  const Library& nccl = library("libnccl.so.2");
  Handle make(int size, int rank) {
    UniqueId id;
    Handle c = nullptr;
    EXPECT_EQ(nccl.get<int(UniqueId*)>("ncclGetUniqueId")(&id), kOk);
    EXPECT_EQ(nccl.get<int(Handle*, int, UniqueId, int, void*)>("ncclCommInitRankConfig")(&c, size, id, rank, nullptr), kOk);
    return c;
  }
  int size_of(Handle c, int* size) { return nccl.get<int(Handle, int*)>("ncclCommCount")(c, size); }
  int split(Handle c, int color, int key, Handle* part) {
    return nccl.get<int(Handle, int, int, Handle*, void*)>("ncclCommSplit")(c, color, key, part, nullptr);
  }
  int gather(Handle c, std::size_t count) {
    return nccl.get<int(const void*, void*, std::size_t, int, Handle, Handle)>("ncclAllGather")(nullptr, nullptr, count, kBf16, c, nullptr);
  }
};

TEST_F(Nccl, IsAnyRankOfAnyWorld) {
  const Recorded recorded;
  const Handle c = make(16384, 777);
  int size = 0, rank = 0, error = -1;
  EXPECT_EQ(size_of(c, &size), kOk);
  EXPECT_EQ(size, 16384);
  EXPECT_EQ(nccl.get<int(Handle, int*)>("ncclCommUserRank")(c, &rank), kOk);
  EXPECT_EQ(rank, 777);
  EXPECT_EQ(nccl.get<int(Handle, int*)>("ncclCommGetAsyncError")(c, &error), kOk);
  EXPECT_EQ(error, kOk);
  EXPECT_EQ(nccl.get<int(Handle)>("ncclCommDestroy")(c), kOk);
  EXPECT_EQ(gather(c, 1), kInvalidArgument) << "destroyed";
  const auto made = recorded.of<record::Communicator>(record::Kind::communicator);
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(made[0].action, record::CommunicatorAction::init);
  EXPECT_EQ(made[0].size, 16384);
  EXPECT_EQ(made[0].rank, 777);
  EXPECT_EQ(made[1].action, record::CommunicatorAction::destroy);
  EXPECT_EQ(made[1].id, made[0].id);
}

/// ncclLaunchOneRank: a copy of what is not in place; an average is a kernel of as much traffic wherever its result goes.
TEST_F(Nccl, AloneCopiesWhatIsNotInPlace) {
  constexpr std::size_t kCount = 1 << 20;
  constexpr int kAverage = 4;
  void *from = nullptr, *to = nullptr;
  const auto allocate = library("libcudart.so.13").get<int(void**, std::size_t)>("cudaMalloc");
  ASSERT_EQ(allocate(&from, 4 * kCount), kOk);
  ASSERT_EQ(allocate(&to, 4 * kCount), kOk);
  const auto scatter = [&](const void* source, void* target, int reduction, Handle c) {
    return nccl.get<int(const void*, void*, std::size_t, int, int, Handle, Handle)>("ncclReduceScatter")(source, target, kCount, kF32,
                                                                                                         reduction, c, nullptr);
  };
  const Handle alone = make(1, 0), of_two = make(2, 0);
  const Recorded recorded;
  EXPECT_EQ(scatter(from, from, kSum, alone), kOk);
  EXPECT_EQ(scatter(from, to, kSum, of_two), kOk);
  EXPECT_EQ(recorded.of<record::Copy>(record::Kind::copy).size(), 0u);
  EXPECT_EQ(scatter(from, to, kSum, alone), kOk);
  EXPECT_EQ(scatter(from, from, kAverage, alone), kOk);
  const auto copies = recorded.of<record::Copy>(record::Kind::copy);
  ASSERT_EQ(copies.size(), 2u);
  for (const record::Copy& copy : copies) {
    EXPECT_EQ(copy.kind, record::CopyKind::device_to_device);
    EXPECT_EQ(copy.bytes, 4 * kCount);
  }
}

TEST_F(Nccl, RefusesARankThatIsNotThere) {
  UniqueId id{};
  Handle c = nullptr;
  EXPECT_EQ(nccl.get<int(Handle*, int, UniqueId, int)>("ncclCommInitRank")(&c, 8, id, 8), kInvalidArgument);
}

TEST_F(Nccl, RecordsCollectivesWithBytesAndGroup) {
  const Handle c = make(8, 3);
  const Recorded recorded;
  EXPECT_EQ(gather(c, 1000), kOk);
  EXPECT_EQ(nccl.get<int()>("ncclGroupStart")(), kOk);
  EXPECT_EQ((nccl.get<int(const void*, void*, std::size_t, int, int, Handle, Handle)>("ncclReduceScatter"))(nullptr, nullptr, 500, kF32,
                                                                                                            kSum, c, nullptr),
            kOk);
  EXPECT_EQ(nccl.get<int(const void*, std::size_t, int, int, Handle, Handle)>("ncclSend")(nullptr, 10, kF32, 5, c, nullptr), kOk);
  EXPECT_EQ(nccl.get<int()>("ncclGroupEnd")(), kOk);
  EXPECT_EQ(nccl.get<int()>("ncclGroupEnd")(), kInvalidUsage);
  EXPECT_EQ(nccl.get<int(const void*, std::size_t, int, int, Handle, Handle)>("ncclSend")(nullptr, 10, kF32, 8, c, nullptr),
            kInvalidArgument)
      << "no such peer";
  const auto calls = recorded.of<record::CollectiveCall>(record::Kind::collective);
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[0].op, record::Collective::all_gather);
  EXPECT_EQ(calls[0].count, 1000u);
  EXPECT_EQ(calls[0].bytes, 2000u) << "bfloat16";
  EXPECT_EQ(calls[0].type, record::Type::bf16);
  EXPECT_EQ(calls[0].group, 0u);
  EXPECT_EQ(calls[1].bytes, 2000u) << "float";
  EXPECT_NE(calls[1].group, 0u);
  EXPECT_EQ(calls[2].group, calls[1].group);
  EXPECT_EQ(calls[2].peer, 5);
}

// PyTorch 2.15 asks for a collective's end right after it was issued, and makes no stream wait for what is done already. So the first event
// behind one is not complete until a stream or the host waits for it, or a device's queue of 1024 launches later; further events, and those
// behind kernels, are.
TEST_F(Nccl, ACollectiveIsNotDoneAtOnce) {
  constexpr int kNotReady = 600, kQueue = 1024;
  const Library& rt = library("libcudart.so.13");
  const auto query = rt.get<int(Handle)>("cudaEventQuery");
  const auto record = rt.get<int(Handle, Handle)>("cudaEventRecord");
  const auto event = [&] {
    Handle made = nullptr;
    EXPECT_EQ(rt.get<int(Handle*)>("cudaEventCreate")(&made), kOk);
    return made;
  };
  const Handle c = make(2, 0), end = event(), later = event();
  const auto issue = [&] {
    EXPECT_EQ(gather(c, 10), kOk);
    EXPECT_EQ(record(end, nullptr), kOk);
  };
  issue();
  EXPECT_EQ(record(later, nullptr), kOk);
  EXPECT_EQ(query(end), kNotReady);
  EXPECT_EQ(query(later), kOk) << "an allocator's";
  EXPECT_EQ(rt.get<int(Handle, Handle, unsigned)>("cudaStreamWaitEvent")(nullptr, end, 0), kOk);
  EXPECT_EQ(query(end), kOk) << "a stream waits for it";
  issue();
  EXPECT_EQ(query(end), kNotReady);
  EXPECT_EQ(rt.get<int(Handle)>("cudaEventSynchronize")(end), kOk);
  EXPECT_EQ(query(end), kOk) << "the host waited for it";
  issue();
  for (int i = 0; i < kQueue; ++i) {
    EXPECT_EQ(query(end), kNotReady) << i;
    EXPECT_EQ(gather(c, 10), kOk);
  }
  EXPECT_EQ(query(end), kOk);
}

// One rank cannot know how many others give the same colour: the size is what the program's helper said, else unknown and said to be so.
TEST_F(Nccl, SplitsHaveTheSizeThatWasTold) {
  const Handle world = make(64, 9);
  Handle told = nullptr, untold = nullptr, none = &told;
  core().get<void(int, int, int)>("plimsoll_rehearse_expect_split")(42, 8, 1);
  const Recorded recorded;
  ASSERT_EQ(split(world, 42, 1, &told), kOk);
  ASSERT_EQ(split(world, 42, 5, &untold), kOk);
  EXPECT_EQ(split(world, -1, 0, &none), kOk);
  EXPECT_EQ(none, nullptr) << "no colour, no part";
  int size = 0;
  EXPECT_EQ(size_of(told, &size), kOk);
  EXPECT_EQ(size, 8);
  testing::internal::CaptureStderr();
  EXPECT_EQ(size_of(untold, &size), kInvalidUsage);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("plimsoll_rehearse_expect_split"), std::string::npos);
  EXPECT_NE(std::string(nccl.get<const char*(Handle)>("ncclGetLastError")(untold)).find("never told"), std::string::npos);
  EXPECT_EQ(gather(untold, 5), kOk) << "the work itself is known";
  const auto made = recorded.of<record::Communicator>(record::Kind::communicator);
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(made[0].size, 8);
  EXPECT_EQ(made[0].rank, 1);
  EXPECT_EQ(made[1].size, -1);
  EXPECT_EQ(made[1].rank, 5) << "the key";
  EXPECT_EQ(made[1].color, 42);
  EXPECT_EQ(made[0].parent, made[1].parent);
}

TEST_F(Nccl, ASizeCanBeToldOfAnyColour) {
  const Handle world = make(64, 9);
  Handle part = nullptr;
  int size = 0;
  core().get<void(int, int, int)>("plimsoll_rehearse_expect_split")(-1, 16, 2);
  ASSERT_EQ(split(world, 1234567, 2, &part), kOk);
  EXPECT_EQ(size_of(part, &size), kOk);
  EXPECT_EQ(size, 16);
}

TEST_F(Nccl, ShrinkingTakesTheRanksAway) {
  const Handle world = make(8, 0);
  Handle smaller = nullptr;
  int gone[] = {3, 4}, size = 0;
  EXPECT_EQ(nccl.get<int(Handle, int*, int, Handle*, void*, int)>("ncclCommShrink")(world, gone, 2, &smaller, nullptr, 0), kOk);
  EXPECT_EQ(size_of(smaller, &size), kOk);
  EXPECT_EQ(size, 6);
}

TEST_F(Nccl, TakesMemoryOfTheDevice) {
  void* p = nullptr;
  std::size_t before = 0, after = 0, total = 0;
  const auto info = driver().get<int(std::size_t*, std::size_t*)>("cuMemGetInfo_v2");
  info(&before, &total);
  ASSERT_EQ(nccl.get<int(void**, std::size_t)>("ncclMemAlloc")(&p, std::size_t{32} << 20), kOk);
  info(&after, &total);
  EXPECT_EQ(before - after, std::size_t{32} << 20);
  EXPECT_EQ(nccl.get<int(void*)>("ncclMemFree")(p), kOk);
}

TEST(Nvml, KnowsTheMachine) {
  const Library& nvml = library("libnvidia-ml.so.1");
  unsigned count = 0;
  Handle device = nullptr;
  char name[64] = {}, uuid[64] = {};
  struct {
    unsigned long long total, free, used;
  } memory{};
  EXPECT_EQ(nvml.get<int()>("nvmlInit_v2")(), kOk);
  EXPECT_EQ(nvml.get<int(unsigned*)>("nvmlDeviceGetCount_v2")(&count), kOk);
  EXPECT_EQ(count, static_cast<unsigned>(kDevices));
  ASSERT_EQ(nvml.get<int(unsigned, Handle*)>("nvmlDeviceGetHandleByIndex_v2")(1, &device), kOk);
  EXPECT_EQ(nvml.get<int(Handle, char*, unsigned)>("nvmlDeviceGetName")(device, name, sizeof name), kOk);
  EXPECT_STREQ(name, "Test accelerator");
  EXPECT_EQ(nvml.get<int(Handle, char*, unsigned)>("nvmlDeviceGetName")(device, name, 4), 7) << "too short";
  EXPECT_EQ(nvml.get<int(Handle, void*)>("nvmlDeviceGetMemoryInfo")(device, &memory), kOk);
  EXPECT_EQ(memory.total, kMemory);
  EXPECT_EQ(memory.used, kContext);
  EXPECT_EQ(nvml.get<int(Handle, char*, unsigned)>("nvmlDeviceGetUUID")(device, uuid, sizeof uuid), kOk);
  Handle same = nullptr;
  EXPECT_EQ(nvml.get<int(const char*, Handle*)>("nvmlDeviceGetHandleByUUID")(uuid, &same), kOk);
  EXPECT_EQ(same, device);
  struct {
    unsigned version = 1;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state = 3;
  } fabric{};
  EXPECT_EQ(nvml.get<int(Handle, void*)>("nvmlDeviceGetGpuFabricInfoV")(device, &fabric), kOk);
  EXPECT_EQ(fabric.state, 0) << "of no fabric";
  EXPECT_EQ(fabric.version, 1u);
  EXPECT_NE(nvml.get<int(unsigned, Handle*)>("nvmlDeviceGetHandleByIndex_v2")(kDevices, &device), kOk);
  EXPECT_EQ(nvml.get<int()>("nvmlDeviceGetFanSpeed")(), 3) << "what is not here is not supported";
}

}  // namespace
}  // namespace plimsoll::rehearse::test
