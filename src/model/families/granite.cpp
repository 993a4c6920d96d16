// Granite, its mixture of experts and HyperCLOVA X: llama with constants on embeddings, branches and logits.
#include "model/families/decoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {
namespace {

LayerPlan granite_layer(const Config& config, Model& model) {
  LayerPlan layer = llama_layer(config, model);
  layer.scaled_branches = config.number_or("residual_multiplier", 1, 0, 1e9) != 1;
  set_attention_bias(layer.attention, config.flag("attention_bias"));
  return layer;
}

Model assemble(Model model, const Config& config, const LayerPlan& layer) {
  append_token_embedding(model, {.scaled = true});
  append_rotary(model, layer.attention.rotary_dim);
  append_layers(model, layer);
  append_final_norm(model, layer.norm);
  append_head(model, config, {.scaled = true});
  return model;
}

}  // namespace

Model build_granite(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = granite_layer(config, model);
  layer.mlp->bias = config.flag("mlp_bias");
  return assemble(std::move(model), config, layer);
}

// HyperCLOVA X: granite with norms behind its branches, unless use_post_norm is false; logits are multiplied.
Model build_hyperclovax(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = granite_layer(config, model);
  layer.mlp->bias = config.flag("mlp_bias");
  if (config.flag("use_post_norm")) {
    layer.placement = NormPlacement::sandwich;
    layer.names.attention_out_norm = "post_norm1";
    layer.names.mlp_out_norm = "post_norm2";
    layer.registration = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm", "post_norm1", "post_norm2"};
  }
  return assemble(std::move(model), config, layer);
}

Model build_granitemoe(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = granite_layer(config, model);
  MoeSpec moe;
  moe.hidden = model.hidden_size;
  moe.experts = config.dimension("num_local_experts");
  moe.top_k = config.dimension("num_experts_per_tok", moe.experts);
  moe.expert_intermediate = model.intermediate_size;
  moe.activation = layer.mlp->activation;
  layer.moe = moe;
  layer.mlp.reset();
  layer.names.moe = "block_sparse_moe";
  layer.names.router = "router";
  layer.registration = {"self_attn", "input_layernorm", "post_attention_layernorm", "block_sparse_moe"};
  model = assemble(std::move(model), config, layer);
  balance_routers(model, config);
  return model;
}

}  // namespace plimsoll::model
