#include "program/modules/transformers/compiled/gpt2.hpp"

#include <string>

#include "plimsoll/error.hpp"
#include "program/modules/transformers/compiled/operator.hpp"

namespace plimsoll::program {

void check_compiled_gpt2(const Block& block) {
  const auto require = [](bool known, const char* what) {
    if (!known) refuse(std::string("compiled GPT-2 blocks with ") + what + " are not modelled", "compile");
  };
  require(block.mlp->activation != "relu", "relu");  // what of it is kept depends on how it is read
  require(block.attention->head_dim % 8 == 0 && block.attention->head_dim <= 256, "this head dimension");
}

Tensor compiled_gpt2_block(Module& module, const Block& block, const Tensor& hidden, bool checkpointed) {
  CompiledArguments arguments;
  arguments[kHidden] = hidden;
  const auto both = [&](CompiledSlot slot, const char* name) {
    Module& part = *module.find(name);
    arguments[slot] = part.tensor("weight");
    arguments[slot + 1] = part.tensor("bias");
  };
  both(kInputNorm, "ln_1");
  both(kQkv, "attn.c_attn");
  both(kOutput, "attn.c_proj");
  both(kMlpNorm, "ln_2");
  both(kUp, "mlp.c_fc");
  both(kDown, "mlp.c_proj");

  CompiledShape shape = plain_shape(block, checkpointed);
  shape.fused_qkv = shape.conv1d = true;
  return compiled_layer(arguments, with_arguments(shape, arguments));
}

}  // namespace plimsoll::program
