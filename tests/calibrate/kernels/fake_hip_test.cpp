// The fake libamdhip64 as a program sees it that opens the library at run time.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "calibrate/kernels/code_objects.hpp"
#include "kernels/problems.hpp"

namespace plimsoll::calibrate {
namespace {

template <class Function>
Function* entry(const char* name) {
  static void* library = dlopen(PLIMSOLL_FAKE_HIP, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  auto* function = reinterpret_cast<Function*>(dlsym(library, name));
  EXPECT_NE(function, nullptr) << name;
  return function;
}

constexpr int kToDevice = 1, kToHost = 2;

class FakeHip : public testing::Test {
 protected:
  void SetUp() override { setenv("FAKE_HIP_DEVICES", "2", 1); }
  void TearDown() override {
    for (const char* name : {"FAKE_HIP_LAUNCH_ERROR", "FAKE_HIP_WRONG", "FAKE_HIP_TIME", "FAKE_HIP_NOISE", "FAKE_HIP_ARCH"}) unsetenv(name);
  }

  static void* allocate(std::size_t bytes) {
    void* memory = nullptr;
    EXPECT_EQ(entry<int(void**, std::size_t)>("hipMalloc")(&memory, bytes), 0);
    return memory;
  }
  static void copy(void* to, const void* from, std::size_t bytes, int kind) {
    EXPECT_EQ(entry<int(void*, const void*, std::size_t, int)>("hipMemcpy")(to, from, bytes, kind), 0);
  }
  static void use(int device) { EXPECT_EQ(entry<int(int)>("hipSetDevice")(device), 0); }

  static void* function(const char* name) {
    void *module = nullptr, *result = nullptr;
    const CodeObject* object = code_object_for_amd("gfx942:sramecc+:xnack-");
    EXPECT_EQ(entry<int(void**, const void*)>("hipModuleLoadData")(&module, object->data), 0);
    EXPECT_EQ(entry<int(void**, void*, const char*)>("hipModuleGetFunction")(&result, module, name), 0);
    return result;
  }
  static int launch(const Kernel& kernel, const Sizes& sizes, const std::vector<void*>& buffers,
                    const std::vector<double>& at_launch = {}) {
    PackedArguments arguments(kernel, sizes, buffers, at_launch);
    using Launcher = int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
    return entry<Launcher>("hipModuleLaunchKernel")(function(std::string(kernel.name).c_str()), kernel.launch(sizes, kDevice).blocks, 1, 1,
                                                    256, 1, 1, 0, nullptr, arguments.pointers(), nullptr);
  }
  static Check run(const char* name, const Sizes& sizes) {
    const Kernel& kernel = kernel_named(name);
    const HostBuffers before = make_buffers(kernel, sizes, kDevice, 5);
    HostBuffers after = before;
    std::vector<void*> memory;
    for (const auto& buffer : before) {
      memory.push_back(allocate(buffer.size()));
      copy(memory.back(), buffer.data(), buffer.size(), kToDevice);
    }
    EXPECT_EQ(launch(kernel, sizes, memory), 0);
    for (std::size_t i = 0; i < memory.size(); ++i) copy(after[i].data(), memory[i], after[i].size(), kToHost);
    return check_answer(kernel, sizes, kDevice, {before}, {after});
  }
  static constexpr DeviceShape kDevice{Target::gfx942, 4};
};

TEST_F(FakeHip, RunsTheEmbeddedObjectsKernels) {
  if (code_objects().empty()) GTEST_SKIP() << "built without device code";
  const Check triad = run("triad", {3 * 1024 + 8}), gemm = run("gemm_bf16", {40, 24, 64});
  EXPECT_TRUE(triad.passed()) << triad.where;
  EXPECT_TRUE(gemm.passed()) << gemm.where;
}

TEST_F(FakeHip, RefusesWhatADriverRefuses) {
  if (code_objects().empty()) GTEST_SKIP() << "built without device code";
  void* module = nullptr;
  auto* load = entry<int(void**, const void*)>("hipModuleLoadData");
  EXPECT_EQ(load(&module, code_object_for_amd("gfx90a")->data), 209);  // hipErrorNoBinaryForGpu
  EXPECT_EQ(load(&module, "this is no ELF file, but it is long enough to hold the header of one"), 209);
  setenv("FAKE_HIP_ARCH", "gfx1100", 1);
  EXPECT_EQ(load(&module, code_object_for_amd("gfx942")->data), 209);
  void* memory = nullptr;
  EXPECT_EQ(entry<int(void**, std::size_t)>("hipMalloc")(&memory, std::size_t{1} << 40), 2);  // hipErrorOutOfMemory
}

TEST_F(FakeHip, FailsAndSpoilsOnDemand) {
  if (code_objects().empty()) GTEST_SKIP() << "built without device code";
  setenv("FAKE_HIP_WRONG", "triad", 1);
  EXPECT_FALSE(run("triad", {2048}).passed());
  setenv("FAKE_HIP_LAUNCH_ERROR", "copy", 1);
  EXPECT_EQ(launch(kernel_named("copy"), {2048}, {nullptr, nullptr}), 719);
}

// Launched from one thread on two devices: each waits for the other, so the launches must not block.
TEST_F(FakeHip, TwoDevicesReduceTogether) {
  if (code_objects().empty()) GTEST_SKIP() << "built without device code";
  const Kernel& kernel = kernel_named("all_reduce_fp32");
  const Sizes sizes{4096, 2};
  std::vector<HostBuffers> before, after;
  std::vector<void*> data, flags;
  for (int rank = 0; rank < 2; ++rank) {
    use(rank);
    before.push_back(make_buffers(kernel, sizes, kDevice, 9, rank));
    data.push_back(allocate(before.back()[0].size()));
    flags.push_back(allocate(before.back()[1].size()));
    copy(data.back(), before.back()[0].data(), before.back()[0].size(), kToDevice);
    copy(flags.back(), before.back()[1].data(), before.back()[1].size(), kToDevice);
  }
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int rank = 0; rank < 2; ++rank) {
      use(rank);
      void *data_table = allocate(16), *flag_table = allocate(16);
      copy(data_table, data.data(), 16, kToDevice);
      copy(flag_table, flags.data(), 16, kToDevice);
      ASSERT_EQ(launch(kernel, sizes, {data_table, flag_table}, {1.0 * rank, 1.0 * epoch}), 0);
    }
    after = before;
    for (int rank = 0; rank < 2; ++rank) {
      use(rank);
      copy(after[static_cast<std::size_t>(rank)][0].data(), data[static_cast<std::size_t>(rank)], after[0][0].size(), kToHost);
    }
    const Check check = check_answer(kernel, sizes, kDevice, before, after);
    EXPECT_TRUE(check.passed()) << "epoch " << epoch << ": " << check.where;
    before = after;
  }
}

// 2 µs + 12 bytes · 2²⁴ / 4 TB/s = 52.3 µs, and up to half as much again with noise 0.5.
TEST_F(FakeHip, TellsTheModelledTime) {
  if (code_objects().empty()) GTEST_SKIP() << "built without device code";
  setenv("FAKE_HIP_TIME", "model", 1);
  const Sizes sizes{1 << 24};
  std::vector<void*> memory;
  for (int i = 0; i < 3; ++i) memory.push_back(allocate(std::size_t{4} << 24));
  void *begin = nullptr, *end = nullptr;
  entry<int(void**)>("hipEventCreate")(&begin);
  entry<int(void**)>("hipEventCreate")(&end);
  const auto timed = [&] {
    float milliseconds = 0;
    entry<int(void*, void*)>("hipEventRecord")(begin, nullptr);
    launch(kernel_named("triad"), sizes, memory);
    entry<int(void*, void*)>("hipEventRecord")(end, nullptr);
    entry<int(void*)>("hipEventSynchronize")(end);
    entry<int(float*, void*, void*)>("hipEventElapsedTime")(&milliseconds, begin, end);
    return milliseconds;
  };
  EXPECT_NEAR(timed(), 0.0523316, 1e-6);
  setenv("FAKE_HIP_NOISE", "0.5", 1);
  const float first = timed(), second = timed();
  EXPECT_NE(first, second);
  EXPECT_GE(first, 0.0523f);
  EXPECT_LE(first, 0.0786f);
  for (void* event : {begin, end}) EXPECT_EQ(entry<int(void*)>("hipEventDestroy")(event), 0);
}

}  // namespace
}  // namespace plimsoll::calibrate
