/// Transformer Engine's rotary embedding and its attention on fused kernels, on one rank. Tensors are [sequence, batch, heads, width].
/// Sources: transformer_engine/pytorch/attention/rope.py, attention/dot_product_attention/{backends,context_parallel}.py of Transformer
/// Engine 2.11.
#pragma once

#include <cstdint>
#include <string>

#include "program/modules/megatron/runtime.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// apply_rotary_pos_emb(fused=True): x [s, b, heads, width] turned by `table`.
Tensor te_rotary(const Tensor& x, const Tensor& table);

/// How te.pytorch.DotProductAttention attends in all layers.
struct TeAttention {
  std::string exchange;        ///< under context parallelism: "a2a" trades sequence for heads, "p2p" passes keys and values around the ring
  bool in_eight_bits = false;  ///< fp8_dot_product_attention
  bool scores_in_eight_bits = false;  ///< its 8-bit kernels know windows and sinks (get_attention_backend)
};

/// What of it is a layer's own.
struct TeScores {
  std::int64_t window = 0;  ///< keys that a query sees at most; 0: all before it
  Tensor sinks;             ///< softmax_offset of softmax_type "learnable", a logit per head; undefined: none
  double dropout = 0;       ///< attention_dropout, of the probabilities; its mask is drawn again by the backward kernels and never stored
};

/// te.pytorch.DotProductAttention on the fused kernels of the library that it chooses: query [s, b, heads, width], key and value with their
/// own heads and widths → [s, b, heads · value width]. Under context parallelism each rank has its part of the sequence. Throws Error
/// (refused): another exchange, eight bits with an exchange of heads, a window or sinks with an exchange of either kind, or in eight bits where
/// no kernel knows them.
Tensor te_attention(MegatronRuntime& runtime, const Tensor& query, const Tensor& key, const Tensor& value, const TeAttention& options,
                    const TeScores& scores = {});

}  // namespace plimsoll::program
