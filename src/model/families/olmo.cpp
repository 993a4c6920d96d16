// OLMo (a norm without weights), OLMo 2 and 3 and EXAONE 4 (norms behind the branches), OLMoE (64 small experts),
// FlexOlmo (OLMoE's experts in an OLMo 2 layer).
#include "model/families/decoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {
namespace {

void norm_queries_and_keys(LayerPlan& layer, AttentionSpec::QkNorm kind) {
  layer.attention.qk_norm = kind;
  layer.registration = {"self_attn.q_proj",
                        "self_attn.k_proj",
                        "self_attn.v_proj",
                        "self_attn.o_proj",
                        "self_attn.q_norm",
                        "self_attn.k_norm",
                        "mlp",
                        "input_layernorm",
                        "post_attention_layernorm",
                        "post_feedforward_layernorm"};
}

// OlmoeSparseMoeBlock, which FlexOlmoSparseMoeBlock is.
void mix_experts(LayerPlan& layer, const Config& config, const Model& model) {
  MoeSpec moe;
  moe.hidden = model.hidden_size;
  moe.experts = config.dimension("num_experts");
  moe.top_k = config.dimension("num_experts_per_tok", moe.experts);
  moe.expert_intermediate = model.intermediate_size;
  moe.activation = layer.mlp->activation;
  moe.normalized_top_k = config.flag_or("norm_topk_prob", false);
  layer.moe = moe;
  layer.mlp.reset();
}

}  // namespace

Model build_olmo(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  layer.norm = layer_norm(false);
  layer.norm.weight = false;
  set_attention_bias(layer.attention, config.flag("attention_bias"));
  layer.attention.clip = config.number_or("clip_qkv", 0.0, 0.0, 1e9);
  return rotary_decoder(std::move(model), config, layer);
}

Model build_olmo2(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  layer.placement = NormPlacement::post_branch;
  set_attention_bias(layer.attention, config.flag("attention_bias"));
  norm_queries_and_keys(layer, AttentionSpec::QkNorm::full_width);
  return rotary_decoder(std::move(model), config, layer);
}

// OLMo 3: three of four layers slide; each kind rotates by frequencies of its own.
Model build_olmo3(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  layer.placement = NormPlacement::post_branch;
  set_attention_bias(layer.attention, config.flag("attention_bias"));
  norm_queries_and_keys(layer, AttentionSpec::QkNorm::full_width);
  const auto slides = sliding_layers(config, model.layers, [](std::int64_t i) { return (i + 1) % 4 != 0; });
  append_token_embedding(model);
  append_rotary(model, layer.attention.rotary_dim, "model.rotary_emb", rotary_prefixes(slides));
  append_sliding_layers(model, layer, slides, config.optional_dimension("sliding_window"));
  append_final_norm(model, layer.norm);
  append_head(model, config);
  return model;
}

Model build_olmoe(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  set_attention_bias(layer.attention, config.flag("attention_bias"));
  layer.attention.clip = config.number_or("clip_qkv", 0.0, 0.0, 1e9);
  norm_queries_and_keys(layer, AttentionSpec::QkNorm::full_width);
  mix_experts(layer, config, model);
  model = rotary_decoder(std::move(model), config, layer);
  balance_routers(model, config);
  return model;
}

// FlexOlmo: Olmo2Attention and norms behind the branches around OlmoeSparseMoeBlock (modular_flex_olmo.py); queries are not clipped.
Model build_flex_olmo(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  layer.placement = NormPlacement::post_branch;
  set_attention_bias(layer.attention, config.flag("attention_bias"));
  norm_queries_and_keys(layer, AttentionSpec::QkNorm::full_width);
  mix_experts(layer, config, model);
  model = rotary_decoder(std::move(model), config, layer);
  balance_routers(model, config);
  return model;
}

// EXAONE 4: every sliding_window_pattern-th layer sees everything and, where others slide, does not rotate.
Model build_exaone4(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  layer.placement = NormPlacement::post_branch;
  norm_queries_and_keys(layer, AttentionSpec::QkNorm::per_head);
  const auto window = config.optional_dimension("sliding_window");
  const std::int64_t pattern = config.dimension("sliding_window_pattern");
  const auto slides = sliding_layers(config, model.layers, [&](std::int64_t i) { return window && (i + 1) % pattern != 0; });
  append_token_embedding(model);
  append_rotary(model, layer.attention.rotary_dim);
  append_layers(
      model, [&](std::int64_t i) { return static_cast<bool>(slides[static_cast<std::size_t>(i)]); },
      [&](bool slide) {
        LayerPlan plan = layer;
        if (slide)
          plan.attention.sliding_window = window;
        else if (window)
          plan.attention.positions = Positions::none;
        return plan;
      });
  append_final_norm(model, layer.norm);
  append_head(model, config);
  return model;
}

}  // namespace plimsoll::model
