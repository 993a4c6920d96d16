// Time of kernels that read or write by an index, and of those that work through lists of tensors.
#include <algorithm>

#include "cost/memory_time.hpp"
#include "plimsoll/cost.hpp"

namespace plimsoll {
namespace {

double real(std::int64_t count) { return static_cast<double>(count); }

double bytes_of(const Operands& operands) { return real(operands.bytes_read() + operands.bytes_written()); }

/// One block works through a chunk of one tensor alone, however idle the device is; the last chunks end at different times.
Seconds chunk_time(const MultiTensor& kernel, const cost::MultiTensorLaws& laws) {
  const double of_tensor = real(kernel.elements) / real(std::max<std::int64_t>(1, kernel.tensors));
  const double filled = std::min(1.0, of_tensor / real(laws.chunk));
  return (laws.chunk_start + laws.chunk_per_operand * real(static_cast<std::int64_t>(kernel.operands.size()))) * filled;
}

/// Of an element. A copy that converts takes them one by one, one within a type sixteen bytes at a time (copy_chunk_with_pad of
/// ATen/native/cuda/TensorShape.cu).
double instructions_of(const MultiTensor& kernel, const cost::MultiTensorLaws& laws) {
  constexpr double kVectorBytes = 16;
  if (kernel.function == MultiTensor::Function::fused) return laws.fused_instructions;
  if (kernel.function != MultiTensor::Function::copy) return 0;
  const DType from = kernel.operands[0].type, into = kernel.operands[kernel.operands.size() - 1].type;
  return from == into ? laws.copy_instructions * real(size_of(into)) / kVectorBytes : laws.copy_instructions;
}

}  // namespace

/// Rows come from where the index says: never out of the cache.
Seconds price(const Gather& kernel, const Accelerator& device) {
  const cost::KernelLaw& law = cost::kernel_constants().gather.at(static_cast<std::size_t>(kernel.function));
  const Seconds issue = cost::issue_time(device, law.instructions * real(kernel.elements));
  return law.start + cost::overlapped(issue, cost::traffic_time(device, bytes_of(kernel.operands), 1.0));
}

/// Parameters and their states were touched a step ago: never in the cache.
Seconds price(const MultiTensor& kernel, const Accelerator& device) {
  const cost::MultiTensorLaws& laws = cost::kernel_constants().multi_tensor;
  const Seconds issue = cost::issue_time(device, instructions_of(kernel, laws) * real(kernel.elements));
  const Seconds streaming = cost::overlapped(issue, cost::traffic_time(device, bytes_of(kernel.operands), 1.0));
  return std::max(laws.start + streaming, chunk_time(kernel, laws));
}

}  // namespace plimsoll
