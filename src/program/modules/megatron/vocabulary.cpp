#include "program/modules/megatron/vocabulary.hpp"

#include <cstdint>

#include "program/modules/megatron/ops.hpp"
#include "program/op.hpp"
#include "program/ops/choosing.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

/// Which targets lie outside this rank's part of the vocabulary, and the others counted from its start.
struct LocalTarget {
  Tensor outside, index;
};

LocalTarget local_target(const Tensor& target) {
  Tape& tape = target.tape();
  LocalTarget local;
  {
    const Tensor below = elementwise(tape, {&target}, DType::boolean), above = elementwise(tape, {&target}, DType::boolean);
    local.outside = elementwise(tape, {&below, &above}, DType::boolean);
  }
  const Tensor copy = clone(target);
  local.index = elementwise(tape, {&copy}, DType::int64);
  in_place(local.index, {&local.outside});
  return local;
}

/// The loss of probabilities that are made in place in `scores`, and what the backward needs.
Tensor cross_entropy_in_place(MegatronRuntime& runtime, const Tensor& scores, const Tensor& target, LocalTarget& local) {
  Tape& tape = runtime.tape();
  const Dims rows = target.sizes();
  Tensor most = tape.empty(rows, DType::fp32);
  {
    const Tensor where = tape.empty(rows, DType::int64);
    // Beyond 32-bit offsets the kernel runs in pieces, with a value and an index of each row between them (Reduce.cuh).
    if (scores.bytes() > INT32_MAX) tape.scratch(16 * target.elements());
    reduce(tape, Reduction::Axis::inner, most.elements(), {operand(scores)}, {operand(most), operand(where)});
  }
  runtime.collective(CollectiveKind::all_reduce, most.bytes(), DType::fp32);
  in_place(scores, {&scores, &most});
  local = local_target(target);
  Tensor predicted, sums;
  {
    const Tensor range = arange(tape, target.elements());
    {
      const Tensor picked = tape.empty({target.elements()}, DType::fp32);
      gather(tape, Gather::Function::index, picked.elements(), {operand(range), operand(local.index), operand(picked)}, {operand(picked)});
      predicted = clone(picked);
    }
    in_place(predicted, {&local.outside});
    in_place(scores, {&scores});
    std::vector<bool> last(static_cast<std::size_t>(scores.rank()), false);
    last.back() = true;
    sums = reduce(scores, last, false, DType::fp32);
  }
  runtime.collective(CollectiveKind::all_reduce, predicted.bytes(), DType::fp32);
  runtime.collective(CollectiveKind::all_reduce, sums.bytes(), DType::fp32);
  const Tensor logarithm = elementwise(tape, {&sums}, DType::fp32);
  Tensor loss = elementwise(tape, {&logarithm, &sums}, DType::fp32);
  in_place(scores, {&scores, &sums});
  return loss;
}

/// The gradient of the logits, in place of the probabilities.
void cross_entropy_gradient(Tape& tape, const Tensor& probabilities, const Tensor& outside, const Tensor& gradient) {
  const std::int64_t rows = outside.elements();
  const Tensor range = arange(tape, rows);
  Tensor update;
  {
    const Tensor wide = elementwise(tape, {&outside}, DType::fp32);
    update = elementwise(tape, {&wide}, DType::fp32);
  }
  {
    const Tensor picked = tape.empty({rows}, DType::fp32);
    gather(tape, Gather::Function::index, rows, {operand(range), operand(picked)}, {operand(picked)});
    in_place(picked, {&picked, &update});
    gather(tape, Gather::Function::scatter, rows, {operand(range), operand(picked)}, {operand(picked)});
  }
  in_place(probabilities, {&probabilities, &gradient});
}

}  // namespace

Tensor vocab_parallel_cross_entropy(MegatronRuntime& runtime, const Tensor& logits, const Tensor& target) {
  PythonFunction op("vocab_parallel_cross_entropy", {&logits});
  LocalTarget local;
  Tensor loss, probabilities;
  {
    const GradMode no_grad(op.tape(), false);
    probabilities = to(logits, DType::fp32).detach();
    loss = cross_entropy_in_place(runtime, probabilities, target, local);
  }
  op.save_output(probabilities);
  op.save_output(local.outside);
  op.save_output(local.index);
  return op.done(loss, [](BackwardCall& b) {
    const Tensor softmax = b.saved(0);
    cross_entropy_gradient(b.tape, softmax, b.saved(1), b.grad());
    b.give(0, softmax);
    b.drop_gradients();
  });
}

Tensor fused_vocab_parallel_cross_entropy(MegatronRuntime& runtime, const Tensor& logits, const Tensor& target) {
  PythonFunction op("fused_vocab_parallel_cross_entropy", {&logits});
  Tape& tape = op.tape();
  const std::int64_t rows = target.elements();
  // calculate_logits_max widens them; logits that are fp32 already are overwritten where they lie.
  const Tensor scores = logits.dtype() == DType::fp32 ? logits.detach() : tape.empty(logits.sizes(), DType::fp32);
  Tensor outside, index, loss;
  {
    const Tensor most = elementwise(tape, {&target}, DType::fp32);
    runtime.collective(CollectiveKind::all_reduce, most.bytes(), DType::fp32);
    outside = tape.empty(target.sizes(), DType::boolean);
    index = tape.empty({rows}, DType::int64);
    const Tensor predicted_and_sums = tape.empty({2 * rows}, DType::fp32);
    {  // the exponentials, copied back over the scores
      const Tensor exponentials = tape.empty(logits.sizes(), DType::fp32);
      pointwise(Pointwise::Form::fused, {&scores, &most}, {&exponentials});
      in_place(scores, {&exponentials});
    }
    runtime.collective(CollectiveKind::all_reduce, predicted_and_sums.bytes(), DType::fp32);
    loss = tape.empty(target.sizes(), DType::fp32);
    pointwise(Pointwise::Form::fused, {&scores, &predicted_and_sums}, {&scores, &loss});
  }
  op.save_output(scores);
  op.save_output(outside);
  op.save_output(index);
  return op.done(loss, [](BackwardCall& b) {
    const Tensor softmax = b.saved(0);
    // The kernel's own result is bf16 whatever the logits are; the engine casts it.
    const Tensor updated = b.tape.empty(softmax.sizes(), DType::fp32);
    pointwise(Pointwise::Form::fused, {&softmax}, {&updated});
    const Tensor gradient = b.tape.empty(softmax.sizes(), DType::bf16);
    pointwise(Pointwise::Form::fused, {&updated, &b.grad()}, {&gradient});
    b.give(0, gradient);
    b.drop_gradients();
  });
}

Tensor vocab_parallel_embedding(MegatronRuntime& runtime, const Tensor& weight, const Tensor& indices) {
  if (runtime.tp() == 1) return embedding(weight, indices);
  const LocalTarget local = local_target(indices);
  const Tensor rows = embedding(weight, local.index);
  return masked_fill_into(rows, local.outside);
}

Tensor te_cross_entropy(MegatronRuntime& runtime, const Tensor& logits, const Tensor& target) {
  PythonFunction op("te_cross_entropy", {&logits});
  op.save(logits);
  Tape& tape = op.tape();
  Tensor loss = zeros(tape, target.sizes(), DType::fp32);
  {
    const Tensor statistics = zeros(tape, {3 * target.elements()}, DType::fp32);
    const Tensor all = runtime.tp() > 1 ? zeros(tape, {3 * target.elements() * runtime.tp()}, DType::fp32) : Tensor();
    const std::int64_t rows = target.elements(), columns = logits.size(-1);
    row_wise(RowWise::Function::cross_entropy, rows, columns, {&logits, &target}, {&statistics});
    if (all) runtime.collective(CollectiveKind::all_gather, all.bytes(), DType::fp32);
    row_wise(RowWise::Function::cross_entropy, rows, columns, {&logits, &statistics}, {&logits, &loss});
  }
  return op.done(loss, [](BackwardCall& b) {
    const Tensor gradient = b.saved(0).detach();
    in_place(gradient, {&gradient});
    b.give(0, gradient);
    b.drop_gradients();
  });
}

}  // namespace plimsoll::program
