#include "fake_device.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

namespace plimsoll::calibrate::fake {

std::string setting(const char* name, const std::string& otherwise) {
  const char* value = std::getenv((std::string(prefix) + "_" + name).c_str());
  return value ? value : otherwise;
}
std::int64_t setting(const char* name, std::int64_t otherwise) {
  const std::string text = setting(name, std::string());
  return text.empty() ? otherwise : std::strtoll(text.c_str(), nullptr, 10);
}

namespace {

bool modelled() { return setting("TIME", std::string("wall")) == "model"; }

double wall_clock() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::mutex host_mutex;
std::set<const void*> pinned_host;

std::atomic<std::int64_t> launches{0};

}  // namespace

// ---- device
// -------------------------------------------------------------------------------------------------------------------------------

Device::Device(int index) : random_(static_cast<std::uint32_t>(index + 1)) {
  worker_ = std::thread([this] { work(); });
}

Device::~Device() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  worker_.join();
  for (const auto& [memory, bytes] : memory_) std::free(const_cast<void*>(memory));
}

void Device::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const auto command = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    command();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void Device::issue(std::function<void()> command) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(command));
  }
  changed_.notify_all();
}

void Device::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
}

double Device::now() const { return modelled() ? clock_ : wall_clock(); }

void Device::pass(double seconds) {
  const double noise = std::strtod(setting("NOISE", std::string("0")).c_str(), nullptr);
  clock_ += seconds * (1 + noise * std::uniform_real_distribution<double>(0, 1)(random_));
}

void Device::record(Event* event) {
  {
    const std::lock_guard lock(event->mutex);
    event->pending = true;
  }
  issue([this, event] {
    const std::lock_guard lock(event->mutex);
    event->seconds = now();
    event->pending = false;
    event->reached.notify_all();
  });
}

void Device::wait(Event* event) {
  issue([this, event] {
    event->wait_until_reached();
    clock_ = std::max(clock_, event->seconds);
  });
}

bool Device::allocate(void** memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + 4095) / 4096 * 4096;
  if (used_ + rounded > total()) return false;
  *memory = std::aligned_alloc(4096, rounded);
  if (!*memory) return false;
  memory_[*memory] = rounded;
  used_ += rounded;
  return true;
}

bool Device::release(void* memory) {
  synchronize();
  const std::lock_guard lock(mutex_);
  const auto found = memory_.find(memory);
  if (found == memory_.end()) return false;
  used_ -= found->second;
  memory_.erase(found);
  std::free(memory);
  return true;
}

bool Device::owns(const void* memory) {
  const std::lock_guard lock(mutex_);
  auto found = memory_.upper_bound(memory);
  if (found == memory_.begin()) return false;
  --found;
  return static_cast<const std::byte*>(memory) < static_cast<const std::byte*>(found->first) + found->second;
}

bool Device::create(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (used_ + bytes > total()) return false;
  used_ += bytes;
  return true;
}
void Device::destroy(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
}
void Device::map(void* at, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  memory_[at] = bytes;
}
void Device::unmap(void* at) {
  synchronize();
  const std::lock_guard lock(mutex_);
  memory_.erase(at);
}

std::size_t Device::total() const { return static_cast<std::size_t>(setting("MEMORY", std::int64_t{1} << 30)); }

std::size_t Device::used() {
  const std::lock_guard lock(mutex_);
  return used_;
}

std::vector<std::unique_ptr<Device>>& devices() {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<Device>> all;
  const std::lock_guard lock(mutex);
  all.reserve(kMostDevices);
  while (static_cast<int>(all.size()) < device_count()) all.push_back(std::make_unique<Device>(static_cast<int>(all.size())));
  return all;
}

int device_count() { return static_cast<int>(std::min<std::int64_t>(setting("DEVICES", 1), kMostDevices)); }

int& current_index() {
  static thread_local int index = 0;
  return index;
}
Device& current() { return *devices().at(static_cast<std::size_t>(current_index())); }

Device* owner_of(const void* memory) {
  for (auto& device : devices()) {
    if (device->owns(memory)) return device.get();
  }
  return nullptr;
}

std::string architecture() { return setting("ARCH", std::string(default_architecture)); }

bool emulated_target(Target& target) {
  bool found = false;
  target = target_named(architecture(), found);
  return found && target != Target::cpu;
}

// ---- time
// ---------------------------------------------------------------------------------------------------------------------------------

namespace {

// The device of FAKE_…_TIME=model, from README.md: what a fit should find again.
constexpr double kStart = 2e-6, kMemoryRate = 4e12, kPeerRate = 45e9, kHostRate = 50e9, kCopyStart = 8e-6, kLoad = 500e-9;

double peak(DType type) {
  switch (type) {
    case DType::fp64:
    case DType::fp32:
      return 80e12;
    case DType::fp8:
      return 1200e12;
    default:
      return 600e12;
  }
}

double cache_rate(double bytes) { return bytes <= 4194304 ? 12e12 : bytes <= 268435456 ? 8e12 : kMemoryRate; }

// The sizes of a launch: those that are arguments, and those that are the grid.
Sizes sizes_of(const Kernel& kernel, unsigned blocks, void** arguments) {
  Sizes sizes;
  for (const std::string_view name : kernel.size_names) {
    std::int64_t value = blocks;
    for (std::size_t i = 0; i < kernel.scalars.size(); ++i) {
      if (kernel.scalars[i].name != name) continue;
      const void* argument = arguments[kernel.buffers.size() + i];
      std::int32_t narrow;
      std::memcpy(&narrow, argument, sizeof narrow);
      value = narrow;
      if (kernel.scalars[i].type == ScalarType::u64) std::memcpy(&value, argument, sizeof value);
    }
    sizes.push_back(value);
  }
  return sizes;
}

double modelled_seconds(const Kernel& kernel, const Sizes& sizes, const Work& work) {
  switch (kernel.kind) {
    case KernelKind::pointer_chase:
      return kStart + kLoad * static_cast<double>(sizes[1]);
    case KernelKind::cache_read:
      return kStart + work.bytes() / cache_rate(4.0 * static_cast<double>(sizes[0]));
    case KernelKind::all_reduce:
    case KernelKind::all_gather:
    case KernelKind::reduce_scatter:
      return 5 * kStart + work.bytes_read / (kPeerRate * static_cast<double>(sizes[1] - 1));
    default:
      return kStart + std::max(work.bytes() / kMemoryRate, work.flops / peak(kernel.type));
  }
}

// Spoils the first result of a kernel; of a collective that of rank 0.
void spoil(const Kernel& kernel, void* const* buffers) {
  for (std::size_t i = 0; i < kernel.buffers.size(); ++i) {
    if (kernel.buffers[i].role == Role::in) continue;
    void* result = kernel.buffers[i].of_every_rank ? *static_cast<void**>(buffers[i]) : buffers[i];
    std::memset(result, 0x41, 4);
    return;
  }
}

}  // namespace

const Function* find_function(Target target, const char* name) {
  static std::mutex mutex;
  static std::map<std::pair<Target, std::string>, Function> functions;
  const emulator::EmulatedRow* row = emulator::emulated_kernel(target, name);
  if (!row) return nullptr;
  const std::lock_guard lock(mutex);
  Function& function = functions[{target, name}];
  if (!function.row) function.row = row, function.target = target;
  return &function;
}

int launch(const Function& function, unsigned blocks, void** arguments, unsigned shared_bytes) {
  const emulator::EmulatedRow& row = *function.row;
  const std::string fault = setting("LAUNCH_ERROR", std::string());
  const std::int64_t number = ++launches;
  if (fault.substr(0, fault.find(':')) == row.name && number >= setting("LAUNCH_ERROR_AFTER", 0)) {
    const auto colon = fault.find(':');
    return colon == std::string::npos ? 719 : std::atoi(fault.c_str() + colon + 1);
  }
  const Kernel& kernel = kernel_named(row.name);
  const Sizes sizes = sizes_of(kernel, blocks, arguments);
  const Work work = kernel.work(sizes, {function.target, static_cast<std::int32_t>(setting("COMPUTE_UNITS", 4))});
  const bool executed = !modelled() || work.bytes() + work.flops <= static_cast<double>(setting("EXECUTE", 20'000'000));
  const bool wrong = setting("WRONG", std::string()) == row.name;
  std::vector<void*> buffers;
  for (std::size_t i = 0; i < kernel.buffers.size(); ++i) buffers.push_back(*static_cast<void**>(arguments[i]));
  const double seconds = modelled_seconds(kernel, sizes, work);
  emulator::Job job = row.job(static_cast<int>(blocks), arguments);
  job.shared_bytes = shared_bytes;
  Device& device = current();
  device.issue([&device, &kernel, executed, wrong, buffers, seconds, job = std::move(job)] {
    if (executed) emulator::run(job, {});
    if (wrong) spoil(kernel, buffers.data());
    device.pass(seconds);
  });
  return 0;
}

void note_host_memory(void* memory, bool pinned) {
  const std::lock_guard lock(host_mutex);
  pinned ? void(pinned_host.insert(memory)) : void(pinned_host.erase(memory));
}

void copy(void* to, const void* from, std::size_t bytes) {
  Device &device = current(), *target = owner_of(to), *source = owner_of(from);
  const bool peers = target && source && target != source, local = target && target == source;
  const double rate = peers ? kPeerRate : local ? kMemoryRate / 2 : kHostRate;
  device.issue([&device, to, from, bytes, rate] {
    std::memcpy(to, from, bytes);
    device.pass(kCopyStart + static_cast<double>(bytes) / rate);
  });
  bool pinned = true;
  {
    const std::lock_guard lock(host_mutex);
    pinned = (target || pinned_host.count(to)) && (source || pinned_host.count(from));
  }
  if (!pinned) device.synchronize();  // as a driver does that must stage pageable memory
}

void fill(void* to, int byte, std::size_t bytes) {
  Device& device = current();
  device.issue([&device, to, byte, bytes] {
    std::memset(to, byte, bytes);
    device.pass(kStart + static_cast<double>(bytes) / kMemoryRate);
  });
}

int synchronize() {
  current().synchronize();
  return static_cast<int>(setting("SYNCHRONIZE_ERROR", 0));
}

// ---- entry points -------------------------------------------------------------------------------------------------------------

bool valid(int device) { return device >= 0 && device < device_count(); }

int device_name(char* name, int size, int device) {
  if (!valid(device)) return kInvalidDevice;
  std::snprintf(name, static_cast<std::size_t>(size), "%s", setting("NAME", std::string("Emulated device")).c_str());
  return 0;
}

int pci_address(char* text, int size, int device) {
  if (!valid(device)) return kInvalidDevice;
  std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", device + 5);
  return 0;
}

int memory_info(std::size_t* free, std::size_t* total) {
  *total = current().total();
  *free = *total - current().used();
  return 0;
}

int release(void* memory) {
  if (!memory) return 0;
  Device* owner = owner_of(memory);
  return owner && owner->release(memory) ? 0 : kInvalidValue;
}

int allocate_host(void** memory, std::size_t bytes) {
  *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (!*memory) return kOutOfMemory;
  note_host_memory(*memory, true);
  return 0;
}

int release_host(void* memory) {
  note_host_memory(memory, false);
  std::free(memory);
  return 0;
}

int create_stream(void** stream) {
  static char name;
  *stream = &name;
  return 0;
}

int create_event(void** event) {
  *event = new Event;
  return 0;
}

int destroy_event(void* event) {
  current().synchronize();
  delete static_cast<Event*>(event);
  return 0;
}

int wait_event(void* event) {
  current().wait(static_cast<Event*>(event));
  return 0;
}

int record_event(void* event) {
  current().record(static_cast<Event*>(event));
  return 0;
}

int synchronize_event(void* event) {
  static_cast<Event*>(event)->wait_until_reached();
  return static_cast<int>(setting("SYNCHRONIZE_ERROR", 0));
}

int elapsed(float* milliseconds, void* from, void* to) {
  *milliseconds = static_cast<float>((static_cast<Event*>(to)->seconds - static_cast<Event*>(from)->seconds) * 1e3);
  return 0;
}

int find_function(void** function, Target target, const char* name) {
  const Function* found = find_function(target, name);
  *function = const_cast<Function*>(found);
  return found ? 0 : kNotFound;
}

int can_access_peer(int* can, int device, int peer) {
  if (!valid(device) || !valid(peer)) return kInvalidDevice;
  *can = device != peer && setting("NO_PEER", 0) == 0;
  return 0;
}

int enable_peer(int peer) {
  static thread_local std::set<std::pair<int, int>> enabled;
  if (!valid(peer)) return kInvalidDevice;
  return enabled.insert({current_index(), peer}).second ? 0 : kPeerAccessAlreadyEnabled;
}

int allow_shared(void* function, int bytes) {
  if (bytes < 0 || static_cast<std::size_t>(bytes) > kMostShared) return kInvalidValue;
  static_cast<Function*>(function)->most_shared = static_cast<std::size_t>(bytes);
  return 0;
}

int launch(void* function, Grid blocks, Grid threads, unsigned shared_bytes, void** arguments) {
  const bool one_dimension = blocks.y == 1 && blocks.z == 1 && threads.y == 1 && threads.z == 1;
  if (!one_dimension || threads.x != 256 || blocks.x == 0) return kInvalidValue;
  const Function& kernel = *static_cast<const Function*>(function);
  return shared_bytes > kernel.most_shared ? kInvalidValue : launch(kernel, blocks.x, arguments, shared_bytes);
}

}  // namespace plimsoll::calibrate::fake
