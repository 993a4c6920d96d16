// Threads that each stay on one processor and run the parts of one kernel after another.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace plimsoll::calibrate {

class ThreadPool {
 public:
  /// One thread on each of `processors`; the caller runs the part of the first.
  explicit ThreadPool(std::vector<int> processors);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int parts() const { return static_cast<int>(processors_.size()); }
  /// Runs part(0) … part(parts − 1) and returns when all have ended.
  void run(const std::function<void(int)>& part);
  /// Seconds that each thread has had its processor so far; the caller's is that of the thread that asks.
  std::vector<double> processor_seconds();

 private:
  void work(int part);

  std::vector<int> processors_;
  std::vector<std::thread> threads_;
  const std::function<void(int)>* job_ = nullptr;
  std::atomic<unsigned> round_{0};
  std::atomic<int> running_{0};
  std::atomic<bool> ending_{false};
};

/// The processors that this process may use, the last first: interrupts of a virtual machine's devices come to the first.
std::vector<int> usable_processors();

}  // namespace plimsoll::calibrate
