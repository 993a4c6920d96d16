/// One pipeline stage of TorchTitan under torch.distributed.pipelining: a part of the decoder, sharded, and what its micro-batches hold.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "plimsoll/strategy.hpp"
#include "program/modules/torchtitan/decoder.hpp"
#include "program/point_to_point.hpp"
#include "program/routine.hpp"
#include "program/split_backward.hpp"
#include "program/wrappers/fsdp/fsdp2.hpp"

namespace plimsoll::program {

/// One micro-batch on the device.
struct TitanBatch {
  Tensor tokens, positions, labels;  ///< [batch, length]
  std::vector<Tensor> mask;          ///< flex_attention's, which every layer looks at until the batch is done
  std::vector<Tensor> whole_tables;  ///< of rotary tables that hold this rank's part while the batch runs
};

/// What the parts of a rank send and receive through: groups on one communicator; `pairs`, where there are any, for all that goes alone
/// (_batch_p2p of 2.15 coalesces nothing but sends with receives, lest one blocks the other).
struct TitanTransfers {
  BatchedTransfers groups;
  std::optional<PairedTransfers> pairs;
  bool fuses = false;       ///< Schedule1F1B: a send waits for the receive that follows, and both are one group
  bool waits_late = false;  ///< _PipelineScheduleRuntime: receives are waited for by the pass that needs them, not at once
  MicroBatchEvents events;  ///< of such receives: activations of a part, then its gradients

  void await_sends() { pairs ? pairs->await_sends() : groups.await_sends(); }
};

class TitanPart {
 public:
  /// `transfers`: of the rank, in a pipeline; `index` of the part among those of the rank; `calls`: passes that only repeat others are called.
  TitanPart(const Model& model, const Strategy& strategy, const TitanRun& run, const TitanStage& stage, Tape& tape,
            TitanTransfers* transfers, std::int64_t index, bool calls);

  TitanDecoder& decoder() { return decoder_; }
  Fsdp2& sharded() { return sharded_; }
  bool first() const { return stage_.embedding; }
  bool last() const { return stage_.head; }

  /// Shards, their initial values.
  void materialize();
  /// The loss of a last part's output.
  Tensor loss(const Tensor& prediction, const TitanBatch& batch, const Tensor& valid_tokens);

  // ---- torch.distributed.pipelining.PipelineStage ----
  // Dynamic metadata inference: before its first run a stage computes once forward and backward, to know the shapes that it sends.
  void begin_inference();
  void infer_forward(const TitanBatch& batch);
  void infer_backward(const TitanBatch& batch, const Tensor& valid_tokens);
  void end_inference();

  enum class WayBack : std::uint8_t { whole, in_halves };
  /// `ways`: by micro-batch that is run; `all`: micro-batches of the run, those included that only others stand for.
  void begin_schedule(std::vector<WayBack> ways, std::int64_t all);
  /// Receive buffers of an activation and of a gradient. `kept`: the list of operations that names the buffer lives on until the next one.
  void receive_activation(std::size_t micro_batch, bool kept = false);
  void receive_gradient(std::size_t micro_batch, bool kept = false);
  /// The same from the neighbouring stage of this rank, without a copy.
  void take_activation(std::size_t micro_batch, const Tensor& output) { inputs_[micro_batch] = output.detach(); }
  void take_gradient(std::size_t micro_batch, Tensor gradient) { gradients_[micro_batch] = std::move(gradient); }
  void forward(std::size_t micro_batch, const TitanBatch& batch, const Tensor& valid_tokens);
  /// The output has been sent: only its place in the graph is kept.
  void release_output(std::size_t micro_batch);
  const Tensor& output(std::size_t micro_batch) const { return outputs_[micro_batch]; }
  /// The gradient of the stage's input; undefined on the first stage.
  Tensor backward(std::size_t micro_batch);
  /// backward_one_chunk without the weights: the input's gradient (nothing on the first stage), and what the other half will need.
  Tensor backward_input(std::size_t micro_batch);
  /// backward_weight_one_chunk: the other half; on the first stage all of it.
  void backward_weight(std::size_t micro_batch);
  void send_gradient(Tensor gradient);
  /// Lets go of the input gradients that were sent, but for the last `kept`.
  void release_sent_gradients(std::size_t kept);
  /// perform_reduce_grad: what all micro-batches accumulated is reduced.
  void reduce_gradients();
  void end_schedule();
  /// The trainer's loss of its last run dies, and with it the graph that its micro-batches left; what a run gave back dies when the next
  /// one begins.
  void end_step() {
    losses_of_step_.clear();
    chunks_.clear();
  }

 private:
  /// What a micro-batch holds between the halves of its backward (backward_state).
  struct BetweenHalves {
    Tensor input, output, gradient;
    std::vector<WeightGroup> groups;
    NodeRef call;  ///< where its pass forward was called
  };
  /// What micro-batches do that go back in the same way: one shows it.
  struct Alike {
    Routine routine;
    std::size_t shows = 0;  ///< the micro-batch; the part's first: none
  };
  enum Received : std::int64_t { kActivation, kGradient, kReceived };
  Tensor buffer_of(Received what, std::size_t micro_batch);
  void receive(Received what, std::size_t micro_batch, const Tensor& buffer);
  void await(Received what, std::size_t micro_batch);
  void send(Message& pending, int peer, const Tensor& tensor);
  void fire(Message& pending, int peer);
  void keep_last_unit();
  void prefetch_in_order();
  Alike* alike(std::size_t micro_batch);
  void compute_forward(std::size_t micro_batch, const Tensor& input, const TitanBatch& batch, const Tensor& valid_tokens);
  void go_back(std::size_t micro_batch, const BetweenHalves& state, const std::function<void()>& run);
  BetweenHalves take_state(std::size_t micro_batch);
  void hold_reductions();
  Tensor boundary();

  Tape& tape_;
  Strategy strategy_;
  TitanStage stage_;
  std::int64_t hidden_;
  bool tied_;
  TitanDecoder decoder_;
  Fsdp2 sharded_;
  std::vector<Tensor> inputs_, outputs_, gradients_, losses_;  ///< by micro-batch
  std::vector<Tensor> received_[kReceived];                    ///< buffers by micro-batch, where they are kept from step to step
  std::vector<Tensor> chunks_;                                 ///< outputs of the last stage that its run gives back (output_chunks)
  std::vector<Tensor> losses_of_step_;
  std::vector<Tensor> buffers_kept_;  ///< copies of the buffers during inference
  Tensor inferred_input_, inferred_output_;
  TitanTransfers* transfers_;
  std::int64_t index_;
  Message activation_to_send_, gradient_to_send_;
  std::vector<BetweenHalves> halves_;  ///< by micro-batch
  bool calls_;
  std::vector<WayBack> ways_;    ///< by micro-batch
  std::array<Alike, 2> alikes_;  ///< by way back
  std::deque<Tensor> sent_gradients_;
  Tensor last_received_, last_gradient_;
};

}  // namespace plimsoll::program
