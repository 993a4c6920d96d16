// Command R and R7B: one LayerNorm without bias feeds both branches, logits are scaled; R7B alternates windows.
#include "model/families/decoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {
namespace {

LayerPlan cohere_layer(const Config& config, Model& model) {
  LayerPlan layer = llama_layer(config, model);
  layer.placement = NormPlacement::parallel;
  layer.norm = layer_norm(false);
  layer.norm.decomposed = true;
  set_attention_bias(layer.attention, config.flag("attention_bias"));
  layer.registration = {
      "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn.q_norm", "self_attn.k_norm", "mlp",
      "input_layernorm"};
  return layer;
}

}  // namespace

Model build_cohere(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = cohere_layer(config, model);
  if (config.flag("use_qk_norm")) layer.attention.qk_norm = AttentionSpec::QkNorm::each_head;
  append_token_embedding(model);
  append_rotary(model, layer.attention.rotary_dim);
  append_layers(model, layer);
  append_final_norm(model, layer.norm);
  append_head(model, config, {.scaled = true});
  return model;
}

Model build_cohere2(const Config& config) {
  Model model = decoder_model(config);
  const LayerPlan layer = cohere_layer(config, model);
  const auto window = config.optional_dimension("sliding_window");
  const std::int64_t pattern = config.dimension_or("sliding_window_pattern", 4);
  const auto slides = sliding_layers(config, model.layers, [&](std::int64_t i) { return (i + 1) % pattern != 0; });
  append_token_embedding(model);
  append_rotary(model, layer.attention.rotary_dim);
  append_layers(
      model, [&](std::int64_t i) { return static_cast<bool>(slides[static_cast<std::size_t>(i)]); },
      [&](bool slide) {
        LayerPlan plan = layer;
        if (slide)
          plan.attention.sliding_window = window;
        else
          plan.attention.positions = Positions::none;  // only sliding layers rotate
        return plan;
      });
  append_final_norm(model, layer.norm);
  append_head(model, config, {.scaled = true});
  return model;
}

}  // namespace plimsoll::model
