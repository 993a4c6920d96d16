#include "program/modules/transformers/compiled/vit.hpp"

#include <string>

#include "plimsoll/error.hpp"
#include "program/modules/transformers/compiled/operator.hpp"

namespace plimsoll::program {

void check_compiled_vit(Module& layer, const Block& block) {
  const auto require = [](bool known, const char* what) {
    if (!known) refuse(std::string("compiled vision layers with ") + what + " are not modelled", "compile");
  };
  require(block.mlp->activation != "relu", "relu");  // what of it is kept depends on how it is read
  require(layer.find_child("layernorm_before"), "scaled branches");
  require(block.attention->qkv_bias, "projections without bias");
  require(block.hidden_dropout == 0, "dropout of their branches");
  require(block.attention->head_dim % 8 == 0 && block.attention->head_dim <= 256, "this head dimension");
}

Tensor compiled_vit_layer(Module& layer, const Block& block, const Tensor& hidden, bool checkpointed) {
  CompiledArguments arguments;
  arguments[kHidden] = hidden;
  const auto both = [&](CompiledSlot slot, const char* name) {
    Module& part = *layer.find(name);
    arguments[slot] = part.tensor("weight");
    arguments[slot + 1] = part.tensor("bias");
  };
  both(kInputNorm, "layernorm_before");
  both(kQ, "attention.q_proj");
  both(kK, "attention.k_proj");
  both(kV, "attention.v_proj");
  both(kOutput, "attention.o_proj");
  both(kMlpNorm, "layernorm_after");
  both(kUp, "mlp.fc1");
  both(kDown, "mlp.fc2");

  CompiledShape shape = plain_shape(block, checkpointed);
  shape.causal = false;
  shape.mlp_first = true;
  return compiled_layer(arguments, with_arguments(shape, arguments));
}

}  // namespace plimsoll::program
