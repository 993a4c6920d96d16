/// Numbers by a key of 64 bits, in one array: a tape looks up thousands of labels and kernels, which a node of the heap each would outweigh.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace plimsoll::program {

class HashIndex {
 public:
  /// The number that was added with the key and for which `same` holds; null where there is none.
  template <class Same>
  const std::uint32_t* find(std::uint64_t key, Same&& same) const {
    if (slots_.empty()) return nullptr;
    for (std::size_t at = place_of(key); slots_[at].taken; at = (at + 1) & (slots_.size() - 1))
      if (slots_[at].key == key && same(slots_[at].number)) return &slots_[at].number;
    return nullptr;
  }

  void add(std::uint64_t key, std::uint32_t number) {
    if (2 * ++size_ > slots_.size()) grow();
    put({key, number, true});
  }

 private:
  struct Slot {
    std::uint64_t key = 0;
    std::uint32_t number = 0;
    bool taken = false;
  };
  static constexpr std::size_t kFirst = 1024;  ///< slots; a power of two

  std::size_t place_of(std::uint64_t key) const { return (key * 0x9E3779B97F4A7C15U) >> shift_; }
  void put(const Slot& slot) {
    std::size_t at = place_of(slot.key);
    while (slots_[at].taken) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }
  void grow() {
    const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots_.empty() ? kFirst : 2 * slots_.size()));
    shift_ = 64;
    for (std::size_t size = slots_.size(); size > 1; size /= 2) --shift_;
    for (const Slot& slot : old)
      if (slot.taken) put(slot);
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
  int shift_ = 64;
};

}  // namespace plimsoll::program
