/// Host memory that saved tensors wait in.
#pragma once

#include <cstdint>
#include <memory>

#include "program/tape.hpp"

namespace plimsoll::program {

/// Counts what waits at once; the program needs as much host memory as the most of it.
class HostStay {
 public:
  /// `pinned`: blocks of PyTorch's host allocator, which are powers of two (CachingHostAllocator.h).
  HostStay(Tape& tape, bool pinned) : tape_(tape), pinned_(pinned) {}

  /// A block of so many bytes, there until the handle goes.
  std::shared_ptr<void> hold(std::int64_t bytes);

 private:
  Tape& tape_;
  bool pinned_;
  std::int64_t most_ = 0;
  std::shared_ptr<std::int64_t> now_ = std::make_shared<std::int64_t>(0);  ///< handles may go after this
};

}  // namespace plimsoll::program
