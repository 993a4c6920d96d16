#include "program/modules/transformers/compiled/opt.hpp"

#include <string>

#include "plimsoll/error.hpp"
#include "program/modules/transformers/compiled/operator.hpp"

namespace plimsoll::program {

void check_compiled_opt(const Block& block) {
  const auto require = [](bool known, const char* what) {
    if (!known) refuse(std::string("compiled OPT layers with ") + what + " are not modelled", "compile");
  };
  require(block.placement == NormPlacement::pre, "norms behind their branches");
  require(block.norm.weight && block.norm.bias, "norms without parameters");
  require(block.attention->head_dim % 8 == 0 && block.attention->head_dim <= 256, "this head dimension");
}

Tensor compiled_opt_layer(Module& module, const Block& block, const Tensor& hidden, bool checkpointed) {
  Module& attention = module.child("self_attn");
  CompiledArguments arguments;
  arguments[kHidden] = hidden;
  const auto both = [&](CompiledSlot slot, Module& parent, const char* name) {
    Module& part = parent.child(name);
    arguments[slot] = part.tensor("weight");
    arguments[slot + 1] = part.tensor("bias");
  };
  both(kInputNorm, module, "self_attn_layer_norm");
  both(kQ, attention, "q_proj");
  both(kK, attention, "k_proj");
  both(kV, attention, "v_proj");
  both(kOutput, attention, "out_proj");
  both(kMlpNorm, module, "final_layer_norm");
  both(kUp, module, "fc1");
  both(kDown, module, "fc2");

  CompiledShape shape = plain_shape(block, checkpointed);
  shape.scaled_queries = true;
  shape.relu = block.mlp->activation == "relu";
  return compiled_layer(arguments, with_arguments(shape, arguments));
}

}  // namespace plimsoll::program
