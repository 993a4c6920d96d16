// What the configs of text decoders say alike: dimensions, attentions, MLPs, experts, and which layers slide, rotate or are listed.
#include <fmt/format.h>

#include <algorithm>

#include "model/families/decoder.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll::model {
namespace {

/// Query heads share key-value heads in equal groups. A class builds (and counts) without, but cannot run.
void check_groups(Model& model, const Config& config) {
  if (model.heads % model.kv_heads == 0) return;
  const std::string problem = fmt::format("{} query heads cannot share {} key-value heads evenly", model.heads, model.kv_heads);
  if (config.given("num_key_value_heads")) config.fail_at("num_key_value_heads", problem);
  model.activations_modelled = false;
  model.assumed.push_back(problem + ": the class's default of key-value heads counts parameters, but such a model does not run");
}

}  // namespace

double rotary_share(const Config& config, double fallback) {
  double share = config.number_or("partial_rotary_factor", fallback, 0.0, 1.0);
  for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters"}) {
    const auto value = config.find(key);
    if (!value) continue;
    value->mark_read();
    if (!value->is_object()) continue;
    const auto nested = value->find("partial_rotary_factor");
    if (nested && !nested->is_null()) share = nested->number(0.0, 1.0);
  }
  return share;
}

Model decoder_model(const Config& config) {
  Model model;
  model.name = config.name();
  model.model_type = config.model_type();
  model.architecture = config.architecture();
  model.layers = config.layers();
  model.hidden_size = config.dimension("hidden_size");
  model.heads = config.dimension("num_attention_heads");
  model.kv_heads = config.optional_dimension("num_key_value_heads").value_or(model.heads);
  if (const auto given = config.optional_dimension("head_dim")) {
    model.head_dim = *given;
  } else {
    config.require_divisible("hidden_size", model.hidden_size, "num_attention_heads", model.heads);
    model.head_dim = model.hidden_size / model.heads;
  }
  check_groups(model, config);
  model.vocab_size = config.dimension("vocab_size");
  model.max_positions = config.optional_dimension("max_position_embeddings").value_or(0);
  model.tied_embeddings = config.flag_or("tie_word_embeddings", false);
  return model;
}

AttentionSpec plain_attention(const Model& model, Positions positions) {
  AttentionSpec spec;
  spec.hidden = model.hidden_size;
  spec.heads = model.heads;
  spec.kv_heads = model.kv_heads;
  spec.head_dim = model.head_dim;
  spec.positions = positions;
  return spec;
}

AttentionSpec rotary_attention(const Config& config, const Model& model, double default_share) {
  AttentionSpec spec = plain_attention(model, Positions::rope);
  spec.rotary_dim = static_cast<std::int64_t>(static_cast<double>(model.head_dim) * rotary_share(config, default_share));
  spec.dropout = config.rate_or("attention_dropout", 0.0);
  return spec;
}

MoeSpec corrected_experts(const Config& config, const Model& model, const ExpertDefaults& defaults) {
  MoeSpec moe;
  moe.hidden = model.hidden_size;
  moe.experts = config.dimension("n_routed_experts");
  moe.top_k = config.dimension("num_experts_per_tok", moe.experts);
  moe.expert_intermediate = config.dimension("moe_intermediate_size");
  moe.shared_intermediate = product({config.integer_or("n_shared_experts", 0, 0, kLargestDimension), moe.expert_intermediate});
  moe.activation = config.activation_or("hidden_act", "silu");
  moe.correction_bias = true;
  moe.normalized_top_k = config.flag_or("norm_topk_prob", defaults.normalized_top_k);
  moe.groups = config.integer_or("n_group", defaults.groups, 1, moe.experts);
  moe.chosen_groups = config.integer_or("topk_group", defaults.chosen_groups, 1, moe.groups);
  (void)config.find("num_nextn_predict_layers");  // the class builds no multi-token prediction
  return moe;
}

void name_shared_experts(LayerPlan& layer) {
  layer.names.shared = "shared_experts";
  layer.registration = {"mlp.experts", "mlp.gate", "mlp.shared_experts", "mlp", "input_layernorm", "post_attention_layernorm"};
  std::vector<std::string> attention = {"self_attn"};
  if (layer.attention.qk_norm != AttentionSpec::QkNorm::none)  // behind all projections
    attention = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn.q_norm", "self_attn.k_norm"};
  layer.registration.insert(layer.registration.begin(), attention.begin(), attention.end());
}

LayerPlan llama_layer(const Config& config, Model& model, double default_share) {
  model.intermediate_size = config.dimension("intermediate_size");
  LayerPlan layer;
  layer.attention = rotary_attention(config, model, default_share);
  layer.hidden_dropout = config.rate_or("hidden_dropout", 0.0);  // Megatron's: the public configs of llama's kind have none
  layer.mlp = MlpSpec{.hidden = model.hidden_size,
                      .intermediate = model.intermediate_size,
                      .gated = true,
                      .activation = config.activation_or("hidden_act", "silu")};
  return layer;
}

void set_attention_bias(AttentionSpec& attention, bool bias) { attention.qkv_bias = attention.output_bias = bias; }

NormSpec layer_norm(bool bias) {
  NormSpec spec;
  spec.kind = NormSpec::Kind::layer_norm;
  spec.bias = bias;
  return spec;
}

MlpSpec plain_mlp(const Model& model, const std::string& activation, bool bias) {
  return {.hidden = model.hidden_size, .intermediate = model.intermediate_size, .bias = bias, .activation = activation};
}

std::vector<bool> sliding_layers(const Config& config, std::int64_t layers, const std::function<bool(std::int64_t)>& by_default,
                                 std::string_view kind) {
  std::vector<bool> slides;
  const auto types = config.find("layer_types");
  if (types && static_cast<std::int64_t>(types->size()) < layers) types->expected(fmt::format("an array of {} layer types", layers));
  for (std::int64_t i = 0; i < layers; ++i) {
    if (!types) {
      slides.push_back(by_default(i));
      continue;
    }
    const JsonValue type = types->at(static_cast<std::size_t>(i));
    const std::string& name = type.text();
    if (name != kind && name != "full_attention") type.expected(fmt::format("\"full_attention\" or \"{}\"", kind));
    slides.push_back(name == kind);
  }
  return slides;
}

std::vector<bool> rotating_layers(const Config& config, std::int64_t layers) {
  const std::int64_t interval = config.dimension("no_rope_layer_interval");
  const auto listed = config.find("no_rope_layers");
  std::vector<bool> rotates(static_cast<std::size_t>(layers));
  for (std::size_t i = 0; i < rotates.size(); ++i)
    rotates[i] = listed && listed->size() > 0 ? listed->at(i).integer(0, 1) == 1 : (static_cast<std::int64_t>(i) + 1) % interval != 0;
  return rotates;
}

std::vector<std::string> rotary_prefixes(const std::vector<bool>& slides) {
  std::vector<std::string> prefixes;
  for (const bool kind : {false, true})
    if (std::find(slides.begin(), slides.end(), kind) != slides.end()) prefixes.push_back(kind ? "sliding_attention_" : "full_attention_");
  return prefixes;
}

std::vector<bool> listed_layers(const Config& config, std::string_view key, std::int64_t layers) {
  std::vector<bool> listed(static_cast<std::size_t>(layers), false);
  const auto list = config.find(key);
  if (!list) return listed;
  for (const auto& element : list->elements()) listed[static_cast<std::size_t>(element.integer(0, layers - 1))] = true;
  return listed;
}

}  // namespace plimsoll::model
