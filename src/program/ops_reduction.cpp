#include "program/ops.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

std::vector<bool> mask_of(const Tensor& x, const std::vector<int>& dimensions) {
  std::vector<bool> reduced(static_cast<std::size_t>(x.rank()), dimensions.empty());
  for (int dimension : dimensions) reduced[static_cast<std::size_t>(dimension < 0 ? dimension + x.rank() : dimension)] = true;
  return reduced;
}

/// A gradient of the reduced shape, seen in the shape before.
Tensor expanded(Tape& tape, const Tensor& gradient, const Dims& before, const std::vector<bool>& reduced) {
  Dims strides = before;
  int own = 0;
  const bool kept = gradient.rank() == before.rank();
  for (int i = 0; i < before.rank(); ++i) {
    const bool gone = reduced[static_cast<std::size_t>(i)];
    strides[i] = gone ? 0 : gradient.strides()[own];
    if (kept || !gone) ++own;
  }
  return tape.view(gradient, before, strides);
}

}  // namespace

Tensor sum(const Tensor& x, const std::vector<int>& dimensions, bool keep) {
  const std::vector<bool> reduced = mask_of(x, dimensions);
  Op op("sum", {&x});
  Tensor y = reduce(x, reduced, keep, x.dtype());
  return op.done(y, [before = x.sizes(), reduced](BackwardCall& b) { b.give(0, expanded(b.tape, b.grad(), before, reduced)); });
}

/// at::sum_to: what broadcasting made is summed away.
Tensor sum_to(const Tensor& x, const Dims& sizes) {
  if (x.sizes() == sizes) return x;
  const int leading = x.rank() - sizes.rank();
  std::vector<int> dimensions;
  for (int i = 0; i < x.rank(); ++i) {
    if (i < leading || (sizes[i - leading] == 1 && x.size(i) != 1)) dimensions.push_back(i);
  }
  if (sizes.rank() == 0) return sum(x, {}, false);
  const Tensor reduced = dimensions.empty() ? x : sum(x, dimensions, true);
  return leading > 0 ? view(reduced, sizes) : reduced;
}

Tensor mean(const Tensor& x, int dimension, bool keep) {
  const std::vector<bool> reduced = mask_of(x, {dimension});
  Op op("mean", {&x});
  Tensor y = reduce(x, reduced, keep, x.dtype());
  return op.done(y, [before = x.sizes(), reduced](BackwardCall& b) {  // mean_backward: expand, then divide
    const Tensor wide = expanded(b.tape, b.grad(), before, reduced);
    Tensor gradient = b.tape.empty(before, b.grad().dtype());
    in_place(gradient, {&b.grad()});
    b.give(0, std::move(gradient));
  });
}

Tensor softmax(const Tensor& x, DType type) {
  Op op("softmax", {&x});
  Tensor y = op.output(x.sizes(), type);
  launch(op.tape(), KernelKind::reduction, type, x.bytes(), y.bytes(), 5.0 * static_cast<double>(x.elements()));
  op.save_output(y);
  return op.done(y, [input_type = x.dtype()](BackwardCall& b) {
    const Tensor result = b.saved(0);
    Tensor gradient = b.tape.empty(result.sizes(), input_type);
    launch(b.tape, KernelKind::reduction, result.dtype(), 2 * result.bytes(), gradient.bytes(),
           4.0 * static_cast<double>(result.elements()));
    b.give(0, std::move(gradient));
  });
}

Tensor log_softmax(const Tensor& x, DType type) {
  Op op("log_softmax", {&x});
  Tensor y = op.output(x.sizes(), type);
  launch(op.tape(), KernelKind::reduction, type, x.bytes(), y.bytes(), 5.0 * static_cast<double>(x.elements()));
  op.save_output(y);
  return op.done(y, [input_type = x.dtype()](BackwardCall& b) {
    const Tensor result = b.saved(0);
    Tensor gradient = b.tape.empty(result.sizes(), input_type);
    launch(b.tape, KernelKind::reduction, result.dtype(), 2 * result.bytes(), gradient.bytes(),
           4.0 * static_cast<double>(result.elements()));
    b.give(0, std::move(gradient));
  });
}

}  // namespace plimsoll::program
