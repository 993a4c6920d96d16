#include "work.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "arguments.hpp"
#include "settings.hpp"

namespace plimsoll::device {
namespace {

/// Host address of a kernel to its name: open addressing, because programs register tens of thousands before they start.
class Kernels {
 public:
  struct Entry {
    const void* function = nullptr;
    const char* name = nullptr;
    std::uint32_t id = 0;                             ///< of the string table, once launched
    const std::vector<KeptArgument>* kept = nullptr;  ///< once launched; lives as long as the process
  };

  Kernels() : entries_(std::size_t{1} << 14) {}

  Entry* find(const void* function) {
    Entry& entry = slot(function);
    return entry.function == nullptr ? nullptr : &entry;
  }
  void set(const void* function, const char* name) {
    Entry& entry = slot(function);
    if (entry.function == nullptr && ++count_ * 2 > entries_.size()) {
      grow();
      slot(function) = {function, name};
    } else {
      entry = {function, name};
    }
  }

 private:
  Entry& slot(const void* function) {
    const std::size_t mask = entries_.size() - 1;
    std::size_t at = (reinterpret_cast<std::uintptr_t>(function) * 0x9e3779b97f4a7c15u) >> 20 & mask;
    while (entries_[at].function != nullptr && entries_[at].function != function) at = (at + 1) & mask;
    return entries_[at];
  }
  void grow() {
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    for (const Entry& entry : old)
      if (entry.function != nullptr) slot(entry.function) = entry;
  }

  std::vector<Entry> entries_;
  std::size_t count_ = 0;
};

Kernels& kernels() {
  static Kernels* const once = new Kernels;
  return *once;
}

/// The kernel at that address, its name in the string table; null when it was never registered.
const Kernels::Entry* launched(const void* function) {
  Kernels::Entry* entry = kernels().find(function);
  if (entry == nullptr) return nullptr;
  if (entry->id == 0) entry->id = machine().recorder.intern(entry->name);
  if (entry->kept == nullptr) entry->kept = new std::vector<KeptArgument>(kept_arguments(entry->name));
  return entry;
}

/// The kept arguments one after the other, each behind its header, padded to eight bytes.
std::vector<char> packed(const std::vector<KeptArgument>& kept, const void* const* arguments) {
  std::vector<char> bytes;
  for (const KeptArgument& each : kept) {
    const void* const value = arguments[each.parameter];
    if (value == nullptr) continue;
    const record::Argument header{each.parameter, each.bytes, 0};
    const std::size_t at = bytes.size();
    bytes.resize(at + sizeof header + (each.bytes + 7U) / 8 * 8);
    std::memcpy(bytes.data() + at, &header, sizeof header);
    std::memcpy(bytes.data() + at + sizeof header, value, each.bytes);
  }
  return bytes;
}

bool launchable(const Launch& l, const Limits& limits) {
  const std::uint64_t threads = std::uint64_t{l.block.x} * l.block.y * l.block.z;
  return threads > 0 && threads <= 1024 && l.block.z <= 64 && l.grid.x > 0 && l.grid.y > 0 && l.grid.z > 0 && l.grid.x <= 0x7fffffffu &&
         l.grid.y <= limits.most_blocks_yz && l.grid.z <= limits.most_blocks_yz && l.shared_bytes <= limits.shared_per_block_optin;
}

}  // namespace

void register_kernel(const void* function, const char* name) {
  const auto held = lock();
  kernels().set(function, name);
}

void register_kernel(const void* function, const char* name, const std::vector<KeptArgument>& kept) {
  const auto held = lock();
  kernels().set(function, name);
  kernels().find(function)->kept = new std::vector<KeptArgument>(kept);
}

const char* kernel_name(const void* function) {
  const auto held = lock();
  const Kernels::Entry* entry = kernels().find(function);
  return entry == nullptr ? nullptr : entry->name;
}

Status launch(const Launch& l, const Limits& limits, Stream& stream) {
  if (!launchable(l, limits)) return Status::invalid_configuration;
  const auto held = lock();
  Machine& m = machine();
  ++m.totals.kernels;
  const auto flags = m.issue(stream);
  if (!m.recorder.on()) return Status::ok;
  record::Kernel event{};
  event.stream = stream.id;
  const Kernels::Entry* const kernel = launched(l.function);
  event.name = kernel == nullptr ? 0 : kernel->id;
  event.grid[0] = l.grid.x, event.grid[1] = l.grid.y, event.grid[2] = l.grid.z;
  event.block[0] = l.block.x, event.block[1] = l.block.y, event.block[2] = l.block.z;
  event.shared_bytes = static_cast<std::uint32_t>(l.shared_bytes);
  event.cluster = l.cluster;
  const std::vector<char> tail = kernel == nullptr || l.arguments == nullptr ? std::vector<char>() : packed(*kernel->kept, l.arguments);
  m.write(record::Kind::kernel, stream.device, event, static_cast<std::uint16_t>(flags | (l.cooperative ? record::kCooperative : 0)),
          tail.data(), tail.size());
  return Status::ok;
}

void host_function(Stream& stream) {
  const auto held = lock();
  record::HostFunction event{};
  event.stream = stream.id;
  machine().write(record::Kind::host_function, stream.device, event, machine().issue(stream));
}

void gemm(record::Gemm event, const char* api, Stream& stream) {
  const auto held = lock();
  Machine& m = machine();
  ++m.totals.gemms;
  const auto flags = m.issue(stream);
  if (!m.recorder.on()) return;
  event.stream = stream.id;
  event.api = m.recorder.intern(api);
  m.write(record::Kind::gemm, stream.device, event, flags);
}

void library_call(const char* name, Stream& stream, const std::int64_t* numbers, std::uint32_t count, record::Type type,
                  std::uint64_t workspace_bytes) {
  const auto held = lock();
  Machine& m = machine();
  ++m.totals.kernels;
  record::LibraryCall event{};
  event.stream = stream.id;
  event.name = m.recorder.intern(name);
  event.workspace_bytes = workspace_bytes;
  event.count = count;
  event.type = type;
  m.write(record::Kind::library_call, stream.device, event, m.issue(stream), numbers, count * sizeof(std::int64_t));
}

void unmodelled(const char* name, const char* library) {
  const auto held = lock();
  Machine& m = machine();
  ++m.totals.unmodelled;
  if (!m.recorder.on()) return;
  record::Unmodelled event{};
  event.name = m.recorder.intern(name);
  event.library = m.recorder.intern(library);
  m.recorder.write(record::Kind::unmodelled, event);
}

int occupancy(const Limits& limits, int block_threads, std::uint64_t dynamic_shared_bytes) {
  constexpr std::uint64_t kRegistersPerThread = 64, kReservedShared = 1024;
  const auto threads = static_cast<std::uint64_t>(std::max(1, block_threads));
  const std::uint64_t by_threads = static_cast<std::uint64_t>(limits.threads_per_processor) / threads;
  const std::uint64_t by_registers = static_cast<std::uint64_t>(limits.registers_per_processor) / (kRegistersPerThread * threads);
  const std::uint64_t by_shared = limits.shared_per_processor / (dynamic_shared_bytes + kReservedShared);
  return static_cast<int>(std::min({by_threads, by_registers, by_shared, static_cast<std::uint64_t>(limits.blocks_per_processor)}));
}

}  // namespace plimsoll::device
