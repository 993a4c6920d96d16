#include "program/modules/megatron/rotary.hpp"

#include <cstdint>
#include <vector>

#include "program/ops/ops.hpp"
#include "program/ops/unary.hpp"

namespace plimsoll::program {

namespace {

/// _rotate_half, whose halves are chunks: one node of the backward, where rotate_half has two slices.
Tensor rotate_chunks(const Tensor& x) {
  const std::vector<Tensor> halves = chunk(x, 2, -1);
  const Tensor negative = negate(halves[1]);
  return cat({negative, halves[0]}, -1);
}

}  // namespace

Tensor rotate(const Tensor& x, const Tensor& frequencies) {
  const std::int64_t width = frequencies.size(-1);
  const Tensor turning = slice(x, -1, 0, width), passing = slice(x, -1, width, x.size(-1));
  const auto scaled = [&](Tensor wide) {
    wide = multiply_scalar(wide);
    return to(wide, x.dtype());
  };
  const Tensor cosines = scaled(cosine(frequencies));
  const Tensor sines = scaled(sine(frequencies));
  Tensor turned;
  {
    const Tensor kept = multiply(turning, cosines);
    Tensor half = rotate_chunks(turning);
    half = multiply(half, sines);
    turned = add(kept, half);
  }
  return cat({turned, passing}, -1);
}

Tensor rotate_pairs(const Tensor& x, const Tensor& frequencies) {
  const Tensor first = every_second(x, 0), second = every_second(x, 1);
  const Tensor apart = cat({first, second}, -1);
  return rotate(apart, frequencies);
}

}  // namespace plimsoll::program
