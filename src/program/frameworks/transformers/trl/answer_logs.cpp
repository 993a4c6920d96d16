#include "program/frameworks/transformers/trl/answer_logs.hpp"

#include <vector>

#include "program/frameworks/transformers/trl/networks.hpp"
#include "program/op.hpp"
#include "program/ops/choosing.hpp"
#include "program/ops/functions.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/placing.hpp"
#include "program/ops/pointwise.hpp"
#include "program/ops/routing.hpp"

namespace plimsoll::program {

namespace {

Tensor is_missing(const Tensor& x) { return compare(x, {}, DType::boolean); }  // x.isnan()
Tensor flipped(const Tensor& truths) { return compare(truths, {}, DType::boolean); }
Tensor both(const Tensor& a, const Tensor& b) { return compare(a, b, DType::boolean); }

}  // namespace

Tensor AnswerLogs::gathered(const Tensor& numbers) const {
  const Tensor all = gathered_from_ranks(numbers, strategy_, tape_);
  return all.sizes().rank() == 0 ? unsqueeze(all, 0) : all;  // of one rank
}

void AnswerLogs::told(const Tensor&) const { tape_.read_back(); }

void AnswerLogs::told_mean(const Tensor& numbers) const { told(mean(numbers, std::vector<int>{}, false)); }

void AnswerLogs::told_least(const Tensor& numbers) const {
  {
    const Tensor missing = is_missing(numbers);
    told(reduced_to(missing, {0}, false, DType::boolean));
  }
  const Tensor present = masked_selected(numbers, flipped(is_missing(numbers)), numbers.elements());
  told(extreme_of_all(present));
}

Tensor AnswerLogs::mean_of_present(const Tensor& numbers) const {
  const Tensor count = sum(flipped(is_missing(numbers)), {}, false);
  return divide_in_place(sum(numbers, {}, false), count);
}

Tensor AnswerLogs::deviation_of_present(const Tensor& numbers) const {
  const Tensor centred = power(subtract(numbers, mean_of_present(numbers)));
  const Tensor variance = mean_of_present(centred);
  const Tensor count = sum(flipped(is_missing(numbers)), {}, false);
  const Tensor correction = divide(count, add_scalar(count));
  const Tensor several = compare(count, {}, DType::boolean), none = filled(tape_, correction.sizes(), DType::fp32);
  return square_root(multiply_in_place(variance, where(several, correction, none, DType::fp32)));
}

void AnswerLogs::lengths(std::int64_t answers) const {
  const auto own = [&](DType type) { return tape_.empty({answers}, type, Category::input); };
  const Tensor prompts = gathered(own(DType::int64)), written = gathered(own(DType::int64));
  told(add(sum(prompts, {}, false), sum(written, {}, false)));
  told_mean(to(written, DType::fp32));
  for (int i = 0; i < 2; ++i) told(extreme_of_all(to(written, DType::fp32)));
  const Tensor cut = gathered(own(DType::boolean));
  told_mean(to(cut, DType::fp32));
  nonzero(flipped(cut), 0);  // answers that ended by themselves: none
  const Tensor none = zeros(tape_, {1}, DType::fp32);
  told_mean(none);
  for (int i = 0; i < 2; ++i) told(extreme_of_all(none));
}

void AnswerLogs::tokens(const Tensor& answered) const { sum(gathered(sum(answered, {}, false)), {}, false); }

Tensor AnswerLogs::engine_ratio(const Tensor& said, const Tensor& by_engine, const Tensor& answered) const {
  const Tensor difference = nan_to_num(multiply(subtract(said, by_engine), answered));
  const Tensor ratio = exponential(sum(difference, {1}, true));
  const Tensor beyond = both(compare(ratio, {}, DType::boolean), compare(ratio, {}, DType::boolean));
  return masked_fill(ratio, beyond);
}

void AnswerLogs::engine_differences(const Tensor& said, const Tensor& by_engine, const Tensor& answered, const Tensor& ratio) const {
  const Tensor difference = absolute(subtract(said, by_engine));
  const Tensor counted = both(to(answered, DType::boolean), flipped(is_missing(difference)));
  const Tensor chosen = masked_selected(difference, counted, difference.elements());
  const Tensor likely = mean(chosen, std::vector<int>{}, false), largest = extreme_of_all(chosen);
  told_mean(gathered(likely));
  told(extreme_of_all(gathered(largest)));
  const Tensor least = extreme_of_all(ratio), average = mean(ratio, std::vector<int>{}, false), most = extreme_of_all(ratio);
  told_least(gathered(least));
  told(mean_of_present(gathered(average)));
  told_least(gathered(most));
}

Tensor AnswerLogs::weighted_rewards(const Tensor& rewards) const {
  const Tensor summed = sum(multiply_scalar(rewards), {1}, false);
  return assign_masked(summed, reduced_to(is_missing(rewards), {1}, false, DType::boolean));
}

void AnswerLogs::rewards(std::int64_t answers) const {
  const Tensor each = gathered(zeros(tape_, {answers, 1}, DType::fp32));
  const Tensor all = weighted_rewards(each);
  const Tensor average = repeated_in_place(unsqueeze(mean_of_present(all), 0), all.elements(), 0);
  const Tensor deviation = repeated_in_place(unsqueeze(deviation_of_present(all), 0), all.elements(), 0);
  const Tensor advantages = nan_to_num(divide(subtract(all, average), add_scalar(deviation)));
  const Tensor alike = both(compare(deviation, {}, DType::boolean), compare(absolute(subtract(deviation, average)), {}, DType::boolean));
  clone(advantages);
  const Tensor column = select(each, 1);
  told(mean_of_present(column));
  told(deviation_of_present(column));
  const Tensor again = weighted_rewards(each);
  told(mean_of_present(again));
  told(deviation_of_present(again));
  told_mean(to(alike, DType::fp32));
}

void AnswerLogs::divergence(const Tensor& said, const Tensor& before, const Tensor& answered) const {
  const Tensor each = subtract(said, before);
  const Tensor taken = gathered(sum(multiply(each, answered), {1}, false));
  subtract(taken, multiply_scalar(taken));
  mean_of_tokens(each, answered);
}

void AnswerLogs::mean_of_tokens(const Tensor& numbers, const Tensor& answered) const {
  const Tensor total = sum(multiply(numbers, answered), {}, false), count = to(sum(answered, {}, false), DType::fp32);
  const Tensor totals = clone(stack({total, count}, 0));
  if (strategy_.gpus > 1)
    tape_.collective({.kind = CollectiveKind::all_reduce, .group = Group::world, .bytes = totals.bytes(), .type = totals.dtype()}, tape_.stream);
  told(divide(select(totals, 0, 0), clamp_one_side(select(totals, 0, 1))));
}

void AnswerLogs::clipped(const Tensor& weight, const Tensor& advantages, const Tensor& answered) const {
  const auto beyond = [&] { return both(compare(weight, {}, DType::boolean), compare(advantages, {}, DType::boolean)); };
  const Tensor low = beyond(), high = beyond(), any = both(low, high);
  if (weight.sizes().rank() == 1) {
    for (const Tensor& which : {low, high}) {
      const Tensor share = gathered(to(which, DType::fp32));
      told(mean_of_present(share));
      told_least(share);
    }
    return told(mean_of_present(gathered(to(any, DType::fp32))));
  }
  for (const Tensor& which : {low, high, any}) mean_of_tokens(to(which, DType::fp32), answered);
  for (const Tensor& which : {low, high}) {
    const Tensor counted = multiply(to(which, DType::fp32), answered);
    told_least(gathered(divide(sum(counted, {1}, false), sum(answered, {1}, false))));
  }
}

}  // namespace plimsoll::program
