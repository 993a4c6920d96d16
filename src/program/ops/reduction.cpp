#include "program/reduction.hpp"

#include "program/ops/ops.hpp"
#include "program/ops/pointwise.hpp"

namespace plimsoll::program {

namespace {

std::vector<bool> mask_of(const Tensor& x, const std::vector<int>& dimensions) {
  std::vector<bool> reduced(static_cast<std::size_t>(x.rank()), dimensions.empty());
  for (int dimension : dimensions) reduced[static_cast<std::size_t>(dimension < 0 ? dimension + x.rank() : dimension)] = true;
  return reduced;
}

/// A gradient of the reduced shape, seen in the shape before.
Tensor expanded(Tape& tape, const Tensor& gradient, const Dims& before, const std::vector<bool>& reduced) {
  Dims strides = before;
  int own = 0;
  const bool kept = gradient.rank() == before.rank();
  for (int i = 0; i < before.rank(); ++i) {
    const bool gone = reduced[static_cast<std::size_t>(i)];
    strides[i] = gone ? 0 : gradient.strides()[own];
    if (kept || !gone) ++own;
  }
  return tape.view(gradient, before, strides);
}

}  // namespace

Tensor sum(const Tensor& x, const std::vector<int>& dimensions, bool keep) {
  const std::vector<bool> reduced = mask_of(x, dimensions);
  Op op("sum", {&x});
  const bool widens = x.tape().autocast.enabled && (x.dtype() == DType::bf16 || x.dtype() == DType::fp16);  // fp32_set_opt_dtype
  Tensor y = reduce(x, reduced, keep, widens ? DType::fp32 : x.dtype());
  return op.done(y, [before = x.sizes(), reduced](BackwardCall& b) { b.give(0, expanded(b.tape, b.grad(), before, reduced)); });
}

/// at::sum_to: what broadcasting made is summed away.
Tensor sum_to(const Tensor& x, const Dims& sizes) {
  if (x.sizes() == sizes) return x;
  const int leading = x.rank() - sizes.rank();
  std::vector<int> dimensions;
  for (int i = 0; i < x.rank(); ++i) {
    if (i < leading || (sizes[i - leading] == 1 && x.size(i) != 1)) dimensions.push_back(i);
  }
  if (sizes.rank() == 0) return sum(x, {}, false);
  const Tensor reduced = dimensions.empty() ? x : sum(x, dimensions, true);
  return leading > 0 ? view(reduced, sizes) : reduced;
}

namespace {

Tensor mean_over(const Tensor& x, const std::vector<int>& dimensions, bool keep) {
  const std::vector<bool> reduced = mask_of(x, dimensions);
  Op op("mean", {&x});
  Tensor y = reduce(x, reduced, keep, x.dtype());
  return op.done(y, [before = x.sizes(), reduced](BackwardCall& b) {  // mean_backward: expand, then divide
    const Tensor wide = expanded(b.tape, b.grad(), before, reduced);
    Tensor gradient = b.tape.empty(before, b.grad().dtype());
    in_place(gradient, {&wide});
    b.give(0, std::move(gradient));
  });
}

}  // namespace

Tensor mean(const Tensor& x, int dimension, bool keep) { return mean_over(x, {dimension}, keep); }
Tensor mean(const Tensor& x, const std::vector<int>& dimensions, bool keep) { return mean_over(x, dimensions, keep); }
Tensor global_average_pool(const Tensor& x) { return mean_over(x, {-1, -2}, true); }

Tensor layer_norm(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in) {
  // autocast's wrapper casts its arguments in the compiler's order, the last one first.
  const Tensor bias = bias_in ? autocast_fp32(bias_in) : Tensor(), weight = weight_in ? autocast_fp32(weight_in) : Tensor();
  const Tensor x = autocast_fp32(x_in);
  Op op("layer_norm", {&x, &weight, &bias});
  op.save(bias);
  op.save(x);
  op.save(weight);
  Tensor y, mean, rstd;
  {
    const Tensor packed = contiguous(x.detach());
    y = op.output(x.sizes(), x.dtype());
    Dims rows = x.sizes();
    rows[-1] = 1;
    mean = op.tape().empty(rows, DType::fp32);
    rstd = op.tape().empty(rows, DType::fp32);
    row_wise(RowWise::Function::layer_norm, mean.elements(), x.size(-1), {&packed, &weight, &bias}, {&y, &mean, &rstd});
  }
  op.save_output(mean);
  op.save_output(rstd);
  return op.done(y, [](BackwardCall& b) {  // native_layer_norm_backward: dX, then dgamma and dbeta
    const Tensor input = b.saved(1), scale = b.saved(2);
    const Tensor packed = contiguous(input.detach()), incoming = contiguous(b.grad().detach());
    const std::int64_t columns = input.size(-1), rows = input.elements() / columns;
    if (b.needs(0)) {
      Tensor gradient = b.tape.empty(input.sizes(), input.dtype());
      row_wise(RowWise::Function::layer_norm_backward, rows, columns, {&incoming, &packed, &scale}, {&gradient});
      b.give(0, std::move(gradient));
    }
    if (b.needs(1)) b.give(1, b.tape.empty(scale.sizes(), scale.dtype()));
    if (b.needs(2)) b.give(2, b.tape.empty(scale.sizes(), scale.dtype()));
    if (!b.needs(1) && !b.needs(2)) return;
    row_wise(RowWise::Function::norm_weight_backward, rows, columns, {&incoming, &packed}, {&scale, &scale});
  });
}

namespace {

/// _softmax_backward_data: softmax_backward_cuda multiplies gradient and output first.
Tensor softmax_gradient(Tape& tape, const Tensor& gradient, const Tensor& result, DType type) {
  Tensor made = tape.empty(result.sizes(), type);
  const Tensor product = elementwise(tape, {&gradient, &result}, result.dtype());
  const std::int64_t columns = result.size(-1);
  row_wise(RowWise::Function::softmax_backward, result.elements() / columns, columns, {&product, &result}, {&made});
  return made;
}

/// The softmax kernel proper; `type` is that of the result: fp16 in, fp32 out is one kernel (half_to_float).
Tensor softmax_kernel(const char* name, const Tensor& x, DType type, bool logarithm) {
  Op op(name, {&x});
  Tensor y = op.output(x.sizes(), type);
  const std::int64_t columns = x.size(-1), rows = x.elements() / columns;
  row_wise(logarithm ? RowWise::Function::log_softmax : RowWise::Function::softmax, rows, columns, {&x}, {&y});
  op.save_output(y);
  return op.done(y, [input_type = x.dtype(), logarithm, rows, columns](BackwardCall& b) {
    const Tensor result = b.saved(0);
    if (!logarithm) return b.give(0, softmax_gradient(b.tape, b.grad(), result, input_type));
    Tensor gradient = b.tape.empty(result.sizes(), input_type);
    const Tensor incoming = contiguous(b.grad().detach());
    row_wise(RowWise::Function::log_softmax_backward, rows, columns, {&incoming, &result}, {&gradient});
    b.give(0, std::move(gradient));
  });
}

/// at::softmax(x, dim, dtype): converts first, except from fp16.
Tensor softmax_to(const char* name, const Tensor& x, DType type, bool logarithm) {
  if (x.dtype() == DType::fp16) return softmax_kernel(name, contiguous(x), type, logarithm);
  return softmax_kernel(name, contiguous(to(x, type)), type, logarithm);
}

/// F.softmax without a type: autocast makes it fp32.
DType default_softmax_type(const Tensor& x, DType type) {
  const bool low = x.dtype() == DType::bf16 || x.dtype() == DType::fp16;
  return x.tape().autocast.enabled && type == x.dtype() && low ? DType::fp32 : type;
}

}  // namespace

Tensor softmax(const Tensor& x, DType type) { return softmax_to("softmax", x, default_softmax_type(x, type), false); }
Tensor log_softmax(const Tensor& x, DType type) { return softmax_to("log_softmax", x, type, true); }

Tensor safe_softmax(const Tensor& x) {
  Op op("safe_softmax", {&x});
  Tensor y = op.output(x.sizes(), x.dtype());
  const std::int64_t columns = x.size(-1);
  row_wise(RowWise::Function::softmax, x.elements() / columns, columns, {&x}, {&y});
  {
    const Tensor masked = op.elementwise({&x}, DType::boolean);  // isneginf
    std::vector<bool> last(static_cast<std::size_t>(x.rank()), false);
    last.back() = true;
    const Tensor masked_rows = reduce(masked, last, true, DType::boolean, size_of(DType::boolean));
    const Tensor zero = filled(op.tape(), {}, x.dtype());
    in_place(y, {&masked_rows, &zero});  // where, into its own operand
  }
  op.save_output(y);
  return op.done(y, [](BackwardCall& b) { b.give(0, softmax_gradient(b.tape, b.grad(), b.saved(0), b.saved(0).dtype())); });
}

}  // namespace plimsoll::program
