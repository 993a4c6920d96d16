// Processes that answer requests: one that takes too long, or dies of its request, is replaced and costs nobody else's.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

namespace plimsoll::serve {

enum class Outcome { answered, busy, too_slow, died };

struct Answer {
  Outcome outcome = Outcome::answered;
  std::string text;
};

class WorkerPool {
 public:
  /// Throws Error where a worker cannot be run.
  WorkerPool(std::vector<std::string> command, std::size_t workers, std::size_t waiting, double seconds);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Of any thread. Waits for a worker among at most `waiting` others.
  Answer ask(const std::string& request);

 private:
  struct Worker {
    pid_t process = -1;
    int requests = -1, answers = -1;  ///< ends of the pipes
  };

  Worker start() const;
  static void end(Worker& worker);
  Answer exchange(Worker& worker, const std::string& request) const;

  std::vector<std::string> command_;
  std::size_t waiting_;
  double seconds_;
  std::vector<Worker> workers_;
  std::vector<std::size_t> idle_;
  std::size_t in_line_ = 0;
  std::mutex mutex_;
  std::condition_variable freed_;
};

}  // namespace plimsoll::serve
