#include "program/left_behind.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace plimsoll::program {

namespace {

/// The allocations of the stretch that nothing frees before `until`, in order. Tensors are named below `names`.
std::vector<Instruction> kept_of(const std::vector<Instruction>& part, const Repeated& repeated, std::size_t until, TensorId names) {
  std::vector<char> freed(names);
  for (std::size_t i = repeated.begin; i < until; ++i)
    if (part[i].kind == InstructionKind::free) freed[part[i].id] = 1;
  std::vector<Instruction> kept;
  for (std::size_t i = repeated.begin; i < repeated.end; ++i)
    if (part[i].kind == InstructionKind::alloc && !freed[part[i].id]) kept.push_back(part[i]);
  return kept;
}

}  // namespace

void add_left_behind(std::vector<Instruction>& part, Repeated& repeated, std::size_t until, TensorId& next) {
  const std::vector<Instruction> kept = kept_of(part, repeated, until, next);
  if (kept.empty() || repeated.times <= 1) return;
  const auto more = static_cast<TensorId>(repeated.times - 1);
  // Of a tensor that is kept, the first of its further ones; 0 of others, for the new are behind `next`.
  std::vector<TensorId> copies(next);
  for (const Instruction& allocation : kept) {
    copies[allocation.id] = next;
    next += more;
  }
  const auto copied = [&](const Instruction& instruction) {
    const bool lives_or_dies = instruction.kind == InstructionKind::free || instruction.kind == InstructionKind::alloc;
    return lives_or_dies && copies[instruction.id] != 0;
  };
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < part.size(); ++i)
    if (copied(part[i])) places.push_back(i);
  // From the end, each stretch moves to where it will stand.
  std::size_t end = part.size();
  part.resize(part.size() + places.size() * more);
  auto to = part.end();
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    const auto from = part.begin() + static_cast<std::ptrdiff_t>(*place);
    to = std::move_backward(from + 1, part.begin() + static_cast<std::ptrdiff_t>(end), to);
    const Instruction instruction = *from;
    for (TensorId run = more; run-- > 0;) {
      *--to = instruction;
      to->id = copies[instruction.id] + run;
    }
    *--to = instruction;
    end = *place;
  }
  repeated.end += kept.size() * more;
}

}  // namespace plimsoll::program
