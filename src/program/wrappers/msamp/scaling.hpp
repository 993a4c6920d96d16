/// MS-AMP's tensors: values of 8 or 16 bits with a scale of their own, and the casts between them. Sources: msamp/common/tensor/{meta,cast,
/// tensor}.py and msamp/common/utils/transformer_engine_wrapper.py of MS-AMP 0.4.
#pragma once

#include <vector>

#include "program/tape.hpp"

namespace plimsoll::program::msamp {

/// ScalingMeta: scale and its inverse, one number each, and a window of largest magnitudes, fp32.
struct Scaling {
  Tensor scale, inverse, largest;
};

/// A new ScalingMeta over largest magnitudes that stand already, or of a window of `window` steps.
Scaling new_scaling(Tape& tape, Tensor largest, Category category);
Scaling new_scaling(Tape& tape, std::int64_t window, Category category);

/// ScalingMeta.compute_scaling_factor: a power of two from largest magnitudes and the scales before, elementwise.
Tensor scaling_factor(const Tensor& largest, const Tensor& scale);

/// Whether the largest magnitude is looked for before the cast (a window of one step, or one that is not full yet), and whether `ranks`
/// agree on it, which computes the scale too.
struct Cast {
  bool searches = true, synchronizes = false;
  std::int64_t ranks = 1;
};

/// TypeCast.cast_to_fp8: x in 8 bits.
Tensor to_eight_bits(const Tensor& x, Scaling& scaling, Cast cast);

/// TypeCast.cast_to_fp16: x in fp16, its scale from its own largest magnitude.
Tensor to_half(const Tensor& x, Scaling& scaling);

/// A tensor of MS-AMP (`value` of 8 bits or fp16), or an ordinary one where `scaling` is null, in `type`: itself where it has it.
Tensor widened(const Tensor& value, const Scaling* scaling, DType type);

/// An 8-bit copy of an fp16 tensor of MS-AMP, and the scaling it has (ScalingTensor.cast).
struct EightBits {
  Tensor value;
  Scaling scaling;
};
EightBits to_eight_bits(const Tensor& half, const Scaling& scaling);

/// fused_cast_transpose of a matrix: 8 bits, as it lies and transposed.
struct CastPair {
  Tensor straight, transposed;
};
CastPair cast_and_transpose(const Tensor& x, Scaling& scaling);

/// ScalingTensor.fp8_transpose of a matrix.
Tensor transposed(const Tensor& x);

/// Tensors flattened into one (_flatten_dense_tensors), whose views take their places.
void flatten(const std::vector<Tensor*>& tensors);

/// The least multiple of 16, of which rows and columns of 8-bit products are.
constexpr std::int64_t padded(std::int64_t size) { return round_up(size, 16); }

/// F.pad of a matrix with zeros at its ends; the matrix itself where it has that size.
Tensor padded_to(const Tensor& x, std::int64_t rows, std::int64_t columns);
/// The matrix without its padding: itself where it has none.
Tensor trimmed(const Tensor& x, std::int64_t rows, std::int64_t columns);

}  // namespace plimsoll::program::msamp
