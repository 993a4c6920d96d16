// Qwen2, Qwen3 and their mixtures of experts: biases on queries, keys and values (2), a norm of queries and keys (3).
#include "model/families/decoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {
namespace {

std::optional<std::int64_t> window(const Config& config) {
  (void)config.find("max_window_layers");  // written by most configs, used by some classes
  const auto stated = config.optional_dimension("sliding_window");
  return config.flag_or("use_sliding_window", false) ? stated : std::nullopt;
}

void norm_queries_and_keys(LayerPlan& layer) {
  layer.attention.qk_norm = AttentionSpec::QkNorm::per_head;
  layer.registration = {"self_attn.q_proj", "self_attn.k_proj",        "self_attn.v_proj", "self_attn.o_proj",
                        "self_attn.q_norm", "self_attn.k_norm",        "mlp.experts",      "mlp",
                        "input_layernorm",  "post_attention_layernorm"};
}

/// Dense layers; the first max_window_layers see everything where a window is used.
Model dense(Model model, const Config& config, const LayerPlan& layer) {
  const auto sliding = window(config);
  const std::int64_t full_layers = config.integer_or("max_window_layers", 0, 0, kLargestDimension);
  const auto slides = sliding_layers(config, model.layers, [&](std::int64_t i) { return sliding && i >= full_layers; });
  append_token_embedding(model);
  append_rotary(model, layer.attention.rotary_dim);
  append_sliding_layers(model, layer, slides, sliding);
  append_final_norm(model, layer.norm);
  append_head(model, config);
  return model;
}

/// Layers of experts every decoder_sparse_step-th layer unless listed in mlp_only_layers, dense ones between.
Model mixed(Model model, const Config& config, const LayerPlan& layer, const MoeSpec& moe, const std::vector<bool>& slides) {
  const std::int64_t step = config.dimension("decoder_sparse_step");
  const auto dense_only = listed_layers(config, "mlp_only_layers", model.layers);
  const auto sliding = window(config);
  append_token_embedding(model);
  append_rotary(model, layer.attention.rotary_dim);
  const auto routed = [&](std::int64_t i) { return !dense_only[static_cast<std::size_t>(i)] && (i + 1) % step == 0; };
  append_routed_layers(model, layer, moe, routed, slides, sliding);
  append_final_norm(model, layer.norm);
  append_head(model, config);
  balance_routers(model, config);
  return model;
}

MoeSpec routed_experts(const Config& config, const Model& model, const LayerPlan& layer) {
  MoeSpec moe;
  moe.hidden = model.hidden_size;
  moe.experts = config.dimension("num_experts");
  moe.top_k = config.dimension("num_experts_per_tok", moe.experts);
  moe.expert_intermediate = config.dimension("moe_intermediate_size");
  moe.activation = layer.mlp->activation;
  moe.normalized_top_k = config.flag_or("norm_topk_prob", false);
  return moe;
}

}  // namespace

Model build_qwen2(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  layer.attention.qkv_bias = true;
  return dense(std::move(model), config, layer);
}

Model build_qwen3(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  set_attention_bias(layer.attention, config.flag("attention_bias"));
  norm_queries_and_keys(layer);
  return dense(std::move(model), config, layer);
}

Model build_qwen2_moe(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  layer.attention.qkv_bias = config.flag("qkv_bias");
  MoeSpec moe = routed_experts(config, model, layer);
  moe.shared_intermediate = config.dimension("shared_expert_intermediate_size");
  moe.shared_gate = true;
  layer.registration = {"self_attn", "mlp.gate", "mlp.experts", "mlp.shared_expert", "mlp", "input_layernorm", "post_attention_layernorm"};
  const bool windowed = window(config).has_value();
  const std::int64_t window_layers = config.integer_or("max_window_layers", 0, 0, kLargestDimension);
  const auto slides = sliding_layers(config, model.layers, [&](std::int64_t i) { return windowed && i % 2 == 0 && i < window_layers; });
  return mixed(std::move(model), config, layer, moe, slides);
}

Model build_qwen3_moe(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  set_attention_bias(layer.attention, config.flag("attention_bias"));
  norm_queries_and_keys(layer);
  const MoeSpec moe = routed_experts(config, model, layer);
  const std::vector<bool> slides(static_cast<std::size_t>(model.layers), window(config).has_value());
  return mixed(std::move(model), config, layer, moe, slides);
}

}  // namespace plimsoll::model
