#include "program/modules/megatron/te.hpp"

#include <utility>

#include "program/modules/megatron/mappings.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

namespace {

/// TransformerEngineBaseModule.forward around the function: its module and what it prepares, of 8 bits the quantizers as well.
void called(const MegatronRuntime& runtime, Tape& tape) { tape.host(HostWork::module, runtime.quantization().enabled ? 2 : 1); }

/// One product of a linear layer, on Transformer Engine's own workspace.
void te_gemm(MegatronRuntime& runtime, LinearPass pass, std::int64_t rows, const Tensor& weight, DType type,
             Epilogue epilogue = Epilogue::none) {
  runtime.reserve_gemm_workspace();
  const TeProduct product = te_product(runtime, pass, rows, {weight.size(0), weight.size(1)}, type);
  ProductOptions options = product.options;
  options.epilogue = epilogue;
  linear_product(runtime.tape(), pass, product.shape, options);
}

/// What a tensor of those sizes is cast into, with its scales beside it.
Tensor few_bits(MegatronRuntime& runtime, const Dims& sizes) {
  return runtime.tape().empty(with_last(sizes, runtime.quantization().stored(sizes[-1])), DType::fp8);
}

/// What a kernel writes of columns behind a random Hadamard transform: products of weights' gradients alone read it (recipe/__init__.py,
/// NVFP4BlockScaling).
Operand transformed(const Tensor& x) { return {x.elements(), x.dtype(), Walk::transposed}; }

/// quantize_impl of current scaling and nvfp4 before the cast: the tensor's greatest value, and its scale. Where columns are transformed,
/// theirs as well, from the same reading (nvte_hadamard_transform_amax), whether or not they are cast.
void measure(const TeQuantization& quantization, Tape& tape, const Tensor& x) {
  const Tensor greatest = tape.empty({1}, DType::fp32, Category::workspace), scale = tape.empty({1}, DType::fp32, Category::workspace);
  if (quantization.transforms) {
    row_wise(tape, RowWise::Function::quantize, row_count(x), x.size(-1), {operand(x)}, {transformed(greatest)});
    return;
  }
  reduce(greatest, x, Reduction::Axis::all);
  pointwise(scale, {&greatest});
}

/// NVFP4Quantizer::quantize_impl behind it: rows as they are, and columns transformed, by a kernel each or by one.
void cast_to_four_bits(const TeQuantization& quantization, const Tensor& x, const TeOperand& to) {
  Tape& tape = x.tape();
  const std::int64_t rows = row_count(x), columns = x.size(-1);
  if (quantization.casts_both_ways && to.transposed) {
    row_wise(tape, RowWise::Function::quantize, rows, columns, {operand(x)}, {operand(to.straight), transformed(to.transposed)});
    return;
  }
  row_wise(RowWise::Function::quantize, rows, columns, {&x}, {&to.straight});
  if (!to.transposed) return;
  const Operand turned = quantization.transforms ? transformed(to.transposed) : operand(to.transposed);
  row_wise(tape, RowWise::Function::quantize, rows, columns, {operand(x)}, {turned});
}

/// The transposed copy of what was gathered.
TeOperand turn(MegatronRuntime& runtime, Tensor straight) {
  TeOperand quantized{std::move(straight), {}};
  if (!runtime.quantization().enabled || !runtime.quantization().transposes) return quantized;
  quantized.transposed = empty_like(quantized.straight);
  pointwise(Pointwise::Form::fused, {&quantized.straight}, {&quantized.transposed});
  return quantized;
}

/// x · weightᵀ, of x's leading sizes.
Tensor product(MegatronRuntime& runtime, const Dims& leading, const Tensor& weight, DType type, bool biased) {
  const Tensor read = runtime.quantized_weight(weight, false);
  Tensor y = runtime.tape().empty(with_last(leading, weight.size(0)), type);
  te_gemm(runtime, LinearPass::forward, row_count(y), weight, type, biased ? Epilogue::bias : Epilogue::none);
  return y;
}

/// The input's gradient: gradient · weight, of the gradient's leading sizes.
Tensor input_gradient(MegatronRuntime& runtime, const Dims& leading, const Tensor& weight, DType type) {
  const Tensor read = runtime.quantized_weight(weight, true);
  Tensor y = runtime.tape().empty(with_last(leading, weight.size(1)), type);
  te_gemm(runtime, LinearPass::input_gradient, row_count(y), weight, type);
  return y;
}

/// Gradients of the weight and, from the product's epilogue, of the bias: forward inputs `index` and `index` + 1. `read`: the input and the
/// gradient of the output that the product reads; it may wait for its slot where the layer `defers` it.
void give_weight_gradients(MegatronRuntime& runtime, BackwardCall& b, std::size_t index, const Tensor& weight, std::int64_t rows,
                           std::initializer_list<const Tensor*> read, bool defers) {
  if (b.needs(index)) {
    const bool fused = runtime.fused_weight_gradients();
    Tensor gradient = fused ? Tensor() : b.tape.empty(weight.sizes(), b.grad().dtype());
    // In 8 bits the bias's gradient comes of the kernel that quantizes the output's.
    const bool with_bias = b.needs(index + 1) && !runtime.quantization().enabled;
    const auto product = [&runtime, rows, weight, type = b.grad().dtype(), with_bias] {
      te_gemm(runtime, LinearPass::weight_gradient, rows, weight, type, with_bias ? Epilogue::bias_gradient : Epilogue::none);
    };
    defers ? te_run_or_defer(runtime, product, read) : product();
    if (fused) gradient = runtime.dummy_gradient(weight);
    b.give(index, std::move(gradient));
  }
  if (b.needs(index + 1)) b.give(index + 1, b.tape.empty({weight.size(0)}, b.grad().dtype()));
}

/// What a norm's kernel leaves beside its output.
struct Normed {
  Tensor output, mean, deviation;
};

/// Launches a norm's kernel as its blocks take it: of narrow rows each of a block's four warps takes one (the general and tuned launchers
/// of normalization/rmsnorm and layernorm).
void launch_norm(Tape& tape, RowWise::Function function, std::int64_t rows, std::int64_t columns, std::initializer_list<Operand> in,
                 std::initializer_list<Operand> out) {
  constexpr std::int64_t kWidest = 1024, kWarps = 4;
  const std::int64_t together = columns <= kWidest && rows % kWarps == 0 ? kWarps : 1;
  row_wise(tape, function, rows / together, columns * together, in, out);
}

/// `output`: in x's type; else the kernel writes 8 bits, whose storage is the caller's.
Normed normalize(Tape& tape, const Tensor& x, bool centred, bool output = true) {
  Normed normed;
  if (output) normed.output = tape.empty(x.sizes(), x.dtype());
  if (centred) normed.mean = tape.empty({row_count(x)}, DType::fp32);
  normed.deviation = tape.empty({row_count(x)}, DType::fp32);
  const auto function = centred ? RowWise::Function::layer_norm : RowWise::Function::rms_norm;
  const Operand written = output ? operand(normed.output) : packed(x.elements(), DType::fp8);
  launch_norm(tape, function, row_count(x), x.size(-1), {operand(x)}, {written, operand(normed.deviation)});
  return normed;
}

/// Gradients of a norm's input, weight and bias: forward inputs 0, 1 and 2. Each multiprocessor adds the weight's up on its own.
void give_norm_gradients(BackwardCall& b, const Tensor& x, const TeNorm& norm) {
  const int parts = norm.bias ? 2 : 1;
  const Tensor partial = b.tape.empty({parts, b.tape.device.units, x.size(-1)}, DType::fp32, Category::workspace);
  Tensor gradient = b.tape.empty(x.sizes(), x.dtype());
  if (b.needs(1)) b.give(1, b.tape.empty(norm.weight.sizes(), norm.weight.dtype()));
  if (norm.bias && b.needs(2)) b.give(2, b.tape.empty(norm.bias.sizes(), norm.bias.dtype()));
  const auto function = norm.bias ? RowWise::Function::layer_norm_backward : RowWise::Function::rms_norm_backward;
  launch_norm(b.tape, function, row_count(x), x.size(-1), {operand(x), operand(b.grad()), operand(norm.weight)},
              {operand(gradient), operand(partial)});
  b.give(0, std::move(gradient));
}

}  // namespace

std::vector<Tensor> te_held(const MegatronRuntime& runtime, std::initializer_list<const Tensor*> tensors) {
  std::vector<Tensor> held;
  for (const Tensor* tensor : tensors)
    if (*tensor) held.push_back(runtime.store_defers() ? clone(tensor->detach()) : tensor->detach());
  return held;
}

TeOperand te_quantize(MegatronRuntime& runtime, const Tensor& x, bool turned, bool measured) {
  const TeQuantization& quantization = runtime.quantization();
  if (!quantization.enabled) return {x, {}};
  if (quantization.measured && (!measured || quantization.transforms)) measure(quantization, runtime.tape(), x);
  TeOperand quantized{few_bits(runtime, x.sizes()), {}};
  if (turned && quantization.transposes) quantized.transposed = few_bits(runtime, x.sizes());
  if (quantization.scaling == Scaling::nvfp4) {
    cast_to_four_bits(quantization, x, quantized);
  } else if (quantization.block > 0) {
    row_wise(RowWise::Function::quantize, row_count(x), x.size(-1), {&x}, {&quantized.straight, &quantized.transposed});
  } else {
    pointwise(Pointwise::Form::fused, {&x}, {&quantized.straight, &quantized.transposed});
  }
  return quantized;
}

TeProduct te_product(const MegatronRuntime& runtime, LinearPass pass, std::int64_t rows, const Dims& weight, DType type) {
  const TeQuantization& quantization = runtime.quantization();
  const bool added = pass == LinearPass::weight_gradient && runtime.fused_weight_gradients();
  TeProduct product{{rows, weight[1], weight[0]}, {}};
  product.shape.type = quantization.enabled ? DType::fp8 : type;
  product.shape.result = added ? runtime.main_gradient() : type;
  product.shape.turned = quantization.turned;
  product.options = {.scaling = quantization.scaling, .accumulates = added, .workspace = false};
  return product;
}

// ---- norms and linears ------------------------------------------------------------------------------------------------------

Tensor te_norm(const Tensor& input, const TeNorm& norm) {
  const Tensor x = contiguous(input);
  PythonFunction op("te_norm", {&x, &norm.weight, &norm.bias});
  op.save(x);
  op.save(norm.weight);
  op.save(norm.bias);
  Normed normed = normalize(op.tape(), x, norm.bias.defined());
  op.save_output(normed.mean);
  op.save_output(normed.deviation);
  return op.done(normed.output, [](BackwardCall& b) {
    give_norm_gradients(b, b.saved(0), {b.saved(1), b.saved(2)});
    b.drop_gradients();
  });
}

namespace {

/// The gradient of a linear's output as its products read it, and whether it is still coming in.
struct OutputGradient {
  TeOperand operand;
  Awaited pending;
};

/// Whole where the input was cut, with the copy that the product of the weight's gradient reads where it is `turned`. With user buffers the
/// first product works through the pieces that are there.
OutputGradient output_gradient(MegatronRuntime& runtime, const Tensor& gradient, bool gathers, bool turned = true) {
  const Tensor packed = contiguous(gradient);
  if (!gathers) return {te_quantize(runtime, packed, turned), {}};
  const Tensor part = te_quantize(runtime, packed, false).straight;
  Awaited whole = gather_sequence_async(runtime, part);
  const bool turns = turned && runtime.quantization().enabled && runtime.quantization().transposes;
  if (turns || !runtime.user_buffers()) runtime.await(whole);
  Tensor gathered = std::exchange(whole.tensor, {});
  TeOperand operand = turned ? turn(runtime, std::move(gathered)) : TeOperand{std::move(gathered), {}};
  return {std::move(operand), std::move(whole)};
}

/// What a product reads of all ranks. With user buffers the pieces come in while the product works through those that are there.
Awaited gather_beside_product(MegatronRuntime& runtime, const Tensor& x) {
  Awaited whole = gather_sequence_async(runtime, x);
  if (!runtime.user_buffers()) runtime.await(whole);
  return whole;
}

/// x · weightᵀ, added up over the ranks and cut. With user buffers all but the last piece goes while the product still works.
Tensor product_and_scatter(MegatronRuntime& runtime, const Tensor& x, const Tensor& weight, DType type, bool biased) {
  const std::int64_t bytes = row_count(x) * weight.size(0) * size_of(type);
  const bool beside = runtime.user_buffers();
  if (beside) runtime.collective_async(CollectiveKind::reduce_scatter, bytes - bytes / runtime.tp(), type);
  const Tensor whole = product(runtime, x.sizes(), weight, type, biased);
  if (!beside) return reduce_scatter_sequence(runtime, whole);
  const Tensor part = scattered_like(runtime, whole);
  runtime.collective(CollectiveKind::reduce_scatter, bytes / runtime.tp(), type);
  return part;
}

/// `returned`: the norm's output is an output of its own.
void layernorm_linear_backward(MegatronRuntime& runtime, bool returned, BackwardCall& b) {
  const Tensor x = b.saved(0), weight = b.saved(1);
  const TeNorm norm{b.saved(2), b.saved(3)};
  Tensor normed = b.take_saved(4);
  const bool sequence = runtime.sequence_parallel();
  const OutputGradient gradient = output_gradient(runtime, b.grad(), false);
  Awaited gathered;
  if (sequence && normed) gathered = gather_sequence_async(runtime, normed);
  const Tensor whole = input_gradient(runtime, b.grad().sizes(), weight, x.dtype());
  Awaited scattered;
  Tensor part;
  if (sequence) {
    scattered = reduce_scatter_sequence_async(runtime, whole);
    part = std::exchange(scattered.tensor, {});
  } else {
    part = reduce_over_tensor_parallel(runtime, whole);
  }
  if (returned && b.grad(1)) {
    runtime.await(scattered);
    Tensor sum = add(part, b.grad(1));
    part = std::move(sum);
  }
  runtime.await(gathered);
  {
    const TeOperand total = gathered.tensor ? turn(runtime, std::move(gathered.tensor)) : TeOperand{normed, {}};
    give_weight_gradients(runtime, b, 3, weight, row_count(b.grad()), {&total.kept(), &gradient.operand.kept()}, runtime.store_defers());
  }
  runtime.await(scattered);
  normed.reset();
  give_norm_gradients(b, x, norm);
  b.drop_gradients();
}

/// What the function's backward knows of its forward.
struct LinearCall {
  TeParallel parallel;
  TeInput saved;
  DType type;
};

void linear_backward(MegatronRuntime& runtime, const LinearCall& call, BackwardCall& b) {
  const auto [parallel, saved, type] = call;
  Tensor input = b.saved(0);
  const Tensor weight = b.saved(1);
  const bool sequence = runtime.sequence_parallel();
  const bool gathers_gradient = parallel == TeParallel::row && sequence, gathers_input = parallel == TeParallel::column && sequence;
  if (input && saved == TeInput::original) {
    const TeOperand again = te_quantize(runtime, input, !gathers_input);
    input = again.kept();
  }
  OutputGradient gradient = output_gradient(runtime, b.grad(), gathers_gradient, b.needs(1) || runtime.quantization().turns_frozen);
  Awaited gathered, scattered;
  if (gathers_input && input) gathered = gather_sequence_async(runtime, input);
  Dims leading = b.grad().sizes();
  if (gathers_gradient) leading[0] *= runtime.tp();
  const Tensor whole = input_gradient(runtime, leading, weight, type);
  runtime.await(gradient.pending);
  Tensor part = whole;
  if (parallel == TeParallel::column && sequence) {
    scattered = reduce_scatter_sequence_async(runtime, whole);
    part = std::exchange(scattered.tensor, {});
  } else if (parallel == TeParallel::column) {
    part = reduce_over_tensor_parallel(runtime, whole);
  }
  runtime.await(gathered);
  {
    const TeOperand total = gathered.tensor ? turn(runtime, std::move(gathered.tensor)) : TeOperand{input, {}};
    give_weight_gradients(runtime, b, 1, weight, row_count(whole), {&total.kept(), &gradient.operand.kept()}, true);
  }
  runtime.await(scattered);
  if (b.needs(0)) b.give(0, std::move(part));
  b.drop_gradients();
}

}  // namespace

Tensor te_layernorm_linear(MegatronRuntime& runtime, const Tensor& x, const TeNorm& norm, const Tensor& weight, const Tensor& bias,
                           Tensor* returned) {
  PythonFunction op("te_layernorm_linear", {&x, &norm.weight, &norm.bias, &weight, &bias});
  called(runtime, op.tape());
  op.save(x);
  op.save(weight);
  op.save(norm.weight);
  op.save(norm.bias);
  const bool sequence = runtime.sequence_parallel(), trained = op.needs(3);
  const bool in_eight_bits = runtime.quantization().enabled && runtime.quantization().fused_norm && returned == nullptr;
  Normed normed = normalize(op.tape(), x, norm.bias.defined(), !in_eight_bits);
  // Rows that are gathered are turned behind the gathering.
  const TeOperand quantized = te_quantize(runtime, in_eight_bits ? x : normed.output, trained && !sequence, true);
  Tensor output;
  {
    const GradMode no_grad(op.tape(), false);
    Awaited total{quantized.straight, {}};
    if (sequence) total = gather_beside_product(runtime, quantized.straight);
    Dims leading = x.sizes();
    if (sequence) leading[0] *= runtime.tp();
    output = product(runtime, leading, weight, x.dtype(), bias.defined());
    runtime.await(total);
  }
  op.save_output_if(trained, quantized.kept());
  op.save_output(normed.mean);
  op.save_output(normed.deviation);
  const auto backward = [&runtime, &recipe = runtime.quantization(), two = returned != nullptr](BackwardCall& b) {
    const QuantizationScope scope(runtime, recipe);
    layernorm_linear_backward(runtime, two, b);
  };
  if (returned == nullptr) return op.done(output, backward);
  *returned = normed.output.detach();
  op.finish({&output, returned}, backward);
  return output;
}

Tensor te_linear(MegatronRuntime& runtime, const Tensor& x, const Tensor& weight, const Tensor& bias, TeParallel parallel, TeInput saved) {
  PythonFunction op("te_linear", {&x, &weight, &bias});
  called(runtime, op.tape());
  const bool sequence = runtime.sequence_parallel(), gathers = parallel == TeParallel::column && sequence;
  const bool trained = op.needs(1);
  const bool as_it_is = saved == TeInput::original;
  const TeOperand quantized = te_quantize(runtime, x, trained && !gathers && !as_it_is);
  op.save_if(trained, as_it_is ? x : quantized.kept());
  op.save(weight);
  Tensor output;
  {
    const GradMode no_grad(op.tape(), false);
    Awaited total{quantized.straight, {}};
    if (gathers) total = gather_beside_product(runtime, quantized.straight);
    Dims leading = x.sizes();
    if (gathers) leading[0] *= runtime.tp();
    if (parallel == TeParallel::row && sequence) {
      output = product_and_scatter(runtime, x, weight, x.dtype(), bias.defined());
    } else {
      output = product(runtime, leading, weight, x.dtype(), bias.defined());
    }
    runtime.await(total);
    total.tensor.reset();
    if (parallel == TeParallel::row && !sequence) output = reduce_over_tensor_parallel(runtime, output);
  }
  const LinearCall call{parallel, saved, x.dtype()};
  return op.done(output, [&runtime, &recipe = runtime.quantization(), call](BackwardCall& b) {
    const QuantizationScope scope(runtime, recipe);
    linear_backward(runtime, call, b);
  });
}

}  // namespace plimsoll::program
