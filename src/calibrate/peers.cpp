#include "calibrate/peers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "calibrate/statistics.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kSmallest = 16384, kLargest = std::int64_t{256} << 20, kGrowth = 8;
constexpr int kLeastTimings = 5, kMostTimings = 50, kRepeats = 4;
constexpr const char* kKernels[] = {"all_reduce_fp32", "all_gather_fp32", "reduce_scatter_fp32"};
constexpr int kMostPeers = 16;  // that the kernels' flags have room for

// All devices of the process, each with its module, a stream, a buffer that the others reach, and flags.
class PeerGroup {
 public:
  PeerGroup(GpuDriver& driver, const DeviceShape& shape, int devices, int device, std::int64_t largest)
      : driver_(driver), shape_(shape), device_(device), peers_(static_cast<std::size_t>(devices)), largest_(largest) {
    for (int i = 0; i < devices; ++i) open(i);
    for (int i = 0; i < devices; ++i) share(i);
  }
  PeerGroup(const PeerGroup&) = delete;
  PeerGroup& operator=(const PeerGroup&) = delete;
  ~PeerGroup() {
    for (int i = 0; i < ranks(); ++i) {
      driver_.select(i);
      const Peer& peer = at(i);
      for (void* memory : {peer.data, peer.flags, peer.data_table, peer.flag_table}) driver_.release(memory);
    }
    driver_.select(device_);
  }

  int ranks() const { return static_cast<int>(peers_.size()); }

  /// Seconds of one run on device 0, of several one after the other.
  template <class Run>
  double timed(Run run) {
    select(0);
    void *begin = nullptr, *end = nullptr;
    check(driver_, driver_.create_event(&begin), "EventCreate");
    check(driver_, driver_.create_event(&end), "EventCreate");
    run();  // brings the devices together
    select(0);
    check(driver_, driver_.record(begin, at(0).stream), "EventRecord");
    for (int i = 0; i < kRepeats; ++i) run();
    select(0);
    check(driver_, driver_.record(end, at(0).stream), "EventRecord");
    check(driver_, driver_.wait_for(end), "EventSynchronize");
    float milliseconds = 0;
    check(driver_, driver_.elapsed(&milliseconds, begin, end), "EventElapsedTime");
    driver_.destroy_event(begin);
    driver_.destroy_event(end);
    synchronize();
    return milliseconds * 1e-3 / kRepeats;
  }

  void copy_to(int peer, std::int64_t bytes) {
    select(0);
    check(driver_, driver_.copy(at(peer).data, at(0).data, static_cast<std::size_t>(bytes), CopyDirection::device_to_device, at(0).stream),
          "MemcpyAsync between devices");
  }

  /// One launch on every device; they wait for each other on the way.
  void collective(const Kernel& kernel, const Sizes& sizes) {
    for (int rank = 0; rank < ranks(); ++rank) {
      select(rank);
      Peer& peer = at(rank);
      void* function = nullptr;
      check(driver_, driver_.function(&function, peer.module, std::string(kernel.name).c_str()), "ModuleGetFunction");
      PackedArguments arguments(kernel, sizes, {peer.data_table, peer.flag_table},
                                {static_cast<double>(rank), static_cast<double>(epoch_)});
      check(driver_, driver_.launch(function, kernel.launch(sizes, shape_), peer.stream, arguments.pointers()), std::string(kernel.name).c_str());
    }
    ++epoch_;
  }

  /// Runs a small problem of random data and compares it with the reference.
  void check_answer_of(const Kernel& kernel) {
    const Sizes sizes{kSmallest / 4 / (4 * ranks()) * (4 * ranks()), ranks()};
    std::vector<HostBuffers> before, after;
    for (int rank = 0; rank < ranks(); ++rank) {
      select(rank);
      before.push_back(make_buffers(kernel, sizes, shape_, 1, rank));
      move(at(rank).data, before.back()[0].data(), before.back()[0].size(), CopyDirection::host_to_device, rank);
    }
    synchronize();
    collective(kernel, sizes);
    synchronize();
    after = before;
    for (int rank = 0; rank < ranks(); ++rank) {
      auto& data = after[static_cast<std::size_t>(rank)][0];
      select(rank);
      move(data.data(), at(rank).data, data.size(), CopyDirection::device_to_host, rank);
    }
    synchronize();
    const Check answer = check_answer(kernel, sizes, shape_, before, after);
    if (!answer.passed())
      fail(fmt::format("{} over {} devices gives a wrong answer: {}", kernel.name, ranks(), answer.where), driver_.backend(),
           "nothing measured between these devices can be trusted");
  }

  void synchronize() {
    for (int rank = 0; rank < ranks(); ++rank) {
      select(rank);
      check(driver_, driver_.synchronize(), "DeviceSynchronize");
    }
  }

 private:
  struct Peer {
    void *module = nullptr, *stream = nullptr, *data = nullptr, *flags = nullptr, *data_table = nullptr, *flag_table = nullptr;
  };

  Peer& at(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  void select(int device) { check(driver_, driver_.select(device), "SetDevice"); }
  void move(void* to, const void* from, std::size_t bytes, CopyDirection direction, int rank) {
    check(driver_, driver_.copy(to, from, bytes, direction, at(rank).stream), "MemcpyAsync");
  }

  void open(int device) {
    select(device);
    std::string architecture;
    check(driver_, driver_.architecture(device, architecture), "GetDeviceProperties");
    const CodeObject* object = driver_.code_object(architecture);
    if (!object) fail(why_no_code_object(architecture), driver_.backend());
    Peer& peer = at(device);
    check(driver_, driver_.load(&peer.module, *object), "ModuleLoadData");
    check(driver_, driver_.create_stream(&peer.stream), "StreamCreate");
    const Buffer& flags = kernel_named(kKernels[0]).buffers.at(1);
    const auto flag_bytes = static_cast<std::size_t>(flags.count({}) * size_of(flags.type));
    check(driver_, driver_.allocate_shared(&peer.data, static_cast<std::size_t>(largest_)), "Malloc");
    check(driver_, driver_.allocate_shared(&peer.flags, flag_bytes), "Malloc");
    check(driver_, driver_.fill(peer.data, 0, static_cast<std::size_t>(largest_), peer.stream), "MemsetAsync");
    check(driver_, driver_.fill(peer.flags, 0, flag_bytes, peer.stream), "MemsetAsync");
    check(driver_, driver_.synchronize(), "DeviceSynchronize");
  }

  // Gives a device the addresses of everybody's buffers.
  void share(int device) {
    select(device);
    std::vector<void*> data, flags;
    for (int i = 0; i < ranks(); ++i) {
      data.push_back(at(i).data);
      flags.push_back(at(i).flags);
      constexpr int kAlreadyEnabled = 704;
      const int code = i == device ? 0 : driver_.enable_peer(i);
      if (code != kAlreadyEnabled) check(driver_, code, "EnablePeerAccess");
    }
    Peer& peer = at(device);
    const std::size_t bytes = data.size() * sizeof(void*);
    check(driver_, driver_.allocate(&peer.data_table, bytes), "Malloc");
    check(driver_, driver_.allocate(&peer.flag_table, bytes), "Malloc");
    move(peer.data_table, data.data(), bytes, CopyDirection::host_to_device, device);
    move(peer.flag_table, flags.data(), bytes, CopyDirection::host_to_device, device);
    check(driver_, driver_.synchronize(), "DeviceSynchronize");
  }

  GpuDriver& driver_;
  DeviceShape shape_;
  int device_;
  std::vector<Peer> peers_;
  std::int64_t largest_;
  std::int64_t epoch_ = 0;
};

/// A pair of devices that cannot reach each other, in words; empty where all can.
std::string unreachable(GpuDriver& driver, int devices) {
  for (int from = 0; from < devices; ++from) {
    for (int to = 0; to < devices; ++to) {
      int can = 1;
      if (from != to) check(driver, driver.can_access_peer(&can, from, to), "DeviceCanAccessPeer");
      if (!can) return fmt::format("device {} cannot reach device {}'s memory", from, to);
    }
  }
  return {};
}

template <class Run>
void measure(PeerGroup& group, Sample sample, double slice, Run run, std::vector<Sample>& samples) {
  const auto start = Clock::now();
  std::vector<double> times;
  while (times.size() < kLeastTimings ||
         (times.size() < kMostTimings && std::chrono::duration<double>(Clock::now() - start).count() < slice)) {
    times.push_back(group.timed(run));
  }
  sample.seconds = median(times);
  sample.fastest = quantile(times, 0);
  sample.spread = median_deviation(times) / sample.seconds;
  sample.runs = static_cast<int>(times.size()) * kRepeats;
  sample.tool = kPeerTool;
  samples.push_back(sample);
}

}  // namespace

PeerMeasurement measure_peers(GpuDriver& driver, const DeviceShape& shape, int devices, int device, std::int64_t largest, double seconds,
                              const std::function<bool()>& stop) {
  PeerMeasurement result;
  const int ranks = std::min(devices, kMostPeers);
  if (ranks < 2) result.why_not = "there is one device only";
  if (result.why_not.empty()) result.why_not = unreachable(driver, ranks);
  if (!result.why_not.empty()) return result;

  largest = std::clamp(largest, kSmallest, kLargest);
  std::vector<std::int64_t> sizes;
  for (std::int64_t bytes = kSmallest; bytes <= largest; bytes *= kGrowth) sizes.push_back(bytes);
  PeerGroup group(driver, shape, ranks, device, largest);
  const double slice = seconds / static_cast<double>(sizes.size() * (1 + std::size(kKernels)));
  for (const std::int64_t bytes : sizes) {
    if (stop && stop()) return result;
    Sample sample;
    sample.kind = SampleKind::peer_copy;
    sample.bytes = bytes;
    sample.ranks = 2;
    measure(
        group, sample, slice, [&] { group.copy_to(1, bytes); }, result.samples);
  }
  for (const char* name : kKernels) {
    const Kernel& kernel = kernel_named(name);
    group.check_answer_of(kernel);
    for (const std::int64_t bytes : sizes) {
      if (stop && stop()) return result;
      const std::int64_t count = bytes / 4 / (4 * ranks) * (4 * ranks);
      Sample sample;
      sample.kind = SampleKind::collective;
      sample.kernel = name;
      sample.group = name_of(kernel.kind);
      sample.bytes = 4 * count;
      sample.ranks = ranks;
      measure(
          group, sample, slice,
          [&] {
            group.collective(kernel, {count, ranks});
          },
          result.samples);
    }
  }
  return result;
}

}  // namespace plimsoll::calibrate
