// The same machine through HIP, of ROCm 6 and 7: never run with a framework built for ROCm, so the interfaces are tried one by one.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "libraries.hpp"

namespace plimsoll::rehearse::test {
namespace {

using Handle = void*;
constexpr int kOk = 0, kOutOfMemory = 2, kInvalidConfiguration = 9, kInvalidDevice = 101, kNotReady = 600;
constexpr std::size_t kMiB = std::size_t{1} << 20, kGiB = std::size_t{1} << 30;

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

class Hip : public testing::TestWithParam<int> {
 protected:
  const Library& hip = library("libamdhip64.so." + std::to_string(GetParam()));
  const Library& rocblas = library(GetParam() == 6 ? "librocblas.so.4" : "librocblas.so.5");
  const Library& hipblas = library(GetParam() == 6 ? "libhipblas.so.2" : "libhipblas.so.3");
  const Library& lt = library(GetParam() == 6 ? "libhipblaslt.so.0" : "libhipblaslt.so.1");
  int launch(const void* f, Handle stream = nullptr, Dim3 grid = {}, Dim3 block = {}, std::size_t shared = 0) {
    return hip.get<int(const void*, Dim3, Dim3, void**, std::size_t, Handle)>("hipLaunchKernel")(f, grid, block, nullptr, shared, stream);
  }
  int attribute(int number) {
    int value = -1;
    EXPECT_EQ(hip.get<int(int*, int, int)>("hipDeviceGetAttribute")(&value, number, 0), kOk);
    return value;
  }
  std::size_t free_bytes() {
    std::size_t left = 0, total = 0;
    EXPECT_EQ(hip.get<int(std::size_t*, std::size_t*)>("hipMemGetInfo")(&left, &total), kOk);
    return left;
  }
  void TearDown() override {
    core().get<void(unsigned)>("plimsoll_rehearse_set_lag")(0);
    hip.get<int()>("hipGetLastError")();
  }
};

INSTANTIATE_TEST_SUITE_P(Rocm, Hip, testing::Values(6, 7));

// hipDeviceProp_tR0600 of hip_runtime_api.h on 64-bit Linux: 1472 bytes, the memory at 288, the architecture's name at 1160, warp size at
// 308.
TEST_P(Hip, DescribesTheDeviceAsHipDoes) {
  std::vector<char> properties(1472);
  ASSERT_EQ(hip.get<int(void*, int)>("hipGetDevicePropertiesR0600")(properties.data(), 0), kOk);
  std::uint64_t memory = 0;
  int warp = 0;
  std::memcpy(&memory, &properties[288], sizeof memory);
  std::memcpy(&warp, &properties[308], sizeof warp);
  EXPECT_STREQ(properties.data(), "Test accelerator");
  EXPECT_EQ(memory, kMemory);
  EXPECT_EQ(warp, 64);
  EXPECT_STREQ(&properties[1160], "gfx942");
  EXPECT_EQ(attribute(87), 64) << "hipDeviceAttributeWarpSize";
  EXPECT_EQ(attribute(63), 132) << "hipDeviceAttributeMultiprocessorCount";
  EXPECT_EQ(attribute(74), 65536) << "hipDeviceAttributeMaxSharedMemoryPerBlock";
  EXPECT_EQ(hip.get<int(int)>("hipSetDevice")(kDevices), kInvalidDevice);
}

TEST_P(Hip, SharesTheMachinesMemory) {
  const std::size_t before = free_bytes();
  void* p = nullptr;
  ASSERT_EQ(hip.get<int(void**, std::size_t)>("hipMalloc")(&p, 30 * kGiB), kOk);
  EXPECT_EQ(before - free_bytes(), 30 * kGiB);
  void* more = nullptr;
  EXPECT_EQ(hip.get<int(void**, std::size_t)>("hipMalloc")(&more, 60 * kGiB), kOutOfMemory);
  EXPECT_STREQ(hip.get<const char*(int)>("hipGetErrorName")(kOutOfMemory), "hipErrorOutOfMemory");
  EXPECT_STREQ(hip.get<const char*(int)>("hipGetErrorString")(kOutOfMemory), "out of memory");
  const int value = 7;
  int back = 0;
  EXPECT_EQ(hip.get<int(void*, const void*, std::size_t)>("hipMemcpyHtoD")(p, &value, 4), kOk);
  EXPECT_EQ(hip.get<int(void*, const void*, std::size_t, int, Handle)>("hipMemcpyWithStream")(&back, p, 4, 2, nullptr), kOk);
  EXPECT_EQ(back, 7);
  EXPECT_EQ(hip.get<int(void*)>("hipFree")(p), kOk);
  EXPECT_EQ(free_bytes(), before);
}

TEST_P(Hip, PointersTellWhatTheyAre) {
  struct Attributes {
    int type, device;
    void *on_device, *on_host;
    int managed;
    unsigned flags;
  } a{};
  void* pinned = nullptr;
  ASSERT_EQ(hip.get<int(void**, std::size_t, unsigned)>("hipHostMalloc")(&pinned, kMiB, 0), kOk);
  EXPECT_EQ(hip.get<int(Attributes*, const void*)>("hipPointerGetAttributes")(&a, pinned), kOk);
  EXPECT_EQ(a.type, 1);
  EXPECT_EQ(hip.get<int(void*)>("hipHostFree")(pinned), kOk);
}

TEST_P(Hip, ReservesMapsAndReleases) {
  struct Properties {
    int type = 1, handles = 0, location = 1, device = 0;
    void* security = nullptr;
    char flags[8] = {};
  } properties;
  const std::size_t before = free_bytes();
  void* at = nullptr;
  std::uint64_t handle = 0;
  ASSERT_EQ(
      hip.get<int(void**, std::size_t, std::size_t, void*, unsigned long long)>("hipMemAddressReserve")(&at, 64 * kMiB, 0, nullptr, 0),
      kOk);
  ASSERT_EQ(
      hip.get<int(std::uint64_t*, std::size_t, const Properties*, unsigned long long)>("hipMemCreate")(&handle, 2 * kMiB, &properties, 0),
      kOk);
  ASSERT_EQ(hip.get<int(void*, std::size_t, std::size_t, std::uint64_t, unsigned long long)>("hipMemMap")(at, 2 * kMiB, 0, handle, 0), kOk);
  EXPECT_EQ(before - free_bytes(), 2 * kMiB);
  EXPECT_EQ(hip.get<int(void*, std::size_t)>("hipMemUnmap")(at, 2 * kMiB), kOk);
  EXPECT_EQ(hip.get<int(std::uint64_t)>("hipMemRelease")(handle), kOk);
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(hip.get<int(void*, std::size_t)>("hipMemAddressFree")(at, 64 * kMiB), kOk);
}

TEST_P(Hip, EventsLagBehindTheHost) {
  hip.get<int()>("hipDeviceSynchronize")();
  core().get<void(unsigned)>("plimsoll_rehearse_set_lag")(1);
  Handle event = nullptr;
  const int kernel = 0;
  ASSERT_EQ(hip.get<int(Handle*, unsigned)>("hipEventCreateWithFlags")(&event, 2), kOk);
  EXPECT_EQ(launch(&kernel), kOk);
  EXPECT_EQ(hip.get<int(Handle, Handle)>("hipEventRecord")(event, nullptr), kOk);
  EXPECT_EQ(hip.get<int(Handle)>("hipEventQuery")(event), kNotReady);
  EXPECT_EQ(launch(&kernel), kOk);
  EXPECT_EQ(hip.get<int(Handle)>("hipEventQuery")(event), kOk);
}

TEST_P(Hip, RecordsKernelsByName) {
  static const int kernel = 0;
  hip.get<void(void**, const void*, char*, const char*, unsigned, void*, void*, void*, void*, int*)>("__hipRegisterFunction")(
      nullptr, &kernel, nullptr, "_Z10hip_kernelv", 0, nullptr, nullptr, nullptr, nullptr, nullptr);
  Handle module = nullptr;
  const void* loaded = nullptr;
  ASSERT_EQ(hip.get<int(Handle*, const void*)>("hipModuleLoadData")(&module, "image"), kOk);
  ASSERT_EQ(hip.get<int(const void**, Handle, const char*)>("hipModuleGetFunction")(&loaded, module, "triton_red_fused_1"), kOk);
  const Recorded recorded;
  EXPECT_EQ(launch(&kernel, nullptr, {100, 1, 1}, {256, 1, 1}), kOk);
  EXPECT_EQ((hip.get<int(const void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, std::size_t, Handle, void**, void**,
                         Handle, Handle, unsigned)>("hipExtModuleLaunchKernel"))(loaded, 1000, 1, 1, 256, 1, 1, 0, nullptr, nullptr,
                                                                                 nullptr, nullptr, nullptr, 0),
            kOk);
  EXPECT_EQ(launch(&kernel, nullptr, {}, {256, 1, 1}, 100000), kInvalidConfiguration) << "more than 64 KiB of LDS";
  const auto kernels = recorded.of<record::Kernel>(record::Kind::kernel);
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(recorded.name(kernels[0].name), "_Z10hip_kernelv");
  EXPECT_EQ(recorded.name(kernels[1].name), "triton_red_fused_1");
  EXPECT_EQ(kernels[1].grid[0], 4u) << "1000 threads in blocks of 256";
}

TEST_P(Hip, RecordsTheProductsOfItsThreeLibraries) {
  constexpr int kStraight = 111, kTurned = 112, kRocblasBf16 = 168, kRocblasF32 = 151, kHipBf16 = 14, kHipblasCompute32 = 2;
  Handle rocblas_handle = nullptr, hipblas_handle = nullptr, operation = nullptr, a = nullptr, b = nullptr, d = nullptr;
  ASSERT_EQ(rocblas.get<int(Handle*)>("rocblas_create_handle")(&rocblas_handle), kOk);
  ASSERT_EQ(hipblas.get<int(Handle*)>("hipblasCreate")(&hipblas_handle), kOk);
  const auto layout = lt.get<int(Handle*, int, std::uint64_t, std::uint64_t, std::int64_t)>("hipblasLtMatrixLayoutCreate");
  ASSERT_EQ(lt.get<int(Handle*, int, int)>("hipblasLtMatmulDescCreate")(&operation, kHipblasCompute32, 0), kOk);
  ASSERT_EQ(lt.get<int(Handle, int, const void*, std::size_t)>("hipblasLtMatmulDescSetAttribute")(operation, 0, &kTurned, 4), kOk);
  ASSERT_EQ(layout(&a, kHipBf16, 30, 10, 30), kOk);
  ASSERT_EQ(layout(&b, kHipBf16, 30, 20, 30), kOk);
  ASSERT_EQ(layout(&d, kHipBf16, 10, 20, 10), kOk);
  const Recorded recorded;
  EXPECT_EQ((rocblas.get<int(Handle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,
                             const void*, int, int, void*, int, int, int, int, int, unsigned)>("rocblas_gemm_ex"))(
                rocblas_handle, kTurned, kStraight, 10, 20, 30, nullptr, nullptr, kRocblasBf16, 30, nullptr, kRocblasBf16, 30, nullptr,
                nullptr, kRocblasBf16, 10, nullptr, kRocblasF32, 10, kRocblasF32, 0, 0, 0),
            kOk);
  EXPECT_EQ(
      (hipblas.get<int(Handle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, void*, int,
                       int, int, int)>("hipblasGemmEx_v2"))(hipblas_handle, kTurned, kStraight, 10, 20, 30, nullptr, nullptr, kHipBf16, 30,
                                                            nullptr, kHipBf16, 30, nullptr, nullptr, kHipBf16, 10, kHipblasCompute32, 160),
      kOk);
  EXPECT_EQ((lt.get<int(Handle, Handle, const void*, const void*, Handle, const void*, Handle, const void*, const void*, Handle, void*,
                        Handle, const void*, void*, std::size_t, Handle)>("hipblasLtMatmul"))(
                nullptr, operation, nullptr, nullptr, a, nullptr, b, nullptr, nullptr, d, nullptr, d, nullptr, nullptr, 1024, nullptr),
            kOk);
  const auto gemms = recorded.of<record::Gemm>(record::Kind::gemm);
  ASSERT_EQ(gemms.size(), 3u);
  for (const record::Gemm& gemm : gemms) {
    EXPECT_EQ(gemm.m, 10);
    EXPECT_EQ(gemm.n, 20);
    EXPECT_EQ(gemm.k, 30);
    EXPECT_EQ(gemm.a, record::Type::bf16);
    EXPECT_EQ(gemm.compute, record::Compute::f32);
    EXPECT_EQ(gemm.transpose_a, 1);
    EXPECT_EQ(gemm.transpose_b, 0);
  }
  EXPECT_EQ(gemms[0].d, record::Type::f32) << "rocBLAS names the type of what is written";
  EXPECT_EQ(recorded.name(gemms[2].api), "hipblasLtMatmul");
}

TEST(Rccl, IsNcclUnderItsOwnName) {
  struct UniqueId {
    char bytes[128];
  } id{};
  const Library& rccl = library("librccl.so.1");
  Handle c = nullptr;
  ASSERT_EQ(rccl.get<int(Handle*, int, UniqueId, int)>("ncclCommInitRank")(&c, 16, id, 15), kOk);
  const Recorded recorded;
  EXPECT_EQ(rccl.get<int(const void*, void*, std::size_t, int, Handle, Handle)>("ncclAllToAll")(nullptr, nullptr, 8, 9, c, nullptr), kOk);
  const auto calls = recorded.of<record::CollectiveCall>(record::Kind::collective);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].op, record::Collective::all_to_all);
  EXPECT_EQ(calls[0].bytes, 16u);
}

TEST(RocmSmi, KnowsTheMachine) {
  const Library& smi = library("librocm_smi64.so.7");
  std::uint32_t count = 0;
  std::uint64_t bytes = 0;
  EXPECT_EQ(smi.get<int(std::uint64_t)>("rsmi_init")(0), kOk);
  EXPECT_EQ(smi.get<int(std::uint32_t*)>("rsmi_num_monitor_devices")(&count), kOk);
  EXPECT_EQ(count, static_cast<unsigned>(kDevices));
  EXPECT_EQ(smi.get<int(std::uint32_t, int, std::uint64_t*)>("rsmi_dev_memory_total_get")(1, 0, &bytes), kOk);
  EXPECT_EQ(bytes, kMemory);
  EXPECT_NE(smi.get<int(std::uint32_t, int, std::uint64_t*)>("rsmi_dev_memory_total_get")(9, 0, &bytes), kOk);
  EXPECT_EQ(smi.get<int()>("rsmi_dev_power_cap_get")(), 2) << "what is not here is not supported";
}

}  // namespace
}  // namespace plimsoll::rehearse::test
