#include "program/cub.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/pointwise.hpp"

namespace plimsoll::program {

namespace {

using cub::aligned;
using cub::kAlignment;
using cub::radix_sort_bytes;
using cub::radix_sort_launches;

/// Temporary storage of cub's unique_by_key and of its exclusive sum: one descriptor of 16 bytes per tile.
std::int64_t unique_bytes(std::int64_t n) { return aligned(768 + 16 * ceil_div(n, 4096)) + kAlignment - 1; }
std::int64_t exclusive_sum_bytes(std::int64_t n) { return aligned(816 + 16 * ceil_div(n, 1024)) + kAlignment - 1; }

/// A buffer of `count` 64-bit integers.
Tensor integers(Tape& tape, std::int64_t count) { return tape.empty({count}, DType::int64, Category::workspace); }

/// Kernels over a list of indices: sorts and sums of them.
void launch_over(const Tensor& indices, Gather::Function function, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) gather(function, indices.elements(), {&indices}, {&indices});
}

/// use_fused_kernel of embedding_backward_cuda_kernel: rows that are too few to fill the device and repeat often are summed with atomics,
/// into an fp32 copy of the table where that has 16 bits.
bool sums_with_atomics(const Tape& tape, std::int64_t most_segments, std::int64_t most_partials, std::int64_t width) {
  constexpr std::int64_t kWarp = 32, kMostThreads = 1024, kBlocksPerProcessor = 4;
  const std::int64_t warped = round_up(width, kWarp);
  const std::int64_t blocks = ceil_div(most_segments * warped, std::min(warped, kMostThreads));
  return blocks < kBlocksPerProcessor * tape.device.units && most_partials > 4 * blocks;
}

/// embedding_backward_cuda_kernel: rows of equal index are summed by segments (EmbeddingBackwardKernel.cu).
void sum_segments(Tape& tape, const Tensor& indices, const Tensor& gradient) {
  const Dims& table = gradient.sizes();
  const std::int64_t n = indices.elements();
  const Tensor segment_offsets = integers(tape, n);
  const Tensor segments = integers(tape, 1);
  {
    const Tensor keys = integers(tape, n);
    tape.scratch(unique_bytes(n));
  }
  const std::int64_t most_segments = std::min(n, table[0]);
  const Tensor partials = integers(tape, most_segments);
  const Tensor partial_offsets = integers(tape, most_segments);
  tape.scratch(exclusive_sum_bytes(most_segments));
  const Tensor partial_count = integers(tape, 1);
  const std::int64_t most_partials = n / 10 + most_segments;  // NROWS_PER_THREAD
  const Tensor partial_segments = integers(tape, most_partials);
  const bool atomic = sums_with_atomics(tape, most_segments, most_partials, table[1]);
  Tensor more_segments, sums;
  if (atomic) more_segments = integers(tape, most_partials);
  if (!atomic) sums = tape.empty({most_partials, round_up(table[1], 32)}, DType::fp32, Category::workspace);
  if (atomic && gradient.dtype() != DType::fp32) sums = tape.empty(table, DType::fp32, Category::workspace);
  // Initial states and sweep of unique_by_key and of the exclusive sum; krn_partials_per_segment, compute_num_of_partial_segments and
  // krn_partial_segment_offset; with atomics krn_partial_to_segment_idx too, whose sums are cast at the end where the table is not fp32.
  launch_over(indices, Gather::Function::scan, atomic ? 8 : 7);
  const Operand rows{n * table[1], gradient.dtype(), Walk::strided}, wide_rows{n * table[1], DType::fp32, Walk::contiguous};
  tape.kernel({Gather{Gather::Function::embedding_backward, n * table[1], Operands({rows, operand(indices)}, {wide_rows})}});
  if (!atomic || gradient.dtype() != DType::fp32)
    tape.kernel({Gather{Gather::Function::embedding_backward, n * table[1], Operands({wide_rows}, {rows})}});
}

/// embedding_dense_backward_cuda: one kernel up to 3,072 indices, else they are sorted.
Tensor embedding_backward(Tape& tape, const Tensor& grad, const Dims& table, const Tensor& indices) {
  constexpr std::int64_t kSortedAbove = 3072;
  const std::int64_t n = indices.elements();
  if (n <= kSortedAbove) {
    Tensor gradient = zeros(tape, table, grad.dtype());
    gather(Gather::Function::embedding_backward, grad.elements(), {&grad, &indices}, {&grad});
    return gradient;
  }
  const Tensor sorted = integers(tape, n), order = integers(tape, n);
  {
    const Tensor range = integers(tape, n);
    tape.scratch(radix_sort_bytes(n, table[0]));
    pointwise(range, {});  // arange
    for (std::int64_t i = radix_sort_launches(n, table[0]); i > 0; --i)
      gather(Gather::Function::sort, n, {&sorted, &order}, {&sorted, &order});
  }
  Tensor gradient = zeros(tape, table, grad.dtype());
  sum_segments(tape, sorted, gradient);
  return gradient;
}

}  // namespace

Tensor arange(Tape& tape, std::int64_t length, DType type) {
  tape.operator_name = "arange";
  Tensor y = tape.empty({length}, type);
  pointwise(y, {});
  if (tape.trace && tape.trace->running == 0) tape.trace->ran("arange", {}, {}, {y});
  return y;
}

Tensor index_one(const Tensor& x, int dimension) {
  const int at = dimension < 0 ? dimension + x.rank() : dimension;
  Op op("index", {&x});
  const Tensor index = op.tape().empty({1}, DType::int64);
  op.tape().copy({.direction = Copy::Direction::host_to_device, .bytes = 8}, op.tape().stream);
  op.save(index);
  Dims sizes = x.sizes();
  sizes[at] = 1;
  Tensor y = op.output(sizes, x.dtype());
  gather(Gather::Function::index, y.elements(), {&y, &index}, {&y});
  return op.done(y, [before = x.sizes()](BackwardCall& b) {  // index_put_ with accumulation into zeros: the indices are sorted
    Tensor whole = zeros(b.tape, before, b.grad().dtype());
    const Tensor linear = [&] {
      const Tensor first = integers(b.tape, 1);
      return integers(b.tape, 1);
    }();
    const Tensor order = integers(b.tape, 1), range = integers(b.tape, 1), sorted = integers(b.tape, 1);
    b.tape.scratch(1);
    launch_over(linear, Gather::Function::sort, 5);
    const Tensor values = contiguous(b.grad());
    gather(Gather::Function::scatter, values.elements(), {&values, &values}, {&values});
    b.give(0, std::move(whole));
  });
}

Tensor cumulative_sum(const Tensor& x, DType type) {
  Op op("cumsum", {&x});
  Tensor y = op.output(x.sizes(), type);
  const Tensor wide = x.dtype() == type ? x : elementwise(op.tape(), {&x}, type);
  const bool one_row = x.rank() == 1 || x.size(0) == 1;
  // cub's scan: a status and a sum per tile, 32 tiles more than there are.
  const std::int64_t tile = 2 * size_of(type);
  if (one_row) op.tape().scratch(aligned(256 + 32 * tile + 2 * tile * ceil_div(x.elements(), 4096)) + kAlignment - 1);
  if (one_row) {  // DeviceScanInitKernel
    const Operand statuses{32 * tile, DType::uint8, Walk::contiguous};
    op.tape().kernel({Pointwise{Pointwise::Form::map, statuses.elements, Operands({}, {statuses})}});
  }
  gather(Gather::Function::scan, y.elements(), {&wide}, {&y});
  return y;
}

Tensor embedding(const Tensor& weight, const Tensor& indices) {
  Op op("embedding", {&weight, &indices});
  op.save(indices);
  const Tensor flat = can_view(indices, {indices.elements()}) ? indices : contiguous(indices);  // index_select of indices.reshape(-1)
  Dims sizes = indices.sizes();
  sizes.push_back(weight.size(1));
  Tensor y = op.output(sizes, weight.dtype());
  gather(Gather::Function::embedding, y.elements(), {&y, &indices}, {&y});  // of the table, as many rows as it gives
  return op.done(y, [table = weight.sizes()](BackwardCall& b) {
    const Tensor grad = contiguous(b.grad());
    const Tensor row = contiguous(b.saved(0));
    b.give(0, embedding_backward(b.tape, grad, table, row));
  });
}

Tensor table_rows(const Tensor& table, const Tensor& rows) {
  Op op("index", {&table, &rows});
  Dims sizes = table.sizes();
  sizes[0] = rows.elements();
  Tensor y = op.tape().empty(sizes, table.dtype());
  gather(Gather::Function::index, y.elements(), {&y, &rows}, {&y});
  return op.done(y);
}

Tensor gather_rows(const Tensor& table, const Tensor& indices) {
  Op op("gather", {&table, &indices});
  Dims sizes = indices.sizes();
  sizes.push_back(table.size(1));
  Tensor y = op.tape().empty(sizes, table.dtype());
  gather(Gather::Function::index, y.elements(), {&y, &indices}, {&y});
  return op.done(y);
}

Tensor index_select(const Tensor& x, const Tensor& indices) {
  Op op("index_select", {&x});
  op.save(indices);
  Dims sizes = x.sizes();
  sizes[0] = indices.elements();
  Tensor y = op.output(sizes, x.dtype());
  gather(op.tape(), Gather::Function::index, y.elements(), {operand(indices), packed(y.elements(), x.dtype())}, {operand(y)});
  return op.done(y, [before = x.sizes()](BackwardCall& b) {
    Tensor gradient = zeros(b.tape, before, b.grad().dtype());
    gather(b.tape, Gather::Function::scatter, b.grad().elements(), {operand(b.saved(0)), operand(b.grad())},
           {packed(b.grad().elements(), gradient.dtype())});
    b.give(0, std::move(gradient));
  });
}

}  // namespace plimsoll::program
