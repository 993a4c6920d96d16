#include "calibrate/cpu_kernels.hpp"

#include <gtest/gtest.h>

#include "kernels/problems.hpp"

namespace plimsoll::calibrate {
namespace {

constexpr DeviceShape kCpu{Target::cpu, 3};

HostBuffers run_in_parts(const Kernel& kernel, const Sizes& sizes, HostBuffers buffers, int parts) {
  std::vector<void*> pointers;
  for (auto& buffer : buffers) pointers.push_back(buffer.data());
  for (int part = parts - 1; part >= 0; --part) cpu_kernel(kernel.name)(sizes, pointers.data(), part, parts);
  return buffers;
}

TEST(CpuKernels, TheTableSaysWhichThereAre) {
  for (const Kernel& kernel : kernel_table()) {
    EXPECT_EQ(cpu_kernel(kernel.name) != nullptr, kernel.runs_on(Target::cpu)) << kernel.name;
  }
}

// Whatever the number of parts and their order: parts are independent.
TEST(CpuKernels, AgreeWithTheReferenceInAnyNumberOfParts) {
  for (const Kernel& kernel : kernel_table()) {
    if (!kernel.runs_on(Target::cpu)) continue;
    for (const Sizes& sizes : small_problems(kernel)) {
      ASSERT_EQ(kernel.cannot(sizes), "") << kernel.name;
      const HostBuffers before = make_buffers(kernel, sizes, kCpu, 7);
      for (const int parts : {1, 2, 5}) {
        const Check check = check_answer(kernel, sizes, kCpu, {before}, {run_in_parts(kernel, sizes, before, parts)});
        EXPECT_TRUE(check.passed()) << kernel.name << " in " << parts << " parts: " << check.where;
      }
    }
  }
}

// Rows of 65,536 elements are widened 64 at a time: two panels of A.
TEST(CpuKernels, ProductsOfLongRowsGoPanelByPanel) {
  const Kernel& kernel = kernel_named("gemm_bf16");
  const Sizes sizes{70, 3, 65536};
  const HostBuffers before = make_buffers(kernel, sizes, kCpu, 7);
  const Check check = check_answer(kernel, sizes, kCpu, {before}, {run_in_parts(kernel, sizes, before, 1)});
  EXPECT_TRUE(check.passed()) << check.where;
}

}  // namespace
}  // namespace plimsoll::calibrate
