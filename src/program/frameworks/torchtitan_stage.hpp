/// One pipeline stage of TorchTitan under torch.distributed.pipelining: a part of the decoder, sharded, and what its micro-batches hold.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "plimsoll/strategy.hpp"
#include "program/modules/torchtitan_decoder.hpp"
#include "program/wrappers/fsdp2.hpp"

namespace plimsoll::program {

/// One micro-batch on the device.
struct TitanBatch {
  Tensor tokens, positions, labels;  ///< [batch, length]
};

class TitanPart {
 public:
  TitanPart(const Model& model, const Strategy& strategy, const TitanRun& run, const TitanStage& stage, Tape& tape);

  TitanDecoder& decoder() { return decoder_; }
  Fsdp2& sharded() { return sharded_; }
  bool first() const { return stage_.embedding; }
  bool last() const { return stage_.head; }

  /// Shards, their initial values.
  void materialize();
  /// The loss of a last part's output.
  Tensor loss(const Tensor& prediction, const TitanBatch& batch, const Tensor& valid_tokens);

  // ---- torch.distributed.pipelining.PipelineStage ----
  void begin_schedule(std::size_t micro_batches);
  /// Receive buffers of an activation and of a gradient.
  void receive_activation(std::size_t micro_batch);
  /// `kept`: the list of operations that names the buffer lives on until the next one.
  void receive_gradient(std::size_t micro_batch, bool kept = false);
  void forward(std::size_t micro_batch, const TitanBatch& batch, const Tensor& valid_tokens);
  /// The output has been sent: only its place in the graph is kept.
  void release_output(std::size_t micro_batch);
  void backward(std::size_t micro_batch);
  /// Lets go of the input gradients that were sent, but for the last `kept`.
  void release_sent_gradients(std::size_t kept);
  /// perform_reduce_grad: what all micro-batches accumulated is reduced.
  void reduce_gradients();
  void end_schedule();

 private:
  void prefetch_in_order();
  Tensor boundary();

  Tape& tape_;
  Strategy strategy_;
  TitanStage stage_;
  std::int64_t hidden_;
  bool tied_;
  TitanDecoder decoder_;
  Fsdp2 sharded_;
  std::vector<Tensor> inputs_, outputs_, gradients_, losses_;  ///< by micro-batch
  std::deque<Tensor> sent_gradients_;
  Tensor last_received_, last_gradient_;
};

}  // namespace plimsoll::program
