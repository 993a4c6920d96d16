#include "program/modules/transformers/compiled/families.hpp"
#include "program/modules/transformers/compiled/operator.hpp"

namespace plimsoll::program {

void check_compiled_gpt_neox(const Block& block) {
  const auto require = [](bool known, const char* what) { require_compiled(known, "GPT-NeoX layers", what); };
  const AttentionSpec& attention = *block.attention;
  require(block.mlp->activation != "relu", "relu");  // what of it is kept depends on how it is read
  require(block.placement == NormPlacement::parallel_two, "an MLP behind the attention");
  require(block.hidden_dropout == 0, "dropout of their branches");
  require(attention.qkv_bias && attention.output_bias, "projections without bias");
  require(attention.rotary_dim < attention.head_dim, "heads that are turned whole");
  require(takes_heads(attention), "this head dimension");
}

Tensor compiled_gpt_neox_layer(Module& layer, const Block& block, const Tensor& hidden, const RotaryTables& tables, bool checkpointed) {
  CompiledArguments arguments = arguments_at(layer, hidden,
                                             {{kInputNorm, "input_layernorm"},
                                              {kQkv, "attention.query_key_value"},
                                              {kOutput, "attention.dense"},
                                              {kMlpNorm, "post_attention_layernorm"},
                                              {kUp, "mlp.dense_h_to_4h"},
                                              {kDown, "mlp.dense_4h_to_h"}});
  arguments[kCosine] = tables.cosine;
  arguments[kSine] = tables.sine;
  CompiledShape shape = plain_shape(block, checkpointed);
  shape.rotary = shape.partial_rotary = shape.fused_qkv = shape.parallel = shape.mlp_first = true;
  shape.rotary_dim = block.attention->rotary_dim;
  return compiled_layer(arguments, with_arguments(shape, arguments));
}

}  // namespace plimsoll::program
