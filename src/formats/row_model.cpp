// The network of a measured row.
//
// `config` (Hugging Face's keys, with its class or model type) wins over single fields, and fields win over the name. A row that gives
// fields is built as the published architecture that has exactly these parts; Megatron's mixture of experts is taken from
// `megatron_config`.
#include <algorithm>
#include <charconv>
#include <cstdio>

#include "data/shipped_files.hpp"
#include "formats/foreign/torchtitan_flavors.hpp"
#include "formats/row_reader.hpp"
#include "plimsoll/error.hpp"
#include "units/real.hpp"
#include "units/text.hpp"

namespace plimsoll::formats {
namespace {

const std::vector<std::string>& field_names() {
  static const std::vector<std::string> names = {
      "name",
      "model_type",
      "class",
      "library",
      "config",
      "megatron_config",
      "hidden_size",
      "num_layers",
      "mlp",
      "norm",
      "positions",
      "linear_bias",
      "qkv_bias",
      "tie_embeddings",
      "vocab_size",
      "head_dim",
      "qk_norm",
      "moe",
      "mla",
      "attention_type",
      "attention_kind",
      "hybrid",
      "mtp_layers",
      "params",
      "sliding_window",
      "sliding_window_every",
      "attention_dropout",
      "hidden_dropout",
      "num_attention_heads",
      "num_key_value_heads",
      "intermediate_size",
      "max_positions",
  };
  return names;
}

/// The fields of a row's model, with what its config and Megatron's config say instead.
class Fields {
 public:
  explicit Fields(const JsonValue& model) : model_(model) {
    if (model.has("config")) config_ = model["config"];
    if (model.has("megatron_config")) megatron_ = model["megatron_config"];
  }

  /// A dimension by its field name, or by its name in the config.
  std::int64_t dimension(const char* field, const char* config_key) const {
    if (config_ && config_->has(config_key)) return (*config_)[config_key].integer(1, kMost);
    if (!model_.has(field)) fail(std::string("the model's ") + field + " is absent", model_.where());
    return model_[field].integer(1, kMost);
  }
  std::int64_t dimension_or(const char* field, const char* config_key, std::int64_t fallback) const {
    const bool given = model_.has(field) || (config_ && config_->has(config_key));
    return given ? dimension(field, config_key) : fallback;
  }
  bool flag(const char* field, bool fallback) const { return model_.has(field) ? model_[field].boolean() : fallback; }
  double rate(const char* field, double fallback) const { return model_.has(field) ? model_[field].number(0, 1) : fallback; }
  std::string text(const char* field) const {
    if (!model_.has(field)) fail(std::string("the model's ") + field + " is absent", model_.where());
    return model_[field].text();
  }
  bool has(const char* field) const { return model_.has(field); }
  JsonValue operator[](const char* field) const { return model_[field]; }
  const std::optional<JsonValue>& megatron() const { return megatron_; }
  std::string where() const { return model_.where(); }

 private:
  static constexpr std::int64_t kMost = std::int64_t{1} << 40;

  const JsonValue& model_;
  std::optional<JsonValue> config_, megatron_;
};

struct Moe {
  std::int64_t experts = 0, top_k = 0, width = 0, shared = 0, first_dense = 0, every = 1;
};

/// Megatron's `moe_layer_freq`: 1, or a list of 0 and 1 by layer, read as the number of dense layers in front of all others.
std::int64_t leading_dense_layers(const JsonValue& frequency) {
  if (!frequency.is_array()) {
    if (frequency.integer(1, 1 << 20) != 1) refuse("a moe_layer_freq other than 1 or a list is not modelled", frequency.where());
    return 0;
  }
  std::int64_t dense = 0, routed = 0;
  for (const JsonValue& layer : frequency.elements()) {
    if (layer.integer(0, 1) == 1) {
      ++routed;
    } else if (routed > 0) {
      refuse("a moe_layer_freq with dense layers behind routed ones is not modelled", frequency.where());
    } else {
      ++dense;
    }
  }
  return dense;
}

Moe read_moe(const Fields& fields) {
  Moe moe;
  if (fields.megatron() && fields.megatron()->has("num_moe_experts")) {
    const JsonValue& megatron = *fields.megatron();
    moe.experts = megatron["num_moe_experts"].integer(1, 1 << 20);
    moe.top_k = megatron["moe_router_topk"].integer(1, moe.experts);
    moe.width = megatron[megatron.has("moe_ffn_hidden_size") ? "moe_ffn_hidden_size" : "ffn_hidden_size"].integer(1, 1 << 30);
    if (megatron.has("moe_shared_expert_intermediate_size")) {
      const std::int64_t width = megatron["moe_shared_expert_intermediate_size"].integer(1, 1 << 30);
      if (width % moe.width != 0)
        refuse("shared experts whose width is no multiple of an expert's are not modelled",
               megatron["moe_shared_expert_intermediate_size"].where());
      moe.shared = width / moe.width;
    }
    if (megatron.has("moe_layer_freq")) moe.first_dense = leading_dense_layers(megatron["moe_layer_freq"]);
    return moe;
  }
  if (!fields.has("moe")) return moe;
  const JsonValue json = fields["moe"];
  moe.experts = json["experts"].integer(1, 1 << 20);
  moe.top_k = json["top_k"].integer(1, moe.experts);
  moe.width = json["expert_intermediate_size"].integer(1, 1 << 30);
  moe.shared = json.has("shared") ? json["shared"].integer(0, 1 << 20) : 0;
  moe.first_dense = json.has("first_dense_layers") ? json["first_dense_layers"].integer(0, 1 << 20) : 0;
  moe.every = json.has("moe_layer_every") ? json["moe_layer_every"].integer(1, 1 << 20) : 1;
  return moe;
}

/// What a name says of its size, "236b": parameters; 0: it is no size.
double size_in(const std::string& word) {
  double size = 0;
  const auto [end, error] = real_from_chars(word.data(), word.data() + word.size(), size);
  const std::string unit(end, word.data() + word.size());
  return error != std::errc() ? 0 : unit == "b" ? size * 1e9 : unit == "m" ? size * 1e6 : 0;
}

/// Names and papers round; twice as many are another model.
bool is_about(double parameters, double stated) { return parameters < 1.25 * stated && stated < 1.25 * parameters; }

/// A row's name without what is remarked behind it in parentheses.
std::string bare_name(const std::string& remarked) { return lower(remarked.substr(0, remarked.find(" ("))); }

/// The shipped model of a row's name ("Llama-3.1-8B"), also without its own size behind it ("DeepSeek-V2-236B") or a remark in parentheses;
/// empty: none. "DeepSeek-V3-16B" is no DeepSeek-V3.
std::string shipped_name(const std::string& remarked) {
  const auto shipped = shipped_models();
  const auto is_shipped = [&](const std::string& name) { return std::find(shipped.begin(), shipped.end(), name) != shipped.end(); };
  const std::string name = bare_name(remarked);
  if (is_shipped(name)) return name;
  const std::size_t dash = std::min(name.rfind('-'), name.size());
  const std::string family = name.substr(0, dash);
  const double size = size_in(name.substr(std::min(dash + 1, name.size())));
  if (!is_shipped(family)) return {};
  return size == 0 || is_about(static_cast<double>(load_model(family).parameters()), size) ? family : std::string();
}

/// torchtitan's flavor of a family and a size ("DeepSeek-V3-16B"); empty: it has none of that name.
std::string titan_name(const std::string& remarked) {
  const std::string name = bare_name(remarked);
  const std::size_t dash = name.rfind('-');
  if (dash == std::string::npos) return {};
  std::string family = name.substr(0, dash);
  std::replace(family.begin(), family.end(), '-', '_');
  const TitanFlavor* flavor = titan_flavor(family, name.substr(dash + 1));
  return flavor ? flavor->shipped : std::string();
}

/// The shipped model of a row's name and of the same width and depth, from which what the row does not say is taken; empty: none.
std::optional<Model> namesake(const Fields& fields) {
  const std::string known = fields.has("name") ? shipped_name(fields.text("name")) : std::string();
  if (known.empty()) return std::nullopt;
  Model model = load_model(known);
  const bool same = model.hidden_size == fields.dimension("hidden_size", "hidden_size") &&
                    model.layers == fields.dimension("num_layers", "num_hidden_layers");
  return same ? std::optional(std::move(model)) : std::nullopt;
}

std::int64_t vocabulary(const Fields& fields) {
  const std::optional<Model> known = fields.has("vocab_size") ? std::nullopt : namesake(fields);
  return known ? known->vocab_size : fields.dimension("vocab_size", "vocab_size");
}

/// Whether queries and keys are normed, head by head.
bool norms_heads(const Fields& fields) {
  if (fields.has("qk_norm")) return fields.flag("qk_norm", false);
  const std::optional<Model> known = namesake(fields);
  return known && std::any_of(known->blocks.begin(), known->blocks.end(), [](const Block& block) {
           return block.attention && block.attention->qk_norm == AttentionSpec::QkNorm::per_head;
         });
}

/// A shipped model that can be trained: a bare encoder gets the head of a sequence classification.
Model load_with_head(const std::string& name) {
  Model model = load_model(name);
  const std::string& bare = model.architecture;
  constexpr std::size_t kSuffix = 5;  // "Model"
  if (model.task != Model::Task::backbone || bare.size() < kSuffix || bare.substr(bare.size() - kSuffix) != "Model") return model;
  Model headed = load_model(name, bare.substr(0, bare.size() - kSuffix) + "ForSequenceClassification");
  headed.assumed.push_back("model.class: " + headed.architecture);
  return headed;
}

/// Fields describe decoders; where the name is a shipped encoder of the same width and depth, it is that encoder.
std::shared_ptr<const Model> shipped_encoder(const Fields& fields) {
  const std::string known = fields.has("name") ? shipped_name(fields.text("name")) : std::string();
  if (known.empty()) return nullptr;
  auto model = std::make_shared<const Model>(load_with_head(known));
  const bool same = model->hidden_size == fields.dimension("hidden_size", "hidden_size") &&
                    model->layers == fields.dimension("num_layers", "num_hidden_layers");
  return same && model->task != Model::Task::causal_lm ? model : nullptr;
}

/// Dimensions that every decoder's config has.
ObjectText common_config(const Fields& fields, const char* model_type, const Strategy& strategy) {
  const std::int64_t hidden = fields.dimension("hidden_size", "hidden_size"),
                     heads = fields.dimension("num_attention_heads", "num_attention_heads");
  ObjectText config;
  config.add("model_type", model_type);
  config.add("hidden_size", hidden).add("num_hidden_layers", fields.dimension("num_layers", "num_hidden_layers"));
  config.add("num_attention_heads", heads);
  config.add("vocab_size", vocabulary(fields));
  const std::int64_t positions = std::max<std::int64_t>(strategy.seq_len, 1);
  config.add("max_position_embeddings", fields.dimension_or("max_positions", "max_position_embeddings", positions));
  config.add("tie_word_embeddings", fields.flag("tie_embeddings", false));
  return config;
}

void add_grouped_heads(ObjectText& config, const Fields& fields) {
  const std::int64_t hidden = fields.dimension("hidden_size", "hidden_size"),
                     heads = fields.dimension("num_attention_heads", "num_attention_heads");
  config.add("num_key_value_heads", fields.dimension_or("num_key_value_heads", "num_key_value_heads", heads));
  const std::optional<Model> known = namesake(fields);
  const bool same_heads = known && known->heads == heads && known->head_dim > 0;
  config.add("head_dim", fields.dimension_or("head_dim", "head_dim", same_heads ? known->head_dim : hidden / heads));
}

/// Rates that a row states of a decoder with rotations: Megatron's, as the public configs of these architectures have none behind branches.
void add_dropouts(ObjectText& config, const Fields& fields) {
  for (const char* rate : {"attention_dropout", "hidden_dropout"})
    if (const double stated = fields.rate(rate, 0); stated > 0) config.add(rate, stated);
}

bool latent_attention(const Fields& fields) {
  if (fields.has("attention_type")) return fields.text("attention_type") == "mla";
  return fields.has("attention_kind") && fields.text("attention_kind").rfind("mla", 0) == 0;
}

/// Multi-head latent attention from `mla`, or from the text "mla q_lora 1536 kv_lora 512, qk 128+64, v 128".
void add_mla(ObjectText& config, const Fields& fields) {
  long long q = 0, kv = 0, nope = 0, rope = 0, v = 0;
  if (!fields.has("mla") && fields.has("attention_kind") &&
      std::sscanf(fields.text("attention_kind").c_str(), "mla q_lora %9lld kv_lora %9lld, qk %9lld+%9lld, v %9lld", &q, &kv, &nope, &rope,
                  &v) == 5) {
    config.add("q_lora_rank", std::int64_t{q}).add("kv_lora_rank", std::int64_t{kv}).add("qk_nope_head_dim", std::int64_t{nope});
    config.add("qk_rope_head_dim", std::int64_t{rope}).add("v_head_dim", std::int64_t{v});
    return;
  }
  if (!fields.has("mla"))
    fail("the model's mla is absent", fields.where(), "q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim");
  const JsonValue mla = fields["mla"];
  for (const char* key : {"q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"})
    config.add(key, mla[key].integer(1, 1 << 24));
}

/// Mixtures of experts, as the published architecture with these parts.
std::string moe_config(const Fields& fields, const Moe& moe, const Strategy& strategy) {
  const bool mla = latent_attention(fields);
  const std::int64_t intermediate = fields.dimension("intermediate_size", "intermediate_size");
  if (moe.every != 1)
    refuse("a mixture of experts in one of every " + std::to_string(moe.every) + " layers is not modelled", fields.where());
  const bool windows = fields.has("sliding_window"), qk_norm = norms_heads(fields);
  const bool shared = (moe.shared > 0 || moe.first_dense > 0) && !mla;  // or dense layers, which have the same architecture
  if (shared && (windows || fields.text("mlp") == "geglu"))
    refuse("shared experts or dense layers beside a sliding window or geglu experts are not modelled", fields.where());
  const char* type = mla ? "deepseek_v3" : shared ? "glm4_moe" : windows ? "gpt_oss" : qk_norm ? "qwen3_moe" : "mixtral";
  ObjectText config = common_config(fields, type, strategy);
  add_dropouts(config, fields);
  if (!mla) add_grouped_heads(config, fields);
  if (mla) {
    config.add("num_key_value_heads", fields.dimension("num_attention_heads", "num_attention_heads"));
    add_mla(config, fields);
    config.add("n_routed_experts", moe.experts).add("num_experts_per_tok", moe.top_k).add("moe_intermediate_size", moe.width);
    config.add("n_shared_experts", moe.shared).add("first_k_dense_replace", moe.first_dense).add("intermediate_size", intermediate);
  } else if (shared) {
    config.add("partial_rotary_factor", 1.0).add("use_qk_norm", qk_norm).add("n_shared_experts", moe.shared);
    config.add("n_routed_experts", moe.experts).add("num_experts_per_tok", moe.top_k).add("moe_intermediate_size", moe.width);
    config.add("first_k_dense_replace", moe.first_dense).add("intermediate_size", intermediate);
  } else if (windows) {
    config.add("num_local_experts", moe.experts).add("num_experts_per_tok", moe.top_k).add("intermediate_size", moe.width);
    config.add("sliding_window", fields["sliding_window"].integer(1, 1 << 30));
  } else if (qk_norm) {
    config.add("num_experts", moe.experts).add("num_experts_per_tok", moe.top_k).add("moe_intermediate_size", moe.width);
    config.add("intermediate_size", intermediate).add("decoder_sparse_step", std::int64_t{1});
  } else {
    config.add("num_local_experts", moe.experts).add("num_experts_per_tok", moe.top_k).add("intermediate_size", moe.width);
    if (fields.text("mlp") == "geglu") config.add("hidden_act", "gelu");
  }
  return config.text();
}

/// Megatron's defaults are dropouts of 0.1; recipes of the launchers over it switch them off.
double usual_dropout(const Strategy& strategy) {
  const std::string& framework = strategy.framework;
  return framework == "megatron-lm" || framework == "megatron-deepspeed" ? 0.1 : 0.0;
}

/// LayerNorm, GELU, biases: gpt2 with learned positions, bloom or mpt with ALiBi.
std::string gpt_config(const Fields& fields, const Strategy& strategy) {
  const std::string positions = fields.text("positions");
  const bool bias = fields.flag("linear_bias", true), alibi = positions == "alibi";
  if (positions != "learned" && !alibi) refuse("a GELU decoder with positions \"" + positions + "\" is not modelled", fields.where());
  if (!alibi && !bias) refuse("a GELU decoder with learned positions and without biases is not modelled", fields.where());
  const std::int64_t hidden = fields.dimension("hidden_size", "hidden_size"),
                     inner = fields.dimension("intermediate_size", "intermediate_size");
  if (fields.dimension_or("num_key_value_heads", "num_key_value_heads", 0) !=
      fields.dimension("num_attention_heads", "num_attention_heads"))
    refuse("a GELU decoder with grouped queries is not modelled", fields.where());
  if (alibi && inner != 4 * hidden) refuse("an ALiBi decoder whose MLP is not 4 · hidden_size is not modelled", fields.where());
  ObjectText config = common_config(fields, !alibi ? "gpt2" : bias ? "bloom" : "mpt", strategy);
  const double attention = fields.rate("attention_dropout", usual_dropout(strategy)),
               resid = fields.rate("hidden_dropout", usual_dropout(strategy));
  if (alibi && bias) config.add("attention_dropout", attention).add("hidden_dropout", resid);
  if (alibi) return config.text();
  config.add("n_inner", inner).add("activation_function", "gelu");
  config.add("attn_pdrop", attention).add("resid_pdrop", resid).add("embd_pdrop", resid);
  return config.text();
}

std::string dense_config(const Fields& fields, const Strategy& strategy) {
  const std::string mlp = fields.text("mlp"), norm = fields.text("norm"), positions = fields.text("positions");
  const bool bias = fields.flag("linear_bias", false), qk_norm = norms_heads(fields);
  if (mlp == "gelu" && norm == "layernorm") return gpt_config(fields, strategy);
  const bool nemotron = mlp == "relu2" && norm == "layernorm1p";
  const bool llama = (mlp == "swiglu" || mlp == "geglu") && norm == "rmsnorm";
  if ((!nemotron && !llama) || positions != "rope" || bias)
    refuse("no modelled architecture has mlp " + mlp + ", norm " + norm + ", positions " + positions +
               (bias ? " and biases" : " and no biases"),
           fields.where());
  const bool qkv_bias = fields.flag("qkv_bias", false);  // Qwen2's
  if (qkv_bias && (nemotron || qk_norm || mlp == "geglu"))
    refuse("biases on queries, keys and values are modelled by fields for a plain llama alone", fields.where(), "give model.config");
  ObjectText config = common_config(fields, nemotron ? "nemotron" : qk_norm ? "qwen3" : qkv_bias ? "qwen2" : "llama", strategy);
  add_dropouts(config, fields);
  add_grouped_heads(config, fields);
  config.add("intermediate_size", fields.dimension("intermediate_size", "intermediate_size"));
  if (mlp == "geglu") config.add("hidden_act", "gelu_pytorch_tanh");
  return config.text();
}

/// A whole config, with the class and model type that stand beside it.
std::string whole_config(const JsonValue& model) {
  const JsonValue config = model["config"];
  if (!config.is_object()) config.expected("an object");
  ObjectText text;
  for (const auto& key : config.keys()) text.raw(key, json_text(config[key]));
  if (!config.has("model_type") && model.has("model_type")) text.raw("model_type", json_text(model["model_type"]));
  if (!config.has("_class_name") && model.has("library") && model.has("class")) text.raw("_class_name", json_text(model["class"]));
  return text.text();
}

/// Whether the fields of a row leave out what no default may stand for.
bool leaves_out(const JsonValue& model) {
  const auto has = [&](const char* key) {
    const bool in_config = model.has("config") && model["config"].has(key);
    return model.has(key) || in_config;
  };
  if (model.has("hybrid")) return true;  // the order of its layers, and what is in them
  for (const char* key : {"hidden_size", "num_attention_heads", "intermediate_size", "mlp", "norm", "positions"})
    if (!has(key)) return true;
  if (!has("num_layers") && !has("num_hidden_layers")) return true;
  const Fields fields(model);
  const bool ranks = model.has("mla") || (model.has("attention_kind") && model["attention_kind"].text().rfind("mla q_lora", 0) == 0);
  if (latent_attention(fields) && !ranks) return true;
  return model.has("moe") && !(model["moe"].has("expert_intermediate_size") && model["moe"].has("experts") && model["moe"].has("top_k"));
}

/// The shipped model of a row's name, with what the row says of its width, depth, vocabulary and head: what the fields leave out is its
/// public config's. Empty: no model of that name is shipped, or the row's has another width.
std::string shipped_config(const JsonValue& model, const std::string& name) {
  const std::string known = shipped_name(name);
  const auto* file = known.empty() ? nullptr : data::find_shipped_file("models/" + known + "/config.json");
  if (!file) return {};
  const JsonDocument document = JsonDocument::parse(file->text, std::string(file->path));
  const JsonValue config = document.root();
  static const std::vector<std::pair<const char*, const char*>> said = {{"hidden_size", "hidden_size"},
                                                                        {"num_layers", "num_hidden_layers"},
                                                                        {"num_attention_heads", "num_attention_heads"},
                                                                        {"num_key_value_heads", "num_key_value_heads"},
                                                                        {"intermediate_size", "intermediate_size"},
                                                                        {"vocab_size", "vocab_size"},
                                                                        {"tie_embeddings", "tie_word_embeddings"}};
  if (model.has("hidden_size") && config.has("hidden_size") &&
      model["hidden_size"].integer(1, INT64_MAX) != config["hidden_size"].integer(1, INT64_MAX))
    return {};
  ObjectText text;
  for (const auto& key : config.keys()) {
    const auto found =
        std::find_if(said.begin(), said.end(), [&](const auto& pair) { return key == pair.second && model.has(pair.first); });
    text.raw(key, json_text(found == said.end() ? config[key] : model[found->first]));
  }
  for (const auto& [field, key] : said)
    if (model.has(field) && !config.has(key) && std::string(field) != "tie_embeddings")
      refuse("the public config of " + known + " has no " + key + ": what the row leaves out cannot be taken from it", model.where());
  return text.text();
}

/// The model of fields that leave something out, where a shipped model has it; empty otherwise.
std::shared_ptr<const Model> completed_by_shipped(const JsonValue& model, const std::string& name, RowCaches& caches) {
  if (!leaves_out(model)) return nullptr;
  const std::string config = shipped_config(model, name);
  if (config.empty()) return nullptr;
  auto completed = std::make_shared<Model>(*caches.model(config, model.where(), name, {}));
  const bool mixes =
      std::any_of(completed->blocks.begin(), completed->blocks.end(), [](const Block& block) { return block.mamba.has_value(); });
  if (model.has("hybrid") && !mixes) return nullptr;
  completed->assumed.push_back("model: what the row leaves out is the public config's of " + shipped_name(name));
  return completed;
}

}  // namespace

std::shared_ptr<const Model> read_row_model(const JsonValue& row, const Strategy& strategy, RowCaches& caches) {
  const JsonValue model = row["model"];
  if (!model.is_object()) model.expected("an object");
  std::vector<std::string> unread;
  check_keys(model, field_names(), unread, "model.");
  const std::string name = model.has("name") ? model["name"].text() : std::string();
  const std::string architecture = model.has("class") ? model["class"].text() : std::string();
  const bool typed = model.has("config") && (model["config"].has("model_type") || model["config"].has("plimsoll-graph"));
  const bool whole = typed || (model.has("config") && (!architecture.empty() || model.has("model_type")));
  if (whole) return caches.model(whole_config(model), model.where() + "/config", name, architecture);
  if (model.has("hidden_size") || model.has("config")) {
    const Fields fields(model);
    if (model.has("num_layers"))
      if (auto encoder = shipped_encoder(fields)) return encoder;
    if (auto completed = completed_by_shipped(model, name, caches)) return completed;
    if (model.has("hybrid"))
      refuse("the layers of a hybrid network (" + model["hybrid"].text() + ") are those of a shipped model, and none is called '" +
                 name.substr(0, 60) + "'",
             model.where());
    const Moe moe = read_moe(fields);
    return caches.model(moe.experts > 0 ? moe_config(fields, moe, strategy) : dense_config(fields, strategy), model.where(), name, {});
  }
  std::string known = shipped_name(name);
  if (known.empty() && strategy.framework == "torchtitan") known = titan_name(name);
  if (known.empty()) fail("the model's hidden_size is absent, and no shipped model is called '" + name.substr(0, 60) + "'", model.where());
  auto shipped = std::make_shared<const Model>(load_model(known));
  if (model.has("params"))
    if (const double stated = model["params"].number(1, 1e18); !is_about(static_cast<double>(shipped->parameters()), stated))
      fail(known + " has " + std::to_string(shipped->parameters()) + " parameters", model["params"].where(), "or say the model's fields");
  return shipped;
}

}  // namespace plimsoll::formats
