#include "memory/free_list.hpp"

namespace plimsoll::memory {

std::size_t FreeList::Bin::lower_bound_within(std::int64_t size, std::uint64_t address) const {
  std::size_t low = begin_ + 1, high = end_ - 1;
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (before(slots_[middle], size, address))
      low = middle + 1;
    else
      high = middle;
  }
  return low - begin_;
}

/// Moves the entries to the middle of the slots, of which there are more where they were half full.
void FreeList::Bin::make_room() {
  const std::size_t count = size();
  std::vector<Entry> wider;
  if (2 * count >= slots_.size()) wider.resize(4 * count + 4);
  auto& to = wider.empty() ? slots_ : wider;
  const std::size_t begin = (to.size() - count) / 2;
  const Entry *const from = slots_.data() + begin_, *const until = from + count;
  if (begin > begin_ && wider.empty())
    std::copy_backward(from, until, to.data() + begin + count);
  else
    std::copy(from, until, to.data() + begin);
  if (!wider.empty()) slots_ = std::move(wider);
  room_ = static_cast<std::uint32_t>(slots_.size());
  begin_ = static_cast<std::uint32_t>(begin);
  end_ = static_cast<std::uint32_t>(begin + count);
}

/// The shorter side makes room.
void FreeList::Bin::insert_within(std::size_t position, const Entry& entry) {
  Entry* const at = slots_.data() + begin_ + position;
  if (2 * position < size()) {
    std::copy(slots_.data() + begin_, at, slots_.data() + begin_ - 1);
    --begin_;
    *(at - 1) = entry;
  } else {
    std::copy_backward(at, slots_.data() + end_, slots_.data() + end_ + 1);
    ++end_;
    *at = entry;
  }
}

void FreeList::Bin::erase_within(std::size_t position) {
  Entry* const at = slots_.data() + begin_ + position;
  if (2 * position < size()) {
    std::copy_backward(slots_.data() + begin_, at, at + 1);
    ++begin_;
  } else {
    std::copy(at + 1, slots_.data() + end_, at);
    --end_;
  }
}

const FreeList::Entry& FreeList::back() const {
  std::size_t word = kWords - 1;
  while (!occupied_[word]) --word;
  return bins_[word * 64 + static_cast<std::size_t>(std::bit_width(occupied_[word])) - 1].back();
}

}  // namespace plimsoll::memory
