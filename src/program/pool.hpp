/// Memory for the small objects of a tape, millions of which come and go in a step: what dies is kept by its size and handed out again.
/// One pool per thread, as a tape and everything that hangs on it belong to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define PLIMSOLL_POOL_OFF 1  // so that the sanitizer sees every object's end
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PLIMSOLL_POOL_OFF 1
#endif
#endif

namespace plimsoll::program {

class Pool {
 public:
  static Pool& of_this_thread() {
    static thread_local Pool pool;
    return pool;
  }

  void* take(std::size_t size) {
    if (size > kLargest) return ::operator new(size);
    Free*& head = free_[class_of(size)];
    if (head == nullptr) return carve(size);
    return std::exchange(head, head->next);
  }

  void give(void* memory, std::size_t size) noexcept {
    if (size > kLargest) return ::operator delete(memory);
    Free*& head = free_[class_of(size)];
    head = ::new (memory) Free{head};
  }

 private:
  struct Free {
    Free* next;
  };
  static constexpr std::size_t kGrain = 16, kLargest = 512, kChunk = 65536;

  static std::size_t class_of(std::size_t size) { return (size + kGrain - 1) / kGrain; }

  void* carve(std::size_t size) {
    const std::size_t rounded = class_of(size) * kGrain;
    if (left_ < rounded) {
      chunks_.push_back(std::make_unique<Chunk>());
      at_ = chunks_.back()->bytes.data();
      left_ = kChunk;
    }
    left_ -= rounded;
    return std::exchange(at_, at_ + rounded);
  }

  struct Chunk {
    alignas(kGrain) std::array<std::byte, kChunk> bytes;
  };
  std::array<Free*, kLargest / kGrain + 1> free_{};
  std::byte* at_ = nullptr;
  std::size_t left_ = 0;
  std::vector<std::unique_ptr<Chunk>> chunks_;
};

/// Base of a class whose objects live in the pool.
struct Pooled {
#if !defined(PLIMSOLL_POOL_OFF)
  static void* operator new(std::size_t size) { return Pool::of_this_thread().take(size); }
  static void operator delete(void* memory, std::size_t size) noexcept { Pool::of_this_thread().give(memory, size); }
#endif
};

template <class T>
struct PoolAllocator {
  using value_type = T;
  PoolAllocator() = default;
  template <class U>
  PoolAllocator(const PoolAllocator<U>&) {}
#if defined(PLIMSOLL_POOL_OFF)
  T* allocate(std::size_t count) { return static_cast<T*>(::operator new(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t) noexcept { ::operator delete(memory); }
#else
  T* allocate(std::size_t count) { return static_cast<T*>(Pool::of_this_thread().take(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t count) noexcept { Pool::of_this_thread().give(memory, count * sizeof(T)); }
#endif
  friend bool operator==(const PoolAllocator&, const PoolAllocator&) { return true; }
  friend bool operator!=(const PoolAllocator&, const PoolAllocator&) { return false; }
};

/// A vector whose elements live in the pool.
template <class T>
using List = std::vector<T, PoolAllocator<T>>;

}  // namespace plimsoll::program
