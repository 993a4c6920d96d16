#include <algorithm>
#include <string>

#include "plimsoll/error.hpp"
#include "program/modules/transformers/compiled/families.hpp"
#include "program/modules/transformers/compiled/model.hpp"
#include "program/modules/transformers/compiled/operator.hpp"

namespace plimsoll::program {

namespace {

CompiledArguments arguments_of(Module& layer, const CompiledNames& names, const Tensor& hidden, const RotaryTables& tables, bool rotary) {
  Module &attention = layer.child("self_attn"), &mlp = layer.child("mlp");
  CompiledArguments all;
  all[kHidden] = hidden;
  if (rotary) {
    all[kCosine] = tables.cosine;
    all[kSine] = tables.sine;
  }
  const auto weight = [&all](CompiledSlot slot, Module& parent, const char* name) {
    if (Module* module = parent.find_child(name)) all[slot] = module->tensor("weight");
  };
  const auto with_bias = [&](CompiledSlot slot, Module& parent, const char* name) {
    weight(slot, parent, name);
    if (all[slot]) all[slot + 1] = parent.child(name).tensor("bias");
  };
  with_bias(kInputNorm, layer, "input_layernorm");
  with_bias(kQkv, attention, "qkv_proj");
  with_bias(kQ, attention, "q_proj");
  weight(kQNorm, attention, names.q_norm);
  with_bias(kK, attention, "k_proj");
  weight(kKNorm, attention, names.k_norm);
  with_bias(kV, attention, "v_proj");
  with_bias(kOutput, attention, names.output);
  with_bias(kMlpNorm, layer, "post_attention_layernorm");
  with_bias(kGate, mlp, "gate_proj");
  with_bias(kUp, mlp, mlp.find_child("gate_up_proj") ? "gate_up_proj" : names.up);
  with_bias(kDown, mlp, names.down);
  return all;
}

CompiledShape shape_of(const Block& block, const CompiledNames& names, bool checkpointed) {
  const AttentionSpec& spec = *block.attention;
  CompiledShape s;
  s.checkpointed = checkpointed;
  s.layer_norm = block.norm.kind != NormSpec::Kind::rms_norm;
  s.norm_weights = block.norm.weight;
  s.widened_weights = block.norm.unit_offset;
  s.head_norms = spec.qk_norm == AttentionSpec::QkNorm::per_head;
  s.gated = block.mlp->gated;
  s.scaled_branches = std::any_of(block.operators.begin(), block.operators.end(),
                                  [](const Operator& one) { return one.name.ends_with("residual_multiplier"); });
  s.relu_squared = block.mlp->activation == "relu2";
  s.fused_qkv = spec.fused_qkv;
  s.rotary = spec.positions == Positions::rope;
  s.fp32_tables = names.fp32_tables;
  s.fused_gate_up = block.mlp->fused_gate_up;
  s.attention_dropout = spec.dropout;
  s.heads = spec.heads;
  s.kv_heads = spec.kv_heads;
  s.head_dim = spec.head_dim;
  s.inner = block.mlp->intermediate;
  return s;
}

/// Of layers with a mask those are known whose queries, keys and values are three products.
void check_masked(const CompiledShape& s, std::int64_t length) {
  constexpr std::int64_t kWhole = 64;
  if (!s.rotary || s.fused_qkv || s.fp32_tables || s.attention_dropout > 0)
    refuse("compiled layers of this kind whose attention has a mask are not modelled", "compile");
  if (length % kWhole != 0)
    refuse("compiled blocks with a mask whose rows Inductor pads are not modelled", "compile",
           "sequences that are multiples of " + std::to_string(kWhole));
}

}  // namespace

void check_compiled_rotary(const Block& block, Rotation rotation) {
  const auto require = [](bool known, const char* what) { require_compiled(known, "blocks", what); };
  require(block.attention && block.mlp && !block.moe, "a mixture of experts");
  const AttentionSpec& attention = *block.attention;
  const bool behind = block.placement == NormPlacement::post_branch, parallel = block.placement == NormPlacement::parallel;
  require(behind || parallel || block.placement == NormPlacement::pre, "this placement of norms");
  require(behind == (attention.qk_norm == AttentionSpec::QkNorm::full_width), "these norms of queries and keys");
  require(block.norm.kind == NormSpec::Kind::rms_norm ? block.norm.weight : block.norm.bias == block.norm.weight && !block.norm.decomposed,
          "these norms");
  require(!behind || (!attention.qkv_bias && !attention.output_bias && !block.mlp->fused_gate_up),
          "these projections beside norms behind them");
  const bool partial = rotation == Rotation::join_last || rotation == Rotation::neighbours_join_last;
  const bool rotary = attention.positions == Positions::rope && partial == (attention.rotary_dim < attention.head_dim);
  const bool plain = attention.positions == Positions::none && !attention.fused_qkv && attention.qk_norm == AttentionSpec::QkNorm::none;
  require(rotary || plain, "these positions");
  require(
      attention.qk_norm != AttentionSpec::QkNorm::each_head && !(attention.fused_qkv && attention.qk_norm != AttentionSpec::QkNorm::none),
      "these projections of queries and keys");
  require(!parallel || attention.heads == attention.kv_heads, "fewer keys than queries beside a parallel MLP");
  require(attention.causal && attention.softcap == 0 && attention.clip == 0, "this attention");
  require(takes_heads(attention), "this head dimension");
  require(block.hidden_dropout == 0, "dropout of its branches");
  require(block.mlp->activation != "relu", "relu");  // what of it is kept depends on how it is read
}

Tensor compiled_rotary_layer(Module& layer, const Block& block, const CompiledNames& names, const Tensor& hidden,
                             const RotaryTables& tables, const Tensor& mask) {
  CompiledShape shape = shape_of(block, names, false);
  CompiledArguments arguments = arguments_of(layer, names, hidden, tables, shape.rotary);
  if (mask) {
    check_masked(shape, hidden.size(1));
    shape.masked = true;
    arguments[kVisible] = mask;
  }
  return compiled_layer(arguments, with_arguments(shape, arguments));
}

void add_compiled_rotary_layer(CompiledDecoder& decoder, Module& layer, const Block& block, const CompiledNames& names, const Dims& hidden,
                               bool checkpointed) {
  CompiledShape shape = shape_of(block, names, checkpointed);
  CompiledArguments arguments = arguments_of(layer, names, {}, {}, false);
  check_masked(shape, hidden[1]);
  shape.masked = true;
  shape = with_arguments(shape, arguments, hidden);
  decoder.layers.push_back(std::move(arguments));
  decoder.shape = shape;
}

}  // namespace plimsoll::program
