// Passes that are called say what passes say that run.
#include "program/routine.hpp"

#include <gtest/gtest.h>

#include <deque>

#include "devices.hpp"
#include "program/ops/ops.hpp"
#include "programs.hpp"

namespace plimsoll::program {
namespace {

constexpr std::int64_t kRows = 8, kColumns = 64;

/// A stage that adds its weight's gradient to a sum, with a cache that its first pass fills; three micro-batches are under way at a time.
class Stage {
 public:
  explicit Stage(bool calls) : calls_(calls), weight_(tape_.parameter({kColumns, kColumns}, DType::fp32, true)) {}

  /// `longer`: this micro-batch has more rows than the others.
  StepProgram run(std::int64_t micro_batches, std::int64_t longer = -1) {
    constexpr std::size_t kUnderWay = 3;
    tape_.record_into(Tape::Part::first_step);
    std::deque<std::pair<Tensor, Tensor>> under_way;
    std::int64_t back = 0;
    for (std::int64_t i = 0; i < micro_batches + static_cast<std::int64_t>(kUnderWay); ++i) {
      if (i < micro_batches) {
        const Tensor input = tape_.empty({i == longer ? 2 * kRows : kRows, kColumns}, DType::fp32);
        input.set_requires_grad(true);
        under_way.emplace_back(input, forward(input, i, micro_batches));
      }
      if (i < static_cast<std::int64_t>(kUnderWay)) continue;
      auto [input, output] = std::move(under_way.front());
      under_way.pop_front();
      backward(input, output, back++);
      EXPECT_TRUE(input.grad());
    }
    return tape_.take();
  }
  int called = 0;  ///< passes forward

 private:
  Tensor pass(const Tensor& input) {
    if (!cache_) cache_ = tape_.empty({kColumns}, DType::fp32);
    const Tensor hidden = relu(linear(input, weight_));
    return sum(multiply(hidden, hidden), {}, false);
  }

  Tensor forward(const Tensor& input, std::int64_t number, std::int64_t all) {
    if (calls_ && number > 0 && number + 1 < all && routine_.knows_forward()) {
      ++called;
      return routine_.forward(input).front();
    }
    if (calls_ && number > 0) routine_.begin_forward(input);
    Tensor output = pass(input);
    const std::vector<Tensor> made(1, output);
    if (calls_ && number > 0) routine_.end_forward(input, made);
    return output;
  }

  void backward(const Tensor& input, Tensor& output, std::int64_t number) {
    if (const NodeRef call = Routine::call_of(output)) return routine_.backward(call, input, output);
    const bool shows = calls_ && number == 1 && routine_.knows_forward();
    if (shows) routine_.begin_backward(input, output);
    output = multiply_scalar(output);
    tape_.backward(output);
    weight_.grad().reset();
    if (shows) routine_.end_backward(input, output);
  }

  bool calls_;
  Tape tape_{h100()};
  Tensor weight_, cache_;
  Routine routine_{tape_};
};

// The first pass makes the cache, the second is the one that is known, the last runs: six of nine are called. Tensors are named in the order in
// which they are made, so called passes give the same names as well.
TEST(Routine, SaysWhatTheStageSays) {
  Stage stage(true);
  const StepProgram run = Stage(false).run(9), called = stage.run(9);
  EXPECT_EQ(stage.called, 6);
  EXPECT_EQ(difference(called, run), "");
}

// Of nine micro-batches the last, which runs, has other shapes than those that were called.
TEST(Routine, IsHeldAgainstThePassesThatRun) {
  EXPECT_THROW(Stage(true).run(9, 8), Routine::Differs);
  EXPECT_NO_THROW(Stage(false).run(9, 8));
}

}  // namespace
}  // namespace plimsoll::program
