// Llama and the families that change little of it: biases, a window, layers without rotation.
#include <cstdint>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "model/families/decoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {

Model build_llama(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  set_attention_bias(layer.attention, config.flag_or("attention_bias", false));
  layer.mlp->bias = config.flag_or("mlp_bias", false);
  return rotary_decoder(std::move(model), config, layer);
}

// Jais 2: llama's attention, LayerNorms, an MLP of two linears with a squared ReLU.
Model build_jais2(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  layer.norm = layer_norm();
  set_attention_bias(layer.attention, config.flag("attention_bias"));
  layer.mlp->gated = false;
  layer.mlp->bias = config.flag("mlp_bias");
  return rotary_decoder(std::move(model), config, layer);
}

Model build_mistral(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  layer.attention.sliding_window = config.optional_dimension("sliding_window");
  return rotary_decoder(std::move(model), config, layer);
}

// Ministral and Code World Model: llama's layers, of which some slide.
static Model sliding_llama(const Config& config, const std::function<bool(std::int64_t)>& slides_by_default) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  layer.mlp->bias = config.flag_or("mlp_bias", false);
  const auto window = config.optional_dimension("sliding_window");
  const auto slides = sliding_layers(config, model.layers, slides_by_default);
  append_token_embedding(model);
  append_rotary(model, layer.attention.rotary_dim);
  append_sliding_layers(model, layer, slides, window);
  append_final_norm(model, layer.norm);
  append_head(model, config);
  return model;
}

Model build_ministral(const Config& config) {
  const bool windowed = config.optional_dimension("sliding_window").has_value();
  return sliding_llama(config, [=](std::int64_t) { return windowed; });
}

Model build_cwm(const Config& config) {
  return sliding_llama(config, [](std::int64_t i) { return i % 4 != 0; });
}

// HunYuan: llama with a norm of queries and keys behind their rotation.
Model build_hunyuan_v1_dense(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  set_attention_bias(layer.attention, config.flag("attention_bias"));
  layer.attention.qk_norm = AttentionSpec::QkNorm::per_head;
  layer.names.q_norm = "query_layernorm";
  layer.names.k_norm = "key_layernorm";
  layer.registration = {"self_attn.q_proj",
                        "self_attn.k_proj",
                        "self_attn.v_proj",
                        "self_attn.o_proj",
                        "self_attn.query_layernorm",
                        "self_attn.key_layernorm",
                        "mlp",
                        "input_layernorm",
                        "post_attention_layernorm"};
  return rotary_decoder(std::move(model), config, layer);
}

// Apertus: norms of queries and keys, an MLP of two linears with an activation that learns its slopes.
Model build_apertus(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  set_attention_bias(layer.attention, config.flag("attention_bias"));
  layer.attention.qk_norm = AttentionSpec::QkNorm::per_head;
  layer.mlp->gated = false;
  layer.names.attention_norm = "attention_layernorm";
  layer.names.mlp_norm = "feedforward_layernorm";
  layer.registration = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn.q_norm",
                        "self_attn.k_norm", "mlp.up_proj",      "mlp.down_proj",    "mlp.act_fn",       "attention_layernorm",
                        "feedforward_layernorm"};
  return rotary_decoder(std::move(model), config, layer);
}

// nanochat: norms without weights, one of them before the first layer; an MLP of two linears; capped logits.
Model build_nanochat(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  set_attention_bias(layer.attention, config.flag("attention_bias"));
  layer.attention.qk_norm = AttentionSpec::QkNorm::per_head;
  layer.norm.weight = false;
  layer.mlp->gated = false;
  layer.names.up = "fc1";
  layer.names.down = "fc2";
  layer.names.activation = "activation_fn";
  model.logit_softcap = config.number_or("final_logit_softcapping", 0.0, 0.0, 1e9);
  append_token_embedding(model);
  NormSpec first = layer.norm;
  first.width = model.hidden_size;
  Block& embedding = model.blocks.back();
  embedding.operators.push_back(norm("norm", first));
  embedding.edges.push_back({0, 1});
  append_rotary(model, layer.attention.rotary_dim);
  append_layers(model, layer);
  append_final_norm(model, layer.norm);
  append_head(model, config);
  return model;
}

// Helium: llama whose output projection has no bias and takes hidden_size columns.
Model build_helium(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  layer.attention.qkv_bias = config.flag("attention_bias");
  layer.mlp->bias = config.flag("mlp_bias");
  if (layer.attention.heads * layer.attention.head_dim != model.hidden_size)
    config.fail_at("head_dim", "num_attention_heads times head_dim is not hidden_size, which HeliumAttention's o_proj takes");
  return rotary_decoder(std::move(model), config, layer);
}

static LayerPlan ernie_layer(const Config& config, Model& model) {
  LayerPlan layer = llama_layer(config, model);
  set_attention_bias(layer.attention, config.flag("use_bias"));
  layer.attention.dropout = 0;  // Ernie4_5Attention has none, whatever the config says
  layer.mlp->bias = config.flag("use_bias");
  return layer;
}

// Ernie4_5_MoeSparseMoeBlock in every moe_layer_interval-th layer of a range that counts its last layer.
Model build_ernie4_5_moe(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = ernie_layer(config, model);
  name_shared_experts(layer);
  layer.registration = {"self_attn", "mlp.gate", "mlp.experts", "mlp.shared_experts", "mlp", "input_layernorm", "post_attention_layernorm"};
  layer.names.correction_bias = "gate.moe_statics.e_score_correction_bias";
  MoeSpec moe;
  moe.hidden = model.hidden_size;
  moe.experts = config.dimension("num_experts");
  moe.top_k = config.dimension("num_experts_per_tok", moe.experts);
  moe.expert_intermediate = config.dimension("moe_intermediate_size");
  moe.shared_intermediate = product({config.integer("moe_num_shared_experts", 0, kLargestDimension), moe.expert_intermediate});
  moe.shared_bias = layer.mlp->bias;
  moe.activation = layer.mlp->activation;
  moe.wide_router = true;
  const std::int64_t interval = config.dimension("moe_layer_interval"), start = config.integer("moe_layer_start_index", 0, kMostLayers);
  const std::int64_t stated_end = config.integer("moe_layer_end_index", -1, kMostLayers);
  const std::int64_t end = stated_end == -1 ? model.layers - 1 : stated_end;
  append_token_embedding(model);
  append_rotary(model, layer.attention.rotary_dim);
  append_routed_layers(model, layer, moe, [=](std::int64_t i) { return (i + 1) % interval == 0 && i >= start && i <= end; });
  append_final_norm(model, layer.norm);
  append_head(model, config, {.bias = config.flag("use_bias")});
  balance_routers(model, config);
  return model;
}

Model build_ernie4_5(const Config& config) {
  Model model = decoder_model(config);
  const LayerPlan layer = ernie_layer(config, model);
  return rotary_decoder(std::move(model), config, layer);
}

Model build_seed_oss(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  layer.attention.qkv_bias = config.flag("attention_bias");
  layer.attention.output_bias = config.flag("attention_out_bias");
  layer.mlp->bias = config.flag("mlp_bias");
  layer.hidden_dropout = config.rate_or("residual_dropout", 0.0);
  return rotary_decoder(std::move(model), config, layer);
}

// Arcee: llama's attention, an MLP of two linears with a squared ReLU.
Model build_arcee(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  set_attention_bias(layer.attention, config.flag_or("attention_bias", false));
  layer.mlp->gated = false;
  layer.mlp->bias = config.flag_or("mlp_bias", false);
  return rotary_decoder(std::move(model), config, layer);
}

// Llama 4's text model: layers that rotate attend within chunks and may norm queries and keys, others scale their queries; dense layers and
// mixtures take turns.
Model build_llama4_text(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  set_attention_bias(layer.attention, config.flag("attention_bias"));
  MoeSpec moe;
  moe.hidden = model.hidden_size;
  moe.experts = config.dimension("num_local_experts");
  moe.top_k = config.dimension("num_experts_per_tok", moe.experts);
  moe.expert_intermediate = moe.shared_intermediate = model.intermediate_size;
  moe.activation = layer.mlp->activation;
  moe.transposed = true;
  layer.mlp->intermediate = config.dimension("intermediate_size_mlp");
  layer.names.mlp = layer.names.moe = "feed_forward";
  layer.names.router = "router";
  layer.names.activation = "activation_fn";
  layer.names.q_norm = layer.names.k_norm = "qk_norm";
  layer.qk_norm = layer.norm;
  layer.qk_norm->weight = false;
  layer.registration = {"self_attn", "feed_forward.experts", "feed_forward.router", "feed_forward.shared_expert", "feed_forward",
                        "input_layernorm", "post_attention_layernorm"};
  const std::vector<bool> rotates = rotating_layers(config, model.layers);
  const auto chunk = config.optional_dimension("attention_chunk_size");
  const auto chunked = sliding_layers(
      config, model.layers, [&](std::int64_t i) { return static_cast<bool>(rotates[static_cast<std::size_t>(i)]); }, "chunked_attention");
  const std::int64_t step = config.dimension("interleave_moe_layer_step");
  const std::vector<bool> listed = listed_layers(config, "moe_layers", model.layers);
  const bool lists = config.find("moe_layers").has_value(), norms = config.flag("use_qk_norm");
  const bool tunes = config.flag("attn_temperature_tuning");
  append_token_embedding(model);
  append_rotary(model, layer.attention.rotary_dim);
  append_layers(
      model,
      [&](std::int64_t i) {
        const auto place = static_cast<std::size_t>(i);
        return std::tuple<bool, bool, bool>(rotates[place], chunked[place], lists ? listed[place] : (i + 1) % step == 0);
      },
      [&](const std::tuple<bool, bool, bool>& kind) {
        LayerPlan plan = layer;
        const auto [rotating, in_chunks, with_experts] = kind;
        if (!rotating) plan.attention.positions = Positions::none;
        if (rotating && norms) plan.attention.qk_norm = AttentionSpec::QkNorm::per_head;
        plan.attention.tuned_scale = tunes && !rotating;
        plan.attention.chunked = in_chunks;
        if (in_chunks) plan.attention.sliding_window = chunk;
        if (with_experts) plan.moe = moe, plan.mlp.reset();
        return plan;
      });
  append_final_norm(model, layer.norm);
  append_head(model, config);
  return model;
}

// SmolLM3: some layers have no rotation, every no_rope_layer_interval-th unless listed.
Model build_smollm3(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = llama_layer(config, model);
  set_attention_bias(layer.attention, config.flag("attention_bias"));
  layer.mlp->bias = config.flag("mlp_bias");

  const std::vector<bool> rotated = rotating_layers(config, model.layers);
  const auto rotates = [&](std::int64_t i) { return static_cast<bool>(rotated[static_cast<std::size_t>(i)]); };
  const auto stated_window = config.optional_dimension("sliding_window");
  const auto window = config.flag("use_sliding_window") ? stated_window : std::nullopt;
  const auto slides = sliding_layers(config, model.layers, [&](std::int64_t i) { return window && !rotates(i); });

  append_token_embedding(model);
  append_rotary(model, layer.attention.rotary_dim);
  append_layers(
      model, [&](std::int64_t i) { return std::pair(rotates(i), static_cast<bool>(slides[static_cast<std::size_t>(i)])); },
      [&](std::pair<bool, bool> kind) {
        LayerPlan plan = layer;
        if (!kind.first) plan.attention.positions = Positions::none;
        if (kind.second) plan.attention.sliding_window = window;
        return plan;
      });
  append_final_norm(model, layer.norm);
  append_head(model, config);
  return model;
}

}  // namespace plimsoll::model
