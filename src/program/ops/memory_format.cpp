// c10/core/MemoryFormat.h of PyTorch 2.15.
#include "program/ops/memory_format.hpp"

#include <algorithm>

#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

constexpr int kImageRank = 4;
constexpr int kFromWithin[kImageRank] = {1, 3, 2, 0};  ///< channels, columns, rows, batch

/// is_channels_last_strides_2d_s4: each stride is at least what lies within it, which one beside another (a slice) has, too.
bool has_strides_like_channels_last(const Dims& sizes, const Dims& strides) {
  std::int64_t least = 0;
  if (strides[1] == 0) return false;
  for (const int dimension : kFromWithin) {
    if (sizes[dimension] == 0 || strides[dimension] < least) return false;
    if (dimension == 0 && least == strides[1]) return false;  // one channel of one place: as well row by row
    least = strides[dimension] * std::max<std::int64_t>(sizes[dimension], 1);
  }
  return true;
}

/// is_channels_last_contiguous_2d_s4.
bool is_channels_last(const Dims& sizes, const Dims& strides) {
  std::int64_t expected = 1;
  for (const int dimension : kFromWithin) {
    if (sizes[dimension] == 1) continue;
    if (strides[dimension] != expected) return false;
    expected *= sizes[dimension];
  }
  return true;
}

}  // namespace

void lay_channels_last(const Tensor& image) {
  Dims strides = image.sizes();
  std::int64_t stride = 1;
  for (const int dimension : kFromWithin) {
    strides[dimension] = stride;
    stride *= image.size(dimension);
  }
  image.impl()->strides = strides;
}

bool has_channels_last(const Tensor& x) { return x.rank() == kImageRank && has_strides_like_channels_last(x.sizes(), x.strides()); }

Tensor empty_image(Tape& tape, const Dims& sizes, DType type, bool channels_last) {
  Tensor made = tape.empty(sizes, type);
  if (channels_last) lay_channels_last(made);
  return made;
}

Tensor in_format(const Tensor& x, bool channels_last) {
  if (!channels_last) return contiguous(x);
  if (is_channels_last(x.sizes(), x.strides())) return x;
  Tensor made = empty_image(x.tape(), x.sizes(), x.dtype(), true);
  in_place(made, {&x});
  return made;
}

}  // namespace plimsoll::program
