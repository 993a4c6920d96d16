// The processor as a device: kernels run at once, on all its cores, each thread on a core of its own.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>

#include "calibrate/backend.hpp"
#include "calibrate/cpu_kernels.hpp"
#include "calibrate/cpu_streams.hpp"
#include "calibrate/thread_pool.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

/// The value of a line "key : value" of /proc/cpuinfo, or empty.
std::string cpu_info(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key, 0) == 0)
      if (const std::size_t colon = line.find(':'); colon != std::string::npos && colon + 2 <= line.size()) return line.substr(colon + 2);
  return {};
}

/// The largest data cache that the first processor reaches.
std::int64_t last_level_cache() {
  std::int64_t most = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", index));
    std::int64_t size = 0;
    std::string unit;
    if (file >> size >> unit) most = std::max(most, size << (unit == "M" ? 20 : 10));
  }
  return most;
}

std::int64_t physical_memory(int name) { return static_cast<std::int64_t>(sysconf(name)) * sysconf(_SC_PAGESIZE); }

class CpuBackend : public Backend {
 public:
  CpuBackend() : pool_(usable_processors()) {}
  ~CpuBackend() override {
    for (const auto& [memory, bytes] : mapped_) munmap(memory, bytes);
  }

  DeviceFacts facts() const override {
    DeviceFacts facts;
    facts.backend = "cpu";
    facts.name = cpu_info("model name").empty() ? "processor" : cpu_info("model name");
    facts.target = cpu_instruction_set();
    facts.driver = "Linux";
    facts.library = "plimsoll's kernels, " + std::to_string(pool_.parts()) + " pinned threads";
    facts.compute_units = pool_.parts();
    facts.memory_bytes = physical_memory(_SC_PHYS_PAGES);
    facts.cache_bytes = last_level_cache();
    facts.clock_hertz = std::strtod(cpu_info("cpu MHz").c_str(), nullptr) * 1e6;
    return facts;
  }
  DeviceShape shape() const override { return {Target::cpu, pool_.parts()}; }
  MemoryInfo memory() const override { return {physical_memory(_SC_AVPHYS_PAGES), physical_memory(_SC_PHYS_PAGES)}; }

  /// Pages of its own, touched: a device's memory is there when it is given.
  void* allocate(std::size_t bytes) override {
    if (static_cast<std::int64_t>(bytes) > memory().free + kReclaimable)
      fail(fmt::format("{} are more than the {} of free memory", to_string(Bytes(static_cast<std::int64_t>(bytes))),
                       to_string(Bytes(memory().free))),
           "cpu", "fewer bytes: a smaller model or batch");
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("the system gives no " + to_string(Bytes(static_cast<std::int64_t>(bytes))), "cpu");
    mapped_[memory] = bytes;
    touch(memory, bytes);
    return memory;
  }
  void release(void* memory) override {
    const auto found = mapped_.find(memory);
    if (found == mapped_.end()) throw Error(ErrorCode::internal, "memory is released that was not allocated");
    munmap(memory, found->second);
    mapped_.erase(found);
  }
  void* reserve(std::size_t bytes) override {
    void* range = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) fail("the system gives no addresses for " + to_string(Bytes(static_cast<std::int64_t>(bytes))), "cpu");
    mapped_[range] = bytes;
    return range;
  }
  void release_range(void* range) override { release(range); }
  void map(void* at, std::size_t bytes, std::size_t) override {
    if (mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0) fail("the system gives no " + to_string(Bytes(static_cast<std::int64_t>(bytes))), "cpu");
    touch(at, bytes);
  }
  void unmap(void* at, std::size_t bytes) override {
    madvise(at, bytes, MADV_DONTNEED);
    mprotect(at, bytes, PROT_NONE);
  }
  void* allocate_host(std::size_t bytes) override { return allocate(bytes); }
  void release_host(void* memory) override { release(memory); }

  void copy(void* to, const void* from, std::size_t bytes, CopyDirection, StreamId) override {
    pool_.run([&](int part) {
      const auto [begin, end] = share_of(bytes, part, pool_.parts());
      std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin, end - begin);
    });
  }
  void fill(void* to, int byte, std::size_t bytes, StreamId) override {
    pool_.run([&](int part) {
      const auto [begin, end] = share_of(bytes, part, pool_.parts());
      std::memset(static_cast<std::byte*>(to) + begin, byte, end - begin);
    });
  }
  void launch(const Kernel& kernel, const Sizes& sizes, const std::vector<void*>& buffers, StreamId) override {
    const CpuKernel function = cpu_kernel(kernel.name);
    if (!function) refuse(std::string(kernel.name) + " has no version for the CPU", "cpu");
    pool_.run([&](int part) { function(sizes, buffers.data(), part, pool_.parts()); });
  }
  void wait(StreamId, StreamId) override {}
  void synchronize() override {}

  std::size_t mark(StreamId) override {
    marks_.push_back(std::chrono::steady_clock::now());
    return marks_.size() - 1;
  }
  double between(std::size_t first, std::size_t last) override {
    return std::chrono::duration<double>(marks_.at(last) - marks_.at(first)).count();
  }
  void forget_marks() override { marks_.clear(); }
  std::vector<double> processor_seconds() override { return pool_.processor_seconds(); }

  Work stream_bytes(plimsoll::KernelKind kind, void* from, std::int64_t read, void* to, std::int64_t written, StreamId) override {
    pool_.run([&](int part) { cpu_stream(kind, from, read, to, written, part, pool_.parts()); });
    return {static_cast<double>(read), static_cast<double>(written), 0};
  }

 private:
  /// Every page is written by the thread that will work on it.
  void touch(void* memory, std::size_t bytes) {
    madvise(memory, bytes, MADV_HUGEPAGE);
    auto* first = static_cast<std::byte*>(memory);
    pool_.run([&](int part) {
      const auto pages = bytes / 4096, n = static_cast<std::size_t>(pool_.parts()), i = static_cast<std::size_t>(part);
      const std::size_t from = pages * i / n * 4096, to = i + 1 == n ? bytes : pages * (i + 1) / n * 4096;
      std::memset(first + from, 0, to - from);
    });
  }

  static constexpr std::int64_t kReclaimable = std::int64_t{64} << 30;  // of the page cache, which the system gives back when asked

  ThreadPool pool_;
  std::map<void*, std::size_t> mapped_;
  std::vector<std::chrono::steady_clock::time_point> marks_;
};

}  // namespace

FoundBackend open_cpu() { return {std::make_unique<CpuBackend>(), {}}; }

}  // namespace plimsoll::calibrate
