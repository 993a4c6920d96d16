// The method: warm up, then time runs on random data over several sets of inputs, twice with everything else in between; keep the median
// and the dispersion, and the fastest run, which shows the clock before the power limit takes hold.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <optional>

#include "calibrate/peers.hpp"
#include "calibrate/power_monitor.hpp"
#include "calibrate/reference_clock.hpp"
#include "calibrate/statistics.hpp"
#include "calibrate/workload.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace calibrate {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kVisits = 2;
constexpr int kLeastTimings = 5;
constexpr int kMostTimings = 400;
constexpr double kLeastTiming = 200e-6;  // of one timing: events and clocks are read to about a microsecond
constexpr double kPatience = 2;          // everything is measured once, within this many times the seconds that were given,
constexpr double kLeastPatience = 20;    // or within these, where other work takes the processor
constexpr double kDisagreement = 0.15;   // of the medians of two visits
constexpr double kPeerShare = 0.2;       // of the seconds, for what several devices do with each other,
constexpr double kPeerSeconds = 15;      // or so many, where there is no limit
constexpr double kWholeSlice = 0.04;     // of one visit where there is no limit, by weight: 200 timings of the least length
constexpr double kLeastSlice = 0.002;
constexpr double kPreemptions = 10;      // per second: other work had the processor
constexpr double kReadingEvery = 0.5;    // seconds between two readings of the reference clock

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Seconds on the device of `repeats` runs.
double timed(Backend& backend, Workload& workload, int repeats, std::size_t& set) {
  backend.forget_marks();
  const std::size_t first = backend.mark(kComputeStream);
  for (int i = 0; i < repeats; ++i) workload.run(backend, set++);
  const std::size_t last = backend.mark(kComputeStream);
  return backend.between(first, last) / repeats / workload.parts();
}

/// Runs that warm up caches and clocks, and tell how many make one timing.
int warm_up(Backend& backend, Workload& workload, double slice, std::size_t& set) {
  const auto start = Clock::now();
  double device = timed(backend, workload, 1, set);
  int runs = 1;
  while (runs < 3 || (since(start) < 0.1 * slice && runs < 50)) device = timed(backend, workload, 1, set), ++runs;
  const double wall = since(start) / runs;
  const double wanted = std::ceil(kLeastTiming / std::max(device * workload.parts(), 1e-9));
  return static_cast<int>(std::clamp(wanted, 1.0, std::max(1.0, 0.8 * slice / kLeastTimings / wall)));
}

Sample measure_one(Backend& backend, Workload& workload, double slice, PowerMonitor& power, const std::function<bool()>& stop) {
  Sample sample = workload.sample();
  workload.prepare(backend);
  std::size_t set = 0;
  const int repeats = warm_up(backend, workload, slice, set);
  std::vector<double> times;
  power.begin();
  const auto start = Clock::now();
  while (static_cast<int>(times.size()) < kLeastTimings || (since(start) < slice && static_cast<int>(times.size()) < kMostTimings)) {
    times.push_back(timed(backend, workload, repeats, set));
    if (stop && stop() && !times.empty()) break;
  }
  const PowerReading reading = power.end();
  workload.finish(backend);
  sample.seconds = median(times);
  sample.fastest = quantile(times, 0);
  sample.spread = median_deviation(times) / sample.seconds;
  sample.runs = static_cast<int>(times.size()) * repeats;
  sample.clock_hertz = reading.clock_hertz;
  sample.watts = reading.watts;
  sample.tool = "plimsoll";
  return sample;
}

long preemptions() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

}  // namespace
}  // namespace calibrate

using calibrate::Workload;
using calibrate::Workloads;

struct MeasureSession::State {
  explicit State(const MeasureOptions& options_in) : options(options_in) {
    backend = calibrate::open_backend(options.backend, options.device, warnings);
    set.device = backend->facts();
    set.device.date = calibrate::today();
    if (set.device.driver.empty()) set.device.driver = calibrate::driver_version(set.device.backend);
    power = calibrate::PowerMonitor::of(set.device.backend, options.device, backend->pci_address());
    set.device.watts = power->cap_watts();
    wrong = calibrate::check_kernels(*backend);
    for (const calibrate::WrongKernel& each : wrong) {
      warnings.push_back(each.text());
      set.device.left_out.push_back(each.kernel + " " + each.type);
    }
    if (set.device.backend != "cpu" && backend->attention_library().empty())
      warnings.push_back("attention runs by our own kernels, not by those of frameworks: " + backend->no_attention_library());
    open_file();
    if (set.device.backend == "cpu") clock = std::make_unique<calibrate::ReferenceClock>(*backend);
  }
  ~State() {
    if (file) std::fclose(file);
  }

  /// How fast the machine is now, every so often.
  void read_clock() {
    if (!clock || (last_reading && calibrate::since(*last_reading) < calibrate::kReadingEvery)) return;
    const calibrate::ReferenceTimes now = clock->measure();
    keep(calibrate::reference_sample(calibrate::kReferenceProduct, now.product));
    keep(calibrate::reference_sample(calibrate::kReferenceStream, now.stream));
    last_reading = calibrate::Clock::now();
  }

  void measure_peers(double seconds) {
    const calibrate::PeerMeasurement found =
        calibrate::measure_peers(calibrate::driver_of(*backend), backend->shape(), set.device.devices, options.device,
                                 std::min(options.largest.count, backend->memory().free / 4), seconds, [this] { return stopped(); });
    for (const Sample& sample : found.samples) keep(sample);
    if (!found.why_not.empty()) warnings.push_back("no copies between devices: " + found.why_not);
  }

  void open_file() {
    if (options.samples_path.empty()) return;
    file = std::fopen(options.samples_path.c_str(), "wb");
    if (!file) fail("cannot be written", options.samples_path);
    write(to_json_line(set.device));
  }
  void write(const std::string& line) {
    if (!file) return;
    if (std::fwrite(line.data(), 1, line.size(), file) != line.size() || std::fflush(file) != 0)
      fail("could not be written to its end", options.samples_path);
  }
  void keep(const Sample& sample) {
    set.samples.push_back(sample);
    write(to_json_line(sample));
  }
  bool is_wrong(const Sample& sample) const {
    return std::any_of(wrong.begin(), wrong.end(), [&](const calibrate::WrongKernel& each) { return each.ran(sample); });
  }
  bool stopped() {
    interrupted = interrupted || (options.stop && options.stop());
    return interrupted;
  }

  /// How long the timings of a visit may last: an equal share, by weight, of what is left of the time when all visits still to come have
  /// had their buffers filled and their caches warmed.
  struct Slices {
    std::optional<double> seconds;
    double weights = 0;  ///< of all visits to come
    std::size_t visits = 0, done = 0;
    double beside = 0;  ///< seconds that the visits so far took beside their slices

    double next(double weight, double elapsed) const {
      if (!seconds) return calibrate::kWholeSlice * weight;
      const double each = done == 0 ? 0 : beside / static_cast<double>(done);
      const double left = *seconds - elapsed - each * static_cast<double>(visits - done);
      return std::max(calibrate::kLeastSlice, 0.8 * left * weight / weights);
    }
    void took(double whole, double slice, double weight) {
      ++done;
      weights -= weight;
      beside += std::max(0.0, whole - slice);
    }
  };

  /// Every workload twice, the second time in the opposite order, each with its share of what is left of the time.
  void measure(Workloads& list, std::optional<double> seconds) {
    list.erase(std::remove_if(list.begin(), list.end(), [&](const auto& workload) { return is_wrong(workload->sample()); }), list.end());
    std::vector<double> first(list.size(), 0);
    Slices slices{seconds, 0, calibrate::kVisits * list.size()};
    for (const auto& workload : list) slices.weights += calibrate::kVisits * workload->weight();
    const auto start = calibrate::Clock::now();
    const long preempted = calibrate::preemptions();
    std::size_t done = 0;
    for (int visit = 0; visit < calibrate::kVisits; ++visit)
      for (std::size_t i = 0; i < list.size() && !stopped(); ++i) {
        const std::size_t index = visit == 0 ? i : list.size() - 1 - i;
        Workload& workload = *list[index];
        const double now = calibrate::since(start), remaining = seconds ? std::max(0.0, *seconds - now) : HUGE_VAL;
        if (remaining == 0 && (visit > 0 || now > std::max(calibrate::kPatience * *seconds, calibrate::kLeastPatience))) {
          const double whole = now / static_cast<double>(done) * static_cast<double>(slices.visits);
          warnings.push_back(visit > 0 ? fmt::format("the time was up: everything was measured, {} of {} a second time to compare; both visits take "
                                                     "about {:.0f} s (--seconds)",
                                                     done - list.size(), list.size(), whole)
                                       : fmt::format("the time was up: {} of {} were measured; one visit to all takes about {:.0f} s, two {:.0f} s "
                                                     "(--seconds)",
                                                     done, list.size(), whole / calibrate::kVisits, whole));
          return;
        }
        read_clock();
        report(done, slices.visits, now, time_left(done, list.size(), now, seconds), workload.sample());
        const double slice = slices.next(workload.weight(), now);
        const auto began = calibrate::Clock::now();
        const Sample sample = calibrate::measure_one(*backend, workload, slice, *power, [this] { return stopped(); });
        slices.took(calibrate::since(began), slice, workload.weight());
        ++done;
        keep(sample);
        if (visit == 0)
          first[index] = sample.seconds;
        else
          compare(first[index], sample);
      }
    const double rate = static_cast<double>(calibrate::preemptions() - preempted) / std::max(calibrate::since(start), 1e-3);
    if (set.device.backend == "cpu" && rate > calibrate::kPreemptions)
      warnings.push_back(fmt::format("other work took the processors {:.0f} times a second: close it and measure again", rate));
  }

  /// At the pace so far: of both visits, or of the first, which is made in any case, where the time is up before.
  static double time_left(std::size_t done, std::size_t workloads, double elapsed, std::optional<double> seconds) {
    const double each = done == 0 ? 0 : elapsed / static_cast<double>(done);
    const double all = each * static_cast<double>(calibrate::kVisits * workloads - done);
    if (!seconds) return all;
    const double first = each * static_cast<double>(workloads - std::min(done, workloads));
    return done == 0 ? *seconds : std::max(first, std::min(all, std::max(0.0, *seconds - elapsed)));
  }

  void report(std::size_t done, std::size_t total, double elapsed, double remaining, const Sample& sample) const {
    if (!options.progress) return;
    std::string what = std::string(name_of(sample.kind)) + " " + (sample.kernel.empty() ? sample.group : sample.kernel);
    options.progress({done, total, elapsed, remaining, what});
  }
  void compare(double before, const Sample& sample) {
    if (before <= 0 || std::abs(sample.seconds / before - 1) <= calibrate::kDisagreement) return;
    ++disagreements;
    if (disagreements <= 5)
      warnings.push_back(fmt::format("{} {} took {} at first and {} later", name_of(sample.kind), sample.kernel, to_string(Seconds(before)),
                                     to_string(Seconds(sample.seconds))));
  }

  MeasureOptions options;
  std::vector<std::string> warnings;
  std::unique_ptr<calibrate::Backend> backend;
  std::unique_ptr<calibrate::PowerMonitor> power;
  SampleSet set;
  std::vector<calibrate::WrongKernel> wrong;
  std::unique_ptr<calibrate::ReferenceClock> clock;  ///< of a processor; a GPU's short kernels run at another clock than its steps
  std::optional<calibrate::Clock::time_point> last_reading;
  std::FILE* file = nullptr;
  bool interrupted = false;
  int disagreements = 0;
};

MeasureSession::MeasureSession(const MeasureOptions& options) : state_(std::make_unique<State>(options)) {}
MeasureSession::~MeasureSession() = default;
const SampleSet& MeasureSession::set() const { return state_->set; }
bool MeasureSession::interrupted() const { return state_->interrupted; }
const std::vector<std::string>& MeasureSession::warnings() const { return state_->warnings; }

void MeasureSession::measure_machine(double share) {
  State& state = *state_;
  if (state.set.device.backend != "cpu") {
    const calibrate::MemoryInfo memory = state.backend->memory();
    Sample context;
    context.kind = SampleKind::context_memory;
    context.bytes = memory.total - memory.free;
    context.tool = "plimsoll";
    state.keep(context);
  }
  const double peers = state.set.device.devices > 1 && state.set.device.backend != "cpu" ? calibrate::kPeerShare : 0;
  Workloads list = calibrate::machine_workloads(*state.backend, state.options.largest.count);
  const std::optional<double> seconds = state.options.seconds;
  state.measure(list, seconds ? std::optional((1 - peers) * share * *seconds) : std::nullopt);
  if (peers > 0 && !state.stopped()) state.measure_peers(seconds ? peers * share * *seconds : calibrate::kPeerSeconds);
}

void MeasureSession::measure_program(const PlayableRank& rank, double share) {
  Workloads list = calibrate::program_workloads(rank, *state_->backend);
  const std::optional<double> seconds = state_->options.seconds;
  state_->measure(list, seconds ? std::optional(share * *seconds) : std::nullopt);
}

}  // namespace plimsoll
