/// Scaled dot-product attention: PyTorch's flash, memory-efficient and math kernels (aten/src/ATen/native/transformers).
#include "plimsoll/error.hpp"
#include "program/ops.hpp"

namespace plimsoll::program {

namespace {

struct Shape {
  std::int64_t batch, heads, kv_heads, queries, keys, head_dim;
  bool causal;

  double flops() const {  // two products over the attended pairs
    const double pairs = static_cast<double>(queries) * static_cast<double>(keys) * (causal ? 0.5 : 1.0);
    return 4.0 * static_cast<double>(batch * heads * head_dim) * pairs;
  }
};

Shape shape_of(const Tensor& query, const Tensor& key, bool causal) {
  return {query.size(0), query.size(1), key.size(1), query.size(2), key.size(2), query.size(3), causal};
}

/// A new [batch, heads, length, dim] tensor that lies in memory as [batch, length, heads, dim].
Tensor heads_inside(Tape& tape, std::int64_t batch, std::int64_t heads, std::int64_t length, std::int64_t dim, DType type) {
  Tensor y = tape.empty({batch, heads, length, dim}, type);
  y.impl()->strides = {length * heads * dim, dim, heads * dim, 1};
  return y;
}

void flash_backward(BackwardCall& b, const Shape& s) {
  Tape& tape = b.tape;
  const Tensor query = b.saved(1), key = b.saved(0);
  const DType type = query.dtype();
  const Tensor grad = contiguous(b.grad());
  Tensor dq = heads_inside(tape, s.batch, s.heads, s.queries, s.head_dim, type);
  Tensor dk = heads_inside(tape, s.batch, s.kv_heads, s.keys, s.head_dim, type);
  Tensor dv = heads_inside(tape, s.batch, s.kv_heads, s.keys, s.head_dim, type);
  {
    const std::int64_t rounded = round_up(s.queries, 128);
    const std::int64_t rounded_dim = round_up(s.head_dim, s.head_dim <= 128 ? 32 : 64);
    const Tensor softmax_d = tape.empty({s.batch, s.heads, rounded}, DType::fp32, Category::workspace);
    const Tensor dq_accumulator = tape.empty({s.batch, rounded, s.heads, rounded_dim}, DType::fp32, Category::workspace);
    Tensor dk_expanded, dv_expanded;
    if (s.heads != s.kv_heads) {
      dk_expanded = tape.empty({s.batch, s.keys, s.heads, s.head_dim}, type, Category::workspace);
      dv_expanded = tape.empty({s.batch, s.keys, s.heads, s.head_dim}, type, Category::workspace);
    }
    // Three kernels: the dot product of the gradient with the output, the backward itself, the conversion of dq.
    launch(tape, KernelKind::reduction, type, 2 * query.bytes(), softmax_d.bytes());
    tape.kernel({.kind = KernelKind::attention_backward,
                 .type = type,
                 .flops = 2.5 * s.flops(),
                 .bytes_read = 3 * query.bytes() + 2 * key.bytes(),
                 .bytes_written = dq.bytes() + dk.bytes() + dv.bytes()});
    launch(tape, KernelKind::elementwise, type, dq_accumulator.bytes(), dq.bytes());
    if (dk_expanded) {
      launch(tape, KernelKind::reduction, type, dk_expanded.bytes(), dk.bytes());
      launch(tape, KernelKind::reduction, type, dv_expanded.bytes(), dv.bytes());
    }
  }
  b.give(0, std::move(dq));
  b.give(1, std::move(dk));
  b.give(2, std::move(dv));
}

Tensor flash(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionArguments& arguments) {
  const Shape s = shape_of(query, key, arguments.causal);
  Op op("flash_attention", {&query, &key, &value});
  op.save(key);
  op.save(query);
  op.save(value);
  Tensor out = heads_inside(op.tape(), s.batch, s.heads, s.queries, s.head_dim, query.dtype());
  const Tensor lse = op.tape().empty({s.batch, s.heads, s.queries}, DType::fp32);
  const Tensor rng_state = op.tape().empty({2}, DType::int64);
  const Tensor unused = op.tape().empty({1}, DType::int64);
  op.tape().kernel({.kind = KernelKind::attention,
                    .type = query.dtype(),
                    .flops = s.flops(),
                    .bytes_read = query.bytes() + key.bytes() + value.bytes(),
                    .bytes_written = out.bytes() + lse.bytes()});
  op.save_output(lse);
  op.save_output(out);
  op.save_output(rng_state);
  op.save_output(unused);
  return op.done(out, [s](BackwardCall& b) { flash_backward(b, s); });
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                                    const AttentionArguments& arguments) {
  const Tensor q = autocast_low(query), k = autocast_low(key), v = autocast_low(value);
  const bool sixteen_bit = q.dtype() == DType::bf16 || q.dtype() == DType::fp16;
  if (sixteen_bit && !mask && q.size(-1) == v.size(-1) && q.size(-1) % 8 == 0 && q.size(-1) <= 256) return flash(q, k, v, arguments);
  refuse("attention kernel for this shape is not modelled");
}

}  // namespace plimsoll::program
