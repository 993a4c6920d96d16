// A device that is the emulator: memory that is counted, streams that run behind the caller's back, events, and faults on demand.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "calibrate/kernels/emulator/emulated.hpp"

namespace plimsoll::calibrate::fake {

/// A setting of the environment: PREFIX + "_" + name.
std::string setting(const char* name, const std::string& otherwise);
std::int64_t setting(const char* name, std::int64_t otherwise);
/// "FAKE_HIP" or "FAKE_CUDA"; defined by the library that the devices belong to.
extern const char* const prefix;
/// The devices' processor where the environment names none.
extern const char* const default_architecture;

/// When an event was reached, on the device's clock.
struct Event {
  std::mutex mutex;
  std::condition_variable reached;
  bool pending = false;
  double seconds = 0;
  void wait_until_reached() {
    std::unique_lock lock(mutex);
    reached.wait(lock, [this] { return !pending; });
  }
};

class Device {
 public:
  explicit Device(int index);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// Commands run one after another, those of all streams in the order in which they were issued.
  void issue(std::function<void()> command);
  void synchronize();
  void record(Event* event);
  void wait(Event* event);
  /// Lets modelled time pass (where the environment asks for it).
  void pass(double seconds);
  double now() const;

  bool allocate(void** memory, std::size_t bytes);
  bool release(void* memory);
  bool owns(const void* memory);
  /// Memory that is counted before it has an address, then mapped at one.
  bool create(std::size_t bytes);
  void destroy(std::size_t bytes);
  void map(void* at, std::size_t bytes);
  void unmap(void* at);
  std::size_t total() const;
  std::size_t used();

 private:
  void work();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool busy_ = false, stopping_ = false;
  std::map<const void*, std::size_t> memory_;
  std::size_t used_ = 0;
  double clock_ = 0;  // modelled; only the worker moves it
  std::mt19937 random_;
  std::thread worker_;
};

/// As many as the environment asks for now, and those that it asked for before.
std::vector<std::unique_ptr<Device>>& devices();
int device_count();
constexpr int kMostDevices = 64;
/// Of the calling thread.
int& current_index();
Device& current();
Device* owner_of(const void* memory);

/// The processor that the environment names, and its emulated target.
std::string architecture();
bool emulated_target(Target& target);

constexpr std::size_t kSharedUnlessAllowed = 48 << 10, kMostShared = 227 << 10;  // CUDA C++ Programming Guide, compute capability 9.0

/// A kernel of a loaded module, for the processor that the module was built for.
struct Function {
  const emulator::EmulatedRow* row = nullptr;
  Target target{};
  std::atomic<std::size_t> most_shared{kSharedUnlessAllowed};  ///< bytes that a launch may give
};
/// The function of that name, which lives as long as the library; nullptr where the processor has none.
const Function* find_function(Target target, const char* name);

// ---- what both drivers' entry points do; 0, or a code that HIP and CUDA share -------------------------------------------------

constexpr int kInvalidValue = 1, kOutOfMemory = 2, kNoDevice = 100, kInvalidDevice = 101, kNotFound = 500, kNotReady = 600,
              kPeerAccessAlreadyEnabled = 704;

/// A code and the driver's word for it.
struct ErrorName {
  int code;
  const char* name;
};
/// nullptr: no such code.
template <std::size_t kCount>
const char* name_of_error(const ErrorName (&names)[kCount], int code) {
  for (const ErrorName& row : names)
    if (row.code == code) return row.name;
  return nullptr;
}

bool valid(int device);
int device_name(char* name, int size, int device);
int pci_address(char* text, int size, int device);
int memory_info(std::size_t* free, std::size_t* total);
int release(void* memory);

/// What is asked for and who may use it, as both drivers lay it out.
struct MappedMemory {
  int type, handle_types, location_type, device;
  void* meta_data;
  unsigned char flags[8];
};
struct MappedAccess {
  int location_type, device, flags;
};
// Pages of 2 MiB, as real devices have: what is not whole pages, not mapped, mapped twice or still mapped is refused.
int reserve_addresses(void** range, std::size_t bytes);
int free_addresses(void* range, std::size_t bytes);
int create_pages(void** handle, std::size_t bytes, const MappedMemory* wanted);
int release_pages(void* handle);
int map_pages(void* at, std::size_t bytes, void* handle);
int unmap_pages(void* at, std::size_t bytes);
/// Until this call mapped memory cannot be touched.
int set_access(void* at, std::size_t bytes, const MappedAccess* access);

int allocate_host(void** memory, std::size_t bytes);
int release_host(void* memory);
/// A stream is only a name: all streams of a device run in one order.
int create_stream(void** stream);
int create_event(void** event);
int destroy_event(void* event);
int wait_event(void* event);
int record_event(void* event);
int synchronize_event(void* event);
int elapsed(float* milliseconds, void* from, void* to);
int find_function(void** function, Target target, const char* name);
int can_access_peer(int* can, int device, int peer);
int enable_peer(int peer);

struct Grid {
  unsigned x, y, z;
};
/// Lets launches of a function give so many bytes of shared memory.
int allow_shared(void* function, int bytes);
/// Launches blocks of 256 threads on the current device. 0, or the driver's code for a fault that the environment asks for.
int launch(void* function, Grid blocks, Grid threads, unsigned shared_bytes, void** arguments);

/// The same for a library's own launches.
int launch(const Function& function, unsigned blocks, void** arguments, unsigned shared_bytes = 0);

/// Copies on the current device, behind the caller's back where both sides allow it.
void copy(void* to, const void* from, std::size_t bytes);
void note_host_memory(void* memory, bool pinned);
void fill(void* to, int byte, std::size_t bytes);

/// Waits for everything on the current device; the fault of that name where one is asked for.
int synchronize();

}  // namespace plimsoll::calibrate::fake
