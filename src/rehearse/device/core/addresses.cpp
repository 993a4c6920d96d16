#include "addresses.hpp"

#include <sys/mman.h>

#include <iterator>
#include <string>

#include "settings.hpp"

namespace plimsoll::device {
namespace {

/// Allocations of so many bytes begin at multiples of them, and smaller ones fill the gaps above. So told by which of equal free blocks
/// PyTorch 2.11, which takes the lowest, took in 28 training steps on an H100: what they reserve comes out to the byte.
constexpr std::uint64_t kLarge = std::uint64_t{32} << 20;

}  // namespace

Range::Range(std::uint64_t most, std::uint64_t least) {
  for (std::uint64_t bytes = most; bytes >= least; bytes /= 2) {
    void* at = mmap(nullptr, bytes + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) continue;
    madvise(at, bytes + kPage, MADV_DONTDUMP);
    madvise(at, bytes + kPage, MADV_NOHUGEPAGE);  // one small value must not cost 2 MiB
    start_ = up(reinterpret_cast<std::uintptr_t>(at), kPage);
    end_ = start_ + bytes;
    gaps_[start_] = bytes;
    return;
  }
  complain("no address space for " + std::to_string(least >> 30) + " GiB of device memory: is it limited (ulimit -v)?");
}

std::uintptr_t Range::take_for_device(std::uint64_t bytes) {
  return settings().addresses_rise ? take_lowest(bytes, kPage) : take_highest(bytes, bytes >= kLarge ? kLarge : kPage);
}

std::uintptr_t Range::take_highest(std::uint64_t bytes, std::uint64_t alignment) {
  for (auto gap = gaps_.rbegin(); gap != gaps_.rend(); ++gap) {
    if (bytes > gap->second) continue;
    const std::uintptr_t at = (gap->first + gap->second - bytes) / alignment * alignment;
    if (at >= gap->first) return cut(std::prev(gap.base()), at, bytes);
  }
  return 0;
}

std::uintptr_t Range::take_lowest(std::uint64_t bytes, std::uint64_t alignment) {
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    const std::uintptr_t at = up(gap->first, alignment);
    if (at + bytes <= gap->first + gap->second) return cut(gap, at, bytes);
  }
  return 0;
}

std::uintptr_t Range::cut(Gaps::iterator gap, std::uintptr_t at, std::uint64_t bytes) {
  const std::uintptr_t from = gap->first, to = from + gap->second;
  gaps_.erase(gap);
  if (at > from) gaps_[from] = at - from;
  if (at + bytes < to) gaps_[at + bytes] = to - at - bytes;
  return at;
}

void Range::give_back(std::uintptr_t at, std::uint64_t bytes) {
  auto after = gaps_.lower_bound(at);
  if (after != gaps_.end() && at + bytes == after->first) {
    bytes += after->second;
    after = gaps_.erase(after);
  }
  if (after != gaps_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == at) {
      before->second += bytes;
      return;
    }
  }
  gaps_[at] = bytes;
}

bool open_pages(std::uintptr_t at, std::uint64_t bytes) {
  return mprotect(reinterpret_cast<void*>(at), bytes, PROT_READ | PROT_WRITE) == 0;
}

void close_pages(std::uintptr_t at, std::uint64_t bytes) {
  void* pages = reinterpret_cast<void*>(at);
  madvise(pages, bytes, MADV_DONTNEED);
  mprotect(pages, bytes, PROT_NONE);
}

}  // namespace plimsoll::device
