// Gemma 1 to 3 and VaultGemma: scaled embeddings, norms that multiply by 1 + weight; sandwich norms and alternating windows from 2 on.
#include "model/families/decoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {
namespace {

EmbeddingPlan scaled_embedding() {
  EmbeddingPlan plan;
  plan.scaled = plan.scale_buffer = true;
  return plan;
}

LayerPlan gemma_layer(const Config& config, Model& model) {
  LayerPlan layer = llama_layer(config, model);
  layer.norm.unit_offset = true;
  set_attention_bias(layer.attention, config.flag("attention_bias"));
  return layer;
}

void make_sandwich(LayerPlan& layer, const Config& config) {
  layer.placement = NormPlacement::sandwich;
  layer.mlp->activation = config.activation("hidden_activation");
  layer.names.attention_out_norm = "post_attention_layernorm";
  layer.names.mlp_norm = "pre_feedforward_layernorm";
  layer.names.mlp_out_norm = "post_feedforward_layernorm";
  layer.registration = {"self_attn.q_proj",
                        "self_attn.k_proj",
                        "self_attn.v_proj",
                        "self_attn.o_proj",
                        "self_attn.q_norm",
                        "self_attn.k_norm",
                        "mlp",
                        "input_layernorm",
                        "post_attention_layernorm",
                        "pre_feedforward_layernorm",
                        "post_feedforward_layernorm"};
}

}  // namespace

Model build_gemma(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = gemma_layer(config, model);
  // The published configs say "gelu" and mean its tanh approximation.
  if (layer.mlp->activation == "gelu") layer.mlp->activation = "gelu_pytorch_tanh";
  append_token_embedding(model, scaled_embedding());
  append_rotary(model, layer.attention.rotary_dim);
  append_layers(model, layer);
  append_final_norm(model, layer.norm);
  append_head(model, config);
  return model;
}

/// Gemma 2 around `layer`: capped scores and logits, every second layer slides.
static Model capped(Model model, const Config& config, LayerPlan layer) {
  layer.attention.softcap = config.number_or("attn_logit_softcapping", 0.0, 0.0, 1e9);
  model.logit_softcap = config.number_or("final_logit_softcapping", 0.0, 0.0, 1e9);
  append_token_embedding(model, scaled_embedding());
  append_rotary(model, layer.attention.rotary_dim);
  const auto slides = sliding_layers(config, model.layers, [](std::int64_t i) { return i % 2 == 0; });
  append_sliding_layers(model, layer, slides, config.optional_dimension("sliding_window"));
  append_final_norm(model, layer.norm);
  append_head(model, config);
  return model;
}

Model build_gemma2(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = gemma_layer(config, model);
  make_sandwich(layer, config);
  return capped(std::move(model), config, layer);
}

// VaultGemma: Gemma 2 without the norms behind the branches.
Model build_vaultgemma(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = gemma_layer(config, model);
  layer.mlp->activation = config.activation("hidden_activation");
  layer.names.mlp_norm = "pre_feedforward_layernorm";
  layer.registration = {"self_attn", "mlp", "input_layernorm", "pre_feedforward_layernorm"};
  return capped(std::move(model), config, layer);
}

Model build_gemma3_text(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = gemma_layer(config, model);
  make_sandwich(layer, config);
  layer.attention.qk_norm = AttentionSpec::QkNorm::per_head;
  (void)config.number_or("attn_logit_softcapping", 0.0, 0.0, 1e9);  // Gemma3Attention keeps it and applies nothing
  layer.attention.causal = !config.flag_or("use_bidirectional_attention", false);
  model.logit_softcap = config.number_or("final_logit_softcapping", 0.0, 0.0, 1e9);

  const std::int64_t pattern = config.dimension_or("sliding_window_pattern", 6);
  const auto slides = sliding_layers(config, model.layers, [&](std::int64_t i) { return (i + 1) % pattern != 0; });
  append_token_embedding(model, scaled_embedding());
  append_rotary(model, layer.attention.rotary_dim, "model.rotary_emb", rotary_prefixes(slides));
  append_sliding_layers(model, layer, slides, config.optional_dimension("sliding_window"));
  append_final_norm(model, layer.norm);
  append_head(model, config);
  return model;
}

}  // namespace plimsoll::model
