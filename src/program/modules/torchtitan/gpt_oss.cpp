#include "program/modules/torchtitan/gpt_oss.hpp"

#include <utility>

#include "program/modules/transformers/gpt_oss.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// torch.addcmul(x, x, y).
Tensor add_product(const Tensor& x, const Tensor& y) {
  Op op("addcmul", {&x, &x, &y});
  op.save(x);
  op.save(y);
  Tensor result = op.elementwise({&x, &y}, x.dtype());
  return op.done(result, [](BackwardCall& b) {
    const Tensor factor = b.saved(0), other = b.saved(1);
    const auto times = [&](const Tensor& saved) {  // grad * (saved * value)
      const Tensor scaled = elementwise(b.tape, {&saved}, saved.dtype());
      return elementwise(b.tape, {&b.grad(), &scaled}, b.grad().dtype());
    };
    b.give(0, b.grad());
    b.give(1, times(other));
    b.give(2, times(factor));
  });
}

/// swiglu: neighbouring columns are gate and up, both clamped; one more up is added.
Tensor clamped_gates(const Tensor& rows) {
  const auto [gated, up] = clamped_gate(rows);
  return add_product(gated, up);
}

/// The bias of each row's expert: one row of zeros more, for rows of nobody.
Tensor bias_of_rows(const Tensor& bias, const Tensor& counts, std::int64_t rows) {
  Tape& tape = bias.tape();
  const Tensor none = zeros(tape, {1, bias.size(1)}, bias.dtype());
  const Tensor padded = cat({bias, none}, 0);
  Tensor experts;
  {
    const Tensor ends = cumulative_sum(counts, DType::int64);
    experts = tape.empty({rows}, DType::int64);
    gather(Gather::Function::index, rows, {&ends}, {&experts});
  }
  return index_select(padded, experts);
}

/// Counts and, behind them, the rows of nobody.
Tensor with_slack(const Tensor& counts, const Tensor& offsets) {
  Tensor slack;
  {
    const Tensor last = view(slice(offsets, 0, offsets.size(0) - 1, offsets.size(0)), {1});
    const Tensor rest = elementwise(counts.tape(), {&last}, DType::int32);
    slack = to(rest, counts.dtype());
  }
  return cat({counts, slack}, 0);
}

}  // namespace

Tensor run_gpt_oss_experts(Module& grouped, const Tensor& rows, const Tensor& counts) {
  const Tensor offsets = cumulative_sum(counts, DType::int32);
  const Tensor padded_counts = with_slack(counts, offsets);
  Tensor wide = grouped_product(rows, grouped.tensor("mlp1_weight_EGD"), offsets);
  const Tensor first_bias = bias_of_rows(grouped.tensor("mlp1_bias_EG"), padded_counts, rows.size(0));
  wide = add(wide, first_bias);
  const Tensor gated = clamped_gates(wide);
  const Tensor out = grouped_product(gated, grouped.tensor("mlp2_weight_EDF"), offsets);
  const Tensor second_bias = bias_of_rows(grouped.tensor("mlp2_bias_ED"), padded_counts, rows.size(0));
  return add(out, second_bias);
}

}  // namespace plimsoll::program
