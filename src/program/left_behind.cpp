#include "program/left_behind.hpp"

#include <unordered_map>
#include <utility>

namespace plimsoll::program {

namespace {

/// The allocations of the stretch that nothing frees before `until`, in order.
std::vector<Instruction> kept_of(const std::vector<Instruction>& part, const Repeated& repeated, std::size_t until) {
  std::unordered_map<TensorId, bool> freed;
  for (std::size_t i = repeated.begin; i < until; ++i) {
    if (part[i].kind == InstructionKind::alloc && i < repeated.end) freed[part[i].id] = false;
    if (part[i].kind != InstructionKind::free) continue;
    const auto found = freed.find(part[i].id);
    if (found != freed.end()) found->second = true;
  }
  std::vector<Instruction> kept;
  for (std::size_t i = repeated.begin; i < repeated.end; ++i)
    if (part[i].kind == InstructionKind::alloc && !freed[part[i].id]) kept.push_back(part[i]);
  return kept;
}

}  // namespace

void add_left_behind(std::vector<Instruction>& part, Repeated& repeated, std::size_t until, TensorId& next) {
  const std::vector<Instruction> kept = kept_of(part, repeated, until);
  if (kept.empty() || repeated.times <= 1) return;
  std::unordered_map<TensorId, std::vector<TensorId>> copies;
  for (const Instruction& allocation : kept) copies[allocation.id] = {};
  std::vector<Instruction> longer;
  longer.reserve(part.size() + kept.size() * static_cast<std::size_t>(repeated.times));
  for (std::size_t i = 0; i < part.size(); ++i) {
    const Instruction& instruction = part[i];
    longer.push_back(instruction);
    const bool dies = instruction.kind == InstructionKind::free,
               born = instruction.kind == InstructionKind::alloc && i >= repeated.begin && i < repeated.end;
    const auto found = dies || born ? copies.find(instruction.id) : copies.end();
    if (found == copies.end()) continue;
    for (std::int64_t run = 1; born && run < repeated.times; ++run) found->second.push_back(next++);
    for (const TensorId copy : found->second) {
      longer.push_back(instruction);
      longer.back().id = copy;
    }
  }
  part = std::move(longer);
  repeated.end += kept.size() * static_cast<std::size_t>(repeated.times - 1);
}

}  // namespace plimsoll::program
