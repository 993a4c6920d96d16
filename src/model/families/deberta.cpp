// deberta-v2 (and v3): bert with relative positions inside the attention, whose table all layers share.
#include "model/families/encoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {
namespace {

struct RelativePositions {
  std::int64_t rows = 0;  // of the shared table; 0: none
  bool key_projection = false, query_projection = false;
};

bool lists(const Config& config, const std::string& type) {
  const auto types = config.find("pos_att_type");
  if (!types) return false;
  if (types->is_text()) return types->text().find(type) != std::string::npos;  // "p2c|c2p"
  for (const auto& entry : types->elements())
    if (entry.text() == type) return true;
  return false;
}

RelativePositions relative_positions(const Config& config, const Model& model) {
  if (!config.flag_or("relative_attention", false)) return {};
  const std::int64_t buckets = config.integer_or("position_buckets", -1, -1, kLargestDimension);
  const std::int64_t stated = config.integer_or("max_relative_positions", -1, -1, kLargestDimension);
  const std::int64_t reach = buckets > 0 ? buckets : stated < 1 ? model.max_positions : stated;
  const bool own = !config.flag_or("share_att_key", false), c2p = lists(config, "c2p"), p2c = lists(config, "p2c");
  return {2 * reach, own && c2p, own && p2c};
}

LayerPlan deberta_layer(const Model& model, const Config& config, const std::string& stack) {
  LayerPlan plan;
  plan.stack = stack;
  plan.repeat = model.layers;
  plan.placement = NormPlacement::post;
  plan.norm = layer_norm(model.hidden_size);
  plan.attention = bidirectional_attention(model, config.rate_or("attention_probs_dropout_prob", 0.1));
  plan.attention.positions = Positions::relative_bias;
  plan.mlp.emplace();
  plan.mlp->hidden = model.hidden_size;
  plan.mlp->intermediate = model.intermediate_size;
  plan.mlp->bias = true;
  plan.mlp->activation = config.activation_or("hidden_act", "gelu");
  plan.hidden_dropout = model.embedding_dropout;
  plan.names.attention = "attention";
  plan.names.q = "self.query_proj";
  plan.names.k = "self.key_proj";
  plan.names.v = "self.value_proj";
  plan.names.output = "output.dense";
  plan.names.attention_norm = "attention.output.LayerNorm";
  plan.names.mlp = "";
  plan.names.up = "intermediate.dense";
  plan.names.activation = "intermediate.intermediate_act_fn";
  plan.names.down = "output.dense";
  plan.names.mlp_norm = "output.LayerNorm";
  plan.registration = {};
  return plan;
}

// Projections of the relative positions, which the attention applies to the shared table: their parameters stand behind the values'.
void add_position_projections(Block& block, const RelativePositions& relative, std::int64_t width) {
  for (auto& op : block.operators) {
    if (op.name != "attention.self.value_proj") continue;
    const auto add = [&](const char* name) {
      op.parameters.push_back(parameter(std::string("attention.self.") + name + ".weight", {width, width}, Cut::rows));
      op.parameters.push_back(parameter(std::string("attention.self.") + name + ".bias", {width}, Cut::rows));
    };
    if (relative.key_projection) add("pos_key_proj");
    if (relative.query_projection) add("pos_query_proj");
  }
}

// The table of relative positions, normed: executed before the layers, registered behind them.
void append_relative_table(Model& model, const Config& config, const Modules& name, const RelativePositions& relative) {
  BlockBuilder table(Block::Role::embedding, name("encoder"));
  const int rows = table.add(position_embedding("rel_embeddings", relative.rows, model.hidden_size), {kBlockInput});
  if (config.text_or("norm_rel_ebd", "none").find("layer_norm") != std::string::npos)
    table.norm("LayerNorm", rows, layer_norm(model.hidden_size));
  table.block().tokens = relative.rows;
  model.blocks.push_back(table.build());
}

void append_body(Model& model, const Config& config, const Modules& name) {
  TextEmbeddings embeddings;
  embeddings.name = name("embeddings");
  embeddings.width = config.dimension_or("embedding_size", model.hidden_size);
  embeddings.segments = config.integer_or("type_vocab_size", 0, 0, kLargestDimension);
  embeddings.segment_buffer = false;
  embeddings.positions = config.flag_or("position_biased_input", true) ? model.max_positions : 0;
  embeddings.projected = embeddings.width == model.hidden_size ? 0 : model.hidden_size;
  embeddings.dropout = model.embedding_dropout;
  append_text_embeddings(model, embeddings);
  const RelativePositions relative = relative_positions(config, model);
  if (relative.rows > 0) append_relative_table(model, config, name, relative);
  model.blocks.push_back(encoder_layer(deberta_layer(model, config, name("encoder.layer"))));
  add_position_projections(model.blocks.back(), relative, model.hidden_size);
  model.blocks.back().input = 0;
  if (relative.rows == 0) return;
  model.blocks.back().side_inputs = {1};
  model.registration = {0, 2, 1};
}

void append_masked_head(Model& model, const Config& config, const Modules& name) {
  model.task = Model::Task::masked_lm;
  const bool legacy = config.flag_or("legacy", true);
  const std::int64_t width = config.dimension_or("embedding_size", model.hidden_size);
  const std::string module = legacy ? "transform." : "", words = name("embeddings.word_embeddings.weight");
  Chain head(Block::Role::head, legacy ? "cls.predictions" : "lm_predictions.lm_head", model.hidden_size);
  head.dense(module + "dense", legacy ? width : model.hidden_size)
      .activation(module + "transform_act_fn", config.activation_or("hidden_act", "gelu"))
      .norm(module + "LayerNorm");
  if (legacy) {
    head.vocabulary("decoder", model.vocab_size, model.tied_embeddings ? words : "", true, "bias")
        .append_to(model, {"decoder", "transform"});
  } else {
    // The new head multiplies by the word embeddings themselves.
    model.tied_embeddings = true;
    head.vocabulary("words", model.vocab_size, words, true, "bias").append_to(model, {"words", "dense", "LayerNorm"});
  }
}

}  // namespace

Model build_deberta_v2(const Config& config) {
  if (config.integer_or("conv_kernel_size", 0, 0, kLargestDimension) > 0)
    config.refuse_at("conv_kernel_size", "deberta's convolution beside the first layer is not modelled");
  note_keys(config, {"num_labels", "pooler_hidden_act", "pooler_dropout", "pooler_hidden_size", "cls_dropout", "legacy", "norm_rel_ebd"});
  if (const auto types = config.find("pos_att_type")) types->mark_read();
  const Modules name(config, "deberta");
  Model model = encoder_model(config);
  model.intermediate_size = config.dimension("intermediate_size");
  model.max_positions = config.dimension("max_position_embeddings");
  model.embedding_dropout = config.rate_or("hidden_dropout_prob", 0.1);
  append_body(model, config, name);

  if (name.base_model()) {
    model.task = Model::Task::backbone;
    model.tied_embeddings = false;
  } else if (config.architecture_ends_with("ForMaskedLM")) {
    append_masked_head(model, config, name);
  } else {
    const bool pooled = config.architecture_ends_with("ForSequenceClassification") || config.architecture_ends_with("ForMultipleChoice");
    const std::int64_t width = config.dimension_or("pooler_hidden_size", model.hidden_size);
    if (pooled && width != model.hidden_size)
      config.refuse_at("pooler_hidden_size", "a pooler of another width than the layers is not modelled");
    if (pooled) {
      const std::string activation = config.activation_or("pooler_hidden_act", "gelu");
      Chain(Block::Role::pooler, "pooler", width, 1)
          .dropout(config.rate_or("pooler_dropout", 0.0))
          .dense("dense", width)
          .activation("activation", activation)
          .append_to(model);
    }
    if (!append_linear_text_head(model, config, {config.rate_or("cls_dropout", model.embedding_dropout)}))
      refuse_head(
          config,
          "ForMaskedLM, ForSequenceClassification, ForTokenClassification, ForQuestionAnswering, ForMultipleChoice and the base model");
  }
  if (!model.registration.empty())
    for (auto block = static_cast<int>(model.registration.size()); block < static_cast<int>(model.blocks.size()); ++block)
      model.registration.push_back(block);
  return model;
}

}  // namespace plimsoll::model
