#include "program/modules/transformers/compiled_rotary.hpp"

#include <array>
#include <initializer_list>
#include <string>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/ops/attention_kernels.hpp"
#include "program/modules/inductor.hpp"
#include "program/op.hpp"

namespace plimsoll::program {

namespace {

/// The graph's sizes and types: `low` is that of its products; under autocast the residual stream and the weights are fp32.
struct Shape {
  DType low = DType::bf16;
  bool checkpointed = false;  ///< torch.utils.checkpoint within the graph: the backward graph computes the activations again
  bool biased = false;        ///< queries, keys and values have biases
  bool casts = false;         ///< weights are cast within the graph: the copies are kept for the backward, gradients are cast back
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
  return {weight(layer, "input_layernorm"),
          weight(attention, "q_proj"),
          bias("q_proj"),
          weight(attention, "k_proj"),
          bias("k_proj"),
          weight(attention, "v_proj"),
          bias("v_proj"),
          weight(attention, "o_proj"),
          weight(layer, "post_attention_layernorm"),
          weight(mlp, "gate_proj"),
          weight(mlp, "up_proj"),
          weight(mlp, "down_proj")};
}

/// What the forward graph keeps for the backward, in the order of its results; when it is checkpointed, only its inputs, the first twelve.
enum Saved : std::size_t {
  kSavedHidden,
  kSavedInputNorm,
  kSavedQ,
  kSavedK,
  kSavedV,
  kSavedCosine,
  kSavedSine,
  kSavedOutput,
  kSavedMlpNorm,
  kSavedGate,
  kSavedUp,
  kSavedDown,
  kInputScale,
  kNormed,
  kValue,
  kQuery,
  kKey,
  kAttended,
  kLogSumExp,
  kRngState,
  kRngOffset,
  kProjected,
  kMlpScale,
  kMlpNormed,
  kGated,
  kRaised,
  kActivated,
  kSavedCount
};
using Kept = std::array<Tensor, kSavedCount>;

Tensor per_row(Tape& tape, const Shape& s) { return tape.empty({s.batch, s.length, 1}, DType::fp32); }

/// [batch, heads, length, head_dim], in memory [batch, length, heads, head_dim].
Tensor heads_inside(Tape& tape, const Shape& s, std::int64_t heads) {
  Tensor x = tape.empty({s.batch, heads, s.length, s.head_dim}, s.low);
  x.impl()->strides = {s.length * heads * s.head_dim, s.head_dim, heads * s.head_dim, 1};
  return x;
}

/// A projection's result as heads: [batch, heads, length, head_dim].
Tensor heads_of(const Shape& s, const Tensor& x) {
  return x.tape().view(x, {s.batch, s.kv_heads, s.length, s.head_dim}, {s.length * s.kv_width(), s.head_dim, s.kv_width(), 1});
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

Shape shape_of(const Tensor& hidden, const Weights& w, const Block& block, bool checkpointed) {
  const AttentionSpec& spec = *block.attention;
  const Autocast& autocast = hidden.tape().autocast;
  const DType low = autocast.enabled ? autocast.type : hidden.dtype();
  const bool casts = w.q.dtype() != low;
  if (low == DType::fp32) refuse("compiled blocks with fp32 products are not modelled", "compile");
  if (hidden.dtype() != w.q.dtype()) refuse("compiled blocks whose weights and inputs have different types are not modelled", "compile");
  return {low,           checkpointed,  w.q_bias.defined(),     casts, hidden.size(0), hidden.size(1), hidden.size(2), spec.heads,
          spec.kv_heads, spec.head_dim, block.mlp->intermediate};
}

/// The activations of the layer up to the MLP's two products, from the graph's inputs.
void compute(Tape& tape, const Shape& s, Kept& kept) {
  const auto cast = [&](Saved index) { kept[index] = low_copy(s, kept[index]); };
  const auto projection = [&](std::int64_t width) {
    return s.biased ? inductor::biased_product(tape, s.low, s.rows(), width, s.hidden)
                    : inductor::product(tape, s.low, s.rows(), width, s.hidden);
  };
  const Tensor &hidden = kept[kSavedHidden], &cosine = kept[kSavedCosine], &sine = kept[kSavedSine];

  // The input's norm and the projections.
  kept[kInputScale] = per_row(tape, s);
  kept[kNormed] = tape.empty(hidden.sizes(), s.low);
  inductor::fused(tape, {&hidden, &kept[kSavedInputNorm]}, {&kept[kNormed], &kept[kInputScale]});
  cast(kSavedQ);
  Tensor raw_query = projection(s.q_width());
  cast(kSavedK);
  Tensor raw_key = projection(s.kv_width());
  cast(kSavedV);
  kept[kValue] = heads_of(s, projection(s.kv_width()));

  // Rotation and attention.
  const auto rotate_key = [&] {
    kept[kKey] = heads_inside(tape, s, s.kv_heads);
    inductor::fused(tape, {&raw_key, &cosine, &sine}, {&kept[kKey]});
    raw_key.reset();
  };
  if (s.casts) rotate_key();
  kept[kQuery] = heads_inside(tape, s, s.heads);
  inductor::fused(tape, {&raw_query, &cosine, &sine}, {&kept[kQuery]});
  if (!s.casts) rotate_key();
  FlashOutputs attention = flash_attention_forward(kept[kQuery], kept[kKey], kept[kValue], true, 0);
  kept[kAttended] = std::move(attention.output);
  kept[kLogSumExp] = std::move(attention.log_sum_exp);
  kept[kRngState] = std::move(attention.rng_state);
  kept[kRngOffset] = std::move(attention.rng_offset);
  cast(kSavedOutput);
  kept[kProjected] = std::move(raw_query);  // its buffer has the output projection's size
  inductor::product_into(kept[kProjected], s.rows(), s.hidden, s.q_width());

  // The MLP's norm and its two products.
  kept[kMlpScale] = per_row(tape, s);
  kept[kMlpNormed] = tape.empty(hidden.sizes(), s.low);
  inductor::fused(tape, {&hidden, &kept[kProjected], &kept[kSavedMlpNorm]}, {&kept[kMlpNormed], &kept[kMlpScale]});
  cast(kSavedGate);
  kept[kGated] = inductor::product(tape, s.low, s.rows(), s.inner, s.hidden);
  cast(kSavedUp);
  kept[kRaised] = inductor::product(tape, s.low, s.rows(), s.inner, s.hidden);
}

/// The whole forward graph: the layer's output.
Tensor forward(Tape& tape, const Shape& s, Kept& kept) {
  compute(tape, s, kept);
  const Tensor& hidden = kept[kSavedHidden];
  kept[kSavedDown] = low_copy(s, kept[kSavedDown]);
  kept[kActivated] = tape.empty({s.batch, s.length, s.inner}, s.low);
  inductor::fused(tape, {&kept[kGated], &kept[kRaised]}, {&kept[kActivated]});
  Tensor branch = tape.empty(hidden.sizes(), s.low);
  inductor::product_into(branch, s.rows(), s.hidden, s.inner);
  // The sum takes the buffer of the last product where it has its type.
  Tensor output = s.casts ? tape.empty(hidden.sizes(), hidden.dtype()) : branch;
  inductor::fused(tape, {&branch, &hidden, &kept[kProjected]}, {&output});
  return output;
}

/// The same for a backward that computes everything again: nothing is kept, buffers are handed on.
Tensor forward_only(Tape& tape, const Shape& s, const Kept& kept) {
  const auto product = [&](Saved weight, std::int64_t width, std::int64_t inner) {
    const Tensor copy = low_copy(s, kept[weight]);
    return inductor::product(tape, s.low, s.rows(), width, inner);
  };
  const auto projection = [&](Saved weight, std::int64_t width) {
    const Tensor copy = low_copy(s, kept[weight]);
    return s.biased ? inductor::biased_product(tape, s.low, s.rows(), width, s.hidden)
                    : inductor::product(tape, s.low, s.rows(), width, s.hidden);
  };
  const Tensor &hidden = kept[kSavedHidden], &cosine = kept[kSavedCosine], &sine = kept[kSavedSine];
  Tensor normed = heads_inside(tape, s, s.heads);
  inductor::fused(tape, {&hidden, &kept[kSavedInputNorm]}, {&normed});
  Tensor raw_query = projection(kSavedQ, s.q_width()), raw_key = projection(kSavedK, s.kv_width());
  Tensor value = heads_of(s, projection(kSavedV, s.kv_width()));
  Tensor query = std::move(normed);
  inductor::fused(tape, {&raw_query, &cosine, &sine}, {&query});
  raw_query.reset();
  Tensor key = heads_inside(tape, s, s.kv_heads);
  inductor::fused(tape, {&raw_key, &cosine, &sine}, {&key});
  raw_key.reset();
  Tensor attended;
  {
    FlashOutputs attention = flash_attention_forward(query, key, value, true, 0);
    value.reset();
    key.reset();
    attended = std::move(attention.output);
  }
  Tensor projected = std::move(query);
  {
    const Tensor copy = low_copy(s, kept[kSavedOutput]);
    inductor::product_into(projected, s.rows(), s.hidden, s.q_width());
  }
  Tensor mlp_normed = std::move(attended);
  inductor::fused(tape, {&hidden, &projected, &kept[kSavedMlpNorm]}, {&mlp_normed});
  Tensor gated = product(kSavedGate, s.inner, s.hidden), raised = product(kSavedUp, s.inner, s.hidden);
  mlp_normed.reset();
  inductor::fused(tape, {&gated, &raised}, {&gated});
  raised.reset();
  const Tensor branch = product(kSavedDown, s.hidden, s.inner);
  gated.reset();
  Tensor output = s.casts ? tape.empty(hidden.sizes(), hidden.dtype()) : std::move(projected);
  inductor::fused(tape, {&branch, &hidden}, {&output});
  output.impl()->sizes = hidden.sizes();
  output.impl()->strides = hidden.strides();
  return output;
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

/// The activation's inputs become its gradients: of `up` in a new buffer, of `gate` in that of up's output.
struct GatedGradients {
  Tensor up, gate;
};

GatedGradients activation_backward(Tape& tape, const Shape& s, Kept& kept, const Tensor& incoming) {
  const Dims sizes{s.batch, s.length, s.inner};
  GatedGradients gradients;
  if (s.checkpointed) {  // one kernel gives the activation as well: none of its inputs can be written
    kept[kActivated] = tape.empty(sizes, s.low);
    gradients = {tape.empty(sizes, s.low), tape.empty(sizes, s.low)};
  } else {
    gradients = {tape.empty(sizes, s.low), kept[kRaised]};
  }
  inductor::fused(tape, {&incoming, &kept[kGated], &kept[kRaised]}, {&gradients.up, &gradients.gate});
  return gradients;
}

/// From the layer's output to its MLP's norm: `from_up` and `from_gate` are what both products give to the norm's output.
void mlp_backward(BackwardCall& b, const Shape& s, Kept& kept, const Tensor& incoming, Tensor& from_up, Tensor& from_gate) {
  Tape& tape = b.tape;
  const std::int64_t rows = s.rows();
  Tensor narrow = s.casts ? tape.empty({rows, s.hidden}, s.low) : incoming;
  if (s.casts) inductor::fused(tape, {&incoming}, {&narrow});
  if (s.checkpointed) {
    compute(tape, s, kept);
    kept[kSavedDown] = low_copy(s, kept[kSavedDown]);
  }
  Tensor down;
  const auto down_weight = [&] {
    down = inductor::product(tape, s.low, s.hidden, s.inner, rows);
    kept[kActivated].reset();
  };
  if (!s.checkpointed) down_weight();
  Tensor activated = inductor::product(tape, s.low, rows, s.inner, s.hidden);
  if (!s.checkpointed) narrow.reset();
  kept[kSavedDown].reset();
  if (!s.checkpointed) b.give(kDown, master_gradient(s, std::move(down)));
  GatedGradients gated = activation_backward(tape, s, kept, activated);
  kept[kGated].reset();
  kept[kRaised].reset();
  activated.reset();
  if (s.checkpointed) {
    down_weight();
    b.give(kDown, master_gradient(s, std::move(down)));
  }
  Tensor up = inductor::product(tape, s.low, s.inner, s.hidden, rows);
  from_up = s.checkpointed && s.casts ? std::move(narrow) : tape.empty({rows, s.hidden}, s.low);
  inductor::product_into(from_up, rows, s.hidden, s.inner);
  narrow.reset();
  gated.up.reset();
  kept[kSavedUp].reset();
  b.give(kUp, master_gradient(s, std::move(up)));
  Tensor gate = inductor::product(tape, s.low, s.inner, s.hidden, rows);
  if (s.checkpointed) {
    from_gate = std::move(kept[kMlpNormed]);
  } else {
    kept[kMlpNormed].reset();
    from_gate = tape.empty({rows, s.hidden}, s.low);
  }
  inductor::product_into(from_gate, rows, s.hidden, s.inner);
  gated.gate.reset();
  kept[kSavedGate].reset();
  b.give(kGate, master_gradient(s, std::move(gate)));
}

/// Gradients around attention: of the projections' results, and what each gives to the norm's output.
struct AttentionFlow {
  Tensor query, key, value, from_query, from_key, from_value;
};

/// Output projection, attention, rotation and the three projections, as far as the layer's input needs them.
AttentionFlow attention_backward(Tape& tape, const Shape& s, Kept& kept) {
  const DType low = s.low;
  const std::int64_t rows = s.rows();
  const auto drop = [&kept](std::initializer_list<Saved> saved) {
    for (const Saved index : saved) kept[index].reset();
  };
  AttentionFlow flow;
  Tensor attended = inductor::product(tape, low, rows, s.q_width(), s.hidden);
  drop({kSavedOutput});
  FlashGradients attention = flash_attention_backward(kept[kQuery], kept[kKey], kept[kValue], attended, true);
  if (!s.checkpointed) drop({kQuery, kKey});  // they were saved: only what the graph made itself is handed on
  drop({kLogSumExp, kRngState, kRngOffset, kValue});
  flow.value = std::move(attention.value);
  flow.from_value = s.checkpointed ? std::move(kept[kQuery]) : std::move(attended);
  inductor::product_into(flow.from_value, rows, s.hidden, s.kv_width());
  drop({kSavedV});
  flow.key = s.checkpointed ? std::move(kept[kKey]) : tape.empty({s.batch, s.length, s.kv_heads, s.head_dim}, low);
  inductor::fused(tape, {&attention.key}, {&flow.key});
  attention.key.reset();
  flow.from_key = s.checkpointed ? std::move(attended) : tape.empty({rows, s.hidden}, low);
  inductor::product_into(flow.from_key, rows, s.hidden, s.kv_width());
  drop({kSavedK});
  flow.query = tape.empty({s.batch, s.length, s.heads, s.head_dim}, low);
  inductor::fused(tape, {&attention.query}, {&flow.query});
  drop({kSavedSine, kSavedCosine});
  flow.from_query = std::move(attention.query);
  inductor::product_into(flow.from_query, rows, s.hidden, s.q_width());
  drop({kSavedQ});
  return flow;
}

/// What is left of the sums for the norms' weights.
struct NormSums {
  Tensor row_sums;              ///< of the kernel that takes both orders of sums
  Tensor mlp_norm, input_norm;  ///< partial sums of the others
};

/// The norms' weights: sums over rows of what the input's gradient sums over columns.
NormSums norm_sums(BackwardCall& b, const Shape& s, Kept& kept, const AttentionFlow& flow, Tensor& from_up, Tensor& from_gate, DType wide) {
  Tape& tape = b.tape;
  const std::int64_t rows = s.rows();
  const bool mixed = inductor::mixes_reduction_orders(rows, s.hidden);
  NormSums sums;
  const auto read_norms = [&](const Tensor& written) {
    inductor::fused(tape,
                    {&flow.from_value, &flow.from_key, &flow.from_query, &kept[kSavedHidden], &from_up, &from_gate, &kept[kProjected]},
                    {&written});
  };
  if (mixed) {
    sums.row_sums = per_row(tape, s);
    const Tensor workspace = inductor::mixed_order_workspace(tape, rows, s.hidden, 2);
    read_norms(workspace);
    b.give(kMlpNorm, inductor::mixed_order_sum(workspace, s.hidden, wide));
    b.give(kInputNorm, inductor::mixed_order_sum(workspace, s.hidden, wide));
  } else {
    sums.mlp_norm = inductor::partial_sums(tape, rows, s.hidden);
    sums.input_norm = inductor::partial_sums(tape, rows, s.hidden);
    read_norms(sums.mlp_norm);
  }
  from_up.reset();
  from_gate.reset();
  kept[kProjected].reset();
  kept[kMlpScale].reset();
  if (!mixed) b.give(kMlpNorm, inductor::finish_sum(sums.mlp_norm, s.hidden, wide));
  if (!b.needs(kQBias)) sums.mlp_norm.reset();
  return sums;
}

/// The attention's weights and biases. `narrow` is the output projection's gradient.
void attention_weights(BackwardCall& b, const Shape& s, Kept& kept, AttentionFlow& flow, NormSums& sums, Tensor& narrow, DType wide) {
  Tape& tape = b.tape;
  const DType low = s.low;
  const std::int64_t rows = s.rows();
  Tensor output = inductor::product(tape, low, s.hidden, s.q_width(), rows);
  narrow.reset();
  kept[kAttended].reset();
  b.give(kOutput, master_gradient(s, std::move(output)));
  Tensor kv_sums;
  Tensor v_weight = inductor::product(tape, low, s.kv_width(), s.hidden, rows);
  if (b.needs(kVBias)) b.give(kVBias, bias_gradient(flow.value, s.kv_width(), kv_sums, wide));
  flow.value.reset();
  b.give(kV, master_gradient(s, std::move(v_weight)));
  Tensor k_weight = inductor::product(tape, low, s.kv_width(), s.hidden, rows);
  if (b.needs(kKBias)) b.give(kKBias, bias_gradient(flow.key, s.kv_width(), kv_sums, wide));
  flow.key.reset();
  b.give(kK, master_gradient(s, std::move(k_weight)));
  kv_sums.reset();
  Tensor q_weight = inductor::product(tape, low, s.q_width(), s.hidden, rows);
  kept[kNormed].reset();
  if (b.needs(kQBias)) b.give(kQBias, bias_gradient(flow.query, s.q_width(), sums.mlp_norm, wide));
  flow.query.reset();
  b.give(kQ, master_gradient(s, std::move(q_weight)));
  sums.mlp_norm.reset();
  if (sums.input_norm) b.give(kInputNorm, inductor::finish_sum(sums.input_norm, s.hidden, wide));
  sums.input_norm.reset();
}

void backward(BackwardCall& b, const Shape& s) {
  Tape& tape = b.tape;
  Tensor incoming = b.take_grad();
  const DType wide = incoming.dtype();
  Kept kept;
  for (std::size_t i = 0; i < kept.size(); ++i) kept[i] = b.take_saved(i);

  Tensor from_up, from_gate;
  mlp_backward(b, s, kept, incoming, from_up, from_gate);

  // The MLP's norm: the gradient of the residual stream between attention and MLP.
  Tensor stream = tape.empty({s.batch, s.length, s.hidden}, wide);
  Tensor narrow = s.casts ? tape.empty({s.rows(), s.hidden}, s.low) : stream;
  inductor::fused(tape, {&from_up, &from_gate, &incoming, &kept[kProjected], &kept[kSavedHidden]}, {&stream});
  incoming.reset();
  kept[kSavedMlpNorm].reset();

  AttentionFlow flow = attention_backward(tape, s, kept);
  NormSums sums = norm_sums(b, s, kept, flow, from_up, from_gate, wide);
  attention_weights(b, s, kept, flow, sums, narrow, wide);

  // The input's gradient takes the place of the residual stream's.
  inductor::fused(tape, {&stream, &flow.from_value, &flow.from_key, &flow.from_query, &kept[kSavedHidden]}, {&stream});
  flow.from_value.reset();
  flow.from_key.reset();
  flow.from_query.reset();
  sums.row_sums.reset();
  for (const Saved index : {kSavedHidden, kSavedInputNorm, kInputScale}) kept[index].reset();
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
  require(block.mlp->gated && !block.mlp->fused_gate_up && (block.mlp->activation == "silu" || block.mlp->activation == "swish"),
          "this MLP");
  require(attention.dropout == 0 && block.hidden_dropout == 0, "dropout");
}

Tensor compiled_rotary_layer(Module& layer, const Block& block, const Tensor& hidden, const RotaryTables& tables, bool checkpointed) {
  const Weights w = weights_of(layer);
  const Shape s = shape_of(hidden, w, block, checkpointed);
  Op op("compiled_layer",
        {&hidden, &w.input_norm, &w.q, &w.q_bias, &w.k, &w.k_bias, &w.v, &w.v_bias, &w.output, &w.mlp_norm, &w.gate, &w.up, &w.down});
  Tape& tape = op.tape();

  Kept kept;
  const std::array<const Tensor*, kInputScale> inputs{&hidden,      &w.input_norm, &w.q,        &w.k,    &w.v,  &tables.cosine,
                                                      &tables.sine, &w.output,     &w.mlp_norm, &w.gate, &w.up, &w.down};
  for (std::size_t i = 0; i < inputs.size(); ++i) kept[i] = *inputs[i];
  Tensor output = s.checkpointed ? forward_only(tape, s, kept) : forward(tape, s, kept);
  for (const Tensor& tensor : kept) op.save_output(tensor);
  return op.done(output, [s](BackwardCall& b) { backward(b, s); });
}

}  // namespace plimsoll::program
