// whisper: a sequence-to-sequence network whose encoder reads frames of sound through two convolutions.
#include <algorithm>

#include "model/families/encoder_decoder.hpp"
#include "model/families/families.hpp"
#include "model/operators/convolution.hpp"

namespace plimsoll::model {
namespace {

/// Whisper's keys have no bias.
Block without_key_bias(Block block) {
  for (Operator& op : block.operators) {
    if (op.name != "self_attn.k_proj" && op.name != "encoder_attn.k_proj") continue;
    op.parameters.pop_back();
  }
  return block;
}

/// Frames through two convolutions, the second of which halves their number, and frozen sinusoidal positions.
void append_frames(Model& model, const Config& config, const SequenceStack& stack, std::int64_t positions) {
  const std::int64_t width = model.hidden_size;
  BlockBuilder block(Block::Role::embedding, stack.name());
  const auto convolve = [&](const std::string& name, std::int64_t in, int from, double outputs) {
    Operator op = sequence_convolution(name, {.in = in, .out = width, .kernel = 3, .bias = true, .outputs_per_token = outputs});
    return block.activation(name + "_gelu", block.add(std::move(op), {from}), "gelu", width);
  };
  int x = convolve("conv1", config.dimension("num_mel_bins", 1 << 16), kBlockInput, 2);
  x = convolve("conv2", width, x, 1);
  Operator table = position_embedding("embed_positions", positions, width);
  table.parameters.front().trainable = false;
  x = block.sum("positioned", x, block.add(std::move(table), {}), width);
  block.dropout("dropout", x, model.embedding_dropout, width);
  block.block().tokens = positions;
  model.blocks.push_back(block.build());
}

void append_last_norm(Model& model, const SequenceStack& stack, std::int64_t tokens) {
  Chain(Block::Role::final_norm, stack.name() + ".layer_norm", model.hidden_size, tokens).norm("").append_to(model);
  model.blocks.back().stream = stack.stream;
}

}  // namespace

Model build_whisper(const Config& config) {
  const bool generates = config.architecture_ends_with("ForConditionalGeneration");
  if (!generates && !config.architecture_ends_with("Model")) refuse_head(config, "ForConditionalGeneration and the base model");
  for (const char* key : {"encoder_layerdrop", "decoder_layerdrop"})
    if (config.rate_or(key, 0.0) > 0) config.refuse_at(key, "layers dropped at random make steps of different lengths");
  note_keys(config, {"num_hidden_layers", "is_encoder_decoder", "scale_embedding", "classifier_proj_size", "use_weighted_layer_sum",
                     "median_filter_width", "apply_spec_augment", "mask_time_prob", "mask_feature_prob"});
  Model model = seq2seq_model(config);
  model.activations_modelled = false;
  model.layers = config.layers("encoder_layers");
  model.decoder_layers = config.layers("decoder_layers");
  model.intermediate_size = config.dimension("encoder_ffn_dim");
  model.max_positions = config.dimension("max_target_positions");
  model.embedding_dropout = config.rate_or("dropout", 0.0);

  const std::string prefix = generates ? "model." : "";
  const std::int64_t frames = config.dimension("max_source_positions");
  const SequenceStack encoder{prefix, "encoder", Block::Stream::main, model.layers};
  append_frames(model, config, encoder, frames);
  model.blocks.push_back(without_key_bias(encoder_layer(sequence_layer(model, config, encoder, NormPlacement::pre))));
  model.blocks.back().tokens = frames;
  append_last_norm(model, encoder, frames);
  const int encoder_output = static_cast<int>(model.blocks.size()) - 1;

  const SequenceStack decoder{prefix, "decoder", Block::Stream::second, model.decoder_layers};
  append_token_embedding(
      model, {.module = decoder.name(), .token = "embed_tokens", .position = "embed_positions", .position_rows = model.max_positions});
  const std::string words = decoder.name() + ".embed_tokens.weight";
  model.blocks.back().stream = Block::Stream::second;
  const LayerPlan plan = sequence_layer(model, config, decoder, NormPlacement::pre);
  CrossPlan cross;
  cross.spec = plan.attention;
  cross.spec.causal = false;
  cross.spec.cross = true;
  model.blocks.push_back(without_key_bias(cross_layer(plan, cross, encoder_output)));
  append_last_norm(model, decoder, 0);
  if (!generates) {
    model.task = Model::Task::backbone;
    model.tied_embeddings = false;
    return model;
  }
  Chain(Block::Role::head, "proj_out", model.hidden_size)
      .vocabulary("", model.vocab_size, model.tied_embeddings ? words : "", false)
      .append_to(model);
  model.blocks.back().stream = Block::Stream::second;
  return model;
}

}  // namespace plimsoll::model
