#include "plimsoll/error.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

void gemm(Tape& tape, DType type, std::int64_t rows, std::int64_t columns, std::int64_t inner, std::int64_t batch, bool biased) {
  gemm(tape, Matrix{rows, inner, batch, inner, false, type}, Matrix{inner, columns, batch, columns, false, type},
       Matrix{rows, columns, batch, columns, false, type}, {.epilogue = biased ? Epilogue::bias : Epilogue::none});
}

namespace {

/// A new [rows × columns] product.
Tensor product(Tape& tape, DType type, std::int64_t rows, std::int64_t columns, std::int64_t inner) {
  Tensor y = tape.empty({rows, columns}, type);
  gemm(tape, type, rows, columns, inner);
  return y;
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
  const std::int64_t in = weight.size(1), out = weight.size(0), rows = x.elements() / in;
  Op op("linear", {&x, &weight});
  op.see_transposed(1);
  op.save_if(op.needs(0), weight);
  op.save_if(op.needs(1), x);
  Dims sizes = x.sizes();
  sizes[-1] = out;
  Tensor y = selected(op.tape(), "mm", [&]() -> std::vector<Tensor> {
               Tensor product = op.output(sizes, x.dtype());
               gemm(op.tape(), x.dtype(), rows, out, in);
               return {product};
             }).front();
  return op.done(y, [in, out, rows, wide = x.sizes(), folded = x.rank() != 2](BackwardCall& b) {
    const Tensor g = as_matrix(b.take_grad(), rows, out);
    if (b.needs(1)) b.give(1, as_view(b.tape, product(b.tape, g.dtype(), out, in, rows), {out, in}));
    if (b.needs(0)) {
      const Tensor gradient = product(b.tape, g.dtype(), rows, in, out);
      b.give(0, folded ? as_view(b.tape, gradient, wide) : gradient);
    }
  });
}

/// at::matmul of x [batch, rows, in] whose leading dimensions do not fold, by a weight that takes no gradient: a batched product, instead
/// of the copy that spares a trained weight a gradient per batch (LinearAlgebra.cpp, should_fold).
Tensor linear_batched(const Tensor& x, const Tensor& weight) {
  const std::int64_t batch = x.size(0), rows = x.size(1), in = weight.size(1), out = weight.size(0);
  Op op("linear", {&x, &weight});
  op.save_if(op.needs(0), weight);
  Tensor y = op.output({batch, rows, out}, x.dtype());
  gemm(op.tape(), x.dtype(), rows, out, in, batch);
  return op.done(y, [batch, rows, in, out](BackwardCall& b) {
    Tensor gradient = b.tape.empty({batch, rows, in}, b.grad().dtype());
    gemm(b.tape, b.grad().dtype(), rows, in, out, batch);
    b.give(0, std::move(gradient));
  });
}

/// F.linear with bias of a matrix: addmm, whose backward gives the input's gradient first.
Tensor linear_with_bias(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const std::int64_t in = weight.size(1), out = weight.size(0), rows = x.elements() / in;
  Op op("linear", {&bias, &x, &weight});
  op.see_transposed(2);
  op.save_if(op.needs(2), x);
  op.save_if(op.needs(1), weight);
  Tensor y = selected(op.tape(), "addmm", [&]() -> std::vector<Tensor> {
               Tensor product = op.output({rows, out}, x.dtype());
               gemm(op.tape(), x.dtype(), rows, out, in, 1, true);
               return {product};
             }).front();
  return op.done(y, [in, out, rows](BackwardCall& b) {
    const Tensor& g = b.grad();
    if (b.needs(1)) b.give(1, product(b.tape, g.dtype(), rows, in, out));
    if (b.needs(2)) b.give(2, as_view(b.tape, product(b.tape, g.dtype(), out, in, rows), {out, in}));
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
  const std::int64_t rows = x.size(0), in = weight.size(0), out = weight.size(1);
  Op op("addmm", {&bias, &x, &weight});
  op.save_if(op.needs(2), x);
  op.save_if(op.needs(1), weight);
  Tensor y = op.output({rows, out}, x.dtype());
  gemm(op.tape(), x.dtype(), rows, out, in, 1, true);
  return op.done(y, [in, out, rows](BackwardCall& b) {
    const Tensor& g = b.grad();
    if (b.needs(1)) b.give(1, product(b.tape, g.dtype(), rows, in, out));
    if (b.needs(2)) b.give(2, product(b.tape, g.dtype(), in, out, rows));
    if (b.needs(0)) b.give(0, g);
  });
}

Tensor mm(const Tensor& a_in, const Tensor& b_in) {
  const Tensor b = autocast_low(b_in), a = autocast_low(a_in);
  const std::int64_t rows = a.size(0), inner = a.size(1), columns = b.size(1);
  Op op("mm", {&a, &b});
  op.save_if(op.needs(0), b);
  op.save_if(op.needs(1), a);
  Tensor y = product(op.tape(), a.dtype(), rows, columns, inner);
  return op.done(y, [rows, inner, columns](BackwardCall& call) {
    if (call.needs(1)) call.give(1, product(call.tape, call.grad().dtype(), inner, columns, rows));
    if (call.needs(0)) call.give(0, product(call.tape, call.grad().dtype(), rows, inner, columns));
  });
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  const std::int64_t batch = a.size(0), rows = a.size(1), inner = a.size(2), columns = b.size(2);
  Op op("bmm", {&a, &b});
  op.save_if(op.needs(0), b);
  op.save_if(op.needs(1), a);
  Tensor y = op.output({batch, rows, columns}, a.dtype());
  gemm(op.tape(), a.dtype(), rows, columns, inner, batch);
  return op.done(y, [batch, rows, inner, columns](BackwardCall& call) {
    const DType type = call.grad().dtype();
    if (call.needs(1)) {
      Tensor gradient = call.tape.empty({batch, inner, columns}, type);
      gemm(call.tape, type, inner, columns, rows, batch);
      call.give(1, std::move(gradient));
    }
    if (call.needs(0)) {
      Tensor gradient = call.tape.empty({batch, rows, inner}, type);
      gemm(call.tape, type, rows, inner, columns, batch);
      call.give(0, std::move(gradient));
    }
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
