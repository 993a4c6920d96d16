// The device source, lane by lane, against the double-precision references.
#include "calibrate/kernels/emulator/emulator.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <stdexcept>

#include "calibrate/kernels/emulator/emulated.hpp"
#include "kernels/problems.hpp"

namespace plimsoll::calibrate {
namespace {

using emulator::Options;
using emulator::Order;

// Runs a kernel (a collective: on all ranks at once) and compares; what is thrown counts as an answer infinitely wrong.
Check emulate(const Kernel& kernel, const Sizes& sizes, Target target, const Options& options) {
  const DeviceShape device{target, 4};
  const int ranks = kernel.collective() ? static_cast<int>(sizes.at(1)) : 1;
  std::vector<HostBuffers> before, after;
  for (int rank = 0; rank < ranks; ++rank) before.push_back(make_buffers(kernel, sizes, device, 11, rank));
  after = before;
  std::vector<std::vector<void*>> tables(kernel.buffers.size());  // of pointers, one per rank
  for (auto& buffers : after) {
    for (std::size_t b = 0; b < buffers.size(); ++b) tables[b].push_back(buffers[b].data());
  }
  std::vector<emulator::Job> jobs;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<void*> pointers;
    for (std::size_t b = 0; b < kernel.buffers.size(); ++b) {
      pointers.push_back(kernel.buffers[b].of_every_rank ? static_cast<void*>(tables[b].data())
                                                         : after[static_cast<std::size_t>(rank)][b].data());
    }
    PackedArguments arguments(kernel, sizes, pointers, kernel.collective() ? std::vector<double>{1.0 * rank, 0} : std::vector<double>{});
    const Launch launch = kernel.launch(sizes, device);
    jobs.push_back(emulator::emulated_kernel(target, kernel.name)->job(static_cast<int>(launch.blocks), arguments.pointers()));
    jobs.back().shared_bytes = launch.shared_bytes;
  }
  try {
    emulator::run_together(jobs, options);
  } catch (const std::exception& error) {
    Check check;
    check.where = error.what();
    return check;
  }
  return check_answer(kernel, sizes, device, before, after);
}

class EveryProcessor : public testing::TestWithParam<Target> {
 protected:
  // The kernels that are not those of another processor: sm_90a has all of sm_90.
  static std::vector<const Kernel*> own_kernels() {
    std::vector<const Kernel*> own;
    for (const Kernel& kernel : kernel_table()) {
      if (kernel.runs_on(GetParam()) && !(GetParam() == Target::sm_90a && kernel.runs_on(Target::sm_90))) own.push_back(&kernel);
    }
    return own;
  }
};

std::string target_of(const testing::TestParamInfo<Target>& info) { return std::string(name_of(info.param)); }

TEST_P(EveryProcessor, HasTheKernelsThatTheTableSays) {
  for (const Kernel& kernel : kernel_table()) {
    const emulator::EmulatedRow* row = emulator::emulated_kernel(GetParam(), kernel.name);
    ASSERT_EQ(row != nullptr, kernel.runs_on(GetParam())) << kernel.name;
    if (!row) continue;
    // The table's arguments are those of the source: 8 bytes for pointers and u64, 4 for the others.
    std::vector<std::size_t> expected(kernel.buffers.size(), 8), actual;
    for (const Scalar& scalar : kernel.scalars) expected.push_back(scalar.type == ScalarType::u64 ? 8 : 4);
    for (const std::size_t* size = row->argument_sizes; *size != 0; ++size) actual.push_back(*size);
    EXPECT_EQ(actual, expected) << kernel.name;
  }
}

TEST_P(EveryProcessor, AgreesWithTheReference) {
  for (const Kernel* kernel : own_kernels()) {
    for (const Sizes& sizes : small_problems(*kernel)) {
      ASSERT_EQ(kernel->cannot(sizes), "") << kernel->name;
      const Check check = emulate(*kernel, sizes, GetParam(), {Order::greedy, 1, nullptr, nullptr});
      EXPECT_TRUE(check.passed()) << kernel->name << ": " << check.where;
    }
  }
}

TEST_P(EveryProcessor, AgreesUnderEverySchedule) {
  for (const Kernel* kernel : own_kernels()) {
    for (const Order order : {Order::forward, Order::reverse, Order::shuffled}) {
      const Check check = emulate(*kernel, small_problems(*kernel).front(), GetParam(), {order, 2, nullptr, nullptr});
      EXPECT_TRUE(check.passed()) << kernel->name << " in order " << static_cast<int>(order) << ": " << check.where;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Emulator, EveryProcessor,
                         testing::Values(Target::gfx90a, Target::gfx942, Target::gfx950, Target::sm_80, Target::sm_90, Target::sm_90a),
                         target_of);

// Of one kernel per use of barriers: without any one of them, some schedule of some problem gives a wrong answer.
class Mutants : public testing::TestWithParam<Target> {};

TEST_P(Mutants, EveryRemovedBarrierIsCaught) {
  std::map<emulator::Site, bool> caught;
  for (const char* name : {"gemm_bf16", "gemm_bf16_wgmma", "attention_bf16_d64", "attention_backward_bf16_d64", "attention_bf16_d64_wgmma",
                           "attention_bf16_d128_wgmma", "attention_backward_bf16_d64_wgmma", "attention_backward_bf16_d128_wgmma",
                           "softmax_fp32", "transpose_bf16", "all_reduce_fp32"}) {
    const Kernel& kernel = kernel_named(name);
    if (!kernel.runs_on(GetParam())) continue;
    const Sizes sizes = small_problems(kernel).at(1);
    std::set<emulator::Site> reached;
    ASSERT_TRUE(emulate(kernel, sizes, GetParam(), {Order::greedy, 1, nullptr, &reached}).passed()) << name;
    EXPECT_FALSE(reached.empty()) << name;
    for (const emulator::Site& site : reached) {
      bool& known = caught[site];
      for (std::uint32_t seed = 1; !known && seed <= 4; ++seed) {
        known = !emulate(kernel, sizes, GetParam(), {Order::greedy, seed, &site, nullptr}).passed();
      }
    }
  }
  EXPECT_GE(caught.size(), 11u);
  for (const auto& [site, known] : caught) EXPECT_TRUE(known) << site.file << ":" << site.line;
}

INSTANTIATE_TEST_SUITE_P(Emulator, Mutants, testing::Values(Target::gfx942, Target::sm_90a), target_of);

// ---- the emulator itself
// ------------------------------------------------------------------------------------------------------------------

void run_block(int threads, int wave, Order order, const std::function<void()>& body) {
  emulator::run({1, threads, wave, body}, {order, 1, nullptr, nullptr});
}

TEST(Emulator, LanesThatWaitAtDifferentPlacesAreADivergence) {
  const auto body = [] {
    const int value = 0;
    if (emulator::thread_index() < 32) {
      emulator::exchange(&value, sizeof value);
    } else {
      emulator::barrier({"here", 1});
    }
  };
  for (const Order order : {Order::forward, Order::greedy}) EXPECT_THROW(run_block(64, 64, order, body), std::runtime_error);
}

TEST(Emulator, LanesThatReturnEarlyAreNotWaitedFor) {
  int reached = 0;
  run_block(64, 64, Order::forward, [&] {
    if (emulator::thread_index() >= 10) return;
    emulator::barrier({"here", 1});
    ++reached;
  });
  EXPECT_EQ(reached, 10);
}

TEST(Emulator, SharedMemoryIsPoisonedInEveryBlockAndBounded) {
  std::vector<unsigned char> first;
  emulator::run({2, 1, 1,
                 [&] {
                   auto* memory = static_cast<unsigned char*>(emulator::shared_memory({"here", 1}, 16));
                   first.push_back(memory[3]);
                   memory[3] = 7;
                 }},
                {});
  EXPECT_EQ(first, (std::vector<unsigned char>{0xFF, 0xFF}));
  EXPECT_THROW(run_block(1, 1, Order::forward,
                         [] {
                           emulator::shared_memory({"here", 2}, emulator::kSharedLimit + 1);
                         }),
               std::runtime_error);
}

TEST(Emulator, RanksThatWaitForEverAreNamed) {
  const emulator::Job waiting{1, 1, 1, [] {
                                for (;;) emulator::spin();
                              }};
  EXPECT_THROW(emulator::run_together({waiting, waiting}, {}), std::runtime_error);
}

TEST(Emulator, WhatABodyThrowsArrives) {
  EXPECT_THROW(run_block(4, 4, Order::reverse, [] { throw std::out_of_range("lane"); }), std::out_of_range);
}

}  // namespace
}  // namespace plimsoll::calibrate
