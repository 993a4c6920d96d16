// BLOOM and Falcon: fused projections named query_key_value, ALiBi or rotation, GELU in an MLP of two linears.
#include "model/families/decoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {
namespace {

void name_modules(LayerPlan& layer) {
  layer.stack = "transformer.h";
  layer.norm = layer_norm();
  layer.names.attention = "self_attention";
  layer.names.qkv = "query_key_value";
  layer.names.output = "dense";
  layer.names.up = "dense_h_to_4h";
  layer.names.activation = "act";
  layer.names.down = "dense_4h_to_h";
}

/// Where Falcon's norms stand, and what they are called.
void place_norms(LayerPlan& layer, const Config& config) {
  const bool new_architecture = config.flag("new_decoder_architecture");
  const std::int64_t norms = config.integer_or("num_ln_in_parallel_attn", new_architecture ? 2 : 1, 1, 2);
  if (new_architecture && norms == 2) {
    if (!config.flag("parallel_attn"))
      config.refuse_at("parallel_attn", "a sequential layer of the new decoder architecture is not modelled");
    layer.placement = NormPlacement::parallel_two;
    layer.names.attention_norm = "ln_attn";
    layer.names.mlp_norm = "ln_mlp";
    layer.registration = {"self_attention", "mlp", "ln_attn", "ln_mlp"};
    return;
  }
  layer.placement = config.flag("parallel_attn") ? NormPlacement::parallel : NormPlacement::pre;
  const std::int64_t heads = config.dimension("num_attention_heads"), kv_heads = config.dimension_or("num_kv_heads", heads);
  if (new_architecture && (kv_heads == 1 || kv_heads == heads))
    config.refuse_at("num_ln_in_parallel_attn",
                     "the new decoder architecture with one norm and heads that are not grouped is not modelled");
  layer.registration = {"self_attention", "mlp", "post_attention_layernorm", "input_layernorm"};
}

}  // namespace

Model build_bloom(const Config& config) {
  if (config.flag("apply_residual_connection_post_layernorm"))
    config.refuse_at("apply_residual_connection_post_layernorm", "a residual taken behind the norm is not modelled");
  Model model = decoder_model(config);
  model.intermediate_size = product({4, model.hidden_size});
  LayerPlan layer;
  name_modules(layer);
  layer.attention = plain_attention(model, Positions::alibi);
  layer.attention.fused_qkv = true;
  set_attention_bias(layer.attention, true);
  layer.attention.dropout = config.rate_or("attention_dropout", 0.0);
  layer.mlp = plain_mlp(model, "bloom_gelu", true);
  layer.hidden_dropout = config.rate_or("hidden_dropout", 0.0);
  layer.registration = {"input_layernorm", "self_attention", "post_attention_layernorm", "mlp"};
  append_token_embedding(model, {.module = "transformer", .token = "word_embeddings", .norm = "word_embeddings_layernorm"});
  append_layers(model, layer);
  append_final_norm(model, layer.norm, "transformer.ln_f");
  append_head(model, config, {.token_classifier = "classifier"});
  return model;
}

Model build_falcon(const Config& config) {
  Model model = decoder_model(config);
  const bool new_architecture = config.flag("new_decoder_architecture");
  const bool multi_query = config.flag("multi_query");
  if (new_architecture)
    model.kv_heads = config.dimension_or("num_kv_heads", model.heads);
  else
    model.kv_heads = multi_query ? 1 : model.heads;
  config.require_divisible("num_attention_heads", model.heads, "num_kv_heads", model.kv_heads);
  model.intermediate_size = config.dimension_or("ffn_hidden_size", product({4, model.hidden_size}));
  const bool bias = config.flag("bias");

  LayerPlan layer;
  name_modules(layer);
  place_norms(layer, config);
  const bool alibi = config.flag("alibi");
  layer.attention = rotary_attention(config, model);
  if (alibi) layer.attention.positions = Positions::alibi;
  layer.attention.fused_qkv = true;
  set_attention_bias(layer.attention, bias);
  layer.mlp = plain_mlp(model, config.activation_or("activation", "gelu"), bias);
  layer.hidden_dropout = config.rate_or("hidden_dropout", 0.0);

  append_token_embedding(model, {.module = "transformer", .token = "word_embeddings"});
  append_rotary(model, layer.attention.rotary_dim, "transformer.rotary_emb");  // with ALiBi too: the class always makes it
  append_layers(model, layer);
  append_final_norm(model, layer.norm, "transformer.ln_f");
  append_head(model, config, {.token_classifier = "classifier"});
  return model;
}

}  // namespace plimsoll::model
