#include "program/modules/transformers/compiled/gpt_neox.hpp"

#include <string>

#include "plimsoll/error.hpp"
#include "program/modules/transformers/compiled/operator.hpp"

namespace plimsoll::program {

void check_compiled_gpt_neox(const Block& block) {
  const auto require = [](bool known, const char* what) {
    if (!known) refuse(std::string("compiled GPT-NeoX layers with ") + what + " are not modelled", "compile");
  };
  const AttentionSpec& attention = *block.attention;
  require(block.mlp->activation != "relu", "relu");  // what of it is kept depends on how it is read
  require(block.placement == NormPlacement::parallel_two, "an MLP behind the attention");
  require(block.hidden_dropout == 0, "dropout of their branches");
  require(attention.qkv_bias && attention.output_bias, "projections without bias");
  require(attention.rotary_dim < attention.head_dim, "heads that are turned whole");
  require(attention.head_dim % 8 == 0 && attention.head_dim <= 256, "this head dimension");
}

Tensor compiled_gpt_neox_layer(Module& layer, const Block& block, const Tensor& hidden, const RotaryTables& tables, bool checkpointed) {
  CompiledArguments arguments;
  arguments[kHidden] = hidden;
  arguments[kCosine] = tables.cosine;
  arguments[kSine] = tables.sine;
  const auto both = [&](CompiledSlot slot, const char* name) {
    Module& part = *layer.find(name);
    arguments[slot] = part.tensor("weight");
    arguments[slot + 1] = part.tensor("bias");
  };
  both(kInputNorm, "input_layernorm");
  both(kQkv, "attention.query_key_value");
  both(kOutput, "attention.dense");
  both(kMlpNorm, "post_attention_layernorm");
  both(kUp, "mlp.dense_h_to_4h");
  both(kDown, "mlp.dense_4h_to_h");

  CompiledShape shape = plain_shape(block, checkpointed);
  shape.rotary = shape.partial_rotary = shape.fused_qkv = shape.parallel = shape.mlp_first = true;
  shape.rotary_dim = block.attention->rotary_dim;
  return compiled_layer(arguments, with_arguments(shape, arguments));
}

}  // namespace plimsoll::program
