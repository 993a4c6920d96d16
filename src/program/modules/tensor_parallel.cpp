#include "program/modules/tensor_parallel.hpp"

#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

namespace {

void collective(Tape& tape, CollectiveKind kind, const Tensor& whole) {
  tape.collective({.kind = kind, .group = Group::tensor, .bytes = whole.bytes(), .type = whole.dtype()}, kComputeStream);
}

/// _AllGatherShard.forward: gathered over dimension 0, then put together along dimension 1.
Tensor gathered(Tape& tape, std::int64_t ranks, const Tensor& x_in) {
  const Tensor x = contiguous(x_in);
  Dims sizes = x.sizes();
  sizes[0] *= ranks;
  const Tensor flat = tape.empty(sizes, x.dtype(), Category::communication_buffer);
  collective(tape, CollectiveKind::all_gather, flat);
  Dims whole = x.sizes();
  whole[1] *= ranks;
  Tensor result = tape.empty(whole, x.dtype());
  in_place(result, {&flat});
  return result;
}

/// _ReduceScatterShard.forward: dimension 1 to the front, scattered there, and back; the result keeps that memory order.
Tensor scattered(Tape& tape, std::int64_t ranks, const Tensor& x) {
  Dims order;
  for (int i = 0; i < x.rank(); ++i) order.push_back(i < 2 ? 1 - i : i);
  const Tensor front = contiguous(permute(x, order));
  Dims sizes = front.sizes();
  sizes[0] /= ranks;
  const Tensor result = tape.empty(sizes, x.dtype());
  collective(tape, CollectiveKind::reduce_scatter, front);
  Dims back = sizes, strides = result.strides();
  std::swap(back[0], back[1]);
  std::swap(strides[0], strides[1]);
  Tensor view = tape.view(result, back, strides);
  view.impl()->base.reset();
  return view;
}

/// all_gather_single over dimension 1: a batch of one is a view of what was gathered, else the parts are put together.
Tensor functional_gathered(Tape& tape, std::int64_t ranks, const Tensor& x) {
  if (x.size(0) != 1) return gathered(tape, ranks, x);
  const Tensor part = contiguous(x);
  Dims whole = x.sizes();
  whole[1] *= ranks;
  const Tensor flat = tape.empty(whole, x.dtype(), Category::communication_buffer);
  collective(tape, CollectiveKind::all_gather, flat);
  return flat;
}

/// reduce_scatter_single over dimension 1: its pieces one behind the other are scattered.
Tensor functional_scattered(Tape& tape, std::int64_t ranks, const Tensor& x, Tensor* sent) {
  Dims sizes = x.sizes();
  sizes[0] *= ranks;
  sizes[1] /= ranks;
  const Tensor pieces = tape.empty(sizes, x.dtype(), Category::communication_buffer);
  in_place(pieces, {&x});
  sizes[0] = x.size(0);
  const Tensor result = tape.empty(sizes, x.dtype());
  collective(tape, CollectiveKind::reduce_scatter, pieces);
  if (sent) *sent = pieces;
  return result;
}

Tensor gather(const TensorParallel& group, Tape& tape, const Tensor& x) {
  return group.functional ? functional_gathered(tape, group.degree, x) : gathered(tape, group.degree, x);
}
Tensor scatter(const TensorParallel& group, Tape& tape, const Tensor& x, Tensor* sent = nullptr) {
  return group.functional ? functional_scattered(tape, group.degree, x, sent) : scattered(tape, group.degree, x);
}

/// spmd_types' _replicate_to_varying copies what is not contiguous, DTensor's _replicate_to_shard always.
Tensor sliced(const TensorParallel& group, const Tensor& x) {
  const Tensor part = slice(x, 1, 0, x.size(1) / group.degree);
  return group.functional ? clone(part) : contiguous(part);
}

/// spmd_types' _varying_to_partial writes into zeros; DTensor's _to_partial_tensor adds to them, out of place, at 64-bit indices.
Tensor padded_with_zeros(const TensorParallel& group, Tape& tape, const Tensor& x) {
  Dims whole = x.sizes();
  whole[1] *= group.degree;
  Tensor base = zeros(tape, whole, x.dtype());
  if (!group.functional) {
    in_place(base, {&x});
    return base;
  }
  const Tensor offset = tape.empty({}, DType::int64);
  Tensor indices;
  {
    const Tensor own = arange(tape, x.size(1));
    indices = elementwise(tape, {&own, &offset}, DType::int64);
  }
  const Tensor sum = clone(base);
  in_place(sum, {&x, &indices});
  return sum;
}

Tensor all_reduced(Tape& tape, const Tensor& x) {
  Tensor result = empty_like(x);
  in_place(result, {&x});
  collective(tape, CollectiveKind::all_reduce, result);
  return result;
}

}  // namespace

Tensor gather_sequence(const TensorParallel& group, const Tensor& x) {
  PythonFunction op("all_gather", {&x});
  Tensor y;
  {
    const GradMode no_grad(op.tape(), false);
    y = gather(group, op.tape(), x);
  }
  return op.done(y, [group](BackwardCall& b) { b.give(0, scatter(group, b.tape, b.grad())); });
}

Tensor scatter_sequence(const TensorParallel& group, const Tensor& x, Tensor* pieces) {
  PythonFunction op("reduce_scatter", {&x});
  Tensor y;
  {
    const GradMode no_grad(op.tape(), false);
    const auto run = [&]() -> std::vector<Tensor> { return {scatter(group, op.tape(), x, pieces)}; };
    y = group.functional ? selected(op.tape(), "reduce_scatter", run).front() : run().front();
  }
  return op.done(y, [group](BackwardCall& b) { b.give(0, gather(group, b.tape, b.grad())); });
}

Tensor reduce_partial(const TensorParallel&, const Tensor& x) {
  PythonFunction op("all_reduce", {&x});
  Tensor y = all_reduced(op.tape(), x);
  return op.done(y, [](BackwardCall& b) { b.give(0, b.grad()); });
}

Tensor slice_sequence(const TensorParallel& group, const Tensor& x) {
  PythonFunction op("slice_sequence", {&x});
  Tensor y;
  {
    const GradMode no_grad(op.tape(), false);
    y = sliced(group, x);
    y.impl()->base.reset();
  }
  return op.done(y, [group](BackwardCall& b) { b.give(0, gather(group, b.tape, b.grad())); });
}

Tensor pad_sequence(const TensorParallel& group, const Tensor& x) {
  PythonFunction op("pad_sequence", {&x});
  Tensor y;
  {
    const GradMode no_grad(op.tape(), false);
    y = padded_with_zeros(group, op.tape(), x);
  }
  return op.done(y, [group](BackwardCall& b) { b.give(0, sliced(group, b.grad())); });
}

Tensor replicate_input(const TensorParallel&, const Tensor& x) {
  PythonFunction op("replicate", {&x});
  Tensor y = op.tape().view(x, x.sizes(), x.strides());
  y.impl()->base.reset();
  return op.done(y, [](BackwardCall& b) { b.give(0, all_reduced(b.tape, b.grad())); });
}

}  // namespace plimsoll::program
