/// Memory of the devices and page-locked memory of the host: address space that costs nothing until small values are written to it.
///
/// Every device has one range of addresses, filled from its end, the highest gap first, in pages of 2 MiB; address space asked for by
/// itself (cuMemAddressReserve) has another. An address tells its device by the range it lies in. What is not allocated or mapped cannot be
/// touched. All of it reads as zeros until something is written.
#pragma once

#include <cstddef>
#include <cstdint>

#include "addresses.hpp"
#include "machine.hpp"

namespace plimsoll::device {

enum class Where { host, pinned, managed, device };

/// What is known of values on a device, which computes none itself: nothing; what was assumed of uncomputed ones; the values themselves.
enum class Knowledge { none = 0, assumed = 1, certain = 2 };

struct Place {
  Where where = Where::host;
  int device = 0;
  std::uintptr_t start = 0;  ///< of the allocation or mapping
  std::size_t bytes = 0;
};

// Every function here takes the machine's lock itself, except the last two.

PLIMSOLL_DEVICE_CORE Place place_of(const void* address);
PLIMSOLL_DEVICE_CORE bool on_device(const void* address);

/// Device memory of the calling thread's device; `stream` is given for a stream-ordered allocation.
PLIMSOLL_DEVICE_CORE Status allocate(void** address, std::size_t bytes, const Stream* stream = nullptr);
/// Waits for the device unless stream-ordered. A null address is nothing to free; any other that was not allocated is an error.
PLIMSOLL_DEVICE_CORE Status release(void* address, const Stream* stream = nullptr);

PLIMSOLL_DEVICE_CORE Status allocate_host(void** address, std::size_t bytes, Where where = Where::pinned);
PLIMSOLL_DEVICE_CORE Status release_host(void* address);
/// Locks pages that the program has.
PLIMSOLL_DEVICE_CORE Status register_host(void* address, std::size_t bytes);
PLIMSOLL_DEVICE_CORE Status unregister_host(void* address);

PLIMSOLL_DEVICE_CORE void memory_info(std::uint64_t* free_bytes, std::uint64_t* total_bytes);

// Address space and physical memory apart.
PLIMSOLL_DEVICE_CORE Status reserve_addresses(std::uintptr_t* address, std::size_t bytes, std::size_t alignment);
PLIMSOLL_DEVICE_CORE Status free_addresses(std::uintptr_t address, std::size_t bytes);
/// Physical memory of a device, or of the host for `device` -1.
PLIMSOLL_DEVICE_CORE Status create_physical(std::uint64_t* handle, std::size_t bytes, int device);
PLIMSOLL_DEVICE_CORE Status retain_physical(std::uint64_t* handle, std::uintptr_t address);
PLIMSOLL_DEVICE_CORE Status release_physical(std::uint64_t handle);
/// Bytes and device of a handle.
PLIMSOLL_DEVICE_CORE Status physical_of(std::uint64_t handle, std::size_t* bytes, int* device);
PLIMSOLL_DEVICE_CORE Status map_physical(std::uintptr_t address, std::size_t bytes, std::size_t offset, std::uint64_t handle);
/// Addresses of this process for memory that another one took of the device, which is not taken again; nothing is known of its values.
PLIMSOLL_DEVICE_CORE Status map_foreign(void** address, std::size_t bytes, int device);
PLIMSOLL_DEVICE_CORE Status unmap(std::uintptr_t address, std::size_t bytes);

/// Copies the values, and what is known of them, when there are at most PLIMSOLL_REHEARSE_KEEP bytes of them; larger ones leave zeros on
/// the device and the host's memory as it is. `device` for the direction means whichever side is on one.
PLIMSOLL_DEVICE_CORE Status copy(void* to, const void* from, std::size_t bytes, Stream& stream, bool synchronous);
/// The same for a rectangle of `rows` rows of `bytes` each.
PLIMSOLL_DEVICE_CORE Status copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t bytes,
                                      std::size_t rows, Stream& stream, bool synchronous);
/// `unit` is 1, 2 or 4 bytes.
PLIMSOLL_DEVICE_CORE Status fill(void* to, std::uint32_t value, std::size_t unit, std::size_t count, Stream& stream);

/// Notes what is known of the values there: until the framework gives the block to somebody else, who would read them as results. What is
/// no longer known reads as zeros.
PLIMSOLL_DEVICE_CORE void note_values(const void* address, std::size_t bytes, Knowledge knowledge = Knowledge::certain);
/// The least that is known of any of these bytes.
PLIMSOLL_DEVICE_CORE Knowledge known_values(const void* address, std::size_t bytes);
/// Sets to zero what was put there, and forgets it: a block changes its owner, a kernel writes it anew. The caller holds the lock.
PLIMSOLL_DEVICE_CORE void forget_owner(std::uintptr_t address, std::size_t bytes);

/// Counts bytes (negative ones are given back) that something outside the program's allocations takes on the device (a communicator's
/// buffers). The caller holds the lock.
PLIMSOLL_DEVICE_CORE Status take(int device, std::int64_t bytes);

}  // namespace plimsoll::device
