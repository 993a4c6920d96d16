#include "program/frameworks/torchtune/loss.hpp"

#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

Tensor count_targets(const Tensor& labels) {
  Tape& tape = labels.tape();
  const Tensor counted = elementwise(tape, {&labels}, DType::boolean);
  Tensor sum = tape.empty({}, DType::int64);
  const Tensor wide = elementwise(tape, {&counted}, DType::int64);  // sum() of bools casts first
  reduce(sum, wide, Reduction::Axis::all);
  return sum;
}

Tensor shifted_labels(const Tensor& labels) { return elementwise(labels.tape(), {&labels}, labels.dtype()); }

Tensor whole_loss(const Tensor& logits, const Tensor& labels) {
  const Tensor flat = view(logits, {-1, logits.size(-1)}), targets = view(labels, {-1});
  return cross_entropy(flat, targets);
}

namespace {

/// F.cross_entropy(logits.float(), labels, reduction="sum").
Tensor eager_loss(const Tensor& logits, const Tensor& labels) {
  const Tensor wide = to(logits, DType::fp32);
  return cross_entropy(wide, labels);
}

/// The same as Inductor compiles it: largest logit and logarithm of the sum per row are kept beside the logits.
Tensor compiled_loss(const Tensor& logits, const Tensor& labels) {
  CompiledGraph op("compiled_loss", {&logits});
  Tape& tape = op.tape();
  const Dims column{logits.size(0), 1};
  Tensor largest = tape.empty(column, DType::fp32), logarithm = tape.empty(column, DType::fp32);
  // Largest logits, then sums of exponentials: both passes over a row in one kernel.
  row_wise(tape, RowWise::Function::cross_entropy, logits.size(0), logits.size(-1), {operand(logits), operand(logits)},
           {operand(largest), operand(logarithm)});
  Tensor loss = tape.empty({}, DType::fp32);
  reduce(loss, logarithm, Reduction::Axis::all);
  op.save(logits);
  op.save(labels);
  op.save_output(largest);
  op.save_output(logarithm);
  return op.done(loss, [](BackwardCall& b) {
    const Tensor saved = b.take_saved(0);
    Tensor gradient = b.tape.empty(saved.sizes(), saved.dtype());
    pointwise(Pointwise::Form::fused, {&saved, &b.saved(2), &b.saved(3)}, {&gradient});
    b.give(0, std::move(gradient));
  });
}

}  // namespace

Tensor chunked_output_loss(const std::vector<Tensor>& logits, const Tensor& labels, bool compiled) {
  const Tensor targets = count_targets(labels);
  std::vector<Tensor> parts, rows;
  for (const Tensor& part : chunk(labels, static_cast<int>(logits.size()), 1)) parts.push_back(reshape(part, {-1}));
  for (const Tensor& part : logits) rows.push_back(view(part, {-1, part.size(-1)}));
  Tensor total;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Tensor loss = compiled ? compiled_loss(rows[i], parts[i]) : eager_loss(rows[i], parts[i]);
    total = total ? add_into(total, loss) : add_scalar(loss);
  }
  return divide(total, targets);
}

}  // namespace plimsoll::program
