#include "program/modules/vllm/layers.hpp"

#include <algorithm>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/kernels.hpp"

namespace plimsoll::program::vllm {
namespace {

/// VLLM_FUSED_MOE_CHUNK_SIZE: tokens of which the experts' buffers are made at most.
constexpr std::int64_t kMostExpertTokens = 32 * 1024;

}  // namespace

Tensor Layers::product(const Tensor& x, std::int64_t out) {
  Tensor cast;
  if (rank_.quantizes_inputs) {
    cast = tape_.empty(x.sizes(), DType::fp8);
    pointwise(cast, {&x});
  }
  Tensor y = tape_.empty({x.size(0), out}, rank_.type);
  linear_product(tape_, LinearPass::forward, {x.size(0), x.size(1), out, operands(), rank_.type});
  return y;
}

Tensor Layers::column(const Tensor& x, std::int64_t out) { return product(x, out / rank_.tp); }

Tensor Layers::reduced(Tensor partial) {
  if (rank_.tp == 1) return partial;
  tape_.collective({CollectiveKind::all_reduce, Group::tensor, partial.bytes(), rank_.type}, tape_.stream);
  if (rank_.reduces_in_place) return partial;
  return tape_.empty(partial.sizes(), rank_.type);  // while the partial sum is still the caller's
}

Tensor Layers::row(const Tensor& x, std::int64_t out) {
  Tensor partial = product(x, out);
  return reduced(frames_.hand(partial));
}

Tensor Layers::embedded() {
  Tensor rows = tape_.empty({rank_.tokens, rank_.model.hidden_size}, rank_.type);
  gather(Gather::Function::index, rows.elements(), {&rows}, {&rows});
  return reduced(frames_.hand(rows));
}

void Layers::normalize(const Tensor& x, const Tensor& residual) {
  row_wise(RowWise::Function::rms_norm, x.size(0), x.size(1), {&x, &residual}, {&x, &residual});
}

Tensor Layers::normalized(const Tensor& x) {
  Tensor y = tape_.empty(x.sizes(), rank_.type);
  row_wise(RowWise::Function::rms_norm, x.size(0), x.size(1), {&x}, {&y});
  return y;
}

Tensor Layers::attended(const AttentionSpec& spec) {
  const std::int64_t width = spec.mla ? spec.mla->v_head_dim : spec.head_dim;
  Tensor output = tape_.empty({rank_.tokens, spec.heads / rank_.tp * width}, rank_.type);
  if (rank_.prompt > 0) attend(spec, output);
  if (rank_.context > 0) read_cache(spec, output);
  return output;
}

/// Prompts of equal length, each within itself.
void Layers::attend(const AttentionSpec& spec, const Tensor& output) {
  Attention kernel;
  kernel.library = rank_.device.from(90) && !rank_.device.from(100) ? AttentionLibrary::flash3 : AttentionLibrary::flash2;
  kernel.type = output.dtype();
  kernel.causal = true;
  kernel.batch = std::max<std::int64_t>(1, rank_.tokens / rank_.prompt);
  kernel.queries = kernel.keys = std::min(rank_.prompt, rank_.tokens);
  kernel.heads = spec.heads / rank_.tp;
  kernel.kv_heads = spec.mla ? kernel.heads : kv_heads_on_rank(spec.kv_heads, rank_.tp);
  kernel.head_dim = spec.mla ? spec.mla->qk_nope_head_dim + spec.mla->qk_rope_head_dim : spec.head_dim;
  kernel.value_dim = spec.mla ? spec.mla->v_head_dim : spec.head_dim;
  kernel.window = spec.sliding_window.value_or(0);
  tape_.kernel({kernel});
}

/// A token of each sequence against all that the layer keeps of it: bound by what is read.
void Layers::read_cache(const AttentionSpec& spec, const Tensor& output) {
  const std::int64_t kept = spec.sliding_window ? std::min(rank_.context, *spec.sliding_window) : rank_.context;
  const std::int64_t width =
      spec.mla ? spec.mla->kv_lora_rank + spec.mla->qk_rope_head_dim : 2 * kv_heads_on_rank(spec.kv_heads, rank_.tp) * spec.head_dim;
  pointwise(tape_, Pointwise::Form::fused, {packed(rank_.tokens * kept * width, rank_.cache)}, {packed(output.elements(), rank_.type)});
}

/// A product of every head's own matrix.
void Layers::multiply_heads(std::int64_t heads, std::int64_t in, std::int64_t out) {
  grouped_linear_product(tape_, LinearPass::forward, {rank_.tokens * heads, in, out, rank_.type, rank_.type}, heads);
}

Tensor Layers::attention(const AttentionSpec& spec, Tensor hidden) {
  if (spec.mla) return latent_attention(spec, std::move(hidden));
  const std::int64_t heads = spec.heads / rank_.tp, kv_heads = kv_heads_on_rank(spec.kv_heads, rank_.tp);
  Tensor qkv = product(hidden, (heads + 2 * kv_heads) * spec.head_dim);
  frames_.spent(hidden);
  if (spec.positions == Positions::rope) pointwise(qkv, {&qkv});  // rotated where they are
  Tensor output = attended(spec);
  frames_.spent(qkv);
  return row(output, spec.hidden);
}

Tensor Layers::latent_attention(const AttentionSpec& spec, Tensor hidden) {
  const MlaSpec& mla = *spec.mla;
  const std::int64_t heads = spec.heads / rank_.tp, key = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
  Tensor queries = mla.q_lora_rank > 0 ? product(hidden, mla.q_lora_rank) : product(hidden, heads * key);
  Tensor latent = product(hidden, mla.kv_lora_rank + mla.qk_rope_head_dim);
  frames_.spent(hidden);
  if (mla.q_lora_rank > 0) {
    queries = normalized(queries);
    queries = product(queries, heads * key);
  }
  const Tensor normed = tape_.empty({rank_.tokens, mla.kv_lora_rank}, rank_.type);
  row_wise(RowWise::Function::rms_norm, rank_.tokens, mla.kv_lora_rank, {&latent}, {&normed});
  pointwise(queries, {&queries});
  if (rank_.prompt > 0) (void)product(normed, heads * (mla.qk_nope_head_dim + mla.v_head_dim));
  if (rank_.context > 0) multiply_heads(heads, mla.qk_nope_head_dim, mla.kv_lora_rank);
  Tensor output = attended(spec);
  if (rank_.context > 0) multiply_heads(heads, mla.kv_lora_rank, mla.v_head_dim);
  return row(output, spec.hidden);
}

Tensor Layers::mlp(std::int64_t intermediate, bool gated, Tensor x) {
  Tensor gate_up = column(x, (gated ? 2 : 1) * intermediate);
  frames_.spent(x);
  x = tape_.empty({gate_up.size(0), intermediate / rank_.tp}, rank_.type);
  pointwise(x, {&gate_up});
  frames_.spent(gate_up);
  return row(x, rank_.model.hidden_size);
}

Tensor Layers::mixture(const MoeSpec& spec, Tensor x) {
  Tensor shared;
  if (spec.shared_intermediate > 0) shared = mlp(spec.shared_intermediate, spec.gated, x);
  const Tensor scores = product(x, spec.experts);
  const Tensor weights = tape_.empty({rank_.tokens, spec.top_k}, DType::fp32),
               chosen = tape_.empty({rank_.tokens, spec.top_k}, DType::int32);
  row_wise(RowWise::Function::softmax, rank_.tokens, spec.experts, {&scores}, {&weights, &chosen});
  const std::int64_t rows = std::min(rank_.tokens, kMostExpertTokens) * spec.top_k, inner = spec.expert_intermediate / rank_.tp;
  const std::int64_t first = (spec.gated ? 2 : 1) * inner;
  Tensor cast;
  if (rank_.quantizes_inputs) cast = tape_.empty(x.sizes(), DType::fp8);
  const Tensor outer = tape_.empty({rows, std::max(first, spec.width())}, rank_.type);  // both products', one behind the other
  const Tensor active = tape_.empty({rows, inner}, rank_.type);
  const std::int64_t used = std::min(spec.experts, rows);  // at most one expert a row is read
  grouped_linear_product(tape_, LinearPass::forward, {rows, spec.width(), first, operands(), rank_.type}, used);
  pointwise(active, {&outer});
  grouped_linear_product(tape_, LinearPass::forward, {rows, inner, spec.width(), operands(), rank_.type}, used);
  pointwise(x, {&outer});  // the experts' sum is written over their input
  if (shared) pointwise(x, {&x, &shared});
  return reduced(std::move(x));
}

Tensor Layers::feed_forward(const Block& block, Tensor x) {
  if (block.moe) return mixture(*block.moe, std::move(x));
  if (!block.mlp) return x;
  return mlp(block.mlp->intermediate, block.mlp->gated, std::move(x));
}

Tensor Layers::mixed(const Block& block, Tensor x) { return attention(*block.attention, std::move(x)); }

Stream Layers::residual_layer(const Block& block, Tensor hidden, Tensor residual) {
  const bool behind = block.placement == NormPlacement::sandwich || block.placement == NormPlacement::post_branch;
  const bool before = block.placement != NormPlacement::post_branch;
  if (!residual) {
    residual = hidden;
    if (before) hidden = normalized(hidden);
  } else if (before) {
    normalize(hidden, residual);
  }
  hidden = mixed(block, frames_.hand(hidden));
  if (behind) hidden = normalized(hidden);
  normalize(hidden, residual);
  hidden = feed_forward(block, frames_.hand(hidden));
  if (behind) hidden = normalized(hidden);
  return {std::move(hidden), std::move(residual)};
}

Stream Layers::parallel_layer(const Block& block, Tensor hidden) {
  Tensor normed = normalized(hidden);
  Tensor attended = mixed(block, normed);
  Tensor fed = feed_forward(block, frames_.hand(normed));
  pointwise(fed, {&fed, &attended, &hidden});
  return {std::move(fed), {}};
}

Stream Layers::layer(const Block& block, Tensor hidden, Tensor residual) {
  const LabelScope label(tape_, tape_.intern(block.name));
  if (block.mamba)
    refuse("an engine's pass over recurrent layers (" + block.name + ") is not modelled: their states are no pages of keys", block.name);
  if (!block.attention) refuse("an engine's pass over " + block.name + " is not modelled: it has no attention", block.name);
  switch (block.placement) {
    case NormPlacement::pre:
    case NormPlacement::sandwich:
    case NormPlacement::post_branch:
      return residual_layer(block, std::move(hidden), std::move(residual));
    case NormPlacement::parallel:
    case NormPlacement::parallel_two:
      return parallel_layer(block, std::move(hidden));
    case NormPlacement::post:
      break;
  }
  refuse("an engine's pass over layers with norms behind the sum (" + block.name + ") is not modelled", block.name);
}

Tensor Layers::final_norm(Tensor hidden, Tensor residual) {
  if (!residual) return normalized(hidden);
  normalize(hidden, residual);
  return hidden;
}

}  // namespace plimsoll::program::vllm
