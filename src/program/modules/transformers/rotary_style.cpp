#include "program/modules/transformers/rotary_style.hpp"

#include <algorithm>
#include <iterator>

namespace plimsoll::program::rotary {

namespace {

/// Families with LayerNorm.
void style_with_layer_norms(Style& style, const std::string& model_type) {
  if (model_type == "olmo") style.fp32_tables = true;
  if (model_type == "cohere" || model_type == "cohere2") {
    style.rotation = Rotation::neighbours_in_fp32;
    style.residual_first = style.scaled_logits = true;
  }
  if (model_type == "starcoder2") {
    style.dropout_within = true;
    style.up = "c_fc";
    style.down = "c_proj";
  }
  if (model_type == "stablelm") {
    style.rotation = Rotation::join_last;
    style.residual_first = style.norm_each_head = style.rotates_in_frame = true;
    style.q_norm = "q_layernorm";
    style.k_norm = "k_layernorm";
  }
  if (model_type == "phi") {
    style.rotation = Rotation::join_last;
    style.norms_turned_heads = style.rotates_in_frame = true;
    style.output = "dense";
    style.q_norm = "q_layernorm";
    style.k_norm = "k_layernorm";
    style.up = "fc1";
    style.down = "fc2";
    style.final_norm = "final_layernorm";
  }
}

}  // namespace

std::string text_type(const std::string& model_type) {
  if (model_type == "gemma3") return "gemma3_text";
  if (model_type == "qwen2_vl" || model_type == "qwen2_5_vl") return "qwen2";
  return model_type == "llava" ? "llama" : model_type;
}

Style style_of(const Model& model, const RunOptions& options) {
  Style style;
  const std::string type = text_type(model.model_type);
  if (type == "gpt_oss") style = {.norm_rounding = Norm::Rounding::after_weight, .sinks = true};
  if (type == "apertus")
    style = {.norms_turned_heads = true, .attention_norm = "attention_layernorm", .plain_mlp_norm = "feedforward_layernorm"};
  if (type == "nanochat") style = {.norms_behind_rotation = true, .norm_before_layers = true, .up = "fc1", .down = "fc2"};
  if (type == "llama4_text")
    style = {.norm_rounding = Norm::Rounding::within,
             .complex_heads = true,
             .attended_kept = true,
             .mixture = "feed_forward",
             .mlp = "feed_forward"};
  if (type == "helium") style = {.norm_rounding = Norm::Rounding::after_wide_weight, .rotation = Rotation::neighbours};
  if (type == "olmo2" || type == "olmo3" || type == "flex_olmo")
    style = {.norm_rounding = Norm::Rounding::after_weight, .fp32_tables = true};
  if (type == "gemma" || type == "gemma2" || type == "vaultgemma" || type == "gemma3_text") style.scaled_embedding = true;
  if (type == "vaultgemma") style.plain_mlp_norm = "pre_feedforward_layernorm";
  if (type == "gemma3_text" || type == "exaone4") style.norms_turned_heads = true;
  style.frequencies_by_kind = type == "gemma3_text" || type == "olmo3";
  if (type == "hunyuan_v1_dense") {
    style.norms_behind_rotation = true;
    style.q_norm = "query_layernorm";
    style.k_norm = "key_layernorm";
  }
  if (type == "ministral3") style.scaled_queries = true;
  if (type == "minimax_m2") style.rotation = Rotation::join_last;
  if (type == "glm4_moe") {
    style.rotation = Rotation::join_last;
    style.norms_behind_all = true;
  }
  if (type == "glm" || type == "glm4") style.rotation = Rotation::neighbours_join_last;
  if (type == "glm4") {
    style.attention_out_norm = "post_self_attn_layernorm";
    style.mlp_norm = "post_attention_layernorm";
    style.mlp_out_norm = "post_mlp_layernorm";
  }
  if (type == "nemotron") {
    style.rotation = Rotation::join_last;
    style.joins_both_at_last = true;
  }
  if (type == "seed_oss") style.dropout_within = true;
  if (type == "ernie4_5" || type == "ernie4_5_moe") {
    style.wide_tables = true;
    style.rotation = Rotation::neighbours_then_fp32;
  }
  style_with_layer_norms(style, type);
  if (type == "granite" || type == "granitemoe" || type == "hyperclovax") style.scaled_everywhere = true;
  if (type == "hyperclovax") {
    style.scaled_logits = true;
    style.attention_out_norm = "post_norm1";
    style.mlp_norm = "post_attention_layernorm";
    style.mlp_out_norm = "post_norm2";
  }
  if (type == "granitemoe") style.mixture = "block_sparse_moe";
  if (type == "phi3") style.rotation = Rotation::join_each;
  constexpr const char* kOneMask[] = {"mistral", "ministral3", "mixtral", "phi3", "starcoder2", "qwen3_moe", "dots1"};
  style.one_mask = std::find(std::begin(kOneMask), std::end(kOneMask), type) != std::end(kOneMask);
  if (type == "deepseek_v2") style.latent_rotation = LatentAttention::Rotation::complex;
  style.masks_outside = model.model_type == "gemma3";
  style.positions_3d = model.model_type == "qwen2_vl" || model.model_type == "qwen2_5_vl";
  style.model_type = type;
  style.liger = liger_patches(model.model_type, options);
  return style;
}

}  // namespace plimsoll::program::rotary
