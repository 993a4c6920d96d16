// What the host does beside launches, which a rehearsal counts in one step and by phase: put among the launches of the step.
#include <algorithm>
#include <array>

#include "rehearse/program_builder.hpp"

namespace plimsoll::rehearse {

namespace {

bool is_launch(const Instruction& instruction) {
  return instruction.kind == InstructionKind::kernel || instruction.kind == InstructionKind::copy || instruction.kind == InstructionKind::collective;
}

std::array<std::int64_t, kPhases> launches_by_phase(const std::vector<Instruction>& step) {
  std::array<std::int64_t, kPhases> launches{};
  std::size_t phase = static_cast<std::size_t>(Phase::forward);
  for (const Instruction& each : step) {
    if (each.kind == InstructionKind::phase) phase = each.id;
    if (is_launch(each)) ++launches[phase];
  }
  return launches;
}

}  // namespace

/// "forward operation": the phase and the work.
void ProgramBuilder::host_work_told(const std::string& what, std::int64_t pieces) {
  const std::size_t space = what.find(' ');
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    for (std::size_t work = 0; work < kHostWorks; ++work)
      if (what.compare(0, space, name_of(static_cast<Phase>(phase))) == 0 && what.substr(space + 1) == name_of(static_cast<HostWork>(work)))
        host_work_[{phase, work}] = pieces;
}

/// Before each launch its even share of its phase's work; each collective is itself a piece of work.
void ProgramBuilder::spread_host_work(std::vector<Instruction>& step) const {
  if (host_work_.empty()) return;
  const std::array<std::int64_t, kPhases> launches = launches_by_phase(step);
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
      const std::int64_t before = done[phase]++, of = launches[phase];
      for (const auto& [key, pieces] : host_work_)
        if (key.first == phase) host(key.second, (before + 1) * pieces / of - before * pieces / of);
      if (each.kind == InstructionKind::collective) host(static_cast<std::size_t>(HostWork::collective), 1);
    }
    all.push_back(each);
  }
  step = std::move(all);
}

}  // namespace plimsoll::rehearse
