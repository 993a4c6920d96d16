/// torchtune's TransformerDecoder: token embeddings, self-attention layers, a norm and an output projection.
#pragma once

#include <memory>
#include <vector>

#include "plimsoll/model.hpp"
#include "program/module.hpp"
#include "program/modules/torchtune/layers.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

class TuneLayer;

class TuneDecoder {
 public:
  /// Throws Error (refused): a family that torchtune does not have or that is not modelled.
  TuneDecoder(const Model& model, const TuneRun& run, Tape& tape);
  ~TuneDecoder();

  Module& root() { return root_; }
  Module& layer(std::size_t index) { return *layer_modules_[index]; }
  std::size_t layers() const { return layer_modules_.size(); }
  /// The model on the device as its builder makes it: the rotary table, the layers, the embeddings, the norm and the head.
  void materialize();
  /// rope_init alone, for a model whose weights are elsewhere made.
  void materialize_rope();
  /// forward(tokens, mask, input_pos): the logits, in parts where the run asks for parts.
  std::vector<Tensor> operator()(const TuneBatch& batch);
  /// Saved-tensor hooks that offload activations let the head's own be (NoOpManager).
  void spare_head() { spares_head_ = true; }
  /// disable_adapter, for the passes that follow.
  void switch_adapters(bool on) { run_.adapters_off = !on; }

 private:
  Tensor embed(const Tensor& tokens);
  Tensor last_norm(const Tensor& hidden) const;
  Tensor head(const Tensor& hidden);
  std::vector<Tensor> logits_of(const Tensor& hidden);
  void materialize_linear(const TuneLinear& linear);
  void materialize_module(Module& module);
  void load_weights();

  Tape& tape_;
  TuneRun run_;
  bool scaled_embeddings_, tied_, capped_ = false, spares_head_ = false;
  Module root_;
  std::vector<std::unique_ptr<TuneRope>> ropes_;  ///< one for all layers, or one a layer
  std::vector<Module*> layer_modules_;
  std::vector<std::unique_ptr<TuneLayer>> layers_;
  std::unique_ptr<TuneNorm> norm_;
  std::unique_ptr<TuneLinear> output_;
};

}  // namespace plimsoll::program
