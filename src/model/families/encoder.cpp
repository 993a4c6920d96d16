#include "model/families/encoder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "plimsoll/error.hpp"

namespace plimsoll::model {

Model encoder_model(const Config& config) {
  for (const char* key : {"is_decoder", "add_cross_attention"})
    if (config.flag_or(key, false)) config.refuse_at(key, "an encoder configured as a decoder is not modelled");
  Model model = decoder_model(config);
  model.tied_embeddings = config.flag_or("tie_word_embeddings", true);
  return model;
}

NormSpec layer_norm(std::int64_t width, bool bias) {
  NormSpec spec;
  spec.kind = NormSpec::Kind::layer_norm;
  spec.bias = bias;
  spec.width = width;
  return spec;
}

AttentionSpec bidirectional_attention(const Model& model, double dropout) {
  AttentionSpec spec;
  spec.hidden = model.hidden_size;
  spec.heads = model.heads;
  spec.kv_heads = model.kv_heads;
  spec.head_dim = model.head_dim;
  spec.causal = false;
  spec.qkv_bias = spec.output_bias = true;
  spec.positions = Positions::learned;
  spec.dropout = dropout;
  return spec;
}

Block encoder_layer(const LayerPlan& plan) {
  Block block = decoder_layer(plan);
  block.role = Block::Role::encoder;
  return block;
}

void append_text_embeddings(Model& model, const TextEmbeddings& plan) {
  BlockBuilder block(Block::Role::embedding, plan.name);
  int x = block.add(embedding("word_embeddings", model.vocab_size, plan.width), {kBlockInput});
  if (plan.segments > 0) {
    Operator table = embedding("token_type_embeddings", plan.segments, plan.width, false);
    if (plan.segment_buffer) table.buffers.push_back({"token_type_ids", {1, model.max_positions}, DType::int64, false});
    x = block.sum("with_segments", x, block.add(std::move(table), {kBlockInput}), plan.width);
  }
  if (plan.positions > 0) {
    const int table = block.add(position_embedding("position_embeddings", plan.positions, plan.width), {kBlockInput});
    x = block.sum("with_positions", x, table, plan.width);
  }
  // The ids of the positions, kept whether or not a table of them is.
  block.block().operators.front().buffers.push_back({"position_ids", {1, model.max_positions}, DType::int64, false});
  std::int64_t width = plan.width;
  if (plan.projected > 0) {
    x = block.linear("embed_proj", x, {.in = width, .out = plan.projected});
    width = plan.projected;
  }
  x = block.norm("LayerNorm", x, layer_norm(width));
  block.dropout("dropout", x, plan.dropout, width);
  model.blocks.push_back(block.build(
      plan.registration.empty()
          ? std::vector<std::string>{"word_embeddings", "position_embeddings", "token_type_embeddings", "embed_proj", "LayerNorm"}
          : plan.registration));
}

Chain& Chain::dense(const std::string& name, std::int64_t out, bool bias) {
  last_ = builder_.linear(name, last_, {.in = width_, .out = out, .bias = bias});
  width_ = out;
  return *this;
}

Chain& Chain::activation(const std::string& name, const std::string& function) {
  last_ = builder_.activation(name, last_, function, width_);
  return *this;
}

Chain& Chain::norm(const std::string& name, bool bias) {
  last_ = builder_.norm(name, last_, layer_norm(width_, bias));
  return *this;
}

Chain& Chain::dropout(double rate) {
  last_ = builder_.dropout("dropout", last_, rate, width_);
  return *this;
}

Chain& Chain::vocabulary(const std::string& name, std::int64_t rows, const std::string& tied_to, bool bias,
                         const std::string& shared_bias) {
  Operator op = linear(name, {.in = width_, .out = rows, .bias = bias, .parallel = Parallel::column});
  for (auto& tensor : op.parameters) tensor.cut = Cut::vocabulary;
  op.parameters.front().tied_to = tied_to;
  if (!shared_bias.empty() && !tied_to.empty()) {
    const std::string& block = builder_.block().name;
    op.parameters.back().tied_to = block.empty() ? shared_bias : block + "." + shared_bias;
    op.parameters.insert(op.parameters.begin(), parameter(shared_bias, {rows}, Cut::vocabulary));
  } else if (!shared_bias.empty()) {
    unused_bias_ = parameter(shared_bias, {rows}, Cut::vocabulary);
  }
  last_ = builder_.add(std::move(op), {last_});
  width_ = rows;
  return *this;
}

void Chain::append_to(Model& model, std::vector<std::string> registration) {
  if (unused_bias_) {
    // Untied, the projection is registered where it stands, last, and the module's own bias is a parameter that nothing reads.
    if (!registration.empty()) std::rotate(registration.begin(), registration.begin() + 1, registration.end());
    auto& operators = builder_.block().operators;
    const auto first = std::find_if(operators.begin(), operators.end(), [&](const Operator& op) {
      return !op.parameters.empty() && (registration.empty() || op.name.rfind(registration.front(), 0) == 0);
    });
    first->parameters.insert(first->parameters.begin(), *unused_bias_);
  }
  model.blocks.push_back(builder_.build(registration));
}

void note_keys(const Config& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) (void)config.find(key);
}

bool append_linear_text_head(Model& model, const Config& config, const TextHeads& plan) {
  const auto head = [&](const std::string& name, std::int64_t out, std::int64_t tokens, double dropout) {
    model.task = Model::Task::classification;
    model.tied_embeddings = false;
    Chain(Block::Role::head, "", model.hidden_size, tokens).dropout(dropout).dense(name, out).append_to(model);
  };
  if (config.architecture_ends_with("ForTokenClassification")) {
    head("classifier", model.labels = config.labels(), 0, plan.dropout);
  } else if (config.architecture_ends_with("ForQuestionAnswering")) {
    head("qa_outputs", model.labels = config.labels(), 0, 0);
  } else if (config.architecture_ends_with("ForMultipleChoice")) {
    head("classifier", model.labels = 1, 1, plan.dropout);
  } else if (plan.linear_classifier && config.architecture_ends_with("ForSequenceClassification")) {
    head("classifier", model.labels = config.labels(), 1, plan.dropout);
  } else {
    return false;
  }
  return true;
}

void refuse_head(const Config& config, const std::string& known) {
  refuse(fmt::format("the head of {} is not modelled", config.architecture()), config.name(), "known: " + known);
}

double classifier_dropout(const Config& config, double hidden) { return config.rate_or("classifier_dropout", hidden); }

}  // namespace plimsoll::model
