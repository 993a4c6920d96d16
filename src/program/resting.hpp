/// Tensors whose memory is on the host between the passes that need it: tensor.to("cpu", non_blocking=True), and back.
#pragma once

#include "program/tape.hpp"

namespace plimsoll::program {

inline void rest_storage(const Tensor& tensor) {
  Tape& tape = tensor.tape();
  tape.copy({Copy::Direction::device_to_host, tensor.bytes()}, tape.stream);
  tape.free_storage(tensor);
}

inline void fetch_storage(const Tensor& tensor, Category category) {
  Tape& tape = tensor.tape();
  tape.allocate_storage(tensor, category);
  tape.copy({Copy::Direction::host_to_device, tensor.bytes()}, tape.stream);
}

}  // namespace plimsoll::program
