// StableLM, StarCoder2 and Nemotron: rotary decoders with LayerNorm.
#include "model/families/decoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {

Model build_stablelm(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model, 0.25);
  layer.norm = layer_norm();
  layer.attention.qkv_bias = config.flag("use_qkv_bias");
  if (config.flag("use_parallel_residual")) layer.placement = NormPlacement::parallel;
  if (config.flag("qk_layernorm")) {
    layer.attention.qk_norm = AttentionSpec::QkNorm::each_head;
    layer.qk_norm = layer_norm(false);
    layer.qk_norm_modules = true;
  }
  layer.hidden_dropout = config.rate_or("hidden_dropout", 0.0);
  layer.names.q_norm = "q_layernorm";
  layer.names.k_norm = "k_layernorm";
  layer.registration = {"self_attn.q_proj",
                        "self_attn.k_proj",
                        "self_attn.v_proj",
                        "self_attn.o_proj",
                        "self_attn.q_layernorm",
                        "self_attn.k_layernorm",
                        "mlp",
                        "input_layernorm",
                        "post_attention_layernorm"};
  return rotary_decoder(std::move(model), config, layer);
}

Model build_starcoder2(const Config& config) {
  Model model = decoder_model(config);
  model.embedding_dropout = config.rate_or("embedding_dropout", 0.0);
  LayerPlan layer = llama_layer(config, model);
  layer.norm = layer_norm();
  layer.attention.sliding_window = config.optional_dimension("sliding_window");
  set_attention_bias(layer.attention, config.flag("use_bias"));
  layer.mlp = plain_mlp(model, config.activation("hidden_act"), config.flag("use_bias"));
  layer.hidden_dropout = config.rate_or("residual_dropout", 0.0);
  layer.names.up = "c_fc";
  layer.names.activation = "act";
  layer.names.down = "c_proj";
  return rotary_decoder(std::move(model), config, layer);
}

Model build_nemotron(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model, 0.5);
  layer.norm = layer_norm();
  layer.norm.unit_offset = true;
  set_attention_bias(layer.attention, config.flag("attention_bias"));
  layer.mlp->gated = false;
  layer.mlp->bias = config.flag("mlp_bias");
  return rotary_decoder(std::move(model), config, layer);
}

}  // namespace plimsoll::model
