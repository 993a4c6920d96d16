/// Rotary tables of positions in time, height and width: qwen2_vl and qwen2_5_vl.
#pragma once

#include <cstdint>

#include "program/modules/layers.hpp"

namespace plimsoll::program {

/// Qwen2VLRotaryEmbedding on `position_ids` [1, length], which text has three times alike: cosines and sines [batch, length, rotary_dim].
RotaryTables rotary_tables_3d(Module& rotary, Tape& tape, const Tensor& position_ids, std::int64_t batch, DType type);

}  // namespace plimsoll::program
