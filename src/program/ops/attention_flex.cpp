/// torch.nn.attention.flex_attention over a block mask, compiled by Inductor (torch/_inductor/kernel/flex).
#include <utility>
#include <vector>

#include "program/op.hpp"
#include "program/ops/attention_kernels.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

void launch_flex(Tape& tape, Attention::Part part, const Tensor& query, const Tensor& key, const Tensor& value) {
  Attention attention = attention_over(AttentionLibrary::flex, query, key, value);
  attention.part = part;
  attention.causal = true;
  tape.kernel({attention});
}

}  // namespace

FlexOutputs flex_attention_forward(const Tensor& query, const Tensor& key, const Tensor& value) {
  Tape& tape = query.tape();
  const Dims rows{query.size(0), query.size(1), query.size(2)}, sizes{rows[0], rows[1], rows[2], value.size(3)};
  FlexOutputs all;
  all.log_sum_exp = tape.empty(rows, DType::fp32);
  const Tensor maxima = tape.empty(rows, DType::fp32, Category::workspace);
  all.output = tape.empty(sizes, query.dtype());
  all.output.impl()->strides = elementwise_strides(sizes, {&query});
  launch_flex(tape, Attention::Part::forward, query, key, value);
  return all;
}

FlashGradients flex_attention_gradients(const Tensor& query, const Tensor& key, const Tensor& value) {
  FlashGradients all;
  all.query = empty_like(query), all.value = empty_like(value), all.key = empty_like(key);
  launch_flex(query.tape(), Attention::Part::backward, query, key, value);
  return all;
}

namespace {

/// The compiled backward: one kernel for the products of gradients and outputs, one for all three gradients.
void flex_backward(BackwardCall& b) {
  Tape& tape = b.tape;
  const Tensor query = b.take_saved(0), key = b.take_saved(1), value = b.take_saved(2);
  Tensor output = b.take_saved(3);
  const Tensor log_sum_exp = b.take_saved(4);
  const Tensor delta = tape.empty(log_sum_exp.sizes(), DType::fp32, Category::workspace);
  launch_flex(tape, Attention::Part::delta, query, key, value);
  output.reset();
  FlashGradients gradients = flex_attention_gradients(query, key, value);
  b.give(0, std::move(gradients.query));
  b.give(1, std::move(gradients.key));
  b.give(2, std::move(gradients.value));
}

}  // namespace

namespace {

/// The compiled forward: the output in the order of the query's dimensions, and what it hands to its backward, its arguments among it. A
/// selective checkpoint keeps all of these, for they are outputs of one operator (inductor_compiled_code).
std::vector<Tensor> flex_forward(const Tensor& query, const Tensor& key, const Tensor& value) {
  FlexOutputs all = flex_attention_forward(query, key, value);
  return {std::move(all.output), query, key, value, std::move(all.log_sum_exp)};
}

}  // namespace

Tensor flex_attention(const Tensor& query, const Tensor& key, const Tensor& value) {
  Op op("flex_attention", {&query, &key, &value});
  std::vector<Tensor> outputs = selected(op.tape(), "flex_attention", [&] { return flex_forward(query, key, value); });
  for (std::size_t argument = 1; argument <= 3; ++argument) op.save(outputs[argument]);
  op.save_output(outputs.front());
  op.save_output(outputs.back());
  return op.done(outputs.front(), flex_backward);
}

}  // namespace plimsoll::program
