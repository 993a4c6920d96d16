// GPT-2, GPT-BigCode (one key-value head), GPT-Neo (alternating local attention): learned positions, LayerNorm, MLP of two linears.
#include "model/families/decoder.hpp"
#include "model/families/families.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::model {
namespace {

LayerPlan gpt_layer(const Config& config, Model& model) {
  model.intermediate_size = config.dimension_or("n_inner", product({4, model.hidden_size}));
  LayerPlan layer;
  layer.stack = "transformer.h";
  layer.norm = layer_norm();
  layer.attention = plain_attention(model, Positions::learned);
  set_attention_bias(layer.attention, true);
  layer.mlp = plain_mlp(model, config.activation("activation_function"), true);
  layer.names.attention = "attn";
  layer.names.qkv = "c_attn";
  layer.names.output = "c_proj";
  layer.names.up = "c_fc";
  layer.names.activation = "act";
  layer.names.down = "c_proj";
  layer.names.attention_norm = "ln_1";
  layer.names.mlp_norm = "ln_2";
  layer.registration = {"ln_1", "attn", "ln_2", "mlp"};
  return layer;
}

void refuse_cross_attention(const Config& config) {
  if (config.flag_or("add_cross_attention", false)) config.refuse_at("add_cross_attention", "cross attention within GPT-2 is not modelled");
}

Model assemble(Model model, const Config& config, const LayerPlan& layer) {
  append_token_embedding(model, {.module = "transformer", .token = "wte", .position = "wpe", .position_rows = model.max_positions});
  append_layers(model, layer);
  append_final_norm(model, layer.norm, "transformer.ln_f");
  append_head(model, config, {.token_classifier = "classifier"});
  return model;
}

/// [["global", "local"], 6] twelve times alternating …: for every layer whether it is local.
std::vector<bool> local_layers(const Config& config, std::int64_t layers) {
  std::vector<bool> local;
  const auto types = config.find("attention_types");
  const auto note = [&](const JsonValue& type) {
    const std::string& name = type.text();
    if (name != "global" && name != "local") type.expected("\"global\" or \"local\"");
    if (static_cast<std::int64_t>(local.size()) == layers) type.expected("attention_types for as many layers as num_layers says");
    local.push_back(name == "local");
  };
  if (types) {
    for (const auto& group : types->elements())
      for (std::int64_t turn = group.at(1).integer(1, kMostLayers); turn > 0; --turn)
        for (const auto& type : group.at(0).elements()) note(type);
  } else {
    for (std::int64_t i = 0; i < layers; ++i) local.push_back(i % 2 == 1);  // the class's default: [[["global", "local"], 12]]
  }
  if (static_cast<std::int64_t>(local.size()) != layers) config.fail_at("attention_types", "attention_types do not give num_layers layers");
  return local;
}

}  // namespace

Model build_gpt2(const Config& config) {
  refuse_cross_attention(config);
  Model model = decoder_model(config);
  model.embedding_dropout = config.rate_or("embd_pdrop", 0.0);
  LayerPlan layer = gpt_layer(config, model);
  layer.transposed_linears = true;
  layer.attention.fused_qkv = true;
  layer.attention.dropout = config.rate_or("attn_pdrop", 0.0);
  layer.hidden_dropout = config.rate_or("resid_pdrop", 0.0);
  return assemble(std::move(model), config, layer);
}

Model build_gpt_bigcode(const Config& config) {
  refuse_cross_attention(config);
  Model model = decoder_model(config);
  if (config.flag("multi_query")) model.kv_heads = 1;
  model.embedding_dropout = config.rate_or("embd_pdrop", 0.0);
  LayerPlan layer = gpt_layer(config, model);
  layer.attention.fused_qkv = true;
  layer.attention.dropout = config.rate_or("attn_pdrop", 0.0);
  layer.hidden_dropout = config.rate_or("resid_pdrop", 0.0);
  append_token_embedding(model, {.module = "transformer", .token = "wte", .position = "wpe", .position_rows = model.max_positions});
  model.blocks.back().operators.front().buffers.push_back({"bias", {model.max_positions, model.max_positions}, DType::boolean, false});
  append_layers(model, layer);
  append_final_norm(model, layer.norm, "transformer.ln_f");
  append_head(model, config, {.token_classifier = "classifier"});
  return model;
}

Model build_gpt_neo(const Config& config) {
  Model model = decoder_model(config);
  model.embedding_dropout = config.rate_or("embed_dropout", 0.0);
  LayerPlan layer = gpt_layer(config, model);
  model.intermediate_size = config.dimension_or("intermediate_size", product({4, model.hidden_size}));
  layer.mlp->intermediate = model.intermediate_size;
  layer.attention.qkv_bias = false;
  layer.attention.dropout = config.rate_or("attention_dropout", 0.0);
  layer.hidden_dropout = config.rate_or("resid_dropout", 0.0);
  layer.attention_buffers = {{"attn.attention.bias", {1, 1, model.max_positions, model.max_positions}, DType::boolean, false}};
  layer.names.attention = "attn.attention";
  layer.names.output = "out_proj";
  layer.registration = {
      "ln_1", "attn.attention.k_proj", "attn.attention.v_proj", "attn.attention.q_proj", "attn.attention.out_proj", "ln_2", "mlp"};
  const auto local = local_layers(config, model.layers);
  const std::int64_t window = config.dimension("window_size");
  append_token_embedding(model, {.module = "transformer", .token = "wte", .position = "wpe", .position_rows = model.max_positions});
  append_layers(
      model, [&](std::int64_t i) { return static_cast<bool>(local[static_cast<std::size_t>(i)]); },
      [&](bool is_local) {
        LayerPlan plan = layer;
        if (is_local) plan.attention.sliding_window = window;
        return plan;
      });
  append_final_norm(model, layer.norm, "transformer.ln_f");
  append_head(model, config, {.token_classifier = "classifier"});
  return model;
}

}  // namespace plimsoll::model
