// What of Megatron-LM depends on its release.
#pragma once

#include <string>

#include "plimsoll/strategy.hpp"

namespace plimsoll::framework {

/// A release of Megatron-LM, by the day of its code. Months are those of the commits to megatron/arguments.py that brought each option.
class MegatronRelease {
 public:
  explicit MegatronRelease(const Release& release) : release_(release) {}

  /// GPTModel of Megatron-core; before, megatron/model: layers of its own, gradients in the weights' type unless
  /// accumulate_allreduce_grads_in_fp32 is set, torch's DDP where reductions overlap.
  bool core() const { return release_.since_date(2023, 11); }
  /// batch_isend_irecv and a wait of the host in every schedule (_communicate); since, interleaved transfers run beside the passes.
  bool overlaps_transfers() const { return release_.since_date(2023, 6); }
  /// scatter_gather_tensors_in_pipeline: of what crosses stages each tensor-parallel rank sends a part.
  bool cuts_transfers() const { return !core(); }
  /// deallocate_output_tensor: what was sent gives its memory back.
  bool deallocates_outputs() const { return release_.since_date(2022, 1); }
  /// async_tensor_model_parallel_allreduce: a linear's input gradient is reduced beside the product of its weight's.
  bool reduces_beside_products() const { return release_.since_date(2021, 9); }
  /// persist_layer_norm: apex's FastLayerNorm, for the widths that it has.
  bool persists_norms() const { return release_.since_date(2021, 10); }
  /// gradient_accumulation_fusion, where gradients accumulate in fp32.
  bool fuses_weight_gradients() const { return release_.since_date(2022, 2); }

 private:
  Release release_;
};

/// Of a strategy whose framework is known.
MegatronRelease megatron_release(const Strategy& strategy);

/// Whether the weights' gradients have slots of their own in the pipeline's schedule: zb-h1, zbv, v-half and v-min of Primus.
bool splits_backward(const Strategy& strategy);

/// Who hands over the weights' gradients that have slots of their own: Transformer Engine's WeightGradStore as Primus replaces it since May
/// 2026 (35f9c97c, release v26.3), which copies what they read; before, autograd functions of Primus' own in the place of Linear's and
/// GroupedLinear's, not of LayerNormLinear's, which leave the tensors themselves to WGradRunningCache.
bool defers_by_store(const Strategy& strategy);

/// Whether a token's experts follow one another (PrimusTopKRouter with moe_router_force_load_balancing: token i has those from i · top_k
/// on, around the end). Megatron-core's own option draws scores at random.
bool routes_in_turn(const Strategy& strategy);

/// Whose layers run where nothing is said: Megatron's own before Megatron-core, and where attention is the unfused one.
std::string megatron_layer_spec(const Strategy& strategy, const std::string& usual);

}  // namespace plimsoll::framework
