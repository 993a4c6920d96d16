// What the encoders of text share: embeddings with a norm, post-norm layers, and heads as chains of small operators.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "model/config.hpp"
#include "model/families/decoder.hpp"
#include "plimsoll/model.hpp"

namespace plimsoll::model {

/// "bert" and "encoder" → "bert.encoder"; in the base model, whose modules carry no prefix: "encoder".
class Modules {
 public:
  Modules(const Config& config, std::string base)
      : prefix_(config.architecture_ends_with("Model") && !config.architecture_ends_with("LMHeadModel") ? "" : std::move(base) + ".") {}
  std::string operator()(const std::string& name) const { return prefix_ + name; }
  bool base_model() const { return prefix_.empty(); }

 private:
  std::string prefix_;
};

/// A model with the dimensions that encoder configs share. Throws Error when it is configured as a decoder.
Model encoder_model(const Config& config);

NormSpec layer_norm(std::int64_t width, bool bias = true);
/// Attention of all heads to all positions, every projection with a bias.
AttentionSpec bidirectional_attention(const Model& model, double dropout);
/// A layer of an encoder, by its stack; a stack of equal layers is appended once.
Block encoder_layer(const LayerPlan& plan);

/// Embeddings of words, segments and positions, summed, normed, dropped out.
struct TextEmbeddings {
  std::string name;  ///< "bert.embeddings"
  std::int64_t width = 0;
  std::int64_t segments = 0;   ///< rows of token_type_embeddings; 0: none
  std::int64_t positions = 0;  ///< rows of position_embeddings; 0: none
  std::int64_t projected = 0;  ///< deberta: width after embed_proj, 0 without
  bool segment_buffer = true;  ///< a buffer of zeros for inputs without segments
  double dropout = 0;
  std::vector<std::string> registration;  ///< empty: words, positions, segments, norm
};
void append_text_embeddings(Model& model, const TextEmbeddings& plan);

/// A block whose operators each read the one before: heads, poolers.
class Chain {
 public:
  /// `tokens` 1: it reads the first position of every sample only.
  Chain(Block::Role role, const std::string& name, std::int64_t width, std::int64_t tokens = 0) : builder_(role, name), width_(width) {
    builder_.block().tokens = tokens;
  }
  Chain& dense(const std::string& name, std::int64_t out, bool bias = true);
  Chain& activation(const std::string& name, const std::string& function);
  Chain& norm(const std::string& name, bool bias = true);
  Chain& dropout(double rate);
  /// The projection on the vocabulary. `tied_to` holds its weight, or is empty. `shared_bias`: the head module registers the bias itself,
  /// and the projection's own is tied to it (bert: cls.predictions.bias).
  Chain& vocabulary(const std::string& name, std::int64_t rows, const std::string& tied_to, bool bias, const std::string& shared_bias = {});
  /// `registration` as in BlockBuilder::build; a vocabulary projection with a shared bias comes first in it.
  void append_to(Model& model, std::vector<std::string> registration = {});

 private:
  BlockBuilder builder_;
  std::int64_t width_;
  int last_ = kBlockInput;
  std::optional<ParameterTensor> unused_bias_;
};

/// Notes keys as understood that this class does not use: of other heads, or without influence.
void note_keys(const Config& config, std::initializer_list<const char*> keys);

/// Every class of heads that encoders share. Those of a family beyond them are added by the family.
struct TextHeads {
  double dropout = 0;
  bool linear_classifier = true;  ///< ForSequenceClassification is one linear (on a pooler); otherwise the family adds its own
};
/// Appends the linear heads: token classification, question answering, multiple choice, sequence classification. Answers false when the
/// architecture is none of them.
bool append_linear_text_head(Model& model, const Config& config, const TextHeads& plan);
/// Throws Error: the head of this architecture is not modelled; `known` lists those that are.
[[noreturn]] void refuse_head(const Config& config, const std::string& known);
/// "classifier_dropout" where it is given, else the dropout of hidden states.
double classifier_dropout(const Config& config, double hidden);

}  // namespace plimsoll::model
