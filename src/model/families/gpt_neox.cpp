// GPT-NeoX and Pythia: fused projections, partial rotation, both branches in parallel with a norm each.
#include "model/families/decoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {

Model build_gpt_neox(const Config& config) {
  Model model = decoder_model(config);
  model.intermediate_size = config.dimension("intermediate_size");
  LayerPlan layer;
  layer.stack = "gpt_neox.layers";
  layer.placement = config.flag("use_parallel_residual") ? NormPlacement::parallel_two : NormPlacement::pre;
  layer.norm = layer_norm();
  // "rotary_pct" is this family's name for the share of each head that is rotated.
  layer.attention = rotary_attention(config, model, config.number_or("rotary_pct", 0.25, 0.0, 1.0));
  layer.attention.fused_qkv = true;
  set_attention_bias(layer.attention, config.flag("attention_bias"));
  layer.mlp = plain_mlp(model, config.activation("hidden_act"), true);
  layer.hidden_dropout = config.rate_or("hidden_dropout", 0.0);
  model.embedding_dropout = layer.hidden_dropout;
  layer.names.attention = "attention";
  layer.names.qkv = "query_key_value";
  layer.names.output = "dense";
  layer.names.up = "dense_h_to_4h";
  layer.names.activation = "act";
  layer.names.down = "dense_4h_to_h";
  layer.registration = {"input_layernorm", "post_attention_layernorm", "attention", "mlp"};

  append_token_embedding(model, {.module = "gpt_neox", .token = "embed_in"});
  append_rotary(model, layer.attention.rotary_dim, "gpt_neox.rotary_emb");
  append_layers(model, layer);
  append_final_norm(model, layer.norm, "gpt_neox.final_layer_norm");
  append_head(model, config, {.token_classifier = "classifier"});
  return model;
}

}  // namespace plimsoll::model
