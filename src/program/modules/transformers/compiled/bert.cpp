#include "program/modules/transformers/compiled/families.hpp"
#include "program/modules/transformers/compiled/operator.hpp"

namespace plimsoll::program {

void check_compiled_bert(const Block& block) {
  const auto require = [](bool known, const char* what) { require_compiled(known, "BERT layers", what); };
  require(block.hidden_dropout > 0, "no dropout of their branches");
  require(block.mlp->activation != "relu", "relu");  // what of it is kept depends on how it is read
  require(takes_heads(*block.attention), "this head dimension");
}

Tensor compiled_bert_layer(Module& layer, const Block& block, const Tensor& hidden, bool checkpointed) {
  const CompiledArguments arguments = arguments_at(layer, hidden,
                                                   {{kQ, "attention.self.query"},
                                                    {kK, "attention.self.key"},
                                                    {kV, "attention.self.value"},
                                                    {kOutput, "attention.output.dense"},
                                                    {kInputNorm, "attention.output.LayerNorm"},
                                                    {kUp, "intermediate.dense"},
                                                    {kDown, "output.dense"},
                                                    {kMlpNorm, "output.LayerNorm"}});
  CompiledShape shape = plain_shape(block, checkpointed);
  shape.causal = false;
  shape.post_norm = true;
  return compiled_layer(arguments, with_arguments(shape, arguments));
}

}  // namespace plimsoll::program
