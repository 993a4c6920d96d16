#include "program/save_on_cpu.hpp"

#include <cstring>
#include <utility>

#include "program/op.hpp"

namespace plimsoll::program {

/// What it takes to bring a tensor back.
struct SaveOnCpu::Saved final : Packed {
  Dims sizes, strides;
  DType type = DType::fp32;
  bool requires_grad = false;
  std::shared_ptr<void> host;
};

/// A copy between devices wants both sides laid out alike (Copy.cu, copy_requires_temporaries); F.linear saves its weight transposed.
bool SaveOnCpu::copies_on_device(const Tensor& tensor) const {
  if (!pinned_) return like_strides(tensor) != tensor.strides();
  const bool transposed_weight = tensor.is_leaf() && tensor.rank() == 2 && std::strcmp(tape_.operator_name, "linear") == 0;
  return transposed_weight || !tensor.is_contiguous();
}

std::unique_ptr<SavedTensorHooks::Packed> SaveOnCpu::pack(const Tensor& tensor) {
  auto saved = std::make_unique<Saved>();
  saved->sizes = tensor.sizes();
  saved->strides = pinned_ ? contiguous_strides(tensor.sizes()) : like_strides(tensor);
  saved->type = tensor.dtype();
  saved->requires_grad = tensor.requires_grad();
  Tensor rows;
  if (copies_on_device(tensor)) {
    rows = tape_.empty(tensor.sizes(), tensor.dtype());
    in_place(rows, {&tensor});
  }
  tape_.copy({.direction = Copy::Direction::device_to_host, .bytes = tensor.bytes()}, tape_.stream);
  saved->host = host_.hold(tensor.bytes());
  return saved;
}

Tensor SaveOnCpu::unpack(Packed& packed) {
  const Saved& saved = static_cast<Saved&>(packed);
  Tensor tensor = tape_.empty(saved.sizes, saved.type, Category::activation);
  tensor.impl()->strides = saved.strides;
  tape_.copy({.direction = Copy::Direction::host_to_device, .bytes = tensor.bytes()}, tape_.stream);
  if (saved.requires_grad) tensor.set_requires_grad(true);
  return tensor;
}

}  // namespace plimsoll::program
