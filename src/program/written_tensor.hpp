/// Tensors whose instructions were written down again: no operator ran that made them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "program/tape.hpp"

namespace plimsoll::program {

/// The storage that the instruction at `at` of `part` allocates.
inline StorageRef written_storage(Tape& tape, TensorId id, std::int64_t bytes, StreamId stream, std::vector<Instruction>* part, std::size_t at) {
  StorageRef storage(new Storage);
  storage->tape = &tape;
  storage->id = id;
  storage->bytes = bytes;
  storage->stream = stream;
  storage->resident = true;
  storage->part = part;
  storage->at = at;
  return storage;
}

inline Ref<TensorImpl> written_tensor(Tape& tape, StorageRef storage, const Dims& sizes, const Dims& strides, DType type) {
  Ref<TensorImpl> impl(new TensorImpl);
  impl->tape = &tape;
  impl->storage = std::move(storage);
  impl->sizes = sizes;
  impl->strides = strides;
  impl->dtype = type;
  return impl;
}

}  // namespace plimsoll::program
