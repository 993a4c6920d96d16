/// What a mixture of experts routes with: top-k, sort, indexing of rows, counting, and the product of groups of rows with a weight each.
#include "program/ops/routing.hpp"

#include <fmt/core.h>

#include <limits>

#include "plimsoll/error.hpp"
#include "program/cub.hpp"
#include "program/ops/ops.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

/// index_put_with_sort_kernel's scratch (Indexing.cu): wrapped and linear indices, then both sorted with their origins. `filled`: under
/// torch.use_deterministic_algorithms the last of them is filled first, by a scalar on the device.
void sort_for_accumulation(Tape& tape, std::int64_t n, std::int64_t rows, bool filled = false) {
  const std::int64_t largest_index = rows - 1;
  const auto integers = [&] { return tape.empty({n}, DType::int64, Category::workspace); };
  Tensor wrapped = integers();
  const Tensor linear = integers();
  wrapped.reset();
  const Tensor sorted = integers(), origins = integers(), range = integers();
  if (filled) tape.scratch(size_of(DType::int64));
  tape.scratch(cub::radix_sort_bytes(n, largest_index));
  // Remainder, product with the stride, quotient by the size of a row, the range, and the sort.
  pointwise(linear, {&linear});
  pointwise(linear, {&linear});
  pointwise(sorted, {&linear});
  pointwise(range, {});
  for (std::int64_t i = cub::radix_sort_launches(n, largest_index); i > 0; --i)
    gather(Gather::Function::sort, n, {&sorted, &origins}, {&sorted, &origins});
}

/// GroupedBlas.cpp, use_fast_path: CUTLASS's kernel is for Hopper and data-centre Blackwell. On AMD Composable Kernel's stands behind
/// ROCM_ALLOW_GROUP_GEMM_CK, which nobody sets by default.
bool has_grouped_kernel(const TargetDevice& device, DType type) {
  return type == DType::bf16 && (device.major() == 9 || device.major() == 10);
}

/// _grouped_mm_fallback (GroupedMMUtils.h): the host reads the offsets and calls mm for each group's rows. They are taken as equal:
/// balanced routing. Throws Error (bad_input) of groups so many that nobody waits for them: of no other plan of the model is this to be expected.
void launch_one_by_one(Tape& tape, const Matrix& a, const Matrix& b, const Matrix& out, std::int64_t groups) {
  constexpr std::int64_t kMostGroups = 1 << 14;
  if (groups > kMostGroups)
    fail(fmt::format("a mixture of {} experts that torch._grouped_mm multiplies one by one on this device is not played", groups), "config",
         "H100, H200, B200 and B300 have a kernel for all of them in bf16");
  const bool by_rows = out.batch == 1;  // of the inputs and the results; else what products sum over is cut
  Matrix left = a, right = b, result = out;
  left.batch = right.batch = result.batch = 1;
  (by_rows ? left.rows : left.columns) = ceil_div(by_rows ? left.rows : left.columns, groups);
  if (by_rows) {
    result.rows = left.rows;
  } else {
    right.rows = ceil_div(right.rows, groups);
  }
  tape.read_back();
  tape.host(HostWork::operation, groups);
  for (std::int64_t i = 0; i < groups; ++i) gemm(tape, left, right, result);
}

/// The arguments and tensor maps of CUTLASS's kernel (GroupMM.cu).
void prepare_groups(Tape& tape, std::int64_t groups) {
  constexpr std::int64_t kArgumentsPerGroup = 60, kMapsPerProcessor = 512;
  const Tensor arguments = tape.empty({kArgumentsPerGroup * groups}, DType::uint8, Category::workspace);
  pointwise(arguments, {});  // prepare_grouped_gemm_data
  tape.scratch(kMapsPerProcessor * tape.device.units);
}

/// One product per expert of its rows and its weight: by one kernel, or one after the other.
void launch_groups(Tape& tape, const Matrix& a, const Matrix& b, const Matrix& out, std::int64_t groups) {
  if (!has_grouped_kernel(tape.device, a.type)) {
    launch_one_by_one(tape, a, b, out, groups);
    return;
  }
  prepare_groups(tape, groups);
  grouped_gemm(tape, a, b, out, groups);
}

}  // namespace

namespace {

/// What took values from places of x; value_selecting_reduction_backward: their gradient scattered into zeros.
TopK selection(Op& op, const Tensor& x, Tensor values, const Tensor& indices) {
  op.save_output(indices);
  op.finish({&values}, [before = x.sizes()](BackwardCall& b) {
    Tensor gradient = zeros(b.tape, before, b.grad().dtype());
    gather(Gather::Function::scatter, b.grad().elements(), {&b.grad()}, {&b.grad()});
    b.give(0, std::move(gradient));
  });
  return {values, indices};
}

/// One kernel (gatherTopK of a block per row), and the sort of each row's k values where they are asked for in order.
TopK top_k_of(const Tensor& x, std::int64_t k, bool sorted) {
  Op op("topk", {&x});
  Dims sizes = x.sizes();
  sizes[-1] = k;
  std::vector<Tensor> best = selected(op.tape(), "topk", [&]() -> std::vector<Tensor> {
    const Tensor chosen = op.output(sizes, x.dtype()), places = op.output(sizes, DType::int64);
    gather(Gather::Function::top_k, x.elements(), {&x}, {&chosen, &places});
    if (sorted && k > 1) gather(Gather::Function::sort, chosen.elements(), {&chosen, &places}, {&chosen, &places});
    return {chosen, places};
  });
  return selection(op, x, std::move(best[0]), best[1]);
}

}  // namespace

TopK top_k(const Tensor& x, std::int64_t k) { return top_k_of(x, k, true); }
TopK unsorted_top_k(const Tensor& x, std::int64_t k) { return top_k_of(x, k, false); }

/// max_launch_kernel (ReduceMaxValuesKernel.cu): gpu_reduce_kernel over pairs of a number and an int64, 16 bytes with their padding.
TopK largest_of_rows(const Tensor& x) {
  constexpr std::int64_t kPair = 16;
  Op op("max", {&x});
  Dims sizes = x.sizes();
  sizes[-1] = 1;
  Tensor values = op.output(sizes, x.dtype());
  const Tensor indices = op.output(sizes, DType::int64);
  std::vector<bool> reduced(static_cast<std::size_t>(x.rank()), false);
  reduced.back() = true;
  const ReductionMemory memory = reduction_memory(x, reduced, kPair);
  reduce(op.tape(), Reduction::Axis::inner, values.elements(), {packed(x.elements(), x.dtype())},
         {packed(values.elements(), x.dtype()), packed(values.elements(), DType::int64)});
  return selection(op, x, std::move(values), indices);
}

SortedIntegers sort_integers(const Tensor& x) {
  constexpr std::int64_t kOneBlock = 4096;  // the most that one block sorts (Sort.cu)
  Op op("sort", {&x});
  SortedIntegers sorted{op.output(x.sizes(), x.dtype()), op.output(x.sizes(), DType::int64)};
  const Tensor copy = op.tape().empty(x.sizes(), x.dtype(), Category::workspace);
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  if (x.elements() > kOneBlock) op.tape().scratch(cub::radix_sort_bytes(x.elements(), kLargest));
  pointwise(sorted.order, {});
  for (std::int64_t i = x.elements() > kOneBlock ? cub::radix_sort_launches(x.elements(), kLargest) : 1; i > 0; --i)
    gather(Gather::Function::sort, x.elements(), {&x, &sorted.order}, {&sorted.values, &sorted.order});
  return sorted;
}

Tensor index_rows(const Tensor& x, const Tensor& indices) {
  Op op("index", {&x});
  op.save(indices);
  Dims sizes = x.sizes();
  sizes[0] = indices.size(0);
  Tensor y = op.output(sizes, x.dtype());
  gather(Gather::Function::index, y.elements(), {&y, &indices}, {&y});
  return op.done(y, [before = x.sizes(), n = indices.elements()](BackwardCall& b) {  // index_put_ into zeros, accumulating
    Tensor gradient = zeros(b.tape, before, b.grad().dtype());
    sort_for_accumulation(b.tape, n, before[0]);
    gather(Gather::Function::scatter, b.grad().elements(), {&b.grad()}, {&b.grad()});
    b.give(0, std::move(gradient));
  });
}

Tensor place_rows(const Tensor& x, const Tensor& indices) {
  Op op("index_put", {&x});
  op.save(indices);
  Tensor y = op.output(x.sizes(), x.dtype());
  gather(Gather::Function::scatter, x.elements(), {&x, &indices}, {&y});
  return op.done(y, [](BackwardCall& b) {
    Tensor gradient = b.tape.empty(b.grad().sizes(), b.grad().dtype());
    gather(Gather::Function::index, gradient.elements(), {&b.grad(), &b.saved(0)}, {&gradient});
    b.give(0, std::move(gradient));
  });
}

Tensor scatter_add_rows(const Tensor& x, const Tensor& indices, const Tensor& rows) {
  Op op("scatter_add", {&x, &rows});
  op.save(indices);
  Tape& tape = op.tape();
  Tensor y = op.output(x.sizes(), x.dtype());
  {
    const Tensor least = tape.empty({}, DType::int64, Category::workspace), most = tape.empty({}, DType::int64, Category::workspace);
    for (int i = 0; i < 2; ++i) tape.scratch(1);
  }
  sort_for_accumulation(tape, indices.elements(), x.size(0), true);
  gather(Gather::Function::scatter, rows.elements(), {&rows, &x}, {&y});
  return op.done(y, [sizes = rows.sizes()](BackwardCall& b) {
    if (!b.needs(1)) return;
    Tensor gradient = b.tape.empty(sizes, b.grad().dtype());
    gather(Gather::Function::index, gradient.elements(), {&gradient, &b.saved(0)}, {&gradient});
    b.give(1, std::move(gradient));
  });
}

Tensor repeat_interleave(const Tensor& x, const Tensor& times, std::int64_t total) {
  Tape& tape = x.tape();
  Tensor origins;
  {
    const Tensor ends = cumulative_sum(times, DType::int64);
    origins = tape.empty({total}, DType::int64);
    gather(Gather::Function::scatter, total, {&ends}, {&origins});
  }
  return index_rows(x, origins);
}

Tensor count(const Tensor& mask, const std::vector<bool>& reduced) {
  Tape& tape = mask.tape();
  Dims sizes;
  for (int i = 0; i < mask.rank(); ++i)
    if (!reduced[static_cast<std::size_t>(i)]) sizes.push_back(mask.size(i));
  Tensor y = tape.empty(sizes, DType::int64);
  const Tensor wide = elementwise(tape, {&mask}, DType::int64);
  reduce_into(y, wide, reduced, size_of(DType::int64));
  return y;
}

Tensor gather_last(const Tensor& x, const Tensor& indices) {
  Op op("gather", {&x});
  op.save(indices);
  op.save(x);  // gather_backward takes it for its sizes
  Tensor y = op.output(indices.sizes(), x.dtype());
  gather(Gather::Function::index, y.elements(), {&y, &indices}, {&y});
  return op.done(y, [before = x.sizes()](BackwardCall& b) {
    Tensor gradient = zeros(b.tape, before, b.grad().dtype());
    gather(Gather::Function::scatter, b.grad().elements(), {&b.grad()}, {&b.grad()});
    b.give(0, std::move(gradient));
  });
}

Tensor scattered_last(const Tensor& x, const Tensor& indices, const Tensor& values) {
  Op op("scatter_", {&values});
  op.save(indices);
  gather(Gather::Function::scatter, values.elements(), {&values, &indices}, {&x});
  Tensor y = x.detach();
  return op.done(y, [](BackwardCall& b) {
    const Tensor places = b.saved(0);
    const Tensor gradient = b.tape.empty(places.sizes(), b.grad().dtype());
    gather(Gather::Function::index, gradient.elements(), {&b.grad(), &places}, {&gradient});
    b.give(0, gradient);
  });
}

Tensor one_hot(const Tensor& indices, std::int64_t classes) {
  Op op("one_hot", {&indices});
  Dims sizes = indices.sizes();
  sizes.push_back(classes);
  Tensor y = zeros(op.tape(), sizes, DType::int64);
  gather(Gather::Function::scatter, indices.elements(), {&indices}, {&indices});
  return y;
}

Tensor nonzero(const Tensor& mask, std::int64_t count) {
  Op op("nonzero", {&mask});
  Tape& tape = op.tape();
  const Tensor flat = contiguous(mask);
  const Tensor found = tape.empty({}, DType::int32, Category::workspace);  // Nonzero.cu: cub counts, the host reads how many, cub selects
  tape.scratch(1);
  reduce(found, flat, Reduction::Axis::all);
  tape.copy({.direction = Copy::Direction::device_to_host, .bytes = size_of(DType::int32)}, tape.stream);
  tape.read_back();
  Tensor y = op.output({std::int64_t{mask.rank()}, count}, DType::int64);
  tape.scratch(1);
  gather(Gather::Function::scatter, flat.elements(), {&flat}, {&y});
  if (mask.rank() > 1) pointwise(y, {&y});  // write_indices
  return y;
}

Tensor index_pairs(const Tensor& x, const Tensor& rows, const Tensor& columns) {
  Op op("index", {&x});
  op.save(rows);
  op.save(columns);
  Tensor y = op.output({rows.elements()}, x.dtype());
  gather(Gather::Function::index, y.elements(), {&y, &rows, &columns}, {&y});
  return op.done(y, [before = x.sizes(), n = rows.elements(), all = x.elements()](BackwardCall& b) {
    Tensor gradient = zeros(b.tape, before, b.grad().dtype());
    sort_for_accumulation(b.tape, n, all);
    gather(Gather::Function::scatter, b.grad().elements(), {&b.grad()}, {&b.grad()});
    b.give(0, std::move(gradient));
  });
}

Tensor index_add_into(const Tensor& x, const Tensor& indices, const Tensor& rows) {
  Op op("index_add_", {&x, &rows});
  op.save(indices);
  gather(Gather::Function::scatter, rows.elements(), {&rows, &indices}, {&rows});
  Tensor y = x.detach();
  return op.done(y, [sizes = rows.sizes()](BackwardCall& b) {
    if (b.needs(0)) b.give(0, b.grad());
    if (!b.needs(1)) return;
    Tensor gradient = b.tape.empty(sizes, b.grad().dtype());
    gather(Gather::Function::index, gradient.elements(), {&gradient, &b.saved(0)}, {&gradient});
    b.give(1, std::move(gradient));
  });
}

Tensor histogram(const Tensor& x, std::int64_t bins) {
  Op op("histc", {&x});
  Tensor y = op.output({bins}, x.dtype());
  gather(Gather::Function::scatter, x.elements(), {&x}, {&y});
  return y;
}

Tensor grouped_product(const Tensor& x, const Tensor& weight, const Tensor& offsets) {
  const std::int64_t groups = weight.size(0), out = weight.size(1), in = weight.size(2), rows = x.size(0);
  const Tensor transposed = transpose(weight, 1, 2);
  const Matrix left = matrix(x), right = matrix(transposed);
  Op op("grouped_mm", {&x, &transposed});
  op.save_if(op.needs(0), transposed);
  op.save(offsets);
  op.save_if(op.needs(1), x);
  Tensor y = op.output({rows, out}, x.dtype());
  launch_groups(op.tape(), left, right, matrix(y), groups);
  const bool row_major = transposed.strides()[-1] == 1;  // gpt_oss keeps [experts, in, out]
  const Dims strides = row_major ? Dims{in * out, out, 1} : Dims{out * in, 1, in};
  return op.done(y, [=](BackwardCall& b) {
    const DType type = b.grad().dtype();
    if (b.needs(1)) {  // in the layout of the transposed weight
      const Tensor whole = b.tape.empty({groups, out, in}, type);
      const Tensor gradient = b.tape.view(whole, {groups, in, out}, strides);
      launch_groups(b.tape, left.t(), matrix(b.grad()), matrix(gradient), groups);
      b.give(1, gradient);
    }
    if (b.needs(0)) {
      Tensor gradient = b.tape.empty({rows, in}, type);
      launch_groups(b.tape, matrix(b.grad()), right.t(), matrix(gradient), groups);
      b.give(0, std::move(gradient));
    }
  });
}

}  // namespace plimsoll::program
