#include "program/modules/transformers/compiled/families.hpp"
#include "program/modules/transformers/compiled/operator.hpp"

namespace plimsoll::program {

void check_compiled_vit(Module& layer, const Block& block) {
  const auto require = [](bool known, const char* what) { require_compiled(known, "vision layers", what); };
  require(block.mlp->activation != "relu", "relu");  // what of it is kept depends on how it is read
  require(layer.find_child("layernorm_before"), "scaled branches");
  require(block.attention->qkv_bias, "projections without bias");
  require(block.hidden_dropout == 0, "dropout of their branches");
  require(takes_heads(*block.attention), "this head dimension");
}

Tensor compiled_vit_layer(Module& layer, const Block& block, const Tensor& hidden) {
  const CompiledArguments arguments = arguments_at(layer, hidden,
                                                   {{kInputNorm, "layernorm_before"},
                                                    {kQ, "attention.q_proj"},
                                                    {kK, "attention.k_proj"},
                                                    {kV, "attention.v_proj"},
                                                    {kOutput, "attention.o_proj"},
                                                    {kMlpNorm, "layernorm_after"},
                                                    {kUp, "mlp.fc1"},
                                                    {kDown, "mlp.fc2"}});
  CompiledShape shape = plain_shape(block);
  shape.causal = false;
  shape.mlp_first = true;
  return compiled_layer(arguments, with_arguments(shape, arguments));
}

}  // namespace plimsoll::program
