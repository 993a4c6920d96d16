#include "program/wrappers/msamp/masters.hpp"

#include "program/op.hpp"
#include "program/ops/copying.hpp"
#include "program/ops/ops.hpp"
#include "program/reduction.hpp"
#include "program/wrappers/deepspeed/deepspeed.hpp"
#include "program/wrappers/deepspeed/norm.hpp"

namespace plimsoll::program::msamp {

namespace {

/// copy.deepcopy of a tensor: its whole storage.
Tensor deep_copy(const Tensor& x) {
  Tensor y = x.tape().empty({x.impl()->storage->bytes / size_of(x.dtype())}, x.dtype(), Category::optimizer_state);
  copy_into(y, y);
  return x.tape().view(y, x.sizes(), x.strides());
}

}  // namespace

std::vector<std::shared_ptr<Parameter>> ordinary(const Model& model) {
  std::vector<std::shared_ptr<Parameter>> parameters;
  for (const Trained& one : model.trained())
    if (!one.linear) parameters.push_back(one.parameter);
  return parameters;
}

std::shared_ptr<Parameter> master_parameter(const Tensor& tensor) {
  auto parameter = std::make_shared<Parameter>();
  parameter->sizes = tensor.sizes();
  parameter->type = tensor.dtype();
  parameter->tensor = tensor;
  return parameter;
}

std::unique_ptr<ScaledLinear> cloned_master(const ScaledLinear& linear) {
  auto master = std::make_unique<ScaledLinear>();
  const Tensor value = clone(linear.weight->tensor);
  Tape::categorize(value, Category::optimizer_state);
  master->weight = master_parameter(value);
  for (Tensor Scaling::*number : {&Scaling::scale, &Scaling::inverse, &Scaling::largest})
    master->scaling.*number = deep_copy(linear.scaling.*number);
  master->weight_gradient = linear.weight_gradient;
  return master;
}

void move_values(Tensor& gradient, const Tensor& values) {
  Tensor moved = values.tape().view(values, gradient.sizes(), contiguous_strides(gradient.sizes()));
  const Ref<TensorImpl> made = gradient.impl()->base;
  moved.impl()->base = made ? made : Ref<TensorImpl>(gradient.impl());
  gradient = std::move(moved);
}

void read_overflow(Tape& tape, const std::vector<Tensor>& gradients, const std::vector<const ScaledLinear*>& linears) {
  const auto read = [&](const Tensor& x) { tape.copy({Copy::Direction::device_to_host, x.bytes()}, tape.stream); };
  for (const Tensor& gradient : gradients) {
    const Tensor wide = converted(tape.view(gradient, {gradient.elements()}, {1}), DType::fp32);
    read(reduce(wide, {true}, false, DType::fp32));
  }
  for (const ScaledLinear* linear : linears) {
    const Tensor largest = select(linear->weight_gradient.largest, 0);
    read(is_finite(largest));
  }
}

}  // namespace plimsoll::program::msamp
