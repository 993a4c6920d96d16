// distilbert: bert without segments and pooler, under its own names.
#include "model/families/encoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {
namespace {

LayerPlan distilbert_layer(const Model& model, const Config& config, const Modules& name) {
  LayerPlan plan;
  plan.stack = name("transformer.layer");
  plan.repeat = model.layers;
  plan.placement = NormPlacement::post;
  plan.norm = layer_norm(model.hidden_size);
  plan.attention = bidirectional_attention(model, config.rate_or("attention_dropout", 0.1));
  plan.mlp = MlpSpec{.hidden = model.hidden_size,
                     .intermediate = model.intermediate_size,
                     .gated = false,
                     .fused_gate_up = false,
                     .bias = true,
                     .activation = config.activation_or("activation", "gelu")};
  plan.names.attention = "attention";
  plan.names.q = "q_lin";
  plan.names.k = "k_lin";
  plan.names.v = "v_lin";
  plan.names.output = "out_lin";
  plan.names.attention_norm = "sa_layer_norm";
  plan.names.mlp = "ffn";
  plan.names.up = "lin1";
  plan.names.activation = "activation";
  plan.names.down = "lin2";
  plan.names.mlp_norm = "output_layer_norm";
  plan.dropout_behind_attention = false;
  plan.hidden_dropout = config.rate_or("dropout", 0.1);
  plan.registration = {};
  return plan;
}

}  // namespace

Model build_distilbert(const Config& config) {
  const Modules name(config, "distilbert");
  Model model = encoder_model(config);
  note_keys(config, {"num_labels", "qa_dropout", "seq_classif_dropout", "tie_weights_", "sinusoidal_pos_embds"});
  model.intermediate_size = config.dimension("hidden_dim");
  model.max_positions = config.dimension("max_position_embeddings");
  model.embedding_dropout = config.rate_or("dropout", 0.1);
  TextEmbeddings embeddings;
  embeddings.name = name("embeddings");
  embeddings.width = model.hidden_size;
  embeddings.positions = model.max_positions;
  embeddings.dropout = model.embedding_dropout;
  append_text_embeddings(model, embeddings);
  model.blocks.push_back(encoder_layer(distilbert_layer(model, config, name)));

  const bool tied = model.tied_embeddings;
  model.tied_embeddings = false;
  if (name.base_model()) {
    model.task = Model::Task::backbone;
  } else if (config.architecture_ends_with("ForMaskedLM")) {
    model.task = Model::Task::masked_lm;
    model.tied_embeddings = tied;
    Chain(Block::Role::head, "", model.hidden_size)
        .dense("vocab_transform", model.hidden_size)
        .activation("activation", config.activation_or("activation", "gelu"))
        .norm("vocab_layer_norm")
        .vocabulary("vocab_projector", model.vocab_size, tied ? name("embeddings.word_embeddings.weight") : "", true)
        .append_to(model);
  } else if (config.architecture_ends_with("ForSequenceClassification") || config.architecture_ends_with("ForMultipleChoice")) {
    model.task = Model::Task::classification;
    model.labels = config.architecture_ends_with("ForMultipleChoice") ? 1 : config.labels();
    Chain(Block::Role::head, "", model.hidden_size, 1)
        .dense("pre_classifier", model.hidden_size)
        .activation("relu", "relu")
        .dropout(config.rate_or("seq_classif_dropout", 0.2))
        .dense("classifier", model.labels)
        .append_to(model);
  } else if (!append_linear_text_head(model, config, {model.embedding_dropout})) {
    refuse_head(
        config,
        "ForMaskedLM, ForSequenceClassification, ForTokenClassification, ForQuestionAnswering, ForMultipleChoice and the base model");
  }
  return model;
}

}  // namespace plimsoll::model
