#include "program/carried.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "plimsoll/error.hpp"
#include "program/tensor_names.hpp"

namespace plimsoll::program {

namespace {

bool allocates(const Instruction& instruction) { return instruction.kind == InstructionKind::alloc; }
bool frees(const Instruction& instruction) { return instruction.kind == InstructionKind::free; }

constexpr std::uint32_t kNone = UINT32_MAX;

/// By name, the instruction of a part that drops it; kNone: it lives on.
std::vector<std::uint32_t> deaths_in(const std::vector<Instruction>& part, std::size_t names) {
  std::vector<std::uint32_t> deaths(names, kNone);
  for (std::uint32_t i = 0; i < part.size(); ++i)
    if (frees(part[i])) deaths[part[i].id] = i;
  return deaths;
}

/// The allocations of a part that no instruction of it frees, in order.
std::vector<const Instruction*> left_behind(const std::vector<Instruction>& part, const std::vector<std::uint32_t>& deaths) {
  std::vector<const Instruction*> left;
  for (const Instruction& instruction : part)
    if (allocates(instruction) && deaths[instruction.id] == kNone) left.push_back(&instruction);
  return left;
}

/// What `step` leaves behind, and what it drops in its place.
std::vector<std::pair<std::uint32_t, std::uint32_t>> successors(const StepProgram& program, const std::vector<std::uint32_t>& deaths) {
  std::vector<const Instruction*> before;
  for (const std::vector<Instruction>* part : {&program.first_step, &program.second_step})
    for (const Instruction* birth : left_behind(*part, deaths_in(*part, deaths.size())))
      if (deaths[birth->id] != kNone) before.push_back(birth);
  const std::vector<const Instruction*> after = left_behind(program.step, deaths);
  bool match = before.size() == after.size();
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (std::size_t i = 0; match && i < after.size(); ++i) {
    match = before[i]->bytes == after[i]->bytes && before[i]->stream == after[i]->stream;
    pairs.emplace_back(after[i]->id, before[i]->id);
  }
  if (!match) throw Error(ErrorCode::internal, "a step does not leave behind what it found");
  return pairs;
}

/// What happens at a place of a part: `before` comes before it, or else it is left out.
struct Edit {
  std::size_t at;
  std::optional<Instruction> before;
};

/// Edits a part in its place, from the end: all that is left out lies behind what comes in its stead.
void edit(std::vector<Instruction>& part, const std::vector<Edit>& edits, Repeated& repeated) {
  std::size_t end = part.size(), to = part.size();
  const auto move_from = [&](std::size_t begin) {
    const auto at = [&](std::size_t place) { return part.begin() + static_cast<std::ptrdiff_t>(place); };
    if (to != end) std::move_backward(at(begin), at(end), at(to));
    to -= end - begin;
  };
  for (auto edit = edits.rbegin(); edit != edits.rend(); ++edit) {
    move_from(edit->before ? edit->at : edit->at + 1);
    if (edit->before) part[--to] = *edit->before;
    end = edit->at;
  }
  const auto stands_at = [&](std::size_t place) {
    auto now = static_cast<std::ptrdiff_t>(place);
    for (const Edit& edit : edits)
      if (edit.at < place) now += edit.before ? 1 : -1;
    return static_cast<std::size_t>(now);
  };
  repeated.begin = stands_at(repeated.begin);
  repeated.end = stands_at(repeated.end);
}

}  // namespace

void carry_across_steps(StepProgram& program) {
  const std::size_t names =
      std::max({names_in(program.init), names_in(program.first_step), names_in(program.second_step), names_in(program.step)});
  const std::vector<std::uint32_t> deaths = deaths_in(program.step, names);
  const auto pairs = successors(program, deaths);
  if (pairs.empty()) return;
  std::vector<std::uint32_t> renamed(names, kNone);
  enum class Life : char { of_the_step, carried, dropped };
  std::vector<Life> lives(names, Life::of_the_step);  // by name, so far in the step
  for (const auto& [after, before] : pairs) {
    renamed[after] = before;
    lives[before] = Life::carried;
  }
  std::vector<Edit> edits;
  for (std::size_t i = 0; i < program.step.size(); ++i) {
    Instruction& instruction = program.step[i];
    if (!names_a_tensor(instruction)) continue;
    if (frees(instruction)) {
      Life& life = lives[instruction.id];
      if (life == Life::of_the_step) continue;
      if (life == Life::dropped) edits.push_back({i, {}});
      life = Life::dropped;
    } else if (renamed[instruction.id] != kNone) {
      instruction.id = renamed[instruction.id];
      if (!allocates(instruction) || lives[instruction.id] == Life::dropped) continue;
      lives[instruction.id] = Life::dropped;
      edits.push_back({i, program.step[deaths[instruction.id]]});
    }
  }
  edit(program.step, edits, program.repeated);
}

}  // namespace plimsoll::program
