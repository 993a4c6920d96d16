// DeepSeek-V2 and V3: latent attention, a few dense layers, then many small experts beside shared ones; and who took over either.
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "model/families/decoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {
namespace {

AttentionSpec latent_attention(const Config& config, Model& model) {
  MlaSpec mla;
  mla.q_lora_rank = config.optional_dimension("q_lora_rank").value_or(0);
  mla.kv_lora_rank = config.dimension("kv_lora_rank");
  mla.qk_nope_head_dim = config.dimension("qk_nope_head_dim");
  mla.qk_rope_head_dim = config.dimension("qk_rope_head_dim");
  mla.v_head_dim = config.dimension("v_head_dim");
  model.head_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
  model.kv_heads = model.heads;  // keys and values are expanded to every head
  AttentionSpec spec = rotary_attention(config, model);
  spec.rotary_dim = mla.qk_rope_head_dim;
  set_attention_bias(spec, config.flag("attention_bias"));
  spec.mla = mla;
  return spec;
}

/// Latent attention and experts beside shared ones.
LayerPlan latent_layer(const Config& config, Model& model) {
  LayerPlan layer = llama_layer(config, model);
  layer.attention = latent_attention(config, model);
  layer.mlp->bias = config.flag_or("mlp_bias", false);
  name_shared_experts(layer);
  return layer;
}

/// DeepSeek-V2: the best by softmax, in groups where the config says so.
MoeSpec scaled_experts(const Config& config, const Model& model) {
  MoeSpec moe = corrected_experts(config, model);
  moe.correction_bias = moe.normalized_top_k = false;
  if (config.text_or("topk_method", "greedy") == "greedy") moe.groups = moe.chosen_groups = MoeSpec{}.groups;
  return moe;
}

Model routed_model(Model model, const Config& config, const LayerPlan& layer, const MoeSpec& moe,
                   const std::function<bool(std::int64_t)>& routed) {
  append_token_embedding(model);
  append_rotary(model, layer.attention.rotary_dim);
  append_routed_layers(model, layer, moe, routed);
  append_final_norm(model, layer.norm);
  append_head(model, config);
  return model;
}

std::function<bool(std::int64_t)> behind_dense_layers(const Config& config) {
  return [dense = config.integer("first_k_dense_replace", 0, kLargestDimension)](std::int64_t i) { return i >= dense; };
}

/// "mlp_layer_types", without which the first layer is dense.
std::function<bool(std::int64_t)> sparse_layers(const Config& config, std::int64_t layers) {
  std::vector<bool> sparse(static_cast<std::size_t>(layers), true);
  sparse[0] = false;
  if (const auto types = config.find("mlp_layer_types")) {
    if (static_cast<std::int64_t>(types->size()) < layers) types->expected("a type for each of " + std::to_string(layers) + " layers");
    for (std::size_t i = 0; i < sparse.size(); ++i) {
      const JsonValue type = types->at(i);
      if (type.text() != "dense" && type.text() != "sparse") type.expected("\"dense\" or \"sparse\"");
      sparse[i] = type.text() == "sparse";
    }
  }
  return [sparse](std::int64_t i) { return static_cast<bool>(sparse[static_cast<std::size_t>(i)]); };
}

}  // namespace

Model build_deepseek_v2(const Config& config) {
  Model model = decoder_model(config);
  const LayerPlan layer = latent_layer(config, model);
  const MoeSpec moe = scaled_experts(config, model);
  return routed_model(std::move(model), config, layer, moe, behind_dense_layers(config));
}

Model build_deepseek_v3(const Config& config) {
  Model model = decoder_model(config);
  const LayerPlan layer = latent_layer(config, model);
  const MoeSpec moe = corrected_experts(config, model, {.groups = 8, .chosen_groups = 4});
  return routed_model(std::move(model), config, layer, moe, behind_dense_layers(config));
}

// GLM-4.7-Flash: DeepSeek's attention, the experts of GLM-4.5.
Model build_glm4_moe_lite(const Config& config) {
  Model model = decoder_model(config);
  const LayerPlan layer = latent_layer(config, model);
  const MoeSpec moe = corrected_experts(config, model);
  const auto sparse = sparse_layers(config, model.layers);
  return routed_model(std::move(model), config, layer, moe, sparse);
}

// Youtu-LLM: DeepSeek's attention in a dense model.
Model build_youtu(const Config& config) {
  Model model = decoder_model(config);
  const LayerPlan layer = latent_layer(config, model);
  return rotary_decoder(std::move(model), config, layer);
}

// dots.llm1: the attention of Qwen3, DeepSeek's experts.
Model build_dots1(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  set_attention_bias(layer.attention, config.flag("attention_bias"));
  layer.attention.qk_norm = AttentionSpec::QkNorm::per_head;
  name_shared_experts(layer);
  const MoeSpec moe = corrected_experts(config, model, {.normalized_top_k = false});
  const auto window = config.optional_dimension("sliding_window");
  const std::int64_t full_layers = config.integer_or("max_window_layers", 0, 0, kLargestDimension);
  const auto slides = sliding_layers(config, model.layers, [&](std::int64_t i) { return window && i >= full_layers; });
  const auto routed = behind_dense_layers(config);
  append_token_embedding(model);
  append_rotary(model, layer.attention.rotary_dim);
  append_routed_layers(model, layer, moe, routed, slides, window);
  append_final_norm(model, layer.norm);
  append_head(model, config);
  return model;
}

}  // namespace plimsoll::model
