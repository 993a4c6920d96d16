/// What stands behind the layers of a compiled decoder: the last norm, the product with the vocabulary and the loss (transformers'
/// ForCausalLMLoss, whose fp32 logits never reach memory).
#pragma once

#include <array>

#include "program/modules/transformers/compiled/layer.hpp"

namespace plimsoll::program {

/// Its norm is in a layer's slots of the input's norm, its product in those of the attention's projection. Of a weight that is the
/// embedding's too (`tied`) the gradients are added up: under autocast the head's waits in the products' type, else its product is made
/// last and takes the other one as its bias (torch/_inductor/fx_passes/post_grad.py, addmm).
class CompiledHead final : public CompiledLayer {
 public:
  CompiledHead(inductor::Graph& graph, const CompiledShape& shape, CompiledValues& values, const Tape& tape, std::int64_t vocabulary,
               bool tied)
      : CompiledLayer(graph, shape, values, tape), vocabulary_(vocabulary), tied_(tied) {}

  /// The logits of what enters the norm.
  inductor::Value forward() override;
  /// What the norm gives, in the stream's type, for the graph's caller.
  inductor::Value normed_output();
  /// The gradient of the norm's output from that of the logits.
  inductor::Value project_backward(inductor::Value logits);
  /// The gradient of a tied weight, beside that of the embedding.
  inductor::Value tied_gradient(inductor::Value of_embedding);
  /// The gradients by slot: from that of the norm's output, what the norm read, and a gradient of its output that the caller has.
  std::array<inductor::Value, kArguments> backward_behind_norm(inductor::Value gradient, const std::vector<inductor::Value>& stream,
                                                               inductor::Value of_output);

 private:
  /// The vocabulary as the products see it. One whose rows are no whole 16 bytes is padded (torch/_inductor/fx_passes/pad_mm.py, which
  /// measures both: unaligned products of that size are several times slower).
  std::int64_t columns() const;

  std::int64_t vocabulary_;
  bool tied_;
  inductor::Value logits_gradient_;  ///< as the product for the weight reads it
};

/// Values of the loss that its backward reads.
enum CompiledLossSlot : std::size_t { kLogits, kMaximum, kLogSum, kShiftedLabels, kLabelCount, kLossSlots };
using CompiledLossValues = std::array<inductor::Value, kLossSlots>;

/// The mean loss of `loss[kLogits]`, [batch · length, vocabulary], as operations of the graph; fills the other values.
inductor::Value compiled_loss(inductor::Graph& graph, std::int64_t batch, std::int64_t length, inductor::Value labels,
                              CompiledLossValues& loss);
/// The logits' gradient from the loss's, and from their own where they are an output of the same graph.
inductor::Value compiled_loss_backward(inductor::Graph& graph, std::int64_t rows, std::int64_t vocabulary, DType type,
                                       inductor::Value loss_gradient, inductor::Value logits_gradient, const CompiledLossValues& loss);

}  // namespace plimsoll::program
