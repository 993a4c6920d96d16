/// What PYTORCH_CUDA_ALLOC_CONF says and the memory fraction that the program sets, as far as they change memory.
#pragma once

#include <optional>

#include "plimsoll/units.hpp"

namespace plimsoll {

struct AllocatorSettings {
  bool expandable_segments = false;
  std::optional<Bytes> max_split_size;                ///< max_split_size_mb (PyTorch takes more than 20 MiB)
  Bytes max_non_split_rounding = 20_MiB;              ///< slack with which an oversize block may serve an oversize request
  int roundup_power2_divisions = 0;                   ///< 0 and 1: off; else a power of two
  double garbage_collection_threshold = 0;            ///< 0: off. Acts only where a memory fraction is set, as in PyTorch.
  std::optional<double> per_process_memory_fraction;  ///< torch.cuda.set_per_process_memory_fraction, of the device's total
};

}  // namespace plimsoll
