#include "serve/worker_pool.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "plimsoll/error.hpp"
#include "plimsoll/plimsoll.h"
#include "serve/serve.hpp"
#include "units/files.hpp"

extern char** environ;

namespace plimsoll::serve {
namespace {

using Clock = std::chrono::steady_clock;

/// Whether the pipe was ready before the deadline.
bool wait_for(int pipe, short what, Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  pollfd watched{pipe, what, 0};
  return poll(&watched, 1, static_cast<int>(left > 0 ? left + 1 : 0)) > 0;
}

enum class Moved { all, too_slow, closed };

template <class Byte, class Move>
Moved move_all(int pipe, Byte* bytes, std::size_t count, short what, Clock::time_point deadline, Move move) {
  while (count > 0) {
    if (!wait_for(pipe, what, deadline)) return Moved::too_slow;
    const ssize_t moved = move(pipe, bytes, count);
    if (moved < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (moved <= 0) return Moved::closed;
    bytes += moved;
    count -= static_cast<std::size_t>(moved);
  }
  return Moved::all;
}

std::uint32_t length_of(const char* four) {
  std::uint32_t length = 0;
  std::memcpy(&length, four, sizeof length);
  return length;
}

std::string framed(const std::string& text) {
  const auto length = static_cast<std::uint32_t>(text.size());
  std::string frame(reinterpret_cast<const char*>(&length), sizeof length);
  return frame + text;
}

/// This process's environment for a worker, whose allocator keeps some of what it frees at hand by size: glibc else joins and cuts it again
/// with every object that an estimate makes. Thousands at hand would save a twentieth of its time, and grow with every request: what is kept
/// by size is never joined again. Words of the user's stay as they are.
class WorkerEnvironment {
 public:
  WorkerEnvironment() {
    bool tuned = false;
    for (char** word = environ; *word; ++word) {
      tuned = tuned || std::strncmp(*word, "GLIBC_TUNABLES=", std::strlen("GLIBC_TUNABLES=")) == 0;
      words_.push_back(*word);
    }
    if (!tuned) words_.push_back(tunables_.data());
    words_.push_back(nullptr);
  }
  char** words() { return words_.data(); }

 private:
  std::string tunables_ = "GLIBC_TUNABLES=glibc.malloc.tcache_count=128";
  std::vector<char*> words_;
};

/// What ends a terminal's or a scheduler's whole group never reaches a worker, from its first instruction on: the server says when to end,
/// by closing the pipe.
class WorkerSignals {
 public:
  WorkerSignals() {
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setsigmask(&attributes_, &blocked);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK);
  }
  ~WorkerSignals() { posix_spawnattr_destroy(&attributes_); }
  WorkerSignals(const WorkerSignals&) = delete;
  WorkerSignals& operator=(const WorkerSignals&) = delete;
  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

}  // namespace

WorkerPool::WorkerPool(std::vector<std::string> command, std::size_t workers, std::size_t waiting, double seconds)
    : command_(std::move(command)), waiting_(waiting), seconds_(seconds), idle_(workers) {
  std::signal(SIGPIPE, SIG_IGN);  // a worker that died is a result
  for (std::size_t i = 0; i < workers; ++i) workers_.push_back(start());
  for (Worker& worker : workers_) threads_.emplace_back([this, &worker] { work(worker); });
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  asked_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (Worker& worker : workers_) end(worker);
}

WorkerPool::Worker WorkerPool::start() const {
  int requests[2], answers[2];
  if (pipe2(requests, O_CLOEXEC) != 0) fail("a worker cannot be run", command_.front(), std::strerror(errno));
  if (pipe2(answers, O_CLOEXEC) != 0) {
    close(requests[0]), close(requests[1]);
    fail("a worker cannot be run", command_.front(), std::strerror(errno));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, requests[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, answers[1], STDOUT_FILENO);
  std::vector<char*> words;
  for (const std::string& word : command_) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  Worker worker{-1, requests[1], answers[0]};
  WorkerEnvironment environment;
  const WorkerSignals signals;
  const int problem = posix_spawn(&worker.process, command_.front().c_str(), &actions, signals.get(), words.data(), environment.words());
  posix_spawn_file_actions_destroy(&actions);
  close(requests[0]), close(answers[1]);
  if (problem != 0) {
    close(requests[1]), close(answers[0]);
    fail("a worker cannot be run", command_.front(), std::strerror(problem));
  }
  fcntl(worker.requests, F_SETFL, O_NONBLOCK);
  fcntl(worker.answers, F_SETFL, O_NONBLOCK);
  return worker;
}

void WorkerPool::end(Worker& worker) {
  if (worker.process <= 0) return;
  close(worker.requests), close(worker.answers);
  kill(worker.process, SIGKILL);
  while (waitpid(worker.process, nullptr, 0) < 0 && errno == EINTR) {
  }
  worker = Worker{};
}

Answer WorkerPool::exchange(const Worker& worker, const std::string& request) const {
  constexpr std::uint32_t kLargest = 16U << 20;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_));
  const std::string frame = framed(request);
  Moved moved = move_all(worker.requests, frame.data(), frame.size(), POLLOUT, deadline, write);
  char four[4];
  if (moved == Moved::all) moved = move_all(worker.answers, four, sizeof four, POLLIN, deadline, read);
  std::string text;
  if (moved == Moved::all) {
    if (length_of(four) > kLargest) return {Outcome::too_large, {}};
    text.resize(length_of(four));
    moved = move_all(worker.answers, text.data(), text.size(), POLLIN, deadline, read);
  }
  if (moved == Moved::all) return {Outcome::answered, std::move(text)};
  return {moved == Moved::too_slow ? Outcome::too_slow : Outcome::died, {}};
}

Answer WorkerPool::answer(Worker& worker, const Job& job) const {
  if (Clock::now() - job.since > std::chrono::duration<double>(seconds_)) return {Outcome::busy, {}};
  try {
    if (worker.process > 0 && waitpid(worker.process, nullptr, WNOHANG) != 0) {  // it died while nobody asked: costs nobody a request
      worker.process = -1;
      close(worker.requests), close(worker.answers);
    }
    if (worker.process <= 0) worker = start();
    Answer answer = exchange(worker, job.request);
    if (answer.outcome != Outcome::answered) end(worker);
    return answer;
  } catch (const std::exception&) {  // no process, or no memory for one: the next request tries again
    return {Outcome::died, {}};
  }
}

void WorkerPool::work(Worker& worker) {
  for (;;) {
    std::unique_lock lock(mutex_);
    asked_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    --idle_;
    lock.unlock();
    Answer found = answer(worker, job);
    lock.lock();
    ++idle_;  // before the answer is told: who asks again at once finds a free worker
    lock.unlock();
    job.done(job.request, std::move(found));
  }
}

void WorkerPool::ask(std::string request, Done done) {
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.size() < waiting_ + idle_) {
      jobs_.push_back({std::move(request), std::move(done), Clock::now()});
      asked_.notify_one();
      return;
    }
  }
  done(request, {Outcome::busy, {}});
}

namespace {

/// What one request took is there for the next: given back to the kernel, it would come again page by page, a third of an estimate's time.
void keep_freed_memory() {
#if defined(__GLIBC__)
  constexpr int kKept = 256 << 20;
  mallopt(M_MMAP_THRESHOLD, kKept);
  mallopt(M_TRIM_THRESHOLD, kKept);
#endif
}

}  // namespace

int run_worker(std::size_t memory) {
  keep_freed_memory();
  const auto limit = [](int resource, rlim_t most) {
    const rlimit both{most, most};
    setrlimit(static_cast<__rlimit_resource_t>(resource), &both);
  };
#ifdef __SANITIZE_ADDRESS__
  (void)memory;  // the sanitizer's shadow alone takes terabytes of addresses
#else
  limit(RLIMIT_AS, memory);
#endif
  limit(RLIMIT_NOFILE, 3);
  limit(RLIMIT_CORE, 0);
  files::close();  // names of models and clusters are looked up in the library, never on the disk
  char four[4];
  while (std::fread(four, sizeof four, 1, stdin) == 1) {
    std::string request(length_of(four), '\0');
    if (!request.empty() && std::fread(request.data(), request.size(), 1, stdin) != 1) return 1;
    char* answer = plimsoll_call(request.c_str());
    if (!answer) return 1;  // memory is exhausted: what is left of it would not do for the next request either
    const std::string frame = framed(answer);
    plimsoll_free(answer);
    if (std::fwrite(frame.data(), frame.size(), 1, stdout) != 1 || std::fflush(stdout) != 0) return 1;
  }
  return 0;
}

}  // namespace plimsoll::serve
