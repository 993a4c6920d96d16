// Phi-1, -1.5 and -2 (one norm feeds both branches, biases everywhere) and Phi-3 (llama with fused projections).
#include "model/families/decoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {

Model build_phi(const Config& config) {
  Model model = decoder_model(config);
  model.embedding_dropout = config.rate_or("embd_pdrop", 0.0);
  LayerPlan layer = llama_layer(config, model, 0.5);
  layer.placement = NormPlacement::parallel;
  layer.norm = layer_norm();
  set_attention_bias(layer.attention, true);
  if (config.flag_or("qk_layernorm", false)) layer.attention.qk_norm = AttentionSpec::QkNorm::per_head;
  layer.mlp = plain_mlp(model, config.activation("hidden_act"), true);
  layer.hidden_dropout = config.rate_or("resid_pdrop", 0.0);
  layer.names.output = "dense";
  layer.names.up = "fc1";
  layer.names.down = "fc2";
  layer.names.q_norm = "q_layernorm";
  layer.names.k_norm = "k_layernorm";
  layer.registration = {"self_attn.q_proj",
                        "self_attn.k_proj",
                        "self_attn.v_proj",
                        "self_attn.dense",
                        "self_attn.q_layernorm",
                        "self_attn.k_layernorm",
                        "mlp",
                        "input_layernorm"};
  append_token_embedding(model);
  append_rotary(model, layer.attention.rotary_dim);
  append_layers(model, layer);
  append_final_norm(model, layer.norm, "model.final_layernorm");
  append_head(model, config, {.bias = true});
  return model;
}

Model build_phi3(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  layer.attention.fused_qkv = true;
  layer.attention.sliding_window = config.optional_dimension("sliding_window");
  layer.mlp->fused_gate_up = true;
  layer.hidden_dropout = config.rate_or("resid_pdrop", 0.0);
  for (const char* key : {"embd_pdrop", "original_max_position_embeddings"}) (void)config.find(key);  // the class does not use them
  layer.registration = {"self_attn.o_proj", "self_attn.qkv_proj", "mlp", "input_layernorm", "post_attention_layernorm"};
  return rotary_decoder(std::move(model), config, layer);
}

}  // namespace plimsoll::model
