// What kernels of the compute stream lose to what runs beside them. Laws: src/play/shared_device.hpp.
#include "play/shared_device.hpp"

#include <gtest/gtest.h>

#include <optional>

#include "plimsoll/product_cost.hpp"

namespace plimsoll {
namespace {

constexpr StreamId kCommunication = 1, kReduction = 2;

Pricing pricing() {
  Pricing pricing;
  pricing.product_slowdown = 1.25;
  pricing.memory_slowdown = 1.6;
  pricing.second_wave = 0.7;
  return pricing;
}

Item kernel(double seconds, Claim claim) {
  Item item;
  item.seconds = seconds;
  item.claim = claim;
  return item;
}

Item collective(Claim claim = Claim::blocks) {
  Item item;
  item.what = Item::What::collective;
  item.claim = claim;
  return item;
}

struct SharedDevices : testing::Test {
  const Pricing prices = pricing();
  std::optional<SharedDevice> device{std::in_place, prices};
};

// A kernel of 10 s beside a collective of 5: 4 s of it take the 5, the other 6 follow. One bound by memory: 5 / 1.6 = 3.125 are done.
TEST_F(SharedDevices, ACollectiveSlowsWhatRunsBesideIt) {
  device->add(collective(), kCommunication, 0, 5);
  EXPECT_DOUBLE_EQ(device->run(kernel(10, Claim::units), 0), 11);
  device.emplace(prices);
  device->add(collective(), kCommunication, 0, 5);
  EXPECT_DOUBLE_EQ(device->run(kernel(10, Claim::bandwidth), 0), 5 + 10 - 5 / 1.6);
}

// A transfer between nodes holds next to no units, but moves bytes.
TEST_F(SharedDevices, ATransferBetweenNodesSlowsKernelsBoundByMemoryAlone) {
  device->add(collective(Claim::bandwidth), kCommunication, 0, 50);
  EXPECT_DOUBLE_EQ(device->run(kernel(10, Claim::units), 0), 10);
  EXPECT_DOUBLE_EQ(device->run(kernel(10, Claim::blocks), 10), 20);
  EXPECT_DOUBLE_EQ(device->run(kernel(10, Claim::bandwidth), 20), 36);
}

// One block per unit, some of which a collective holds. It outlasts the kernel: the others end at 10, and blocks that found no unit take
// theirs, 7 s. It ends at 5: those run from 5 to 12. It ends at 1: to 8, before the others.
TEST_F(SharedDevices, BlocksThatFindNoUnitTakeASecondWave) {
  for (const auto& [until, end] : {std::pair{100.0, 17.0}, {5.0, 12.0}, {1.0, 10.0}}) {
    device.emplace(prices);
    device->add(collective(), kCommunication, 0, until);
    EXPECT_DOUBLE_EQ(device->run(kernel(10, Claim::blocks), 0), end) << until;
  }
}

// Products that leave units free for what runs beside them (user buffers) have no second wave.
TEST_F(SharedDevices, CommunicationThatProductsExpectCostsItsUnitsAlone) {
  device->add(collective(Claim::units), kCommunication, 0, 100);
  EXPECT_DOUBLE_EQ(device->run(kernel(10, Claim::blocks), 0), 12.5);
}

// A collective of 5 s comes at 4, when a product of one block per unit holds them all: it begins at 10, and the next product, of 2 s, has
// its second wave (1.4 s) before the collective ends at 15; so has the one behind it, from 13.4 to 15 and 1.4 more.
TEST_F(SharedDevices, ACollectiveWaitsForAKernelThatHoldsAllUnits) {
  device->add(collective(), kCommunication, 4, 9);
  EXPECT_DOUBLE_EQ(device->run(kernel(10, Claim::blocks), 0), 10);
  EXPECT_DOUBLE_EQ(device->run(kernel(2, Claim::blocks), 10), 13.4);
  EXPECT_DOUBLE_EQ(device->run(kernel(2, Claim::blocks), 13.4), 16.4);
}

// The same where the kernels were issued first: what the collective costs them comes out as a delay, 1.4 + 1 s.
TEST_F(SharedDevices, KernelsIssuedBeforeACollectiveLoseAsMuch) {
  device->run(kernel(10, Claim::blocks), 0);
  device->run(kernel(2, Claim::blocks), 10);
  device->run(kernel(2, Claim::blocks), 12);
  EXPECT_DOUBLE_EQ(device->add(collective(), kCommunication, 4, 9), 2.4);
}

// 10 s of memory-bound work from 0, a collective from 2 to 6: 4 / 1.6 s of work are done meanwhile, 1.5 s are lost. The kernel behind it
// begins 0.5 s behind it, which takes up as much of the loss; a gap of 2 s takes up all of it.
TEST_F(SharedDevices, AGapTakesUpADelay) {
  device->run(kernel(10, Claim::bandwidth), 0);
  device->run(kernel(1, Claim::bandwidth), 10.5);
  EXPECT_DOUBLE_EQ(device->add(collective(), kCommunication, 2, 6), 1);
  device.emplace(prices);
  device->run(kernel(10, Claim::bandwidth), 0);
  device->run(kernel(1, Claim::bandwidth), 12);
  EXPECT_DOUBLE_EQ(device->add(collective(), kCommunication, 2, 6), 0);
}

// Casts and divisions in FSDP's reduction stream: they and the products beside them take turns.
TEST_F(SharedDevices, KernelsOfTwoStreamsTakeTurns) {
  for (const Claim claim : {Claim::bandwidth, Claim::units, Claim::blocks}) {
    device.emplace(prices);
    device->add(kernel(2, Claim::bandwidth), kReduction, 1, 3);
    EXPECT_DOUBLE_EQ(device->run(kernel(10, claim), 0), 12);
    EXPECT_DOUBLE_EQ(device->add(kernel(3, Claim::bandwidth), kReduction, 5, 8), 3);
  }
}

// What is over costs nothing.
TEST_F(SharedDevices, WhatDoesNotMeetLosesNothing) {
  device->add(collective(), kCommunication, 0, 5);
  EXPECT_DOUBLE_EQ(device->run(kernel(10, Claim::blocks), 5), 15);
  EXPECT_DOUBLE_EQ(device->add(collective(), kCommunication, 15, 20), 0);
}

// H100: 132 units, of which 24 are held. Its large bf16 products are one block per unit; a small one finds units
// enough; products of 8 bits and those of an A100 take units as they come free.
TEST(NeedsAllUnits, IsSaidOfLarge16BitProductsOnHopper) {
  const Accelerator h100 = load_accelerator("h100-sxm");
  EXPECT_TRUE(needs_all_units(linear_product(MathType::bf16, 8192, 8192, 8192), h100, 24));
  EXPECT_FALSE(needs_all_units(linear_product(MathType::bf16, 64, 64, 256), h100, 24));
  EXPECT_FALSE(needs_all_units(linear_product(MathType::fp8, 8192, 8192, 8192), h100, 24));
  EXPECT_FALSE(needs_all_units(linear_product(MathType::bf16, 8192, 8192, 8192), load_accelerator("a100-80gb-sxm"), 24));
}

}  // namespace
}  // namespace plimsoll
