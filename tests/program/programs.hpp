/// Programs as tests compare them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plimsoll/program.hpp"

namespace plimsoll::program {

/// An instruction without the tensor's own name, for comparing programs: the first tensor of a program is 0, the next 1, …
inline std::vector<std::string> told(const StepProgram& program) {
  std::map<TensorId, std::size_t> names;
  std::size_t born = 0;
  std::vector<std::string> lines;
  for (const auto* part : {&program.init, &program.first_step, &program.step}) {
    for (const Instruction& instruction : *part) {
      const bool tensor = instruction.kind == InstructionKind::alloc || instruction.kind == InstructionKind::free;
      if (!tensor) continue;
      if (instruction.kind == InstructionKind::alloc) names[instruction.id] = born++;
      lines.push_back(std::to_string(static_cast<int>(instruction.kind)) + " " + std::to_string(names.at(instruction.id)) + " " +
                      std::to_string(instruction.bytes) + " " + program.labels[instruction.label]);
    }
  }
  return lines;
}

/// Where two programs differ first, names of tensors and labels included; nothing where they are the same.
inline std::string difference(const StepProgram& some, const StepProgram& other) {
  const auto words = [](const Instruction& each) {
    return std::tuple(each.kind, each.stream, each.category, each.id, each.bytes, each.label, each.again);
  };
  using Part = std::vector<Instruction> StepProgram::*;
  for (const auto& [name, part] : {std::pair<const char*, Part>{"init", &StepProgram::init}, {"first step", &StepProgram::first_step},
                                   {"second step", &StepProgram::second_step}, {"step", &StepProgram::step}}) {
    const std::vector<Instruction>&a = some.*part, &b = other.*part;
    const auto same = [&](const Instruction& x, const Instruction& y) { return words(x) == words(y); };
    const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end(), same).first - a.begin();
    const auto told = [at](const StepProgram& of, const std::vector<Instruction>& all) {
      if (at >= static_cast<std::ptrdiff_t>(all.size())) return std::string("nothing");
      const Instruction& each = all[static_cast<std::size_t>(at)];
      return std::to_string(static_cast<int>(each.kind)) + " " + std::to_string(each.id) + " " + std::to_string(each.bytes) + " " +
             std::string(name_of(each.category)) + " on " + std::to_string(each.stream) + (each.again ? " again " : " ") + of.labels[each.label];
    };
    if (a.size() != b.size() || at != static_cast<std::ptrdiff_t>(a.size()))
      return std::string(name) + ", instruction " + std::to_string(at) + ": " + told(some, a) + " where the other has " + told(other, b);
  }
  const Repeated &a = some.repeated, &b = other.repeated;
  if (std::tie(a.begin, a.end, a.times) != std::tie(b.begin, b.end, b.times)) return "what is repeated";
  return some.labels == other.labels && some.kernels == other.kernels && some.collectives == other.collectives && some.copies == other.copies
             ? ""
             : "labels or work";
}

/// What a step gives its streams, in order: work, events and marks of the host; and what of it is repeated.
inline std::vector<std::string> worked(const StepProgram& program) {
  std::vector<std::string> lines;
  if (const Repeated& repeated = program.repeated; repeated.times > 1)
    lines.push_back(std::to_string(repeated.begin) + " to " + std::to_string(repeated.end) + ", " + std::to_string(repeated.times) +
                    " times");
  for (const Instruction& instruction : program.step) {
    const bool tensor = instruction.kind == InstructionKind::alloc || instruction.kind == InstructionKind::free ||
                        instruction.kind == InstructionKind::record_stream;
    if (tensor) continue;
    std::string line = std::to_string(static_cast<int>(instruction.kind)) + " " + std::to_string(instruction.stream) + " ";
    if (instruction.kind == InstructionKind::kernel) {
      line += describe(program.kernels[instruction.id]);
    } else if (instruction.kind == InstructionKind::collective) {
      const Collective& collective = program.collectives[instruction.id];
      line += std::string(name_of(collective.kind)) + " " + std::to_string(collective.bytes) + " to " + std::to_string(collective.peer);
    } else {
      line += std::to_string(instruction.id) + " " + std::to_string(instruction.bytes);
    }
    lines.push_back(line + " " + program.labels[instruction.label]);
  }
  return lines;
}

/// A phase's instructions, in all its passages.
inline std::vector<Instruction> phase_of(const StepProgram& program, Phase wanted) {
  std::vector<Instruction> found;
  bool inside = false;
  for (const Instruction& each : program.step) {
    if (each.kind == InstructionKind::phase) inside = each.id == static_cast<std::uint32_t>(wanted);
    if (inside) found.push_back(each);
  }
  return found;
}

/// What a step asks for, micro-batches that are written once counted as often as they run.
struct Asked {
  std::int64_t launches = 0, collectives = 0;
  double flops = 0, collective_bytes = 0;
};

inline Asked asked(const StepProgram& program) {
  Asked asked;
  for (std::size_t i = 0; i < program.step.size(); ++i) {
    const std::int64_t runs = program.repeated.runs_of(i);
    if (program.step[i].kind == InstructionKind::kernel) {
      asked.launches += runs;
      asked.flops += static_cast<double>(runs) * program.kernels[program.step[i].id].flops();
    } else if (program.step[i].kind == InstructionKind::collective) {
      asked.collectives += runs;
      asked.collective_bytes += static_cast<double>(runs * program.collectives[program.step[i].id].bytes);
    }
  }
  return asked;
}

}  // namespace plimsoll::program
