#include <utility>

#include "program/modules/transformers/compiled/families.hpp"
#include "program/modules/transformers/compiled/model.hpp"
#include "program/modules/transformers/compiled/operator.hpp"

namespace plimsoll::program {

void check_compiled_gpt2(const Block& block) {
  const auto require = [](bool known, const char* what) { require_compiled(known, "GPT-2 blocks", what); };
  require(block.mlp->activation != "relu", "relu");  // what of it is kept depends on how it is read
  require(takes_heads(*block.attention), "this head dimension");
}

namespace {

CompiledArguments arguments_of(Module& module, const Tensor& hidden) {
  return arguments_at(module, hidden,
                      {{kInputNorm, "ln_1"},
                       {kQkv, "attn.c_attn"},
                       {kOutput, "attn.c_proj"},
                       {kMlpNorm, "ln_2"},
                       {kUp, "mlp.c_fc"},
                       {kDown, "mlp.c_proj"}});
}

CompiledShape shape_of(const Block& block, bool checkpointed) {
  CompiledShape shape = plain_shape(block);
  shape.checkpointed = checkpointed;
  shape.fused_qkv = shape.conv1d = true;
  shape.wide_activation = block.mlp->activation == "gelu_new";
  return shape;
}

}  // namespace

Tensor compiled_gpt2_block(Module& module, const Block& block, const Tensor& hidden, bool checkpointed) {
  const CompiledArguments arguments = arguments_of(module, hidden);
  return compiled_layer(arguments, with_arguments(shape_of(block, checkpointed), arguments));
}

void add_compiled_gpt2_block(CompiledDecoder& decoder, Module& module, const Block& block, const Dims& hidden) {
  CompiledArguments arguments = arguments_of(module, {});
  decoder.shape = with_arguments(shape_of(block, false), arguments, hidden);
  decoder.shape.masked = true;
  decoder.layers.push_back(std::move(arguments));
}

}  // namespace plimsoll::program
