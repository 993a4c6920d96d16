/// What all of Megatron's pipeline schedules do for one micro-batch on a chunk, and behind the last of them.
/// Source: megatron/core/pipeline_parallel/schedules.py of Megatron-core 0.16.1.
#pragma once

#include <cstddef>
#include <vector>

#include "program/frameworks/megatron/schedule.hpp"

namespace plimsoll::program {

class MegatronPasses {
 public:
  /// `scale`: the optimizer's loss scale.
  MegatronPasses(MegatronRank& rank, const Tensor& scale)
      : rank_(rank), tape_(rank.tape), scale_(scale), forwards_(rank.chunks.size()), backwards_(rank.chunks.size()) {}

 protected:
  /// What one pass forward leaves to the schedule.
  struct Passed {
    Tensor output, tokens;
  };

  /// Before the first pass: gradients are not reduced yet.
  void begin();
  /// forward_step on a chunk: its output, or the loss where it has the head.
  Passed forward_step(std::size_t chunk, const Tensor& input);
  /// backward_step on a chunk: the gradient of the stage's input; undefined on the first stage. A loss is scaled in its place: 1F1B passes the
  /// list that it lies in, the other schedules a copy of it.
  Tensor backward_step(std::size_t chunk, const Tensor& input, Tensor& output, const Tensor& gradient);
  /// deallocate_output_tensor: the sent output keeps its place in the graph and loses its memory.
  void deallocate(const Tensor& output);
  /// Backward passes of the chunk from here on may start reducing its gradients.
  void synchronize(std::size_t chunk) { rank_.wrapped[chunk]->set_synchronizing(true); }
  /// forward_data_store is given up.
  void drop_reports() { reports_.clear(); }
  /// What waited for the end of the schedule; then finalize_model_grads: gradients over the data-parallel ranks, then those that are
  /// partial sums over the sequence.
  void finalize();

  /// Whether the output layer's weight gradients wait (defer_embedding_wgrad_compute).
  bool defers() const { return rank_.deferred.recorded > 0 && rank_.chunks.back()->plan().head; }

  MegatronRank& rank_;
  Tape& tape_;

 private:
  MegatronBatch load();
  Passed run_forward(MegatronChunk& chunk);
  void run_backward(Tensor& output, const Tensor& gradient);
  std::vector<Tensor> held_of(const MegatronChunk& chunk, const Passed& passed) const;
  Passed reduced_loss(const Tensor& losses, const Tensor& loss_mask);
  void scale_auxiliary_losses();

  const Tensor& scale_;
  std::vector<Tensor> reports_;  ///< forward_data_store
  std::vector<std::int64_t> forwards_, backwards_;  ///< passes that ran, by chunk
};

}  // namespace plimsoll::program
