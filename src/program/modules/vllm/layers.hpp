/// vLLM's decoder layers on one tensor-parallel rank (vllm/model_executor/models/llama.py and its like): what is alive while they run.
///
/// In eager PyTorch a Python frame keeps its arguments until it returns: a caller's hidden states live as long as the layer that works on
/// them. A compiled graph drops each tensor behind its last use. `Frames` is that difference, and the only one made here.
#pragma once

#include <cstdint>

#include "program/modules/vllm/profile.hpp"
#include "program/tape.hpp"

namespace plimsoll::program::vllm {

/// Who keeps what: Python's frames, or a compiled graph.
class Frames {
 public:
  explicit Frames(bool compiled) : compiled_(compiled) {}
  /// A variable handed to a callee: its own reference goes where a graph is compiled.
  Tensor hand(Tensor& variable) const { return compiled_ ? std::move(variable) : variable; }
  /// A variable that is not read any more: a frame keeps it all the same.
  void spent(Tensor& variable) const {
    if (compiled_) variable.reset();
  }

 private:
  bool compiled_;
};

/// The hidden states of a stack, of which the second summand is added by the next norm.
struct Stream {
  Tensor hidden, residual;
};

class Layers {
 public:
  Layers(const ServedRank& rank, Tape& tape) : rank_(rank), tape_(tape), frames_(rank.compiled) {}

  /// VocabParallelEmbedding.
  Tensor embedded();
  /// A decoder layer of that block. Throws Error (refused): one that is not known.
  Stream layer(const Block& block, Tensor hidden, Tensor residual);
  /// The last norm: its sum in place.
  Tensor final_norm(Tensor hidden, Tensor residual);
  const Frames& frames() const { return frames_; }

  /// A column-parallel product: [rows, out / ranks].
  Tensor column(const Tensor& x, std::int64_t out);

 private:
  /// A row-parallel product and the sum of the ranks' parts.
  Tensor row(const Tensor& x, std::int64_t out);
  /// A product of which every rank has the whole.
  Tensor product(const Tensor& x, std::int64_t out);
  Tensor reduced(Tensor partial);
  void normalize(const Tensor& x, const Tensor& residual);
  Tensor normalized(const Tensor& x);
  Tensor attention(const AttentionSpec& spec, Tensor hidden);
  Tensor latent_attention(const AttentionSpec& spec, Tensor hidden);
  /// What attention gives, and its kernel where the pass attends to something.
  Tensor attended(const AttentionSpec& spec);
  void attend(const AttentionSpec& spec, const Tensor& output);
  void read_cache(const AttentionSpec& spec, const Tensor& output);
  void multiply_heads(std::int64_t heads, std::int64_t in, std::int64_t out);
  DType operands() const { return rank_.quantizes_inputs ? DType::fp8 : rank_.type; }
  Tensor mlp(std::int64_t intermediate, bool gated, Tensor x);
  Tensor mixture(const MoeSpec& spec, Tensor x);
  Stream residual_layer(const Block& block, Tensor hidden, Tensor residual);
  Stream parallel_layer(const Block& block, Tensor hidden);
  Tensor feed_forward(const Block& block, Tensor x);
  Tensor mixed(const Block& block, Tensor x);

  const ServedRank& rank_;
  Tape& tape_;
  Frames frames_;
};

/// Logits of `sequences` rows on every rank that samples, and the sampler over them.
void sample(const ServedRank& rank, Tape& tape, Layers& layers, const Tensor& hidden);

}  // namespace plimsoll::program::vllm
