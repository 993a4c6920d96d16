/// Operators of images that only code which is read asks for: norms of groups, pools of any window, other sizes by interpolation.
#pragma once

#include "program/op.hpp"

namespace plimsoll::program {

/// F.group_norm; weight and bias may be undefined.
Tensor group_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, std::int64_t groups);
/// F.batch_norm by running statistics (evaluation).
Tensor batch_norm_by(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& mean, const Tensor& variance);

enum class Pooling : std::uint8_t { maximum, average, adaptive_average, adaptive_maximum };
/// A pool of x [batch, channels, …] into `places` of the last dimensions.
Tensor pooled(const Tensor& x, const Dims& places, Pooling kind);

/// F.interpolate of x [batch, channels, …] to `places`; nearest, linear or bicubic, with or without antialiasing.
Tensor resized(const Tensor& x, const Dims& places, const char* name);
/// F.grid_sample of x [batch, channels, height, width] at grid [batch, height, width, 2].
Tensor grid_sample(const Tensor& x, const Tensor& grid);
/// F.unfold: windows as columns [batch, channels · window, places]; F.fold of them back into images of these sizes.
Tensor image_to_columns(const Tensor& x, std::int64_t window, std::int64_t places);
Tensor columns_to_image(const Tensor& x, const Dims& sizes);
/// F.pixel_shuffle and unshuffle.
Tensor pixel_shuffle(const Tensor& x, std::int64_t factor);
Tensor pixel_unshuffle(const Tensor& x, std::int64_t factor);

}  // namespace plimsoll::program
