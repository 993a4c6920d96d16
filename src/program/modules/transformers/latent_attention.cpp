#include "program/modules/transformers/latent_attention.hpp"

#include "program/modules/transformers/causal_lm.hpp"
#include "program/modules/transformers/rotary_complex.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// apply_rotary_pos_emb_interleave of one tensor: cat(x1 cos - x2 sin, x2 cos + x1 sin) of even and odd elements.
Tensor turn_neighbours(const Tensor& first, const Tensor& second, const Tensor& cosine, const Tensor& sine) {
  Tensor low, high;
  {
    const Tensor a = multiply(first, cosine), b = multiply(second, sine);
    low = subtract(a, b);
  }
  {
    const Tensor a = multiply(second, cosine), b = multiply(first, sine);
    high = add(a, b);
  }
  return cat({low, high}, -1);
}

void rotate_neighbours(Tensor& query, Tensor& key, const RotaryTables& tables) {
  const std::int64_t half = tables.cosine.size(-1) / 2;
  const Tensor cosine = unsqueeze(slice(tables.cosine, -1, 0, half), 1), sine = unsqueeze(slice(tables.sine, -1, 0, half), 1);
  const Tensor q1 = every_second(query, 0), q2 = every_second(query, 1), k1 = every_second(key, 0), k2 = every_second(key, 1);
  const Tensor turned_query = turn_neighbours(q1, q2, cosine, sine);
  key = turn_neighbours(k1, k2, cosine, sine);
  query = turned_query;
}

}  // namespace

Linear LatentAttention::projection(const char* name) { return Linear(module_.child(name), tape_); }

LatentAttention::LatentAttention(Module& module, Tape& tape, const RunOptions& options, const Block& block, Rotation rotation)
    : module_(module),
      tape_(tape),
      options_(options),
      spec_(*block.attention),
      mla_(*spec_.mla),
      rotation_(rotation),
      kv_norm_(module.child("kv_a_layernorm"), tape, block.norm),
      kv_down_(projection("kv_a_proj_with_mqa")),
      kv_up_(projection("kv_b_proj")),
      output_(projection("o_proj")) {
  if (mla_.q_lora_rank == 0) {
    q_up_ = projection("q_proj");
    return;
  }
  q_down_ = projection("q_a_proj");
  q_norm_.emplace(module.child("q_a_layernorm"), tape, block.norm);
  q_up_ = projection("q_b_proj");
}

Tensor LatentAttention::queries(const Tensor& hidden) const {
  if (!q_norm_) return q_up_(hidden);
  Tensor q = q_down_(hidden);
  q = (*q_norm_)(q);
  return q_up_(q);
}

void LatentAttention::rotate_both(Tensor& query, Tensor& key, const RotaryTables& tables) const {
  switch (rotation_) {
    case Rotation::complex:
      return rotate_complex(query, key, tables);
    case Rotation::neighbours:
      return rotate_neighbours(query, key, tables);
    case Rotation::halves:
      return rotate_pair(query, key, tables, program::Rotation::whole);
  }
}

/// expand_kv: keys without position, and the one with position for every head, are copied into a new tensor.
LatentAttention::Keys LatentAttention::expand_keys(const Tensor& compressed, const Tensor& rotated) const {
  const std::int64_t batch = compressed.size(0), length = compressed.size(2);
  const Tensor expanded = transpose(view(kv_up_(compressed), {batch, length, -1, mla_.qk_nope_head_dim + mla_.v_head_dim}), 1, 2);
  const std::vector<Tensor> parts = split(expanded, {mla_.qk_nope_head_dim, mla_.v_head_dim}, -1);
  const Tensor everywhere = expand(rotated, {-1, parts[0].size(1), -1, -1});
  return {copied_side_by_side(parts[0], everywhere), parts[1]};
}

Tensor LatentAttention::operator()(const Tensor& input, const Tensor& mask, const RotaryTables& tables, const Tensor& positions,
                                   Tensor& probabilities) const {
  Tensor hidden = input;
  ModuleCall call(module_, tape_, {&hidden});
  const std::int64_t batch = hidden.size(0), length = hidden.size(1);
  const Tensor q_states = transpose(view(queries(hidden), {batch, length, -1, mla_.qk_nope_head_dim + mla_.qk_rope_head_dim}), 1, 2);
  const std::vector<Tensor> q_parts = split(q_states, {mla_.qk_nope_head_dim, mla_.qk_rope_head_dim}, -1);
  const Tensor compressed = kv_down_(hidden);
  const std::vector<Tensor> kv_parts = split(compressed, {mla_.kv_lora_rank, mla_.qk_rope_head_dim}, -1);
  const Tensor normed = view(kv_norm_(kv_parts[0]), {batch, 1, length, mla_.kv_lora_rank});
  Tensor q_rotary = q_parts[1], k_rotary = view(kv_parts[1], {batch, 1, length, mla_.qk_rope_head_dim});
  rotate_both(q_rotary, k_rotary, tables);
  const Tensor query = cat({q_parts[0], q_rotary}, -1);
  const Keys keys = expand_keys(normed, k_rotary);
  Tensor output = attend(query, keys.key, keys.value, mask, causal_call(options_, spec_, positions, &probabilities));
  output = contiguous(reshape(output, {batch, length, -1}));
  output = output_(output);
  return call.done(output);
}

}  // namespace plimsoll::program
