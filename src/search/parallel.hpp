// Work on all cores, and whether it may go on.
#pragma once

#include <atomic>
#include <cstdint>

#include "plimsoll/search.hpp"
#include "units/threads.hpp"

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

inline int threads_of(const SearchRequest& request) { return request.threads > 0 ? request.threads : machine_threads(); }

/// Calls `work(item, thread)` for every item below `items`, on `threads` threads of which the caller's is the first; between its own items
/// that one tells `watch`. Ends early when the watcher says so, or with the first exception.
template <class Work>
void parallel_for(std::uint64_t items, int threads, Watch& watch, const char* phase, const Work& work) {
  on_threads(items, threads, [&](std::uint64_t item, int thread) {
    if (thread == 0) watch.tell(phase, item, items);
    if (!watch.stopped()) work(item, thread);
    return !watch.stopped();
  });
}

}  // namespace plimsoll::searching
