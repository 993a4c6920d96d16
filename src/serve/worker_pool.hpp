// Processes that answer requests: one that takes too long, or dies of its request, is replaced and costs nobody else's.
//
// Requests wait in two lanes, each with workers of its own. In the quick one all begin that are not large; one that turns out to be long leaves
// it, and begins anew in the patient one, whose workers have what processors the quick ones leave. So neither long nor large requests, however
// many, are waited for by others than their like.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
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

  /// So many workers and waiting requests of each lane. Throws Error where a worker cannot be run.
  WorkerPool(std::vector<std::string> command, std::size_t workers, std::size_t waiting, double seconds);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Of any thread, and waits for nothing. `done` is called once: by a worker's thread, or at once where `waiting` others wait there already.
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

  struct Lane {
    bool patient = false;  ///< lets quick ones go before, and a request take all of its time
    std::deque<Job> jobs;
    std::size_t idle = 0;
    std::vector<Worker> workers;
    std::vector<std::thread> threads;  // one for each worker
    bool ending = false;
    std::condition_variable asked;
  };

  void open(Lane& lane);
  void end(Lane& lane);
  Worker start(const Lane& lane) const;
  static void end(Worker& worker);
  /// Runs it anew where it ended. False: it cannot be run now.
  bool revive(const Lane& lane, Worker& worker) const;
  void work(Lane& lane, Worker& worker);
  /// Whether there was room for it; else it is left as it was.
  bool enter(Lane& lane, Job& job);
  /// Nothing, of both: it is too long for this lane.
  std::optional<Answer> answer(const Lane& lane, Worker& worker, const Job& job) const;
  std::optional<Answer> exchange(const Lane& lane, const Worker& worker, const std::string& request) const;

  std::vector<std::string> command_;
  std::size_t waiting_;
  double seconds_;
  Lane quick_, patient_;
  std::mutex mutex_;
};

}  // namespace plimsoll::serve
