/// How images lie: row by row, or with the channels of a place as neighbours (torch.channels_last), which most operators of images keep.
#pragma once

#include "program/tape.hpp"

namespace plimsoll::program {

/// Strides of [batch, channels, rows, columns] whose channels are neighbours.
Dims channels_last_strides(const Dims& sizes);
/// Tensor.suggest_memory_format() is torch.channels_last.
bool has_channels_last(const Tensor& x);
Tensor empty_image(Tape& tape, const Dims& sizes, DType type, bool channels_last);
/// x.contiguous(memory_format=…).
Tensor in_format(const Tensor& x, bool channels_last);

}  // namespace plimsoll::program
