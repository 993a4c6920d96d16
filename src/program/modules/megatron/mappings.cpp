#include "program/modules/megatron/mappings.hpp"

#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

Dims gathered_sizes(const MegatronRuntime& runtime, const Tensor& x) {
  Dims sizes = x.sizes();
  sizes[0] *= runtime.tp();
  return sizes;
}

Dims scattered_sizes(const MegatronRuntime& runtime, const Tensor& x) {
  Dims sizes = x.sizes();
  sizes[0] /= runtime.tp();
  return sizes;
}

Tensor reduce_scatter_rows(MegatronRuntime& runtime, const Tensor& x) {
  const Tensor whole = contiguous(x);
  Tensor part = runtime.tape().empty(scattered_sizes(runtime, x), x.dtype());
  runtime.collective(CollectiveKind::reduce_scatter, whole.bytes(), x.dtype());
  return part;
}

Tensor all_gather_rows(MegatronRuntime& runtime, const Tensor& x) {
  const Tensor part = contiguous(x);
  Tensor whole = runtime.tape().empty(gathered_sizes(runtime, x), x.dtype());
  runtime.collective(CollectiveKind::all_gather, whole.bytes(), x.dtype());
  return whole;
}

Tensor reduce_scatter_sequence(MegatronRuntime& runtime, const Tensor& x) {
  PythonFunction op("reduce_scatter", {&x});
  Tensor part;
  {
    const GradMode no_grad(op.tape(), false);
    part = reduce_scatter_rows(runtime, x);
  }
  return op.done(part, [&runtime](BackwardCall& b) { b.give(0, all_gather_rows(runtime, b.grad())); });
}

Awaited gather_sequence_async(MegatronRuntime& runtime, const Tensor& x) {
  const Tensor part = contiguous(x);
  Tensor whole = runtime.tape().empty(gathered_sizes(runtime, x), x.dtype());
  const auto done = runtime.collective_event(CollectiveKind::all_gather, whole.bytes(), x.dtype());
  return {std::move(whole), done};
}

Awaited reduce_scatter_sequence_async(MegatronRuntime& runtime, const Tensor& x) {
  const Tensor whole = contiguous(x);
  Tensor part = scattered_like(runtime, x);
  const auto done = runtime.collective_event(CollectiveKind::reduce_scatter, whole.bytes(), x.dtype());
  return {std::move(part), done};
}

Tensor scattered_like(MegatronRuntime& runtime, const Tensor& x) { return runtime.tape().empty(scattered_sizes(runtime, x), x.dtype()); }

Tensor scatter_sequence(MegatronRuntime& runtime, const Tensor& x) {
  PythonFunction op("scatter", {&x});
  Tensor part = x.detach();
  part.impl()->sizes = scattered_sizes(runtime, x);
  return op.done(part, [&runtime](BackwardCall& b) { b.give(0, all_gather_rows(runtime, b.grad())); });
}

Tensor gather_sequence(MegatronRuntime& runtime, const Tensor& x) {
  PythonFunction op("all_gather", {&x});
  Tensor whole;
  {
    const GradMode no_grad(op.tape(), false);
    whole = all_gather_rows(runtime, x);
  }
  return op.done(whole, [&runtime](BackwardCall& b) { b.give(0, reduce_scatter_rows(runtime, b.grad())); });
}

namespace {

/// All ranks' columns beside each other.
Tensor all_gather_columns(MegatronRuntime& runtime, const Tensor& x) {
  const GradMode no_grad(runtime.tape(), false);
  const Tensor stacked = all_gather_rows(runtime, x);
  return cat(chunk(stacked, static_cast<int>(runtime.tp()), 0), -1);
}

}  // namespace

Tensor gather_columns(MegatronRuntime& runtime, const Tensor& x) {
  if (runtime.tp() == 1) return x;
  PythonFunction op("all_gather", {&x});
  Tensor wide = all_gather_columns(runtime, x);
  return op.done(wide, [&runtime](BackwardCall& b) { b.give(0, contiguous(chunk(b.grad(), static_cast<int>(runtime.tp()), -1).front())); });
}

Tensor gather_last_dimension(MegatronRuntime& runtime, const Tensor& x) {
  PythonFunction op("all_gather", {&x});
  Tensor wide = all_gather_columns(runtime, x);
  return op.done(wide, [&runtime, sizes = x.sizes()](BackwardCall& b) {
    const Tensor rows = reshaped(contiguous(b.grad()), {sizes[0] * sizes[1], b.grad().size(-1)});
    const Tensor stacked = cat(chunk(rows, static_cast<int>(runtime.tp()), 1), 0);
    b.give(0, reshaped(reduce_scatter_rows(runtime, stacked), sizes));
    b.drop_gradients();
  });
}

Tensor reduce_over_tensor_parallel(MegatronRuntime& runtime, const Tensor& x) {
  if (runtime.tp() == 1) return x;
  PythonFunction op("all_reduce", {&x});
  runtime.collective(CollectiveKind::all_reduce, x.bytes(), x.dtype());
  Tensor same = x.detach();
  return op.done(same, [](BackwardCall& b) { b.give(0, b.grad()); });
}

}  // namespace plimsoll::program
