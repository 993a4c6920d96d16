// The predicted step, executed and held against the prediction.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "calibrate/reference_clock.hpp"
#include "calibrate/replay_executor.hpp"
#include "calibrate/statistics.hpp"
#include "plimsoll/cost.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/topology.hpp"

namespace plimsoll {
namespace calibrate {
namespace {

constexpr const char* kWhere = "replay";
constexpr double kReadingEvery = 0.25;  // seconds of steps between two readings of the machine's clock
constexpr int kTimedPlays = 3;          // with every kernel by itself: the least disturbed counts

// ---- the prediction ----------------------------------------------------------------------------------------------------

/// A time that calibrate kept among a device's measurements; 0: it did not.
Seconds kept_time(const Accelerator& device, const std::string& what, const std::string& value_key) {
  for (const Measurement& measurement : device.measurements)
    for (const auto& [key, value] : measurement.values)
      if (measurement.what == what && key == value_key) return parse_seconds(value);
  return Seconds();
}

Pricing pricing_of(const PlayableRank& rank, const Cluster& cluster, const DeviceFacts& facts, bool with_peers) {
  Pricing pricing;
  pricing.cluster = cluster;
  if (facts.backend != "cpu") pricing.host.launch = kept_time(cluster.accelerator, "launch", "gap");
  if (!with_peers) return pricing;
  const Topology topology(cluster);
  for (std::size_t i = 0; i < pricing.groups.size(); ++i)
    if (rank.groups[i].size > 1) pricing.groups[i] = topology.group(rank.groups[i]);
  return pricing;
}

/// How much longer the two reference kernels take now than when the device was calibrated.
struct Slowdown {
  double product = 1, stream = 1;
  /// Of a kernel: that of memory where it moves more than the caches hold.
  double of(const plimsoll::Kernel& kernel, std::int64_t cache) const {
    return !kernel.product() && !kernel.attention() && kernel.bytes() > cache ? stream : product;
  }
};

std::vector<ReplayLine> kernel_lines(const StepProgram& program, const Accelerator& device, Slowdown slowdown, const Done& done) {
  std::array<ReplayLine, kKinds> kinds;
  for (const Instruction& instruction : program.step) {
    if (instruction.kind != InstructionKind::kernel) continue;
    const plimsoll::Kernel& kernel = program.kernels.at(instruction.id);
    ReplayLine& line = kinds[static_cast<std::size_t>(kernel.kind())];
    const double seconds = price(kernel, device).value;
    line.flops += kernel.flops();
    line.bytes += static_cast<double>(kernel.bytes());
    line.predicted += seconds;
    line.predicted_now += seconds * slowdown.of(kernel, device.last_level_cache.value.count);
  }
  std::vector<ReplayLine> lines;
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
  return lines;
}

ReplayLine transfer_line(const char* what, std::int64_t count, std::int64_t bytes, double seconds) {
  ReplayLine line;
  line.what = what;
  line.count = count;
  line.bytes = line.done_bytes = static_cast<double>(bytes);
  line.measured = seconds;
  return line;
}

/// What the host does between the kernels of a processor: the program's allocations, in pairs with their releases.
ReplayLine host_line(const StepProgram& program, const Accelerator& device, const Done& done) {
  ReplayLine line;
  line.what = kHostLine;
  line.count = std::count_if(program.step.begin(), program.step.end(),
                             [](const Instruction& each) { return each.kind == InstructionKind::alloc && each.bytes > 0; });
  line.predicted = static_cast<double>(line.count) * kept_time(device, "launch", "allocation").value;
  line.measured = done.host_seconds;
  return line;
}

std::vector<ReplayLine> lines_of(const StepProgram& program, const Pricing& pricing, const DeviceFacts& facts, Slowdown slowdown,
                                 const Done& done) {
  const Accelerator& device = pricing.cluster.accelerator;
  std::vector<ReplayLine> lines = kernel_lines(program, device, slowdown, done);
  ReplayLine copies = transfer_line(kCopiesLine, done.copies, done.copied, done.copy_seconds);
  ReplayLine collectives = transfer_line(kCollectivesLine, done.collectives, done.communicated, done.collective_seconds);
  for (const Instruction& instruction : program.step) {
    if (instruction.kind == InstructionKind::copy) copies.predicted += price(program.copies.at(instruction.id), pricing.cluster).value;
    if (instruction.kind != InstructionKind::collective || done.collectives == 0) continue;
    const Collective& collective = program.collectives.at(instruction.id);
    collectives.predicted += price(collective, pricing.groups[static_cast<std::size_t>(collective.group)], pricing.cluster).value;
  }
  for (ReplayLine* line : {&copies, &collectives}) {
    line->predicted_now = line->predicted * slowdown.stream;
    if (line->count > 0) lines.push_back(*line);
  }
  if (facts.backend == "cpu") {
    lines.push_back(host_line(program, device, done));
    lines.back().predicted_now = lines.back().predicted * slowdown.product;
  }
  return lines;
}

// ---- the run -----------------------------------------------------------------------------------------------------------

std::int64_t collectives_in(const StepProgram& program) {
  return std::count_if(program.step.begin(), program.step.end(),
                       [](const Instruction& each) { return each.kind == InstructionKind::collective; });
}

/// The processes that mpirun started, one for each device of the cluster.
std::unique_ptr<Processes> find_processes(const StepProgram& program, const Cluster& cluster) {
  for (const Collective& collective : program.collectives)
    if (collective.kind == CollectiveKind::send || collective.kind == CollectiveKind::receive)
      refuse("a pipeline's sends are not replayed", kWhere, "without --collectives a stage is replayed by itself");
  auto processes = std::make_unique<Processes>();
  if (const int ranks = processes->place().ranks; ranks != cluster.gpus() || ranks < 2)
    fail(fmt::format("{} processes for {} devices", ranks, cluster.gpus()), "--collectives",
         "mpirun -n 2 plimsoll replay MODEL --on this-node.json --collectives, with the file of calibrate --collectives");
  processes->take_processors();
  return processes;
}

/// Steady steps timed whole, and the machine's clock before, among and after them.
struct TimedSteps {
  std::vector<double> steps;
  double taken = 0;  // share of the time that other work had a processor
  std::vector<ReferenceTimes> readings;
};

/// Steps before the steady state, then as many steady ones as asked for. After each reading of the clock a step that is not timed brings
/// the caches back into a step's state.
TimedSteps play_steps(Executor& executor, ReferenceClock* clock, const ReplayOptions& options) {
  executor.play(executor.plan().init, false);
  executor.play(executor.plan().first_step, false);
  executor.memory().forget_peak();  // the peak that is compared is that of steady steps
  executor.play(executor.plan().second_step, false);
  TimedSteps timed;
  double ran = 0, since_reading = kReadingEvery;
  for (int step = 0; step < options.steps && !(options.stop && options.stop() && !timed.steps.empty()); ++step) {
    if (since_reading >= kReadingEvery) {
      if (clock) timed.readings.push_back(clock->measure());
      executor.play(executor.plan().step, false);
      since_reading = 0;
    }
    const StepTime time = executor.time_step();
    timed.steps.push_back(time.ran);
    timed.taken += time.taken;
    ran += time.ran;
    since_reading += time.ran + time.taken;
  }
  timed.taken /= ran + timed.taken;
  if (clock) timed.readings.push_back(clock->measure());
  return timed;
}

double total(const Done& done) {
  double sum = done.copy_seconds + done.collective_seconds + done.host_seconds;
  for (double seconds : done.seconds) sum += seconds;
  return sum;
}

/// A steady step with every kernel timed by itself. With peers every process must play as often: what differs is only which play counts.
Done play_timed(Executor& executor) {
  Done least = executor.play(executor.plan().step, true);
  for (int play = 1; play < kTimedPlays; ++play)
    if (const Done done = executor.play(executor.plan().step, true); total(done) < total(least)) least = done;
  return least;
}

/// Which kernels stood for the framework's attention.
std::string attention_note(const StepProgram& program, Backend& backend) {
  if (backend.facts().backend == "cpu") return {};
  std::string why;
  std::size_t passes = 0, own = 0;
  for (const plimsoll::Kernel& kernel : program.kernels) {
    if (!kernel.attention() || runs_within_another(kernel)) continue;
    ++passes;
    if (const std::string found = why_own_attention(*kernel.attention(), backend); !found.empty()) ++own, why = found;
  }
  if (passes == 0) return {};
  if (own == 0) return "attention ran by " + backend.attention_library();
  return fmt::format("{} of {} passes of attention ran by our own kernels, not by the framework's: {}", own, passes, why);
}

/// Sums of the lines; of a GPU, whose streams overlap, what the player makes of them.
void predict_step(const StepProgram& program, const Pricing& pricing, Replay& result) {
  double sum = 0, now = 0;
  for (const ReplayLine& line : result.lines) sum += line.predicted, now += line.predicted_now;
  result.predicted_step = result.device.backend == "cpu" ? sum : play_time(program, pricing).step.value;
  result.predicted_now = sum > 0 ? result.predicted_step * now / sum : 0;
}

}  // namespace
}  // namespace calibrate

std::int64_t Replay::kernels() const {
  std::int64_t count = 0;
  for (const ReplayLine& line : lines)
    if (line.what != kCopiesLine && line.what != kCollectivesLine && line.what != kHostLine) count += line.count;
  return count;
}

namespace calibrate {
namespace {

/// The stretch that a step runs again and again, written out as often: it frees what it allocates, so its tensors keep their numbers.
PlayableRank unrolled(const PlayableRank& rank) {
  constexpr std::int64_t kMost = 20'000'000;  // instructions: 300 MB
  PlayableRank out = rank;
  const Repeated again = std::exchange(out.program.repeated, {});
  std::vector<Instruction>& step = out.program.step;
  const auto length = static_cast<std::int64_t>(again.end - again.begin);
  if (again.times > (kMost - static_cast<std::int64_t>(step.size())) / std::max<std::int64_t>(length, 1))
    refuse(fmt::format("a step of {} times {} instructions is not replayed", again.times, length), kWhere, "fewer micro-batches");
  const std::vector<Instruction> stretch(step.begin() + static_cast<std::ptrdiff_t>(again.begin),
                                         step.begin() + static_cast<std::ptrdiff_t>(again.end));
  std::vector<Instruction> more;
  more.reserve(stretch.size() * static_cast<std::size_t>(again.times - 1));
  for (std::int64_t i = 1; i < again.times; ++i) more.insert(more.end(), stretch.begin(), stretch.end());
  step.insert(step.begin() + static_cast<std::ptrdiff_t>(again.end), more.begin(), more.end());
  return out;
}

}  // namespace
}  // namespace calibrate

Replay replay(const PlayableRank& rank, const Cluster& cluster, const ReplayOptions& options) {
  if (rank.program.repeated.times > 1) return replay(calibrate::unrolled(rank), cluster, options);
  Replay result;
  std::unique_ptr<calibrate::Processes> processes;
  if (options.collectives) processes = calibrate::find_processes(rank.program, cluster);
  const bool own_device = processes && options.backend != "cpu";
  const auto backend = calibrate::open_backend(options.backend, own_device ? processes->place().local_rank : options.device, result.notes);
  std::unique_ptr<calibrate::Peers> peers;
  if (processes) {
    peers = std::make_unique<calibrate::Peers>(*backend, *processes, rank.groups);
    result.rank = processes->place().rank, result.ranks = peers->ranks();
  }
  result.device = backend->facts();
  if (peers) result.device.library += ", " + peers->collectives.library();
  const MemoryTrace played = play_memory(rank.program, rank.options);
  result.predicted_allocated = played.peak_allocated;
  result.predicted_reserved = played.peak_reserved;
  const bool processor = result.device.backend == "cpu";  // the reference clock of calibrate: of a processor's caches and memory alone
  const auto calibrated = processor ? calibrate::reference_of(cluster.accelerator) : std::nullopt;
  const auto clock = calibrated ? std::make_unique<calibrate::ReferenceClock>(*backend) : nullptr;
  calibrate::Executor executor(rank, *backend, peers.get());
  const calibrate::TimedSteps timed = calibrate::play_steps(executor, clock.get(), options);
  const calibrate::Done done = calibrate::play_timed(executor);
  calibrate::Slowdown slowdown;
  if (calibrated) {
    const calibrate::ReferenceTimes now = calibrate::median(timed.readings);
    slowdown = {now.product / calibrated->product, now.stream / calibrated->stream};
    result.slowdown = {slowdown.product, slowdown.stream};
  }
  const Pricing pricing = calibrate::pricing_of(rank, cluster, result.device, peers != nullptr);
  result.lines = calibrate::lines_of(rank.program, pricing, result.device, slowdown, done);
  calibrate::predict_step(rank.program, pricing, result);
  result.measured_step = calibrate::median(timed.steps);
  result.spread = calibrate::median_deviation(timed.steps) / result.measured_step;
  result.taken = timed.taken;
  result.steps = static_cast<int>(timed.steps.size());
  result.replayed_allocated = Bytes(executor.memory().peak_allocated());
  result.replayed_reserved = Bytes(executor.memory().peak_reserved());
  result.driver_peak = Bytes(executor.memory().driver_peak());
  if (!peers) result.collectives_left_out = calibrate::collectives_in(rank.program);
  if (result.collectives_left_out > 0)
    result.notes.push_back(fmt::format("{} collectives are left out of both times: there are no peers (mpirun and --collectives)",
                                       result.collectives_left_out));
  if (const Accelerator& device = cluster.accelerator; device.target != result.device.target && device.target != result.device.backend)
    result.notes.push_back(fmt::format("predicted for {} ({}), measured on {} ({})", device.title, device.target, result.device.name,
                                       result.device.target));
  if (const std::string note = calibrate::attention_note(rank.program, *backend); !note.empty()) result.notes.push_back(note);
  if (processor && !calibrated)
    result.notes.push_back("the device's file has no reference clock: calibrate it anew to have the prediction at the clock of the replay");
  return result;
}

}  // namespace plimsoll
