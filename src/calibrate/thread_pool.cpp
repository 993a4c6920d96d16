#include "calibrate/thread_pool.hpp"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace plimsoll::calibrate {
namespace {

void stay_on(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

/// Subnormal numbers cost a processor a hundred times more than others and a GPU nothing: they count as zero.
void flush_subnormals() {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
}

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

/// Spins while the condition may come true soon: giving the processor away costs the whole turn of whoever takes it. False when it did
/// not within the time of patience.
template <class Condition>
bool spin_until(Condition&& condition) {
  constexpr auto kPatience = std::chrono::milliseconds(5);
  constexpr int kTurns = 256;  // between two looks at the clock
  for (const auto start = std::chrono::steady_clock::now(); std::chrono::steady_clock::now() - start < kPatience;)
    for (int turn = 0; turn < kTurns; ++turn) {
      if (condition()) return true;
      pause();
    }
  return false;
}

}  // namespace

ThreadPool::ThreadPool(std::vector<int> processors) : processors_(std::move(processors)) {
  stay_on(processors_.front());
  flush_subnormals();
  for (int part = 1; part < parts(); ++part) threads_.emplace_back([this, part] { work(part); });
}

ThreadPool::~ThreadPool() {
  ending_ = true;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int processor : processors_) CPU_SET(processor, &all);
  pthread_setaffinity_np(pthread_self(), sizeof all, &all);
}

void ThreadPool::run(const std::function<void(int)>& part) {
  job_ = &part;
  running_.store(parts() - 1, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  part(0);
  while (!spin_until([&] { return running_.load(std::memory_order_acquire) == 0; })) sched_yield();
}

std::vector<double> ThreadPool::processor_seconds() {
  const auto read = [](clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  std::vector<double> seconds{read(CLOCK_THREAD_CPUTIME_ID)};
  for (std::thread& thread : threads_) {
    clockid_t clock{};
    if (pthread_getcpuclockid(thread.native_handle(), &clock) == 0) seconds.push_back(read(clock));
  }
  return seconds;
}

void ThreadPool::work(int part) {
  stay_on(processors_[static_cast<std::size_t>(part)]);
  flush_subnormals();
  for (unsigned seen = 0;;) {
    if (!spin_until([&] { return round_.load(std::memory_order_acquire) != seen; })) round_.wait(seen, std::memory_order_acquire);
    ++seen;
    if (ending_) return;
    (*job_)(part);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

std::vector<int> usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> list;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int processor = CPU_SETSIZE - 1; processor >= 0; --processor)
      if (CPU_ISSET(processor, &set)) list.push_back(processor);
  if (list.empty()) list.push_back(0);
  return list;
}

}  // namespace plimsoll::calibrate
