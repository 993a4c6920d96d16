// modernbert: pre-norm, rotary, gated MLP; most layers attend within a window on both sides.
#include "model/families/encoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {
namespace {

// Which layers attend to everything: "layer_types", else every n-th.
std::vector<bool> full_layers(const Config& config, std::int64_t layers) {
  std::vector<bool> full;
  const std::int64_t every = config.integer_or("global_attn_every_n_layers", 3, 1, kMostLayers);
  for (std::int64_t i = 0; i < layers; ++i) full.push_back(i % every == 0);
  if (const auto types = config.given("layer_types") ? config.find("layer_types") : std::nullopt) {
    if (static_cast<std::int64_t>(types->size()) != layers) config.fail_at("layer_types", "a type is needed for each layer");
    for (std::size_t i = 0; i < full.size(); ++i) full[i] = types->at(i).text() == "full_attention";
  }
  return full;
}

LayerPlan modernbert_layer(const Model& model, const Config& config, const std::string& stack, bool full) {
  LayerPlan plan;
  plan.stack = stack;
  plan.norm = layer_norm(model.hidden_size, config.flag_or("norm_bias", false));
  plan.attention = bidirectional_attention(model, config.rate_or("attention_dropout", 0.0));
  plan.attention.fused_qkv = true;
  plan.attention.qkv_bias = plan.attention.output_bias = config.flag_or("attention_bias", false);
  plan.attention.positions = Positions::rope;
  plan.attention.rotary_dim = model.head_dim;
  // A query sees keys up to half the local window away on either side.
  if (!full) plan.attention.sliding_window = config.dimension("local_attention") / 2 + 1;
  plan.mlp.emplace();
  plan.mlp->hidden = model.hidden_size;
  plan.mlp->intermediate = model.intermediate_size;
  plan.mlp->gated = plan.mlp->fused_gate_up = true;
  plan.mlp->bias = config.flag_or("mlp_bias", false);
  plan.mlp->activation = config.activation_or("hidden_activation", "gelu");
  plan.mlp->dropout = config.rate_or("mlp_dropout", 0.0);
  plan.names.attention = "attn";
  plan.names.qkv = "Wqkv";
  plan.names.output = "Wo";
  plan.names.gate_up = "Wi";
  plan.names.down = "Wo";
  return plan;
}

// The first layer's attention reads the normed embeddings as they are.
Block assemble(const LayerPlan& plan, int rotary_block) {
  BlockBuilder builder(Block::Role::encoder, plan.stack, plan.repeat, plan.first);
  const std::int64_t width = plan.attention.hidden;
  const int normed = plan.first == 0 ? kBlockInput : builder.norm("attn_norm", kBlockInput, plan.norm);
  int attended = add_attention(builder, normed, plan);
  attended = builder.dropout("attn.out_drop", attended, plan.attention.dropout, width);
  const int x = builder.sum("residual_attention", kBlockInput, attended, width);
  builder.sum("residual_mlp", x, add_mlp(builder, builder.norm("mlp_norm", x, plan.norm), plan), width);
  Block& block = builder.block();
  block.side_inputs = {rotary_block};
  block.norm = plan.norm;
  block.attention = plan.attention;
  block.mlp = plan.mlp;
  return builder.build();
}

void append_layers(Model& model, const Config& config, const Modules& name) {
  const int rotary = static_cast<int>(model.blocks.size()) - 1;
  const std::vector<bool> full = full_layers(config, model.layers);
  for (std::int64_t first = 0; first < model.layers;) {
    const bool kind = full[static_cast<std::size_t>(first)];
    std::int64_t end = first + 1;
    while (first > 0 && end < model.layers && full[static_cast<std::size_t>(end)] == kind) ++end;
    LayerPlan plan = modernbert_layer(model, config, name("layers"), kind);
    plan.first = first;
    plan.repeat = end - first;
    plan.rotary_block = rotary;
    model.blocks.push_back(assemble(plan, rotary));
    first = end;
  }
}

void append_modernbert_head(Model& model, const Config& config, const Modules& name) {
  const bool norm_bias = config.flag_or("norm_bias", false), masked = config.architecture_ends_with("ForMaskedLM");
  const bool per_token =
      masked || config.architecture_ends_with("ForTokenClassification") || config.architecture_ends_with("ForQuestionAnswering");
  const bool pooled = config.architecture_ends_with("ForSequenceClassification") || config.architecture_ends_with("ForMultipleChoice");
  if (!per_token && !pooled)
    refuse_head(
        config,
        "ForMaskedLM, ForSequenceClassification, ForTokenClassification, ForQuestionAnswering, ForMultipleChoice and the base model");
  Chain head(Block::Role::head, "", model.hidden_size, pooled ? 1 : 0);
  head.dense("head.dense", model.hidden_size, config.flag_or("classifier_bias", false))
      .activation("head.act", config.activation_or("classifier_activation", "gelu"))
      .norm("head.norm", norm_bias);
  if (masked) {
    model.task = Model::Task::masked_lm;
    head.vocabulary("decoder", model.vocab_size, model.tied_embeddings ? name("embeddings.tok_embeddings.weight") : "",
                    config.flag_or("decoder_bias", true));
  } else {
    model.task = Model::Task::classification;
    model.tied_embeddings = false;
    model.labels = config.architecture_ends_with("ForMultipleChoice") ? 1 : config.labels();
    head.dropout(config.rate_or("classifier_dropout", 0.0)).dense("classifier", model.labels);
  }
  head.append_to(model);
}

}  // namespace

Model build_modernbert(const Config& config) {
  note_keys(config,
            {"num_labels", "classifier_activation", "classifier_bias", "classifier_dropout", "decoder_bias", "deterministic_flash_attn",
             "global_rope_theta", "local_rope_theta", "rope_parameters", "reference_compile", "repad_logits_with_grad", "sparse_prediction",
             "sparse_pred_ignore_index", "initializer_cutoff_factor", "layer_types", "local_attention", "global_attn_every_n_layers"});
  const Modules name(config, "model");
  Model model = encoder_model(config);
  // The mean of all positions in place of the first is not lowered.
  model.activations_modelled =
      !config.architecture_ends_with("ForSequenceClassification") || config.text_or("classifier_pooling", "cls") == "cls";
  model.intermediate_size = config.dimension("intermediate_size");
  model.max_positions = config.dimension("max_position_embeddings");
  model.embedding_dropout = config.rate_or("embedding_dropout", 0.0);
  const NormSpec norm = layer_norm(model.hidden_size, config.flag_or("norm_bias", false));

  BlockBuilder words(Block::Role::embedding, name("embeddings"));
  const int looked_up = words.add(embedding("tok_embeddings", model.vocab_size, model.hidden_size), {kBlockInput});
  words.dropout("drop", words.norm("norm", looked_up, norm), model.embedding_dropout, model.hidden_size);
  model.blocks.push_back(words.build());
  append_rotary(model, model.head_dim, name("rotary_emb"), {"full_attention_", "sliding_attention_"});
  append_layers(model, config, name);
  append_final_norm(model, norm, name("final_norm"));
  if (name.base_model()) {
    model.task = Model::Task::backbone;
    model.tied_embeddings = false;
  } else {
    append_modernbert_head(model, config, name);
  }
  return model;
}

}  // namespace plimsoll::model
