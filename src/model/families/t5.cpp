// t5, mt5: pre-norm RMS, relative positions as a bias that the first layer of each stack owns, no biases in linears.
#include <algorithm>

#include "model/families/encoder_decoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {
namespace {

struct FeedForward {
  bool gated = false;
  std::string activation;
};

// "relu", "gated-gelu" (which is gelu_new), "gated-silu" …
FeedForward feed_forward(const Config& config) {
  const std::string text = config.text_or("feed_forward_proj", "relu");
  const std::string gate = "gated-";
  if (text.rfind(gate, 0) != 0) return {false, text};
  return {true, text == "gated-gelu" ? "gelu_new" : text.substr(gate.size())};
}

LayerPlan t5_layer(const Model& model, const Config& config, const std::string& stack, bool decoder) {
  const FeedForward ff = feed_forward(config);
  const std::string mlp_layer = decoder ? "layer.2" : "layer.1";
  LayerPlan plan;
  plan.stack = stack;
  plan.norm.width = model.hidden_size;
  plan.attention = bidirectional_attention(model, config.rate_or("dropout_rate", 0.1));
  plan.attention.causal = decoder;
  plan.attention.qkv_bias = plan.attention.output_bias = false;
  plan.attention.positions = Positions::relative_bias;
  plan.mlp = MlpSpec{.hidden = model.hidden_size,
                     .intermediate = model.intermediate_size,
                     .gated = ff.gated,
                     .fused_gate_up = false,
                     .bias = false,
                     .activation = ff.activation,
                     .dropout = plan.attention.dropout};
  plan.hidden_dropout = plan.attention.dropout;
  plan.names.attention = "layer.0.SelfAttention";
  plan.names.q = "q";
  plan.names.k = "k";
  plan.names.v = "v";
  plan.names.output = "o";
  plan.names.attention_norm = "layer.0.layer_norm";
  plan.names.mlp = mlp_layer + ".DenseReluDense";
  plan.names.gate = "wi_0";
  plan.names.up = ff.gated ? "wi_1" : "wi";
  plan.names.down = "wo";
  plan.names.activation = "act";
  plan.names.mlp_norm = mlp_layer + ".layer_norm";
  plan.registration.clear();
  for (const char* projection : {".q", ".k", ".v", ".o"}) plan.registration.push_back(plan.names.attention + projection);
  plan.registration.push_back(plan.names.attention_norm);
  if (decoder) plan.registration.insert(plan.registration.end(), {"layer.1.EncDecAttention", "layer.1.layer_norm"});
  plan.registration.insert(plan.registration.end(), {plan.names.mlp, plan.names.mlp_norm});
  return plan;
}

// The bias of the scores by distance, one value per bucket and head: the attention of the first layer owns the table, all layers read it.
void add_relative_bias(Block& block, const Config& config, const LayerPlan& plan) {
  const std::int64_t buckets = config.dimension("relative_attention_num_buckets");
  const auto index_of = [&](const std::string& name, OperatorKind kind) {
    const auto found = std::find_if(block.operators.begin(), block.operators.end(),
                                    [&](const Operator& op) { return op.kind == kind && op.name == name; });
    return static_cast<int>(found - block.operators.begin());
  };
  const int attention = index_of(plan.names.attention, OperatorKind::attention);
  const int output = index_of(plan.names.attention + ".o", OperatorKind::linear);
  block.operators[static_cast<std::size_t>(attention)].parameters.push_back(
      parameter(plan.names.attention + ".relative_attention_bias.weight", {buckets, plan.attention.heads}, Cut::columns));
  // The module registers the table behind its four projections.
  block.registration.insert(std::find(block.registration.begin(), block.registration.end(), output) + 1, attention);
}

// The first layer, with the table, and the others.
template <class MakeBlock>
void append_stack(Model& model, const Config& config, LayerPlan plan, std::int64_t layers, MakeBlock make_block) {
  model.blocks.push_back(make_block(plan));
  add_relative_bias(model.blocks.back(), config, plan);
  plan.first = 1;
  plan.repeat = layers - 1;
  if (plan.repeat > 0) model.blocks.push_back(make_block(plan));
}

void append_stack_norm(Model& model, const std::string& name, double dropout, Block::Stream stream) {
  BlockBuilder block(Block::Role::final_norm, name);
  NormSpec norm;
  norm.width = model.hidden_size;
  const int normed = block.norm("", kBlockInput, norm);
  block.dropout("dropout", normed, dropout, model.hidden_size);
  block.block().norm = norm;
  block.block().stream = stream;
  model.blocks.push_back(block.build());
}

// T5Config and MT5Config of transformers 5 tie the head whatever tie_word_embeddings says; a checkpoint whose head is its own keeps it
// (tie_weights: both tensors are there and differ).
bool tied_head(const Config& config) { return !config.of_checkpoint() || config.flag_or("tie_word_embeddings", true); }

void append_t5_head(Model& model, const Config& config) {
  BlockBuilder head(Block::Role::head, "lm_head");
  int x = kBlockInput;
  // The first T5 divides the head's input by sqrt(d_model): T5Config reads tie_word_embeddings as its sign. MT5 never does.
  if (model.model_type == "t5" && config.flag_or("tie_word_embeddings", true))
    x = head.scale("scale_decoder_outputs", x, model.hidden_size);
  Operator logits = linear("", {.in = model.hidden_size, .out = model.vocab_size, .parallel = Parallel::column});
  logits.parameters.front().cut = Cut::vocabulary;
  if (model.tied_embeddings) logits.parameters.front().tied_to = "shared.weight";
  head.add(std::move(logits), {x});
  head.block().stream = Block::Stream::second;
  model.blocks.push_back(head.build());
}

}  // namespace

Model build_t5(const Config& config) {
  const bool encoder_only = config.architecture_ends_with("EncoderModel");
  const bool generates = config.architecture_ends_with("ForConditionalGeneration");
  if (!generates && !config.architecture_ends_with("Model"))
    refuse_head(config, "ForConditionalGeneration, EncoderModel and the base model");
  note_keys(config, {"num_labels", "classifier_dropout", "relative_attention_max_distance", "output_past", "dense_act_fn", "is_gated_act",
                     "num_decoder_layers", "is_encoder_decoder"});
  Model model = seq2seq_model(config);
  model.max_positions = config.optional_dimension("n_positions").value_or(0);  // of pre-training: its positions are relative
  model.tied_embeddings = tied_head(config);
  if (model.tied_embeddings && !config.flag_or("tie_word_embeddings", true))
    model.assumed.push_back("tie_word_embeddings: true, as T5Config has it where a class is built; a checkpoint's head may be its own: name the model, or give "
                            "its config by a path");
  model.head_dim = config.dimension("d_kv");
  model.intermediate_size = config.dimension("d_ff");
  const double dropout = config.rate_or("dropout_rate", 0.1);
  model.embedding_dropout = dropout;
  model.decoder_layers = encoder_only ? 0 : config.optional_dimension("num_decoder_layers", kMostLayers).value_or(model.layers);

  append_shared_embedding(model, "shared", "", Block::Stream::main, false, dropout);
  append_stack(model, config, t5_layer(model, config, "encoder.block", false), model.layers, encoder_layer);
  append_stack_norm(model, "encoder.final_layer_norm", dropout, Block::Stream::main);
  if (encoder_only) {
    model.task = Model::Task::backbone;
    model.tied_embeddings = false;
    return model;
  }
  const int encoder_output = static_cast<int>(model.blocks.size()) - 1;
  append_shared_embedding(model, "decoder.embed_tokens", "shared.weight", Block::Stream::second, false, dropout);
  CrossPlan cross{"layer.1.EncDecAttention", "layer.1.layer_norm", t5_layer(model, config, "", true).attention};
  cross.spec.causal = false;
  cross.spec.cross = true;
  cross.spec.positions = Positions::none;
  append_stack(model, config, t5_layer(model, config, "decoder.block", true), model.decoder_layers,
               [&](const LayerPlan& plan) { return cross_layer(plan, cross, encoder_output); });
  append_stack_norm(model, "decoder.final_layer_norm", dropout, Block::Stream::second);
  if (generates) {
    append_t5_head(model, config);
  } else {
    model.task = Model::Task::backbone;
    model.tied_embeddings = false;
  }
  return model;
}

}  // namespace plimsoll::model
