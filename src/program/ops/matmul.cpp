#include "plimsoll/error.hpp"
#include "program/ops/copying.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// A new row-major tensor of `sizes` that holds a · b.
Tensor product(Tape& tape, const Matrix& a, const Matrix& b, const Dims& sizes) {
  Tensor y = tape.empty(sizes, a.type);
  gemm(tape, a, b, matrix(y));
  return y;
}
Tensor product(Tape& tape, const Matrix& a, const Matrix& b) { return product(tape, a, b, {a.rows, b.columns}); }

/// mm_mat1_backward and mm_mat2_backward: the gradient of a factor that lies transposed is computed transposed.
Tensor left_gradient(Tape& tape, const Matrix& g, const Matrix& left, const Matrix& right) {
  return left.transposed ? transpose(product(tape, right, g.t()), 0, 1) : product(tape, g, right.t());
}
Tensor right_gradient(Tape& tape, const Matrix& g, const Matrix& left, const Matrix& right) {
  return right.transposed ? transpose(product(tape, g.t(), left), 0, 1) : product(tape, left.t(), g);
}

/// The gradient of a matrix that was used transposed or reshaped: a view to the engine, which therefore never adds into it.
Tensor as_view(Tape& tape, const Tensor& x, const Dims& sizes) { return tape.view(x, sizes, contiguous_strides(sizes)); }

/// The gradient of a folded product as a matrix: a view where its layout allows, else a copy, behind which it is dropped.
Tensor as_matrix(Tensor gradient, std::int64_t rows, std::int64_t columns) { return reshape(gradient, {rows, columns}); }

/// Whether x's leading dimensions can be seen as one.
bool folds(const Tensor& x) {
  for (int i = 0; i + 2 < x.rank(); ++i) {
    if (x.size(i) != 1 && x.strides()[i] != x.strides()[i + 1] * x.size(i + 1)) return false;
  }
  return true;
}

/// x, copied where its leading dimensions cannot be seen as one.
Tensor foldable(const Tensor& x) { return folds(x) ? x : contiguous(x); }

/// F.linear without bias on any rank: matmul folds the leading dimensions, multiplies by weight.t(), and unfolds with _unsafe_view.
/// MmBackward gives the weight's gradient first.
Tensor linear_without_bias(const Tensor& x, const Tensor& weight) {
  const Matrix left = folded(x), right = matrix(weight).t();
  Op op("linear", {&x, &weight});
  op.see_transposed(1);
  op.save_if(op.needs(0), weight);
  op.save_if(op.needs(1), x);
  Dims sizes = x.sizes();
  sizes[-1] = right.columns;
  Tensor y = selected(op.tape(), "mm", [&]() -> std::vector<Tensor> {
               Tensor product = op.output(sizes, x.dtype());
               gemm(op.tape(), left, right, folded(product));
               return {product};
             }).front();
  return op.done(y, [left, right, wide = x.sizes(), folds = x.rank() != 2](BackwardCall& b) {
    const Tensor g = as_matrix(b.take_grad(), left.rows, right.columns);
    if (b.needs(1)) b.give(1, as_view(b.tape, product(b.tape, matrix(g).t(), left), {right.columns, right.rows}));
    if (b.needs(0)) {
      const Tensor gradient = product(b.tape, matrix(g), right.t());
      b.give(0, folds ? as_view(b.tape, gradient, wide) : gradient);
    }
  });
}

/// at::matmul of x [batch, rows, in] whose leading dimensions do not fold, by a weight that takes no gradient: a batched product, instead
/// of the copy that spares a trained weight a gradient per batch (LinearAlgebra.cpp, should_fold).
Tensor linear_batched(const Tensor& x, const Tensor& weight) {
  Matrix right = matrix(weight).t();
  right.batch = x.size(0);
  Op op("linear", {&x, &weight});
  op.save_if(op.needs(0), weight);
  Tensor y = product(op.tape(), matrix(x), right, {x.size(0), x.size(1), right.columns});
  return op.done(y, [right, sizes = x.sizes()](BackwardCall& b) { b.give(0, product(b.tape, matrix(b.grad()), right.t(), sizes)); });
}

/// a · b + a bias of every column, by cuBLASLt.
Tensor biased_product(Tape& tape, const Matrix& a, const Matrix& b) {
  Tensor y = tape.empty({a.rows, b.columns}, a.type);
  gemm(tape, a, b, matrix(y), {.epilogue = Epilogue::bias});
  return y;
}

/// F.linear with bias of a matrix: addmm, whose backward gives the input's gradient first.
Tensor linear_with_bias(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Matrix left = matrix(x), right = matrix(weight).t();
  Op op("linear", {&bias, &x, &weight});
  op.see_transposed(2);
  op.save_if(op.needs(2), x);
  op.save_if(op.needs(1), weight);
  Tensor y = selected(op.tape(), "addmm", [&]() -> std::vector<Tensor> { return {biased_product(op.tape(), left, right)}; }).front();
  return op.done(y, [left, right](BackwardCall& b) {
    const Tensor& g = b.grad();
    if (b.needs(1)) b.give(1, left_gradient(b.tape, matrix(g), left, right));
    if (b.needs(2)) b.give(2, as_view(b.tape, product(b.tape, matrix(g).t(), left), {right.columns, right.rows}));
    if (b.needs(0)) b.give(0, g);
  });
}

}  // namespace

Tensor linear(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in) {
  // autocast's wrapper casts its arguments in the compiler's order, the last one first.
  const Tensor bias = bias_in ? autocast_low(bias_in) : Tensor();
  const Tensor weight = autocast_low(weight_in);
  const Tensor x = autocast_low(x_in);
  if (x.tape().patched_linear) return x.tape().patched_linear(x, weight, bias);
  // A matrix may have any leading dimension; more dimensions must fold without a copy.
  if (!bias && x.rank() == 3 && !weight.requires_grad() && !folds(x)) return linear_batched(x, weight);
  const Tensor flat = x.rank() == 2 ? x : foldable(x);
  if (!bias) return linear_without_bias(flat, weight);
  // A sequence that is not contiguous is multiplied as a matmul, whose result gets the bias in place.
  if (x.rank() == 3 && !x.is_contiguous()) return add_into(linear_without_bias(flat, weight), bias);
  if (flat.rank() == 2) return linear_with_bias(flat, weight, bias);
  // _flatten_nd_linear: the views before and behind the product are operators of their own; in backward the weight's turn comes before the
  // input's, whose view was made first.
  Dims sizes = flat.sizes();
  sizes[-1] = weight.size(0);
  return view(linear_with_bias(view(flat, {-1, flat.size(-1)}), weight, bias), sizes);
}

Tensor addmm(const Tensor& bias_in, const Tensor& x_in, const Tensor& weight_in) {
  const Tensor weight = autocast_low(weight_in), x = autocast_low(x_in), bias = autocast_low(bias_in);
  const Matrix left = matrix(x), right = matrix(weight);
  Op op("addmm", {&bias, &x, &weight});
  op.save_if(op.needs(2), x);
  op.save_if(op.needs(1), weight);
  Tensor y = biased_product(op.tape(), left, right);
  return op.done(y, [left, right](BackwardCall& b) {
    const Tensor& g = b.grad();
    if (b.needs(1)) b.give(1, left_gradient(b.tape, matrix(g), left, right));
    if (b.needs(2)) b.give(2, right_gradient(b.tape, matrix(g), left, right));
    if (b.needs(0)) b.give(0, g);
  });
}

Tensor mm(const Tensor& a_in, const Tensor& b_in) {
  const Tensor b = autocast_low(b_in), a = autocast_low(a_in);
  const Matrix left = matrix(a), right = matrix(b);
  Op op("mm", {&a, &b});
  op.save_if(op.needs(0), b);
  op.save_if(op.needs(1), a);
  Tensor y = product(op.tape(), left, right);
  return op.done(y, [left, right](BackwardCall& call) {
    if (call.needs(1)) call.give(1, right_gradient(call.tape, matrix(call.grad()), left, right));
    if (call.needs(0)) call.give(0, left_gradient(call.tape, matrix(call.grad()), left, right));
  });
}

Tensor bmm(const Tensor& a_in, const Tensor& b_in) {
  const Tensor b = autocast_low(b_in), a = autocast_low(a_in);
  const Matrix left = matrix(a), right = matrix(b);
  Op op("bmm", {&a, &b});
  op.save_if(op.needs(0), b);
  op.save_if(op.needs(1), a);
  Tensor y = product(op.tape(), left, right, {left.batch, left.rows, right.columns});
  return op.done(y, [left, right](BackwardCall& call) {
    const Matrix g = matrix(call.grad());
    if (call.needs(1)) call.give(1, product(call.tape, left.t(), g, {left.batch, left.columns, right.columns}));
    if (call.needs(0)) call.give(0, product(call.tape, g, right.t(), {left.batch, left.rows, left.columns}));
  });
}

namespace {

/// prepare_batch_matrix_for_cublas: a factor none of whose last two strides is 1 is copied.
Tensor batch_for_cublas(const Tensor& x) {
  const Dims strides = x.strides();
  if (strides[-1] == 1 || strides[-2] == 1) return x;
  Tensor copy = x.tape().empty(x.sizes(), x.dtype());
  pointwise(copy, {&x});
  return copy;
}

/// bmm of a gradient and a factor, times alpha where there is one.
Tensor factor_gradient(Tape& tape, const Tensor& a, const Tensor& b, bool scaled) {
  Tensor gradient = tape.empty({a.size(0), a.size(1), b.size(2)}, a.dtype());
  {
    const Tensor left = batch_for_cublas(a), right = batch_for_cublas(b);
    gemm(tape, matrix(left), matrix(right), matrix(gradient));
  }
  return scaled ? elementwise(tape, {&gradient}, gradient.dtype()) : gradient;
}

}  // namespace

Tensor baddbmm(const Tensor& x, const Tensor& a, const Tensor& b, bool scaled) {
  Op op("baddbmm", {&x, &a, &b});
  op.save_if(op.needs(2), a);
  op.save_if(op.needs(1), b);
  Tensor y = op.tape().empty({a.size(0), a.size(1), b.size(2)}, x.dtype());
  copy_into(y, x.sizes() == y.sizes() ? x : expand(x.detach(), y.sizes()));
  {
    const Tensor left = batch_for_cublas(a), right = batch_for_cublas(b);
    gemm(op.tape(), matrix(left), matrix(right), matrix(y), {.accumulates = true});
  }
  return op.done(y, [scaled, sizes = x.sizes()](BackwardCall& call) {
    const Tensor& g = call.grad();
    const GradMode frozen(call.tape, false);
    if (call.needs(1)) {
      const Tensor turned = transpose(call.saved(1), 1, 2);
      call.give(1, factor_gradient(call.tape, g, turned, scaled));
    }
    if (call.needs(2)) {
      const Tensor turned = transpose(call.saved(0), 1, 2);
      call.give(2, factor_gradient(call.tape, turned, g, scaled));
    }
    if (call.needs(0)) call.give(0, sum_to(g, sizes));  // the engine sums what was broadcast (validate_outputs)
  });
}

Tensor matmul(const Tensor& a_in, const Tensor& b_in) {
  const Tensor b = autocast_low(b_in), a = autocast_low(a_in);
  const int rank = a.rank();
  std::int64_t batch = 1;
  Dims sizes, left_sizes = a.sizes(), right_sizes = b.sizes();
  for (int i = 0; i < rank - 2; ++i) {
    left_sizes[i] = right_sizes[i] = std::max(a.size(i), b.size(i));
    batch *= left_sizes[i];
    sizes.push_back(left_sizes[i]);
  }
  sizes.push_back(a.size(-2));
  sizes.push_back(b.size(-1));
  Tensor flat;
  {
    const Tensor left = reshape(a.sizes() == left_sizes ? a : expand(a, left_sizes), {batch, a.size(-2), a.size(-1)});
    const Tensor right = reshape(b.sizes() == right_sizes ? b : expand(b, right_sizes), {batch, b.size(-2), b.size(-1)});
    flat = bmm(left, right);
  }
  return unsafe_view(flat, sizes);
}

}  // namespace plimsoll::program
