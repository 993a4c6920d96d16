// Fibers leave their stacks by longjmp, which a fortified C library takes for an error.
#undef _FORTIFY_SOURCE
#include "calibrate/kernels/emulator/emulator.hpp"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <stdexcept>
#include <thread>

#if defined(__SANITIZE_ADDRESS__)
#define PLIMSOLL_FIBERS_UNDER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PLIMSOLL_FIBERS_UNDER_ASAN 1
#endif
#endif
#if defined(PLIMSOLL_FIBERS_UNDER_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif

namespace plimsoll::calibrate::emulator {
namespace {

constexpr std::size_t kStack = 256 * 1024, kGuard = 4096;

enum class State : std::uint8_t { ready, at_barrier, at_exchange, spinning, done };

struct Lane {
  ucontext_t context{};
  jmp_buf jump{};
  bool fresh = true;  // not yet entered
  State state = State::ready;
  int thread = 0;
  unsigned exchanges = 0;
  std::byte* stack = nullptr;
  void* fake_stack = nullptr;  // AddressSanitizer's
};

// The lanes' registers as shown in an exchange; two, so that a fast lane's next does not overwrite what a slow one still reads.
struct Wave {
  struct Meeting {
    alignas(64) std::array<std::byte, 64 * kSlot> shown;
    alignas(64) std::array<std::byte, kPrepared> prepared;
  };
  std::array<Meeting, 2> meetings;
  Meeting* current = nullptr;
  Prepare prepare = nullptr;
};

constexpr std::align_val_t kSharedAlignment{1024};
struct FreeShared {
  void operator()(std::byte* memory) const { ::operator delete[](memory, kSharedAlignment); }
};
using SharedMemory = std::unique_ptr<std::byte[], FreeShared>;

// The lanes' stacks, with a guard page each.
class Stacks {
 public:
  explicit Stacks(std::size_t lanes) : count_(lanes) {
    void* memory = mmap(nullptr, lanes * kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<std::byte*>(memory);
    for (std::size_t i = 0; i < lanes; ++i) mprotect(memory_ + i * kStack, kGuard, PROT_NONE);
  }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  ~Stacks() { munmap(memory_, count_ * kStack); }
  std::byte* of(std::size_t lane) const { return memory_ + lane * kStack; }
  std::size_t count() const { return count_; }

 private:
  std::byte* memory_ = nullptr;
  std::size_t count_;
};

// Stacks that this thread's earlier launches left.
thread_local std::vector<std::unique_ptr<Stacks>> spare_stacks;

std::unique_ptr<Stacks> take_stacks(std::size_t lanes) {
  if (spare_stacks.empty() || spare_stacks.back()->count() != lanes) return std::make_unique<Stacks>(lanes);
  auto stacks = std::move(spare_stacks.back());
  spare_stacks.pop_back();
  return stacks;
}

enum class Advance : std::uint8_t { progress, waiting, finished };

class Machine {
 public:
  Machine(const Job& job, const Options& options)
      : job_(job),
        options_(options),
        random_(options.seed),
        stacks_(take_stacks(static_cast<std::size_t>(job.threads))),
        lanes_(static_cast<std::size_t>(job.threads)),
        waves_((lanes_.size() + static_cast<std::size_t>(job.wave) - 1) / static_cast<std::size_t>(job.wave)) {
    for (std::size_t i = 0; i < lanes_.size(); ++i) lanes_[i].stack = stacks_->of(i);
    if (job.blocks > 0) start_block();
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine() { spare_stacks.push_back(std::move(stacks_)); }

  /// Runs some lanes until they wait for something.
  Advance advance();

  // Of the running lane.
  int thread() const { return running_->thread; }
  int block() const { return block_; }
  int blocks() const { return job_.blocks; }
  void barrier(Site site);
  void* shared_memory(Site site, std::size_t bytes);
  void* given_shared_memory(Site site, std::size_t bytes);
  Exchanged exchange(const void* own, std::size_t bytes, Prepare prepare);
  void spin() { suspend(State::spinning); }
  void run_body();

  static thread_local Machine* current;

 private:
  void start_block();
  void start(Lane& lane, int thread);
  void resume(Lane& lane);
  void suspend(State state);
  void leave(bool for_good);
  bool step(Lane& lane);
  bool step_wave(std::size_t wave);
  bool step_lockstep();
  bool step_greedy();
  bool release_exchange(std::size_t wave);
  bool release_barrier();
  bool wake_spinning();
  std::size_t first_of(std::size_t wave) const { return wave * static_cast<std::size_t>(job_.wave); }
  std::size_t end_of(std::size_t wave) const { return std::min(lanes_.size(), first_of(wave + 1)); }

  Job job_;
  Options options_;
  std::mt19937 random_;
  std::unique_ptr<Stacks> stacks_;
  std::vector<Lane> lanes_;
  std::vector<Wave> waves_;
  int block_ = 0;
  std::map<Site, SharedMemory> shared_;
  std::size_t shared_bytes_ = 0;
  Lane* running_ = nullptr;
  [[maybe_unused]] ucontext_t scheduler_{};  // what the sanitizers must know of it is unused without them
  jmp_buf scheduler_jump_{};
  std::exception_ptr error_;
  [[maybe_unused]] void* scheduler_fake_stack_ = nullptr;
  [[maybe_unused]] const void* scheduler_bottom_ = nullptr;
  [[maybe_unused]] std::size_t scheduler_size_ = 0;
};

thread_local Machine* Machine::current = nullptr;

void fiber_entry() { Machine::current->run_body(); }

void Machine::run_body() {
#if defined(PLIMSOLL_FIBERS_UNDER_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_bottom_, &scheduler_size_);
#endif
  try {
    job_.body();
  } catch (...) {
    if (!error_) error_ = std::current_exception();
  }
  running_->state = State::done;
  leave(true);
}

void Machine::start(Lane& lane, int thread) {
  lane.thread = thread;
  lane.state = State::ready;
  lane.exchanges = 0;
  lane.fresh = true;
  lane.fake_stack = nullptr;
  getcontext(&lane.context);
  lane.context.uc_stack.ss_sp = lane.stack + kGuard;
  lane.context.uc_stack.ss_size = kStack - kGuard;
  lane.context.uc_link = nullptr;
  makecontext(&lane.context, fiber_entry, 0);
}

// AddressSanitizer knows swapcontext and must be told of every switch; otherwise setjmp saves two system calls each.
#if defined(PLIMSOLL_FIBERS_UNDER_ASAN)
void Machine::resume(Lane& lane) {
  running_ = &lane;
  current = this;
  __sanitizer_start_switch_fiber(&scheduler_fake_stack_, lane.stack + kGuard, kStack - kGuard);
  swapcontext(&scheduler_, &lane.context);
  __sanitizer_finish_switch_fiber(scheduler_fake_stack_, nullptr, nullptr);
  running_ = nullptr;
}

void Machine::leave(bool for_good) {
  Lane* lane = running_;
  __sanitizer_start_switch_fiber(for_good ? nullptr : &lane->fake_stack, scheduler_bottom_, scheduler_size_);
  swapcontext(&lane->context, &scheduler_);
  __sanitizer_finish_switch_fiber(lane->fake_stack, &scheduler_bottom_, &scheduler_size_);
}
#else
void Machine::resume(Lane& lane) {
  running_ = &lane;
  current = this;
  if (_setjmp(scheduler_jump_) == 0) {
    if (!lane.fresh) _longjmp(lane.jump, 1);
    lane.fresh = false;
    setcontext(&lane.context);
  }
  running_ = nullptr;
}

void Machine::leave(bool) {
  if (_setjmp(running_->jump) == 0) _longjmp(scheduler_jump_, 1);
}
#endif

void Machine::suspend(State state) {
  running_->state = state;
  leave(false);
}

void Machine::barrier(Site site) {
  if (options_.reached) options_.reached->insert(site);
  const Site* removed = options_.removed;
  if (removed && removed->line == site.line && std::strcmp(removed->file, site.file) == 0) return;
  suspend(State::at_barrier);
}

SharedMemory allocate_shared(std::size_t bytes) {
  SharedMemory memory(static_cast<std::byte*>(::operator new[](bytes, kSharedAlignment)));
  std::memset(memory.get(), 0xFF, bytes);  // NaN: what is read before it is written spoils the answer
  return memory;
}

void* Machine::shared_memory(Site site, std::size_t bytes) {
  auto& memory = shared_[site];
  if (!memory) {
    shared_bytes_ += bytes;
    if (shared_bytes_ > kSharedLimit)
      throw std::runtime_error("a block asks for " + std::to_string(shared_bytes_) + " bytes of shared memory");
    memory = allocate_shared(bytes);
  }
  return memory.get();
}

void* Machine::given_shared_memory(Site site, std::size_t bytes) {
  if (bytes != job_.shared_bytes) {
    throw std::runtime_error("a block needs " + std::to_string(bytes) + " bytes of shared memory, its launch gives " +
                             std::to_string(job_.shared_bytes));
  }
  auto& memory = shared_[site];
  if (!memory) memory = allocate_shared(bytes);
  return memory.get();
}

Exchanged Machine::exchange(const void* own, std::size_t bytes, Prepare prepare) {
  const auto thread = static_cast<std::size_t>(running_->thread), lanes = static_cast<std::size_t>(job_.wave);
  Wave& wave = waves_[thread / lanes];
  Wave::Meeting& meeting = wave.meetings[running_->exchanges++ % 2];
  wave.current = &meeting;
  wave.prepare = prepare;
  std::memcpy(meeting.shown.data() + thread % lanes * kSlot, own, bytes);
  suspend(State::at_exchange);
  return {meeting.shown.data(), meeting.prepared.data()};
}

// Runs a lane until it waits; one that still waits for a peer has not come further.
bool Machine::step(Lane& lane) {
  if (lane.state != State::ready) return false;
  resume(lane);
  if (error_) std::rethrow_exception(error_);
  return lane.state != State::spinning;
}

// All living lanes of the wave have shown their registers.
bool Machine::release_exchange(std::size_t wave) {
  std::size_t waiting = 0, living = 0;
  for (std::size_t i = first_of(wave); i < end_of(wave); ++i) {
    waiting += lanes_[i].state == State::at_exchange;
    living += lanes_[i].state != State::done;
  }
  if (waiting == 0 || waiting != living) return false;
  if (waves_[wave].prepare) waves_[wave].prepare(waves_[wave].current->shown.data(), waves_[wave].current->prepared.data());
  for (std::size_t i = first_of(wave); i < end_of(wave); ++i) {
    if (lanes_[i].state == State::at_exchange) lanes_[i].state = State::ready;
  }
  return true;
}

bool Machine::release_barrier() {
  const auto in = [&](State state) { return std::count_if(lanes_.begin(), lanes_.end(), [&](const Lane& l) { return l.state == state; }); };
  const auto waiting = in(State::at_barrier);
  if (waiting == 0 || waiting + in(State::done) != static_cast<std::ptrdiff_t>(lanes_.size())) return false;
  for (Lane& lane : lanes_) {
    if (lane.state == State::at_barrier) lane.state = State::ready;
  }
  return true;
}

// Lanes that wait for another device look again.
bool Machine::wake_spinning() {
  bool any = false;
  for (Lane& lane : lanes_) {
    if (lane.state == State::spinning) lane.state = State::ready, any = true;
  }
  return any;
}

bool Machine::step_wave(std::size_t wave) {
  bool progress = false;
  for (std::size_t i = first_of(wave); i < end_of(wave); ++i) progress |= step(lanes_[i]);
  return release_exchange(wave) || progress;
}

// The first wave in random order that can run goes as far as it can.
bool Machine::step_greedy() {
  std::vector<std::size_t> order(waves_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random_);
  for (const std::size_t wave : order) {
    bool progress = false;
    while (step_wave(wave)) progress = true;
    if (progress) return true;
  }
  return false;
}

bool Machine::step_lockstep() {
  std::vector<std::size_t> order(lanes_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = options_.order == Order::reverse ? order.size() - 1 - i : i;
  if (options_.order == Order::shuffled) std::shuffle(order.begin(), order.end(), random_);
  bool progress = false;
  for (const std::size_t i : order) progress |= step(lanes_[i]);
  for (std::size_t wave = 0; wave < waves_.size(); ++wave) progress |= release_exchange(wave);
  return progress;
}

void Machine::start_block() {
  shared_.clear();
  shared_bytes_ = 0;
  for (std::size_t i = 0; i < lanes_.size(); ++i) start(lanes_[i], static_cast<int>(i));
}

Advance Machine::advance() {
  if (block_ >= job_.blocks) return Advance::finished;
  const bool progress = options_.order == Order::greedy ? step_greedy() : step_lockstep();
  if (progress || release_barrier()) return Advance::progress;
  if (wake_spinning()) return Advance::waiting;
  if (!std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.state == State::done; })) {
    throw std::runtime_error("barrier divergence in block " + std::to_string(block_));
  }
  if (++block_ < job_.blocks) start_block();
  return Advance::progress;
}

}  // namespace

void run(const Job& job, const Options& options) {
  Machine machine(job, options);
  for (;;) {
    switch (machine.advance()) {
      case Advance::progress:
        break;
      case Advance::waiting:
        std::this_thread::yield();
        break;  // for the thread that runs the peer
      case Advance::finished:
        return;
    }
  }
}

void run_together(const std::vector<Job>& jobs, const Options& options) {
  std::vector<std::unique_ptr<Machine>> machines;
  for (const Job& job : jobs) machines.push_back(std::make_unique<Machine>(job, options));
  std::mt19937 random(options.seed);
  const std::size_t patience = 1000 * jobs.size();
  for (std::size_t turn = 0, idle = 0; !machines.empty(); ++turn) {
    const std::size_t next = (options.order == Order::greedy ? random() : turn) % machines.size();
    const Advance result = machines[next]->advance();
    if (result == Advance::finished) machines.erase(machines.begin() + static_cast<std::ptrdiff_t>(next));
    idle = result == Advance::waiting ? idle + 1 : 0;
    if (idle > patience) throw std::runtime_error("the ranks wait for each other for ever");
  }
}

int thread_index() { return Machine::current->thread(); }
int block_index() { return Machine::current->block(); }
int block_count() { return Machine::current->blocks(); }
void barrier(Site site) { Machine::current->barrier(site); }
void* shared_memory(Site site, std::size_t bytes) { return Machine::current->shared_memory(site, bytes); }
void* given_shared_memory(Site site, std::size_t bytes) { return Machine::current->given_shared_memory(site, bytes); }
void spin() { Machine::current->spin(); }
Exchanged exchange(const void* own, std::size_t bytes, Prepare prepare) { return Machine::current->exchange(own, bytes, prepare); }

}  // namespace plimsoll::calibrate::emulator
