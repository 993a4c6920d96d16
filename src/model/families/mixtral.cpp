// Mixtral and PhiMoE: every layer routes to two of a few large experts.
#include "model/families/decoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {
namespace {

LayerPlan expert_layer(const Config& config, Model& model) {
  LayerPlan layer = llama_layer(config, model);
  layer.attention.sliding_window = config.optional_dimension("sliding_window");
  MoeSpec moe;
  moe.hidden = model.hidden_size;
  moe.experts = config.dimension("num_local_experts");
  moe.top_k = config.dimension("num_experts_per_tok", moe.experts);
  moe.expert_intermediate = model.intermediate_size;
  moe.activation = layer.mlp->activation;
  moe.normalized_top_k = true;
  layer.moe = moe;
  layer.mlp.reset();
  return layer;
}

}  // namespace

Model build_mixtral(const Config& config) {
  Model model = decoder_model(config);
  const LayerPlan layer = expert_layer(config, model);
  model = rotary_decoder(std::move(model), config, layer);
  balance_routers(model, config);
  return model;
}

Model build_phimoe(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = expert_layer(config, model);
  layer.norm = layer_norm();
  layer.names.router = "router";
  set_attention_bias(layer.attention, config.flag("attention_bias"));
  append_token_embedding(model);
  append_rotary(model, layer.attention.rotary_dim);
  append_layers(model, layer);
  append_final_norm(model, layer.norm);
  append_head(model, config, {.bias = config.flag("lm_head_bias")});
  balance_routers(model, config);
  return model;
}

}  // namespace plimsoll::model
