/// How images lie: row by row, or with the channels of a place as neighbours (torch.channels_last), which most operators of images keep.
#pragma once

#include "program/tape.hpp"

namespace plimsoll::program {

/// Lays a new image [batch, channels, rows, columns] out with its channels as neighbours.
void lay_channels_last(const Tensor& image);
/// Tensor.suggest_memory_format() is torch.channels_last.
bool has_channels_last(const Tensor& x);
Tensor empty_image(Tape& tape, const Dims& sizes, DType type, bool channels_last);
/// x.contiguous(memory_format=…).
Tensor in_format(const Tensor& x, bool channels_last);

}  // namespace plimsoll::program
