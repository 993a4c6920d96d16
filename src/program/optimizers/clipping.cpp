#include "program/optimizers/clipping.hpp"

#include <algorithm>

#include "program/op.hpp"
#include "program/optimizers/optimizer.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

std::vector<Tensor> gradients_of(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : parameters)
    if (parameter.grad()) gradients.push_back(parameter.grad());
  return gradients;
}

/// _foreach_norm: partial sums of chunks of 65,536 elements in a buffer set to zero, then one norm per tensor.
std::vector<Tensor> foreach_norms(Tape& tape, const std::vector<Tensor>& tensors) {
  std::int64_t chunks = 0;
  for (const Tensor& tensor : tensors) chunks += ceil_div(tensor.elements(), 65536);
  const auto count = static_cast<std::int64_t>(tensors.size());
  const Tensor offsets = tape.empty({count + 1}, DType::int64, Category::workspace);
  const Tensor partial = tape.empty({chunks}, DType::fp32, Category::workspace);
  std::vector<Tensor> norms;
  norms.reserve(tensors.size());
  for (const Tensor& tensor : tensors) norms.push_back(tape.empty({}, tensor.dtype()));
  launch_foreach(tape, tensors, 1, 0, {.function = MultiTensor::Function::norm});
  Reduction cleanup{Reduction::Axis::inner, count, ceil_div(chunks, count), {}};
  cleanup.operands = Operands({operand(partial)}, {{count, tensors.front().dtype(), Walk::contiguous}});
  tape.kernel({cleanup});
  return norms;
}

/// Squares, their sum over the group, the root of it.
Tensor norm_over(Tape& tape, const Tensor& norms, Group group) {
  const Tensor squares = elementwise(tape, {&norms}, norms.dtype());
  tape.collective({.kind = CollectiveKind::all_reduce, .group = group, .bytes = squares.bytes(), .type = squares.dtype()}, tape.stream);
  return elementwise(tape, {&squares}, norms.dtype());
}

/// torch.stack of norms of several types, which are copied one by one; those of fp32 without a kernel.
Tensor widened_norms(Tape& tape, const std::vector<Tensor>& norms) {
  Tensor all = tape.empty({static_cast<std::int64_t>(norms.size())}, DType::fp32);
  for (const Tensor& norm : norms) {
    if (norm.dtype() == DType::fp32) {
      tape.copy({Copy::Direction::device_to_device, norm.bytes()}, tape.stream);
    } else {
      tape.kernel({Pointwise{Pointwise::Form::map, 1, Operands({operand(norm)}, {{1, DType::fp32, Walk::contiguous}})}});
    }
  }
  return all;
}

constexpr std::int64_t kCatBatch = 128;  // inputs of one launch: CAT_ARRAY_BATCH_SIZE of Shape.cu

}  // namespace

Tensor stacked_norms(Tape& tape, const std::vector<Tensor>& norms, DType type) {
  Tensor all = tape.empty({static_cast<std::int64_t>(norms.size())}, type);
  for (std::int64_t left = all.elements(); left > 0; left -= kCatBatch) {
    const Operand batch{std::min(left, kCatBatch), type, Walk::contiguous};
    tape.kernel({Pointwise{Pointwise::Form::concatenate, batch.elements, Operands({batch}, {batch})}});
  }
  return all;
}

Tensor clipping_coefficient(Tape& tape, const Tensor& norm) {
  Tensor coefficient;
  {
    const Tensor raised = elementwise(tape, {&norm}, norm.dtype());
    const Tensor inverse = elementwise(tape, {&raised}, norm.dtype());
    coefficient = elementwise(tape, {&inverse}, norm.dtype());
  }
  return elementwise(tape, {&coefficient}, norm.dtype());
}

void clip_grad_norm(Tape& tape, const std::vector<Tensor>& parameters, std::optional<Group> shards) {
  tape.operator_name = "clip_grad_norm";
  const std::vector<Tensor> gradients = gradients_of(parameters);
  if (gradients.empty()) return;
  const std::vector<std::vector<Tensor>> groups = grouped_by_type(gradients);
  const DType type = groups.size() > 1 ? DType::fp32 : gradients.front().dtype();
  Tensor total;
  {
    std::vector<Tensor> norms;
    for (const std::vector<Tensor>& group : groups)
      for (Tensor& norm : foreach_norms(tape, group)) norms.push_back(std::move(norm));
    Tensor all = groups.size() > 1 ? widened_norms(tape, norms) : stacked_norms(tape, norms, type);
    if (shards) all = norm_over(tape, all, *shards);
    total = reduce(all, {true}, false, type);
  }
  const Tensor coefficient = clipping_coefficient(tape, total);
  for (const std::vector<Tensor>& group : groups) {
    if (group.front().dtype() == type) {
      launch_foreach(tape, group, 1, 1);
    } else {  // _foreach_mul_ by a tensor of another type goes one by one
      for (const Tensor& gradient : group) in_place(gradient, {&gradient, &coefficient});
    }
  }
}

void clip_flat_grad_norm(Tape& tape, const std::vector<Tensor>& parameters) {
  tape.operator_name = "clip_grad_norm";
  const std::vector<Tensor> gradients = gradients_of(parameters);
  if (gradients.empty()) return;
  const DType type = gradients.front().dtype();
  Tensor total;
  {
    std::vector<Tensor> norms;
    tape.host(HostWork::operation, static_cast<std::int64_t>(gradients.size()));
    for (const Tensor& gradient : gradients) norms.push_back(reduce(gradient, {true}, false, DType::fp32));
    const Tensor all = stacked_norms(tape, norms, DType::fp32);
    total = reduce(all, {true}, false, DType::fp32);
  }
  total = norm_over(tape, total, Group::data_shard);
  const Tensor coefficient = clipping_coefficient(tape, total);
  const std::int64_t operators = type == DType::fp32 ? 1 : 2;  // the coefficient in the gradient's type, and the product
  tape.host(HostWork::operation, operators * static_cast<std::int64_t>(gradients.size()));
  for (const Tensor& gradient : gradients) {
    Tensor factor = coefficient;
    if (type != DType::fp32) factor = elementwise(tape, {&coefficient}, type);
    in_place(gradient, {&gradient, &factor});
  }
  if (type != DType::fp32) elementwise(tape, {&total}, type);  // the norm that is returned
}

}  // namespace plimsoll::program
