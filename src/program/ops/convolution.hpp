/// Convolutions of any window: sequences, images and volumes.
#pragma once

#include "program/op.hpp"

namespace plimsoll::program {

/// Of each dimension of the window.
struct ConvolutionGeometry {
  Dims stride, padding, dilation;
  std::int64_t groups = 1;
};

/// What the window leaves of one dimension.
constexpr std::int64_t convolved_extent(std::int64_t size, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                                        std::int64_t dilation) {
  return (size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
}

/// F.conv1d, conv2d, conv3d of x [batch, channels, …], weight [out, channels / groups, window…].
Tensor convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvolutionGeometry& geometry);

}  // namespace plimsoll::program
