#include "program/modules/expert_parallel.hpp"

#include <vector>

#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

namespace {

void exchange(Tape& tape, const Tensor& x) {
  tape.collective({.kind = CollectiveKind::all_to_all, .group = Group::expert, .bytes = x.bytes(), .type = x.dtype()}, kComputeStream);
}

/// spmd_types' _AllToAllUneven: a buffer per rank, then put together.
Tensor exchanged_in_parts(Tape& tape, std::int64_t ranks, const Tensor& x) {
  Dims part = x.sizes();
  part[0] /= ranks;
  std::vector<Tensor> parts;
  for (std::int64_t i = 0; i < ranks; ++i) parts.push_back(tape.empty(part, x.dtype(), Category::communication_buffer));
  exchange(tape, x);
  Tensor whole = tape.empty(x.sizes(), x.dtype());
  for (const Tensor& one : parts) in_place(whole, {&one});
  return whole;
}

Tensor exchanged(Tape& tape, const ExpertParallel& group, const Tensor& x) {
  if (!group.functional) return exchanged_in_parts(tape, group.degree, x);
  Tensor whole = tape.empty(x.sizes(), x.dtype());
  exchange(tape, x);
  return whole;
}

}  // namespace

Tensor all_to_all(const ExpertParallel& group, const Tensor& x) {
  PythonFunction op("all_to_all", {&x});
  Tensor y;
  {
    const GradMode no_grad(op.tape(), false);
    const auto run = [&]() -> std::vector<Tensor> { return {exchanged(op.tape(), group, x)}; };
    y = group.functional ? selected(op.tape(), "all_to_all", run).front() : run().front();
  }
  return op.done(y, [group](BackwardCall& b) {
    const Tensor gradient = contiguous(b.grad());
    b.give(0, exchanged(b.tape, group, gradient));
  });
}

}  // namespace plimsoll::program
