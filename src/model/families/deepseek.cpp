// DeepSeek-V2 and V3: latent attention, a few dense layers, then many small experts beside shared ones.
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

MoeSpec routed_experts(const Config& config, const Model& model, const std::string& activation) {
  MoeSpec moe;
  moe.hidden = model.hidden_size;
  moe.experts = config.dimension("n_routed_experts");
  moe.top_k = config.dimension("num_experts_per_tok", moe.experts);
  moe.expert_intermediate = config.dimension("moe_intermediate_size");
  moe.shared_intermediate = product({config.integer_or("n_shared_experts", 0, 0, kLargestDimension), moe.expert_intermediate});
  moe.activation = activation;
  (void)config.find("num_nextn_predict_layers");  // the class builds no multi-token prediction
  return moe;
}

Model build_deepseek(const Config& config, bool correction_bias) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  layer.attention = latent_attention(config, model);
  layer.mlp->bias = config.flag_or("mlp_bias", false);
  layer.names.shared = "shared_experts";
  layer.registration = {"self_attn", "mlp.experts", "mlp.gate", "mlp.shared_experts", "mlp", "input_layernorm", "post_attention_layernorm"};
  MoeSpec moe = routed_experts(config, model, layer.mlp->activation);
  moe.correction_bias = correction_bias;
  if (correction_bias) {  // deepseek_v3
    moe.normalized_top_k = config.flag_or("norm_topk_prob", true);
    moe.groups = config.integer_or("n_group", 8, 1, moe.experts);
    moe.chosen_groups = config.integer_or("topk_group", 4, 1, moe.groups);
  } else if (config.text_or("topk_method", "greedy") != "greedy") {
    moe.groups = config.integer_or("n_group", 1, 1, moe.experts);
    moe.chosen_groups = config.integer_or("topk_group", 1, 1, moe.groups);
  }
  const std::int64_t dense_layers = config.integer("first_k_dense_replace", 0, kLargestDimension);

  append_token_embedding(model);
  append_rotary(model, layer.attention.rotary_dim);
  append_layers(
      model, [&](std::int64_t i) { return i >= dense_layers; },
      [&](bool routed) {
        LayerPlan plan = layer;
        if (routed) plan.moe = moe, plan.mlp.reset();
        return plan;
      });
  append_final_norm(model, layer.norm);
  append_head(model, config);
  return model;
}

}  // namespace

Model build_deepseek_v2(const Config& config) { return build_deepseek(config, false); }
Model build_deepseek_v3(const Config& config) { return build_deepseek(config, true); }

}  // namespace plimsoll::model
