#include "program/wrappers/megatron/fsdp_pool.hpp"

#include <algorithm>

#include "plimsoll/error.hpp"

namespace plimsoll::program {

Tensor MegatronFsdpPool::take(std::size_t owner, std::size_t place, std::int64_t elements, DType type, Category category) {
  auto& slots = slots_[place];
  const auto slot = std::find_if(slots.begin(), slots.end(), [](const Slot& each) { return !each.taken; });
  if (slot == slots.end()) throw Error(ErrorCode::internal, "both of Megatron-FSDP's buffers are taken");
  if (!slot->buffer) slot->buffer = tape_.empty({elements}, type, category);
  slot->taken = true;
  taken_[owner] = slot;
  return slot->buffer;
}

void MegatronFsdpPool::give_back(std::size_t owner) {
  const auto taken = taken_.find(owner);
  if (taken == taken_.end()) return;
  taken->second->taken = false;
  taken_.erase(taken);
}

}  // namespace plimsoll::program
