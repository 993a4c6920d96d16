/// Kernels by the shapes that made them: what is read off tensors once need not be read off their like again. A step launches thousands of
/// kernels over a few dozen combinations of shapes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace plimsoll::program {

class LaunchMemo {
 public:
  /// What a call launches: a kernel of the program, so many times.
  struct Launch {
    std::uint32_t kernel = 0;
    std::int64_t times = 0;
  };

  /// Everything that a launch depends on, word by word.
  class Key {
   public:
    void add(std::int64_t word) {
      if (size_ < kMost) words_[size_] = word;
      ++size_;
      hash_ = (hash_ ^ static_cast<std::uint64_t>(word)) * 0x9E3779B97F4A7C15U;
    }

   private:
    friend class LaunchMemo;
    static constexpr std::size_t kMost = 64;  ///< more is not remembered
    std::array<std::int64_t, kMost> words_;
    std::size_t size_ = 0;
    std::uint64_t hash_ = 0;
  };

  /// Nothing where no such call was kept.
  const Launch* find(const Key& key) const {
    if (key.size_ > Key::kMost || slots_.empty()) return nullptr;
    for (std::size_t at = slot_of(key.hash_);; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at] == kFree) return nullptr;
      const Entry& entry = entries_[slots_[at]];
      if (entry.hash == key.hash_ && entry.size == key.size_ &&
          std::equal(key.words_.begin(), key.words_.begin() + static_cast<std::ptrdiff_t>(key.size_),
                     words_.begin() + static_cast<std::ptrdiff_t>(entry.begin)))
        return &entry.launch;
    }
  }

  void keep(const Key& key, Launch launch) {
    if (key.size_ > Key::kMost) return;
    if (2 * (entries_.size() + 1) > slots_.size()) grow();
    place(static_cast<std::uint32_t>(entries_.size()), key.hash_);
    entries_.push_back({key.hash_, words_.size(), key.size_, launch});
    words_.insert(words_.end(), key.words_.begin(), key.words_.begin() + static_cast<std::ptrdiff_t>(key.size_));
  }

 private:
  struct Entry {
    std::uint64_t hash;
    std::size_t begin, size;  ///< of its words
    Launch launch;
  };
  static constexpr std::uint32_t kFree = UINT32_MAX;

  std::size_t slot_of(std::uint64_t hash) const { return static_cast<std::size_t>(hash >> 32U) & (slots_.size() - 1); }

  void place(std::uint32_t entry, std::uint64_t hash) {
    std::size_t at = slot_of(hash);
    while (slots_[at] != kFree) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = entry;
  }

  void grow() {
    constexpr std::size_t kFirst = 256;
    slots_.assign(std::max(kFirst, 2 * slots_.size()), kFree);
    for (std::uint32_t i = 0; i < entries_.size(); ++i) place(i, entries_[i].hash);
  }

  std::vector<Entry> entries_;
  std::vector<std::int64_t> words_;
  std::vector<std::uint32_t> slots_;  ///< entries by hash, open addressing; a power of two of them
};

}  // namespace plimsoll::program
