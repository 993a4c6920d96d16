// Their backward passes: torch/csrc/autograd/FunctionsManual.cpp of PyTorch 2.15.
#include "program/ops/choosing.hpp"

#include "program/cub.hpp"
#include "program/ops/copying.hpp"
#include "program/ops/functions.hpp"
#include "program/ops/pointwise.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

std::vector<bool> mask_of(const Tensor& x, const std::vector<int>& dimensions) {
  std::vector<bool> reduced(static_cast<std::size_t>(x.rank()), dimensions.empty());
  for (const int dimension : dimensions) reduced[static_cast<std::size_t>(dimension)] = true;
  return reduced;
}

/// A reduced tensor, seen with its reduced dimensions as 1 (restore_reduced_dims).
Tensor restored(const Tensor& y, const Dims& before, const std::vector<bool>& reduced) {
  if (y.rank() == before.rank()) return y;
  Dims sizes = before, strides = before;
  int own = 0;
  for (int i = 0; i < before.rank(); ++i) {
    const bool gone = reduced[static_cast<std::size_t>(i)];
    sizes[i] = gone ? 1 : before[i];
    strides[i] = gone ? 1 : y.strides()[own++];
  }
  return y.tape().view(y, sizes, strides);
}

/// mask.sum(dims, true) of truths: they are copied to 64-bit integers first.
Tensor counted(const Tensor& mask, const std::vector<bool>& reduced, bool keep) {
  const Tensor wide = elementwise(mask.tape(), {&mask}, DType::int64);
  return reduce(wide, reduced, keep, DType::int64, size_of(DType::int64));
}

Tensor zero_of(Tape& tape, DType type) { return filled(tape, {}, type); }

}  // namespace

Tensor where(const Tensor& condition, const Tensor& a_in, const Tensor& b_in, DType number) {
  Tape& tape = condition.tape();
  Op op("where", {&a_in, &b_in, &condition});
  op.save(condition);
  const Tensor a = a_in ? a_in.detach() : zero_of(tape, number), b = b_in ? b_in.detach() : zero_of(tape, number);
  const DType type = common_type(a, b);
  const auto cast = [&](const Tensor& side) { return side.dtype() == type ? side : elementwise(tape, {&side}, type); };
  Tensor y;
  {
    const Tensor left = cast(a), right = cast(b);
    y = op.elementwise({&condition, &left, &right}, type);
  }
  return op.done(y, [](BackwardCall& call) {
    const Tensor kept = call.saved(0);
    for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      if (!call.needs(side)) continue;
      const Tensor zero = zero_of(call.tape, call.grad().dtype());
      call.give(side, elementwise(call.tape, {&kept, &call.grad(), &zero}, call.grad().dtype()));
    }
  });
}

Tensor masked_fill_by(const Tensor& x, const Tensor& mask, const Tensor& value) {
  Op op("masked_fill", {&x, &value});
  op.save(mask);
  const Dims sizes = broadcast_sizes({&x, &mask});
  const Tensor wide = sizes == x.sizes() ? x.detach() : expand(x.detach(), sizes);
  Tensor y = sizes == x.sizes() ? clone(wide) : elementwise(op.tape(), {&wide}, x.dtype());
  in_place(y, {&y, &mask});
  return op.done(y, [](BackwardCall& b) {
    const Tensor filled_places = b.saved(0);
    if (b.needs(0)) {
      Tensor gradient = clone(b.grad());
      in_place(gradient, {&gradient, &filled_places});
      b.give(0, std::move(gradient));
    }
    if (b.needs(1)) {  // masked_fill_backward: where(mask, grad, 0).sum()
      const Tensor zero = zero_of(b.tape, b.grad().dtype());
      const Tensor kept = elementwise(b.tape, {&filled_places, &b.grad(), &zero}, b.grad().dtype());
      b.give(1, sum(kept, {}, false));
    }
  });
}

Tensor masked_fill_into(const Tensor& x, const Tensor& mask) {
  Op op("masked_fill_", {&x});
  op.save(mask);
  in_place(x, {&x, &mask});
  Tensor y = x.detach();
  return op.done(y, [](BackwardCall& b) {
    const Tensor places = b.saved(0);
    // masked_fill clones with MemoryFormat::Contiguous
    Tensor gradient = b.grad().is_contiguous() ? clone(b.grad()) : contiguous(b.grad());
    in_place(gradient, {&gradient, &places});
    b.give(0, std::move(gradient));
  });
}

Tensor larger_of(const Tensor& a, const Tensor& b) {
  Op op("maximum", {&a, &b});
  op.save(b);
  op.save(a);
  Tensor y = op.elementwise({&a, &b}, common_type(a, b));
  return op.done(y, [](BackwardCall& call) {  // masked_fill_(where(self == other, grad / 2, grad), self < other, 0)
    const Tensor other = call.saved(0), self = call.saved(1);
    for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      if (!call.needs(side)) continue;
      const Tensor smaller = elementwise(call.tape, {&self, &other}, DType::boolean);
      const Tensor half = elementwise(call.tape, {&call.grad()}, call.grad().dtype());
      const Tensor equal = elementwise(call.tape, {&self, &other}, DType::boolean);
      Tensor gradient = elementwise(call.tape, {&equal, &half, &call.grad()}, call.grad().dtype());
      in_place(gradient, {&gradient, &smaller});
      call.give(side, std::move(gradient));
    }
  });
}

Tensor clamp_between(const Tensor& x, const Tensor& least, const Tensor& most) {
  if (!least || !most) return larger_of(x, least ? least : most);  // clamp_min, clamp_max
  Op op("clamp", {&x});
  op.save(x);
  op.save(least);
  op.save(most);
  Tensor y = op.elementwise({&x, &least, &most}, common_type(x, least));
  return op.done(y, [](BackwardCall& b) {
    // Half of it at a bound, none of it outside.
    const Tensor self = b.saved(0), low = b.saved(1), high = b.saved(2), apart = elementwise(b.tape, {&low, &high}, DType::boolean);
    const auto compared = [&](const Tensor& bound) { return elementwise(b.tape, {&self, &bound}, DType::boolean); };
    const auto joined = [&](const Tensor& one, const Tensor& other) { return elementwise(b.tape, {&one, &other}, DType::boolean); };
    Tensor at_bound, outside;
    {
      const Tensor at_low = compared(low), at_high = compared(high), either = joined(at_low, at_high);
      at_bound = joined(either, apart);
    }
    {
      const Tensor below = compared(low), above = compared(high);
      outside = joined(below, above);
    }
    Tensor gradient;
    {
      const Tensor half = multiply_scalar(b.grad());
      gradient = elementwise(b.tape, {&at_bound, &half, &b.grad()}, b.grad().dtype());
    }
    in_place(gradient, {&gradient, &outside});
    b.give(0, std::move(gradient));
  });
}

Tensor extreme(const Tensor& x, const std::vector<int>& dimensions, bool keep) {
  const std::vector<bool> reduced = mask_of(x, dimensions);
  Op op("amax", {&x});
  op.save(x);
  Tensor y = reduce(x, reduced, keep, x.dtype(), size_of(x.dtype()));
  op.save_output(y);
  return op.done(y, [reduced](BackwardCall& b) {  // scale_grad_by_count: (grad / mask.sum(dims, true)) * mask
    const Tensor self = b.saved(0);
    const Tensor result = restored(b.saved(1), self.sizes(), reduced), grad = restored(b.grad(), self.sizes(), reduced);
    const Tensor mask = elementwise(b.tape, {&result, &self}, DType::boolean);
    const Tensor count = counted(mask, reduced, true);
    const Tensor share = elementwise(b.tape, {&grad, &count}, grad.dtype());
    b.give(0, elementwise(b.tape, {&share, &mask}, grad.dtype()));
  });
}

Tensor extreme_of_all(const Tensor& x) {
  const std::vector<bool> all = mask_of(x, {});
  Op op("max", {&x});
  op.save(x);
  Tensor y = reduce(x, all, false, x.dtype(), size_of(x.dtype()));
  op.save_output(y);
  return op.done(y, [all](BackwardCall& b) {  // evenly_distribute_backward: mask * (grad / mask.sum())
    const Tensor self = b.saved(0), result = b.saved(1);
    Tensor mask;
    {  // (input == value).logical_or_(input.isnan().logical_and_(value.isnan()))
      const Tensor broken = elementwise(b.tape, {&self}, DType::boolean), broken_result = elementwise(b.tape, {&result}, DType::boolean);
      in_place(broken, {&broken, &broken_result});
      mask = elementwise(b.tape, {&self, &result}, DType::boolean);
      in_place(mask, {&mask, &broken});
    }
    const Tensor count = counted(mask, all, false);
    const Tensor share = elementwise(b.tape, {&b.grad(), &count}, b.grad().dtype());
    b.give(0, elementwise(b.tape, {&mask, &share}, b.grad().dtype()));
  });
}

TopK extreme_with_place(const Tensor& x, int dimension, bool keep) {
  constexpr std::int64_t kPair = 16;
  const std::vector<bool> reduced = mask_of(x, {dimension});
  Op op("max", {&x});
  Dims sizes;
  for (int i = 0; i < x.rank(); ++i)
    if (i != dimension || keep) sizes.push_back(i == dimension ? 1 : x.size(i));
  Tensor values = op.output(sizes, x.dtype());
  const Tensor indices = op.output(sizes, DType::int64);
  {
    const ReductionMemory memory = reduction_memory(x, reduced, kPair);
    reduce(op.tape(), dimension == x.rank() - 1 ? Reduction::Axis::inner : Reduction::Axis::outer, values.elements(),
           {packed(x.elements(), x.dtype())}, {packed(values.elements(), x.dtype()), packed(values.elements(), DType::int64)});
  }
  op.save_output(indices);
  op.finish({&values}, [before = x.sizes()](BackwardCall& b) {  // value_selecting_reduction_backward
    Tensor gradient = zeros(b.tape, before, b.grad().dtype());
    gather(Gather::Function::scatter, b.grad().elements(), {&b.grad()}, {&b.grad()});
    b.give(0, std::move(gradient));
  });
  return {values, indices};
}

Tensor place_of_extreme(const Tensor& x, int dimension, bool keep) {
  constexpr std::int64_t kPair = 16;
  const Op op("argmax", {&x});
  return reduce(x, mask_of(x, dimension < 0 ? std::vector<int>{} : std::vector<int>{dimension}), keep, DType::int64, kPair);
}

TopK sorted_rows(const Tensor& x) {
  Op op("sort", {&x});
  Tensor values = op.output(x.sizes(), x.dtype());
  const Tensor order = op.output(x.sizes(), DType::int64);
  pointwise(order, {});
  gather(Gather::Function::sort, x.elements(), {&x, &order}, {&values, &order});
  op.save_output(order);
  op.finish({&values}, [before = x.sizes()](BackwardCall& b) {
    Tensor gradient = zeros(b.tape, before, b.grad().dtype());
    gather(Gather::Function::scatter, b.grad().elements(), {&b.grad()}, {&b.grad()});
    b.give(0, std::move(gradient));
  });
  return {values, order};
}

Tensor reduced_to(const Tensor& x, const std::vector<int>& dimensions, bool keep, DType type) {
  const Op op("reduce", {&x});
  if (type == DType::int64 && x.dtype() != type) return counted(x, mask_of(x, dimensions), keep);
  return reduce(x, mask_of(x, dimensions), keep, type, size_of(type));
}

namespace {

/// One scan of x along a dimension (ScanKernels.cpp).
Tensor scanned(const Tensor& x, int dimension, DType type) {
  if (dimension == x.rank() - 1) return cumulative_sum(x.detach(), type);
  Tensor y = x.tape().empty(x.sizes(), type);
  const Tensor wide = x.dtype() == type ? x : elementwise(x.tape(), {&x}, type);
  gather(Gather::Function::scan, y.elements(), {&wide}, {&y});
  return y;
}

}  // namespace

Tensor sum_in_fp32(const Tensor& x, const std::vector<int>& dimensions, bool keep) {
  const std::vector<bool> reduced = mask_of(x, dimensions);
  Op op("sum", {&x});
  Tensor y = reduce(x, reduced, keep, DType::fp32, size_of(x.dtype()));
  return op.done(y, [before = x.sizes(), type = x.dtype(), reduced](BackwardCall& b) {  // grad.expand(sizes), cast where it arrives
    b.give(0, to(expand(restored(b.grad(), before, reduced), before), type));
  });
}

Tensor running_sum(const Tensor& x, int dimension, DType type) {
  Op op("cumsum", {&x});
  Tensor y = scanned(x, dimension, type);
  return op.done(y, [dimension, before = x.dtype()](BackwardCall& b) {  // cumsum_backward: grad.flip(dim).cumsum(dim).flip(dim)
    const Tensor grad = to(b.grad(), before);
    if (grad.elements() <= 1 || grad.size(dimension) == 1) return b.give(0, grad);
    const Tensor turned = b.tape.empty(grad.sizes(), grad.dtype());
    pointwise(turned, {&grad});
    const Tensor sums = scanned(turned, dimension, grad.dtype());
    Tensor gradient = b.tape.empty(grad.sizes(), grad.dtype());
    pointwise(gradient, {&sums});
    b.give(0, std::move(gradient));
  });
}

Tensor softmax_over(const Tensor& x_in, int dimension, DType type, bool logarithm) {
  if (dimension == x_in.rank() - 1) return logarithm ? log_softmax(x_in, type) : softmax(x_in, type);
  const bool low = x_in.dtype() == DType::bf16 || x_in.dtype() == DType::fp16;
  const DType own = !logarithm && x_in.tape().autocast.enabled && low && type == x_in.dtype() ? DType::fp32 : type;
  const Tensor x = x_in.dtype() == DType::fp16 ? x_in : to(x_in, own);
  Op op(logarithm ? "log_softmax" : "softmax", {&x});
  Tensor y = op.output(x.sizes(), own);
  const std::int64_t columns = x.size(dimension), rows = x.elements() / columns;
  {
    const Tensor packed_input = contiguous(x.detach());
    row_wise(logarithm ? RowWise::Function::log_softmax : RowWise::Function::softmax, rows, columns, {&packed_input}, {&y});
  }
  op.save_output(y);
  return op.done(y, [before = x.dtype(), logarithm, rows, columns](BackwardCall& b) {
    const Tensor result = b.saved(0);
    Tensor gradient = b.tape.empty(result.sizes(), before);
    if (logarithm) {
      row_wise(RowWise::Function::log_softmax_backward, rows, columns, {&b.grad(), &result}, {&gradient});
    } else {
      const Tensor product = elementwise(b.tape, {&b.grad(), &result}, result.dtype());
      row_wise(RowWise::Function::softmax_backward, rows, columns, {&product, &result}, {&gradient});
    }
    b.give(0, std::move(gradient));
  });
}

Tensor softmax_gradient(const Tensor& gradient, const Tensor& result, int dimension, DType type) {
  Op op("_softmax_backward_data", {&gradient, &result});
  const Tensor own_gradient = contiguous(gradient.detach()), own_result = contiguous(result.detach());  // SoftMax.cu, host_softmax_backward
  Tensor y = op.output(result.sizes(), type);
  const std::int64_t columns = result.size(dimension), rows = result.elements() / columns;
  const Tensor product = program::elementwise(op.tape(), {&own_gradient, &own_result}, result.dtype());
  row_wise(RowWise::Function::softmax_backward, rows, columns, {&product, &own_result}, {&y});
  return y;
}

Tensor norm_of(const Tensor& x, const std::vector<int>& dimensions, bool keep) {
  const std::vector<bool> reduced = mask_of(x, dimensions);
  const bool widens = x.tape().autocast.enabled && (x.dtype() == DType::bf16 || x.dtype() == DType::fp16);  // fp32_set_opt_dtype
  Op op("norm", {&x});
  op.save(x);
  Tensor y = reduce(x, reduced, keep, widens ? DType::fp32 : x.dtype());
  op.save_output(y);
  return op.done(y, [reduced](BackwardCall& b) {  // norm_backward: grad * (self / norm).masked_fill_(norm == 0, 0)
    const Tensor self = b.saved(0);
    const Tensor norm = restored(b.saved(1), self.sizes(), reduced), grad = restored(b.grad(), self.sizes(), reduced);
    const Tensor zero = elementwise(b.tape, {&norm}, DType::boolean);
    const Tensor ratio = elementwise(b.tape, {&self, &norm}, norm.dtype());
    in_place(ratio, {&ratio, &zero});
    b.give(0, elementwise(b.tape, {&grad, &ratio}, norm.dtype()));
  });
}

Tensor variance(const Tensor& x, const std::vector<int>& dimensions, bool keep, bool root) {
  constexpr std::int64_t kWelford = 16;  // mean, sum of squares, and counts
  const std::vector<bool> reduced = mask_of(x, dimensions);
  Op op(root ? "std" : "var", {&x});
  op.save(x);
  Tensor y = reduce(x, reduced, keep, x.dtype(), kWelford);
  if (root) op.save_output(y);
  return op.done(y, [reduced, dimensions, root](BackwardCall& b) {
    const Tensor self = b.saved(0);
    Tensor grad = b.grad(), zero, doubled;
    if (root) {  // std_backward: (grad / (result * 2)).masked_fill_(result == 0, 0)
      const Tensor result = b.saved(1);
      zero = elementwise(b.tape, {&result}, DType::boolean);
      doubled = elementwise(b.tape, {&result}, result.dtype());
      grad = elementwise(b.tape, {&grad, &doubled}, result.dtype());
      in_place(grad, {&grad, &zero});
      zero.reset();
      doubled.reset();
    }
    grad = restored(grad, self.sizes(), reduced);  // var_backward: 2 / (N - correction) * grad * (self - self.mean(dims))
    const Tensor average = mean(self, dimensions, true);
    const Tensor centred = elementwise(b.tape, {&self, &average}, self.dtype());
    const Tensor scaled = elementwise(b.tape, {&grad}, grad.dtype());
    b.give(0, elementwise(b.tape, {&scaled, &centred}, self.dtype()));
  });
}

Tensor log_sum_exp(const Tensor& x_in, const std::vector<int>& dimensions, bool keep) {
  const Tensor x = autocast_fp32(x_in);
  const std::vector<bool> reduced = mask_of(x, dimensions);
  Op op("logsumexp", {&x});
  op.save(x);
  Dims sizes;
  for (int i = 0; i < x.rank(); ++i)
    if (keep || !reduced[static_cast<std::size_t>(i)]) sizes.push_back(reduced[static_cast<std::size_t>(i)] ? 1 : x.size(i));
  Tensor y;
  {  // logsumexp_out_impl: (self - maxes).exp_(), summed, then log_() and the maximum added
    const Tensor largest = reduce(x.detach(), reduced, true, x.dtype(), size_of(x.dtype()));
    const Tensor infinite = elementwise(op.tape(), {&largest}, x.dtype());
    const Tensor is_infinite = elementwise(op.tape(), {&infinite}, DType::boolean);
    in_place(largest, {&largest, &is_infinite});
    const Tensor shifted = elementwise(op.tape(), {&x, &largest}, x.dtype());
    in_place(shifted, {&shifted});
    y = op.output(sizes, x.dtype());
    reduce_into(y, shifted, reduced);
    in_place(y, {&y});
    in_place(y, {&y, &y});
  }
  op.save_output(y);
  return op.done(y, [reduced](BackwardCall& b) {  // grad * (self - result).exp()
    const Tensor self = b.saved(0);
    const Tensor result = restored(b.saved(1), self.sizes(), reduced), grad = restored(b.grad(), self.sizes(), reduced);
    const Tensor shifted = elementwise(b.tape, {&self, &result}, self.dtype());
    const Tensor likely = elementwise(b.tape, {&shifted}, self.dtype());
    b.give(0, elementwise(b.tape, {&grad, &likely}, self.dtype()));
  });
}

}  // namespace plimsoll::program
