// What the host does beside launches, which a rehearsal counts in one step and by phase: put among the launches of the step.
#include <algorithm>
#include <array>
#include <optional>

#include "program/optimizers/host_optimizer.hpp"
#include "rehearse/program_builder.hpp"
#include "strategy/names.hpp"

namespace plimsoll::rehearse {

namespace {

bool is_launch(const Instruction& instruction) {
  return instruction.kind == InstructionKind::kernel || instruction.kind == InstructionKind::copy ||
         instruction.kind == InstructionKind::collective;
}

/// Adds those from `begin` on, the first of which are in `phase`; gives the phase after them.
std::size_t add_launches(const std::vector<Instruction>& step, std::size_t begin, std::size_t phase,
                         std::array<std::int64_t, kPhases>& launches) {
  for (std::size_t i = begin; i < step.size(); ++i) {
    if (step[i].kind == InstructionKind::phase) phase = step[i].id;
    if (is_launch(step[i])) ++launches[phase];
  }
  return phase;
}

template <class Enum>
std::optional<Enum> named(const strategy::Names<Enum>& names, const std::string& text) {
  const auto found = std::find_if(names.begin(), names.end(), [&](const auto& each) { return text == each.name; });
  return found == names.end() ? std::nullopt : std::optional(found->value);
}

}  // namespace

/// "adamw fused": an optimizer whose parameters, so many bytes, lie on the host: it was not run, and moves what `estimate` says.
void ProgramBuilder::host_step(const std::string& what, std::int64_t bytes) {
  const std::size_t space = what.find(' ');
  const auto kind = named(strategy::optimizer_names(), what.substr(0, space));
  const auto implementation = space == std::string::npos ? std::nullopt : named(strategy::optimizer_impl_names(), what.substr(space + 1));
  if (!kind || !implementation || bytes < 0) {
    std::vector<std::string>& left_out = recording_.left_out;
    if (left_out.empty()) left_out.emplace_back("the optimizer on the host");
    return;
  }
  host_moves(bytes / 4 * program::host_step_traffic(*kind, *implementation));
}

void ProgramBuilder::host_moves(std::int64_t bytes) {
  if (bytes <= 0) return;
  Instruction instruction{InstructionKind::host};
  instruction.id = static_cast<std::uint32_t>(HostWork::memory_traffic);
  instruction.bytes = bytes;
  issue(instruction, false);
}

void ProgramBuilder::host_count_begins() { counted_from_ = {parts_.size() - 1, part().instructions.size()}; }

/// Where the count began is known: between there and here are the launches that the work is of.
void ProgramBuilder::host_count_ends() {
  if (!counted_from_) return;
  auto [at, begin] = *counted_from_;
  std::size_t phase = static_cast<std::size_t>(Phase::forward);
  for (; at < parts_.size(); ++at, begin = 0) phase = add_launches(parts_[at].instructions, begin, phase, counted_launches_);
  counted_from_.reset();
}

/// "forward operation": the phase and the work.
void ProgramBuilder::host_work_told(const std::string& what, std::int64_t pieces) {
  host_count_ends();
  const std::size_t space = what.find(' ');
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    for (std::size_t work = 0; work < kHostWorks; ++work)
      if (what.compare(0, space, name_of(static_cast<Phase>(phase))) == 0 && what.substr(space + 1) == name_of(static_cast<HostWork>(work)))
        host_work_[{phase, work}] = pieces;
}

/// Before each launch its even share of its phase's work, of those that were counted: a step with validation or generation in it has more
/// of them than the one that is played. Each collective is itself a piece of work.
void ProgramBuilder::spread_host_work(std::vector<Instruction>& step) const {
  if (host_work_.empty()) return;
  std::array<std::int64_t, kPhases> launches{};
  add_launches(step, 0, static_cast<std::size_t>(Phase::forward), launches);
  std::array<std::int64_t, kPhases> done{};
  std::size_t phase = static_cast<std::size_t>(Phase::forward);
  std::vector<Instruction> all;
  all.reserve(2 * step.size());
  const auto host = [&](std::size_t work, std::int64_t pieces) {
    if (pieces > 0) all.push_back({.kind = InstructionKind::host, .id = static_cast<std::uint32_t>(work), .bytes = pieces});
  };
  for (const Instruction& each : step) {
    if (each.kind == InstructionKind::phase) phase = each.id;
    if (is_launch(each)) {
      const std::int64_t before = done[phase]++, of = counted_launches_[phase] > 0 ? counted_launches_[phase] : launches[phase];
      for (const auto& [key, pieces] : host_work_)
        if (key.first == phase) host(key.second, (before + 1) * pieces / of - before * pieces / of);
      if (each.kind == InstructionKind::collective) host(static_cast<std::size_t>(HostWork::collective), 1);
    }
    all.push_back(each);
  }
  step = std::move(all);
}

}  // namespace plimsoll::rehearse
