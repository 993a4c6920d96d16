// GLM-4 (half of each head rotates, gate and up in one projection; sandwich norms from 0414 on) and GLM-4.5's experts; Solar Open.
#include "model/families/decoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {

Model build_glm(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model, 0.5);
  layer.attention.qkv_bias = config.flag("attention_bias");
  layer.mlp->fused_gate_up = true;
  return rotary_decoder(std::move(model), config, layer);
}

Model build_glm4(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model, 0.5);
  layer.placement = NormPlacement::sandwich;
  layer.attention.qkv_bias = config.flag("attention_bias");
  layer.mlp->fused_gate_up = true;
  layer.names.attention_out_norm = "post_self_attn_layernorm";
  layer.names.mlp_norm = "post_attention_layernorm";
  layer.names.mlp_out_norm = "post_mlp_layernorm";
  layer.registration = {"self_attn",         "mlp", "input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm",
                        "post_mlp_layernorm"};
  return rotary_decoder(std::move(model), config, layer);
}

Model build_glm4_moe(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model, 0.5);
  layer.attention.qkv_bias = config.flag("attention_bias");
  if (config.flag("use_qk_norm")) layer.attention.qk_norm = AttentionSpec::QkNorm::per_head;
  name_shared_experts(layer);
  const MoeSpec moe = corrected_experts(config, model);
  const std::int64_t dense_layers = config.integer("first_k_dense_replace", 0, kLargestDimension);

  append_token_embedding(model);
  append_rotary(model, layer.attention.rotary_dim);
  append_routed_layers(model, layer, moe, [=](std::int64_t i) { return i >= dense_layers; });
  append_final_norm(model, layer.norm);
  append_head(model, config);
  return model;
}

// Solar Open: llama's attention, GLM-4.5's experts in every layer.
Model build_solar_open(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer;
  layer.attention = rotary_attention(config, model);
  layer.attention.qkv_bias = config.flag("attention_bias");
  layer.moe = corrected_experts(config, model);
  name_shared_experts(layer);
  return rotary_decoder(std::move(model), config, layer);
}

}  // namespace plimsoll::model
