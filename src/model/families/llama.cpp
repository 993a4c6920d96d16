// llama, mistral: pre-norm, rotary, grouped queries, gated MLP.
#include "model/families/decoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {

Model build_llama(const Config& config) {
  Model model = decoder_model(config);
  model.intermediate_size = config.dimension("intermediate_size");
  (void)rotary_share(config);
  const bool attention_bias = config.flag_or("attention_bias", false);

  LayerPlan layer;
  layer.attention = rotary_attention(model);
  layer.attention.qkv_bias = layer.attention.output_bias = attention_bias;
  layer.attention.dropout = config.rate_or("attention_dropout", 0.0);
  layer.mlp = MlpSpec{.hidden = model.hidden_size,
                      .intermediate = model.intermediate_size,
                      .gated = true,
                      .bias = config.flag_or("mlp_bias", false),
                      .activation = config.text_or("hidden_act", "silu")};

  append_token_embedding(model);
  append_rotary(model, model.head_dim);
  append_layers(model, layer);
  append_final_norm(model, layer.norm);
  append_head(model, config);
  return model;
}

}  // namespace plimsoll::model
