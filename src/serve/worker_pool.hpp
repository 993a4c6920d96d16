// Processes that answer requests: one that takes too long, or dies of its request, is replaced and costs nobody else's.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace plimsoll::serve {

enum class Outcome { answered, busy, too_slow, too_large, died };

struct Answer {
  Outcome outcome = Outcome::answered;
  std::string text;
};

class WorkerPool {
 public:
  /// Gets its own request again, with the answer.
  using Done = std::function<void(const std::string& request, Answer answer)>;

  /// Throws Error where a worker cannot be run.
  WorkerPool(std::vector<std::string> command, std::size_t workers, std::size_t waiting, double seconds);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Of any thread, and waits for nothing. `done` is called once: by a worker's thread, or at once where `waiting` others wait already.
  void ask(std::string request, Done done);

 private:
  struct Worker {
    pid_t process = -1;
    int requests = -1, answers = -1;  ///< ends of the pipes
  };
  struct Job {
    std::string request;
    Done done;
    std::chrono::steady_clock::time_point since;
  };

  Worker start() const;
  static void end(Worker& worker);
  void work(Worker& worker);
  Answer answer(Worker& worker, const Job& job) const;
  Answer exchange(const Worker& worker, const std::string& request) const;

  std::vector<std::string> command_;
  std::size_t waiting_;
  double seconds_;
  std::vector<Worker> workers_;
  std::vector<std::thread> threads_;  // one for each worker
  std::deque<Job> jobs_;
  std::size_t idle_ = 0;
  bool ending_ = false;
  std::mutex mutex_;
  std::condition_variable asked_;
};

}  // namespace plimsoll::serve
