/// Transformer Engine's part in mixtures of experts and in multi-head latent attention, on one rank.
/// Sources: transformer_engine/pytorch/module/grouped_linear.py and permutation.py of Transformer Engine 2.11,
/// megatron/core/fusions/fused_mla_yarn_rope_apply.py of Megatron-core 0.16.1.
#pragma once

#include <cstdint>
#include <vector>

#include "program/modules/megatron/runtime.hpp"
#include "program/modules/megatron/te.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// te.pytorch.GroupedLinear: rows of x in equal groups, each with its own weight and, where `biases` are given, bias.
Tensor te_grouped_linear(MegatronRuntime& runtime, const Tensor& x, const std::vector<Tensor>& weights, const std::vector<Tensor>& biases,
                         TeInput saved = TeInput::cast);

/// Parameters of a rank's experts; biases may be absent.
struct TeGroupedMlp {
  std::vector<Tensor> up, up_biases, down, down_biases;
};

/// ForwardGroupedMLP_CuTeGEMMSwiGLU_MXFP8 and its backward (transformer_engine/pytorch/ops/fused): the product of the first linear writes
/// the gated rows, weighted by `probabilities` [rows, 1], in the 8 bits that the second reads, both ways; so does the gradient of the
/// second's input. mxfp8 alone.
Tensor te_grouped_mlp(MegatronRuntime& runtime, const Tensor& x, const Tensor& probabilities, const TeGroupedMlp& experts);

/// te.pytorch.Fp8Padding and Fp8Unpadding: every expert's rows copied to places that quantized products take, and back; `rows` in all.
Tensor te_repadded(const Tensor& x, std::int64_t rows);

/// moe_permute_with_probs: tokens [tokens, hidden] and their probabilities [tokens, experts], copied to `rows` places in the order of
/// their experts; `places` is what the way back needs.
struct TePermuted {
  Tensor tokens, probabilities, places;
};
TePermuted te_permute(const Tensor& tokens, const Tensor& probabilities, std::int64_t rows);

/// moe_unpermute: the rows of a token are added up, [rows, hidden] → [tokens, hidden].
Tensor te_unpermute(const Tensor& rows, const Tensor& places);

/// moe_sort_chunks_by_index_with_probs: chunks of rows in another order; `probabilities` [rows] may be undefined.
struct TeSorted {
  Tensor rows, probabilities;
};
TeSorted te_sort_chunks(const Tensor& rows, const Tensor& probabilities);

/// fused_apply_mla_rope_for_q: the rotary part of each head is turned in place.
Tensor te_latent_rotary_query(const Tensor& query, const Tensor& table);

/// fused_apply_mla_rope_for_kv: kv [s, b, heads, nope + value] and the shared rotary key [s, b, 1, rope] → keys [s, b, heads, nope + rope]
/// and values [s, b, heads, value].
struct TeLatent {
  Tensor key, value;
};
TeLatent te_latent_rotary_key_value(const Tensor& kv, const Tensor& rotary_key, std::int64_t value_width, const Tensor& table);

}  // namespace plimsoll::program
