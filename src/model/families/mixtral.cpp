// Mixtral, PhiMoE and MiniMax-M2: every layer routes to a few of its experts.
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

// MiniMax-M2: norms over all queries and all keys, part of each head rotated, experts chosen by corrected sigmoids.
Model build_minimax_m2(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = expert_layer(config, model);
  if (const auto rotated = config.optional_dimension("rotary_dim")) layer.attention.rotary_dim = *rotated;
  layer.attention.qk_norm = AttentionSpec::QkNorm::full_width;
  layer.moe->correction_bias = true;
  layer.names.correction_bias = "e_score_correction_bias";
  layer.registration = {
      "self_attn.q_proj", "self_attn.k_proj",        "self_attn.v_proj", "self_attn.o_proj", "self_attn.q_norm", "self_attn.k_norm", "mlp",
      "input_layernorm",  "post_attention_layernorm"};
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
