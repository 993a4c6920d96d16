// bert, ernie, roberta, data2vec-text, xlm-roberta, camembert, electra, mpnet: post-norm encoders that differ in embeddings and heads.
#include "model/families/encoder.hpp"
#include "model/families/families.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::model {
namespace {

LayerPlan bert_layer(const Model& model, const Config& config, const std::string& stack) {
  LayerPlan plan;
  plan.stack = stack;
  plan.repeat = model.layers;
  plan.placement = NormPlacement::post;
  plan.norm = layer_norm(model.hidden_size);
  plan.attention = bidirectional_attention(model, config.rate_or("attention_probs_dropout_prob", 0.1));
  plan.mlp = MlpSpec{.hidden = model.hidden_size,
                     .intermediate = model.intermediate_size,
                     .gated = false,
                     .fused_gate_up = false,
                     .bias = true,
                     .activation = config.activation_or("hidden_act", "gelu")};
  plan.hidden_dropout = config.rate_or("hidden_dropout_prob", 0.1);
  plan.names.attention = "attention";
  plan.names.q = "self.query";
  plan.names.k = "self.key";
  plan.names.v = "self.value";
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

Model bert_body(const Config& config, const Modules& name, std::int64_t embedding_width, const std::vector<std::string>& embedding_order) {
  Model model = encoder_model(config);
  const std::string kind = config.text_or("position_embedding_type", "absolute");
  if (kind != "absolute") config.refuse_at("position_embedding_type", "only absolute positions are modelled, not \"" + kind + "\"");
  note_keys(config, {"num_labels", "classifier_dropout", "output_past", "summary_last_dropout"});
  model.intermediate_size = config.dimension("intermediate_size");
  model.max_positions = config.dimension("max_position_embeddings");
  model.embedding_dropout = config.rate_or("hidden_dropout_prob", 0.1);
  TextEmbeddings embeddings;
  embeddings.name = name("embeddings");
  embeddings.width = embedding_width;
  embeddings.segments = config.integer("type_vocab_size", 0, kLargestDimension);
  embeddings.positions = model.max_positions;
  embeddings.dropout = model.embedding_dropout;
  embeddings.registration = embedding_order;
  append_text_embeddings(model, embeddings);
  if (embedding_width != model.hidden_size)
    Chain(Block::Role::other, name("embeddings_project"), embedding_width).dense("", model.hidden_size).append_to(model);
  model.blocks.push_back(encoder_layer(bert_layer(model, config, name("encoder.layer"))));
  return model;
}

void append_pooler(Model& model, const Modules& name) {
  Chain(Block::Role::pooler, name("pooler"), model.hidden_size, 1)
      .dense("dense", model.hidden_size)
      .activation("activation", "tanh")
      .append_to(model);
}

std::string tied_words(const Model& model, const Modules& name) {
  return model.tied_embeddings ? name("embeddings.word_embeddings.weight") : std::string();
}

void append_bert_predictions(Model& model, const Config& config, const Modules& name) {
  Chain(Block::Role::head, "cls.predictions", model.hidden_size)
      .dense("transform.dense", model.hidden_size)
      .activation("transform.transform_act_fn", config.activation_or("hidden_act", "gelu"))
      .norm("transform.LayerNorm")
      .vocabulary("decoder", model.vocab_size, tied_words(model, name), true, "bias")
      .append_to(model, {"decoder", "transform"});
}

// Next-sentence prediction: reads the pooled position.
void append_next_sentence(Model& model, int pooler) {
  Chain(Block::Role::head, "cls.seq_relationship", model.hidden_size, 1).dense("", 2).append_to(model);
  model.blocks.back().input = pooler;
}

// The dense, activation, projection head of sequence classification in roberta and electra.
void append_dense_classifier(Model& model, const Config& config, double dropout, const std::string& activation) {
  model.task = Model::Task::classification;
  model.tied_embeddings = false;
  model.labels = config.labels();
  Chain(Block::Role::head, "classifier", model.hidden_size, 1)
      .dropout(dropout)
      .dense("dense", model.hidden_size)
      .activation("activation", activation)
      .dropout(dropout)
      .dense("out_proj", model.labels)
      .append_to(model);
}

void append_roberta_predictions(Model& model, const std::string& tied_to) {
  model.task = Model::Task::masked_lm;
  Chain(Block::Role::head, "lm_head", model.hidden_size)
      .dense("dense", model.hidden_size)
      .activation("gelu", "gelu")
      .norm("layer_norm")
      .vocabulary("decoder", model.vocab_size, tied_to, true, "bias")
      .append_to(model, {"decoder", "dense", "layer_norm"});
}

// xlm-roberta and camembert register their heads before their body: what is tied is then the head's, and the embedding follows it.
void register_head_first(Model& model, std::size_t body_blocks) {
  const int body = static_cast<int>(body_blocks), all = static_cast<int>(model.blocks.size());
  for (int block = body; block < all; ++block) model.registration.push_back(block);
  for (int block = 0; block < body; ++block) model.registration.push_back(block);
  if (model.task != Model::Task::masked_lm || !model.tied_embeddings) return;
  model.blocks.front().operators.front().parameters.front().tied_to = "lm_head.decoder.weight";
  model.blocks.back().operators.back().parameters.back().tied_to = "lm_head.bias";
}

Model backbone(Model model) {
  model.task = Model::Task::backbone;
  model.tied_embeddings = false;
  return model;
}

}  // namespace

Model build_bert(const Config& config) {
  if (config.flag_or("use_task_id", false)) config.refuse_at("use_task_id", "ernie's embeddings of tasks are not modelled");
  note_keys(config, {"task_type_vocab_size"});
  const Modules name(config, config.model_type());
  Model model = bert_body(config, name, config.dimension("hidden_size"), {});
  const bool pooled = name.base_model() || config.architecture_ends_with("ForSequenceClassification") ||
                      config.architecture_ends_with("ForMultipleChoice") || config.architecture_ends_with("ForPreTraining") ||
                      config.architecture_ends_with("ForNextSentencePrediction");
  const int stack = static_cast<int>(model.blocks.size()) - 1;
  if (pooled) append_pooler(model, name);
  if (name.base_model()) return backbone(std::move(model));
  if (append_linear_text_head(model, config, {classifier_dropout(config, model.embedding_dropout)})) return model;
  model.task = Model::Task::masked_lm;
  if (config.architecture_ends_with("ForMaskedLM")) {
    append_bert_predictions(model, config, name);
  } else if (config.architecture_ends_with("ForPreTraining")) {
    append_bert_predictions(model, config, name);
    model.blocks.back().input = stack;
    append_next_sentence(model, stack + 1);
  } else if (config.architecture_ends_with("ForNextSentencePrediction")) {
    model.task = Model::Task::classification;
    append_next_sentence(model, stack + 1);
  } else {
    refuse_head(config,
                "ForMaskedLM, ForPreTraining, ForNextSentencePrediction, ForSequenceClassification, ForTokenClassification, "
                "ForQuestionAnswering, ForMultipleChoice and the base model");
  }
  return model;
}

Model build_roberta(const Config& config) {
  const bool data2vec = config.model_type() == "data2vec-text";
  const Modules name(config, data2vec ? "data2vec_text" : "roberta");
  Model model = bert_body(config, name, config.dimension("hidden_size"),
                          {"word_embeddings", "token_type_embeddings", "LayerNorm", "position_embeddings"});
  if (name.base_model() || config.architecture_ends_with("ForMultipleChoice")) append_pooler(model, name);
  if (name.base_model()) return backbone(std::move(model));
  const std::size_t body = model.blocks.size();
  const bool head_first = config.model_type() != "roberta" && !data2vec;
  const double dropout = classifier_dropout(config, model.embedding_dropout);
  if (config.architecture_ends_with("ForSequenceClassification")) {
    append_dense_classifier(model, config, dropout, "tanh");
  } else if (config.architecture_ends_with("ForMaskedLM")) {
    append_roberta_predictions(model, head_first ? "" : tied_words(model, name));
  } else if (!append_linear_text_head(model, config, {dropout})) {
    refuse_head(
        config,
        "ForMaskedLM, ForSequenceClassification, ForTokenClassification, ForQuestionAnswering, ForMultipleChoice and the base model");
  }
  if (head_first) register_head_first(model, body);
  return model;
}

Model build_mpnet(const Config& config) {
  const Modules name(config, "mpnet");
  Model model = encoder_model(config);
  note_keys(config, {"num_labels", "classifier_dropout"});
  model.intermediate_size = config.dimension("intermediate_size");
  model.max_positions = config.dimension("max_position_embeddings");
  model.embedding_dropout = config.rate_or("hidden_dropout_prob", 0.1);
  TextEmbeddings embeddings;
  embeddings.name = name("embeddings");
  embeddings.width = model.hidden_size;
  embeddings.segment_buffer = false;
  embeddings.positions = model.max_positions;
  embeddings.dropout = model.embedding_dropout;
  append_text_embeddings(model, embeddings);

  // Biases of all heads by the bucket of a distance, looked up before the layers and registered behind them.
  BlockBuilder table(Block::Role::embedding, name("encoder"));
  table.add(position_embedding("relative_attention_bias", config.dimension("relative_attention_num_buckets"), model.heads), {kBlockInput});
  model.blocks.push_back(table.build());
  LayerPlan layer = bert_layer(model, config, name("encoder.layer"));
  layer.attention.positions = Positions::relative_bias;
  layer.names.q = "attn.q";
  layer.names.k = "attn.k";
  layer.names.v = "attn.v";
  layer.names.output = "attn.o";
  layer.names.attention_norm = "attention.LayerNorm";
  model.blocks.push_back(encoder_layer(layer));
  model.blocks.back().input = 0;
  model.blocks.back().side_inputs = {1};

  if (name.base_model()) {
    append_pooler(model, name);
    model = backbone(std::move(model));
  } else if (config.architecture_ends_with("ForMaskedLM")) {
    append_roberta_predictions(model, tied_words(model, name));
  } else if (config.architecture_ends_with("ForSequenceClassification")) {
    append_dense_classifier(model, config, model.embedding_dropout, "tanh");
  } else if (config.architecture_ends_with("ForMultipleChoice") || !append_linear_text_head(model, config, {model.embedding_dropout})) {
    refuse_head(config, "ForMaskedLM, ForSequenceClassification, ForTokenClassification, ForQuestionAnswering and the base model");
  }
  model.registration = {0, 2, 1};
  for (auto block = static_cast<int>(model.registration.size()); block < static_cast<int>(model.blocks.size()); ++block)
    model.registration.push_back(block);
  return model;
}

Model build_electra(const Config& config) {
  const Modules name(config, "electra");
  const std::int64_t width = config.dimension("embedding_size");
  Model model = bert_body(config, name, width, {});
  if (name.base_model()) return backbone(std::move(model));
  const double dropout = classifier_dropout(config, model.embedding_dropout);
  const std::string activation = config.activation_or("hidden_act", "gelu");
  if (config.architecture_ends_with("ForPreTraining")) {
    model.task = Model::Task::classification;
    model.tied_embeddings = false;
    Chain(Block::Role::head, "discriminator_predictions", model.hidden_size)
        .dense("dense", model.hidden_size)
        .activation("activation", activation)
        .dense("dense_prediction", 1)
        .append_to(model);
  } else if (config.architecture_ends_with("ForMaskedLM")) {
    model.task = Model::Task::masked_lm;
    Chain(Block::Role::head, "generator_predictions", model.hidden_size)
        .dense("dense", width)
        .activation("activation", "gelu")
        .norm("LayerNorm")
        .append_to(model, {"LayerNorm", "dense"});
    Chain(Block::Role::head, "generator_lm_head", width).vocabulary("", model.vocab_size, tied_words(model, name), true).append_to(model);
  } else if (config.architecture_ends_with("ForSequenceClassification")) {
    append_dense_classifier(model, config, dropout, "gelu");
  } else if (config.architecture_ends_with("ForMultipleChoice") || !append_linear_text_head(model, config, {dropout})) {
    refuse_head(config,
                "ForPreTraining, ForMaskedLM, ForSequenceClassification, ForTokenClassification, ForQuestionAnswering and the base model");
  }
  return model;
}

}  // namespace plimsoll::model
