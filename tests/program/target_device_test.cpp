#include "program/target_device.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <string>

#include "devices.hpp"
#include "plimsoll/error.hpp"
#include "program/attention_library.hpp"
#include "program/blas_workspaces.hpp"
#include "program/ops/attention_choice.hpp"

namespace plimsoll::program {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

// A device in hardware/ without what a lowering asks is named here.
TEST(TargetDevice, EveryShippedDeviceSaysWhatALoweringAsks) {
  for (const std::string& name : shipped_accelerators()) {
    TargetDevice device;
    ASSERT_NO_THROW(device = device_named(name)) << name;
    EXPECT_TRUE(device.capability > 0 || device.is_gfx("gfx")) << name;
    EXPECT_EQ(device.amd(), load_accelerator(name).is_amd()) << name;
    EXPECT_GE(device.threads_per_unit, 1024) << name;
    EXPECT_GE(device.shared_memory, 64 * 1024) << name;
  }
}

TEST(TargetDevice, WhatAFileLacksIsAskedForByItsKey) {
  Cluster cluster = parse_cluster("h100-sxm");
  cluster.accelerator.threads_per_unit = {};
  try {
    target_device(cluster);
    FAIL() << "no program without it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::refused);
    EXPECT_NE(std::string(error.what()).find("compute.threads_per_unit"), std::string::npos) << error.what();
  }
  cluster = parse_cluster("h100-sxm");
  cluster.accelerator.target = "x86-64";
  EXPECT_THROW(target_device(cluster), Error);
}

// What one device has is no rule of a program: its numbers and its name stand in hardware/ alone.
TEST(TargetDevice, NoConstantOfADeviceIsLeftInPrograms) {
  const std::regex constants(R"(\b(132|33554432|2048|32LL << 20)\b|== "(Hopper|Blackwell|Ampere|CDNA))");
  const std::regex comment(R"(//.*)");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(std::string(PLIMSOLL_SOURCE_DIR) + "/src/program")) {
    if (entry.path().extension() != ".cpp" && entry.path().extension() != ".hpp") continue;
    std::ifstream file(entry.path());
    int number = 0;
    for (std::string line; std::getline(file, line);) {
      ++number;
      if (line.find("kSizes[]") != std::string::npos) continue;  // hidden sizes that Apex has kernels for
      const std::string code = std::regex_replace(line, comment, "");
      EXPECT_FALSE(std::regex_search(code, constants)) << entry.path().string() << ":" << number << ": " << line;
    }
  }
}

/// 207: PyTorch 2.7.
TorchRelease pytorch(int number) { return TorchRelease(Release(number / 100, number % 100)); }

// ":4096:2:16:8" is 2 · 4 MiB + 8 · 16 KiB. PyTorch 2.12 takes as much on Blackwell as on Hopper.
TEST(BlasWorkspaces, OfCudaAreByArchitectureAndRelease) {
  const auto bytes = [](const char* device, int torch) { return blas_workspaces(device_named(device), pytorch(torch)).blas; };
  constexpr std::int64_t kSmall = 8 * kMiB + 128 * 1024;
  for (const char* device : {"v100-sxm2", "t4", "a10", "a100-80gb-sxm", "l40s"}) {
    EXPECT_EQ(bytes(device, 207), kSmall) << device;
    EXPECT_EQ(bytes(device, 215), kSmall) << device;
    EXPECT_EQ(bytes(device, 113), 4 * kMiB) << device;
    EXPECT_EQ(bytes(device, 112), 0) << device << ": cuBLAS's own, outside of the allocator (pytorch#85447)";
  }
  EXPECT_EQ(bytes("h100-sxm", 207), 32 * kMiB);
  EXPECT_EQ(bytes("b200", 211), kSmall);
  EXPECT_EQ(bytes("b200", 212), 32 * kMiB);
  EXPECT_EQ(bytes("rtx5090", 212), 32 * kMiB);
}

// hipBLASLt multiplies on Instincts, and its workspace alone is asked for; elsewhere hipBLAS's.
TEST(BlasWorkspaces, OfRocmAreByArchitectureAndRelease) {
  const auto of = [](const char* device, int torch) { return blas_workspaces(device_named(device), pytorch(torch)); };
  EXPECT_EQ(of("mi300x", 206).blas_lt, 76 * kMiB);
  EXPECT_EQ(of("mi300x", 215).blas_lt, 80 * kMiB);
  EXPECT_EQ(of("mi300x", 206).blas, 128 * kMiB);
  EXPECT_EQ(of("mi355x", 210).blas, 128 * kMiB);
  EXPECT_EQ(of("mi250x", 210).blas, 32 * kMiB);
  EXPECT_EQ(of("mi250x", 205).blas, 0);
  for (const char* device : {"mi250x", "mi300x", "mi355x"}) EXPECT_TRUE(of(device, 210).lt_alone) << device;
  EXPECT_FALSE(of("w7900", 210).lt_alone);
  EXPECT_FALSE(of("mi300x", 215).taken_anew);
}

/// What a step of products allocates in all.
std::int64_t allocated(Tape& tape, Tape::BlasLibrary library) {
  tape.record_into(Tape::Part::step);
  for (int i = 0; i < 2; ++i) tape.product_workspace(library);
  std::int64_t bytes = 0;
  for (const Instruction& instruction : tape.program().step)
    if (instruction.kind == InstructionKind::alloc) bytes += instruction.bytes;
  return bytes;
}

// Two products: kept or taken anew; hipBLASLt has a handle of its own, cuBLASLt's is cuBLAS's.
TEST(BlasWorkspaces, AreKeptOrTakenAnew) {
  const auto of = [](const char* device, int torch, Tape::BlasLibrary library) {
    Tape tape(device_named(device), pytorch(torch));
    return allocated(tape, library);
  };
  EXPECT_EQ(of("h100-sxm", 215, Tape::BlasLibrary::cublas), 2 * 32 * kMiB);
  EXPECT_EQ(of("h100-sxm", 207, Tape::BlasLibrary::cublas), 32 * kMiB);
  EXPECT_EQ(of("h100-sxm", 207, Tape::BlasLibrary::cublas_lt), 33 * kMiB);
  EXPECT_EQ(of("mi300x", 215, Tape::BlasLibrary::cublas), 80 * kMiB);
  EXPECT_EQ(of("w7900", 215, Tape::BlasLibrary::cublas), 32 * kMiB);
  EXPECT_EQ(of("w7900", 215, Tape::BlasLibrary::cublas_lt), 80 * kMiB);
}

/// What scaled_dot_product_attention takes of [2, 8, 64, head] queries with as many key heads.
SdpaBackend choice(const char* device, int torch, DType type, std::int64_t head, bool masked = false, std::int64_t key_heads = 8) {
  Tape tape(device_named(device), pytorch(torch));
  const auto heads = [&](std::int64_t count) {
    Tensor x = tape.empty({2, count, 64, head}, type);
    x.set_requires_grad(true);
    return x;
  };
  const Tensor query = heads(8), key = heads(key_heads), value = heads(key_heads);
  const Tensor mask = masked ? tape.empty({2, 1, 64, 64}, type) : Tensor();
  return sdpa_backend(query, key, value, mask, {.causal = !masked, .enable_gqa = key_heads != 8});
}

// sdp_utils.cpp: flash from sm_80 on, bf16 too; the memory-efficient kernels from sm_50 on; heads beyond 192 not in training on sm_86.
TEST(AttentionByDevice, IsWhatTheArchitectureHas) {
  for (const char* device : {"v100-sxm2", "t4"}) {
    EXPECT_EQ(choice(device, 215, DType::fp16, 64), SdpaBackend::efficient) << device;
    EXPECT_EQ(choice(device, 215, DType::fp32, 64), SdpaBackend::efficient) << device;
    EXPECT_EQ(choice(device, 215, DType::fp32, 66), SdpaBackend::efficient) << device << ": any width without tensor cores";
    EXPECT_EQ(choice(device, 215, DType::bf16, 64), SdpaBackend::math) << device;
    EXPECT_EQ(choice(device, 210, DType::fp16, 64, false, 2), SdpaBackend::math) << device << ": no groups of heads before 2.12";
  }
  EXPECT_EQ(choice("a100-80gb-sxm", 215, DType::fp32, 66), SdpaBackend::math);
  for (const char* device : {"a100-80gb-sxm", "a10", "h100-sxm", "b200"}) {
    EXPECT_EQ(choice(device, 215, DType::bf16, 64), SdpaBackend::flash) << device;
    EXPECT_EQ(choice(device, 215, DType::bf16, 64, true), SdpaBackend::efficient) << device;
  }
  EXPECT_EQ(choice("a10", 215, DType::bf16, 224), SdpaBackend::efficient);
  EXPECT_EQ(choice("a100-80gb-sxm", 215, DType::bf16, 224), SdpaBackend::flash);
}

// AOTriton's kernels stand behind both names, heads of up to 512 by the first; groups of heads only by the first.
TEST(AttentionByDevice, IsAotritonsOnRocm) {
  for (const char* device : {"mi250x", "mi300x", "mi355x"}) {
    EXPECT_EQ(choice(device, 215, DType::bf16, 64), SdpaBackend::flash) << device;
    EXPECT_EQ(choice(device, 215, DType::bf16, 512), SdpaBackend::flash) << device;
    EXPECT_EQ(choice(device, 215, DType::bf16, 64, true), SdpaBackend::efficient) << device;
    EXPECT_EQ(choice(device, 215, DType::bf16, 64, true, 2), SdpaBackend::math) << device;
    EXPECT_EQ(torch_flash(device_named(device)), AttentionLibrary::aotriton);
    EXPECT_EQ(packaged_flash(device_named(device)), AttentionLibrary::composable_kernel);
  }
  EXPECT_EQ(choice("mi300x", 203, DType::bf16, 64), SdpaBackend::math);
  EXPECT_EQ(choice("w7900", 215, DType::bf16, 64), SdpaBackend::math) << "experimental there";
}

}  // namespace
}  // namespace plimsoll::program
