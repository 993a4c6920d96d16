// MPT: ALiBi, no biases anywhere (norms included), an MLP of four times the width.
#include "model/families/decoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {

Model build_mpt(const Config& config) {
  Model model = decoder_model(config);
  model.max_positions = config.dimension("max_seq_len");
  // The class computes ALiBi and a factor of 4 whatever these say.
  for (const char* key : {"learned_pos_emb", "expansion_ratio", "emb_pdrop", "resid_pdrop", "no_bias", "norm_type"}) (void)config.find(key);
  model.intermediate_size = product({4, model.hidden_size});

  LayerPlan layer;
  layer.stack = "transformer.blocks";
  layer.norm = layer_norm(false);
  layer.attention = plain_attention(model, Positions::alibi);
  layer.attention.fused_qkv = true;
  if (const auto attention = config.nested("attn_config")) {
    layer.attention.dropout = attention->rate_or("attn_pdrop", 0.0);
    layer.attention.clip = attention->number_or("clip_qkv", 0.0, 0.0, 1e9);
    config.find("attn_config")->mark_read();
  }
  layer.hidden_dropout = layer.attention.dropout;  // the class takes attn_pdrop for both
  layer.mlp = plain_mlp(model, "gelu", false);
  layer.names.attention = "attn";
  layer.names.qkv = "Wqkv";
  layer.names.output = "out_proj";
  layer.names.mlp = "ffn";
  layer.names.activation = "act";
  layer.names.attention_norm = "norm_1";
  layer.names.mlp_norm = "norm_2";
  layer.registration = {"norm_1", "attn", "norm_2", "ffn"};

  append_token_embedding(model, {.module = "transformer", .token = "wte"});
  append_layers(model, layer);
  append_final_norm(model, layer.norm, "transformer.norm_f");
  append_head(model, config, {.token_classifier = "classifier"});
  return model;
}

}  // namespace plimsoll::model
