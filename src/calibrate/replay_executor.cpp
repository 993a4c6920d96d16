#include "calibrate/replay_executor.hpp"

#include <algorithm>

#include "calibrate/program_kernels.hpp"

namespace plimsoll::calibrate {

Executor::Executor(const PlayableRank& rank, Backend& backend, Peers* peers)
    : program_(rank.program),
      backend_(backend),
      peers_(peers),
      plan_(plan_operands(rank, operands_of(rank.program, backend), backend.shape().target)),
      memory_(backend, rank.options) {
  constexpr std::int64_t kLeastSpare = 1 << 20;
  std::int64_t most = kLeastSpare, most_copied = 0;
  for (const plimsoll::Kernel& kernel : program_.kernels) {
    const Operands operands = operands_of(kernel, backend);
    most = std::max({most, operands.read, operands.written});
  }
  if (peers)
    for (const Collective& collective : program_.collectives) most = std::max(most, peers->collectives.whole_floats(collective));
  for (const Copy& copy : program_.copies) most_copied = std::max(most_copied, copy.bytes);
  spare_bytes_ = std::max(most, most_copied);
  for (auto& spare : spare_) spare = random_memory();
  if (most_copied > 0) host_ = backend.allocate_host(static_cast<std::size_t>(most_copied));
}

Executor::~Executor() {
  give_back([&] {
    backend_.synchronize();
    for (void* spare : spare_) backend_.release(spare);
    if (host_) backend_.release_host(host_);
  });
}

void* Executor::random_memory() {
  void* memory = backend_.allocate(static_cast<std::size_t>(spare_bytes_));
  randomise(backend_, memory, spare_bytes_, operand_numbers(backend_.shape(), 11));
  return memory;
}

Done Executor::play(const PlannedPart& part, bool timed) {
  Done done;
  marks_.clear();
  backend_.forget_marks();
  const std::size_t begin = backend_.mark(kComputeStream);
  for (std::size_t i = 0; i < part.operands.size(); ++i) execute((*part.instructions)[i], part.operands[i], timed, done);
  done.host_seconds = backend_.between(begin, backend_.mark(kComputeStream));
  backend_.synchronize();
  for (const Mark& mark : marks_) {
    const double seconds = backend_.between(mark.first, mark.last);
    done.host_seconds -= seconds;
    (mark.kind < kKinds     ? done.seconds[static_cast<std::size_t>(mark.kind)]
     : mark.kind == kCopies ? done.copy_seconds
                            : done.collective_seconds) += seconds;
  }
  memory_.end_step();
  return done;
}

namespace {

/// The most that any thread lacked of `wall` seconds.
double taken_by_others(const std::vector<double>& before, const std::vector<double>& after, double wall) {
  double most = 0;
  for (std::size_t i = 0; i < std::min(before.size(), after.size()); ++i) most = std::max(most, wall - (after[i] - before[i]));
  return std::min(most, wall);
}

}  // namespace

StepTime Executor::time_step() {
  backend_.synchronize();
  if (peers_) peers_->processes.barrier();
  backend_.forget_marks();
  Done done;
  const std::vector<Instruction>& step = program_.step;
  const std::vector<double> before = backend_.processor_seconds();
  const std::size_t first = backend_.mark(kComputeStream);
  for (std::size_t i = 0; i < step.size(); ++i) execute(step[i], plan_.step.operands[i], false, done);
  for (std::size_t stream = 1; stream < program_.streams.size(); ++stream) backend_.wait(kComputeStream, static_cast<StreamId>(stream));
  const std::size_t last = backend_.mark(kComputeStream);
  backend_.synchronize();
  memory_.end_step();
  const double wall = backend_.between(first, last), taken = taken_by_others(before, backend_.processor_seconds(), wall);
  if (!peers_) return {wall - taken, taken};
  return {peers_->processes.largest(wall), 0};  // who waits for a peer has not lost its processor to other work
}

void Executor::execute(const Instruction& instruction, const PlannedOperands& operands, bool timed, Done& done) {
  switch (instruction.kind) {
    case InstructionKind::alloc:
      memory_.allocate(instruction);
      break;
    case InstructionKind::free:
      memory_.free(instruction);
      break;
    case InstructionKind::record_stream:
      memory_.record_stream(instruction);
      break;
    case InstructionKind::empty_cache:
      memory_.empty_cache();
      break;
    case InstructionKind::record_event:
      if (events_.size() <= instruction.id) events_.resize(instruction.id + std::size_t{1}, kComputeStream);
      events_[instruction.id] = instruction.stream;
      break;
    case InstructionKind::wait_event:
      wait_event(instruction);
      break;
    case InstructionKind::kernel:
      run_kernel(instruction, operands, timed, done);
      break;
    case InstructionKind::copy:
      run_copy(instruction, operands, timed, done);
      break;
    case InstructionKind::collective:
      if (peers_) run_collective(instruction, operands, timed, done);
      break;
    case InstructionKind::phase:
    case InstructionKind::stall:
    case InstructionKind::synchronize:
    case InstructionKind::host:
      break;
  }
}

/// The backend's waits are for all that a stream was issued: later than the event where more has been issued since.
void Executor::wait_event(const Instruction& instruction) {
  if (instruction.id >= events_.size()) return;
  backend_.wait(instruction.stream, events_[instruction.id]);
  memory_.waited(events_[instruction.id]);
}

void* Executor::memory_of(TensorId id, int spare) const {
  void* memory = id == PlannedOperands::kSpare ? nullptr : memory_.of(id);
  return memory ? memory : spare_[spare];
}

void Executor::run_kernel(const Instruction& instruction, const PlannedOperands& operands, bool timed, Done& done) {
  const plimsoll::Kernel& kernel = program_.kernels.at(instruction.id);
  void *to = memory_of(operands.to, 1), *from = memory_of(operands.from, 0);
  const std::size_t first = timed ? backend_.mark(instruction.stream) : 0;
  const Work work = run_program_kernel(backend_, kernel, from, to, instruction.stream);
  if (timed) marks_.push_back({static_cast<int>(kernel.kind()), first, backend_.mark(instruction.stream)});
  const auto kind = static_cast<std::size_t>(kernel.kind());
  ++done.count[kind];
  done.work[kind].bytes_read += work.bytes_read;
  done.work[kind].bytes_written += work.bytes_written;
  done.work[kind].flops += work.flops;
}

void Executor::run_copy(const Instruction& instruction, const PlannedOperands& operands, bool timed, Done& done) {
  const Copy& copy = program_.copies.at(instruction.id);
  if (copy.bytes == 0) return;
  void* there = memory_of(operands.to, 1);
  const auto bytes = static_cast<std::size_t>(copy.bytes);
  const std::size_t first = timed ? backend_.mark(instruction.stream) : 0;
  switch (copy.direction) {
    case Copy::Direction::host_to_device:
      backend_.copy(there, host_, bytes, CopyDirection::host_to_device, instruction.stream);
      break;
    case Copy::Direction::device_to_host:
      backend_.copy(host_, there, bytes, CopyDirection::device_to_host, instruction.stream);
      break;
    case Copy::Direction::set:
      backend_.fill(there, 0, bytes, instruction.stream);
      break;
    case Copy::Direction::device_to_device:
      backend_.copy(there, memory_of(operands.from, 0), bytes, CopyDirection::device_to_device, instruction.stream);
      break;
  }
  if (timed) marks_.push_back({kCopies, first, backend_.mark(instruction.stream)});
  ++done.copies;
  done.copied += copy.bytes;
}

void Executor::run_collective(const Instruction& instruction, const PlannedOperands& operands, bool timed, Done& done) {
  const Collective& collective = program_.collectives.at(instruction.id);
  const std::size_t first = timed ? backend_.mark(instruction.stream) : 0;
  peers_->collectives.run(collective.group, collective.kind, spare_[0], memory_of(operands.to, 1),
                          peers_->collectives.whole_floats(collective), instruction.stream);
  if (timed) marks_.push_back({kCollectives, first, backend_.mark(instruction.stream)});
  ++done.collectives;
  done.communicated += collective.bytes;
}

}  // namespace plimsoll::calibrate
