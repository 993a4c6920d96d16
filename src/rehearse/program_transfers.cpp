// Communicators as all their members know them, and what a pipeline's stage asks of others for its next step.
#include <algorithm>

#include "rehearse/program_builder.hpp"

namespace plimsoll::rehearse {
namespace {

bool is_work(const Instruction& instruction) {
  return instruction.kind != InstructionKind::alloc && instruction.kind != InstructionKind::free && instruction.kind != InstructionKind::phase;
}

std::uint64_t mixed(std::uint64_t key, std::uint64_t with) {  // FNV-1a over words
  return (key ^ with) * 0x100000001b3u;
}

}  // namespace

/// What all members of the communicator have alike: who they are, and which one of them it is, made in the same order by all; else the id that they
/// were told, or which part of which other it is.
std::uint64_t ProgramBuilder::key_of(const record::Communicator& event, const std::vector<std::int64_t>& ranks) {
  if (!ranks.empty()) {
    std::uint64_t key = ranks.size();
    for (const std::int64_t rank : ranks) key = mixed(key, static_cast<std::uint64_t>(rank));
    return mixed(key, ++made_[key]);
  }
  if (event.action == record::CommunicatorAction::init) return event.unique_id;
  Communicator& parent = communicators_[event.parent];
  return mixed(mixed(parent.meeting.communicator, ++parent.parts), static_cast<std::uint64_t>(event.color) + 1);
}

/// A step is seen to end where the next one's first pass begins, and a stage may have asked for what it receives for that before: all work behind
/// the optimizer's kernels, where transfers are among it. It is taken out of the step.
std::vector<Instruction> ProgramBuilder::take_transfers() {
  std::vector<Instruction>& all = part().instructions;
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(part().optimized);
  const bool transfers = part().optimized > 0 && std::any_of(begin, all.end(), [&](const Instruction& each) {
    if (each.kind != InstructionKind::collective) return false;
    const CollectiveKind kind = recording_.program.collectives[each.id].kind;
    return kind == CollectiveKind::send || kind == CollectiveKind::receive;
  });
  if (!transfers) return {};
  const auto moved = std::stable_partition(begin, all.end(), [](const Instruction& each) { return !is_work(each); });
  std::vector<Instruction> taken(moved, all.end());
  all.erase(moved, all.end());
  return taken;
}

/// As the first work of the step that begins.
void ProgramBuilder::put_first(const std::vector<Instruction>& taken) {
  part().instructions = taken;
  for (const Instruction& instruction : taken)
    if (instruction.kind == InstructionKind::record_event)
      for (auto& [recorded, event] : events_)
        if (event.id == instruction.id) event.part = parts_.size();
}

}  // namespace plimsoll::rehearse
