// torch.compile under DDP: where DDPOptimizer (torch/_dynamo/backends/distributed.py) cuts the traced graph.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "devices.hpp"
#include "program/inductor/frame.hpp"

namespace plimsoll::program::inductor {
namespace {

constexpr std::int64_t kMiB = 1LL << 20;

using Uses = std::vector<std::vector<Tensor>>;

class CompiledParts : public ::testing::Test {
 protected:
  /// The part that each of the operators is in.
  static std::vector<int> parts_of(const Uses& uses, const BucketLimits& limits) {
    const std::set<std::size_t> cuts = bucket_cuts(uses, limits);
    std::vector<int> parts;
    int part = 0;
    for (std::size_t i = 0; i < uses.size(); ++i) parts.push_back(part += cuts.contains(i) ? 1 : 0);
    return parts;
  }
  /// A matrix of so many MiB.
  Tensor weight(std::int64_t mebibytes, bool trained = true) {
    return tape.parameter({mebibytes, kMiB / size_of(DType::bf16)}, DType::bf16, trained);
  }
  Tape tape{h100()};
  BucketLimits limits{.first = 1 * kMiB, .rest = 25 * kMiB};
};

// Counted from the back: the last operation alone fills the first bucket (1 MiB); 10 + 10 + 5 reach 25 MiB with the operation that adds
// the last 5, and what stands before it begins the next part.
TEST_F(CompiledParts, AreFilledFromTheBack) {
  const Uses uses{{weight(3)}, {weight(5)}, {weight(10)}, {weight(10)}, {weight(2)}};
  EXPECT_EQ(parts_of(uses, limits), (std::vector<int>{0, 1, 1, 1, 2}));
}

// A bucket is looked at before an operation is put into it: one that is full to the byte takes no more, one that lacks a MiB takes any.
TEST_F(CompiledParts, MayBeLargerThanTheirLimit) {
  EXPECT_EQ(parts_of({{weight(1)}, {weight(25)}, {weight(1)}}, limits), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(parts_of({{weight(1)}, {weight(100)}, {weight(24)}, {weight(1)}}, limits), (std::vector<int>{0, 1, 1, 2}));
}

// Frozen parameters are not reduced, and a parameter that two operations use counts twice.
TEST_F(CompiledParts, CountWhatIsTrainedAsOftenAsItIsUsed) {
  EXPECT_EQ(parts_of({{weight(30)}, {weight(30, false)}, {weight(1)}}, limits), (std::vector<int>{0, 0, 1}));
  const Tensor tied = weight(13);
  EXPECT_EQ(parts_of({{weight(1)}, {tied}, {tied}, {weight(1)}}, limits), (std::vector<int>{0, 1, 1, 2}));
}

// In front of the first parameter that is trained nothing is a part of its own.
TEST_F(CompiledParts, BeginWithATrainedParameter) {
  EXPECT_EQ(parts_of({{weight(5, false)}, {weight(25)}, {weight(1)}}, limits), (std::vector<int>{0, 0, 1}));
}

// What fits into one bucket is compiled whole.
TEST_F(CompiledParts, OfASmallGraphAreOne) { EXPECT_EQ(parts_of({{weight(40)}, {Tensor()}}, limits), (std::vector<int>{0, 0})); }

}  // namespace
}  // namespace plimsoll::program::inductor
