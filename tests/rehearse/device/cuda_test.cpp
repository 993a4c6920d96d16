// The CUDA runtime of toolkits 12 and 13, and the driver's address space, as a program sees them.
#include <elf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <numeric>
#include <vector>

#include "libraries.hpp"

namespace plimsoll::rehearse::test {
namespace {

using Handle = void*;
constexpr int kOk = 0, kInvalidValue = 1, kOutOfMemory = 2, kInvalidConfiguration = 9, kInvalidDevice = 101, kInvalidHandle = 400,
              kNotReady = 600, kCaptureUnsupported = 900;
constexpr std::size_t kMiB = std::size_t{1} << 20, kGiB = std::size_t{1} << 30;

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

class Runtime : public testing::TestWithParam<const char*> {
 protected:
  const Library& rt = library(GetParam());
  int set_device(int d) { return rt.get<int(int)>("cudaSetDevice")(d); }
  int allocate(void** p, std::size_t n) { return rt.get<int(void**, std::size_t)>("cudaMalloc")(p, n); }
  int release(void* p) { return rt.get<int(void*)>("cudaFree")(p); }
  int copy(void* to, const void* from, std::size_t n) {
    return rt.get<int(void*, const void*, std::size_t, int)>("cudaMemcpy")(to, from, n, 4);
  }
  int launch(const void* f, Handle stream = nullptr, Dim3 grid = {}, Dim3 block = {}) {
    return rt.get<int(const void*, Dim3, Dim3, void**, std::size_t, Handle)>("cudaLaunchKernel")(f, grid, block, nullptr, 0, stream);
  }
  Handle stream() {
    Handle s = nullptr;
    EXPECT_EQ(rt.get<int(Handle*, unsigned)>("cudaStreamCreateWithFlags")(&s, 1), kOk);
    return s;
  }
  Handle event() {
    Handle e = nullptr;
    EXPECT_EQ(rt.get<int(Handle*, unsigned)>("cudaEventCreateWithFlags")(&e, 2), kOk);
    return e;
  }
  int record(Handle e, Handle s) { return rt.get<int(Handle, Handle)>("cudaEventRecord")(e, s); }
  int query(Handle e) { return rt.get<int(Handle)>("cudaEventQuery")(e); }
  int synchronize() { return rt.get<int()>("cudaDeviceSynchronize")(); }
  int last_error() { return rt.get<int()>("cudaGetLastError")(); }
  std::size_t free_bytes() {
    std::size_t left = 0, total = 0;
    EXPECT_EQ(rt.get<int(std::size_t*, std::size_t*)>("cudaMemGetInfo")(&left, &total), kOk);
    EXPECT_EQ(total, kMemory);
    return left;
  }
  void set_lag(unsigned n) { core().get<void(unsigned)>("plimsoll_rehearse_set_lag")(n); }
  void TearDown() override {
    set_lag(0);
    set_device(0);
    synchronize();
    last_error();
  }
};

INSTANTIATE_TEST_SUITE_P(Toolkits, Runtime, testing::Values("libcudart.so.12", "libcudart.so.13"));

TEST_P(Runtime, CountsTheMachinesDevices) {
  int count = 0, device = -1;
  EXPECT_EQ(rt.get<int(int*)>("cudaGetDeviceCount")(&count), kOk);
  EXPECT_EQ(count, kDevices);
  EXPECT_EQ(set_device(1), kOk);
  EXPECT_EQ(rt.get<int(int*)>("cudaGetDevice")(&device), kOk);
  EXPECT_EQ(device, 1);
  EXPECT_EQ(set_device(kDevices), kInvalidDevice);
}

// From 2 MiB pages: 3 MiB are counted as 4.
TEST_P(Runtime, CountsMemoryInPages) {
  const std::size_t before = free_bytes();
  EXPECT_LE(before, kMemory - kContext);
  void* p = nullptr;
  ASSERT_EQ(allocate(&p, 3 * kMiB), kOk);
  EXPECT_EQ(before - free_bytes(), 4 * kMiB);
  EXPECT_EQ(release(p), kOk);
  EXPECT_EQ(free_bytes(), before);
}

TEST_P(Runtime, SaysOutOfMemoryAndGoesOn) {
  const Recorded recorded;
  void* p = nullptr;
  EXPECT_EQ(allocate(&p, kMemory), kOutOfMemory);
  EXPECT_EQ(p, nullptr);
  EXPECT_STREQ(rt.get<const char*(int)>("cudaGetErrorString")(kOutOfMemory), "out of memory");
  EXPECT_STREQ(rt.get<const char*(int)>("cudaGetErrorName")(kOutOfMemory), "cudaErrorMemoryAllocation");
  EXPECT_EQ(last_error(), kOutOfMemory);
  EXPECT_EQ(last_error(), kOk) << "asking for the error clears it";
  const auto segments = recorded.of<record::Segment>(record::Kind::segment);
  ASSERT_EQ(segments.size(), 1u);
  EXPECT_EQ(segments[0].action, record::SegmentAction::allocate_failed);
  EXPECT_EQ(segments[0].bytes, kMemory);
  ASSERT_EQ(allocate(&p, 60 * kGiB), kOk);
  EXPECT_EQ(release(p), kOk);
}

TEST_P(Runtime, DevicesHaveTheirOwnMemory) {
  const std::size_t first = free_bytes();
  ASSERT_EQ(set_device(1), kOk);
  void* p = nullptr;
  ASSERT_EQ(allocate(&p, 70 * kGiB), kOk);
  EXPECT_EQ(kMemory - kContext - free_bytes(), 70 * kGiB);
  ASSERT_EQ(set_device(0), kOk);
  EXPECT_EQ(free_bytes(), first);
  EXPECT_EQ(release(p), kOk) << "from another device";
}

TEST_P(Runtime, HugeTensorsCostNoHostMemory) {
  const std::size_t before = resident_bytes();
  void* p = nullptr;
  ASSERT_EQ(allocate(&p, 60 * kGiB), kOk);
  EXPECT_EQ(rt.get<int(void*, int, std::size_t)>("cudaMemset")(p, 0, 60 * kGiB), kOk);
  std::vector<char> host(64 * kMiB);
  EXPECT_EQ(copy(p, host.data(), host.size()), kOk);
  EXPECT_LT(resident_bytes(), before + host.size() + 4 * kMiB);
  EXPECT_EQ(release(p), kOk);
}

TEST_P(Runtime, SmallValuesComeBack) {
  std::vector<int> values(1000), back(1000, -1);
  std::iota(values.begin(), values.end(), 7);
  void *p = nullptr, *q = nullptr;
  ASSERT_EQ(allocate(&p, 4000), kOk);
  ASSERT_EQ(allocate(&q, 4000), kOk);
  EXPECT_EQ(copy(p, values.data(), 4000), kOk);
  EXPECT_EQ(copy(q, p, 4000), kOk);
  EXPECT_EQ(copy(back.data(), q, 4000), kOk);
  EXPECT_EQ(back, values);
  EXPECT_EQ(rt.get<int(void*, int, std::size_t)>("cudaMemset")(q, 0, 2000), kOk);
  EXPECT_EQ(copy(back.data(), q, 4000), kOk);
  EXPECT_EQ(back[499], 0);
  EXPECT_EQ(back[500], values[500]);
  release(p);
  release(q);
}

// A copy that is too large to keep leaves zeros, never the values from before.
TEST_P(Runtime, LargeCopiesLeaveZeros) {
  std::vector<char> host(3 * kMiB, 5);
  char back[3] = {1, 1, 1};
  void* p = nullptr;
  ASSERT_EQ(allocate(&p, 4 * kMiB), kOk);
  EXPECT_EQ(copy(p, host.data(), kMiB), kOk);
  EXPECT_EQ(copy(back, static_cast<char*>(p) + 100, 1), kOk);
  EXPECT_EQ(back[0], 5);
  EXPECT_EQ(copy(static_cast<char*>(p) + 50, host.data(), 3 * kMiB), kOk);
  EXPECT_EQ(copy(back, static_cast<char*>(p) + 49, 3), kOk);
  EXPECT_EQ(back[0], 5);
  EXPECT_EQ(back[1], 0);
  EXPECT_EQ(back[2], 0);
  release(p);
}

// Best-fit allocators break ties by address, so addresses must come as a device gives them: downwards, the highest gap first.
TEST_P(Runtime, AddressesGoDownAndGapsAreUsedAgain) {
  void *a = nullptr, *b = nullptr, *c = nullptr, *again = nullptr;
  ASSERT_EQ(allocate(&a, 20 * kMiB), kOk);
  ASSERT_EQ(allocate(&b, 20 * kMiB), kOk);
  ASSERT_EQ(allocate(&c, 20 * kMiB), kOk);
  EXPECT_GT(a, b);
  EXPECT_GT(b, c);
  EXPECT_EQ(release(b), kOk);
  ASSERT_EQ(allocate(&again, 10 * kMiB), kOk);
  EXPECT_EQ(again, static_cast<char*>(b) + 10 * kMiB);  // the end of the gap
  for (void* p : {a, again, c}) release(p);
}

TEST_P(Runtime, KnowsWhosePointerItIs) {
  struct Attributes {
    int type, device;
    void *on_device, *on_host;
    long reserved[8];
  } a{};
  const auto ask = [&](const void* p) {
    EXPECT_EQ(rt.get<int(Attributes*, const void*)>("cudaPointerGetAttributes")(&a, p), kOk);
    return a.type;
  };
  void *device = nullptr, *pinned = nullptr;
  int local = 0;
  ASSERT_EQ(set_device(1), kOk);
  ASSERT_EQ(allocate(&device, kMiB), kOk);
  ASSERT_EQ(rt.get<int(void**, std::size_t, unsigned)>("cudaHostAlloc")(&pinned, 100 * kGiB, 0), kOk) << "not backed by pages";
  EXPECT_EQ(ask(static_cast<char*>(device) + 77), 2);
  EXPECT_EQ(a.device, 1);
  EXPECT_EQ(ask(static_cast<char*>(pinned) + kGiB), 1);
  EXPECT_EQ(ask(&local), 0);
  EXPECT_EQ(release(device), kOk);
  EXPECT_EQ(ask(device), 0) << "freed";
  EXPECT_EQ(rt.get<int(void*)>("cudaFreeHost")(pinned), kOk);
  EXPECT_EQ(release(&local), kInvalidValue);
}

// With a lag of 4 launches an event is complete when 4 more than those before it are issued.
TEST_P(Runtime, EventsCompleteAfterTheLag) {
  synchronize();
  set_lag(4);
  const Handle s = stream(), e = event();
  const int kernel = 0;
  EXPECT_EQ(query(e), kOk) << "never recorded";
  EXPECT_EQ(launch(&kernel, s), kOk);
  EXPECT_EQ(record(e, s), kOk);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(query(e), kNotReady) << i;
    EXPECT_EQ(launch(&kernel), kOk) << "work on another stream moves the device on too";
  }
  EXPECT_EQ(query(e), kOk);
  EXPECT_EQ(launch(&kernel, s), kOk);
  EXPECT_EQ(record(e, s), kOk);
  EXPECT_EQ(query(e), kNotReady);
  EXPECT_EQ(rt.get<int(Handle)>("cudaStreamQuery")(s), kNotReady);
  EXPECT_EQ(rt.get<int(Handle)>("cudaEventSynchronize")(e), kOk);
  EXPECT_EQ(query(e), kOk);
  EXPECT_EQ(rt.get<int(Handle)>("cudaStreamQuery")(s), kOk);
  EXPECT_EQ(last_error(), kOk) << "not ready is no error";
}

TEST_P(Runtime, WaitingForAStreamWaitsForTheEventsItWaitsFor) {
  synchronize();
  set_lag(100);
  const Handle busy = stream(), waiting = stream(), e = event();
  const int kernel = 0;
  EXPECT_EQ(launch(&kernel, busy), kOk);
  EXPECT_EQ(record(e, busy), kOk);
  EXPECT_EQ(rt.get<int(Handle, Handle, unsigned)>("cudaStreamWaitEvent")(waiting, e, 0), kOk);
  EXPECT_EQ(query(e), kNotReady);
  EXPECT_EQ(rt.get<int(Handle)>("cudaStreamSynchronize")(waiting), kOk);
  EXPECT_EQ(query(e), kOk);
}

TEST_P(Runtime, AHostThatAsksForeverIsAnswered) {
  synchronize();
  set_lag(1000000);
  const Handle e = event();
  const int kernel = 0;
  EXPECT_EQ(launch(&kernel), kOk);
  EXPECT_EQ(record(e, nullptr), kOk);
  int asked = 0;
  while (query(e) == kNotReady) ++asked;
  EXPECT_GT(asked, 10);
  EXPECT_LT(asked, 100000);
}

TEST_P(Runtime, FreeingWaitsForTheDevice) {
  set_lag(100);
  void* p = nullptr;
  ASSERT_EQ(allocate(&p, kMiB), kOk);
  const Handle e = event();
  const int kernel = 0;
  EXPECT_EQ(launch(&kernel), kOk);
  EXPECT_EQ(record(e, nullptr), kOk);
  EXPECT_EQ(query(e), kNotReady);
  EXPECT_EQ(release(p), kOk);
  EXPECT_EQ(query(e), kOk);
}

TEST_P(Runtime, RecordsKernelsByName) {
  static const int kernel = 0, stranger = 0;
  rt.get<void(void**, const void*, char*, const char*, int, void*, void*, void*, void*, int*)>("__cudaRegisterFunction")(
      nullptr, &kernel, nullptr, "_Z9my_kernelPf", -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  const Handle s = stream();
  const Recorded recorded;
  EXPECT_EQ(launch(&kernel, s, {10, 2, 1}, {128, 1, 1}), kOk);
  EXPECT_EQ(launch(&stranger, s), kOk);
  const auto kernels = recorded.of<record::Kernel>(record::Kind::kernel);
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(recorded.name(kernels[0].name), "_Z9my_kernelPf");
  EXPECT_EQ(kernels[0].grid[0], 10u);
  EXPECT_EQ(kernels[0].grid[1], 2u);
  EXPECT_EQ(kernels[0].block[0], 128u);
  EXPECT_NE(kernels[0].stream, 0u);
  EXPECT_EQ(kernels[1].name, 0u);
  EXPECT_EQ(launch(&kernel, s, {1, 1, 1}, {2048, 1, 1}), kInvalidConfiguration);
  EXPECT_EQ(launch(&kernel, s, {1, 70000, 1}), kInvalidConfiguration);
  EXPECT_EQ(last_error(), kInvalidConfiguration);
  EXPECT_EQ(recorded.of<record::Kernel>(record::Kind::kernel).size(), 2u) << "what fails is no work";
}

/// Numbers and pointers of a signature follow a launch, each behind its place and its size; what the name does not tell of is not touched.
TEST_P(Runtime, RecordsArgumentsBySignature) {
  static const int kernel = 0;
  rt.get<void(void**, const void*, char*, const char*, int, void*, void*, void*, void*, int*)>("__cudaRegisterFunction")(
      nullptr, &kernel, nullptr, "_Z9my_kernelPKfi7Unknownl", -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  const Recorded recorded;
  const void* address = &kernel;
  std::int32_t rows = 7;
  std::int64_t columns = 50257;
  void* arguments[] = {&address, &rows, nullptr, &columns};
  EXPECT_EQ((rt.get<int(const void*, Dim3, Dim3, void**, std::size_t, Handle)>("cudaLaunchKernel")(&kernel, {}, {}, arguments, 0, nullptr)),
            kOk);
  const auto launches = recorded.of_tail<record::Kernel, std::int64_t>(record::Kind::kernel);
  ASSERT_EQ(launches.size(), 1u);
  const auto header = [](std::int64_t parameter, std::int64_t bytes) { return parameter | bytes << 16; };
  EXPECT_EQ(launches[0].second,
            (std::vector<std::int64_t>{header(0, 8), reinterpret_cast<std::int64_t>(address), header(1, 4), 7, header(3, 8), 50257}));
}

/// The image of a kernel "k" of three parameters, of 8, 4 and 16 bytes: a header, the names of sections, one section of attributes, and the
/// table of both. The third is a structure and not kept.
std::string image_of_kernel() {
  std::string names("\0.shstrtab\0.nv.info.k\0", 23), info;
  for (const std::uint32_t parameter : {0U, 1U, 2U}) {
    const std::uint32_t bytes = parameter == 0 ? 8 : parameter == 1 ? 4 : 16;
    const std::uint32_t words[] = {0x000c1704, 0, parameter | parameter * 8 << 16U, bytes << 18U};  // sized, parameter, 12 bytes follow
    info.append(reinterpret_cast<const char*>(words), sizeof words);
  }
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_machine = 190;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 2;
  header.e_shstrndx = 0;
  header.e_shoff = sizeof header + names.size() + info.size();
  Elf64_Shdr sections[2] = {};
  sections[0].sh_name = 1;
  sections[0].sh_offset = sizeof header;
  sections[0].sh_size = names.size();
  sections[1].sh_name = 11;
  sections[1].sh_offset = sizeof header + names.size();
  sections[1].sh_size = info.size();
  std::string image(reinterpret_cast<const char*>(&header), sizeof header);
  image += names + info;
  image.append(reinterpret_cast<const char*>(sections), sizeof sections);
  return image;
}

/// A kernel without a signature in its name, as Triton's are: its image tells its parameters.
TEST(Image, TellsTheParametersOfItsKernels) {
  const std::string image = image_of_kernel();
  Handle module = nullptr;
  const void* function = nullptr;
  ASSERT_EQ((driver().get<int(Handle*, const void*)>("cuModuleLoadData")(&module, image.data())), kOk);
  ASSERT_EQ((driver().get<int(const void**, Handle, const char*)>("cuModuleGetFunction")(&function, module, "k")), kOk);
  const Recorded recorded;
  std::int64_t address = 4096;
  std::int32_t size = 768;
  void* arguments[] = {&address, &size, nullptr};
  using Launch = int(const void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**, void**);
  EXPECT_EQ(driver().get<Launch>("cuLaunchKernel")(function, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr), kOk);
  const auto launches = recorded.of_tail<record::Kernel, std::int64_t>(record::Kind::kernel);
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(launches[0].second, (std::vector<std::int64_t>{0 | 8 << 16, 4096, 1 | 4 << 16, 768}));
}

TEST_P(Runtime, RefusesWhatIsNoStream) {
  std::vector<char> not_a_stream(1024);
  const int kernel = 0;
  EXPECT_EQ(launch(&kernel, not_a_stream.data()), kInvalidHandle);
  const Handle s = stream();
  EXPECT_EQ(rt.get<int(Handle)>("cudaStreamDestroy")(s), kOk);
  EXPECT_EQ(launch(&kernel, s), kInvalidHandle) << "destroyed";
}

TEST_P(Runtime, CapturesWorkIntoGraphs) {
  const Handle s = stream(), other = stream(), e = event();
  const int kernel = 0;
  Handle graph = nullptr, executable = nullptr;
  const Recorded recorded;
  ASSERT_EQ(rt.get<int(Handle, int)>("cudaStreamBeginCapture")(s, 0), kOk);
  EXPECT_EQ(launch(&kernel, s), kOk);
  EXPECT_EQ(record(e, s), kOk);
  EXPECT_EQ(query(e), kCaptureUnsupported);
  EXPECT_EQ(rt.get<int(Handle, Handle, unsigned)>("cudaStreamWaitEvent")(other, e, 0), kOk) << "joins the capture";
  EXPECT_EQ(launch(&kernel, other), kOk);
  int capturing = 0;
  EXPECT_EQ(rt.get<int(Handle, int*)>("cudaStreamIsCapturing")(other, &capturing), kOk);
  EXPECT_EQ(capturing, 1);
  EXPECT_EQ(rt.get<int(Handle)>("cudaStreamSynchronize")(s), kCaptureUnsupported);
  ASSERT_EQ(rt.get<int(Handle, Handle*)>("cudaStreamEndCapture")(s, &graph), kOk);
  EXPECT_EQ(rt.get<int(Handle, int*)>("cudaStreamIsCapturing")(other, &capturing), kOk);
  EXPECT_EQ(capturing, 0);
  std::size_t nodes = 0;
  EXPECT_EQ(rt.get<int(Handle, Handle*, std::size_t*)>("cudaGraphGetNodes")(graph, nullptr, &nodes), kOk);
  EXPECT_EQ(nodes, 2u);
  ASSERT_EQ(rt.get<int(Handle*, Handle, unsigned long long)>("cudaGraphInstantiateWithFlags")(&executable, graph, 0), kOk);
  EXPECT_EQ(rt.get<int(Handle)>("cudaGraphDestroy")(graph), kOk);
  EXPECT_EQ(rt.get<int(Handle, Handle)>("cudaGraphLaunch")(executable, s), kOk);
  EXPECT_EQ(rt.get<int(Handle)>("cudaGraphExecDestroy")(executable), kOk);
  for (const auto& k : recorded.of<record::Kernel>(record::Kind::kernel)) EXPECT_EQ(k.header.flags & record::kCaptured, record::kCaptured);
  const auto begins = recorded.of<record::GraphBegin>(record::Kind::graph_begin);
  const auto ends = recorded.of<record::GraphEnd>(record::Kind::graph_end);
  const auto launches = recorded.of<record::GraphLaunch>(record::Kind::graph_launch);
  ASSERT_EQ(begins.size() + ends.size() + launches.size(), 3u);
  EXPECT_EQ(ends[0].nodes, 2u);
  EXPECT_EQ(begins[0].graph, launches[0].graph);
}

TEST_P(Runtime, PeersAreEnabledOnce) {
  const auto enable = rt.get<int(int, unsigned)>("cudaDeviceEnablePeerAccess");
  int can = 0;
  EXPECT_EQ(rt.get<int(int*, int, int)>("cudaDeviceCanAccessPeer")(&can, 0, 1), kOk);
  EXPECT_EQ(can, 1);
  EXPECT_EQ(enable(1, 0), kOk);
  EXPECT_EQ(enable(1, 0), 704);
  EXPECT_EQ(rt.get<int(int)>("cudaDeviceDisablePeerAccess")(1), kOk);
  EXPECT_EQ(enable(0, 0), kInvalidDevice) << "itself";
}

TEST_P(Runtime, FindsTheDriversFunctions) {
  void* function = nullptr;
  int result = -1;
  const auto find = rt.get<int(const char*, void**, unsigned, unsigned long long, int*)>("cudaGetDriverEntryPointByVersion");
  EXPECT_EQ(find("cuMemCreate", &function, 12000, 0, &result), kOk);
  EXPECT_EQ(result, 0);
  EXPECT_EQ(function, driver().symbol("cuMemCreate"));
  EXPECT_EQ(find("cuMemAlloc", &function, 12000, 0, &result), kOk);
  EXPECT_EQ(function, driver().symbol("cuMemAlloc_v2")) << "the form of this version";
  EXPECT_EQ(find("cuNoSuchFunction", &function, 12000, 0, &result), kOk);
  EXPECT_EQ(result, 1);
  EXPECT_EQ(function, nullptr);
}

// Threads by threads, registers (64 each) and shared memory: min(2048 / 256, 65536 / (64 * 256), 228 KiB / (64 + 1 KiB)) = 3.
TEST_P(Runtime, OccupancyFollowsTheLimits) {
  int blocks = 0;
  const auto ask = rt.get<int(int*, const void*, int, std::size_t)>("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  EXPECT_EQ(ask(&blocks, nullptr, 256, 64 * 1024), kOk);
  EXPECT_EQ(blocks, 3);
  EXPECT_EQ(ask(&blocks, nullptr, 256, 0), kOk);
  EXPECT_EQ(blocks, 4);
}

/// Handles as another process would open them: its memory has addresses of its own here and is not taken of the device again, and nobody
/// waits for its event.
TEST_P(Runtime, OpensWhatAnotherProcessShares) {
  struct Shared {
    std::uint64_t process, rest[7];
  };
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  void *own = nullptr, *opened = nullptr;
  ASSERT_EQ(allocate(&own, kBytes), kOk);
  Shared memory{}, of_event{};
  ASSERT_EQ(rt.get<int(Shared*, void*)>("cudaIpcGetMemHandle")(&memory, own), kOk);
  const auto open = rt.get<int(void**, Shared, unsigned)>("cudaIpcOpenMemHandle");
  ASSERT_EQ(open(&opened, memory, 1), kOk);
  EXPECT_EQ(opened, own) << "this process's own";
  const std::size_t before = free_bytes();
  ++memory.process;
  ASSERT_EQ(open(&opened, memory, 1), kOk);
  EXPECT_NE(opened, own);
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(rt.get<int(void*, int, std::size_t)>("cudaMemset")(opened, 1, kBytes), kOk);
  EXPECT_EQ(rt.get<int(void*)>("cudaIpcCloseMemHandle")(opened), kOk);
  Handle done = nullptr;
  ASSERT_EQ(rt.get<int(Shared*, Handle)>("cudaIpcGetEventHandle")(&of_event, event()), kOk);
  of_event.rest[0] = 8;  // an address that is none here
  ++of_event.process;
  ASSERT_EQ(rt.get<int(Handle*, Shared)>("cudaIpcOpenEventHandle")(&done, of_event), kOk);
  EXPECT_EQ(query(done), kOk);
}

TEST_P(Runtime, PoolsCountWhatIsTaken) {
  Handle pool = nullptr;
  void* p = nullptr;
  std::uint64_t used = 0;
  ASSERT_EQ(rt.get<int(Handle*, int)>("cudaDeviceGetDefaultMemPool")(&pool, 0), kOk);
  ASSERT_EQ(rt.get<int(void**, std::size_t, Handle)>("cudaMallocAsync")(&p, 10 * kMiB, nullptr), kOk);
  EXPECT_EQ(rt.get<int(Handle, int, void*)>("cudaMemPoolGetAttribute")(pool, 7, &used), kOk);
  EXPECT_EQ(used, 10 * kMiB);
  EXPECT_EQ(rt.get<int(void*, Handle)>("cudaFreeAsync")(p, nullptr), kOk);
  EXPECT_EQ(rt.get<int(Handle, int, void*)>("cudaMemPoolGetAttribute")(pool, 7, &used), kOk);
  EXPECT_EQ(used, 0u);
}

class Driver : public testing::Test {
 protected:
  struct Properties {
    int type = 1, handles = 0, location = 1, device = 0;
    void* security = nullptr;
    char flags[8] = {};
  };
  int create(std::uint64_t* handle, std::size_t bytes, int device = 0) {
    Properties p;
    p.device = device;
    return driver().get<int(std::uint64_t*, std::size_t, const Properties*, unsigned long long)>("cuMemCreate")(handle, bytes, &p, 0);
  }
  int map(std::uintptr_t at, std::size_t bytes, std::uint64_t handle) {
    return driver().get<int(std::uintptr_t, std::size_t, std::size_t, std::uint64_t, unsigned long long)>("cuMemMap")(at, bytes, 0, handle,
                                                                                                                      0);
  }
  int unmap(std::uintptr_t at, std::size_t bytes) { return driver().get<int(std::uintptr_t, std::size_t)>("cuMemUnmap")(at, bytes); }
  int release(std::uint64_t handle) { return driver().get<int(std::uint64_t)>("cuMemRelease")(handle); }
  std::uintptr_t reserve(std::size_t bytes) {
    std::uintptr_t at = 0;
    EXPECT_EQ(driver().get<int(std::uintptr_t*, std::size_t, std::size_t, std::uintptr_t, unsigned long long)>("cuMemAddressReserve")(
                  &at, bytes, 0, 0, 0),
              kOk);
    return at;
  }
  int unreserve(std::uintptr_t at, std::size_t bytes) {
    return driver().get<int(std::uintptr_t, std::size_t)>("cuMemAddressFree")(at, bytes);
  }
  std::size_t free_bytes() {
    std::size_t left = 0, total = 0;
    EXPECT_EQ(driver().get<int(std::size_t*, std::size_t*)>("cuMemGetInfo_v2")(&left, &total), kOk);
    return left;
  }
};

TEST_F(Driver, PhysicalMemoryLivesUntilItIsUnmappedAndReleased) {
  const std::size_t before = free_bytes();
  const std::uintptr_t at = reserve(200 * kGiB);
  EXPECT_EQ(free_bytes(), before) << "addresses cost nothing";
  std::uint64_t handle = 0;
  ASSERT_EQ(create(&handle, 20 * kMiB), kOk);
  EXPECT_EQ(before - free_bytes(), 20 * kMiB);
  ASSERT_EQ(map(at + 20 * kMiB, 20 * kMiB, handle), kOk);
  EXPECT_EQ(map(at + 38 * kMiB, 2 * kMiB, handle), kInvalidValue) << "there already";
  int value = 42, back = 0;
  EXPECT_EQ(driver().get<int(std::uintptr_t, const void*, std::size_t)>("cuMemcpyHtoD_v2")(at + 20 * kMiB, &value, 4), kOk);
  EXPECT_EQ(driver().get<int(void*, std::uintptr_t, std::size_t)>("cuMemcpyDtoH_v2")(&back, at + 20 * kMiB, 4), kOk);
  EXPECT_EQ(back, 42);
  EXPECT_EQ(release(handle), kOk);
  EXPECT_EQ(before - free_bytes(), 20 * kMiB) << "still mapped";
  EXPECT_EQ(unreserve(at, 200 * kGiB), kInvalidValue) << "still mapped";
  EXPECT_EQ(unmap(at + 20 * kMiB, 20 * kMiB), kOk);
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(unreserve(at, 200 * kGiB), kOk);
  EXPECT_EQ(map(at, 20 * kMiB, handle), kInvalidValue);
}

TEST_F(Driver, PhysicalMemoryRunsOut) {
  const Recorded recorded;
  std::uint64_t handle = 0;
  EXPECT_EQ(create(&handle, kMemory / kMiB / 2 * 2 * kMiB), kOutOfMemory);
  const auto segments = recorded.of<record::Segment>(record::Kind::segment);
  ASSERT_EQ(segments.size(), 1u);
  EXPECT_EQ(segments[0].action, record::SegmentAction::create_failed);
}

TEST_F(Driver, LaunchesKernelsOfModulesByName) {
  Handle module = nullptr;
  const void *kernel = nullptr, *same = nullptr;
  const auto find = driver().get<int(const void**, Handle, const char*)>("cuModuleGetFunction");
  ASSERT_EQ(driver().get<int(Handle*, const void*)>("cuModuleLoadData")(&module, "image"), kOk);
  ASSERT_EQ(find(&kernel, module, "triton_poi_fused_add_0"), kOk);
  ASSERT_EQ(find(&same, module, "triton_poi_fused_add_0"), kOk);
  EXPECT_EQ(kernel, same);
  struct Attribute {
    int id;
    char padding[4];
    unsigned value[16];
  } cluster = {4, {}, {2, 1, 1}};
  struct Configuration {
    unsigned grid[3], block[3], shared;
    Handle stream;
    Attribute* attributes;
    unsigned count;
  } c = {{64, 1, 1}, {128, 1, 1}, 1000, nullptr, &cluster, 1};
  const Recorded recorded;
  EXPECT_EQ(driver().get<int(const Configuration*, const void*, void**, void**)>("cuLaunchKernelEx")(&c, kernel, nullptr, nullptr), kOk);
  const auto kernels = recorded.of<record::Kernel>(record::Kind::kernel);
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(recorded.name(kernels[0].name), "triton_poi_fused_add_0");
  EXPECT_EQ(kernels[0].cluster, 2u);
  EXPECT_EQ(kernels[0].shared_bytes, 1000u);
}

}  // namespace
}  // namespace plimsoll::rehearse::test
