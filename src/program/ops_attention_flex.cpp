/// torch.nn.attention.flex_attention over a block mask, compiled by Inductor (torch/_inductor/kernel/flex).
#include "program/op.hpp"
#include "program/ops.hpp"

namespace plimsoll::program {

namespace {

void launch_flex(Tape& tape, KernelKind kind, const Tensor& query, double products) {
  const double pairs = static_cast<double>(query.size(2)) * static_cast<double>(query.size(2)) / 2;
  tape.kernel({.kind = kind,
               .type = query.dtype(),
               .m = query.size(2),
               .n = query.size(2),
               .k = query.size(3),
               .batch = query.size(0) * query.size(1),
               .flops = 2 * products * pairs * static_cast<double>(query.size(3) * query.size(0) * query.size(1)),
               .bytes_read = 3 * query.bytes(),
               .bytes_written = query.bytes()});
}

/// The compiled backward: one kernel for the products of gradients and outputs, one for all three gradients.
void flex_backward(BackwardCall& b) {
  Tape& tape = b.tape;
  const Tensor query = b.take_saved(0), key = b.take_saved(1), value = b.take_saved(2);
  Tensor output = b.take_saved(3);
  const Tensor log_sum_exp = b.take_saved(4);
  const Tensor delta = tape.empty(log_sum_exp.sizes(), DType::fp32, Category::workspace);
  launch(tape, KernelKind::reduction, output.dtype(), 2 * output.bytes(), delta.bytes());
  output.reset();
  Tensor query_gradient = empty_like(query), value_gradient = empty_like(value), key_gradient = empty_like(key);
  launch_flex(tape, KernelKind::attention_backward, query, 5);
  b.give(0, std::move(query_gradient));
  b.give(1, std::move(key_gradient));
  b.give(2, std::move(value_gradient));
}

}  // namespace

Tensor flex_attention(const Tensor& query, const Tensor& key, const Tensor& value) {
  Op op("flex_attention", {&query, &key, &value});
  Tape& tape = op.tape();
  const Dims rows{query.size(0), query.size(1), query.size(2)};
  const Tensor log_sum_exp = tape.empty(rows, DType::fp32);
  Tensor output;
  {
    const Tensor maxima = tape.empty(rows, DType::fp32, Category::workspace);
    output = empty_like(query);
    launch_flex(tape, KernelKind::attention, query, 2);
  }
  op.save(query);
  op.save(key);
  op.save(value);
  op.save_output(output);
  op.save_output(log_sum_exp);
  return op.done(output, flex_backward);
}

}  // namespace plimsoll::program
