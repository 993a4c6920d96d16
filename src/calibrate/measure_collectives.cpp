// Collectives across processes: every rank runs them, rank 0 keeps the times of the slowest.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "calibrate/peer_collectives.hpp"
#include "calibrate/power_monitor.hpp"
#include "calibrate/processes.hpp"
#include "calibrate/statistics.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace calibrate {
namespace {

using Clock = std::chrono::steady_clock;

constexpr CollectiveKind kKinds[] = {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
                                     CollectiveKind::all_to_all, CollectiveKind::broadcast};
constexpr double kSeconds = 60;  // unless told
constexpr std::int64_t kLargestOnHost = std::int64_t{64} << 20, kLargestOnDevice = std::int64_t{1} << 30;
constexpr double kLeastTiming = 200e-6;
constexpr int kLeastTimings = 5, kMostTimings = 100;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Buffers, and collectives on them.
class Runner {
 public:
  Runner(Backend& backend, Processes& processes, std::int64_t largest)
      : backend_(backend), processes_(processes), collectives_(std::make_unique<PeerCollectives>(backend, processes)) {
    send_ = backend.allocate(static_cast<std::size_t>(largest));
    receive_ = backend.allocate(static_cast<std::size_t>(largest));
    backend.fill(send_, 0, static_cast<std::size_t>(largest), kComputeStream);
    backend.fill(receive_, 0, static_cast<std::size_t>(largest), kComputeStream);
    backend.synchronize();
  }
  ~Runner() {
    collectives_.reset();
    backend_.release(send_);
    backend_.release(receive_);
  }
  std::string library() const { return collectives_->library(); }

  void run(CollectiveKind kind, std::int64_t bytes) { collectives_->run(Group::world, kind, send_, receive_, bytes, kComputeStream); }
  void finish() { backend_.synchronize(); }

  /// Sums and copies of the ranks' numbers, against what they must be.
  void check(CollectiveKind kind) {
    const int ranks = processes_.place().ranks, rank = processes_.place().rank;
    constexpr int kPart = 4;
    std::vector<float> mine(static_cast<std::size_t>(kPart * ranks)), got(mine.size(), -1);
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = static_cast<float>(rank * 1000) + static_cast<float>(i);
    const std::size_t bytes = mine.size() * sizeof(float);
    backend_.copy(send_, mine.data(), bytes, CopyDirection::host_to_device, kComputeStream);
    if (kind == CollectiveKind::broadcast) backend_.copy(receive_, mine.data(), bytes, CopyDirection::host_to_device, kComputeStream);
    finish();
    run(kind, static_cast<std::int64_t>(bytes));
    backend_.copy(got.data(), receive_, bytes, CopyDirection::device_to_host, kComputeStream);
    finish();
    double wrong = 0;
    for (int i = 0; i < received(kind, kPart, ranks); ++i)
      wrong += std::abs(got[static_cast<std::size_t>(i)] - expected(kind, i, kPart)) > 0.5;
    if (processes_.largest(wrong) > 0)
      fail(std::string(plimsoll::name_of(kind)) + " gives a wrong answer", library(), "nothing measured with it can be trusted");
  }

 private:
  static int received(CollectiveKind kind, int part, int ranks) { return kind == CollectiveKind::reduce_scatter ? part : part * ranks; }
  double expected(CollectiveKind kind, int i, int part) const {
    const int ranks = processes_.place().ranks, rank = processes_.place().rank;
    const int part_of = i / part;  // whose part the element lies in
    const double sum = 1000.0 * ranks * (ranks - 1) / 2, owner = part_of;
    switch (kind) {
      case CollectiveKind::all_reduce:
        return sum + ranks * i;
      case CollectiveKind::reduce_scatter:
        return sum + ranks * (rank * part + i);
      case CollectiveKind::all_gather:
        return 1000.0 * owner + i % part;
      case CollectiveKind::all_to_all:
        return 1000.0 * owner + rank * part + i % part;
      default:
        return i;  // what rank 0 had
    }
  }

  Backend& backend_;
  Processes& processes_;
  std::unique_ptr<PeerCollectives> collectives_;
  void *send_ = nullptr, *receive_ = nullptr;
};

/// Every rank takes part in every decision: rank 0 makes it.
template <class T>
T agreed(Processes& processes, T value) {
  processes.share(processes.everybody(), &value, sizeof value);
  return value;
}

double timed(Runner& runner, Processes& processes, CollectiveKind kind, std::int64_t bytes, int repeats) {
  processes.barrier();
  const auto start = Clock::now();
  for (int i = 0; i < repeats; ++i) runner.run(kind, bytes);
  runner.finish();
  return processes.largest(since(start) / repeats);
}

Sample measure_one(Runner& runner, Processes& processes, CollectiveKind kind, std::int64_t bytes, double slice) {
  for (int warm = 0; warm < 2; ++warm) timed(runner, processes, kind, bytes, 1);
  const double once = timed(runner, processes, kind, bytes, 3);
  const int repeats =
      agreed(processes, static_cast<int>(std::clamp(std::ceil(kLeastTiming / once), 1.0, std::max(1.0, slice / kLeastTimings / once))));
  std::vector<double> times;
  const auto start = Clock::now();
  for (bool more = true; more;) {
    times.push_back(timed(runner, processes, kind, bytes, repeats));
    const auto count = static_cast<int>(times.size());
    more = agreed(processes, count < kLeastTimings || (since(start) < slice && count < kMostTimings));
  }
  Sample sample;
  sample.kind = SampleKind::collective;
  sample.kernel = sample.group = plimsoll::name_of(kind);
  sample.type = "fp32";
  sample.bytes = bytes;
  sample.ranks = processes.place().ranks;
  sample.nodes = processes.place().nodes;
  sample.seconds = median(times);
  sample.fastest = quantile(times, 0);
  sample.spread = median_deviation(times) / sample.seconds;
  sample.runs = static_cast<int>(times.size()) * repeats;
  sample.tool = "plimsoll";
  return sample;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

/// Sizes from 1 KiB by fours, whole floats for every rank.
std::vector<std::int64_t> sizes_to(std::int64_t largest, int ranks) {
  std::vector<std::int64_t> sizes;
  const std::int64_t quantum = 4LL * ranks;
  for (std::int64_t bytes = 1024; bytes <= largest; bytes *= 4) sizes.push_back(round_up(bytes, quantum));
  return sizes;
}

}  // namespace
}  // namespace calibrate

CollectiveMeasurement measure_collectives(const MeasureOptions& options) {
  calibrate::Processes processes;
  const plimsoll_mpi_place place = processes.place();
  CollectiveMeasurement result;
  result.rank = place.rank;
  result.ranks = place.ranks;
  if (place.ranks < 2)
    fail("there is one process only: nobody to talk to", "--collectives", "mpirun -n 8 plimsoll calibrate --collectives");
  const auto backend = calibrate::open_backend(options.backend, options.backend == "cpu" ? options.device : place.local_rank, result.notes);
  result.set.device = backend->facts();
  result.set.device.date = calibrate::today();
  const bool host = result.set.device.backend == "cpu";
  const std::int64_t largest = std::min(options.largest.count, host ? calibrate::kLargestOnHost : calibrate::kLargestOnDevice);
  calibrate::Runner runner(*backend, processes, std::max<std::int64_t>(largest * 2, 1 << 16));
  result.set.device.library += ", " + runner.library();
  std::FILE* file = nullptr;
  if (place.rank == 0 && !options.samples_path.empty()) {
    file = std::fopen(options.samples_path.c_str(), "wb");
    if (!file) fail("cannot be written", options.samples_path);
    std::fputs(to_json_line(result.set.device).c_str(), file);
  }
  const auto sizes = calibrate::sizes_to(largest, place.ranks);
  const std::size_t total = sizes.size() * std::size(calibrate::kKinds);
  const auto start = calibrate::Clock::now();
  for (CollectiveKind kind : calibrate::kKinds) runner.check(kind);
  std::size_t done = 0;
  for (std::int64_t bytes : sizes)
    for (CollectiveKind kind : calibrate::kKinds) {
      const double remaining =
          calibrate::agreed(processes, std::max(0.0, options.seconds.value_or(calibrate::kSeconds) - calibrate::since(start)));
      if (calibrate::agreed(processes, options.stop && options.stop())) break;
      if (place.rank == 0 && options.progress)
        options.progress({done, total, calibrate::since(start), remaining, std::string(name_of(kind))});
      const Sample sample = calibrate::measure_one(runner, processes, kind, bytes, remaining / static_cast<double>(total - done++));
      result.set.samples.push_back(sample);
      if (file) std::fputs(to_json_line(sample).c_str(), file), std::fflush(file);
    }
  if (file) std::fclose(file);
  return result;
}

}  // namespace plimsoll
