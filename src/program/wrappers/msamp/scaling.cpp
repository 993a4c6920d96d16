#include "program/wrappers/msamp/scaling.hpp"

#include <utility>

#include "program/op.hpp"
#include "program/ops/copying.hpp"
#include "program/ops/ops.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program::msamp {

namespace {

/// meta.amax[0] = x.abs().max().
void find_largest(const Tensor& x, const Scaling& scaling) {
  Tape& tape = x.tape();
  Tensor largest;
  {
    const Tensor magnitudes = elementwise(tape, {&x}, x.dtype());
    largest = reduce(magnitudes, std::vector<bool>(static_cast<std::size_t>(x.rank()), true), false, x.dtype(), size_of(x.dtype()));
  }
  copy_into(select(scaling.largest, 0), largest);
}

/// ScalingMeta.reset_scaling_factor.
void reset(const Scaling& scaling) {
  const Tensor first = select(scaling.largest, 0);
  copy_into(scaling.scale, scaling_factor(first, scaling.scale));
}

/// meta.scale_inv.copy_(torch.reciprocal(meta.scale)).
void invert(const Scaling& scaling) {
  const Tensor inverse = elementwise(scaling.scale.tape(), {&scaling.scale}, DType::fp32);
  copy_into(scaling.inverse, inverse);
}

Tensor eight_bits(const Tensor& x) {
  Tensor y = x.tape().empty(x.sizes(), DType::fp8);
  pointwise(Pointwise::Form::fused, {&x}, {&y});
  return y;
}

/// x times a scale of one element, in fp32, then in `type`.
Tensor scaled(const Tensor& x, const Tensor& scale, DType type) {
  const Tensor one = view(scale, {1});
  const Tensor product = elementwise(x.tape(), {&x, &one}, DType::fp32);
  return to(product, type);
}

}  // namespace

Scaling new_scaling(Tape& tape, Tensor largest, Category category) {
  const auto one = [&] {
    Tensor number = tape.empty({}, DType::fp32, category);
    pointwise(number, {});
    return number;
  };
  Scaling scaling;
  scaling.scale = one();
  scaling.inverse = one();
  scaling.largest = std::move(largest);
  return scaling;
}

Scaling new_scaling(Tape& tape, std::int64_t window, Category category) {
  Scaling scaling = new_scaling(tape, Tensor(), category);
  scaling.largest = zeros(tape, {window}, DType::fp32);
  Tape::categorize(scaling.largest, category);
  return scaling;
}

Tensor scaling_factor(const Tensor& largest, const Tensor& scale) {
  Tape& tape = largest.tape();
  const auto number = [&](const Tensor& x) { return elementwise(tape, {&x}, DType::fp32); };
  const auto truth = [&](const Tensor& x) { return elementwise(tape, {&x}, DType::boolean); };
  const auto divided = [&](const Tensor& x) {  // a number / x: reciprocal, then mul
    const Tensor inverse = number(x);
    return number(inverse);
  };
  const auto chosen = [&](const Tensor& condition, const Tensor& x, const Tensor& other) {
    return elementwise(tape, {&condition, &x, &other}, DType::fp32);
  };
  Tensor exponent = divided(largest);
  for (int i = 0; i < 3; ++i) exponent = number(exponent);  // log2, floor, - margin
  Tensor factor = number(exponent);                         // abs
  {
    const Tensor base = filled(tape, {}, DType::int64);  // of torch.pow(2, …), on the device
    factor = elementwise(tape, {&base, &factor}, DType::fp32);
  }
  factor = number(factor);  // round
  {
    const Tensor positive = truth(largest);
    factor = chosen(positive, factor, scale);
  }
  {
    Tensor finite;  // (x == x) * (x.abs() != inf)
    {
      const Tensor is_number = truth(largest), magnitude = number(largest), bounded = truth(magnitude);
      finite = elementwise(tape, {&is_number, &bounded}, DType::boolean);
    }
    factor = chosen(finite, factor, scale);
  }
  const Tensor negative = truth(exponent), inverse = divided(factor);
  return chosen(negative, inverse, factor);
}

Tensor to_eight_bits(const Tensor& x, Scaling& scaling, Cast cast) {
  if (cast.searches) find_largest(x, scaling);
  const Tensor first = slice(scaling.largest, 0, 0, 1);
  Tensor agreed;
  if (cast.synchronizes) in_place(first, {&scaling.largest});  // nan_to_num_
  if (cast.synchronizes && cast.ranks > 1) {
    x.tape().collective({.kind = CollectiveKind::all_reduce, .group = Group::world, .bytes = first.bytes(), .type = DType::fp32},
                        x.tape().stream);
    agreed = clone(first);
  }
  if (cast.searches || cast.synchronizes) reset(scaling);
  Tensor y = eight_bits(x);
  invert(scaling);
  if (agreed) copy_into(first, agreed);
  return y;
}

Tensor to_half(const Tensor& x, Scaling& scaling) {
  find_largest(x, scaling);
  reset(scaling);
  invert(scaling);
  return scaled(x, scaling.scale, DType::fp16);
}

Tensor widened(const Tensor& value, const Scaling* scaling, DType type) {
  if (!scaling) return to(value, type);
  if (value.dtype() != DType::fp8) return scaled(value, scaling->inverse, type);
  Tensor wide = value.tape().empty(value.sizes(), type);
  pointwise(Pointwise::Form::fused, {&value}, {&wide});
  return wide;
}

EightBits to_eight_bits(const Tensor& half, const Scaling& scaling) {
  Tape& tape = half.tape();
  EightBits result;
  const Tensor largest = tape.empty(scaling.largest.sizes(), DType::fp32);
  copy_into(largest, scaling.largest);
  result.scaling = new_scaling(tape, largest, Category::activation);
  reset(result.scaling);
  const Tensor inverse = elementwise(tape, {&result.scaling.scale}, DType::fp32);
  in_place(result.scaling.scale, {&result.scaling.scale, &scaling.inverse});
  result.value = to_eight_bits(half, result.scaling, {.searches = false});
  copy_into(result.scaling.largest, scaling.largest);
  copy_into(result.scaling.inverse, inverse);
  return result;
}

Tensor padded_to(const Tensor& x, std::int64_t rows, std::int64_t columns) {
  if (x.size(0) == rows && x.size(1) == columns) return x;
  Tensor y = x.tape().empty({rows, columns}, x.dtype());
  pointwise(y, {});
  pointwise(x.tape(), Pointwise::Form::map, {operand(x)}, {packed(x.elements(), x.dtype())});
  return y;
}

Tensor trimmed(const Tensor& x, std::int64_t rows, std::int64_t columns) {
  const Tensor fewer_rows = slice(x, 0, 0, rows);
  return contiguous(slice(fewer_rows, 1, 0, columns));
}

CastPair cast_and_transpose(const Tensor& x, Scaling& scaling) {
  Tape& tape = x.tape();
  const std::int64_t rows = x.size(0), columns = x.size(1);
  find_largest(x, scaling);
  reset(scaling);
  CastPair pair;
  {
    const Tensor whole = padded_to(x, padded(rows), padded(columns));
    pair.straight = tape.empty(whole.sizes(), DType::fp8);
    pair.transposed = tape.empty({whole.size(1), whole.size(0)}, DType::fp8);
    pointwise(Pointwise::Form::fused, {&whole}, {&pair.straight, &pair.transposed});
  }
  invert(scaling);
  const CastPair whole = pair;
  pair.straight = trimmed(whole.straight, rows, columns);
  pair.transposed = trimmed(whole.transposed, columns, rows);
  return pair;
}

Tensor transposed(const Tensor& x) {
  const std::int64_t rows = x.size(0), columns = x.size(1);
  Tensor y;
  {
    const Tensor whole = padded_to(x, padded(rows), padded(columns));
    y = x.tape().empty({whole.size(1), whole.size(0)}, DType::fp8);
    pointwise(Pointwise::Form::fused, {&whole}, {&y});
  }
  return trimmed(y, columns, rows);
}

void flatten(const std::vector<Tensor*>& tensors) {
  if (tensors.size() < 2) return;  // alone it is its own flat tensor
  std::int64_t elements = 0;
  for (const Tensor* tensor : tensors) elements += tensor->elements();
  Tape& tape = tensors.front()->tape();
  const Tensor flat = tape.empty({elements}, tensors.front()->dtype(), Category::parameter);
  pointwise(tape, Pointwise::Form::concatenate, {operand(flat)}, {operand(flat)});
  for (Tensor* tensor : tensors) {
    Tensor piece = tape.view(flat, tensor->sizes(), contiguous_strides(tensor->sizes()));
    piece.impl()->base.reset();
    *tensor = std::move(piece);
  }
}

}  // namespace plimsoll::program::msamp
