/// torch.nn.parallel.DistributedDataParallel. Sources: torch/nn/parallel/distributed.py, torch/csrc/distributed/c10d/reducer.cpp (2.15).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "program/module.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

struct DdpSettings {
  std::int64_t bucket_cap = 25LL << 20;       ///< bytes
  std::int64_t first_bucket_cap = 1LL << 20;  ///< bytes: the first bucket starts its reduction early
  bool gradient_as_bucket_view = false;
};

/// Bytes of tensors grouped as compute_bucket_assignment_by_size does: in order, per type, a bucket closes when it reaches its limit; the
/// first bucket of a type has the first limit, later ones the last. The buckets come in the order of their first tensors.
std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<Tensor>& tensors, const std::vector<std::int64_t>& limits);

/// A wrapped model. Gradients of the trainable parameters are copied into buckets that are all-reduced as they fill.
class Ddp {
 public:
  /// Broadcasts the states (in flat pieces of 250 MiB) and makes the first step's single bucket.
  Ddp(Tape& tape, Module& root, const DdpSettings& options);
  /// What DDP.forward does before the module's own: buffers are broadcast. Without `synchronize` (no_sync) gradients only accumulate.
  void before_forward(bool synchronize);
  /// From the second step on the buckets follow the order in which gradients arrived. DDP makes them at the start of the second forward;
  /// nothing lies between that and the end of the first step.
  void after_step();

 private:
  struct Bucket {
    std::vector<std::size_t> parameters;
    std::int64_t elements = 0;
    Tensor flat;
    std::size_t pending = 0;
  };

  void broadcast(const std::vector<Tensor>& tensors);
  void make_buckets(const std::vector<std::vector<std::size_t>>& assignment);
  void rebuild_buckets();
  void gradient_ready(std::size_t parameter);

  Tape& tape_;
  DdpSettings options_;
  StreamId stream_;
  std::vector<Tensor> parameters_;  ///< trainable, in registration order
  std::vector<Tensor> buffers_;
  std::vector<NodeRef> accumulators_;
  std::vector<Bucket> buckets_;
  std::vector<std::pair<std::size_t, std::int64_t>> place_;  ///< of a parameter: its bucket and the first element within it
  std::vector<std::size_t> arrival_;                         ///< order of the first synchronized backward
  bool rebuilt_ = false, synchronize_ = true;
};

}  // namespace plimsoll::program
