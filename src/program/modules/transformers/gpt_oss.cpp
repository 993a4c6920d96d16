#include "program/modules/transformers/gpt_oss.hpp"

#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/routing.hpp"

namespace plimsoll::program {

RotaryTables half_rotary_tables(Module& rotary, Tape& tape, const Tensor& position_ids, DType type) {
  const GradMode no_grad(tape, false);
  Tensor positions = position_ids;
  ModuleCall call(rotary, tape, {&positions});
  Tensor frequencies;
  {
    const Tensor wide = to(unsqueeze(positions, -1), DType::fp32);
    frequencies = multiply(wide, rotary.buffer("inv_freq"));
  }
  Tensor cosine = program::cosine(frequencies);
  cosine = multiply_scalar(cosine);
  Tensor sine = program::sine(frequencies);
  sine = multiply_scalar(sine);
  return {to(cosine, type), to(sine, type)};
}

Tensor rotate_by_half_tables(const Tensor& x, const RotaryTables& tables) {
  const Tensor cosine = unsqueeze(tables.cosine, 1), sine = unsqueeze(tables.sine, 1);
  const std::vector<Tensor> halves = chunk(x, 2, -1);
  Tensor first, second;
  {
    const Tensor kept = multiply(halves[0], cosine), turned = multiply(halves[1], sine);
    first = subtract(kept, turned);
  }
  {
    const Tensor kept = multiply(halves[1], cosine), turned = multiply(halves[0], sine);
    second = add(kept, turned);
  }
  return cat({first, second}, -1);
}

Tensor attend_with_sinks(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, const Tensor& sinks,
                         const AttentionCall& call) {
  const std::int64_t groups = query.size(1) / key.size(1);
  const Tensor keys = repeat_kv(key, groups), values = repeat_kv(value, groups);
  Tensor weights = matmul(query, transpose(keys, 2, 3));
  weights = multiply_scalar(weights);
  if (mask) weights = add(weights, mask);
  const Tensor column = expand(reshape(sinks, {1, -1, 1, 1}), {query.size(0), -1, query.size(2), -1});
  Tensor logits = cat({weights, column}, -1);
  {
    const Tensor largest = largest_of_rows(logits).values;  // max(dim=-1, keepdim=True)
    logits = subtract(logits, largest);
  }
  const Tensor probabilities = softmax(logits, logits.dtype());
  const Tensor scores = slice(probabilities, -1, 0, weights.size(-1));
  weights = to(dropout(scores, call.dropout), value.dtype());
  if (call.weights) *call.weights = weights;
  const Tensor output = matmul(weights, values);
  return contiguous(transpose(output, 1, 2));
}

Tensor clamped_swiglu(const Tensor& rows) {
  const auto [gated, up] = clamped_gate(rows);
  const Tensor shifted = add_scalar(up);
  return multiply(shifted, gated);
}

}  // namespace plimsoll::program
