/// What PYTORCH_CUDA_ALLOC_CONF says, as far as it changes memory.
#pragma once

#include <optional>

#include "plimsoll/units.hpp"

namespace plimsoll {

struct AllocatorSettings {
  bool expandable_segments = false;
  std::optional<Bytes> max_split_size;      ///< max_split_size_mb; blocks of at least this are neither split nor used for less
  int roundup_power2_divisions = 0;         ///< 0: off
  double garbage_collection_threshold = 0;  ///< share of capacity; 0: off
};

}  // namespace plimsoll
