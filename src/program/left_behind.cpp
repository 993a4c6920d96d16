#include "program/left_behind.hpp"

#include <cstdint>
#include <utility>

namespace plimsoll::program {

namespace {

/// The allocations of the stretch that nothing frees before `until`, in order. Tensors are named below `names`.
std::vector<Instruction> kept_of(const std::vector<Instruction>& part, const Repeated& repeated, std::size_t until, TensorId names) {
  std::vector<bool> freed(names);
  for (std::size_t i = repeated.begin; i < until; ++i)
    if (part[i].kind == InstructionKind::free) freed[part[i].id] = true;
  std::vector<Instruction> kept;
  for (std::size_t i = repeated.begin; i < repeated.end; ++i)
    if (part[i].kind == InstructionKind::alloc && !freed[part[i].id]) kept.push_back(part[i]);
  return kept;
}

}  // namespace

void add_left_behind(std::vector<Instruction>& part, Repeated& repeated, std::size_t until, TensorId& next) {
  const std::vector<Instruction> kept = kept_of(part, repeated, until, next);
  if (kept.empty() || repeated.times <= 1) return;
  constexpr std::uint32_t kNone = UINT32_MAX;
  const auto more = static_cast<TensorId>(repeated.times - 1);
  std::vector<TensorId> copies(next, kNone);  // of a tensor that is kept: the first of its further ones
  for (const Instruction& allocation : kept) {
    copies[allocation.id] = next;
    next += more;
  }
  std::vector<Instruction> longer;
  longer.reserve(part.size() + 2 * kept.size() * more);
  for (const Instruction& instruction : part) {
    longer.push_back(instruction);
    const bool lives_or_dies = instruction.kind == InstructionKind::free || instruction.kind == InstructionKind::alloc;
    if (!lives_or_dies || copies[instruction.id] == kNone) continue;
    for (TensorId run = 0; run < more; ++run) {
      longer.push_back(instruction);
      longer.back().id = copies[instruction.id] + run;
    }
  }
  part = std::move(longer);
  repeated.end += kept.size() * more;
}

}  // namespace plimsoll::program
