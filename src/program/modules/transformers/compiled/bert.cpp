#include "program/modules/transformers/compiled/bert.hpp"

#include <string>

#include "plimsoll/error.hpp"
#include "program/modules/transformers/compiled/operator.hpp"

namespace plimsoll::program {

void check_compiled_bert(const Block& block) {
  const auto require = [](bool known, const char* what) {
    if (!known) refuse(std::string("compiled BERT layers with ") + what + " are not modelled", "compile");
  };
  require(block.hidden_dropout > 0, "no dropout of their branches");
  require(block.mlp->activation != "relu", "relu");  // what of it is kept depends on how it is read
  require(block.attention->head_dim % 8 == 0 && block.attention->head_dim <= 256, "this head dimension");
}

Tensor compiled_bert_layer(Module& layer, const Block& block, const Tensor& hidden, bool checkpointed) {
  CompiledArguments arguments;
  arguments[kHidden] = hidden;
  const auto both = [&](CompiledSlot slot, const char* name) {
    Module& part = *layer.find(name);
    arguments[slot] = part.tensor("weight");
    arguments[slot + 1] = part.tensor("bias");
  };
  both(kQ, "attention.self.query");
  both(kK, "attention.self.key");
  both(kV, "attention.self.value");
  both(kOutput, "attention.output.dense");
  both(kInputNorm, "attention.output.LayerNorm");
  both(kUp, "intermediate.dense");
  both(kDown, "output.dense");
  both(kMlpNorm, "output.LayerNorm");

  CompiledShape shape = plain_shape(block, checkpointed);
  shape.causal = false;
  shape.post_norm = true;
  return compiled_layer(arguments, with_arguments(shape, arguments));
}

}  // namespace plimsoll::program
