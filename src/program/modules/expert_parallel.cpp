#include "program/modules/expert_parallel.hpp"

#include <algorithm>
#include <vector>

#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

namespace {

/// Of the rows that a rank sends and gets, the more.
void exchange(Tape& tape, const Tensor& sent, const Dims& got) {
  const std::int64_t bytes = std::max(sent.elements(), got.product()) * size_of(sent.dtype());
  tape.collective({.kind = CollectiveKind::all_to_all, .group = Group::expert, .bytes = bytes, .type = sent.dtype()}, kComputeStream);
}

/// spmd_types' _AllToAllUneven: a buffer per rank, then put together.
Tensor exchanged_in_parts(Tape& tape, std::int64_t ranks, const Tensor& x, const Dims& sizes) {
  std::vector<Tensor> parts;
  for (std::int64_t i = 0; i < ranks; ++i) {
    Dims part = sizes;
    part[0] = sizes[0] * (i + 1) / ranks - sizes[0] * i / ranks;
    parts.push_back(tape.empty(part, x.dtype(), Category::communication_buffer));
  }
  exchange(tape, x, sizes);
  Tensor whole = tape.empty(sizes, x.dtype());
  for (const Tensor& one : parts) in_place(whole, {&one});
  return whole;
}

Tensor exchanged(Tape& tape, const ExpertParallel& group, const Tensor& x, std::int64_t rows) {
  Dims sizes = x.sizes();
  sizes[0] = rows;
  if (!group.functional) return exchanged_in_parts(tape, group.degree, x, sizes);
  Tensor whole = tape.empty(sizes, x.dtype());
  exchange(tape, x, sizes);
  return whole;
}

}  // namespace

Tensor all_to_all(const ExpertParallel& group, const Tensor& x, std::int64_t received) {
  PythonFunction op("all_to_all", {&x});
  Tensor y;
  {
    const GradMode no_grad(op.tape(), false);
    const auto run = [&]() -> std::vector<Tensor> { return {exchanged(op.tape(), group, x, received)}; };
    y = group.functional && group.kept ? selected(op.tape(), "all_to_all", run).front() : run().front();
  }
  return op.done(y, [group, sent = x.size(0)](BackwardCall& b) {
    const Tensor gradient = contiguous(b.grad());
    b.give(0, exchanged(b.tape, group, gradient, sent));
  });
}

}  // namespace plimsoll::program
