#include "program/carried.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "plimsoll/error.hpp"
#include "program/tensor_names.hpp"

namespace plimsoll::program {

namespace {

bool allocates(const Instruction& instruction) { return instruction.kind == InstructionKind::alloc; }
bool frees(const Instruction& instruction) { return instruction.kind == InstructionKind::free; }

std::vector<bool> freed_in(const std::vector<Instruction>& part, std::size_t names) {
  std::vector<bool> freed(names);
  for (const Instruction& instruction : part)
    if (frees(instruction)) freed[instruction.id] = true;
  return freed;
}

/// The allocations of a part that no instruction of it frees, in order.
std::vector<const Instruction*> left_behind(const std::vector<Instruction>& part, const std::vector<bool>& freed) {
  std::vector<const Instruction*> left;
  for (const Instruction& instruction : part)
    if (allocates(instruction) && !freed[instruction.id]) left.push_back(&instruction);
  return left;
}

/// What `step` leaves behind, and what it drops in its place.
std::vector<std::pair<std::uint32_t, std::uint32_t>> successors(const StepProgram& program, std::size_t names) {
  const std::vector<bool> dropped = freed_in(program.step, names);
  std::vector<const Instruction*> before;
  for (const std::vector<Instruction>* part : {&program.first_step, &program.second_step})
    for (const Instruction* birth : left_behind(*part, freed_in(*part, names))) before.push_back(birth);
  before.erase(std::remove_if(before.begin(), before.end(), [&](const Instruction* birth) { return !dropped[birth->id]; }), before.end());
  const std::vector<const Instruction*> after = left_behind(program.step, dropped);
  bool match = before.size() == after.size();
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (std::size_t i = 0; match && i < after.size(); ++i) {
    match = before[i]->bytes == after[i]->bytes && before[i]->stream == after[i]->stream;
    pairs.emplace_back(after[i]->id, before[i]->id);
  }
  if (!match) throw Error(ErrorCode::internal, "a step does not leave behind what it found");
  return pairs;
}

}  // namespace

void carry_across_steps(StepProgram& program) {
  constexpr std::uint32_t kNone = UINT32_MAX;
  const std::size_t names =
      std::max({names_in(program.init), names_in(program.first_step), names_in(program.second_step), names_in(program.step)});
  const auto pairs = successors(program, names);
  if (pairs.empty()) return;
  std::vector<std::uint32_t> renamed(names, kNone), death(names, kNone);  // death: the instruction of `step` that drops it
  for (const auto& [after, before] : pairs) {
    renamed[after] = before;
    death[before] = 0;
  }
  for (std::uint32_t i = 0; i < program.step.size(); ++i) {
    const Instruction& instruction = program.step[i];
    if (frees(instruction) && death[instruction.id] != kNone) death[instruction.id] = i;
  }
  std::vector<bool> dead(names);
  std::vector<Instruction> step;
  step.reserve(program.step.size());
  Repeated& repeated = program.repeated;
  const std::size_t begin = repeated.begin, end = repeated.end;
  for (std::size_t i = 0; i < program.step.size(); ++i) {
    if (i == begin) repeated.begin = step.size();
    if (i == end) repeated.end = step.size();
    Instruction instruction = program.step[i];
    if (frees(instruction) && death[instruction.id] != kNone) {
      if (dead[instruction.id]) continue;
      dead[instruction.id] = true;
    }
    const bool named = allocates(instruction) || instruction.kind == InstructionKind::record_stream;
    if (named && renamed[instruction.id] != kNone) {
      instruction.id = renamed[instruction.id];
      if (allocates(instruction) && !dead[instruction.id]) {
        dead[instruction.id] = true;
        step.push_back(program.step[death[instruction.id]]);
      }
    }
    step.push_back(instruction);
  }
  program.step = std::move(step);
}

}  // namespace plimsoll::program
