#include "program/modules/float8_linear.hpp"

#include <string>
#include <vector>

#include "plimsoll/error.hpp"
#include "program/modules/linear_modules.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

constexpr std::int64_t kAlignment = 16;  // of torch._scaled_mm

struct Cast {
  Tensor data, scale;
};

/// What is cast: along which dimension a scale is shared, and whether torchao sees it as weight.t().
struct Role {
  int dimension;
  bool transposed = false;
};

/// torch.max of a whole tensor, which reads it packed: a copy of what lies transposed, made behind the result.
Tensor largest_of_all(const Tensor& x, bool transposed) {
  Tensor largest = x.tape().empty({}, x.dtype());
  const Tensor packed = transposed ? elementwise(x.tape(), {&x}, x.dtype()) : x;
  reduce_into(largest, packed, std::vector<bool>(static_cast<std::size_t>(x.rank()), true), size_of(x.dtype()));
  return largest;
}

/// tensor_to_amax: the largest magnitudes along a dimension, or of the whole tensor.
Tensor largest_of(const Tensor& x, const Role& role, const Float8Recipe& recipe) {
  const Tensor magnitudes = elementwise(x.tape(), {&x}, x.dtype());
  if (!recipe.by_row) return largest_of_all(magnitudes, role.transposed);
  std::vector<bool> reduced(static_cast<std::size_t>(x.rank()), false);
  reduced[static_cast<std::size_t>(role.dimension)] = true;
  return reduce(magnitudes, reduced, true, x.dtype(), size_of(x.dtype()));
}

/// tensor_to_scale: the scale in fp64, then in fp32; by rows rounded down to a power of two.
Tensor scale_of(const Tensor& x, const Role& role, const Float8Recipe& recipe) {
  Tape& tape = x.tape();
  const Tensor largest = largest_of(x, role, recipe);
  const auto step = [&](const Tensor& from, DType type) { return elementwise(tape, {&from}, type); };
  const Tensor wide = step(largest, DType::fp64);
  Tensor scale;
  {
    Tensor quotient;
    {
      const Tensor clamped = step(wide, DType::fp64), inverse = step(clamped, DType::fp64);
      quotient = step(inverse, DType::fp64);
    }
    scale = step(quotient, DType::fp32);
  }
  if (!recipe.by_row) return scale;
  Tensor exponent = step(scale, DType::fp32);
  exponent = step(exponent, DType::fp32);
  return step(exponent, DType::fp32);
}

/// hp_tensor_to_float8_dynamic.
Cast cast(const Tensor& x, const Role& role, const Float8Recipe& recipe) {
  Tape& tape = x.tape();
  Cast result;
  result.scale = scale_of(x, role, recipe);
  Tensor scaled;
  {
    const Tensor wide = x.dtype() == DType::fp32 ? x : elementwise(tape, {&x}, DType::fp32);
    scaled = elementwise(tape, {&wide, &result.scale}, DType::fp32);
  }
  const Tensor saturated = elementwise(tape, {&scaled}, DType::fp32);
  result.data = elementwise(tape, {&saturated}, DType::fp8);
  return result;
}

struct ProductSizes {
  std::int64_t rows, columns, inner;
};

/// An argument of a product; `turned`: its layout is the one that the kernel does not take.
struct Argument {
  const Tensor& data;
  bool turned = false;
};

/// pad_tensor_for_matmul of the inner dimension: a copy even where there is nothing to pad.
Tensor padded(Tape& tape, const Tensor& data, std::int64_t outer, std::int64_t inner) {
  const std::int64_t whole = round_up(inner, kAlignment);
  Tensor y = tape.empty({outer, whole}, DType::fp8);
  if (whole != inner) pointwise(y, {});
  pointwise(tape, Pointwise::Form::map, {operand(data)}, {packed(data.elements(), DType::fp8)});
  return y;
}

/// preprocess_addmm, then addmm_float8_unwrapped. `fast`: scales go into the product; else, by rows, it is scaled behind it. Padding lays
/// its result out anew, which spares the left argument the copy that its layout would need.
Tensor scaled_product(Tape& tape, const ProductSizes& sizes, bool fast, const Argument& a, const Argument& b, const Float8Recipe& recipe) {
  const bool uneven = recipe.pads && sizes.inner % kAlignment != 0;
  Tensor left_data, right_data;
  if (recipe.pads) {
    left_data = padded(tape, a.data, sizes.rows, sizes.inner);
    right_data = padded(tape, b.data, sizes.columns, sizes.inner);
  }
  const auto turn = [&](Tensor& copy, const Tensor& data) {
    const Tensor& from = copy ? copy : data;
    Tensor turned = elementwise(tape, {&from}, DType::fp8);
    copy = std::move(turned);
  };
  if (a.turned && !uneven) turn(left_data, a.data);
  if (b.turned || uneven) turn(right_data, b.data);
  const auto filled_scalars = [&](const Dims& shape) {  // one kernel for each: reciprocals of scales, or ones
    Tensor scalars = tape.empty(shape, DType::fp32);
    pointwise(scalars, {&scalars});
    return scalars;
  };
  const auto inverse = [&](const Dims& by_row) { return filled_scalars(recipe.by_row ? by_row : Dims{}); };
  Tensor left = inverse({sizes.rows, 1}), right = inverse({1, sizes.columns});
  Tensor behind;
  if (recipe.by_row && !fast) {
    behind = elementwise(tape, {&left, &right}, DType::fp32);
    left = filled_scalars({});
    right = filled_scalars({});
  }
  Tensor y = tape.empty({sizes.rows, sizes.columns}, DType::bf16);
  // The kernels take the left matrix row-major and the right one column-major alone.
  const Matrix left_matrix{sizes.rows, sizes.inner, 1, sizes.inner, false, DType::fp8};
  const Matrix right_matrix{sizes.columns, sizes.inner, 1, sizes.inner, false, DType::fp8};
  const Scaling scaling = behind ? Scaling::tensor : recipe.by_row ? Scaling::row : Scaling::tensor;
  tape.product_workspace(Tape::BlasLibrary::cublas_lt);
  gemm(tape, left_matrix, right_matrix.t(), matrix(y), {.scaling = scaling, .workspace = false});
  if (behind) in_place(y, {&y, &behind});
  return y;
}

void backward(BackwardCall& b, const Float8Recipe& recipe) {
  Tape& tape = b.tape;
  const Tensor& x = b.saved(0);
  const Tensor& weight = b.saved(1);
  const std::int64_t in = weight.size(1), out = weight.size(0), rows = x.elements() / in;
  const Tensor gradient = reshape(b.grad(), {rows, out});
  const Tensor flat = reshape(x, {rows, in});
  const Cast by_row = cast(gradient, {1}, recipe), weights = cast(weight, {0, true}, recipe);
  const Tensor of_x = scaled_product(tape, {rows, in, out}, false, {by_row.data}, {weights.data, true}, recipe);
  const Cast by_column = cast(gradient, {0}, recipe), inputs = cast(flat, {0}, recipe);
  const Tensor of_weight = scaled_product(tape, {out, in, rows}, false, {by_column.data, true}, {inputs.data, true}, recipe);
  b.drop_gradients();
  const auto shaped = [&](const Tensor& of, const Dims& sizes) { return tape.view(of, sizes, contiguous_strides(sizes)); };
  if (b.needs(0)) b.give(0, shaped(of_x, x.sizes()));
  if (b.needs(1)) b.give(1, shaped(of_weight, weight.sizes()));
}

}  // namespace

Tensor float8_matmul(const Tensor& x, const Tensor& weight, const Float8Recipe& recipe) {
  const std::int64_t in = weight.size(1), out = weight.size(0), rows = x.elements() / in;
  if (!recipe.pads && rows % kAlignment != 0)
    fail("torch._scaled_mm takes inner dimensions of multiples of 16 and this recipe pads none; a weight's gradient is summed over " +
             std::to_string(rows) + " tokens",
         "fp8_recipe", "tensorwise");
  PythonFunction op("float8_linear", {&x, &weight});
  if (weight.dtype() == x.dtype()) op.see_transposed(1);  // else the gradient is cast for weight.t() itself, in front of its backward
  op.save(x);
  op.save(weight);
  Dims sizes = x.sizes();
  sizes[-1] = out;
  Tensor y;
  {
    const GradMode no_grad(op.tape(), false);
    // A recomputation casts anew, whether the product was kept or not.
    const Cast inputs = cast(x, {x.rank() - 1}, recipe), weights = cast(weight, {1, true}, recipe);
    y = selected(op.tape(), "mm", [&]() -> std::vector<Tensor> {
          const Tensor product = scaled_product(op.tape(), {rows, out, in}, true, {inputs.data}, {weights.data}, recipe);
          Tensor result = op.tape().view(product, sizes, contiguous_strides(sizes));
          result.impl()->base.reset();
          return {result};
        }).front();
  }
  return op.done(y, [recipe](BackwardCall& b) { backward(b, recipe); });
}

Tensor float8_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (bias) refuse("a Float8Linear with a bias is not modelled");
  return float8_matmul(x, weight, {.by_row = true});
}

namespace {

/// Float8Linear.forward.
Tensor forward(Module& module, Tape& tape, const Tensor& x, const Float8Recipe& recipe) {
  const Tensor low = tape.autocast.enabled ? to(x, tape.autocast.type) : x;
  Tensor y = float8_matmul(low, module.tensor("weight"), recipe);
  if (const Tensor& bias = module.tensor("bias")) {
    Tensor sum;
    {
      const Tensor low_bias = to(bias, y.dtype());
      sum = add(y, low_bias);
    }
    y = std::move(sum);
  }
  return y;
}

}  // namespace

void convert_linears_to_float8(Module& root, const Model& model, const Float8Recipe& recipe, Tape& tape) {
  if (model.model_type == "falcon")
    fail("Falcon adds in place to what its linears return, which autograd forbids of Float8Linear's views", "fp8_backend");
  const std::vector<Module*> linears = linear_modules(root, model);
  bool converted = false;
  for (Module* module : linears) {
    if (module == linears.front() || module == linears.back()) continue;
    const Dims& sizes = module->find_parameter("weight")->sizes;
    if (sizes[0] % kAlignment != 0 || sizes[1] % kAlignment != 0) continue;
    module->replacement = [module, &tape, recipe](const Tensor& x) { return forward(*module, tape, x, recipe); };
    converted = true;
  }
  if (!converted)
    refuse("Accelerate leaves the first and the last nn.Linear in 16 bits, and the model has no other whose widths are multiples of 16",
           "fp8_backend");
}

}  // namespace plimsoll::program
