#include "program/inductor/kernels.hpp"

#include <algorithm>
#include <cstdlib>

#include "plimsoll/units.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program::inductor {

void fused(Tape& tape, std::initializer_list<const Tensor*> reads, std::initializer_list<const Tensor*> writes) {
  Pointwise kernel{Pointwise::Form::fused, 0, {}};
  for (const Tensor* tensor : reads)
    if (tensor->defined()) kernel.operands.read(operand(*tensor));
  for (const Tensor* tensor : writes)
    if (tensor->defined()) kernel.operands.write(operand(*tensor));
  for (const Operand& each : kernel.operands) kernel.elements = std::max(kernel.elements, each.elements);
  tape.kernel({kernel});
}

std::int64_t padded_elements(const Dims& sizes, DType type) {
  constexpr std::int64_t kThreshold = 1024, kAlignment = 128;  // padding_stride_threshold, padding_alignment_bytes
  const std::int64_t whole = std::max<std::int64_t>(kAlignment / size_of(type), 1);
  std::int64_t stride = 1, last = 0;
  for (int i = sizes.rank() - 1; i >= 0; --i) {
    last += (sizes[i] - 1) * stride;
    stride *= sizes[i];
    if (stride > kThreshold) stride = round_up(stride, whole);
  }
  return last + 1;
}

Tensor handed_to_backward(Tape& tape, const Dims& sizes, DType type) {
  Tensor buffer = tape.empty({padded_elements(sizes, type)}, type);
  buffer.impl()->sizes = sizes;
  buffer.impl()->strides = contiguous_strides(sizes);
  return buffer;
}

void multiply(Tape& tape, DType type, std::int64_t rows, std::int64_t columns, std::int64_t inner, Turned turned, Epilogue epilogue) {
  const auto row_major = [&](std::int64_t height, std::int64_t width) { return Matrix{height, width, 1, width, false, type}; };
  const Matrix left = turned == Turned::left ? row_major(inner, rows).t() : row_major(rows, inner);
  const Matrix right = turned == Turned::right ? row_major(columns, inner).t() : row_major(inner, columns);
  gemm(tape, left, right, row_major(rows, columns), {.epilogue = epilogue});
}

Tensor product(Tape& tape, DType type, std::int64_t rows, std::int64_t columns, std::int64_t inner, Turned turned) {
  Tensor y = tape.empty({rows, columns}, type);
  product_into(y, rows, columns, inner, turned);
  return y;
}

void product_into(const Tensor& buffer, std::int64_t rows, std::int64_t columns, std::int64_t inner, Turned turned) {
  multiply(buffer.tape(), buffer.dtype(), rows, columns, inner, turned);
}

std::int64_t outer_sum_splits(const Tape& tape, std::int64_t reduced, std::int64_t kept) {
  constexpr std::int64_t kLeast = 32, kMost = 512, kRowsPerThread = 4, kColumnsPerBlock = 128, kThreads = 256;
  const std::int64_t device = tape.device.units * tape.device.threads_per_unit;
  const auto nearest_divisor = [reduced](std::int64_t wanted) {
    std::int64_t best = 1;
    const auto closer = [&](std::int64_t candidate) {
      const std::int64_t distance = std::abs(candidate - wanted), known = std::abs(best - wanted);
      return distance < known || (distance == known && candidate < best);
    };
    for (std::int64_t low = 1; low * low <= reduced; ++low) {
      if (reduced % low != 0) continue;
      if (closer(low)) best = low;
      if (closer(reduced / low)) best = reduced / low;
    }
    return best;
  };
  std::int64_t size = kLeast;
  if (reduced * kept >= kMost * device) {
    const std::int64_t divisor = nearest_divisor(kMost);
    size = std::abs(divisor - kMost) < 50 ? divisor : kMost;
  } else if (reduced * kept >= kLeast * device) {
    const std::int64_t blocks = ceil_div(device / kThreads, ceil_div(kept, kColumnsPerBlock));
    const std::int64_t wanted = ceil_div(reduced, kRowsPerThread * blocks), divisor = nearest_divisor(wanted);
    size = std::abs(divisor - wanted) < 20 ? std::max(divisor, kLeast) : wanted;
  }
  return ceil_div(reduced, kRowsPerThread * size);
}

Tensor partial_sums(Tape& tape, std::int64_t reduced, std::int64_t kept) {
  return tape.empty({outer_sum_splits(tape, reduced, kept), kept}, DType::fp32, Category::workspace);
}

Tensor finish_sum(const Tensor& partial, std::int64_t kept, DType type) {
  Tensor sum = partial.tape().empty({kept}, type);
  program::reduce(sum, partial, {true, false});
  return sum;
}

bool mixes_reduction_orders(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kLeastElements = 5 << 20, kLeastRows = 4096, kMostColumns = 16384;
  return rows * columns >= kLeastElements && rows >= kLeastRows && columns <= kMostColumns;
}

Dims mixed_order_workspace_sizes(const Tape& tape, std::int64_t rows, std::int64_t columns, int sums) {
  constexpr std::int64_t kPartsPerProcessor = 8, kLeast = 16, kMost = 128;
  const std::int64_t wanted = rows / (kPartsPerProcessor * tape.device.units);
  std::int64_t size = kLeast;
  while (size * 2 <= wanted && size < kMost) size *= 2;
  return {sums, ceil_div(rows, size), columns};
}

Tensor mixed_order_sum(const Tensor& workspace, std::int64_t columns, DType type) {
  const Tensor sum = workspace.tape().empty({columns}, DType::fp32, Category::workspace);
  program::reduce(sum, workspace.tape().view(workspace, {workspace.size(1), columns}, {columns, 1}), {true, false});
  return to(sum, type);
}

}  // namespace plimsoll::program::inductor
