// gpt-oss: every second layer slides over 128 tokens, attention has sinks, experts have biases and clamped gates.
#include "model/families/decoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {

Model build_gpt_oss(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  set_attention_bias(layer.attention, config.flag("attention_bias"));
  layer.attention.sinks = true;
  MoeSpec moe;
  moe.hidden = model.hidden_size;
  moe.experts = config.dimension("num_local_experts");
  moe.top_k = config.dimension("num_experts_per_tok", moe.experts);
  moe.expert_intermediate = model.intermediate_size;
  moe.router_bias = moe.expert_bias = moe.transposed = true;
  moe.activation = "clamped_swiglu";
  layer.moe = moe;
  layer.mlp.reset();
  layer.names.router = "router";
  layer.registration = {"self_attn", "self_attn.q_proj", "self_attn.k_proj",        "self_attn.v_proj", "self_attn.o_proj",
                        "mlp",       "input_layernorm",  "post_attention_layernorm"};

  const auto window = config.optional_dimension("sliding_window");
  const auto slides = sliding_layers(config, model.layers, [](std::int64_t i) { return i % 2 == 0; });
  append_token_embedding(model);
  append_rotary(model, layer.attention.rotary_dim);
  append_sliding_layers(model, layer, slides, window);
  append_final_norm(model, layer.norm);
  append_head(model, config);
  balance_routers(model, config);
  return model;
}

}  // namespace plimsoll::model
