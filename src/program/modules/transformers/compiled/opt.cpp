#include "program/modules/transformers/compiled/families.hpp"
#include "program/modules/transformers/compiled/operator.hpp"

namespace plimsoll::program {

void check_compiled_opt(const Block& block) {
  const auto require = [](bool known, const char* what) { require_compiled(known, "OPT layers", what); };
  require(block.placement == NormPlacement::pre, "norms behind their branches");
  require(block.norm.weight && block.norm.bias, "norms without parameters");
  require(takes_heads(*block.attention), "this head dimension");
}

Tensor compiled_opt_layer(Module& module, const Block& block, const Tensor& hidden) {
  const CompiledArguments arguments = arguments_at(module, hidden,
                                                   {{kInputNorm, "self_attn_layer_norm"},
                                                    {kQ, "self_attn.q_proj"},
                                                    {kK, "self_attn.k_proj"},
                                                    {kV, "self_attn.v_proj"},
                                                    {kOutput, "self_attn.out_proj"},
                                                    {kMlpNorm, "final_layer_norm"},
                                                    {kUp, "fc1"},
                                                    {kDown, "fc2"}});
  CompiledShape shape = plain_shape(block);
  shape.scaled_queries = true;
  shape.relu = block.mlp->activation == "relu";
  return compiled_layer(arguments, with_arguments(shape, arguments));
}

}  // namespace plimsoll::program
