// Memory that is mapped page by page: addresses are reserved, pages are made, mapped at them and opened to the device.
#include <sys/mman.h>

#include "fake_device.hpp"

namespace plimsoll::calibrate::fake {
namespace {

constexpr std::size_t kPage = std::size_t{2} << 20;
constexpr int kPinned = 1, kDevice = 1, kReadAndWrite = 3;

struct Pages {
  std::size_t bytes;
  bool released = false, mapped = false;
};
struct State {
  std::mutex mutex;
  std::map<std::byte*, std::size_t> ranges;
  std::map<std::byte*, Pages*> mapped;  // by address
};
State& state() {
  static State all;
  return all;
}

/// Both a handle and a mapping keep pages; the last gives them back.
void drop(Pages* pages) {
  if (!pages->released || pages->mapped) return;
  current().destroy(pages->bytes);
  delete pages;
}

bool reserved(std::byte* at, std::size_t bytes) {
  const auto above = state().ranges.upper_bound(at);
  if (above == state().ranges.begin()) return false;
  const auto& [start, size] = *std::prev(above);
  return at + bytes <= start + size;
}

}  // namespace

int reserve_addresses(void** range, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  if (bytes == 0 || bytes % kPage != 0) return kInvalidValue;
  *range = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (*range == MAP_FAILED) return kOutOfMemory;
  state().ranges[static_cast<std::byte*>(*range)] = bytes;
  return 0;
}

int free_addresses(void* range, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  auto* start = static_cast<std::byte*>(range);
  const auto found = state().ranges.find(start);
  const auto first = state().mapped.lower_bound(start);
  const bool in_use = first != state().mapped.end() && first->first < start + bytes;
  if (found == state().ranges.end() || found->second != bytes || in_use) return kInvalidValue;
  munmap(range, bytes);
  state().ranges.erase(found);
  return 0;
}

int create_pages(void** handle, std::size_t bytes, const MappedMemory* wanted) {
  if (bytes == 0 || bytes % kPage != 0 || wanted->type != kPinned || wanted->location_type != kDevice || !valid(wanted->device))
    return kInvalidValue;
  if (!current().create(bytes)) return kOutOfMemory;
  *handle = new Pages{bytes};
  return 0;
}

int release_pages(void* handle) {
  const std::lock_guard lock(state().mutex);
  auto* pages = static_cast<Pages*>(handle);
  if (!pages || pages->released) return kInvalidValue;
  pages->released = true;
  drop(pages);
  return 0;
}

int map_pages(void* at, std::size_t bytes, void* handle) {
  const std::lock_guard lock(state().mutex);
  auto* start = static_cast<std::byte*>(at);
  auto* pages = static_cast<Pages*>(handle);
  if (!pages || pages->mapped || pages->bytes != bytes || !reserved(start, bytes) || state().mapped.count(start) > 0) return kInvalidValue;
  pages->mapped = true;
  state().mapped[start] = pages;
  return 0;
}

int unmap_pages(void* at, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().mapped.find(static_cast<std::byte*>(at));
  if (found == state().mapped.end() || found->second->bytes != bytes) return kInvalidValue;
  current().unmap(at);
  madvise(at, bytes, MADV_DONTNEED);
  mprotect(at, bytes, PROT_NONE);
  found->second->mapped = false;
  drop(found->second);
  state().mapped.erase(found);
  return 0;
}

int set_access(void* at, std::size_t bytes, const MappedAccess* access) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().mapped.find(static_cast<std::byte*>(at));
  if (found == state().mapped.end() || found->second->bytes != bytes || access->location_type != kDevice || !valid(access->device) ||
      access->flags != kReadAndWrite)
    return kInvalidValue;
  mprotect(at, bytes, PROT_READ | PROT_WRITE);
  current().map(at, bytes);
  return 0;
}

}  // namespace plimsoll::calibrate::fake
