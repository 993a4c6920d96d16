/// Scaled dot-product attention written out: aten::_scaled_dot_product_attention_math (aten/src/ATen/native/transformers/attention.cpp).
#include "program/ops/attention_kernels.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// ones.tril(), then zeros and minus infinities in its place.
Tensor causal_bias(Tape& tape, std::int64_t queries, std::int64_t keys, DType type) {
  const Tensor seen = [&] {
    const Tensor ones = filled(tape, {queries, keys}, DType::boolean);
    return elementwise(tape, {&ones}, DType::boolean);
  }();
  return additive_attention_mask(tape, seen, type);
}

/// repeat_interleave of key heads, as often as query heads share one.
Tensor repeated(const Tensor& x, std::int64_t times) {
  const Tensor wide = expand(unsqueeze(x, 2), {-1, -1, times, -1, -1});
  return reshape(wide, {x.size(0), x.size(1) * times, x.size(2), x.size(3)});
}

}  // namespace

Tensor math_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, const AttentionArguments& arguments) {
  Tape& tape = query.tape();
  const DType type = query.dtype();
  const AutocastScope autocast(tape, false, tape.autocast.type);
  const DType wide = type == DType::bf16 || type == DType::fp16 ? DType::fp32 : type;  // its accuracy is kept
  const Tensor wide_query = to(query, wide);
  Tensor k = to(key, wide), v = to(value, wide);
  const Tensor q = multiply_scalar(wide_query);  // by the root of the scale, as the keys are
  Tensor bias = mask;
  if (arguments.causal) bias = causal_bias(tape, query.size(-2), key.size(-2), wide);
  if (mask && mask.dtype() == DType::boolean) bias = additive_attention_mask(tape, mask, wide);
  if (arguments.enable_gqa && query.size(1) != key.size(1)) {
    k = repeated(k, query.size(1) / key.size(1));
    v = repeated(v, query.size(1) / key.size(1));
  }
  Tensor weights = matmul(q, multiply_scalar(transpose(k, k.rank() - 2, k.rank() - 1)));
  if (bias) weights = add_into(weights, bias);
  weights = safe_softmax(weights);
  weights = dropout(weights, arguments.dropout);
  Tensor second;  // of the results, which nobody takes
  if (wide != type) {
    const GradMode no_grad(tape, false);
    second = to(weights, type);
  }
  return to(matmul(weights, v), type);
}

}  // namespace plimsoll::program
