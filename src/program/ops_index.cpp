#include "program/ops.hpp"

namespace plimsoll::program {

Tensor arange(Tape& tape, std::int64_t length, DType type) {
  tape.operator_name = "arange";
  Tensor y = tape.empty({length}, type);
  launch(tape, KernelKind::elementwise, type, 0, y.bytes());
  return y;
}

Tensor embedding(const Tensor& weight, const Tensor& indices) {
  Op op("embedding", {&weight});
  op.save(indices);
  Dims sizes = indices.sizes();
  sizes.push_back(weight.size(1));
  Tensor y = op.output(sizes, weight.dtype());
  launch(op.tape(), KernelKind::gather, weight.dtype(), y.bytes() + indices.bytes(), y.bytes());
  return op.done(y, [table = weight.sizes()](BackwardCall& b) {  // embedding_dense_backward
    const Tensor g = contiguous(b.grad());
    Tensor gradient = zeros(b.tape, table, g.dtype());
    launch(b.tape, KernelKind::gather, g.dtype(), g.bytes(), g.bytes());
    b.give(0, std::move(gradient));
  });
}

}  // namespace plimsoll::program
