/// What gpt_oss does otherwise than its relatives: attention with sinks, rotary tables of half a head, experts' clamped gates.
#pragma once

#include "program/modules/transformers/causal_lm.hpp"
#include "program/modules/layers.hpp"

namespace plimsoll::program {

/// GptOssRotaryEmbedding: [1, length, head_dim / 2] each.
RotaryTables half_rotary_tables(Module& rotary, Tape& tape, const Tensor& position_ids, DType type);
/// _apply_rotary_emb: both halves of [batch, heads, length, head_dim] by tables of half the width.
Tensor rotate_by_half_tables(const Tensor& x, const RotaryTables& tables);

/// eager_attention_forward with a learned logit per head beside the scores: [batch, heads, length, dim] → [batch, length, heads, dim].
Tensor attend_with_sinks(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, const Tensor& sinks,
                         const AttentionCall& call);

/// GptOssExperts._apply_gate: neighbouring columns of [rows, 2 · width] are gate and up; both are clamped.
Tensor clamped_swiglu(const Tensor& rows);

}  // namespace plimsoll::program
