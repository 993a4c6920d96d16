#include "serve/worker_pool.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <new>
#include <optional>

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

/// Larger requests are read and parsed in more time than an estimate takes: no estimate waits for them.
constexpr std::size_t kLarge = 64U << 10;
/// Of a processor's time, that a request may have in the quick lane: ten times what most estimates take. The clock would tell how busy the
/// machine is.
constexpr double kQuickSeconds = 0.1;
/// Of the patient lane's workers: a tenth of a quick one's share, where both would run.
constexpr int kPatience = 10;

/// What a process has had of the processors; 0 where it is no more.
double processor_seconds(pid_t process) {
  clockid_t clock;
  timespec had{};
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &had) != 0) return 0;
  return static_cast<double>(had.tv_sec) + 1e-9 * static_cast<double>(had.tv_nsec);
}

/// Until when a worker may take: by the clock, and by its own processor time where that has a bound.
class Bounds {
 public:
  Bounds(pid_t worker, double seconds, std::optional<double> processor)
      : worker_(worker), deadline_(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {
    if (processor) processor_ends_ = processor_seconds(worker) + *processor;
  }
  bool is_late() const { return Clock::now() >= deadline_; }
  /// Milliseconds after which to look again; 0: it is over.
  int left() const {
    double seconds = std::chrono::duration<double>(deadline_ - Clock::now()).count();
    if (processor_ends_) seconds = std::min(seconds, *processor_ends_ - processor_seconds(worker_));
    return seconds > 0 ? static_cast<int>(std::min(seconds, 1e5) * 1e3) + 1 : 0;
  }

 private:
  pid_t worker_;
  Clock::time_point deadline_;
  std::optional<double> processor_ends_;
};

/// Whether the pipe was ready within the bounds.
bool wait_for(int pipe, short what, const Bounds& bounds) {
  for (;;) {
    const int left = bounds.left();
    pollfd watched{pipe, what, 0};
    if (poll(&watched, 1, left) > 0) return true;
    if (left == 0) return false;
  }
}

enum class Moved { all, too_slow, closed };

template <class Byte, class Move>
Moved move_all(int pipe, Byte* bytes, std::size_t count, short what, const Bounds& bounds, Move move) {
  while (count > 0) {
    if (!wait_for(pipe, what, bounds)) return Moved::too_slow;
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

/// The length that goes before a text: the text itself is copied nowhere.
std::array<char, 4> length_before(std::string_view text) {
  const auto length = static_cast<std::uint32_t>(text.size());
  std::array<char, 4> four{};
  std::memcpy(four.data(), &length, sizeof length);
  return four;
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
    : command_(std::move(command)), waiting_(waiting), seconds_(seconds) {
  std::signal(SIGPIPE, SIG_IGN);  // a worker that died is a result
  patient_.patient = true;  // whose workers are run when they are first needed
  for (std::size_t i = 0; i < workers; ++i) quick_.workers.push_back(start(quick_));
  patient_.workers.resize(workers);
  open(quick_);
  open(patient_);
}

WorkerPool::~WorkerPool() {
  end(quick_);  // before the other: what it has may still go there
  end(patient_);
}

void WorkerPool::open(Lane& lane) {
  lane.idle = lane.workers.size();
  for (Worker& worker : lane.workers) lane.threads.emplace_back([this, &lane, &worker] { work(lane, worker); });
}

void WorkerPool::end(Lane& lane) {
  {
    const std::lock_guard lock(mutex_);
    lane.ending = true;
  }
  lane.asked.notify_all();
  for (std::thread& thread : lane.threads) thread.join();
  for (Worker& worker : lane.workers) end(worker);
}

WorkerPool::Worker WorkerPool::start(const Lane& lane) const {
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
  if (lane.patient) setpriority(PRIO_PROCESS, static_cast<id_t>(worker.process), getpriority(PRIO_PROCESS, 0) + kPatience);
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

std::optional<Answer> WorkerPool::exchange(const Lane& lane, const Worker& worker, const std::string& request) const {
  constexpr std::uint32_t kLargest = 16U << 20;
  const Bounds bounds(worker.process, seconds_, lane.patient ? std::nullopt : std::optional(kQuickSeconds));
  std::array<char, 4> four = length_before(request);
  Moved moved = move_all(worker.requests, four.data(), four.size(), POLLOUT, bounds, write);
  if (moved == Moved::all) moved = move_all(worker.requests, request.data(), request.size(), POLLOUT, bounds, write);
  if (moved == Moved::all) moved = move_all(worker.answers, four.data(), four.size(), POLLIN, bounds, read);
  std::string text;
  if (moved == Moved::all) {
    if (length_of(four.data()) > kLargest) return Answer{Outcome::too_large, {}};
    text.resize(length_of(four.data()));
    moved = move_all(worker.answers, text.data(), text.size(), POLLIN, bounds, read);
  }
  if (moved == Moved::all) return Answer{Outcome::answered, std::move(text)};
  if (moved == Moved::closed) return Answer{Outcome::died, {}};
  if (bounds.is_late()) return Answer{Outcome::too_slow, {}};
  return std::nullopt;
}

bool WorkerPool::revive(const Lane& lane, Worker& worker) const {
  try {
    if (worker.process > 0 && waitpid(worker.process, nullptr, WNOHANG) != 0) {  // it died while nobody asked: costs nobody a request
      worker.process = -1;
      close(worker.requests), close(worker.answers);
    }
    if (worker.process <= 0) worker = start(lane);
    return true;
  } catch (const std::exception&) {  // no process, or no memory for one: the next request tries again
    return false;
  }
}

std::optional<Answer> WorkerPool::answer(const Lane& lane, Worker& worker, const Job& job) const {
  if (Clock::now() - job.since > std::chrono::duration<double>(seconds_)) return Answer{Outcome::busy, {}};
  if (!revive(lane, worker)) return Answer{Outcome::died, {}};
  std::optional<Answer> answer;
  try {
    answer = exchange(lane, worker, job.request);
  } catch (const std::bad_alloc&) {  // for the text
    answer = Answer{Outcome::died, {}};
  }
  if (answer && answer->outcome == Outcome::answered) return answer;
  end(worker);
  if (!answer) revive(lane, worker);  // for who is next in the quick lane
  return answer;
}

void WorkerPool::work(Lane& lane, Worker& worker) {
  for (;;) {
    std::unique_lock lock(mutex_);
    lane.asked.wait(lock, [&lane] { return lane.ending || !lane.jobs.empty(); });
    if (lane.jobs.empty()) return;
    Job job = std::move(lane.jobs.front());
    lane.jobs.pop_front();
    --lane.idle;
    lock.unlock();
    std::optional<Answer> found = answer(lane, worker, job);
    lock.lock();
    ++lane.idle;  // before the answer is told: who asks again at once finds a free worker
    if (!found) job.since = Clock::now();  // it waits anew
    if (!found && enter(patient_, job)) continue;
    lock.unlock();
    job.done(job.request, found ? *std::move(found) : Answer{Outcome::busy, {}});
  }
}

bool WorkerPool::enter(Lane& lane, Job& job) {
  if (lane.jobs.size() >= waiting_ + lane.idle) return false;
  lane.jobs.push_back(std::move(job));
  lane.asked.notify_one();
  return true;
}

void WorkerPool::ask(std::string request, Done done) {
  Job job{std::move(request), std::move(done), Clock::now()};
  {
    const std::lock_guard lock(mutex_);
    if (enter(job.request.size() > kLarge ? patient_ : quick_, job)) return;
  }
  job.done(job.request, {Outcome::busy, {}});
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
    const std::string_view text = answer;
    const bool written = std::fwrite(length_before(text).data(), 4, 1, stdout) == 1 && std::fwrite(text.data(), text.size(), 1, stdout) == 1;
    plimsoll_free(answer);
    if (!written || std::fflush(stdout) != 0) return 1;
  }
  return 0;
}

}  // namespace plimsoll::serve
