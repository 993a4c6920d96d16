/// Rotation by complex numbers: DeepSeek-V2 and Llama 4.
#pragma once

#include "program/modules/layers.hpp"

namespace plimsoll::program {

/// DeepseekV2RotaryEmbedding, Llama4TextRotaryEmbedding: complex numbers, [1, length, rotary_dim / 2], as the table's cosine.
RotaryTables polar_tables(Module& rotary, Tape& tape, const Tensor& position_ids);

/// apply_rotary_emb of DeepSeek-V2: pairs as complex numbers times the table; [batch, heads, length, dim].
void rotate_complex(Tensor& query, Tensor& key, const RotaryTables& tables);
/// The same of Llama 4: both go back to their type when both are turned; [batch, length, heads, dim].
void rotate_complex_both(Tensor& query, Tensor& key, const RotaryTables& tables);

}  // namespace plimsoll::program
