/// What cuDNN keeps beside a convolution of contiguous images. Matrix units want the channels of a place next to each other, in multiples of
/// 16 bytes: of image, filter and result the library makes such copies in its workspace, around a kernel that multiplies (a trace of a ViT
/// on an H100; the reserved bytes of two such steps follow to the byte). The stand-in for cuDNN asks for the same.
#pragma once

#include <cstdint>

#include "plimsoll/units.hpp"

namespace plimsoll::program {

/// A tensor [outer, channels, places], copied to [outer, places, channels] with channels filled up.
struct ChannelsLastCopy {
  std::int64_t elements = 0, filled = 0;  ///< of the tensor, of the copy
};

inline ChannelsLastCopy channels_last_copy(std::int64_t outer, std::int64_t channels, std::int64_t places, std::int64_t element_bytes) {
  constexpr std::int64_t kVectorBytes = 16;
  const std::int64_t step = element_bytes < kVectorBytes ? kVectorBytes / element_bytes : 1;
  return {outer * channels * places, outer * places * round_up(channels, step)};
}

/// Image [batch, channels, image], filter [out, in, window], result [batch, out, places].
struct ConvolutionSizes {
  std::int64_t batch = 1, channels = 0, image = 0, in = 0, window = 0, out = 0, places = 0, groups = 1, element_bytes = 2;
};

struct ConvolutionCopies {
  ChannelsLastCopy image, filter, result;
  std::int64_t element_bytes = 2;
  std::int64_t sums = 0;  ///< fp32 elements: the parts of a weight's gradient, before they are added

  std::int64_t bytes_of_sums() const { return sums * 4; }
  std::int64_t bytes() const { return (image.filled + filter.filled + result.filled) * element_bytes + bytes_of_sums(); }
};

/// The parts that the product of a weight's gradient is cut into, so that the device has two tiles of 256 x 64 for each multiprocessor
/// (inferred from one launch). `columns`: filled-up channels of one filter, all places.
inline std::int64_t parts_of_weight_gradient(const ConvolutionSizes& c, std::int64_t columns, std::int64_t multiprocessors) {
  constexpr std::int64_t kRows = 256, kColumns = 64, kMost = 32;
  const std::int64_t tiles = c.groups * ceil_div(columns, kRows) * ceil_div(c.out / c.groups, kColumns);
  std::int64_t parts = 1;
  while (parts < kMost && parts * tiles < 2 * multiprocessors) parts *= 2;
  return parts;
}

inline ConvolutionCopies convolution_copies(const ConvolutionSizes& c, bool weight_gradient, std::int64_t multiprocessors) {
  ConvolutionCopies copies{channels_last_copy(c.batch, c.channels, c.image, c.element_bytes),
                           channels_last_copy(c.out, c.in, c.window, c.element_bytes),
                           channels_last_copy(c.batch, c.out, c.places, c.element_bytes), c.element_bytes};
  const std::int64_t parts = weight_gradient ? parts_of_weight_gradient(c, copies.filter.filled / c.out, multiprocessors) : 1;
  if (parts > 1) copies.sums = parts * copies.filter.filled;
  return copies;
}

}  // namespace plimsoll::program
