#include "validate/digests/program_digest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "plimsoll/kernel.hpp"

namespace plimsoll::digests {
namespace {

using List = std::vector<Instruction> StepProgram::*;
constexpr std::array<List, kParts> kLists = {&StepProgram::init, &StepProgram::first_step, &StepProgram::second_step, &StepProgram::step};

std::string text_of(const Collective& c) {
  const std::string peer = c.peer == Collective::kNoPeer ? std::string() : fmt::format(" with {}", c.peer);
  return fmt::format("{} over {}, {} B {}{}{}", name_of(c.kind), name_of(c.group), c.bytes, name_of(c.type), peer,
                     c.expected ? ", expected" : "");
}

std::string text_of(const Copy& copy) {
  constexpr std::array<const char*, 4> kNames = {"copy host to device", "copy device to host", "copy", "set"};
  return fmt::format("{} {} B", kNames[static_cast<std::size_t>(copy.direction)], copy.bytes);
}

/// `describe` leaves out what a reader seldom asks for; the hash has it.
std::string text_of(const Kernel& kernel) { return fmt::format("{} #{:04x}", describe(kernel), hash_of(kernel) & 0xffffU); }

std::uint64_t hash_of(const std::string& text) { return (Hash() << text).value(); }

std::string module_of(const std::string& label) { return label.substr(0, label.find(": ")); }

template <class Value>
Value& grown(std::vector<Value>& list, std::size_t at) {
  if (list.size() <= at) list.resize(at + 1);
  return list[at];
}

/// What numbers of a program stand for, as the program goes on: which tensor an id is, behind what an event was recorded.
template <class Value>
class Names {
 public:
  void tensor(std::uint32_t id, Value value) { grown(tensors_, id) = std::move(value); }
  void event(std::uint32_t id, Value value) { grown(events_, id) = std::move(value); }
  Value& tensor(std::uint32_t id) { return grown(tensors_, id); }
  Value& event(std::uint32_t id) { return grown(events_, id); }

 private:
  std::vector<Value> tensors_, events_;
};

/// Texts of a program's instructions. A step has hundreds of thousands, so works, labels and streams are said once.
class Text {
 public:
  explicit Text(const StepProgram& program) : program_(program) {
    for (const Kernel& kernel : program.kernels) kernels_.push_back(text_of(kernel));
    for (const Collective& collective : program.collectives) collectives_.push_back(text_of(collective));
    for (const Copy& copy : program.copies) copies_.push_back(text_of(copy));
  }

  std::string line(const Instruction& i) {
    const std::string& stream = program_.streams[i.stream];
    return fmt::format("{}\t{}{}{}", program_.labels[i.label], what(i), i.stream == kComputeStream ? "" : " on " + stream,
                       i.again ? ", again" : "");
  }

 private:
  std::string what(const Instruction& i) {
    switch (i.kind) {
      case InstructionKind::alloc:
        names_.tensor(i.id, fmt::format("{} B {} of {}", i.bytes, name_of(i.category), folded(program_.labels[i.label])));
        return fmt::format("alloc {} B {}", i.bytes, name_of(i.category));
      case InstructionKind::free:
        return "free " + names_.tensor(i.id);
      case InstructionKind::kernel:
        return kernels_[i.id];
      case InstructionKind::collective:
        return collectives_[i.id];
      case InstructionKind::copy:
        return copies_[i.id];
      case InstructionKind::record_event:
        names_.event(i.id, fmt::format("{} of {}", program_.streams[i.stream], folded(program_.labels[i.label])));
        return "record an event";
      case InstructionKind::wait_event:
        return "wait for " + names_.event(i.id);
      case InstructionKind::record_stream:
        return "record the stream for " + names_.tensor(i.id);
      case InstructionKind::empty_cache:
        return "empty the cache";
      case InstructionKind::phase:
        return fmt::format("phase {}", name_of(static_cast<Phase>(i.id)));
      case InstructionKind::stall:
        return "stall";
      case InstructionKind::synchronize:
        return i.id == 1 ? "synchronize the stream" : "synchronize";
      case InstructionKind::host:
        return fmt::format("host: {} x {}", i.bytes, name_of(static_cast<HostWork>(i.id)));
    }
    return {};
  }

  const StepProgram& program_;
  std::vector<std::string> kernels_, collectives_, copies_;
  Names<std::string> names_;
};

}  // namespace

std::string folded(const std::string& label) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  std::string text;
  for (std::size_t at = 0; at < label.size();) {
    const bool begins = at == 0 || std::isalnum(static_cast<unsigned char>(label[at - 1])) == 0;
    std::size_t end = at;
    while (begins && end < label.size() && is_digit(label[end])) ++end;
    const bool number = end > at && (end == label.size() || label[end] == '.' || label[end] == ':');
    if (number) {
      text += '#';
      at = end;
    } else {
      text += label[at++];
    }
  }
  return text;
}

/// Hashes of the instructions of one program, of which `Text` says the same in words.
class ProgramDigest::Reading {
 public:
  explicit Reading(const StepProgram& program) {
    for (const std::string& label : program.labels) {
      const std::string text = folded(label);
      labels_.push_back(hash_of(text));
      modules_.push_back(module_of(text));
    }
    for (const std::string& stream : program.streams) streams_.push_back(hash_of(stream));
    for (const Kernel& kernel : program.kernels) kernels_.push_back(plimsoll::hash_of(kernel));
    for (const Collective& collective : program.collectives) collectives_.push_back(hash_of(text_of(collective)));
    for (const Copy& copy : program.copies) copies_.push_back(hash_of(text_of(copy)));
  }

  void add(const std::vector<Instruction>& instructions, Part& part) {
    std::vector<std::size_t> places(labels_.size(), SIZE_MAX);  // of labels among the part's modules
    for (const Instruction& instruction : instructions) {
      std::size_t& place = places[instruction.label];
      if (place == SIZE_MAX) place = place_of(modules_[instruction.label], part);
      const std::uint64_t hash = of(instruction);
      part.any = true;
      part.whole << hash;
      part.labels[place] << hash;
    }
  }

 private:
  static std::size_t place_of(const std::string& module, Part& part) {
    const auto [found, added] = part.index.try_emplace(module, part.labels.size());
    if (added) {
      part.labels.emplace_back();
      part.names.push_back(module);
    }
    return found->second;
  }

  std::uint64_t of(const Instruction& i) {
    Hash hash;
    hash << static_cast<std::uint64_t>(i.kind) << streams_[i.stream] << labels_[i.label] << what(i) << (i.again ? 1U : 0U);
    return hash.value();
  }

  std::uint64_t what(const Instruction& i) {
    switch (i.kind) {
      case InstructionKind::alloc: {
        const std::uint64_t tensor = (Hash() << static_cast<std::uint64_t>(i.bytes) << static_cast<std::uint64_t>(i.category)).value();
        names_.tensor(i.id, (Hash() << tensor << labels_[i.label]).value());
        return tensor;
      }
      case InstructionKind::free:
      case InstructionKind::record_stream:
        return names_.tensor(i.id);
      case InstructionKind::kernel:
        return kernels_[i.id];
      case InstructionKind::collective:
        return collectives_[i.id];
      case InstructionKind::copy:
        return copies_[i.id];
      case InstructionKind::record_event:
        names_.event(i.id, (Hash() << streams_[i.stream] << labels_[i.label]).value());
        return 0;
      case InstructionKind::wait_event:
        return names_.event(i.id);
      case InstructionKind::host:
        return (Hash() << i.id << static_cast<std::uint64_t>(i.bytes)).value();
      case InstructionKind::phase:
      case InstructionKind::synchronize:
        return i.id;
      case InstructionKind::empty_cache:
      case InstructionKind::stall:
        return 0;
    }
    return 0;
  }

  std::vector<std::uint64_t> labels_, streams_, kernels_, collectives_, copies_;
  std::vector<std::string> modules_;
  Names<std::uint64_t> names_;
};

void ProgramDigest::read(const StepProgram& program) {
  Reading reading(program);
  for (std::size_t part = 0; part < kParts; ++part) reading.add(program.*kLists[part], parts_[part]);
  for (const Instruction& instruction : program.step)
    left_ += (instruction.kind == InstructionKind::alloc ? 1 : 0) - (instruction.kind == InstructionKind::free ? 1 : 0);
  parts_.front().whole << static_cast<std::uint64_t>(program.host_pinned.count) << static_cast<std::uint64_t>(program.host_pageable.count);
  parts_.back().whole << (program.repeated.end - program.repeated.begin) << static_cast<std::uint64_t>(program.repeated.times);
}

Parts ProgramDigest::parts() const {
  constexpr unsigned kHigh = 32, kHighest = 48;
  Parts digests;
  for (std::size_t at = 0; at < kParts; ++at) {
    const Part& part = parts_[at];
    if (!part.any) continue;
    digests[at].whole = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(part.whole.value() >> kHigh));
    for (const Hash& label : part.labels) digests[at].labels.push_back(static_cast<std::uint16_t>(label.value() >> kHighest));
    digests[at].names = part.names;
  }
  return digests;
}

std::string dump(const StepProgram& program) {
  Text text(program);
  std::string all = fmt::format("host memory: {} B pinned, {} B pageable\n", program.host_pinned.count, program.host_pageable.count);
  for (std::size_t part = 0; part < kParts; ++part) {
    const std::vector<Instruction>& instructions = program.*kLists[part];
    if (instructions.empty()) continue;
    all += fmt::format("== {}\n", kPartNames[part]);
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      const Repeated& repeated = program.repeated;
      const bool loops = kLists[part] == &StepProgram::step && repeated.times > 1;
      if (loops && i == repeated.begin) all += fmt::format("-- {} times\n", repeated.times);
      if (loops && i == repeated.end) all += "-- once\n";
      all += text.line(instructions[i]) + '\n';
    }
  }
  return all;
}

}  // namespace plimsoll::digests
