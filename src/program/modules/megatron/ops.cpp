#include "program/modules/megatron/ops.hpp"

#include <cstdint>

#include "program/inductor/kernels.hpp"
#include "program/modules/megatron/mappings.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

namespace {

/// The two leading dimensions folded.
Tensor rows_of(const Tensor& x) { return reshaped(contiguous(x), {x.elements() / x.size(-1), x.size(-1)}); }

Tensor gather_into_buffer(MegatronRuntime& runtime, const Tensor& x) {
  const Tensor buffer = runtime.global_buffer(gathered_sizes(runtime, x), x.dtype());
  runtime.collective(CollectiveKind::all_gather, buffer.bytes(), x.dtype());
  return buffer;
}

}  // namespace

// ---- products -------------------------------------------------------------------------------------------------------------

namespace {

/// Adds a weight's gradient to its main_grad.
void add_weight_gradient(MegatronRuntime& runtime, std::int64_t rows, const Tensor& weight) {
  const LinearShape shape{rows, weight.size(1), weight.size(0), weight.dtype(), runtime.main_gradient()};
  linear_product(runtime.tape(), LinearPass::weight_gradient, shape, {.accumulates = true});
}

/// The input's gradient alone; what the weight's needs is kept, in the schedule's list or that of the layer.
void defer_weight_gradient(MegatronRuntime& runtime, const MegatronLinear& mode, const Tensor& input, const Tensor& weight,
                           BackwardCall& b) {
  Tensor gradient = rows_of(b.grad());
  Tensor wide = mm(gradient, weight);
  Dims sizes = b.grad().sizes();
  sizes[-1] = weight.size(1);
  wide = reshaped(wide, sizes);
  if (runtime.defers_weight_gradients()) {
    runtime.defer([&runtime, mode, input, weight, gradient] {
      if (mode.gather_input) gather_into_buffer(runtime, input);
      add_weight_gradient(runtime, gradient.size(0), weight);
    });
  } else {
    mode.deferred->inputs.push_back(input);
    mode.deferred->gradients.push_back(std::move(gradient));
  }
  b.give(0, mode.gather_input ? reduce_scatter_rows(runtime, wide) : reduce_over_tensor_parallel(runtime, wide));
  b.give(1, runtime.dummy_gradient(weight));
}

void linear_backward(MegatronRuntime& runtime, const MegatronLinear& mode, BackwardCall& b) {
  const Tensor input = b.saved(0), weight = b.saved(1);
  const bool waits_for_end = mode.deferred && mode.deferred->gradients.size() < mode.deferred->most;
  if (input && (waits_for_end || runtime.defers_weight_gradients())) return defer_weight_gradient(runtime, mode, input, weight, b);
  Tensor total = input;
  if (!input) {
    const Tensor gradient = rows_of(b.grad());
    Tensor wide = mm(gradient, weight);
    Dims sizes = b.grad().sizes();
    sizes[-1] = weight.size(1);
    wide = reshaped(wide, sizes);
    b.give(0, mode.gather_input ? reduce_scatter_rows(runtime, wide) : reduce_over_tensor_parallel(runtime, wide));
    return;
  }
  if (mode.gather_input) {
    total = runtime.global_buffer(gathered_sizes(runtime, input), input.dtype());
    runtime.collective_async(CollectiveKind::all_gather, total.bytes(), input.dtype());
  }
  const Tensor gradient = rows_of(b.grad());
  Tensor input_gradient = mm(gradient, weight), part;
  if (mode.gather_input) runtime.wait();
  const auto add_up = [&] { runtime.collective_async(CollectiveKind::all_reduce, input_gradient.bytes(), input.dtype()); };
  if (mode.reduce_gradient && runtime.reduces_beside_products()) add_up();
  if (mode.gather_input) {
    part = runtime.tape().empty(input.sizes(), input.dtype());
    runtime.collective_async(CollectiveKind::reduce_scatter, input_gradient.bytes(), input.dtype());
  }
  const Tensor rows = rows_of(total);
  if (runtime.fused_weight_gradients()) {
    add_weight_gradient(runtime, rows.size(0), weight);
    b.give(1, runtime.dummy_gradient(weight));
  } else {
    b.give(1, mm(transpose(gradient, 0, 1), rows));
  }
  if (b.needs(2)) b.give(2, sum(gradient, {0}, false));
  if (mode.reduce_gradient && !runtime.reduces_beside_products()) add_up();
  if (mode.gather_input || mode.reduce_gradient) runtime.wait();
  if (b.needs(0)) b.give(0, part ? part : reshaped(input_gradient, input.sizes()));
}

}  // namespace

Tensor megatron_linear(MegatronRuntime& runtime, const Tensor& input, const Tensor& weight, const Tensor& bias,
                       const MegatronLinear& mode) {
  PythonFunction op("linear", {&input, &weight, &bias});
  op.save_if(op.needs(1), input);  // LinearWithFrozenWeight saves the weight alone
  op.save(weight);
  Tensor output;
  {
    const GradMode no_grad(op.tape(), false);
    const Tensor total = mode.gather_input ? gather_into_buffer(runtime, input) : input;
    output = linear(total, weight);
    if (bias) {
      Tensor sum = add(output, bias);
      output = std::move(sum);
    }
  }
  return op.done(output, [&runtime, mode](BackwardCall& b) {
    linear_backward(runtime, mode, b);
    b.drop_gradients();
  });
}

void compute_deferred(MegatronRuntime& runtime, const Tensor& weight, DeferredGradients& deferred) {
  if (deferred.inputs.empty()) return;
  const Tensor& input = deferred.inputs.front();
  const std::int64_t rows = deferred.gradients.front().size(0);
  const std::size_t products = deferred.inputs.size() + deferred.unrecorded;
  if (runtime.sequence_parallel()) gather_into_buffer(runtime, input);
  for (std::size_t i = 0; i < products; ++i) {
    const bool gathers = runtime.sequence_parallel() && i + 1 < products;  // into the other of two buffers, beside the product
    if (gathers) runtime.collective_async(CollectiveKind::all_gather, rows * input.size(-1) * size_of(input.dtype()), input.dtype());
    add_weight_gradient(runtime, rows, weight);
    if (gathers) runtime.wait();
  }
  deferred.inputs.clear();
  deferred.gradients.clear();
}

Tensor attach_loss(const Tensor& activation, const Tensor& loss) {
  PythonFunction op("aux_loss", {&activation, &loss});
  op.save(loss);
  Tensor same = activation.detach();
  return op.done(same, [](BackwardCall& b) {
    b.give(0, b.grad());
    const Dims sizes = b.saved(0).sizes();
    const Tensor ones = b.tape.empty(sizes, DType::fp32);
    const Tensor scaled = b.tape.empty(sizes.rank() == 0 ? Dims{1} : sizes, DType::fp32);
    pointwise(scaled, {&ones});
    b.give(1, scaled);
  });
}

Tensor scaled_product(const Tensor& a, const Tensor& b) {
  Op op("baddbmm", {&a, &b});
  op.save_if(op.needs(1), a);
  op.save_if(op.needs(0), b);
  Tensor y;
  {
    const GradMode no_grad(op.tape(), false);
    y = bmm(a, b);
  }
  return op.done(y, [](BackwardCall& call) {
    if (call.needs(0)) {
      const Tensor right = transpose(call.saved(1), 1, 2);
      const Tensor product = bmm(call.grad(), right);
      call.give(0, multiply_scalar(product));
    }
    if (call.needs(1)) {
      const Tensor left = transpose(call.saved(0), 1, 2);
      const Tensor product = bmm(left, call.grad());
      call.give(1, multiply_scalar(product));
    }
  });
}

// ---- compiled functions (jit_fuser) -----------------------------------------------------------------------------------------

namespace {

/// One generated kernel into a new tensor.
Tensor compiled_map(Tape& tape, std::initializer_list<const Tensor*> inputs, DType type) {
  const Dims sizes = broadcast_sizes(inputs);
  Tensor y = tape.empty(sizes, type);
  y.impl()->strides = elementwise_strides(sizes, inputs);
  pointwise(Pointwise::Form::fused, inputs, {&y});
  return y;
}

/// The gradient of a bias in a compiled backward: partial sums in fp32, then their sum.
Tensor compiled_bias_gradient(Tape& tape, const Tensor& gradient, const Dims& sizes) {
  const std::int64_t kept = sizes.product(), reduced = gradient.elements() / kept;
  const std::int64_t splits = inductor::outer_sum_splits(tape, reduced, kept);
  const Tensor partial = splits > 1 ? tape.empty({splits, kept}, DType::fp32, Category::workspace) : Tensor();
  Tensor bias = tape.empty(sizes, gradient.dtype());
  reduce(bias, gradient, Reduction::Axis::outer);
  return bias;
}

}  // namespace

Tensor bias_dropout_add(const Tensor& x, const Tensor& bias, const Tensor& residual, double p) {
  const GradMode enabled(residual.tape(), true);  // bias_dropout_add_exec_handler: also where a checkpoint runs its layers without
  CompiledGraph op("bias_dropout_add", {&x, &bias, &residual});
  Tape& tape = op.tape();
  Tensor mask, output;
  {
    const Tensor seed = p > 0 ? tape.empty({1}, DType::int64, Category::workspace) : Tensor();
    // Without a backward the mask never leaves the kernel.
    if (p > 0 && op.differentiable()) mask = inductor::handed_to_backward(tape, x.sizes(), DType::boolean);
    output = bias ? compiled_map(op.tape(), {&x, &bias, &residual}, x.dtype()) : compiled_map(op.tape(), {&x, &residual}, x.dtype());
  }
  if (mask) op.save_output(mask);
  const Dims bias_sizes = bias ? bias.sizes() : Dims{};
  return op.done(output, [bias_sizes, dropped = static_cast<bool>(mask)](BackwardCall& b) {
    Tensor gradient = b.grad();
    if (dropped) {
      const Tensor kept = b.take_saved(0);  // the compiled backward clears its arguments
      gradient = compiled_map(b.tape, {&b.grad(), &kept}, b.grad().dtype());
    }
    if (b.needs(1)) b.give(1, compiled_bias_gradient(b.tape, gradient, bias_sizes));
    if (b.needs(0)) b.give(0, gradient);
    if (b.needs(2)) b.give(2, b.grad());
  });
}

Tensor bias_gelu(const Tensor& x, const Tensor& bias) {
  PythonFunction op("bias_gelu", {&x, &bias});
  op.save(x);
  op.save(bias);
  Tensor y = compiled_map(op.tape(), {&x, &bias}, x.dtype());
  return op.done(y, [](BackwardCall& b) {
    const Tensor input = b.saved(0);
    const Tensor gradient = compiled_map(b.tape, {&b.grad(), &input}, input.dtype());
    b.give(0, gradient);
    b.give(1, gradient);
    b.drop_gradients();
  });
}

Tensor squared_relu(const Tensor& x) {
  CompiledGraph op("squared_relu", {&x});
  op.save(x);
  Tensor y = compiled_map(op.tape(), {&x}, x.dtype());
  return op.done(y, [](BackwardCall& b) {
    const Tensor input = b.saved(0);
    b.give(0, compiled_map(b.tape, {&b.grad(), &input}, input.dtype()));
    b.drop_gradients();
  });
}

Tensor bias_swiglu(const Tensor& x, const Tensor& bias, bool in_eight_bits) {
  PythonFunction op("swiglu", {&x, &bias});
  {
    const GradMode no_grad(op.tape(), false);
    op.save(in_eight_bits ? to(x, DType::fp8) : x);
  }
  op.save(bias);
  Dims half = x.sizes();
  half[-1] /= 2;
  Tensor y = op.output(half, x.dtype());
  pointwise(Pointwise::Form::fused, {&x, &bias}, {&y});
  return op.done(y, [](BackwardCall& b) {
    const Tensor input = b.saved(0);
    const Tensor gradient = b.tape.empty(input.sizes(), b.grad().dtype());
    pointwise(Pointwise::Form::fused, {&input, &b.grad()}, {&gradient});
    b.give(0, gradient);
    if (b.needs(1)) b.give(1, gradient);
    b.drop_gradients();
  });
}

Tensor eager_swiglu(const Tensor& x) {
  const std::vector<Tensor> halves = chunk(x, 2, -1);
  const Tensor gate = silu(halves[0]), linear = add_scalar(halves[1]);
  return multiply(gate, linear);
}

// ---- attention's pieces -----------------------------------------------------------------------------------------------------

bool has_fused_softmax(std::int64_t length, DType type) {
  constexpr std::int64_t kShortest = 16, kLongest = 4096, kRowsOfBlock = 4;
  return type != DType::fp32 && length > kShortest && length <= kLongest && length % kRowsOfBlock == 0;
}

Tensor fused_causal_softmax(const Tensor& scores) {
  PythonFunction op("scaled_upper_triang_masked_softmax", {&scores});
  Tensor probabilities = op.output(scores.sizes(), scores.dtype());
  const std::int64_t columns = scores.size(-1), rows = scores.elements() / columns;
  row_wise(RowWise::Function::softmax, rows, columns, {&scores}, {&probabilities});
  op.save_output(probabilities);
  return op.done(probabilities, [](BackwardCall& b) {
    const Tensor kept = b.saved(0);
    Tensor gradient = contiguous(b.grad());
    row_wise(RowWise::Function::softmax_backward, gradient.elements() / gradient.size(-1), gradient.size(-1), {&gradient, &kept},
             {&gradient});
    b.give(0, std::move(gradient));
  });
}

Tensor repeat_interleave(const Tensor& x, std::int64_t times, int dimension) {
  Dims wide, folded;
  for (int i = 0; i < x.rank(); ++i) {
    wide.push_back(x.size(i));
    folded.push_back(x.size(i) * (i == dimension ? times : 1));
    if (i == dimension) wide.push_back(times);
  }
  const Tensor repeated = contiguous(expand(unsqueeze(x, dimension + 1), wide));
  return view(repeated, folded);
}

}  // namespace plimsoll::program
