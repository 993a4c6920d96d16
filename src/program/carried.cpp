#include "program/carried.hpp"

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "plimsoll/error.hpp"

namespace plimsoll::program {

namespace {

/// The allocations of a part that no instruction of it frees, in order.
std::vector<const Instruction*> left_behind(const std::vector<Instruction>& part) {
  std::unordered_set<std::uint32_t> freed;
  for (const Instruction& instruction : part) {
    if (instruction.kind == InstructionKind::free) freed.insert(instruction.id);
  }
  std::vector<const Instruction*> left;
  for (const Instruction& instruction : part) {
    if (instruction.kind == InstructionKind::alloc && freed.count(instruction.id) == 0) left.push_back(&instruction);
  }
  return left;
}

/// What `step` leaves behind → what it drops in its place.
std::unordered_map<std::uint32_t, std::uint32_t> successors(const StepProgram& program) {
  std::unordered_set<std::uint32_t> dropped;
  for (const Instruction& instruction : program.step) {
    if (instruction.kind == InstructionKind::free) dropped.insert(instruction.id);
  }
  std::vector<const Instruction*> before = left_behind(program.first_step);
  before.erase(std::remove_if(before.begin(), before.end(), [&](const Instruction* birth) { return dropped.count(birth->id) == 0; }),
               before.end());
  const std::vector<const Instruction*> after = left_behind(program.step);
  bool match = before.size() == after.size();
  std::unordered_map<std::uint32_t, std::uint32_t> names;
  for (std::size_t i = 0; match && i < after.size(); ++i) {
    match = before[i]->bytes == after[i]->bytes && before[i]->stream == after[i]->stream;
    names.emplace(after[i]->id, before[i]->id);
  }
  if (!match) throw Error(ErrorCode::internal, "a step does not leave behind what it found");
  return names;
}

}  // namespace

void carry_across_steps(StepProgram& program) {
  const std::unordered_map<std::uint32_t, std::uint32_t> names = successors(program);
  std::unordered_map<std::uint32_t, Instruction> deaths;  // of what is dropped
  for (const auto& [after, before] : names) deaths.emplace(before, Instruction{});
  for (const Instruction& instruction : program.step) {
    const auto death = deaths.find(instruction.id);
    if (instruction.kind == InstructionKind::free && death != deaths.end()) death->second = instruction;
  }
  std::unordered_set<std::uint32_t> dead;
  std::vector<Instruction> step;
  step.reserve(program.step.size());
  for (Instruction instruction : program.step) {
    const bool frees = instruction.kind == InstructionKind::free, allocates = instruction.kind == InstructionKind::alloc;
    const auto name = allocates || instruction.kind == InstructionKind::record_stream ? names.find(instruction.id) : names.end();
    if (frees && deaths.count(instruction.id) > 0 && !dead.insert(instruction.id).second) continue;
    if (name != names.end()) {
      instruction.id = name->second;
      if (allocates && dead.insert(instruction.id).second) step.push_back(deaths.at(instruction.id));
    }
    step.push_back(instruction);
  }
  program.step = std::move(step);
}

}  // namespace plimsoll::program
