#include "memory/player.hpp"

#include <algorithm>
#include <utility>

#include "plimsoll/error.hpp"

namespace plimsoll::memory {
namespace {

constexpr int kEntriesOfCollective = 3;  // of the launch queue: PlayMemoryOptions::launches_behind

[[noreturn]] void defect(const char* what, const StepProgram& program, const Instruction& instruction) {
  const auto& labels = program.labels;
  throw Error(ErrorCode::internal, what, instruction.label < labels.size() ? labels[instruction.label] : std::string());
}

CachingAllocator::Options allocator_options(const PlayMemoryOptions& options) {
  const DelayedFree delayed_free = options.launches_behind > 0 ? DelayedFree::next_wait : options.delayed_free;
  return {options.allocator, options.capacity.count, options.total.value_or(options.capacity).count, delayed_free, options.segments};
}

}  // namespace

Player::Player(const StepProgram& program, const PlayMemoryOptions& options)
    : lagging_(!options.behind_in_stalls_only), program_(program), options_(options), allocator_(allocator_options(options)) {
  tensors_.reserve((program.init.size() + program.first_step.size() + program.step.size()) / 2);
}

const std::vector<Instruction>& Player::part(int step) const {
  if (step < 0) return program_.init;
  if (step == 0 && !program_.first_step.empty()) return program_.first_step;
  return step == 1 && !program_.second_step.empty() ? program_.second_step : program_.step;
}

inline Player::Tensor& Player::tensor(std::uint32_t id) {
  constexpr std::size_t kMore = 256;
  if (id >= tensors_.size()) tensors_.resize(id + kMore);
  return tensors_[id];
}

void Player::note_reserved() {
  const Bytes reserved(allocator_.reserved());
  trace_.peak_reserved = std::max(trace_.peak_reserved, reserved);
  if (phase_ == Phase::optimizer) trace_.optimizer_reserved = std::max(trace_.optimizer_reserved, reserved);
}

inline void Player::hold(BlockId block, TensorId tensor) {
  if (block >= holders_.size()) holders_.resize(2 * (block + std::size_t{1}));
  holders_[block] = tensor;
}

inline bool Player::allocate(const Instruction& instruction) {
  Tensor& tensor = this->tensor(instruction.id);
  if (tensor.alive()) defect("a tensor that is alive is allocated", program_, instruction);
  if (instruction.bytes <= 0) return allocate_nothing(instruction);
  if (!lagging_) host_waits();
  tensor = {&instruction, allocator_.take_free(instruction.bytes, instruction.stream)};
  if (tensor.block == kNoBlock && !ask_driver(instruction, tensor)) return false;
  if (history_) note(AllocatorEvent::Kind::alloc, tensor);
  hold(tensor.block, instruction.id);
  live_[instruction.category] += Bytes(allocator_.size(tensor.block));
  requested_ += instruction.bytes;
  if (allocator_.allocated() > part_peak_) reach_peak(instruction);
  return true;
}

bool Player::allocate_nothing(const Instruction& instruction) {
  if (instruction.bytes < 0) defect("an allocation of negative size", program_, instruction);
  tensor(instruction.id) = {&instruction, kNoBlock};
  without_bytes_.push_back(instruction.id);
  return true;
}

/// Where no free block serves. False where the run ends.
bool Player::ask_driver(const Instruction& instruction, Tensor& tensor) {
  const int retries = allocator_.retries();
  tensor.block = allocator_.take_new(instruction.bytes, instruction.stream);
  if (tensor.block == kNoBlock && allocator_.stopped_at_capacity()) {
    stop_at_capacity(instruction);
    tensor.block = allocator_.allocate(instruction.bytes, instruction.stream);
  }
  const bool ran_short = allocator_.retries() != retries;
  if (ran_short) {  // before the driver is asked again the host waits for the device
    behind_.clear();
    waited_ = launches_;
  }
  const bool ends = tensor.block == kNoBlock || (ran_short && options_.shortage_is_fatal);
  if (ends) {
    if (history_) note(AllocatorEvent::Kind::alloc, tensor);
    if (tensor.block != kNoBlock) hold(tensor.block, instruction.id);
    fail_allocation(instruction);
  } else {
    note_reserved();
  }
  return !ends;
}

/// Whether a tensor that dies at once (a BLAS workspace) finds a free block and reaches no peak: then nothing remembers it.
bool Player::passes_by(const Instruction& instruction) {
  if (instruction.bytes <= 0 || tensor(instruction.id).alive() || history_ || samples_) return false;
  if (!lagging_) host_waits();
  const std::int64_t size = allocator_.passing_size(instruction.bytes, instruction.stream);
  return size > 0 && allocator_.allocated() + size <= part_peak_;
}

void Player::keep_beyond(std::unique_ptr<Player>& beyond) {
  beyond_ = &beyond;
  allocator_.stop_once_at_capacity();
}

/// The copy is to play the instruction once more.
void Player::stop_at_capacity(const Instruction& instruction) {
  auto other = std::make_unique<Player>(*this);
  other->beyond_ = nullptr;
  other->allocator_.lift_capacity();
  other->tensor(instruction.id) = {};
  *beyond_ = std::move(other);
}

inline void Player::free(const Instruction& instruction) {
  const Tensor tensor = std::exchange(this->tensor(instruction.id), {});
  if (!tensor.alive()) defect("a tensor that is not alive is freed", program_, instruction);
  if (tensor.block == kNoBlock) {
    without_bytes_.erase(std::find(without_bytes_.begin(), without_bytes_.end(), instruction.id));
    return;
  }
  if (history_) note(AllocatorEvent::Kind::free, tensor);
  live_[tensor.birth->category] -= Bytes(allocator_.size(tensor.block));
  requested_ -= tensor.birth->bytes;
  if (options_.launches_behind > 0 && allocator_.used_elsewhere(tensor.block)) behind_.push_back({reached_at(), tensor.block});
  allocator_.free(tensor.block);
}

/// The device has come to what was issued so many entries ago: events recorded by then are over.
inline void Player::launched(int entries) {
  launches_ += entries;
  for (; !behind_.empty() && behind_.front().launch <= launches_; behind_.pop_front()) allocator_.complete_block(behind_.front().block);
}

/// Launches issued by the time the device has come to what is issued now: since the last wait it does (1 − lead) of what its host does,
/// and the queue takes no more than it holds.
std::int64_t Player::reached_at() const {
  const std::int64_t full_queue = launches_ + options_.launches_behind;
  if (options_.lead >= 1) return full_queue;
  const double since_wait = static_cast<double>(launches_ - waited_) / (1 - options_.lead);
  return std::min(full_queue, waited_ + static_cast<std::int64_t>(since_wait));
}

/// The device has done all that was issued.
void Player::host_waits() {
  waited_ = launches_;
  if (options_.launches_behind == 0 || behind_.empty()) return;
  behind_.clear();
  allocator_.complete_all();
}

void Player::record(AllocatorHistory* history) {
  history_ = history;
  allocator_.log_segments(history ? &segment_log_ : nullptr);
}

/// What the allocator asked of the driver comes before the allocation that made it ask.
void Player::note(AllocatorEvent::Kind kind, const Tensor& tensor) {
  note_segments();
  const Instruction& birth = *tensor.birth;
  AllocatorEvent event{kind, birth.stream, birth.category, birth.label, 0, Bytes(birth.bytes)};
  if (tensor.block == kNoBlock)
    event.kind = AllocatorEvent::Kind::out_of_memory;
  else
    event.address = allocator_.address(tensor.block);
  history_->events.push_back(event);
}

void Player::note_segments() {
  for (const auto& event : segment_log_)
    history_->events.push_back({event.kind, event.stream, Category::temporary, 0, event.address, Bytes(event.size)});
  segment_log_.clear();
}

void Player::note_final_segments() {
  note_segments();
  for (const auto& segment : allocator_.segments()) {
    history_->segments.push_back({segment.address, Bytes(segment.size), segment.stream, segment.small, segment.expandable, {}});
    for (BlockId id : segment.blocks) {
      AllocatorSegment::Block block{allocator_.address(id), Bytes(allocator_.size(id)), {}, allocator_.in_use(id), {}, 0};
      if (block.in_use) {
        const Instruction& birth = *tensors_[holders_[id]].birth;
        block.requested = Bytes(birth.bytes);
        block.category = birth.category;
        block.label = birth.label;
      }
      history_->segments.back().blocks.push_back(block);
    }
  }
}

void Player::reach_peak(const Instruction& instruction) {
  part_peak_ = allocator_.allocated();
  part_peak_phase_ = phase_;
  part_peak_label_ = instruction.label;
  part_peak_instant_ = {step_, position_};
  part_peak_live_ = live_;
  part_peak_requested_ = requested_;
}

void Player::note_sample(const Instruction& instruction) {
  const Bytes allocated(allocator_.allocated()), reserved(allocator_.reserved());
  const bool changed = samples_->empty() || samples_->back().step != step_ || samples_->back().phase != phase_ ||
                       samples_->back().allocated != allocated || samples_->back().reserved != reserved;
  if (changed) samples_->push_back({step_, phase_, position_, instruction.label, allocated, reserved});
}

void Player::fail_allocation(const Instruction& instruction) {
  trace_.out_of_memory = OutOfMemory{Bytes(instruction.bytes), Bytes(allocator_.reserved()),         Bytes(allocator_.allocated()), phase_,
                                     std::max(step_, 0),       program_.labels.at(instruction.label)};
}

/// Leaving a phase fixes its running maximum: the forward pass of the first micro-batch, the backward pass of the last.
void Player::enter_phase(Phase phase) {
  const bool was_forward = phase_ == Phase::forward || phase_ == Phase::loss;
  if (was_forward && phase != Phase::forward && phase != Phase::loss && forward_peak_ == 0) forward_peak_ = part_peak_;
  if (phase_ == Phase::backward && phase != Phase::backward) backward_peak_ = part_peak_;
  phase_ = phase;
  if (phase == Phase::optimizer) trace_.optimizer_reserved = Bytes(allocator_.reserved());
}

void Player::wait(const Instruction& instruction) {
  if (options_.delayed_free == DelayedFree::next_wait && options_.launches_behind == 0 && instruction.id < event_streams_.size())
    allocator_.complete(event_streams_[instruction.id]);
}

void Player::recorded(const Instruction& instruction) {
  if (event_streams_.size() <= instruction.id) event_streams_.resize(instruction.id + std::size_t{1}, kComputeStream);
  event_streams_[instruction.id] = instruction.stream;
}

/// Plays the first `count` instructions of a part; false when an allocation failed.
bool Player::play_part(int step, std::size_t count) {
  step_ = step;
  position_ = 0;
  return play_to(count);
}

/// Kinds of instructions, a bit each, that change nothing: most of a step, which are passed over. Launches count where the host is ahead of
/// the device by some of them, events where a wait makes freed blocks come back; with samples every instruction may be the first of a step.
std::uint32_t Player::passed_over() const {
  const auto bit = [](InstructionKind kind) { return std::uint32_t{1} << static_cast<unsigned>(kind); };
  if (samples_) return 0;
  std::uint32_t kinds = bit(InstructionKind::host);
  if (options_.launches_behind == 0) kinds |= bit(InstructionKind::kernel) | bit(InstructionKind::copy) | bit(InstructionKind::collective);
  if (options_.launches_behind > 0 || options_.delayed_free != DelayedFree::next_wait)
    kinds |= bit(InstructionKind::record_event) | bit(InstructionKind::wait_event);
  return kinds;
}

bool Player::play_to(std::size_t count) {
  const Instruction *const begin = part(step_).data(), *const end = begin + count;
  const std::uint32_t passed = passed_over();
  for (const Instruction* at = begin + position_; at < end; ++at) {
    const Instruction& instruction = *at;
    if (passed >> static_cast<unsigned>(instruction.kind) & 1) continue;
    position_ = static_cast<std::size_t>(at - begin);
    switch (instruction.kind) {
      case InstructionKind::alloc: {
        const bool dies = at + 1 < end && at[1].kind == InstructionKind::free && at[1].id == instruction.id;
        if (dies && passes_by(instruction))
          ++at;
        else if (!allocate(instruction))
          return false;
        break;
      }
      case InstructionKind::free:
        free(instruction);
        break;
      case InstructionKind::phase:
        enter_phase(static_cast<Phase>(instruction.id));
        break;
      case InstructionKind::record_event:
        recorded(instruction);
        break;
      case InstructionKind::wait_event:
        wait(instruction);
        break;
      case InstructionKind::host:
        break;
      case InstructionKind::record_stream:
        if (!tensor(instruction.id).alive()) defect("record_stream of a tensor that is not alive", program_, instruction);
        if (tensor(instruction.id).block != kNoBlock) allocator_.record_stream(tensor(instruction.id).block, instruction.stream);
        break;
      case InstructionKind::empty_cache:
        behind_.clear();
        allocator_.empty_cache();
        break;
      case InstructionKind::kernel:
      case InstructionKind::copy:
        launched(1);
        break;
      case InstructionKind::collective:
        launched(kEntriesOfCollective);
        break;
      case InstructionKind::stall:
        host_waits();
        lagging_ = true;
        break;
      case InstructionKind::synchronize:
        host_waits();
        lagging_ = !options_.behind_in_stalls_only;
        break;
    }
    if (samples_) note_sample(instruction);
  }
  position_ = std::max(position_, count);
  return true;
}

void Player::begin_step(int step) {
  step_ = step;
  position_ = 0;
  retries_before_ = allocator_.retries();
  forward_peak_ = backward_peak_ = 0;
  phase_ = Phase::forward;
  part_peak_ = allocator_.allocated();
  part_peak_phase_ = phase_;
  part_peak_live_ = live_;
  part_peak_requested_ = requested_;
  part_peak_label_ = 0;
  part_peak_instant_ = {step_, 0};
}

/// Takes the part's peaks into the trace: of step 1 apart, of the steady steps the largest; at the phases' ends those of the last step.
void Player::end_step(int step) {
  enter_phase(Phase::end);
  waited_ = launches_;
  behind_.clear();
  allocator_.complete_all();
  lagging_ = !options_.behind_in_stalls_only;
  trace_.persistent = Bytes(allocator_.allocated());
  trace_.forward_peak = Bytes(forward_peak_);
  trace_.backward_peak = Bytes(backward_peak_);
  if (step == 0) trace_.first_step_allocated = Bytes(part_peak_);
  const bool first_steady = step == 1;
  if (step > 0 && !first_steady && part_peak_ <= trace_.peak_allocated.count) return;
  trace_.peak_allocated = Bytes(part_peak_);
  trace_.peak_phase = part_peak_phase_;
  trace_.peak_label = program_.labels.at(part_peak_label_);
  trace_.at_peak = part_peak_live_;
  trace_.peak_step = std::max(step, 0);
  trace_.requested_at_peak = Bytes(part_peak_requested_);
  peak_instant_ = part_peak_instant_;
}

/// What later allocations depend on, apart from the instructions.
std::vector<std::uint64_t> Player::state() {
  std::vector<std::uint64_t> now = allocator_.state(holders_);
  std::sort(without_bytes_.begin(), without_bytes_.end());
  now.insert(now.end(), without_bytes_.begin(), without_bytes_.end());
  return now;
}

/// Whether the allocator and the tensors that live across steps are exactly as after the step before.
bool Player::recurs() {
  std::vector<std::uint64_t> now = state();
  const bool same = now == state_;
  state_ = std::move(now);
  return same;
}

/// Whether all is as it was at this place of the step before, the peak until here and the retries too: then this step ends as that one did,
/// with the same peaks, and so do all that follow.
bool Player::recurs_midway() {
  std::vector<std::uint64_t> now = state();
  now.push_back(static_cast<std::uint64_t>(part_peak_));
  now.push_back(static_cast<std::uint64_t>(allocator_.retries()));
  const bool same = now == midway_;
  midway_ = std::move(now);
  return same;
}

/// A place in a steady step behind its first forward pass and its loss, whose large tensors have taken the blocks that tell the step from
/// the one before; the step's end where the state is more than the allocator's: what the host knows of the device's progress.
std::size_t Player::midway() const {
  const std::vector<Instruction>& step = program_.step;
  if (options_.launches_behind > 0 || options_.delayed_free == DelayedFree::next_wait) return step.size();
  const auto begins_backward = [](const Instruction& each) {
    return each.kind == InstructionKind::phase && static_cast<Phase>(each.id) == Phase::backward;
  };
  constexpr std::size_t kPartOfTheRest = 8;
  const auto forward = static_cast<std::size_t>(std::find_if(step.begin(), step.end(), begins_backward) - step.begin());
  return forward + (step.size() - forward) / kPartOfTheRest;
}

/// False when an allocation failed.
bool Player::play_init() {
  const bool done = play_to(program_.init.size());
  trace_.init_peak_allocated = Bytes(part_peak_);
  trace_.persistent = Bytes(allocator_.allocated());
  if (done) trace_.peak_reserved = Bytes(allocator_.reserved());
  if (!done) end_step(0);
  return done;
}

MemoryTrace Player::play() {
  trace_ = {};
  step_ = -1;
  position_ = 0;
  return play_on();
}

MemoryTrace Player::play_on() {
  const bool may_skip = options_.skip_recurring_steps && options_.allocator.garbage_collection_threshold == 0;
  const int first_steady = program_.second_step.empty() ? 1 : 2;
  const std::size_t midway = may_skip ? this->midway() : program_.step.size();
  bool done = true;
  if (step_ < 0 && (done = play_init())) begin_step(0);
  while (done && step_ < options_.steps) {
    if (step_ >= first_steady && position_ < midway && midway < program_.step.size()) {
      done = play_to(midway);
      if (done && recurs_midway()) break;
    }
    done = done && play_to(part(step_).size());
    end_step(step_);
    if (!done) break;
    if (may_skip && recurs() && step_ >= first_steady) {
      trace_.alloc_retries = (options_.steps - 1 - step_) * (allocator_.retries() - retries_before_);
      break;
    }
    begin_step(step_ + 1);
  }
  trace_.alloc_retries += allocator_.retries();
  if (history_) note_final_segments();
  return trace_;
}

std::vector<LiveTensor> Player::alive_at(Instant instant) {
  for (int step = -1; step < instant.step; ++step) play_part(step, part(step).size());
  play_part(instant.step, std::min(instant.instruction + 1, part(instant.step).size()));
  std::vector<LiveTensor> alive;
  for (const Tensor& tensor : tensors_)
    if (const Instruction* birth = tensor.birth; birth && tensor.block != kNoBlock)
      alive.push_back({birth->category, Bytes(allocator_.size(tensor.block)), program_.labels.at(birth->label), Bytes(birth->bytes)});
  std::stable_sort(alive.begin(), alive.end(), [](const LiveTensor& a, const LiveTensor& b) { return a.bytes > b.bytes; });
  return alive;
}

BoundedTrace play_beyond_capacity(const StepProgram& program, const PlayMemoryOptions& options) {
  Player player(program, options);
  std::unique_ptr<Player> beyond;
  player.keep_beyond(beyond);
  MemoryTrace trace = player.play();
  if (!trace.out_of_memory) return {std::move(trace), {}};
  if (beyond) return {beyond->play_on(), std::move(trace.out_of_memory)};
  PlayMemoryOptions unbounded = options;
  unbounded.capacity = Bytes(INT64_MAX);
  return {play_memory(program, unbounded), std::move(trace.out_of_memory)};
}

}  // namespace plimsoll::memory

namespace plimsoll {

MemoryTrace play_memory(const StepProgram& program, const PlayMemoryOptions& options) { return memory::Player(program, options).play(); }

AllocatorHistory record_memory(const StepProgram& program, const PlayMemoryOptions& options) {
  AllocatorHistory history;
  PlayMemoryOptions every_step = options;
  every_step.skip_recurring_steps = false;
  memory::Player player(program, every_step);
  player.record(&history);
  player.play();
  return history;
}

std::vector<MemorySample> memory_timeline(const StepProgram& program, const PlayMemoryOptions& options) {
  std::vector<MemorySample> samples;
  PlayMemoryOptions every_step = options;
  every_step.skip_recurring_steps = false;
  memory::Player player(program, every_step);
  player.sample(&samples);
  player.play();
  return samples;
}

std::vector<LiveTensor> alive_at_peak(const StepProgram& program, const PlayMemoryOptions& options) {
  memory::Player first(program, options);
  first.play();
  return memory::Player(program, options).alive_at(first.peak());
}

}  // namespace plimsoll
