#include "program/modules/transformers/rotary_attention.hpp"

#include <array>
#include <utility>

#include "program/modules/transformers/causal_lm.hpp"
#include "program/modules/transformers/gpt_oss.hpp"
#include "program/modules/transformers/rotary_complex.hpp"
#include "program/ops/liger.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program::rotary {

namespace {

void add_norms(Module& list, Tape& tape, const Block& block, std::vector<Norm>& norms) {
  NormSpec spec = block.norm;
  spec.bias = false;
  for (const auto& module : list.children) norms.emplace_back(*module, tape, spec);
}

/// StableLmLayerNormPerHead: every head through a norm of its own.
Tensor normed_heads(const Tensor& x, const std::vector<Norm>& norms) {
  const std::vector<Tensor> parts = split(x, std::vector<std::int64_t>(norms.size(), 1), 1);
  std::vector<Tensor> normed;
  for (std::size_t i = 0; i < norms.size(); ++i) normed.push_back(norms[i](parts[i]));
  return cat(normed, 1);
}

/// get_llama_4_attn_scale: 1 + beta log(1 + floor(positions / trained length)), [batch, 1, length, 1].
Tensor position_scales(Tape& tape, const Tensor& positions) {
  Tensor scales;
  {
    const Tensor share = elementwise(tape, {&positions}, DType::fp32);
    const Tensor whole = elementwise(tape, {&share}, DType::fp32);
    const Tensor shifted = add_scalar(whole);
    const Tensor logarithm = elementwise(tape, {&shifted}, DType::fp32);
    const Tensor scaled = multiply_scalar(logarithm);
    scales = add_scalar(scaled);
  }
  return unsqueeze(unsqueeze(scales, 1), -1);
}

/// Llama4TextAttention's temperature: log1p(floor((positions + 1) / floor_scale)) * attn_scale + 1, [1, length, 1, 1].
Tensor tuned_scales(const Tensor& positions) {
  Tape& tape = positions.tape();
  const Tensor wide = to(positions, DType::fp32);
  Tensor scales = add_scalar(wide);
  scales = divide_scalar(scales);
  for (int i = 0; i < 2; ++i) scales = elementwise(tape, {&scales}, DType::fp32);  // floor, log1p
  scales = multiply_scalar(scales);
  scales = add_scalar(scales);
  return view(scales, {1, scales.size(0), 1, 1});
}

}  // namespace

Attention::Attention(Module& module, Tape& tape, const RunOptions& options, const Block& block, const Style& style)
    : module_(module), tape_(tape), options_(options), spec_(*block.attention), style_(style), output_(projection(style.output)) {
  dropout_ = style.dropout_within ? block.hidden_dropout : 0;
  if (spec_.fused_qkv) {
    q_ = projection("qkv_proj");
  } else {
    q_ = projection("q_proj");
    k_ = projection("k_proj");
    v_ = projection("v_proj");
  }
  if (spec_.qk_norm == AttentionSpec::QkNorm::none || style.complex_heads) return;
  if (style.norm_each_head) {
    add_norms(module.child(style.q_norm).child("norms"), tape, block, q_norms_);
    add_norms(module.child(style.k_norm).child("norms"), tape, block, k_norms_);
    return;
  }
  q_norm_.emplace(module.child(style.q_norm, !block.norm.weight), tape, block.norm, style.norm_rounding, style.liger_head_norms());
  k_norm_.emplace(module.child(style.k_norm, !block.norm.weight), tape, block.norm, style.norm_rounding, style.liger_head_norms());
}

Tensor Attention::operator()(const Tensor& input, const LayerInputs& inputs, Tensor& probabilities) const {
  Tensor hidden = input;
  ModuleCall call(module_, tape_, {&hidden});
  const std::int64_t batch = hidden.size(0), length = hidden.size(1);
  Tensor query, key, value;
  std::vector<Tensor> parts;
  if (style_.complex_heads) {
    project_complex(hidden, inputs.tables, query, key, value);
  } else {
    project(hidden, query, key, value);
    rotate_both(query, key, inputs.tables, parts);
  }
  Tensor scales;
  if (spec_.tuned_scale) {
    const Tensor positions = add_scalar(arange(tape_, length));
    scales = tuned_scales(positions);
    const Tensor scaled = multiply(query, scales);
    query = to(scaled, query.dtype());
  }
  if (style_.complex_heads) {
    query = transpose(query, 1, 2);
    key = transpose(key, 1, 2);
  }
  if (style_.norms_behind_rotation) norm_both(query, key);
  if (style_.scaled_queries) query = multiply(query, to(position_scales(tape_, inputs.positions), query.dtype()));
  if (options_.cache) {  // DynamicLayer.update of an empty cache, whose values are of the keys' type
    key = cat({key}, 2);
    value = value.dtype() == key.dtype() ? cat({value}, 2) : to(value, key.dtype());
    options_.cache->insert(options_.cache->end(), {key, value});
  }
  Tensor output = attend_masked(query, key, value, inputs, probabilities);
  output = contiguous(reshape(output, {batch, length, -1}));
  output = output_(output);
  output = dropout(output, dropout_);
  return call.done(output);
}

Tensor Attention::attend_masked(const Tensor& query, const Tensor& key, const Tensor& value, const LayerInputs& inputs,
                                Tensor& probabilities) const {
  const Tensor& mask = spec_.sliding_window ? inputs.sliding_mask : inputs.full_mask;
  const AttentionCall call{.kind = options_.attention,
                           .causal = spec_.causal,
                           .dropout = spec_.dropout,
                           .softcap = spec_.softcap > 0,
                           .window = spec_.sliding_window.value_or(0),
                           .positions = &inputs.positions,
                           .packed_length = options_.packed_length,
                           .release = options_.release,
                           .weights = &probabilities,
                           .softmax_in_fp32 = !style_.complex_heads};
  if (style_.sinks) return attend_with_sinks(query, key, value, mask, module_.tensor("sinks"), call);
  return attend(query, key, value, mask, call);
}

void Attention::norm_both(Tensor& query, Tensor& key) const {
  query = (*q_norm_)(query);
  key = (*k_norm_)(key);
}

/// clip_qkv, in place.
void Attention::clamp_all(Tensor& query, Tensor& key, Tensor& value) const {
  if (spec_.clip == 0) return;
  for (Tensor* x : {&query, &key, &value}) *x = clamp_into(*x);
}

/// [batch, heads, length, head_dim] of the three projections; a family's order of projections, views and norms decides what lives together.
void Attention::project(const Tensor& hidden, Tensor& query, Tensor& key, Tensor& value) const {
  const std::int64_t batch = hidden.size(0), length = hidden.size(1);
  const auto split = [&](const Tensor& x) { return view(x, {batch, length, -1, spec_.head_dim}); };
  const auto turn = [](const Tensor& x) { return transpose(x, 1, 2); };
  const auto heads = [&](const Tensor& x) { return turn(split(x)); };
  const auto as_it_is = [](Tensor x) { return x; };
  std::array<Tensor, 3> together;  // of a library's function, which answers all three at once
  if (module_.projections) together = module_.projections(hidden);
  const auto projected = [&](std::size_t which, const Linear& linear) {
    return module_.projections ? std::exchange(together[which], {}) : linear(hidden);
  };
  const auto project_each = [&](const auto& shaped) {
    query = shaped(projected(0, q_));
    key = shaped(projected(1, k_));
    value = shaped(projected(2, v_));
  };
  const auto shape_each = [&](const auto& shaped) {
    for (Tensor* x : {&query, &key, &value}) *x = shaped(*x);
  };
  if (spec_.fused_qkv) {
    const Tensor qkv = q_(hidden);
    const std::int64_t q_end = spec_.heads * spec_.head_dim, k_end = q_end + spec_.kv_heads * spec_.head_dim;
    const Tensor q = slice(qkv, -1, 0, q_end), k = slice(qkv, -1, q_end, k_end), v = slice(qkv, -1, k_end, qkv.size(-1));
    query = heads(q);
    key = heads(k);
    value = heads(v);
    return;
  }
  switch (spec_.qk_norm) {
    case AttentionSpec::QkNorm::none:
      if (spec_.clip == 0 && !style_.norm_each_head) return project_each(heads);
      project_each(as_it_is);  // stablelm, olmo: all projections, then all views
      clamp_all(query, key, value);
      return shape_each(heads);
    case AttentionSpec::QkNorm::each_head:
      if (style_.norm_each_head) {
        project_each(as_it_is);
        shape_each(heads);
        query = normed_heads(query, q_norms_);
        key = normed_heads(key, k_norms_);
        return;
      }
      [[fallthrough]];  // cohere: one norm whose weight is [heads, head_dim]
    case AttentionSpec::QkNorm::per_head:
      if (style_.norms_behind_rotation) return project_each(heads);
      if (style_.norms_turned_heads) {
        project_each(heads);
        return norm_both(query, key);
      }
      if (style_.norms_behind_all) {
        project_each(split);
        norm_both(query, key);
        return shape_each(turn);
      }
      query = turn((*q_norm_)(split(projected(0, q_))));
      key = turn((*k_norm_)(split(projected(1, k_))));
      value = heads(projected(2, v_));
      return;
    case AttentionSpec::QkNorm::full_width:
      query = (*q_norm_)(q_(hidden));
      key = (*k_norm_)(k_(hidden));
      value = v_(hidden);
      clamp_all(query, key, value);
      return shape_each(heads);
  }
}

/// Llama4TextAttention: queries and keys rotate and are normed as [batch, length, heads, dim].
void Attention::project_complex(const Tensor& hidden, const RotaryTables& tables, Tensor& query, Tensor& key, Tensor& value) const {
  const auto heads = [&](const Tensor& x) { return view(x, {hidden.size(0), hidden.size(1), -1, spec_.head_dim}); };
  query = heads(q_(hidden));
  key = heads(k_(hidden));
  value = transpose(heads(v_(hidden)), 1, 2);
  if (spec_.positions == Positions::rope) rotate_complex_both(query, key, tables);
  if (spec_.qk_norm == AttentionSpec::QkNorm::none) return;
  for (Tensor* x : {&query, &key}) *x = normed_in_fp32(*x);
}

void Attention::rotate_both(Tensor& query, Tensor& key, const RotaryTables& tables, std::vector<Tensor>& parts) const {
  if (spec_.positions != Positions::rope) return;
  if (style_.sinks) {
    const Tensor turned_query = rotate_by_half_tables(query, tables);
    key = rotate_by_half_tables(key, tables);
    query = turned_query;
    return;
  }
  if (style_.liger && style_.liger->modules.rope) {
    const auto turned = liger_rope(query, key, tables.cosine, tables.sine);
    query = turned.first;
    key = turned.second;
    return;
  }
  if (!style_.fp32_tables) {
    std::vector<Tensor> own;
    std::vector<Tensor>* kept = style_.rotates_in_frame ? &parts : style_.joins_both_at_last ? &own : nullptr;
    return rotate_pair(query, key, tables, style_.rotation, kept);
  }
  Tensor turned_query = query, turned_key = key;
  rotate_pair(turned_query, turned_key, tables, style_.rotation);
  const Tensor low_query = to(turned_query, query.dtype()), low_key = to(turned_key, key.dtype());
  query = low_query;
  key = low_key;
}

}  // namespace plimsoll::program::rotary
