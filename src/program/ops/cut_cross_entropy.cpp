#include "program/ops/cut_cross_entropy.hpp"

#include "plimsoll/error.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/routing.hpp"
#include "program/python_function.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

constexpr std::int64_t kRowsPerLock = 128, kColumnsPerLock = 64;

/// What the backward multiplies, in products of the logits' size. It computes the logits once more, and of their gradient only the blocks
/// whose softmax is not below the filter's 2^-12 reach the gradients of either argument. From the paper's table 1 (Gemma 2 2B, 8,192 tokens
/// of 256,000 classes on A100): 46 ms for the loss, 100 ms for both gradients.
constexpr double kProductsOfLogits = 1, kProductsOfGradient = 0.6;

/// _build_flat_valids of shifted targets: the places of labels that count, for which the host waits.
Tensor flat_valids(const Tensor& labels) {
  Tape& tape = labels.tape();
  Tensor places;
  {
    Tensor found;
    {
      const Tensor targets = slice(labels, -1, 1, labels.size(-1));
      const Tensor counts = elementwise(tape, {&targets}, DType::boolean);
      found = nonzero(counts, counts.elements());
    }
    places = elementwise(tape, {&found}, DType::int32);
  }
  const Tensor rows = select(places, 0);
  in_place(rows, {&rows});
  return reduce(places, {true, false}, false, DType::int64);
}

double logits_flops(const Tensor& lse, const Tensor& weight) {
  return 2.0 * static_cast<double>(lse.size(0)) * static_cast<double>(weight.elements());
}

/// sort_logit_avg, compiled: torch.argsort, then 32 bits.
Tensor vocabulary_order(const Tensor& averages) {
  const Tensor order = sort_integers(averages).order;
  return elementwise(averages.tape(), {&order}, DType::int32);
}

/// cce_backward_kernel: gradients where they are needed, and the locks under which blocks add to them.
void backward(BackwardCall& b) {
  const Tensor &hidden = b.saved(0), &weight = b.saved(1), &lse = b.saved(2), &averages = b.saved(5);
  const Tensor order = vocabulary_order(averages);
  const std::int64_t column_locks = ceil_div(weight.size(1), kColumnsPerLock);
  const auto gradient_of = [&](std::size_t input, const Tensor& x) { return b.needs(input) ? zeros(b.tape, x.sizes(), x.dtype()) : Tensor(); };
  const auto locks_of = [&](const Tensor& gradient, std::int64_t rows) {
    return gradient ? zeros(b.tape, {ceil_div(rows, kRowsPerLock), column_locks}, DType::int32) : Tensor();
  };
  Tensor of_hidden = gradient_of(0, hidden), of_weight = gradient_of(1, weight);
  const Tensor row_locks = locks_of(of_hidden, lse.size(0)), class_locks = locks_of(of_weight, weight.size(0));
  double products = kProductsOfLogits;
  for (const Tensor* gradient : {&of_hidden, &of_weight})
    if (*gradient) products += kProductsOfGradient;
  const double flops = products * logits_flops(lse, weight);
  if (of_hidden && of_weight)
    multiply(weight.dtype(), flops, {&hidden, &weight, &lse, &order}, {&of_hidden, &of_weight});
  else
    multiply(weight.dtype(), flops, {&hidden, &weight, &lse, &order}, {of_hidden ? &of_hidden : &of_weight});
  if (of_hidden) b.give(0, std::move(of_hidden));
  if (of_weight) b.give(1, std::move(of_weight));
}

}  // namespace

Tensor cut_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& labels, bool softcap) {
  if (size_of(hidden.dtype()) != 2 || size_of(weight.dtype()) != 2)
    fail("cut cross entropy takes hidden states and a head of 16 bits: these are " + std::string(name_of(hidden.dtype())) + " and " +
             std::string(name_of(weight.dtype())),
         "loss", "param_dtype bf16, or ce");
  Tape& tape = hidden.tape();
  const Tensor packed = contiguous(hidden);
  const Tensor valids = flat_valids(labels);
  const Tensor rows = view(packed, {-1, packed.size(-1)});
  const Tensor targets = view(labels, {-1});
  PythonFunction op("LinearCrossEntropy", {&rows, &weight});
  const std::int64_t counted = valids.size(0), classes = weight.size(0);
  Tensor loss, lse, averages;
  {
    const GradMode no_grad(tape, false);
    lse = filled(tape, {counted}, DType::fp32);
    {
      const Tensor locks = filled(tape, {ceil_div(counted, kRowsPerLock)}, DType::int32);
      if (op.differentiable()) averages = filled(tape, {classes}, DType::fp32);
      multiply(weight.dtype(), logits_flops(lse, weight), {&rows, &weight, &valids}, {&lse});
    }
    Tensor losses = zeros(tape, {counted}, DType::fp32);
    gather(Gather::Function::index, rows.elements(), {&rows, &weight, &targets, &valids}, {&losses});  // indexed_neg_dot_forward_kernel
    if (softcap) losses = elementwise(tape, {&losses}, DType::fp32);
    in_place(losses, {&losses, &lse});
    loss = reduce(losses, {true}, false, DType::fp32);
  }
  op.save(rows);
  op.save(weight);
  op.save(lse);
  op.save(targets);
  op.save(valids);
  op.save(averages);
  return op.done(loss, backward);
}

}  // namespace plimsoll::program
