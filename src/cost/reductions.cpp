// Time of reductions, and of kernels that work row by row.
#include <algorithm>
#include <cmath>

#include "cost/memory_time.hpp"
#include "plimsoll/cost.hpp"

namespace plimsoll {
namespace {

using cost::ReductionLaws;
using cost::RowLaw;
using cost::RowWiseLaws;

double real(std::int64_t count) { return static_cast<double>(count); }

double bytes_of(const Operands& operands) { return real(operands.bytes_read() + operands.bytes_written()); }

// ---- reductions: ATen/native/cuda/Reduce.cuh -------------------------------------------------------------------------

/// Threads of a block side by side, results of one thread, threads one below the other; and the chain of one thread that is split.
constexpr std::int64_t kWidth = 32, kVector = 4, kHeight = 4, kLeastChain = 256, kChainOfPart = 16, kThreadsOfUnit = 2048;

bool strided(const Operands& operands) {
  return std::any_of(operands.begin(), operands.end(), [](const Operand& operand) { return operand.walk != Walk::contiguous; });
}

/// Instructions of the elements and, where results are many and short, of the results; and the bytes.
Seconds reduced(const Reduction& kernel, const Accelerator& device, double per_element, double per_result) {
  const double instructions = real(kernel.outputs) * (per_element * real(kernel.reduced) + per_result);
  return cost::overlapped(cost::issue_time(device, instructions),
                          cost::traffic_time(device, bytes_of(kernel.operands), KernelKind::reduction));
}

/// Neighbours stay apart: each block sums 128 columns; where rows are many they are split into parts, whose sums meet in memory.
Seconds sum_over_rows(const Reduction& kernel, const Accelerator& device) {
  const ReductionLaws& laws = cost::kernel_constants().reduction;
  const std::int64_t columns = std::max<std::int64_t>(1, ceil_div(kernel.outputs, kWidth * kVector));
  const std::int64_t chain = ceil_div(kernel.reduced, kHeight);
  const std::int64_t room = ceil_div(device.compute_units * (kThreadsOfUnit / (kWidth * kHeight)), columns);
  const std::int64_t parts = chain < kLeastChain ? 1 : std::clamp<std::int64_t>(chain / kChainOfPart, 1, room);
  const Seconds meeting =
      parts == 1 ? laws.outer_element * real(chain) : laws.outer_part * real(parts) + laws.outer_block * real(parts * columns);
  return laws.outer_start + meeting + reduced(kernel, device, strided(kernel.operands) ? laws.outer_strided : 0, laws.outer_result);
}

/// Neighbours are summed together: a block takes 16 results.
Seconds sum_of_row(const Reduction& kernel, const Accelerator& device) {
  const ReductionLaws& laws = cost::kernel_constants().reduction;
  const Seconds chain = laws.inner_element * real(std::min(kernel.reduced, laws.longest_chain));
  const double per_element = laws.inner.instructions + (strided(kernel.operands) ? laws.inner_strided : 0);
  return laws.inner.start + chain + reduced(kernel, device, per_element, laws.inner_result);
}

// ---- row by row --------------------------------------------------------------------------------------------------------

/// Elements of 16 bits are converted, and more of them fit into the same bytes.
double softmax_instructions(const RowWise& kernel) {
  const RowWiseLaws& laws = cost::kernel_constants().row_wise;
  const bool narrow = kernel.operands.size() > 0 && size_of(kernel.operands[0].type) <= 2;
  return narrow ? laws.softmax_instructions_16_bit : laws.softmax_instructions;
}

/// A row that shared memory does not hold is read again: `again` times its first operand, out of the cache as far as the rows in flight
/// fit there, results included.
Seconds read_again(const RowWise& kernel, const Accelerator& device, double again) {
  const RowWiseLaws& laws = cost::kernel_constants().row_wise;
  if (kernel.operands.size() == 0 || kernel.rows <= 0) return Seconds();
  const double first = real(kernel.operands[0].bytes());
  if (first <= real(laws.row_in_shared_memory.count) * real(kernel.rows)) return Seconds();
  const double flying = std::min(1.0, real(laws.blocks_per_unit * device.compute_units) / real(kernel.rows));
  return cost::traffic_time(device, again * first, cost::cold_share(device, flying * bytes_of(kernel.operands)));
}

Seconds softmax_time(const RowWise& kernel, const Accelerator& device, double again) {
  const RowWiseLaws& laws = cost::kernel_constants().row_wise;
  const Seconds issue = cost::issue_time(device, softmax_instructions(kernel) * real(kernel.rows * kernel.columns));
  const Seconds traffic = cost::traffic_time(device, bytes_of(kernel.operands), KernelKind::reduction) + read_again(kernel, device, again);
  return laws.softmax_start + cost::overlapped(issue, traffic);
}

Seconds row_time(const RowWise& kernel, const Accelerator& device, const RowLaw& law) {
  const Seconds issue = cost::issue_time(device, law.instructions_per_row * real(kernel.rows));
  return law.start + cost::overlapped(issue, cost::traffic_time(device, bytes_of(kernel.operands), KernelKind::reduction));
}

/// Of an element. What is written transposed is behind a Hadamard transform: its greatest value alone, the columns, or rows and columns.
double quantization_instructions(const RowWise& kernel, const RowWiseLaws& laws) {
  const std::size_t operands = kernel.operands.size();
  if (operands == 0 || kernel.operands[operands - 1].walk != Walk::transposed) return 0;
  if (operands - kernel.operands.reads() > 1) return laws.hadamard_both_ways;
  return kernel.operands[operands - 1].elements == 1 ? laws.hadamard_greatest : laws.hadamard_columns;
}

Seconds quantization_time(const RowWise& kernel, const Accelerator& device) {
  const RowWiseLaws& laws = cost::kernel_constants().row_wise;
  const Seconds issue = cost::issue_time(device, quantization_instructions(kernel, laws) * real(kernel.rows * kernel.columns));
  return laws.quantization_start + cost::overlapped(issue, cost::traffic_time(device, bytes_of(kernel.operands), KernelKind::reduction));
}

/// Blocks of a few columns each walk over all rows.
Seconds weight_gradient_time(const RowWise& kernel, const Accelerator& device) {
  const RowWiseLaws& laws = cost::kernel_constants().row_wise;
  const std::int64_t blocks = ceil_div(kernel.columns, laws.weight_gradient_columns);
  const Seconds walk = laws.weight_gradient_row * real(kernel.rows * ceil_div(blocks, device.compute_units));
  return laws.weight_gradient_start + std::max(walk, cost::traffic_time(device, bytes_of(kernel.operands), KernelKind::reduction));
}

}  // namespace

Seconds price(const Reduction& kernel, const Accelerator& device) {
  const ReductionLaws& laws = cost::kernel_constants().reduction;
  switch (kernel.axis) {
    case Reduction::Axis::outer:
      return sum_over_rows(kernel, device);
    case Reduction::Axis::inner:
      return sum_of_row(kernel, device);
    case Reduction::Axis::all:
      break;
  }
  return laws.all.start + reduced(kernel, device, laws.all.instructions, 0);
}

Seconds price(const RowWise& kernel, const Accelerator& device) {
  const RowWiseLaws& laws = cost::kernel_constants().row_wise;
  switch (kernel.function) {
    case RowWise::Function::softmax:
    case RowWise::Function::log_softmax:
      return softmax_time(kernel, device, 2);  // the maximum, the sum, the result
    case RowWise::Function::softmax_backward:
    case RowWise::Function::log_softmax_backward:
    case RowWise::Function::cross_entropy:
      return softmax_time(kernel, device, 1);  // the sum, the result
    case RowWise::Function::layer_norm:
    case RowWise::Function::group_norm:
      return row_time(kernel, device, laws.layer_norm);
    case RowWise::Function::layer_norm_backward:
    case RowWise::Function::rms_norm_backward:
    case RowWise::Function::group_norm_backward:
      return row_time(kernel, device, laws.norm_backward);
    case RowWise::Function::norm_weight_backward:
      return weight_gradient_time(kernel, device);
    case RowWise::Function::rms_norm:
      return row_time(kernel, device, laws.rms_norm);
    case RowWise::Function::quantize:
      return quantization_time(kernel, device);
    case RowWise::Function::rope:
      return row_time(kernel, device, laws.fused);
  }
  return row_time(kernel, device, laws.fused);
}

}  // namespace plimsoll
