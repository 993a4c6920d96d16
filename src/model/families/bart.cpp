// bart (post-norm), mbart and pegasus (pre-norm, a norm behind each stack; pegasus with frozen sinusoidal positions).
#include "model/families/encoder_decoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {
namespace {

// What the three differ in.
struct BartKind {
  bool pre_norm, norm_behind_embedding, frozen_positions;
};

BartKind kind_of(const Config& config) {
  if (config.model_type() == "pegasus") return {true, false, true};
  return {config.model_type() == "mbart", true, false};
}

void append_norm(Model& model, const std::string& name, Block::Role role, Block::Stream stream, double dropout) {
  BlockBuilder block(role, name);
  const NormSpec norm = layer_norm(model.hidden_size);
  block.dropout("dropout", block.norm("", kBlockInput, norm), dropout, model.hidden_size);
  block.block().norm = norm;
  block.block().stream = stream;
  block.block().input = static_cast<int>(model.blocks.size()) - 1;
  model.blocks.push_back(block.build());
}

void append_positions(Model& model, const SequenceStack& stack, const BartKind& kind, double dropout) {
  // bart and mbart reserve two rows: positions start at 2.
  Operator table = position_embedding("", model.max_positions + (kind.frozen_positions ? 0 : 2), model.hidden_size);
  table.parameters.front().trainable = !kind.frozen_positions;
  BlockBuilder block(Block::Role::embedding, stack.name() + ".embed_positions");
  const int positions = block.add(std::move(table), {});
  const int x = block.sum("sum", kBlockInput, positions, model.hidden_size);
  block.dropout("dropout", x, kind.norm_behind_embedding ? 0 : dropout, model.hidden_size);
  block.block().stream = stack.stream;
  block.block().input = static_cast<int>(model.blocks.size()) - 1;
  model.blocks.push_back(block.build());
}

// The words of a stack: with tied embeddings those of the model's `shared` table, else a table of its own, beside which `shared` is a
// parameter that nothing reads.
void append_words(Model& model, const SequenceStack& stack, bool scaled) {
  const bool decoder = stack.stream == Block::Stream::second;
  const std::string own = stack.name() + ".embed_tokens", shared = stack.prefix + "shared";
  if (model.tied_embeddings && !decoder) {
    append_shared_embedding(model, shared, "", stack.stream, scaled, 0);
  } else if (decoder) {
    append_shared_embedding(model, own, model.tied_embeddings ? shared + ".weight" : "", stack.stream, scaled, 0);
  } else {
    BlockBuilder block(Block::Role::embedding, stack.prefix.substr(0, stack.prefix.rfind('.')));
    Operator table = embedding("encoder.embed_tokens", model.vocab_size, model.hidden_size);
    table.parameters.insert(table.parameters.begin(), parameter("shared.weight", {model.vocab_size, model.hidden_size}, Cut::vocabulary));
    const int words = block.add(std::move(table), {kBlockInput});
    block.dropout("dropout", scaled ? block.scale("embed_scale", words, model.hidden_size) : words, 0, model.hidden_size);
    model.blocks.push_back(block.build());
  }
}

// Executed: words, positions, norm, layers, last norm. Registered: words, positions, layers, norm, last norm.
template <class AppendLayers>
void append_stack(Model& model, const Config& config, const SequenceStack& stack, const BartKind& kind, AppendLayers append_layers) {
  const double dropout = config.rate_or("dropout", 0.1);
  const auto registered = [&] { model.registration.push_back(static_cast<int>(model.blocks.size()) - 1); };
  append_words(model, stack, config.flag_or("scale_embedding", false));
  registered();
  append_positions(model, stack, kind, dropout);
  registered();
  int embedding_norm = -1;
  if (kind.norm_behind_embedding) {
    append_norm(model, stack.name() + ".layernorm_embedding", Block::Role::other, stack.stream, dropout);
    embedding_norm = static_cast<int>(model.blocks.size()) - 1;
  }
  append_layers();
  registered();
  if (embedding_norm >= 0) model.registration.push_back(embedding_norm);
  if (!kind.pre_norm) return;
  append_norm(model, stack.name() + ".layer_norm", Block::Role::final_norm, stack.stream, 0);
  registered();
}

void append_bart_head(Model& model) {
  BlockBuilder head(Block::Role::head, "");
  Operator logits = linear("lm_head", {.in = model.hidden_size, .out = model.vocab_size, .parallel = Parallel::column});
  logits.parameters.front().cut = Cut::vocabulary;
  if (model.tied_embeddings) logits.parameters.front().tied_to = model.blocks.front().name + ".weight";
  logits.buffers.push_back({"final_logits_bias", {1, model.vocab_size}, DType::fp32, true});
  const int x = head.add(std::move(logits), {kBlockInput});
  head.add(add("final_logits_bias_sum", model.vocab_size), {x});
  head.block().stream = Block::Stream::second;
  model.blocks.push_back(head.build());
  model.registration.push_back(static_cast<int>(model.blocks.size()) - 1);
}

}  // namespace

Model build_bart(const Config& config) {
  const bool generates = config.architecture_ends_with("ForConditionalGeneration");
  if (!generates && !config.architecture_ends_with("Model")) refuse_head(config, "ForConditionalGeneration and the base model");
  for (const char* key : {"encoder_layerdrop", "decoder_layerdrop"})
    if (config.rate_or(key, 0.0) > 0) config.refuse_at(key, "layers dropped at random make steps of different lengths");
  note_keys(config,
            {"num_labels", "num_hidden_layers", "classifier_dropout", "classif_dropout", "add_bias_logits", "add_final_layer_norm",
             "normalize_before", "normalize_embedding", "static_position_embeddings", "extra_pos_embeddings", "is_encoder_decoder"});
  const BartKind kind = kind_of(config);
  Model model = seq2seq_model(config);
  model.layers = config.layers("encoder_layers");
  model.decoder_layers = config.layers("decoder_layers");
  model.intermediate_size = config.dimension("encoder_ffn_dim");
  model.max_positions = config.dimension("max_position_embeddings");
  model.embedding_dropout = config.rate_or("dropout", 0.1);

  const NormPlacement placement = kind.pre_norm ? NormPlacement::pre : NormPlacement::post;
  const std::string prefix = generates ? "model." : "";
  const SequenceStack encoder{prefix, "encoder", Block::Stream::main, model.layers};
  append_stack(model, config, encoder, kind,
               [&] { model.blocks.push_back(encoder_layer(sequence_layer(model, config, encoder, placement))); });
  const int encoder_output = static_cast<int>(model.blocks.size()) - 1;

  const SequenceStack decoder{prefix, "decoder", Block::Stream::second, model.decoder_layers};
  append_stack(model, config, decoder, kind, [&] {
    const LayerPlan plan = sequence_layer(model, config, decoder, placement);
    CrossPlan cross;
    cross.spec = plan.attention;
    cross.spec.causal = false;
    cross.spec.cross = true;
    model.blocks.push_back(cross_layer(plan, cross, encoder_output));
  });
  if (generates) {
    append_bart_head(model);
  } else {
    model.task = Model::Task::backbone;
    model.tied_embeddings = false;
  }
  return model;
}

}  // namespace plimsoll::model
