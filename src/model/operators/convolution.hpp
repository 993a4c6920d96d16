// Operators of images: convolution, batch norm, pooling, patches. Shapes are [channels, height, width]; FLOPs are per sample, the one
// position of a convolutional block.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/model.hpp"

namespace plimsoll::model {

/// [channels, height, width] of a feature map.
struct FeatureMap {
  std::int64_t channels = 0, height = 0, width = 0;
};

/// A square window over a feature map.
struct Window {
  std::int64_t kernel = 1, stride = 1, padding = 0;
};
/// Extent behind a window: floor((size + 2·padding − kernel) / stride) + 1. Throws Error when the window does not fit.
std::int64_t extent_behind(std::int64_t size, const Window& window, const std::string& name);

struct ConvolutionSpec {
  FeatureMap input;
  std::int64_t out_channels = 0;
  Window window;
  std::int64_t groups = 1;
  bool bias = false;
};
/// 2·H·W·c_out·c_in/groups·k² FLOPs. Throws Error when groups do not divide the channels.
Operator convolution(const std::string& name, const ConvolutionSpec& spec);
struct SequenceConvolutionSpec {
  std::int64_t in = 0, out = 0, kernel = 1, groups = 1;
  bool bias = false;
  double outputs_per_token = 1;  ///< its outputs for every position of the block that it stands in
};
/// A convolution along a sequence: 2·c_out·c_in/groups·k FLOPs an output. Throws Error when groups do not divide the channels.
Operator sequence_convolution(const std::string& name, const SequenceConvolutionSpec& spec);
/// Weight and bias per channel; running mean, variance and a counter are buffers of the state dict.
Operator batch_norm(const std::string& name, const FeatureMap& map);
/// `function`: "max" or "average".
Operator pool(const std::string& name, const FeatureMap& map, const Window& window, const std::string& function);
/// The mean over each channel's map: [channels].
Operator global_pool(const std::string& name, const FeatureMap& map);
/// An activation or sum on a feature map.
Operator map_elementwise(OperatorKind kind, const std::string& name, const FeatureMap& map, const std::string& function = {});
/// A feature map as one vector.
Operator flatten(const std::string& name, const FeatureMap& map);
/// A convolution of kernel and stride `patch`: one vector of `width` per patch, FLOPs per patch.
Operator patch_embedding(const std::string& name, std::int64_t channels, std::int64_t patch, std::int64_t width, bool bias = true);

/// The feature map that an operator of this file gives. Throws Error (internal) for any other.
FeatureMap feature_map(const Operator& op);

}  // namespace plimsoll::model
