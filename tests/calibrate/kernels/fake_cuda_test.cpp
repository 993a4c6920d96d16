// The fake libcuda: the PTX that a device is given, run on what that PTX was built for.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "calibrate/kernels/code_objects.hpp"
#include "kernels/problems.hpp"

namespace plimsoll::calibrate {
namespace {

template <class Function>
Function* entry(const char* name) {
  static void* library = dlopen(PLIMSOLL_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  auto* function = reinterpret_cast<Function*>(dlsym(library, name));
  EXPECT_NE(function, nullptr) << name;
  return function;
}

using Pointer = unsigned long long;
using Launcher = int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);

Check run(const char* name, const Sizes& sizes, Target target) {
  const DeviceShape device{target, 4};
  const Kernel& kernel = kernel_named(name);
  const HostBuffers before = make_buffers(kernel, sizes, device, 5);
  HostBuffers after = before;
  auto* copy = entry<int(Pointer, Pointer, std::size_t, void*)>("cuMemcpyAsync");
  std::vector<void*> memory;
  for (const auto& buffer : before) {
    Pointer given = 0;
    EXPECT_EQ(entry<int(Pointer*, std::size_t)>("cuMemAlloc_v2")(&given, buffer.size()), 0);
    EXPECT_EQ(copy(given, reinterpret_cast<Pointer>(buffer.data()), buffer.size(), nullptr), 0);
    memory.push_back(reinterpret_cast<void*>(given));
  }
  void *module = nullptr, *function = nullptr;
  for (const CodeObject& object : code_objects()) {
    const bool wanted = object.target == target;
    EXPECT_EQ(wanted ? entry<int(void**, const void*)>("cuModuleLoadData")(&module, object.data) : 0, 0);
  }
  EXPECT_EQ(entry<int(void**, void*, const char*)>("cuModuleGetFunction")(&function, module, name), 0);
  PackedArguments arguments(kernel, sizes, memory);
  EXPECT_EQ(entry<Launcher>("cuLaunchKernel")(function, kernel.launch(sizes, device).blocks, 1, 1, 256, 1, 1, 0, nullptr,
                                              arguments.pointers(), nullptr),
            0);
  for (std::size_t i = 0; i < memory.size(); ++i) {
    EXPECT_EQ(copy(reinterpret_cast<Pointer>(after[i].data()), reinterpret_cast<Pointer>(memory[i]), after[i].size(), nullptr), 0);
  }
  return check_answer(kernel, sizes, device, {before}, {after});
}

TEST(FakeCuda, RunsThePtxOfItsProcessor) {
  if (code_objects().empty()) GTEST_SKIP() << "built without device code";
  ASSERT_EQ(entry<int(unsigned)>("cuInit")(0), 0);
  for (const Target target : {Target::sm_80, Target::sm_90, Target::sm_90a}) {
    const Check gemm = run("gemm_bf16", {40, 24, 64}, target);
    EXPECT_TRUE(gemm.passed()) << name_of(target) << ": " << gemm.where;
  }
}

TEST(FakeCuda, RefusesPtxOfALaterProcessorAndWhatIsNone) {
  if (code_objects().empty()) GTEST_SKIP() << "built without device code";
  auto* load = entry<int(void**, const void*)>("cuModuleLoadData");
  void* module = nullptr;
  EXPECT_EQ(load(&module, "no PTX"), 218);  // CUDA_ERROR_INVALID_PTX
  setenv("FAKE_CUDA_ARCH", "sm_80", 1);
  EXPECT_EQ(load(&module, code_object_for_nvidia(9, 0)->data), 218);
  EXPECT_EQ(load(&module, code_object_for_nvidia(8, 0)->data), 0);
  setenv("FAKE_CUDA_ARCH", "sm_100", 1);
  EXPECT_EQ(load(&module, code_object_for_nvidia(9, 0)->data), 218);  // Hopper's own does not go on
  EXPECT_EQ(load(&module, code_object_for_nvidia(10, 0)->data), 0);
  unsetenv("FAKE_CUDA_ARCH");
}

TEST(FakeCuda, RefusesSharedMemoryThatWasNotAllowed) {
  if (code_objects().empty()) GTEST_SKIP() << "built without device code";
  void *module = nullptr, *function = nullptr;
  ASSERT_EQ(entry<int(void**, const void*)>("cuModuleLoadData")(&module, code_object_for_nvidia(9, 0)->data), 0);
  ASSERT_EQ(entry<int(void**, void*, const char*)>("cuModuleGetFunction")(&function, module, "attention_bf16_d128_wgmma"), 0);
  constexpr int kMostSharedBytes = 8;  // an attribute of functions
  auto* allow = entry<int(void*, int, int)>("cuFuncSetAttribute");
  const auto launch = [&](unsigned shared) {
    return entry<Launcher>("cuLaunchKernel")(function, 1, 1, 1, 256, 1, 1, shared, nullptr, nullptr, nullptr);
  };
  EXPECT_EQ(launch((48 << 10) + 1), 1);  // CUDA_ERROR_INVALID_VALUE
  EXPECT_EQ(allow(function, kMostSharedBytes, (227 << 10) + 1), 1);
  EXPECT_EQ(allow(function, kMostSharedBytes, 64 << 10), 0);
  EXPECT_EQ(launch((64 << 10) + 1), 1);
}

}  // namespace
}  // namespace plimsoll::calibrate
