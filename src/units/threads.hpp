// Work on several threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>
#ifndef __EMSCRIPTEN__  // a page has one
#include <thread>
#endif

namespace plimsoll {

/// Threads that the machine runs at once; one where there is but one to be had.
inline int machine_threads() {
#ifdef __EMSCRIPTEN__
  return 1;
#else
  const unsigned machine = std::thread::hardware_concurrency();
  return machine > 0 ? static_cast<int>(machine) : 1;
#endif
}

/// Calls `work(item, thread)` for every item below `items`, in order, on `threads` threads of which the caller's is the first, until one
/// answers that this is enough. Ends early with an exception: of several the one of the first item is thrown.
template <class Work>
void on_threads(std::uint64_t items, [[maybe_unused]] int threads, const Work& work) {
  std::atomic<std::uint64_t> next{0};
  std::exception_ptr failed;
  std::uint64_t failed_at = items;
  std::mutex failing;
  const auto run = [&](int thread) {
    for (std::uint64_t item = next++; item < items; item = next++) {
      try {
        if (!work(item, thread)) next = items;
      } catch (...) {
        const std::lock_guard lock(failing);
        next = items;
        if (item >= failed_at) continue;
        failed = std::current_exception();
        failed_at = item;
      }
    }
  };
#ifdef __EMSCRIPTEN__
  run(0);
#else
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads && static_cast<std::uint64_t>(thread) < items; ++thread) others.emplace_back(run, thread);
  run(0);
  for (std::thread& each : others) each.join();
#endif
  if (failed) std::rethrow_exception(failed);
}

}  // namespace plimsoll
