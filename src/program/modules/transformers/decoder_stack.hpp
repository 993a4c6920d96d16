/// A causal language model of one stack: token embeddings, equal layers, a final norm and a head.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "program/modules/transformers/causal_lm.hpp"

namespace plimsoll::program {

/// `Layer` is made from (module, tape, options, block).
template <class Layer>
class DecoderStack : public Network {
 public:
  Tensor loss(const Batch& batch) override {
    return language_model_loss(root_, tape_, options_, head_, batch, loss_, [this](const Tensor& ids) { return decode(ids); });
  }

 protected:
  /// Paths of the modules; of the layers and the norm within `base`.
  struct Names {
    const char *base, *tokens, *layers, *norm;
  };

  DecoderStack(const Model& model, const RunOptions& options, Module& root, Tape& tape, const Names& names)
      : tape_(tape),
        options_(options),
        loss_(options.release.causal_loss(model.model_type)),
        embedding_dropout_(model.embedding_dropout),
        root_(root),
        base_(*root.find(names.base)),
        tokens_(base_.child(names.tokens), tape),
        head_(model, root, tape) {
    for (const Block& block : model.blocks) {
      if (block.role == Block::Role::final_norm) norm_.emplace(base_.child(names.norm, !block.norm.weight), tape, block.norm);
      if (block.role != Block::Role::decoder) continue;
      for (std::int64_t i = 0; i < block.repeat; ++i) {
        layers_.emplace_back(base_.child(names.layers).child(std::to_string(block.first + i)), tape_, options_.of_layer(block.first + i),
                             block);
      }
    }
  }

  /// The base model's forward: the hidden state behind its final norm.
  virtual Tensor decode(const Tensor& ids) = 0;

  /// `ids` may be embeddings already (inputs_embeds).
  Tensor embed(const Tensor& ids) const {
    if (ids.dtype() != DType::int64) return ids;
    const Tensor embeddings = tokens_(ids);
    if (options_.hidden_requires_grad && !embeddings.requires_grad()) embeddings.set_requires_grad(true);
    return embeddings;
  }

  Tape& tape_;
  RunOptions options_;
  HfRelease::CausalLoss loss_;
  double embedding_dropout_;
  Module& root_;
  Module& base_;
  Embedding tokens_;
  std::vector<Layer> layers_;
  std::optional<Norm> norm_;
  DecoderHead head_;
};

}  // namespace plimsoll::program
