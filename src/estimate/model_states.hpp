// Parameters, gradients and optimizer states of a rank, by closed form: who holds what, and how many times over.
#pragma once

#include <vector>

#include "estimate/stages.hpp"

namespace plimsoll::estimation {

/// Which model states the data-parallel ranks divide among themselves.
struct Divided {
  bool parameters = false, gradients = false, optimizer = false;
};
Divided divided_by(const Strategy& resolved);

/// Tensors of a rank before and after data-parallel sharding, in elements.
struct Elements {
  double whole = 0, shard = 0;
};

/// Model states of one rank of a pipeline stage, in bytes, wherever they lie.
struct States {
  Elements held;      ///< parameters of the model
  Elements adapters;  ///< and those beside them
  double largest_unit = 0, root_unit = 0;
  double parameters = 0, gradients = 0, optimizer = 0;
  bool gradients_persist = false;  ///< main gradients that are zeroed, never freed
};

/// The chunks of the model that a pipeline stage holds.
std::vector<const Stage*> chunks_of(const std::vector<Stage>& stages, int stage, const Strategy& resolved);

/// Throws Error (refused) for what has no closed form.
States states_of(const std::vector<const Stage*>& chunks, const Strategy& resolved);

/// Of the host's memory, what the model states that were offloaded take; 0 where they have no closed form.
Bytes host_states(const std::vector<const Stage*>& chunks, const Strategy& resolved);

}  // namespace plimsoll::estimation
