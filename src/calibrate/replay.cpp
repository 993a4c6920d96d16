// A step program executed: the caching allocator decides on addresses as it does for a prediction, and behind its segments lies memory of
// the device; kernels run on the tensors that are alive.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "calibrate/peer_collectives.hpp"
#include "calibrate/program_kernels.hpp"
#include "calibrate/statistics.hpp"
#include "memory/caching_allocator.hpp"
#include "plimsoll/cost.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/topology.hpp"

namespace plimsoll {
namespace calibrate {
namespace {

using memory::BlockId;
using memory::CachingAllocator;
using memory::kNoBlock;

constexpr int kKinds = 8;  // of program kernels
constexpr const char* kWhere = "replay";

// ---- memory ------------------------------------------------------------------------------------------------------------

/// The allocator on real memory: a segment that it asks of the driver is asked of the driver.
class ReplayMemory {
 public:
  ReplayMemory(Backend& backend, const PlayMemoryOptions& options)
      : backend_(backend),
        at_waits_(options.delayed_free == DelayedFree::next_wait),
        allocator_({options.allocator, options.capacity.count, options.total.value_or(options.capacity).count, options.delayed_free}) {
    if (options.allocator.expandable_segments)
      refuse("expandable segments are not replayed", kWhere, "allocator.expandable_segments false");
    if (options.launches_behind > 0) refuse("a host that runs ahead of its device is not replayed", kWhere);
    allocator_.log_segments(&events_);
    fill_ = operand_numbers(backend.shape(), 7);
  }
  ~ReplayMemory() {
    backend_.synchronize();
    for (const auto& [address, segment] : segments_) backend_.release(segment.memory);
  }

  void allocate(const Instruction& instruction) {
    Tensor& tensor = this->tensor(instruction.id);
    tensor = {kNoBlock, nullptr, instruction.bytes, ++births_};
    if (instruction.bytes == 0) return;
    tensor.block = allocator_.allocate(instruction.bytes, instruction.stream);
    follow_driver();
    if (tensor.block == kNoBlock)
      fail("the device is full: " + to_string(Bytes(instruction.bytes)) + " more do not fit", kWhere,
           "plimsoll explain says what takes the memory");
    tensor.memory = pointer(allocator_.address(tensor.block));
    alive_.insert({tensor.birth, instruction.id});
    peak_allocated_ = std::max(peak_allocated_, allocator_.allocated());
    peak_reserved_ = std::max(peak_reserved_, allocator_.reserved());
  }
  void free(const Instruction& instruction) {
    Tensor& tensor = this->tensor(instruction.id);
    if (tensor.block == kNoBlock) return;
    alive_.erase({tensor.birth, instruction.id});
    allocator_.free(tensor.block);
    tensor.block = kNoBlock;
  }
  void record_stream(const Instruction& instruction) {
    if (const Tensor& tensor = this->tensor(instruction.id); tensor.block != kNoBlock)
      allocator_.record_stream(tensor.block, instruction.stream);
  }
  void waited(StreamId stream) {
    if (at_waits_) allocator_.complete(stream);
  }
  void empty_cache() {
    backend_.synchronize();
    allocator_.empty_cache();
    follow_driver();
  }
  void end_step() { allocator_.complete_all(); }
  void forget_peak() { peak_allocated_ = allocator_.allocated(); }

  /// Memory of the youngest tensor of at least that size that is alive, other than `taken`; nullptr: there is none.
  void* youngest(std::int64_t bytes, const void* taken) const {
    int looked = 0;
    for (auto entry = alive_.rbegin(); entry != alive_.rend() && looked < kLookBack; ++entry, ++looked) {
      const Tensor& tensor = tensors_[entry->second];
      if (tensor.bytes >= bytes && tensor.memory != taken) return tensor.memory;
    }
    return nullptr;
  }

  std::int64_t peak_allocated() const { return peak_allocated_; }
  std::int64_t peak_reserved() const { return peak_reserved_; }
  std::int64_t driver_peak() const { return driver_peak_; }

 private:
  static constexpr int kLookBack = 512;
  struct Tensor {
    BlockId block = kNoBlock;
    std::byte* memory = nullptr;
    std::int64_t bytes = 0;
    std::uint64_t birth = 0;
  };
  struct Segment {
    std::byte* memory;
    std::int64_t bytes;
  };

  Tensor& tensor(std::uint32_t id) {
    if (id >= tensors_.size()) tensors_.resize(id + std::size_t{1});
    return tensors_[id];
  }
  void follow_driver() {
    for (const auto& event : events_) {
      if (event.kind == AllocatorEvent::Kind::segment_alloc) {
        auto* memory = static_cast<std::byte*>(backend_.allocate(static_cast<std::size_t>(event.size)));
        segments_[event.address] = {memory, event.size};
        randomise(memory, event.size);
        driver_bytes_ += event.size;
      } else if (event.kind == AllocatorEvent::Kind::segment_free) {
        backend_.synchronize();
        backend_.release(segments_.at(event.address).memory);
        segments_.erase(event.address);
        driver_bytes_ -= event.size;
      }
      driver_peak_ = std::max(driver_peak_, driver_bytes_);
    }
    events_.clear();
  }
  void randomise(std::byte* memory, std::int64_t bytes) {
    for (std::int64_t at = 0; at < bytes; at += static_cast<std::int64_t>(fill_.size()))
      backend_.copy(memory + at, fill_.data(),
                    static_cast<std::size_t>(std::min<std::int64_t>(bytes - at, static_cast<std::int64_t>(fill_.size()))),
                    CopyDirection::host_to_device, kComputeStream);
    backend_.synchronize();
  }
  std::byte* pointer(std::uint64_t address) const {
    const auto above = segments_.upper_bound(address);
    const auto& [start, segment] = *std::prev(above);
    return segment.memory + (address - start);
  }

  Backend& backend_;
  bool at_waits_;
  CachingAllocator allocator_;
  std::vector<CachingAllocator::SegmentEvent> events_;
  std::vector<Tensor> tensors_;
  std::set<std::pair<std::uint64_t, std::uint32_t>> alive_;  // by birth
  std::map<std::uint64_t, Segment> segments_;
  std::vector<std::byte> fill_;
  std::uint64_t births_ = 0;
  std::int64_t peak_allocated_ = 0, peak_reserved_ = 0, driver_bytes_ = 0, driver_peak_ = 0;
};

// ---- execution ---------------------------------------------------------------------------------------------------------

/// What one playing of a part did.
struct Done {
  std::array<std::int64_t, kKinds> count{};
  std::array<Work, kKinds> work{};
  std::array<double, kKinds> seconds{};
  std::int64_t copies = 0, copied = 0, collectives = 0, communicated = 0;
  double copy_seconds = 0, collective_seconds = 0;
};

/// The other processes of a replay, each with a device of its own.
struct Peers {
  Peers(Backend& backend, Processes& all) : processes(all), collectives(backend, all) {}
  int ranks() const { return processes.place().ranks; }

  Processes& processes;
  PeerCollectives collectives;
};

class Executor {
 public:
  /// Without `peers` collectives are left out.
  Executor(const PlayableRank& rank, Backend& backend, Peers* peers)
      : program_(rank.program), backend_(backend), peers_(peers), memory_(backend, rank.options) {
    std::int64_t most = 0, most_copied = 0;
    for (const plimsoll::Kernel& kernel : program_.kernels) {
      const Operands operands = operands_of(kernel, backend.shape());
      most = std::max({most, operands.read, operands.written});
    }
    if (peers)
      for (const Collective& collective : program_.collectives) most = std::max(most, whole_floats(collective.bytes));
    for (const Copy& copy : program_.copies) most_copied = std::max(most_copied, copy.bytes);
    ring_bytes_ = std::max<std::int64_t>(most, 1 << 20);
    for (auto& spare : ring_) spare = random_memory();
    if (most_copied > 0) host_ = backend.allocate_host(static_cast<std::size_t>(most_copied));
  }
  ~Executor() {
    backend_.synchronize();
    for (void* spare : ring_) backend_.release(spare);
    if (host_) backend_.release_host(host_);
  }

  ReplayMemory& memory() { return memory_; }

  /// Plays a part once; with `timed` every kernel is timed by itself.
  Done play(const std::vector<Instruction>& part, bool timed) {
    Done done;
    marks_.clear();
    backend_.forget_marks();
    for (const Instruction& instruction : part) execute(instruction, timed, done);
    backend_.synchronize();
    for (const Mark& mark : marks_) {
      const double seconds = backend_.between(mark.first, mark.last);
      (mark.kind < kKinds     ? done.seconds[static_cast<std::size_t>(mark.kind)]
       : mark.kind == kCopies ? done.copy_seconds
                              : done.collective_seconds) += seconds;
    }
    memory_.end_step();
    return done;
  }

  /// Seconds of one step from its first kernel to the last of any stream.
  double time_step() {
    backend_.synchronize();
    if (peers_) peers_->processes.barrier();
    backend_.forget_marks();
    Done done;
    const std::size_t first = backend_.mark(kComputeStream);
    for (const Instruction& instruction : program_.step) execute(instruction, false, done);
    for (std::size_t stream = 1; stream < program_.streams.size(); ++stream) backend_.wait(kComputeStream, static_cast<StreamId>(stream));
    const std::size_t last = backend_.mark(kComputeStream);
    backend_.synchronize();
    memory_.end_step();
    const double seconds = backend_.between(first, last);
    return peers_ ? peers_->processes.largest(seconds) : seconds;
  }

 private:
  static constexpr int kCopies = kKinds, kCollectives = kKinds + 1;
  struct Mark {
    int kind;  ///< of a kernel, kCopies or kCollectives
    std::size_t first, last;
  };

  void* random_memory() {
    void* memory = backend_.allocate(static_cast<std::size_t>(ring_bytes_));
    const std::vector<std::byte> data = operand_numbers(backend_.shape(), 11);
    for (std::int64_t at = 0; at < ring_bytes_; at += static_cast<std::int64_t>(data.size()))
      backend_.copy(static_cast<std::byte*>(memory) + at, data.data(),
                    static_cast<std::size_t>(std::min<std::int64_t>(ring_bytes_ - at, static_cast<std::int64_t>(data.size()))),
                    CopyDirection::host_to_device, kComputeStream);
    backend_.synchronize();
    return memory;
  }

  void execute(const Instruction& instruction, bool timed, Done& done) {
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
      case InstructionKind::wait:
        backend_.wait(instruction.stream, static_cast<StreamId>(instruction.id));
        memory_.waited(static_cast<StreamId>(instruction.id));
        break;
      case InstructionKind::kernel:
        run_kernel(instruction, timed, done);
        break;
      case InstructionKind::copy:
        run_copy(instruction, timed, done);
        break;
      case InstructionKind::collective:
        if (peers_) run_collective(instruction, timed, done);
        break;
      case InstructionKind::phase:
      case InstructionKind::stall:
      case InstructionKind::synchronize:
        break;
    }
  }

  /// Results go to the youngest tensor that holds them and operands come from the one before; what no tensor holds comes from spare
  /// memory. On a GPU products always read random spare memory: results of results grow until a device multiplies infinities, at a
  /// clock that no training run sees.
  void run_kernel(const Instruction& instruction, bool timed, Done& done) {
    const plimsoll::Kernel& kernel = program_.kernels.at(instruction.id);
    const Operands operands = operands_of(kernel, backend_.shape());
    void* to = memory_.youngest(operands.written, nullptr);
    if (!to) to = ring_[1];
    const bool product = kernel.kind == plimsoll::KernelKind::gemm || kernel.flops > 8.0 * static_cast<double>(operands.read);
    void* from = product && backend_.shape().target != Target::cpu ? nullptr : memory_.youngest(operands.read, to);
    if (!from) from = ring_[0];
    const std::size_t first = timed ? backend_.mark(instruction.stream) : 0;
    const Work work = run_program_kernel(backend_, kernel, from, to, instruction.stream);
    if (timed) marks_.push_back({static_cast<int>(kernel.kind), first, backend_.mark(instruction.stream)});
    const auto kind = static_cast<std::size_t>(kernel.kind);
    ++done.count[kind];
    done.work[kind].bytes_read += work.bytes_read;
    done.work[kind].bytes_written += work.bytes_written;
    done.work[kind].flops += work.flops;
  }

  void run_copy(const Instruction& instruction, bool timed, Done& done) {
    const Copy& copy = program_.copies.at(instruction.id);
    if (copy.bytes == 0) return;
    void* there = memory_.youngest(copy.bytes, nullptr);
    if (!there || copy.bytes > ring_bytes_) there = there ? there : ring_[1];
    const auto bytes = static_cast<std::size_t>(copy.bytes);
    const std::size_t first = timed ? backend_.mark(instruction.stream) : 0;
    switch (copy.direction) {
      case Copy::Direction::host_to_device:
        backend_.copy(there, host_, bytes, CopyDirection::host_to_device, instruction.stream);
        break;
      case Copy::Direction::device_to_host:
        backend_.copy(host_, there, bytes, CopyDirection::device_to_host, instruction.stream);
        break;
      case Copy::Direction::device_to_device:
        backend_.copy(there, ring_[0], bytes, CopyDirection::device_to_device, instruction.stream);
        break;
    }
    if (timed) marks_.push_back({kCopies, first, backend_.mark(instruction.stream)});
    ++done.copies;
    done.copied += copy.bytes;
  }

  /// A buffer as floats, as many for every rank: what the peers exchange, of whatever type the program's numbers are.
  std::int64_t whole_floats(std::int64_t bytes) const { return round_up(bytes, 4 * peers_->ranks()); }

  void run_collective(const Instruction& instruction, bool timed, Done& done) {
    const Collective& collective = program_.collectives.at(instruction.id);
    const std::int64_t bytes = whole_floats(collective.bytes);
    void* to = memory_.youngest(bytes, nullptr);
    const std::size_t first = timed ? backend_.mark(instruction.stream) : 0;
    peers_->collectives.run(collective.kind, ring_[0], to ? to : ring_[1], bytes, instruction.stream);
    if (timed) marks_.push_back({kCollectives, first, backend_.mark(instruction.stream)});
    ++done.collectives;
    done.communicated += collective.bytes;
  }

  const StepProgram& program_;
  Backend& backend_;
  Peers* peers_;
  ReplayMemory memory_;
  std::int64_t ring_bytes_ = 0;
  void* ring_[2] = {nullptr, nullptr};
  void* host_ = nullptr;
  std::vector<Mark> marks_;
};

// ---- the prediction ----------------------------------------------------------------------------------------------------

/// What one launch takes of the host, as calibrate measured it; 0: unknown, or the processor itself runs the kernels.
Seconds launch_gap(const Accelerator& device, const DeviceFacts& facts) {
  if (facts.backend == "cpu") return Seconds();
  for (const Measurement& measurement : device.measurements)
    for (const auto& [key, value] : measurement.values)
      if (measurement.what == "launch" && key == "gap") return parse_seconds(value);
  return Seconds();
}

/// Every group is that of all `ranks`; of one rank alone communicates in no time.
Pricing pricing_of(const Cluster& cluster, const DeviceFacts& facts, int ranks) {
  Pricing pricing;
  pricing.cluster = cluster;
  pricing.host_per_launch = launch_gap(cluster.accelerator, facts);
  if (ranks > 1) pricing.groups.fill(Topology(cluster).group({0, ranks, 1}));
  return pricing;
}

ReplayLine collectives_line(const StepProgram& program, const Pricing& pricing, const Done& done) {
  ReplayLine line;
  line.what = "collectives";
  line.count = done.collectives;
  line.bytes = line.done_bytes = static_cast<double>(done.communicated);
  line.measured = done.collective_seconds;
  for (const Instruction& instruction : program.step)
    if (instruction.kind == InstructionKind::collective)
      line.predicted += price(program.collectives.at(instruction.id), pricing.groups.front(), pricing.cluster).value;
  return line;
}

std::vector<ReplayLine> lines_of(const StepProgram& program, const Pricing& pricing, const Done& done) {
  const Cluster& cluster = pricing.cluster;
  std::vector<ReplayLine> lines;
  std::array<ReplayLine, kKinds> kinds;
  for (const Instruction& instruction : program.step) {
    if (instruction.kind != InstructionKind::kernel) continue;
    const plimsoll::Kernel& kernel = program.kernels.at(instruction.id);
    ReplayLine& line = kinds[static_cast<std::size_t>(kernel.kind)];
    const bool product = kernel.kind == plimsoll::KernelKind::gemm;
    line.flops += product
                      ? 2.0 * static_cast<double>(kernel.m) * static_cast<double>(kernel.n) * static_cast<double>(kernel.k * kernel.batch)
                      : kernel.flops;
    line.bytes += static_cast<double>(kernel.bytes_read + kernel.bytes_written);
    line.predicted += price(kernel, cluster.accelerator).value;
  }
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    ReplayLine& line = kinds[kind];
    if (done.count[kind] == 0) continue;
    line.what = plimsoll::name_of(static_cast<plimsoll::KernelKind>(kind));
    line.count = done.count[kind];
    line.done_flops = done.work[kind].flops;
    line.done_bytes = done.work[kind].bytes();
    line.measured = done.seconds[kind];
    lines.push_back(line);
  }
  if (done.copies > 0) {
    ReplayLine copies;
    copies.what = "copies";
    copies.count = done.copies;
    copies.bytes = copies.done_bytes = static_cast<double>(done.copied);
    copies.measured = done.copy_seconds;
    for (const Instruction& instruction : program.step)
      if (instruction.kind == InstructionKind::copy) copies.predicted += price(program.copies.at(instruction.id), cluster).value;
    lines.push_back(copies);
  }
  if (done.collectives > 0) lines.push_back(collectives_line(program, pricing, done));
  return lines;
}

std::int64_t collectives_in(const StepProgram& program) {
  return std::count_if(program.step.begin(), program.step.end(),
                       [](const Instruction& each) { return each.kind == InstructionKind::collective; });
}

/// What all processes exchange: every group but the world's must be that of all of them, so there is one at most.
void refuse_other_groups(const StepProgram& program) {
  std::set<Group> groups;
  for (const Collective& collective : program.collectives) {
    if (collective.kind == CollectiveKind::send || collective.kind == CollectiveKind::receive)
      refuse("a pipeline's sends are not replayed", kWhere, "without --collectives a stage is replayed by itself");
    if (collective.group != Group::world) groups.insert(collective.group);
  }
  if (groups.size() > 1)
    refuse(
        fmt::format("collectives of the groups {} and {} are not replayed together", name_of(*groups.begin()), name_of(*groups.rbegin())),
        kWhere, "one way of parallelism over all processes");
}

/// The processes that mpirun started, one for each device of the cluster.
std::unique_ptr<Processes> find_processes(const StepProgram& program, const Cluster& cluster) {
  refuse_other_groups(program);
  auto processes = std::make_unique<Processes>();
  if (const int ranks = processes->place().ranks; ranks != cluster.gpus() || ranks < 2)
    fail(fmt::format("{} processes for {} devices", ranks, cluster.gpus()), "--collectives",
         "mpirun -n 2 plimsoll replay MODEL --on this-node.json --collectives, with the file of calibrate --collectives");
  return processes;
}

/// Steps before the steady state, then as many steady ones as asked for, timed whole.
std::vector<double> play_steps(Executor& executor, const StepProgram& program, const ReplayOptions& options) {
  executor.play(program.init, false);
  executor.play(program.first_step.empty() ? program.step : program.first_step, false);
  executor.memory().forget_peak();  // the peak that is compared is that of steady steps
  executor.play(program.second_step.empty() ? program.step : program.second_step, false);
  std::vector<double> times;
  for (int step = 0; step < options.steps && !(options.stop && options.stop() && !times.empty()); ++step)
    times.push_back(executor.time_step());
  return times;
}

}  // namespace
}  // namespace calibrate

std::int64_t Replay::kernels() const {
  std::int64_t count = 0;
  for (const ReplayLine& line : lines)
    if (line.what != "copies" && line.what != "collectives") count += line.count;
  return count;
}

Replay replay(const PlayableRank& rank, const Cluster& cluster, const ReplayOptions& options) {
  if (rank.program.repeated.times > 1)
    refuse("micro-batches that only repeat the steady state are not replayed", calibrate::kWhere,
           "at most 8 micro-batches more than stages");
  Replay result;
  std::unique_ptr<calibrate::Processes> processes;
  if (options.collectives) processes = calibrate::find_processes(rank.program, cluster);
  const bool own_device = processes && options.backend != "cpu";
  const auto backend = calibrate::open_backend(options.backend, own_device ? processes->place().local_rank : options.device, result.notes);
  std::unique_ptr<calibrate::Peers> peers;
  if (processes) {
    peers = std::make_unique<calibrate::Peers>(*backend, *processes);
    result.rank = processes->place().rank, result.ranks = peers->ranks();
  }
  result.device = backend->facts();
  if (peers) result.device.library += ", " + peers->collectives.library();
  const MemoryTrace played = play_memory(rank.program, rank.options);
  result.predicted_allocated = played.peak_allocated;
  result.predicted_reserved = played.peak_reserved;
  calibrate::Executor executor(rank, *backend, peers.get());
  const std::vector<double> times = calibrate::play_steps(executor, rank.program, options);
  const calibrate::Done done = executor.play(rank.program.step, true);
  const Pricing pricing = calibrate::pricing_of(cluster, result.device, result.ranks);
  result.lines = calibrate::lines_of(rank.program, pricing, done);
  result.predicted_step = play_time(rank.program, pricing).step.value;
  result.measured_step = calibrate::median(times);
  result.spread = calibrate::median_deviation(times) / result.measured_step;
  result.steps = static_cast<int>(times.size());
  result.replayed_allocated = Bytes(executor.memory().peak_allocated());
  result.replayed_reserved = Bytes(executor.memory().peak_reserved());
  result.driver_peak = Bytes(executor.memory().driver_peak());
  if (!peers) result.collectives_left_out = calibrate::collectives_in(rank.program);
  if (result.collectives_left_out > 0)
    result.notes.push_back(fmt::format("{} collectives are left out of both times: there are no peers (mpirun and --collectives)",
                                       result.collectives_left_out));
  return result;
}

}  // namespace plimsoll
