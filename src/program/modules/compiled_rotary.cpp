#include "program/modules/compiled_rotary.hpp"

#include <initializer_list>
#include <string>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/attention_kernels.hpp"
#include "program/modules/inductor.hpp"
#include "program/op.hpp"

namespace plimsoll::program {

namespace {

/// The graph's sizes and types: `low` is that of its products; under autocast the residual stream and the weights are fp32.
struct Shape {
  DType low = DType::bf16;
  bool casts = false;  ///< weights are cast within the graph: the copies are kept for the backward, gradients are cast back
  std::int64_t batch = 0, length = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, inner = 0;
  std::int64_t rows() const { return batch * length; }
  std::int64_t q_width() const { return heads * head_dim; }
  std::int64_t kv_width() const { return kv_heads * head_dim; }
};

/// The graph's inputs that may need gradients.
struct Weights {
  Tensor input_norm, q, q_bias, k, k_bias, v, v_bias, output, mlp_norm, gate, up, down;
};
enum Input : std::size_t { kHidden, kInputNorm, kQ, kQBias, kK, kKBias, kV, kVBias, kOutput, kMlpNorm, kGate, kUp, kDown };

Weights weights_of(Module& layer) {
  Module &attention = layer.child("self_attn"), &mlp = layer.child("mlp");
  const auto weight = [](Module& parent, const char* name) { return parent.child(name).tensor("weight"); };
  const auto bias = [&](const char* name) { return attention.child(name).tensor("bias"); };
  return {weight(layer, "input_layernorm"), weight(attention, "q_proj"), bias("q_proj"),        weight(attention, "k_proj"),
          bias("k_proj"),                   weight(attention, "v_proj"), bias("v_proj"),        weight(attention, "o_proj"),
          weight(layer, "post_attention_layernorm"), weight(mlp, "gate_proj"), weight(mlp, "up_proj"), weight(mlp, "down_proj")};
}

/// What the forward graph keeps, in the order of its results.
enum Saved : std::size_t {
  kSavedHidden, kSavedInputNorm, kSavedQ, kSavedK, kSavedV, kSavedCosine, kSavedSine, kSavedOutput, kSavedMlpNorm, kSavedGate, kSavedUp,
  kSavedDown, kInputScale, kNormed, kValue, kQuery, kKey, kAttended, kLogSumExp, kRngState, kRngOffset, kProjected, kMlpScale, kMlpNormed,
  kGated, kRaised, kActivated
};

Tensor per_row(Tape& tape, const Shape& s) { return tape.empty({s.batch, s.length, 1}, DType::fp32); }

/// [batch, heads, length, head_dim], in memory [batch, length, heads, head_dim].
Tensor heads_inside(Tape& tape, const Shape& s, std::int64_t heads) {
  Tensor x = tape.empty({s.batch, heads, s.length, s.head_dim}, s.low);
  x.impl()->strides = {s.length * heads * s.head_dim, s.head_dim, heads * s.head_dim, 1};
  return x;
}

/// The weight in the type of the products.
Tensor low_copy(const Shape& s, const Tensor& weight) {
  if (!s.casts) return weight;
  Tensor copy = weight.tape().empty(weight.sizes(), s.low);
  inductor::fused(weight.tape(), {&weight}, {&copy});
  return copy;
}

/// A weight's gradient in the weight's type.
Tensor master_gradient(const Shape& s, Tensor gradient) {
  if (!s.casts) return gradient;
  Tensor wide = gradient.tape().empty(gradient.sizes(), DType::fp32);
  inductor::fused(gradient.tape(), {&gradient}, {&wide});
  return wide;
}

Tensor projection(Tape& tape, const Shape& s, std::int64_t width, const Tensor& bias) {
  return bias ? inductor::biased_product(tape, s.low, s.rows(), width, s.hidden) : inductor::product(tape, s.low, s.rows(), width, s.hidden);
}

Shape shape_of(const Tensor& hidden, const Weights& w, const Block& block) {
  const AttentionSpec& spec = *block.attention;
  const Autocast& autocast = hidden.tape().autocast;
  const DType low = autocast.enabled ? autocast.type : hidden.dtype();
  const bool casts = w.q.dtype() != low;
  if (low == DType::fp32) refuse("compiled blocks with fp32 products are not modelled", "compile");
  if (hidden.dtype() != w.q.dtype()) refuse("compiled blocks whose weights and inputs have different types are not modelled", "compile");
  return {low, casts, hidden.size(0), hidden.size(1), hidden.size(2), spec.heads, spec.kv_heads, spec.head_dim, block.mlp->intermediate};
}

/// The gradient of a projection's bias: fp32 partial sums in `scratch`, which a sum of the same size left or which is made here.
Tensor bias_gradient(const Tensor& gradient, std::int64_t width, Tensor& scratch, DType type) {
  Tape& tape = gradient.tape();
  const std::int64_t splits = inductor::outer_sum_splits(tape, gradient.elements() / width, width);
  const bool fits = scratch && scratch.elements() == splits * width;
  if (!fits) scratch = inductor::partial_sums(tape, gradient.elements() / width, width);
  inductor::fused(tape, {&gradient}, {&scratch});
  return tape.empty({width}, type);
}

void backward(BackwardCall& b, const Shape& s) {
  Tape& tape = b.tape;
  const std::int64_t rows = s.rows();
  Tensor incoming = b.take_grad();
  const DType wide = incoming.dtype(), low = s.low;
  const auto drop = [&b](std::initializer_list<Saved> saved) {
    for (const Saved index : saved) b.take_saved(index);
  };

  // Down projection, activation; the gradient of gate's output takes the place of up's output.
  Tensor narrow = s.casts ? tape.empty({rows, s.hidden}, low) : incoming;
  if (s.casts) inductor::fused(tape, {&incoming}, {&narrow});
  Tensor down = inductor::product(tape, low, s.hidden, s.inner, rows);
  drop({kActivated});
  Tensor activated = inductor::product(tape, low, rows, s.inner, s.hidden);
  narrow.reset();
  drop({kSavedDown});
  b.give(kDown, master_gradient(s, std::move(down)));
  Tensor raised = tape.empty({s.batch, s.length, s.inner}, low), gated = b.take_saved(kRaised);
  inductor::fused(tape, {&activated, &b.saved(kGated), &gated}, {&raised, &gated});
  activated.reset();
  drop({kGated});
  Tensor up = inductor::product(tape, low, s.inner, s.hidden, rows);
  Tensor from_up = inductor::product(tape, low, rows, s.hidden, s.inner);
  raised.reset();
  drop({kSavedUp});
  b.give(kUp, master_gradient(s, std::move(up)));
  Tensor gate = inductor::product(tape, low, s.inner, s.hidden, rows);
  drop({kMlpNormed});
  Tensor from_gate = inductor::product(tape, low, rows, s.hidden, s.inner);
  gated.reset();
  drop({kSavedGate});
  b.give(kGate, master_gradient(s, std::move(gate)));

  // The MLP's norm: the gradient of the residual stream between attention and MLP.
  Tensor stream = tape.empty({s.batch, s.length, s.hidden}, wide);
  narrow = s.casts ? tape.empty({rows, s.hidden}, low) : stream;
  inductor::fused(tape, {&from_up, &from_gate, &incoming, &b.saved(kProjected), &b.saved(kSavedHidden)}, {&stream});
  incoming.reset();
  drop({kSavedMlpNorm});

  // Output projection and attention.
  Tensor attended = inductor::product(tape, low, rows, s.q_width(), s.hidden);
  drop({kSavedOutput});
  FlashGradients attention = flash_attention_backward(b.saved(kQuery), b.saved(kKey), b.saved(kValue), attended, true);
  drop({kQuery, kKey, kLogSumExp, kRngState, kRngOffset, kValue});
  Tensor value = std::move(attention.value);
  Tensor from_value = std::move(attended);
  inductor::product_into(from_value, rows, s.hidden, s.kv_width());
  drop({kSavedV});
  Tensor key = tape.empty({s.batch, s.length, s.kv_heads, s.head_dim}, low);
  inductor::fused(tape, {&attention.key}, {&key});
  attention.key.reset();
  Tensor from_key = inductor::product(tape, low, rows, s.hidden, s.kv_width());
  drop({kSavedK});
  Tensor query = tape.empty({s.batch, s.length, s.heads, s.head_dim}, low);
  inductor::fused(tape, {&attention.query}, {&query});
  drop({kSavedSine, kSavedCosine});
  Tensor from_query = std::move(attention.query);
  inductor::product_into(from_query, rows, s.hidden, s.q_width());
  drop({kSavedQ});

  // The norms' weights: sums over rows of what the input's gradient sums over columns.
  const bool mixed = inductor::mixes_reduction_orders(rows, s.hidden);
  Tensor row_sums, mlp_norm_sums, input_norm_sums;
  const auto read_norms = [&](const Tensor& written) {
    inductor::fused(tape, {&from_value, &from_key, &from_query, &b.saved(kSavedHidden), &from_up, &from_gate, &b.saved(kProjected)}, {&written});
  };
  if (mixed) {
    row_sums = per_row(tape, s);
    const Tensor workspace = inductor::mixed_order_workspace(tape, rows, s.hidden, 2);
    read_norms(workspace);
    b.give(kMlpNorm, inductor::mixed_order_sum(workspace, s.hidden, wide));
    b.give(kInputNorm, inductor::mixed_order_sum(workspace, s.hidden, wide));
  } else {
    mlp_norm_sums = inductor::partial_sums(tape, rows, s.hidden);
    input_norm_sums = inductor::partial_sums(tape, rows, s.hidden);
    read_norms(mlp_norm_sums);
  }
  from_up.reset();
  from_gate.reset();
  drop({kProjected, kMlpScale});
  if (!mixed) b.give(kMlpNorm, inductor::finish_sum(mlp_norm_sums, s.hidden, wide));
  if (!b.needs(kQBias)) mlp_norm_sums.reset();

  // The attention's weights and biases.
  Tensor output = inductor::product(tape, low, s.hidden, s.q_width(), rows);
  narrow.reset();
  drop({kAttended});
  b.give(kOutput, master_gradient(s, std::move(output)));
  Tensor kv_sums;
  Tensor v_weight = inductor::product(tape, low, s.kv_width(), s.hidden, rows);
  if (b.needs(kVBias)) b.give(kVBias, bias_gradient(value, s.kv_width(), kv_sums, wide));
  value.reset();
  b.give(kV, master_gradient(s, std::move(v_weight)));
  Tensor k_weight = inductor::product(tape, low, s.kv_width(), s.hidden, rows);
  if (b.needs(kKBias)) b.give(kKBias, bias_gradient(key, s.kv_width(), kv_sums, wide));
  key.reset();
  b.give(kK, master_gradient(s, std::move(k_weight)));
  kv_sums.reset();
  Tensor q_weight = inductor::product(tape, low, s.q_width(), s.hidden, rows);
  drop({kNormed});
  if (b.needs(kQBias)) b.give(kQBias, bias_gradient(query, s.q_width(), mlp_norm_sums, wide));
  query.reset();
  b.give(kQ, master_gradient(s, std::move(q_weight)));
  mlp_norm_sums.reset();
  if (!mixed) b.give(kInputNorm, inductor::finish_sum(input_norm_sums, s.hidden, wide));
  input_norm_sums.reset();

  // The input's gradient takes the place of the residual stream's.
  inductor::fused(tape, {&stream, &from_value, &from_key, &from_query, &b.saved(kSavedHidden)}, {&stream});
  from_value.reset();
  from_key.reset();
  from_query.reset();
  row_sums.reset();
  drop({kSavedHidden, kSavedInputNorm, kInputScale});
  b.give(kHidden, std::move(stream));
}

}  // namespace

void check_compiled_rotary(const Block& block) {
  const auto require = [](bool known, const char* what) {
    if (!known) refuse(std::string("compiled blocks with ") + what + " are not modelled", "compile");
  };
  require(block.attention && block.mlp && !block.moe, "a mixture of experts");
  const AttentionSpec& attention = *block.attention;
  require(block.placement == NormPlacement::pre, "this placement of norms");
  require(block.norm.kind == NormSpec::Kind::rms_norm && !block.norm.unit_offset, "these norms");
  require(attention.positions == Positions::rope && attention.rotary_dim == attention.head_dim, "these positions");
  require(attention.qk_norm == AttentionSpec::QkNorm::none && !attention.fused_qkv, "these projections of queries and keys");
  require(!attention.output_bias && !block.mlp->bias, "these biases");
  require(attention.causal && attention.softcap == 0 && attention.clip == 0, "this attention");
  require(attention.heads * attention.head_dim == attention.hidden, "heads that are wider or narrower than the model");
  require(attention.head_dim % 8 == 0 && attention.head_dim <= 256, "this head dimension");
  require(block.mlp->gated && !block.mlp->fused_gate_up && (block.mlp->activation == "silu" || block.mlp->activation == "swish"), "this MLP");
  require(attention.dropout == 0 && block.hidden_dropout == 0, "dropout");
}

Tensor compiled_rotary_layer(Module& layer, const Block& block, const Tensor& hidden, const RotaryTables& tables) {
  const Weights w = weights_of(layer);
  const Shape s = shape_of(hidden, w, block);
  Op op("compiled_layer", {&hidden, &w.input_norm, &w.q, &w.q_bias, &w.k, &w.k_bias, &w.v, &w.v_bias, &w.output, &w.mlp_norm, &w.gate, &w.up,
                           &w.down});
  Tape& tape = op.tape();

  // The input's norm and the projections.
  const Tensor input_scale = per_row(tape, s);
  const Tensor normed = tape.empty(hidden.sizes(), s.low);
  inductor::fused(tape, {&hidden, &w.input_norm}, {&normed, &input_scale});
  const Tensor q_weight = low_copy(s, w.q);
  const Tensor raw_query = projection(tape, s, s.q_width(), w.q_bias);
  const Tensor k_weight = low_copy(s, w.k);
  Tensor raw_key = projection(tape, s, s.kv_width(), w.k_bias);
  const Tensor v_weight = low_copy(s, w.v);
  Tensor value = projection(tape, s, s.kv_width(), w.v_bias);
  value = tape.view(value, {s.batch, s.kv_heads, s.length, s.head_dim}, {s.length * s.kv_width(), s.head_dim, s.kv_width(), 1});

  // Rotation and attention.
  Tensor query, key;
  const auto rotate_key = [&] {
    key = heads_inside(tape, s, s.kv_heads);
    inductor::fused(tape, {&raw_key, &tables.cosine, &tables.sine}, {&key});
    raw_key.reset();
  };
  if (s.casts) rotate_key();
  query = heads_inside(tape, s, s.heads);
  inductor::fused(tape, {&raw_query, &tables.cosine, &tables.sine}, {&query});
  if (!s.casts) rotate_key();
  const FlashOutputs attention = flash_attention_forward(query, key, value, true, 0);
  const Tensor output_weight = low_copy(s, w.output);
  const Tensor& projected = raw_query;  // its buffer has the output projection's size
  inductor::product_into(projected, s.rows(), s.hidden, s.q_width());

  // The gated MLP.
  const Tensor mlp_scale = per_row(tape, s);
  const Tensor mlp_normed = tape.empty(hidden.sizes(), s.low);
  inductor::fused(tape, {&hidden, &projected, &w.mlp_norm}, {&mlp_normed, &mlp_scale});
  const Tensor gate_weight = low_copy(s, w.gate);
  const Tensor gated = inductor::product(tape, s.low, s.rows(), s.inner, s.hidden);
  const Tensor up_weight = low_copy(s, w.up);
  const Tensor raised = inductor::product(tape, s.low, s.rows(), s.inner, s.hidden);
  const Tensor down_weight = low_copy(s, w.down);
  const Tensor activated = tape.empty({s.batch, s.length, s.inner}, s.low);
  inductor::fused(tape, {&gated, &raised}, {&activated});
  Tensor output = tape.empty(hidden.sizes(), s.low);
  inductor::product_into(output, s.rows(), s.hidden, s.inner);
  if (s.casts) {
    const Tensor branch = std::exchange(output, tape.empty(hidden.sizes(), hidden.dtype()));
    inductor::fused(tape, {&branch, &hidden, &projected}, {&output});
  } else {  // the sum takes the buffer of the last product
    inductor::fused(tape, {&output, &hidden, &projected}, {&output});
  }

  for (const Tensor* kept : std::initializer_list<const Tensor*>{
           &hidden, &w.input_norm, &q_weight, &k_weight, &v_weight, &tables.cosine, &tables.sine, &output_weight, &w.mlp_norm, &gate_weight,
           &up_weight, &down_weight, &input_scale,
           &normed, &value, &query, &key, &attention.output, &attention.log_sum_exp, &attention.rng_state, &attention.rng_offset, &projected,
           &mlp_scale, &mlp_normed, &gated, &raised, &activated}) {
    op.save_output(*kept);
  }
  return op.done(output, [s](BackwardCall& b) { backward(b, s); });
}

}  // namespace plimsoll::program
