/// Activations of a stack's first layers on the host between forward and backward (cpu_offloading_num_layers).
/// Source: transformer_engine/pytorch/cpu_offload.py of Transformer Engine 2.9, AsyncDoubleBufferGroupOffloadHandler.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_set>
#include <vector>

#include "program/host_stay.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// Saved-tensor hooks around every layer. What Transformer Engine's modules save of the layers that are offloaded leaves on a stream of its
/// own, one layer in each of as many equal windows of the stack, and comes back window by window in backward.
class TeOffload final : public SavedTensorHooks, public std::enable_shared_from_this<TeOffload> {
 public:
  /// `offloaded` ≤ `layers`; `parameters` never leave.
  TeOffload(Tape& tape, std::size_t layers, std::size_t offloaded, const std::vector<Tensor>& parameters);

  std::unique_ptr<Packed> pack(const Tensor& tensor) override;
  Tensor unpack(Packed& packed) override;

  /// group_prefetch_offload_commit: the end of a layer, whose output passes through.
  Tensor commit(const Tensor& hidden);

 private:
  struct Slot;
  struct Saved;

  bool leaves(const Tensor& tensor) const;
  bool is_parameter(const Tensor& tensor) const;
  void commit_forward();
  void commit_backward();
  void offload(std::size_t layer);
  void reload(std::size_t layer);

  Tape& tape_;
  StreamId out_, in_;
  HostStay host_;  ///< pinned, which is the handler's default
  std::unordered_set<const TensorImpl*> parameters_;
  std::vector<std::size_t> windows_;                       ///< by offloaded layer: the layer at whose end the next one may leave
  std::vector<std::vector<std::shared_ptr<Slot>>> slots_;  ///< by offloaded layer
  std::size_t layer_ = 0, done_ = 0;                       ///< current_group, offloaded_group_count
};

}  // namespace plimsoll::program
