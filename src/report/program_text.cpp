// A program as lines, one an instruction of its step: what is launched, in order, for readers and for comparison with a trace.
#include <fmt/format.h>

#include <iterator>

#include "plimsoll/report.hpp"
#include "report/instruction_text.hpp"

namespace plimsoll {
namespace {

std::string_view name_of(Copy::Direction direction) {
  constexpr std::string_view kNames[] = {"copy to the device", "copy to the host", "copy on the device", "memory set"};
  return kNames[static_cast<std::size_t>(direction)];
}

std::string described(const Collective& collective) {
  std::string text = fmt::format("{} {} over {}", name_of(collective.type), name_of(collective.kind), name_of(collective.group));
  if (collective.peer != Collective::kNoPeer) text += fmt::format(", peer {}", collective.peer);
  return text;
}

}  // namespace

std::string described(const StepProgram& program, const Instruction& at) {
  switch (at.kind) {
    case InstructionKind::kernel: {
      const Kernel& kernel = program.kernels[at.id];
      return fmt::format("{} | {} -> {} B", describe(kernel), kernel.bytes_read(), kernel.bytes_written());
    }
    case InstructionKind::collective:
      return fmt::format("{} | {} B", described(program.collectives[at.id]), program.collectives[at.id].bytes);
    case InstructionKind::copy:
      return fmt::format("{} | {} B", name_of(program.copies[at.id].direction), program.copies[at.id].bytes);
    case InstructionKind::record_event:
      return fmt::format("records event {}", at.id);
    case InstructionKind::wait_event:
      return fmt::format("waits for event {}", at.id);
    case InstructionKind::phase:
      return fmt::format("phase {}", name_of(static_cast<Phase>(at.id)));
    case InstructionKind::synchronize:
      return "the host waits for the device";
    case InstructionKind::host:
      return fmt::format("host: {} x {}", name_of(static_cast<HostWork>(at.id)), at.bytes);
    default:
      return {};
  }
}

std::string to_program_text(const StepProgram& program) {
  std::string text;
  for (std::size_t i = 0; i < program.step.size(); ++i) {
    const Instruction& at = program.step[i];
    const std::string what = described(program, at);
    if (what.empty()) continue;
    fmt::format_to(std::back_inserter(text), "{} | {} | {}", i, program.streams[at.stream], what);
    if (at.label != 0) fmt::format_to(std::back_inserter(text), " | {}", program.labels[at.label]);
    if (const std::int64_t runs = program.repeated.runs_of(i); runs > 1) fmt::format_to(std::back_inserter(text), " | {} times", runs);
    text += '\n';
  }
  return text;
}

}  // namespace plimsoll
