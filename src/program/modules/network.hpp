/// A whole network of transformers, ready to run on a tape: from a batch to its loss.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"
#include "program/hf_release.hpp"
#include "program/module.hpp"
#include "program/ops/token_scores.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

namespace inductor {
class ModuleGraphs;
}

/// How the modules run, beyond what the model says.
struct RunOptions {
  enum class Attention : std::uint8_t { eager, sdpa, flash, flash3, flash4 } attention = Attention::sdpa;
  enum class Checkpointing : std::uint8_t { none, non_reentrant, reentrant } checkpointing = Checkpointing::none;
  int checkpoint_every = 1;      ///< of a stack's layers the k-th, the 2k-th … are checkpointed
  bool compiled_blocks = false;  ///< torch.compile of every decoder layer
  std::shared_ptr<inductor::ModuleGraphs> graphs = {};  ///< of compiled layers
  bool compiled_model = false;   ///< torch.compile of the whole model with its loss
  /// torch.compile of a whole model in whose units a wrapper has hooks that Dynamo does not enter. The frames around them, which loop over
  /// the units, are left to Python; what those call is compiled by itself: layers (compiled_blocks), and functions of transformers' own.
  bool compiled_frames = false;
  bool liger = false;            ///< Liger's norms, rotation and gated MLPs in the families that it patches
  LigerModules liger_modules;    ///< which of these
  /// What forward answers: the model's own loss, by whose kernels; or, for a trainer with a loss of its own, the logits, or how likely each
  /// label is that counts (TRL's fused head), without logits, or the score of each sequence's last token (ForSequenceClassification).
  enum class Loss : std::uint8_t {
    cross_entropy,
    liger,
    liger_fused_linear,
    cut_cross_entropy,
    logits,
    token_scores,
    sequence_scores
  } loss = Loss::cross_entropy;
  std::int64_t scored_tokens = 0;  ///< token_scores: labels of a batch that count
  TokenMetrics metrics;          ///< token_scores: beside the log-probabilities
  std::int64_t logits_kept = 0;  ///< logits: of a sequence, the last so many; 0: all (logits_to_keep)
  std::int64_t packed_length = 0;  ///< the one row is sequences of so many tokens end to end, told apart by position ids; 0: rows are sequences
  HfRelease release;                                 ///< of transformers
  std::shared_ptr<std::vector<Tensor>> held = {};    ///< gets what the output object holds, for a caller that works on it; none: it is gone
  std::shared_ptr<std::vector<Tensor>> cache = {};   ///< gets every layer's keys and values (use_cache), for who holds them; none: no cache
  bool hidden_requires_grad = false;                 ///< enable_input_require_grads(): the embedding's output is a leaf of the graph (LoRA)
  std::shared_ptr<const RunOptions> unchecked = {};  ///< the same without checkpointing, where only some layers have it

  /// Whether the flash-attention package runs, of whichever generation.
  static bool is_flash(Attention attention) { return attention >= Attention::flash; }
  /// Layers are compiled with their checkpoint: the backward graph computes again what it needs.
  bool checkpoints_in_graph() const { return compiled_blocks && checkpointing != Checkpointing::none && release.checkpoints_forward(); }
  /// Those of a stack's layer, counted from 0.
  const RunOptions& of_layer(std::int64_t layer) const { return unchecked && (layer + 1) % checkpoint_every != 0 ? *unchecked : *this; }
};

/// The inputs of one micro-batch, on the device.
struct Batch {
  Tensor input_ids;  ///< [batch, length] int64, or inputs_embeds [batch, length, hidden]; images: pixel_values [batch, channels, size,
                     ///< size]; diffusion: hidden_states
  Tensor labels;     ///< [batch, length], [batch], or [batch, target length]
  std::vector<Tensor> conditions = {};  ///< diffusion: what else the model's forward takes (diffusion_batch); text: other labels
  Tensor router_mask = {};  ///< [batch, length] int64: a trainer whose loss is its own asks for the routers' auxiliary loss of what this leaves
};

class Network {
 public:
  virtual ~Network() = default;
  /// forward with labels: the loss, or what RunOptions::loss says; the logits and everything else that the output object held are gone.
  virtual Tensor loss(const Batch& batch) = 0;
  /// The routers' auxiliary loss of the last pass, which the training loop adds where forward answers no loss; undefined of networks without.
  virtual Tensor take_auxiliary_loss() { return {}; }
  /// What the training loop does before a micro-batch's forward, outside of autocast: passes of their own.
  virtual void before_forward(const Batch&) {}
  /// What the training loop computes of that, outside of the network and of autocast: the loss of networks that only predict.
  virtual Tensor criterion(Tensor output) { return output; }
  /// What the training loop makes of a micro-batch before the network sees it, outside of autocast: its own inputs.
  virtual Batch fed(const Batch& batch) { return batch; }
  /// What the training loop does before a step's micro-batches: passes over what they learn of.
  virtual void before_step(const Batch&) {}
  /// What the training loop leaves on the host between the passes that need it, and how it goes there and comes.
  struct Resting {
    std::function<void()> fetch, rest;
  };
  virtual void rests(Resting /*parameters*/, Resting /*states*/) {}
  /// What the training loop does behind the optimizer's step, gradients gone.
  virtual void after_update() {}
  /// What the training loop computes behind each backward pass, outside of autocast: metrics of what the network said.
  virtual void after_backward(const Batch&) {}
};

/// Throws Error (refused): a model type that has no lowering.
std::unique_ptr<Network> make_network(const Model& model, const RunOptions& options, Module& root, Tape& tape);

}  // namespace plimsoll::program
