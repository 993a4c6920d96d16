// albert: one layer's parameters run num_hidden_layers times, behind narrow embeddings.
#include <fmt/format.h>

#include "model/families/encoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {
namespace {

LayerPlan albert_layer(const Model& model, const Config& config, const std::string& stack) {
  LayerPlan plan;
  plan.stack = stack;
  plan.placement = NormPlacement::post;
  plan.norm = layer_norm(model.hidden_size);
  plan.attention = bidirectional_attention(model, config.rate_or("attention_probs_dropout_prob", 0.0));
  plan.mlp = MlpSpec{.hidden = model.hidden_size,
                     .intermediate = model.intermediate_size,
                     .gated = false,
                     .fused_gate_up = false,
                     .bias = true,
                     .activation = config.activation_or("hidden_act", "gelu_new")};
  plan.hidden_dropout = config.rate_or("hidden_dropout_prob", 0.0);
  plan.dropout_behind_mlp = false;
  plan.names.attention = "attention";
  plan.names.q = "query";
  plan.names.k = "key";
  plan.names.v = "value";
  plan.names.output = "dense";
  plan.names.attention_norm = "attention.LayerNorm";
  plan.names.mlp = "";
  plan.names.up = "ffn";
  plan.names.activation = "activation";
  plan.names.down = "ffn_output";
  plan.names.mlp_norm = "full_layer_layer_norm";
  plan.registration = {"full_layer_layer_norm", "attention", "ffn", "ffn_output"};
  return plan;
}

// A later run of a layer uses the parameters of the first.
void tie_parameters(Block& block, const Block& first) {
  for (auto& op : block.operators)
    for (auto& tensor : op.parameters) tensor.tied_to = full_name(first, 0, tensor);
}

// num_hidden_layers runs over the groups; each group is run as often as its share says, the first time with parameters of its own.
void append_albert_layers(Model& model, const Config& config, const Modules& name) {
  const std::int64_t groups = config.integer_or("num_hidden_groups", 1, 1, model.layers);
  if (config.integer_or("inner_group_num", 1, 1, kMostLayers) != 1)
    config.refuse_at("inner_group_num", "groups of several layers are not modelled");
  config.require_divisible("num_hidden_layers", model.layers, "num_hidden_groups", groups);
  for (std::int64_t group = 0; group < groups; ++group) {
    LayerPlan plan = albert_layer(model, config, name(fmt::format("encoder.albert_layer_groups.{}.albert_layers", group)));
    const Block first = encoder_layer(plan);
    model.blocks.push_back(first);
    plan.first = 1;
    plan.repeat = model.layers / groups - 1;
    if (plan.repeat == 0) continue;
    model.blocks.push_back(encoder_layer(plan));
    tie_parameters(model.blocks.back(), first);
  }
}

void append_albert_pooler(Model& model, const Modules& name) {
  Chain(Block::Role::pooler, name("pooler"), model.hidden_size, 1)
      .dense("", model.hidden_size)
      .activation("activation", "tanh")
      .append_to(model);
}

}  // namespace

Model build_albert(const Config& config) {
  const Modules name(config, "albert");
  const std::int64_t width = config.dimension("embedding_size");
  Model model = encoder_model(config);
  note_keys(config, {"num_labels", "classifier_dropout_prob", "down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks"});
  model.intermediate_size = config.dimension("intermediate_size");
  model.max_positions = config.dimension("max_position_embeddings");
  model.embedding_dropout = config.rate_or("hidden_dropout_prob", 0.0);
  TextEmbeddings embeddings;
  embeddings.name = name("embeddings");
  embeddings.width = width;
  embeddings.segments = config.integer("type_vocab_size", 0, kLargestDimension);
  embeddings.positions = model.max_positions;
  embeddings.dropout = model.embedding_dropout;
  append_text_embeddings(model, embeddings);
  Chain(Block::Role::other, name("encoder.embedding_hidden_mapping_in"), width).dense("", model.hidden_size).append_to(model);
  append_albert_layers(model, config, name);

  const bool tied = model.tied_embeddings;
  model.tied_embeddings = false;
  if (name.base_model()) {
    model.task = Model::Task::backbone;
    append_albert_pooler(model, name);
  } else if (config.architecture_ends_with("ForMaskedLM")) {
    model.task = Model::Task::masked_lm;
    model.tied_embeddings = tied;
    Chain(Block::Role::head, "predictions", model.hidden_size)
        .dense("dense", width)
        .activation("activation", config.activation_or("hidden_act", "gelu_new"))
        .norm("LayerNorm")
        .vocabulary("decoder", model.vocab_size, tied ? name("embeddings.word_embeddings.weight") : "", true, "bias")
        .append_to(model, {"decoder", "LayerNorm", "dense"});
  } else {
    const bool pooled = config.architecture_ends_with("ForSequenceClassification") || config.architecture_ends_with("ForMultipleChoice");
    if (pooled) append_albert_pooler(model, name);
    if (!append_linear_text_head(model, config, {config.rate_or("classifier_dropout_prob", 0.1)}))
      refuse_head(
          config,
          "ForMaskedLM, ForSequenceClassification, ForTokenClassification, ForQuestionAnswering, ForMultipleChoice and the base model");
  }
  return model;
}

}  // namespace plimsoll::model
