/// FixedPoolAllocator of Megatron-FSDP (fsdp_double_buffer): layers alike take turns in two buffers, which are never given back.
#pragma once

#include <array>
#include <cstddef>
#include <map>

#include "program/tape.hpp"

namespace plimsoll::program {

class MegatronFsdpPool {
 public:
  explicit MegatronFsdpPool(Tape& tape) : tape_(tape) {}

  /// A buffer for a layer's bucket number `place`; the first time that a buffer is needed it is made on the current stream.
  /// `owner` tells the buckets apart. Throws Error (internal): both buffers are taken.
  Tensor take(std::size_t owner, std::size_t place, std::int64_t elements, DType type, Category category);
  void give_back(std::size_t owner);

 private:
  static constexpr std::size_t kBuffers = 2;
  struct Slot {
    Tensor buffer;
    bool taken = false;
  };

  Tape& tape_;
  std::map<std::size_t, std::array<Slot, kBuffers>> slots_;  ///< by place
  std::map<std::size_t, Slot*> taken_;                       ///< by owner
};

}  // namespace plimsoll::program
