/// torch.nn.parallel.DistributedDataParallel. Sources: torch/nn/parallel/distributed.py, torch/csrc/distributed/c10d/reducer.cpp (2.15).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "program/module.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

struct DdpSettings {
  std::int64_t bucket_cap = 25LL << 20;  ///< bytes
  std::int64_t first_bucket_cap =
      1LL << 20;  ///< bytes: the first bucket starts its reduction early; a cap that was asked for holds for it too
  bool gradient_as_bucket_view = false;
  bool static_graph = false;  ///< the first backward only counts, the second tells the order, the third forward makes the buckets
  std::unordered_set<const Parameter*> ignored = {};  ///< _ddp_params_and_buffers_to_ignore: neither broadcast nor reduced
  bool find_unused_parameters = false;                ///< the outputs are copied in every forward, and the first buckets stay
  /// A communication hook that adds a bucket's gradients to accumulators of this type elsewhere and reduces those; the backward pass does not
  /// wait for it, whoever reads the accumulators does (nanotron: optim/gradient_accumulator.py, get_fp32_accum_hook).
  std::optional<DType> accumulators = {};
};

/// Bytes of tensors grouped as compute_bucket_assignment_by_size does: in order, per type, a bucket closes when it reaches its limit; the
/// first bucket of a type has the first limit, later ones the last. The buckets come in the order of their first tensors.
std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<Tensor>& tensors, const std::vector<std::int64_t>& limits);

/// A wrapped model. Gradients of the trainable parameters are copied into buckets that are all-reduced as they fill.
class Ddp {
 public:
  /// Broadcasts the states (in flat pieces of 250 MiB) and makes the first buckets.
  Ddp(Tape& tape, Module& root, const DdpSettings& options);
  /// What DDP.forward does before the module's own: new buckets where they are due, buffers are broadcast. Without `synchronize`
  /// (no_sync) gradients only accumulate.
  void before_forward(bool synchronize);
  /// Once the order in which gradients arrive is known, the next forward begins with buckets in that order; nothing lies between that and
  /// the end of the step before.
  void after_step();
  /// Of the process group's collectives.
  StreamId stream() const { return stream_; }

 private:
  struct Bucket {
    std::vector<std::size_t> parameters;
    std::int64_t elements = 0;
    Tensor flat;
    std::size_t pending = 0;
  };

  void broadcast(const std::vector<Tensor>& tensors);
  std::vector<std::vector<std::size_t>> first_assignment() const;
  void make_buckets(const std::vector<std::vector<std::size_t>>& assignment);
  bool rebuild_is_due() const;
  void rebuild_buckets();
  void pass_through_sink(std::vector<Tensor*>& outputs);
  void check_reduction() const;
  void gradient_ready(std::size_t parameter);
  void mark_ready(std::size_t parameter);
  void fill_bucket(std::size_t parameter);
  void reduce(const Bucket& bucket);
  void reduce_all_at_once();
  void finish_backward();

  Tape& tape_;
  DdpSettings options_;
  StreamId stream_;
  std::vector<Tensor> parameters_;  ///< trainable, in registration order
  std::vector<Tensor> buffers_;
  std::vector<NodeRef> accumulators_;
  std::vector<Bucket> buckets_;
  std::vector<std::pair<std::size_t, std::int64_t>> place_;  ///< of a parameter: its bucket and the first element within it
  Tensor used_parameters_;                                   ///< local_used_map_dev: who got a gradient
  std::vector<std::size_t> arrival_;                         ///< order in which gradients came, before the buckets follow it
  bool rebuilt_ = false, synchronize_ = true;
  bool counted_ = false;             ///< a static graph's first backward has been
  std::vector<std::size_t> unused_;  ///< a static graph's parameters without gradients: ready with the first gradient that comes
  bool marked_unused_ = false;
};

}  // namespace plimsoll::program
