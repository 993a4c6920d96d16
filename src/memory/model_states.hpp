// Bytes of the model states: weights, gradients, masters and moments, by recipe, optimizer and adapter. What a step adds to them for a
// while (gathered parameters, casts) is here as far as a formula holds; everything else is read off the played program.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll::memory {

/// One model state: bytes per parameter, and whether the data-parallel ranks divide it among themselves.
struct StateShare {
  double bytes = 0;
  bool divided = false;
};

/// Bytes per trainable parameter of a way of training with Adam; `cached` are copies that live as long as the weights (fp8 workspaces).
struct StateRecipe {
  std::string_view name;
  StateShare parameters, gradients, master, moments, cached;
};

/// All recipes, each with its name.
const std::vector<StateRecipe>& state_recipes();
/// The recipe of that name. Throws Error with the nearest name.
const StateRecipe& state_recipe(std::string_view name);

/// Bytes per parameter of one rank, of `ranks` that divide what the recipe divides.
double bytes_per_parameter(const StateRecipe& recipe, std::int64_t ranks);
/// Bytes of all states of one rank, for `parameters` parameters before they are divided (padding is the layout's, not the recipe's).
Bytes model_state_bytes(const StateRecipe& recipe, std::int64_t parameters, std::int64_t ranks);

/// Bytes of the optimizer's states of one tensor (or of the rank's shard of it), kept in `type` unless the optimizer has its own.
/// `hidden_matrix`: a matrix that Muon orthogonalises. The 4-byte step counter of torch's Adam is on the host and not counted.
/// Throws Error(refused) for an optimizer whose states depend on more than the tensor's shape.
Bytes optimizer_state_bytes(OptimizerKind optimizer, const std::vector<std::int64_t>& shape, DType type, bool hidden_matrix = true);

// ---- transients of sharded training ----------------------------------------------------------------------------------

/// FSDP2, of a unit with `elements` parameters gathered and computed in 16 bits: the all-gather output and the copied-out parameters.
Bytes fsdp2_forward_transient(std::int64_t elements);
/// Parameters, the prefetched all-gather of the next unit, 16-bit gradients and the reduce-scatter input of the unit before.
Bytes fsdp2_backward_transient(std::int64_t elements, DType reduce_type);
/// DeepSpeed stages 1 and 2: reduce buckets (`reduce_bucket_size` elements), two with overlap_comm.
Bytes deepspeed_reduce_buckets(std::int64_t reduce_bucket_size, DType type, bool overlap_comm);
/// torch.optim's foreach Adam keeps one full list (the square roots of v) in the states' type while it steps.
Bytes foreach_adam_temporary(std::int64_t shard_elements, DType state_type);

// ---- autocast --------------------------------------------------------------------------------------------------------

/// Parameters that autocast casts once per region: weights and biases of linears and convolutions, and a tied embedding used as head.
std::int64_t autocast_parameters(const Model& model);
/// Bytes of their 16-bit copies.
Bytes autocast_cache_bytes(const Model& model);

// ---- adapters and quantised weights ----------------------------------------------------------------------------------

/// NF4 in blocks of 64 (bitsandbytes).
struct Nf4Bytes {
  Bytes data;       ///< half a byte per parameter
  Bytes absmax;     ///< scale of each block: fp32, or int8 with an fp32 scale per 256 of them
  Bytes constants;  ///< per tensor: the code table (64 B); with double quantisation also an offset (4 B) and its own table (1,024 B)
  Bytes total() const { return data + absmax + constants; }
};
Nf4Bytes nf4_bytes(std::int64_t elements, bool double_quantised);

/// Parameters of a LoRA adapter of rank r on linears of these shapes ([out, in]): r · (in + out) each.
std::int64_t lora_parameters(const std::vector<std::vector<std::int64_t>>& linears, std::int64_t r);

}  // namespace plimsoll::memory
