// Time of TensorIterator's kernels and their like, by the launch that PyTorch chooses for their operands.
#include <algorithm>

#include "cost/memory_time.hpp"
#include "plimsoll/cost.hpp"

namespace plimsoll {
namespace {

using cost::KernelLaw;
using cost::PointwiseLaws;

bool walks(const Operands& operands) {
  return std::any_of(operands.begin(), operands.end(), [](const Operand& operand) { return operand.walk != Walk::contiguous; });
}

/// Whether TensorIterator converts between types while it loads and stores (a functor of one type on operands of another). Masks and the
/// results of comparisons are the functor's own; so is a copy to 16 or 8 bits, which has its kernel.
bool casts(const Operands& operands) {
  if (operands.reads() == 0) return false;
  const Operand& result = operands[operands.size() - 1];
  if (result.type == DType::boolean) return false;
  const Operand& first = operands[0];
  if (operands.reads() == 1) return result.type != first.type && size_of(result.type) >= size_of(first.type);
  const auto other = [&](const Operand& operand) { return operand.type != DType::boolean && operand.type != result.type; };
  return std::any_of(operands.begin(), operands.begin() + operands.reads(), other);
}

/// Dimensions that are left when those that every operand walks through in one go are merged.
double dimensions(const Pointwise& kernel) {
  if (kernel.dimensions > 0) return kernel.dimensions;
  const auto strided = [](const Operand& operand) { return operand.walk == Walk::strided || operand.walk == Walk::transposed; };
  return std::any_of(kernel.operands.begin(), kernel.operands.end(), strided) ? 4 : 2;
}

/// Whether a generated kernel writes what it reads twice in 8 bits, as rows and as columns: Transformer Engine's cast_transpose.
bool casts_both_ways(const Operands& operands) {
  if (operands.reads() != 1 || operands.size() != 3) return false;
  return size_of(operands[0].type) > 1 && size_of(operands[1].type) == 1 && size_of(operands[2].type) == 1;
}

KernelLaw law_of_generated(const Pointwise& kernel, const Accelerator& device) {
  const PointwiseLaws& laws = cost::kernel_constants().pointwise;
  const auto own = laws.rocm_cast_transpose.find(device.target);
  return own != laws.rocm_cast_transpose.end() && casts_both_ways(kernel.operands) ? own->second : laws.fused;
}

/// A launch, and the lane instructions of one element.
KernelLaw law_of(const Pointwise& kernel, const Accelerator& device) {
  const PointwiseLaws& laws = cost::kernel_constants().pointwise;
  const double operands = static_cast<double>(kernel.operands.size());
  const bool walking = walks(kernel.operands);
  switch (kernel.form) {
    case Pointwise::Form::fused:
      return law_of_generated(kernel, device);
    case Pointwise::Form::random:
      return laws.random;
    case Pointwise::Form::concatenate:
      return walking ? laws.concatenating : laws.contiguous;
    case Pointwise::Form::map:
      break;
  }
  const bool casting = casts(kernel.operands);
  if (walking)
    return {laws.walking.start, laws.walking.instructions + laws.walking_per_dimension * (dimensions(kernel) - 1) +
                                    laws.walking_per_operand * operands + (casting ? laws.walking_cast : 0)};
  return casting ? KernelLaw{laws.casting.start, laws.casting.instructions + laws.casting_per_operand * operands} : laws.contiguous;
}

double bytes_moved(const Pointwise& kernel) {
  const PointwiseLaws& laws = cost::kernel_constants().pointwise;
  const Bytes sector = kernel.form == Pointwise::Form::fused ? laws.fused_sector : laws.sector;
  double bytes = 0;
  for (const Operand& operand : kernel.operands)
    bytes += static_cast<double>(operand.elements * (operand.walk == Walk::transposed ? sector.count : size_of(operand.type)));
  return bytes;
}

}  // namespace

Seconds price(const Pointwise& kernel, const Accelerator& device) {
  if (kernel.operands.reads() == 0 && kernel.operands.size() == 1 && kernel.form == Pointwise::Form::map)
    return fill_time(device, Bytes(kernel.operands.bytes_written()), kernel.operands[0].type);
  const KernelLaw law = law_of(kernel, device);
  const Seconds issue = cost::issue_time(device, law.instructions * static_cast<double>(kernel.elements));
  return law.start + cost::overlapped(issue, cost::traffic_time(device, bytes_moved(kernel), KernelKind::elementwise));
}

}  // namespace plimsoll
