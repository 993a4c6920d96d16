#include "memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "settings.hpp"

namespace plimsoll::device {
namespace {

constexpr std::uint64_t kSmall = std::uint64_t{1} << 20;  // smaller allocations are counted in units of 512 bytes
constexpr std::uint64_t kSmallUnit = 512;
constexpr std::uint64_t kAddressesPerDevice = std::uint64_t{1} << 40;
constexpr std::uint64_t kReservable = std::uint64_t{1} << 44;

struct Allocation {
  std::uint64_t bytes;    ///< of address space
  std::uint64_t counted;  ///< of the device's memory
  int device;
  Where where;
  bool registered;  ///< the program's own pages
};

struct Physical {
  std::uint64_t bytes;
  int device;
  int references;  ///< the handle's and each mapping's
};

struct Mapping {
  std::uint64_t bytes;
  std::uint64_t handle;
};

/// A part of device memory whose values somebody put there.
struct Values {
  std::uintptr_t end;
  Knowledge knowledge;
};

struct Memory {
  std::vector<Range*> ranges;      ///< of each device, made at first use
  std::vector<Range*> reservable;  ///< a further one when those before are full
  std::map<std::uintptr_t, Allocation> allocations, host;
  std::map<std::uintptr_t, std::uint64_t> reservations;
  std::map<std::uintptr_t, Mapping> mappings;
  std::map<std::uint64_t, Physical> physical;
  std::map<std::uintptr_t, Values> values;  ///< by their start: what on a device is known, or was assumed; parts never overlap
  std::uint64_t next_handle = 1;
};

Memory& memory() {
  static Memory* const once = new Memory;
  return *once;
}

Range& range_of(int device) {
  auto& ranges = memory().ranges;
  if (ranges.empty()) ranges.resize(machine().devices.size());
  Range*& range = ranges[static_cast<std::size_t>(device)];
  const std::uint64_t least = up(settings().memory_bytes, kPage);  // twice that leaves room for gaps between what is allocated
  if (range == nullptr) range = new Range(std::max(kAddressesPerDevice, 2 * least), least);
  return *range;
}

template <class Map>
typename Map::iterator containing(Map& map, std::uintptr_t address) {
  auto it = map.upper_bound(address);
  if (it == map.begin()) return map.end();
  --it;
  return address < it->first + it->second.bytes ? it : map.end();
}

void note(record::SegmentAction action, int device, std::uint64_t address, std::uint64_t bytes, const Stream* stream = nullptr) {
  Machine& m = machine();
  const bool host = action >= record::SegmentAction::host_allocate && action <= record::SegmentAction::host_unregister;
  record::Segment event{};
  event.action = action;
  event.stream = stream == nullptr ? 0 : stream->id;
  event.address = address;
  event.bytes = bytes;
  event.used_bytes = host ? m.totals.pinned : m.devices[static_cast<std::size_t>(device)].used;
  m.write(record::Kind::segment, device, event);
}

/// False when the device has not so much left.
bool charge(int device, std::uint64_t bytes) {
  Machine& m = machine();
  Device& it = m.devices[static_cast<std::size_t>(device)];
  if (bytes > m.memory_bytes || it.used > m.memory_bytes - bytes) {
    m.totals.failed = bytes;
    return false;
  }
  it.used += bytes;
  it.peak = std::max(it.peak, it.used);
  return true;
}

void refund(int device, std::uint64_t bytes) { machine().devices[static_cast<std::size_t>(device)].used -= bytes; }

bool in_device_ranges(std::uintptr_t address, int* device) {
  const Memory& mem = memory();
  for (std::size_t i = 0; i < mem.ranges.size(); ++i) {
    if (mem.ranges[i] != nullptr && mem.ranges[i]->holds(address)) {
      *device = static_cast<int>(i);
      return true;
    }
  }
  return false;
}

/// The side of a copy that an address is on, without the lock. Unallocated device addresses count as the host's and fault there.
Place find(const void* pointer) {
  Memory& mem = memory();
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  int device = 0;
  if (in_device_ranges(address, &device)) {
    const auto it = containing(mem.allocations, address);
    return it == mem.allocations.end() ? Place{} : Place{Where::device, device, it->first, it->second.bytes};
  }
  if (std::any_of(mem.reservable.begin(), mem.reservable.end(), [&](const Range* range) { return range->holds(address); })) {
    const auto it = containing(mem.mappings, address);
    if (it == mem.mappings.end()) return {};
    return {Where::device, std::max(0, mem.physical[it->second.handle].device), it->first, it->second.bytes};
  }
  const auto it = containing(mem.host, address);
  return it == mem.host.end() ? Place{} : Place{it->second.where, it->second.device, it->first, it->second.bytes};
}

/// Page-locked memory under the host's own addresses.
Status add_host(std::uintptr_t address, std::uint64_t bytes, Where where, bool registered) {
  Totals& totals = machine().totals;
  memory().host[address] = {bytes, bytes, thread_state().device, where, registered};
  totals.pinned += bytes;
  totals.peak_pinned = std::max(totals.peak_pinned, totals.pinned);
  note(registered ? record::SegmentAction::host_register : record::SegmentAction::host_allocate, thread_state().device, address, bytes);
  return Status::ok;
}

Status remove_host(void* address, bool registered) {
  Memory& mem = memory();
  const auto it = mem.host.find(reinterpret_cast<std::uintptr_t>(address));
  if (it == mem.host.end() || it->second.registered != registered)
    return registered ? Status::host_memory_not_registered : Status::invalid_value;
  machine().totals.pinned -= it->second.counted;
  note(registered ? record::SegmentAction::host_unregister : record::SegmentAction::host_free, it->second.device, it->first,
       it->second.bytes);
  if (!registered) munmap(address, it->second.bytes);
  mem.host.erase(it);
  return Status::ok;
}

void drop(std::map<std::uint64_t, Physical>::iterator it) {
  if (--it->second.references > 0) return;
  if (it->second.device >= 0) refund(it->second.device, it->second.bytes);
  note(record::SegmentAction::release, std::max(0, it->second.device), it->first, it->second.bytes);
  memory().physical.erase(it);
}

/// Whole pages lose their memory and read as zeros again, the rest is set to zero.
void forget_values(void* to, std::size_t bytes) {
  constexpr std::uint64_t kHostPage = 4096;
  const auto from = reinterpret_cast<std::uintptr_t>(to), end = from + bytes;
  const auto first = up(from, kHostPage), last = end / kHostPage * kHostPage;
  if (last <= first) {
    std::memset(to, 0, bytes);
    return;
  }
  std::memset(to, 0, first - from);
  madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  std::memset(reinterpret_cast<void*>(last), 0, end - last);
}

/// Cuts [start, end) out of what is known; `gone` is called with each part of it that was.
template <class Gone>
void cut_out(std::uintptr_t start, std::uintptr_t end, Gone gone) {
  auto& values = memory().values;
  auto part = values.upper_bound(start);
  if (part != values.begin() && std::prev(part)->second.end > start) --part;
  while (part != values.end() && part->first < end) {
    const auto [from, known] = *part;
    part = values.erase(part);
    if (from < start) values[from] = {start, known.knowledge};
    if (end < known.end) values[end] = {known.end, known.knowledge};
    gone(std::max(from, start), std::min(known.end, end));
  }
}

/// From here on the values there are known, assumed or unknown; neighbours of one kind become one part.
void set_knowledge(std::uintptr_t start, std::size_t bytes, Knowledge knowledge) {
  std::uintptr_t end = start + bytes;
  cut_out(start, end, [](std::uintptr_t, std::uintptr_t) {});
  if (knowledge == Knowledge::none) return;
  auto& values = memory().values;
  auto next = values.lower_bound(start);
  if (next != values.end() && next->first == end && next->second.knowledge == knowledge) {
    end = next->second.end;
    next = values.erase(next);
  }
  if (next != values.begin() && std::prev(next)->second.end == start && std::prev(next)->second.knowledge == knowledge)
    std::prev(next)->second.end = end;
  else
    values[start] = {end, knowledge};
}

/// The least that is known of any byte there.
Knowledge knowledge_of(std::uintptr_t start, std::size_t bytes) {
  const auto& values = memory().values;
  const std::uintptr_t end = start + bytes;
  auto part = values.upper_bound(start);
  if (part == values.begin()) return bytes == 0 ? Knowledge::certain : Knowledge::none;
  --part;
  Knowledge least = Knowledge::certain;
  for (; start < end; ++part) {
    if (part == values.end() || part->first > start || part->second.end <= start) return Knowledge::none;
    if (part->second.knowledge == Knowledge::assumed) least = Knowledge::assumed;
    start = part->second.end;
  }
  return least;
}

record::CopyKind kind_of(const Place& to, const Place& from) {
  const bool to_device = to.where == Where::device, from_device = from.where == Where::device;
  if (to_device && from_device) return to.device == from.device ? record::CopyKind::device_to_device : record::CopyKind::peer;
  if (to_device) return record::CopyKind::host_to_device;
  return from_device ? record::CopyKind::device_to_host : record::CopyKind::host_to_host;
}

}  // namespace

void note_values(const void* address, std::size_t bytes, Knowledge knowledge) {
  const auto held = lock();
  if (bytes == 0 || find(address).where != Where::device) return;
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  if (knowledge == Knowledge::none)
    forget_owner(start, bytes);
  else
    set_knowledge(start, bytes, knowledge);
}

Knowledge known_values(const void* address, std::size_t bytes) {
  const auto held = lock();
  return knowledge_of(reinterpret_cast<std::uintptr_t>(address), bytes);
}

void forget_owner(std::uintptr_t address, std::size_t bytes) {
  cut_out(address, address + bytes, [](std::uintptr_t first, std::uintptr_t last) {
    if (find(reinterpret_cast<const void*>(first)).where == Where::device) forget_values(reinterpret_cast<void*>(first), last - first);
  });
}

Place place_of(const void* address) {
  const auto held = lock();
  return find(address);
}

bool on_device(const void* address) { return place_of(address).where == Where::device; }

Status allocate(void** address, std::size_t bytes, const Stream* stream) {
  const auto held = lock();
  const int device = thread_state().device;
  *address = nullptr;
  if (bytes == 0) return Status::ok;
  const std::uint64_t counted = up(bytes, bytes >= kSmall ? kPage : kSmallUnit), space = up(counted, kPage);
  if (counted < bytes || !charge(device, counted)) {
    machine().totals.failed = bytes;
    note(record::SegmentAction::allocate_failed, device, 0, bytes, stream);
    return Status::out_of_memory;
  }
  Range& range = range_of(device);
  const std::uintptr_t at = range.take_for_device(space);
  if (at == 0 || !open_pages(at, space)) {
    complain("address space for " + std::to_string(bytes) + " bytes of device memory cannot be had");
    refund(device, counted);
    return Status::out_of_memory;
  }
  memory().allocations[at] = {space, counted, device, Where::device, false};
  note(stream == nullptr ? record::SegmentAction::allocate : record::SegmentAction::pool_allocate, device, at, counted, stream);
  *address = reinterpret_cast<void*>(at);
  return Status::ok;
}

Status release(void* address, const Stream* stream) {
  if (address == nullptr) return Status::ok;
  const auto held = lock();
  Memory& mem = memory();
  const auto it = mem.allocations.find(reinterpret_cast<std::uintptr_t>(address));
  if (it == mem.allocations.end()) return remove_host(address, false);  // managed memory
  const Allocation gone = it->second;
  if (stream == nullptr) machine().synchronize_device(gone.device);
  set_knowledge(it->first, gone.bytes, Knowledge::none);
  close_pages(it->first, gone.bytes);
  range_of(gone.device).give_back(it->first, gone.bytes);
  mem.allocations.erase(it);
  refund(gone.device, gone.counted);
  note(stream == nullptr ? record::SegmentAction::free : record::SegmentAction::pool_free, gone.device,
       reinterpret_cast<std::uintptr_t>(address), gone.counted, stream);
  return Status::ok;
}

Status allocate_host(void** address, std::size_t bytes, Where where) {
  *address = nullptr;
  if (bytes == 0) return Status::ok;
  const std::uint64_t size = up(bytes, 4096);
  void* at = size < bytes ? MAP_FAILED : mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return Status::out_of_memory;
  madvise(at, size, MADV_NOHUGEPAGE);
  madvise(at, size, MADV_DONTDUMP);
  *address = at;
  const auto held = lock();
  return add_host(reinterpret_cast<std::uintptr_t>(at), size, where, false);
}

Status release_host(void* address) {
  if (address == nullptr) return Status::ok;
  const auto held = lock();
  return remove_host(address, false);
}

Status register_host(void* address, std::size_t bytes) {
  if (address == nullptr || bytes == 0) return Status::invalid_value;
  const auto held = lock();
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (containing(memory().host, at) != memory().host.end()) return Status::host_memory_already_registered;
  return add_host(at, bytes, Where::pinned, true);
}

Status unregister_host(void* address) {
  const auto held = lock();
  return remove_host(address, true);
}

void memory_info(std::uint64_t* free_bytes, std::uint64_t* total_bytes) {
  const auto held = lock();
  Machine& m = machine();
  if (!std::exchange(m.asked_for_memory, true)) {
    record::Mark event{};
    event.kind = record::MarkKind::text;
    event.text = m.recorder.intern(record::kAskedForMemory);
    event.host_ns = m.recorder.host_ns();
    m.write(record::Kind::mark, thread_state().device, event);
  }
  const std::uint64_t used = m.devices[static_cast<std::size_t>(thread_state().device)].used;
  *total_bytes = m.memory_bytes;
  *free_bytes = used < m.memory_bytes ? m.memory_bytes - used : 0;
}

Status take(int device, std::int64_t bytes) {
  if (bytes >= 0) {
    if (charge(device, static_cast<std::uint64_t>(bytes))) return Status::ok;
    note(record::SegmentAction::allocate_failed, device, 0, static_cast<std::uint64_t>(bytes));
    return Status::out_of_memory;
  }
  refund(device, static_cast<std::uint64_t>(-bytes));
  return Status::ok;
}

Status reserve_addresses(std::uintptr_t* address, std::size_t bytes, std::size_t alignment) {
  if (bytes == 0 || bytes % kPage != 0 || (alignment & (alignment - 1)) != 0) return Status::invalid_value;
  const auto held = lock();
  Memory& mem = memory();
  alignment = std::max<std::size_t>(alignment, kPage);
  std::uintptr_t at = 0;
  for (Range* range : mem.reservable)
    if (at == 0) at = range->take_highest(bytes, alignment);
  if (at == 0) {
    mem.reservable.push_back(new Range(std::max<std::uint64_t>(kReservable, bytes + alignment), bytes + alignment));
    at = mem.reservable.back()->take_highest(bytes, alignment);
  }
  if (at == 0) return Status::out_of_memory;
  mem.reservations[at] = bytes;
  note(record::SegmentAction::reserve, thread_state().device, at, bytes);
  *address = at;
  return Status::ok;
}

Status free_addresses(std::uintptr_t address, std::size_t bytes) {
  const auto held = lock();
  Memory& mem = memory();
  const auto it = mem.reservations.find(address);
  if (it == mem.reservations.end() || it->second != bytes) return Status::invalid_value;
  const auto mapped = mem.mappings.lower_bound(address);
  if (mapped != mem.mappings.end() && mapped->first < address + bytes) return Status::invalid_value;
  for (Range* range : mem.reservable)
    if (range->holds(address)) range->give_back(address, bytes);
  mem.reservations.erase(it);
  note(record::SegmentAction::unreserve, thread_state().device, address, bytes);
  return Status::ok;
}

Status create_physical(std::uint64_t* handle, std::size_t bytes, int device) {
  const auto held = lock();
  if (bytes == 0 || bytes % kPage != 0 || device >= static_cast<int>(machine().devices.size())) return Status::invalid_value;
  if (device >= 0 && !charge(device, bytes)) {
    note(record::SegmentAction::create_failed, device, 0, bytes);
    return Status::out_of_memory;
  }
  Memory& mem = memory();
  *handle = mem.next_handle++;
  mem.physical[*handle] = {bytes, device, 1};
  note(record::SegmentAction::create, std::max(0, device), *handle, bytes);
  return Status::ok;
}

Status map_foreign(void** address, std::size_t bytes, int device) {
  if (device < 0 || device >= static_cast<int>(machine().devices.size())) return Status::invalid_value;
  const std::size_t pages = (bytes + kPage - 1) / kPage * kPage;
  std::uintptr_t at = 0;
  if (const Status status = reserve_addresses(&at, pages, kPage); status != Status::ok) return status;
  std::uint64_t handle = 0;
  {
    const auto held = lock();
    handle = memory().next_handle++;
    memory().physical[handle] = {pages, device, 1};
  }
  *address = reinterpret_cast<void*>(at);
  return map_physical(at, pages, 0, handle);
}

Status retain_physical(std::uint64_t* handle, std::uintptr_t address) {
  const auto held = lock();
  Memory& mem = memory();
  const auto it = containing(mem.mappings, address);
  if (it == mem.mappings.end()) return Status::invalid_value;
  *handle = it->second.handle;
  ++mem.physical[*handle].references;
  return Status::ok;
}

Status release_physical(std::uint64_t handle) {
  const auto held = lock();
  const auto it = memory().physical.find(handle);
  if (it == memory().physical.end()) return Status::invalid_value;
  drop(it);
  return Status::ok;
}

Status physical_of(std::uint64_t handle, std::size_t* bytes, int* device) {
  const auto held = lock();
  const auto it = memory().physical.find(handle);
  if (it == memory().physical.end()) return Status::invalid_value;
  *bytes = it->second.bytes;
  *device = it->second.device;
  return Status::ok;
}

Status map_physical(std::uintptr_t address, std::size_t bytes, std::size_t offset, std::uint64_t handle) {
  const auto held = lock();
  Memory& mem = memory();
  const auto physical = mem.physical.find(handle);
  if (physical == mem.physical.end() || bytes == 0 || offset > physical->second.bytes || bytes > physical->second.bytes - offset)
    return Status::invalid_value;
  auto reservation = mem.reservations.upper_bound(address);
  if (reservation == mem.reservations.begin()) return Status::invalid_value;
  --reservation;
  if (address + bytes > reservation->first + reservation->second) return Status::invalid_value;
  const auto next = mem.mappings.lower_bound(address);
  const bool overlaps =
      (next != mem.mappings.end() && next->first < address + bytes) || containing(mem.mappings, address) != mem.mappings.end();
  if (overlaps) return Status::invalid_value;
  if (!open_pages(address, bytes)) return Status::out_of_memory;
  mem.mappings[address] = {bytes, handle};
  ++physical->second.references;
  note(record::SegmentAction::map, std::max(0, physical->second.device), address, bytes);
  return Status::ok;
}

Status unmap(std::uintptr_t address, std::size_t bytes) {
  const auto held = lock();
  Memory& mem = memory();
  auto it = mem.mappings.lower_bound(address);
  if (it == mem.mappings.end() || it->first != address) return Status::invalid_value;
  while (it != mem.mappings.end() && it->first < address + bytes) {
    if (it->first + it->second.bytes > address + bytes) return Status::invalid_value;  // mappings come off whole
    const auto physical = mem.physical.find(it->second.handle);
    set_knowledge(it->first, it->second.bytes, Knowledge::none);
    close_pages(it->first, it->second.bytes);
    note(record::SegmentAction::unmap, std::max(0, physical->second.device), it->first, it->second.bytes);
    it = mem.mappings.erase(it);
    drop(physical);
  }
  return Status::ok;
}

Status copy(void* to, const void* from, std::size_t bytes, Stream& stream, bool synchronous) {
  return copy_rows(to, bytes, from, bytes, bytes, 1, stream, synchronous);
}

Status copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t bytes, std::size_t rows,
                 Stream& stream, bool synchronous) {
  const std::size_t all = bytes * rows;
  if (all == 0) return Status::ok;
  if (to == nullptr || from == nullptr || to_pitch < bytes || from_pitch < bytes) return Status::invalid_value;
  const auto held = lock();
  Machine& m = machine();
  const Place target = find(to), source = find(from);
  const auto kind = kind_of(target, source);
  const bool captured = stream.capture != nullptr;
  const bool kept = !captured && (all <= settings().keep_bytes || kind == record::CopyKind::host_to_host);
  if (kept) {
    for (std::size_t row = 0; row < rows; ++row)
      std::memmove(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, bytes);
    if (target.where == Where::device)
      for (std::size_t row = 0; row < rows; ++row)
        set_knowledge(reinterpret_cast<std::uintptr_t>(to) + row * to_pitch, bytes,
                      source.where == Where::device ? knowledge_of(reinterpret_cast<std::uintptr_t>(from) + row * from_pitch, bytes)
                                                    : Knowledge::certain);
  } else if (!captured && target.where == Where::device && rows == 1) {
    forget_values(to, bytes);
    set_knowledge(reinterpret_cast<std::uintptr_t>(to), bytes, Knowledge::none);
  }
  // A copy into pageable host memory holds the host up; one out of it is staged.
  const bool to_pageable = kind == record::CopyKind::device_to_host && target.where == Where::host;
  const bool waits = !captured && (synchronous || to_pageable);
  const bool pinned = source.where == Where::pinned || target.where == Where::pinned;
  auto flags = m.issue(stream);
  flags = static_cast<std::uint16_t>(flags | (pinned ? record::kPinned : 0) | (waits ? record::kSynchronous : 0) |
                                     (kept ? record::kValues : 0));
  ++m.totals.copies;
  if (kind == record::CopyKind::device_to_host) ++m.totals.values_read;
  record::Copy event{};
  event.stream = stream.id;
  event.kind = kind;
  event.peer_device = static_cast<std::uint8_t>(kind == record::CopyKind::peer ? target.device : 0);
  event.bytes = all;
  m.write(record::Kind::copy, stream.device, event, flags);
  return waits ? m.synchronize(stream) : Status::ok;
}

Status fill(void* to, std::uint32_t value, std::size_t unit, std::size_t count, Stream& stream) {
  const std::size_t bytes = unit * count;
  if (bytes == 0) return Status::ok;
  if (to == nullptr) return Status::invalid_value;
  const auto held = lock();
  Machine& m = machine();
  if (stream.capture == nullptr) {
    if (value == 0 || bytes > settings().keep_bytes) {
      forget_values(to, bytes);
    } else if (unit == 1) {
      std::memset(to, static_cast<int>(value), bytes);
    } else {
      for (std::size_t i = 0; i < count; ++i) std::memcpy(static_cast<char*>(to) + i * unit, &value, unit);
    }
    if (find(to).where == Where::device)
      set_knowledge(reinterpret_cast<std::uintptr_t>(to), bytes, bytes <= settings().keep_bytes ? Knowledge::certain : Knowledge::none);
  }
  record::Memset event{};
  event.stream = stream.id;
  event.value = value;
  event.bytes = bytes;
  m.write(record::Kind::memset, stream.device, event, m.issue(stream));
  return Status::ok;
}

}  // namespace plimsoll::device
