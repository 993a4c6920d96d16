// Work on all cores, and whether it may go on.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "plimsoll/search.hpp"

namespace plimsoll::searching {

/// Tells the watcher how far a phase is, and remembers that it said stop.
class Watch {
 public:
  explicit Watch(const SearchWatcher& watcher) : watcher_(watcher) {}
  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }
  void tell(const char* phase, std::uint64_t done, std::uint64_t of) {
    if (watcher_ && !watcher_({phase, done, of, best_seconds})) stopped_.store(true, std::memory_order_relaxed);
  }
  double best_seconds = 0;

 private:
  const SearchWatcher& watcher_;
  std::atomic<bool> stopped_{false};
};

inline int threads_of(const SearchRequest& request) {
  const unsigned machine = std::thread::hardware_concurrency();
  return request.threads > 0 ? request.threads : machine > 0 ? static_cast<int>(machine) : 1;
}

/// Calls `work(item, thread)` for every item below `items`, on `threads` threads of which the caller's is the first; between its own items
/// that one tells `watch`. Ends early when the watcher says so, or with the first exception.
template <class Work>
void parallel_for(std::uint64_t items, int threads, Watch& watch, const char* phase, const Work& work) {
  std::atomic<std::uint64_t> next{0};
  std::exception_ptr failed;
  std::mutex failing;
  const auto run = [&](int thread) {
    try {
      for (std::uint64_t item = next++; item < items && !watch.stopped(); item = next++) {
        if (thread == 0) watch.tell(phase, item, items);
        work(item, thread);
      }
    } catch (...) {
      const std::lock_guard lock(failing);
      if (!failed) failed = std::current_exception();
      next = items;
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads && static_cast<std::uint64_t>(thread) < items; ++thread) others.emplace_back(run, thread);
  run(0);
  for (std::thread& each : others) each.join();
  if (failed) std::rethrow_exception(failed);
}

}  // namespace plimsoll::searching
