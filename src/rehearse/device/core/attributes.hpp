/// A few numbered attributes of any size in a fixed amount of memory, for descriptors whose storage may be the caller's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace plimsoll::device {

template <std::size_t Bytes>
class Attributes {
 public:
  /// False when there is no room left.
  bool set(std::uint8_t id, const void* value, std::size_t bytes) {
    if (unsigned char* known = find(id); known != nullptr && known[1] == bytes) {
      std::memcpy(known + 2, value, bytes);
      return true;
    }
    if (bytes > 255 || used_ + 2 + bytes > sizeof store_) return false;
    store_[used_] = id;
    store_[used_ + 1] = static_cast<unsigned char>(bytes);
    std::memcpy(store_ + used_ + 2, value, bytes);
    used_ = static_cast<std::uint16_t>(used_ + 2 + bytes);
    return true;
  }
  /// The bytes written; zeros for an attribute never set.
  std::size_t get(std::uint8_t id, void* value, std::size_t bytes) const {
    const unsigned char* known = const_cast<Attributes*>(this)->find(id);
    if (known == nullptr) {
      std::memset(value, 0, bytes);
      return bytes;
    }
    const std::size_t size = known[1] < bytes ? known[1] : bytes;
    std::memcpy(value, known + 2, size);
    return size;
  }
  /// A 32-bit attribute, or `fallback` when it was never set.
  int number(std::uint8_t id, int fallback) const {
    if (const_cast<Attributes*>(this)->find(id) == nullptr) return fallback;
    int value = 0;
    get(id, &value, sizeof value);
    return value;
  }

 private:
  unsigned char* find(std::uint8_t id) {
    for (std::size_t at = 0; at < used_; at += 2u + store_[at + 1])
      if (store_[at] == id) return store_ + at;
    return nullptr;
  }

  std::uint16_t used_ = 0;
  unsigned char store_[Bytes - sizeof(std::uint16_t)];
};

}  // namespace plimsoll::device
