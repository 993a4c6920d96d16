/// What of DeepSpeed's engines depends on its release: 0.12 to 0.19.8, read commit by commit (deepspeed/runtime).
/// Numbers in parentheses are pull requests of deepspeedai/DeepSpeed.
#pragma once

#include "plimsoll/release.hpp"

namespace plimsoll::program {

/// A release of DeepSpeed.
class DeepSpeedRelease {
 public:
  /// The newest that was read.
  DeepSpeedRelease() = default;
  explicit DeepSpeedRelease(const Release& release) : release_(release) {}

  /// The loss over several micro-batches is a scalar beside its mean that engine.backward keeps to log (_scale_loss_by_gas; since then a hook
  /// on the loss divides its gradient, 7665).
  bool divides_loss_apart() const { return !release_.since(0, 18, 3); }

  // ---- ZeRO 1 and 2 (zero/stage_1_and_2.py) ----
  /// overlap_comm, contiguous_gradients and round_robin_gradients are ignored in stage 1 (engine.py, _configure_zero_optimizer).
  bool reduces_stage_1_at_once() const { return !release_.since(0, 13); }
  /// The optimizer steps once with zeros at construction, so that its states are there (initialize_optimizer_states).
  bool makes_states_at_construction() const { return !release_.since(0, 13, 2); }
  /// The weights are laid side by side on the device where it has room; before, on the host (pull request 7828).
  bool flattens_on_device() const { return release_.since(0, 18, 7); }
  /// Buckets are made at the first gradient; before, ahead of backward (backward_prologue, 6993).
  bool makes_buckets_at_first_gradient() const { return release_.since(0, 17, 2); }
  /// A second bucket is added for overlap_comm whether gradients are contiguous or not, and cleared only where they are (6993).
  bool leaks_buckets() const { return release_.since(0, 17, 2); }
  /// What is reduced beside backward is held by record_stream (7965).
  bool records_reduced() const { return release_.since(0, 19); }
  /// bf16's check_grad_overflow is on unless the file says no (precision_config.py).
  bool checks_bf16() const { return release_.since(0, 19, 3); }
  /// A gradient's largest and smallest element tell whether all are finite; before, every element in fp32 (has_inf_or_nan).
  bool checks_extremes() const { return release_.since(0, 19, 6); }
  /// Nothing is multiplied where there is neither a limit nor a loss scale (unscale_and_clip_grads).
  bool skips_idle_unscaling() const { return release_.since(0, 19, 7); }
  /// fp32 gradients of the rank's piece have one buffer (_use_compact_grad_partition_buffer).
  bool accumulates_in_one_buffer() const { return release_.since(0, 19, 8); }
  /// fp32 gradients are taken from a partition that was flattened before, which nobody read line by line (8056).
  bool preflattens_wide_gradients() const { return release_.since(0, 19, 2) && !accumulates_in_one_buffer(); }
  /// ZeRO-Offload keeps what it copies from being changed meanwhile (_offload_gradient_safety_enabled).
  bool guards_offload() const { return release_.since(0, 19, 8); }
  /// The piece that becomes the host's master is copied where it lies; before, once it was there (7700).
  bool clones_on_device() const { return release_.since(0, 18, 3); }
  /// ZeRO-Offload sends weights in 16 bits; before, the masters, which the device cast (7309).
  bool sends_offloaded_in_16_bits() const { return release_.since(0, 17); }
  /// Norms of groups that hold what is no number become infinite (combine_grad_norm_groups).
  bool combines_invalid_norms() const { return release_.since(0, 19, 8); }

  // ---- ZeRO-3 ----
  /// F.linear is replaced whether the model was built inside zero.Init or not (8189).
  bool replaces_linear_always() const { return release_.since(0, 19, 4); }
  /// A parameter that is gathered by itself is gathered in place; before, copied out of the buffer (_allgather_params_sequential, 7661).
  bool gathers_in_place() const { return release_.since(0, 18, 5); }
  /// A checkpointed layer's frozen weights are released by the module whose backward runs (8148).
  bool releases_recomputed() const { return release_.since(0, 19, 3); }
  /// Masters are made by one conversion and a copy; before, a copy and its conversion (7700).
  bool converts_masters_first() const { return release_.since(0, 18, 3); }
  /// The bucket has the type that gradients are sent in; before, the weights' (6993).
  bool bucket_has_sent_type() const { return release_.since(0, 17, 2); }
  /// The rank's shards have the accumulation's type; before, the weights' (8056).
  bool reduces_to_accumulation_type() const { return release_.since(0, 19, 2); }
  /// The blocks of experts of transformers' mixtures are leaves (zero/leaf_module_config.py).
  bool takes_experts_as_leaves() const { return release_.since(0, 18); }

 private:
  Release release_{0, 19, 8};
};

}  // namespace plimsoll::program
