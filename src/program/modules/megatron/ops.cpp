#include "program/modules/megatron/ops.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "program/modules/inductor.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

/// The same storage seen in other sizes; no view to autograd (as param.data and buffers are).
Tensor reshaped(const Tensor& x, const Dims& sizes) {
  Tensor y = x.detach();
  y.impl()->sizes = sizes;
  y.impl()->strides = contiguous_strides(sizes);
  return y;
}

/// The two leading dimensions folded.
Tensor rows_of(const Tensor& x) { return reshaped(contiguous(x), {x.elements() / x.size(-1), x.size(-1)}); }

Dims gathered(const Tensor& x, std::int64_t ranks) {
  Dims sizes = x.sizes();
  sizes[0] *= ranks;
  return sizes;
}

Dims scattered(const Tensor& x, std::int64_t ranks) {
  Dims sizes = x.sizes();
  sizes[0] /= ranks;
  return sizes;
}

Tensor gather_into_buffer(MegatronRuntime& runtime, const Tensor& x) {
  const Tensor buffer = runtime.global_buffer(gathered(x, runtime.tp()), x.dtype());
  runtime.collective(CollectiveKind::all_gather, buffer.bytes(), x.dtype());
  return buffer;
}

Tensor scatter(MegatronRuntime& runtime, const Tensor& x) {
  const Tensor whole = contiguous(x);
  Tensor part = runtime.tape().empty(scattered(x, runtime.tp()), x.dtype());
  runtime.collective(CollectiveKind::reduce_scatter, whole.bytes(), x.dtype());
  return part;
}

Tensor gather(MegatronRuntime& runtime, const Tensor& x) {
  const Tensor part = contiguous(x);
  Tensor whole = runtime.tape().empty(gathered(x, runtime.tp()), x.dtype());
  runtime.collective(CollectiveKind::all_gather, whole.bytes(), x.dtype());
  return whole;
}

}  // namespace

// ---- MegatronRuntime ------------------------------------------------------------------------------------------------------

MegatronRuntime::MegatronRuntime(Tape& tape, const MegatronRuntimeOptions& options)
    : tape_(tape), options_(options), stream_(options.tensor_parallel > 1 ? tape.add_stream("tensor parallel") : kComputeStream) {
  options_.sequence_parallel = options.sequence_parallel && options.tensor_parallel > 1;
}

Tensor MegatronRuntime::global_buffer(const Dims& sizes, DType type) {
  Tensor& buffer = buffers_[type];
  if (!buffer || buffer.elements() < sizes.product()) {
    const LabelScope label(tape_, tape_.intern("global memory buffer"));
    Tensor larger = tape_.empty({sizes.product()}, type, Category::communication_buffer);
    buffer = std::move(larger);
  }
  return reshaped(buffer, sizes);
}

Tensor MegatronRuntime::dummy_gradient(const Tensor& weight) {
  const LabelScope label(tape_, tape_.intern("dummy weight gradient"));
  const auto make = [&] {
    return tape_.empty(weight.sizes(), weight.dtype() == DType::fp8 ? DType::bf16 : weight.dtype(), Category::gradient);
  };
  if (!options_.keeps_dummies) {
    Tensor fresh = make();
    awaited_dummies_.insert(fresh.impl()->storage.get());
    return fresh;
  }
  Tensor& dummy = dummies_[{weight.size(0), weight.size(1), weight.dtype()}];
  if (!dummy) dummy = make();
  return dummy.detach();
}

void MegatronRuntime::reserve_quantized(const Tensor& weight, bool transposed) {
  const TeQuantization& quantization = options_.quantization;
  if (!quantization.enabled || (transposed && !quantization.transposes)) return;
  if (!transposed && weight.dtype() == DType::fp8) return;  // it is what is asked for
  auto& [straight, turned] = quantized_[weight.impl()];
  Tensor& copy = transposed ? turned : straight;
  if (copy) return;
  const LabelScope label(tape_, tape_.intern("8-bit weights"));
  const std::int64_t scales = quantization.block > 0 ? weight.elements() / quantization.block : 0;
  copy = tape_.empty({weight.elements() + scales}, DType::fp8, Category::parameter);
}

bool MegatronRuntime::is_dummy(const Tensor& gradient) {
  const StorageRef& storage = gradient.impl()->storage;
  if (awaited_dummies_.erase(storage.get()) > 0) return true;
  return std::any_of(dummies_.begin(), dummies_.end(), [&](const auto& each) { return each.second.impl()->storage == storage; });
}

namespace {

constexpr std::int64_t kTeWorkspace = (32LL << 20) + 1024;  // get_cublas_workspace_size_bytes, from Hopper on
constexpr int kTeStreams = 4;                               // get_num_cublas_streams

Tensor te_workspace(Tape& tape) {
  const LabelScope label(tape, tape.intern("Transformer Engine's GEMM workspace"));
  return tape.empty({kTeWorkspace}, DType::uint8, Category::workspace);
}

}  // namespace

void MegatronRuntime::reserve_gemm_workspace() {
  if (!gemm_workspace_) gemm_workspace_ = te_workspace(tape_);
}

void MegatronRuntime::log_auxiliary_loss() {
  const Tensor unscaled = tape_.empty({}, DType::fp32);
  if (!auxiliary_losses_) auxiliary_losses_ = tape_.empty({options_.layers_of_model}, DType::fp32, Category::workspace);
}

void MegatronRuntime::reserve_grouped_workspaces() {
  if (!grouped_workspaces_.empty()) return;
  for (int i = 0; i < kTeStreams; ++i) grouped_workspaces_.push_back(te_workspace(tape_));
}

StreamId MegatronRuntime::context_stream() {
  if (!context_stream_) context_stream_ = tape_.add_stream("context parallel");
  return *context_stream_;
}

void MegatronRuntime::collective_async(CollectiveKind kind, std::int64_t bytes, DType type) {
  if (tp() == 1) return;
  tape_.wait(stream_, kComputeStream);
  tape_.collective({.kind = kind, .group = Group::tensor, .bytes = bytes, .type = type}, stream_);
}

void MegatronRuntime::wait() {
  if (tp() > 1) tape_.wait(kComputeStream, stream_);
}

std::optional<EventId> MegatronRuntime::collective_event(CollectiveKind kind, std::int64_t bytes, DType type) {
  if (tp() == 1) return std::nullopt;
  collective_async(kind, bytes, type);
  const auto [event, made] = events_.try_emplace(kind, EventId{});
  if (made) event->second = tape_.new_event();
  tape_.record_event(event->second, stream_);
  return event->second;
}

void MegatronRuntime::await(Awaited& pending) {
  if (pending.done) tape_.wait_event(kComputeStream, *pending.done);
  pending.done.reset();
}

void MegatronRuntime::collective(CollectiveKind kind, std::int64_t bytes, DType type) {
  collective_async(kind, bytes, type);
  wait();
}

// ---- products -------------------------------------------------------------------------------------------------------------

namespace {

void linear_backward(MegatronRuntime& runtime, const MegatronLinear& mode, BackwardCall& b) {
  const Tensor input = b.saved(0), weight = b.saved(1);
  Tensor total = input;
  if (!input) {
    const Tensor gradient = rows_of(b.grad());
    Tensor wide = mm(gradient, weight);
    Dims sizes = b.grad().sizes();
    sizes[-1] = weight.size(1);
    wide = reshaped(wide, sizes);
    b.give(0, mode.gather_input ? scatter(runtime, wide) : reduce_over_tensor_parallel(runtime, wide));
    return;
  }
  if (mode.gather_input) {
    total = runtime.global_buffer(gathered(input, runtime.tp()), input.dtype());
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
    const LinearShape shape{rows.size(0), weight.size(1), weight.size(0), weight.dtype(), runtime.main_gradient()};
    linear_product(runtime.tape(), LinearPass::weight_gradient, shape, {.accumulates = true});
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

// ---- moves over the tensor-parallel ranks -----------------------------------------------------------------------------------

Tensor reduce_scatter_sequence(MegatronRuntime& runtime, const Tensor& x) {
  PythonFunction op("reduce_scatter", {&x});
  Tensor part;
  {
    const GradMode no_grad(op.tape(), false);
    part = scatter(runtime, x);
  }
  return op.done(part, [&runtime](BackwardCall& b) { b.give(0, gather(runtime, b.grad())); });
}

Awaited gather_sequence_async(MegatronRuntime& runtime, const Tensor& x) {
  const Tensor part = contiguous(x);
  Tensor whole = runtime.tape().empty(gathered(x, runtime.tp()), x.dtype());
  const auto done = runtime.collective_event(CollectiveKind::all_gather, whole.bytes(), x.dtype());
  return {std::move(whole), done};
}

Awaited reduce_scatter_sequence_async(MegatronRuntime& runtime, const Tensor& x) {
  const Tensor whole = contiguous(x);
  Tensor part = scattered_like(runtime, x);
  const auto done = runtime.collective_event(CollectiveKind::reduce_scatter, whole.bytes(), x.dtype());
  return {std::move(part), done};
}

Tensor scattered_like(MegatronRuntime& runtime, const Tensor& x) { return runtime.tape().empty(scattered(x, runtime.tp()), x.dtype()); }

Tensor scatter_sequence(MegatronRuntime& runtime, const Tensor& x) {
  PythonFunction op("scatter", {&x});
  Tensor part = x.detach();
  part.impl()->sizes = scattered(x, runtime.tp());
  return op.done(part, [&runtime](BackwardCall& b) { b.give(0, gather(runtime, b.grad())); });
}

Tensor gather_sequence(MegatronRuntime& runtime, const Tensor& x) {
  PythonFunction op("all_gather", {&x});
  Tensor whole;
  {
    const GradMode no_grad(op.tape(), false);
    whole = gather(runtime, x);
  }
  return op.done(whole, [&runtime](BackwardCall& b) { b.give(0, scatter(runtime, b.grad())); });
}

Tensor gather_last_dimension(MegatronRuntime& runtime, const Tensor& x) {
  PythonFunction op("all_gather", {&x});
  Tensor wide;
  {
    const GradMode no_grad(op.tape(), false);
    const Tensor stacked = gather(runtime, x);
    wide = cat(chunk(stacked, static_cast<int>(runtime.tp()), 0), -1);
  }
  return op.done(wide, [&runtime, sizes = x.sizes()](BackwardCall& b) {
    const Tensor rows = reshaped(contiguous(b.grad()), {sizes[0] * sizes[1], b.grad().size(-1)});
    const Tensor stacked = cat(chunk(rows, static_cast<int>(runtime.tp()), 1), 0);
    b.give(0, reshaped(scatter(runtime, stacked), sizes));
    b.drop_gradients();
  });
}

Tensor reduce_over_tensor_parallel(MegatronRuntime& runtime, const Tensor& x) {
  if (runtime.tp() == 1) return x;
  PythonFunction op("all_reduce", {&x});
  runtime.collective(CollectiveKind::all_reduce, x.bytes(), x.dtype());
  Tensor same = x.detach();
  return op.done(same, [](BackwardCall& b) { b.give(0, b.grad()); });
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

namespace {

/// x.masked_fill(mask, 0): a copy that is row-major whatever x is (masked_fill clones with MemoryFormat::Contiguous).
Tensor masked_copy(const Tensor& x, const Tensor& mask) {
  Tensor copy = x.is_contiguous() ? clone(x) : contiguous(x);
  in_place(copy, {&mask});
  return copy;
}

}  // namespace

Tensor masked_fill_in_place(const Tensor& x, const Tensor& mask) {
  Op op("masked_fill_", {&x});
  op.save(mask);
  in_place(x, {&mask});
  Tensor y = x.detach();
  return op.done(y, [](BackwardCall& b) { b.give(0, masked_copy(b.grad(), b.saved(0))); });
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

// ---- vocabulary -------------------------------------------------------------------------------------------------------------

namespace {

/// Which targets lie outside this rank's part of the vocabulary, and the others counted from its start.
struct LocalTarget {
  Tensor outside, index;
};

LocalTarget local_target(const Tensor& target) {
  Tape& tape = target.tape();
  LocalTarget local;
  {
    const Tensor below = elementwise(tape, {&target}, DType::boolean), above = elementwise(tape, {&target}, DType::boolean);
    local.outside = elementwise(tape, {&below, &above}, DType::boolean);
  }
  const Tensor copy = clone(target);
  local.index = elementwise(tape, {&copy}, DType::int64);
  in_place(local.index, {&local.outside});
  return local;
}

/// The loss of probabilities that are made in place in `scores`, and what the backward needs.
Tensor cross_entropy_in_place(MegatronRuntime& runtime, const Tensor& scores, const Tensor& target, LocalTarget& local) {
  Tape& tape = runtime.tape();
  const Dims rows = target.sizes();
  Tensor most = tape.empty(rows, DType::fp32);
  {
    const Tensor where = tape.empty(rows, DType::int64);
    // Beyond 32-bit offsets the kernel runs in pieces, with a value and an index of each row between them (Reduce.cuh).
    if (scores.bytes() > INT32_MAX) tape.scratch(16 * target.elements());
    reduce(tape, Reduction::Axis::inner, most.elements(), {operand(scores)}, {operand(most), operand(where)});
  }
  runtime.collective(CollectiveKind::all_reduce, most.bytes(), DType::fp32);
  in_place(scores, {&scores, &most});
  local = local_target(target);
  Tensor predicted, sums;
  {
    const Tensor range = arange(tape, target.elements());
    {
      const Tensor picked = tape.empty({target.elements()}, DType::fp32);
      gather(tape, Gather::Function::index, picked.elements(), {operand(range), operand(local.index), operand(picked)}, {operand(picked)});
      predicted = clone(picked);
    }
    in_place(predicted, {&local.outside});
    in_place(scores, {&scores});
    std::vector<bool> last(static_cast<std::size_t>(scores.rank()), false);
    last.back() = true;
    sums = reduce(scores, last, false, DType::fp32);
  }
  runtime.collective(CollectiveKind::all_reduce, predicted.bytes(), DType::fp32);
  runtime.collective(CollectiveKind::all_reduce, sums.bytes(), DType::fp32);
  const Tensor logarithm = elementwise(tape, {&sums}, DType::fp32);
  Tensor loss = elementwise(tape, {&logarithm, &sums}, DType::fp32);
  in_place(scores, {&scores, &sums});
  return loss;
}

/// The gradient of the logits, in place of the probabilities.
void cross_entropy_gradient(Tape& tape, const Tensor& probabilities, const Tensor& outside, const Tensor& gradient) {
  const std::int64_t rows = outside.elements();
  const Tensor range = arange(tape, rows);
  Tensor update;
  {
    const Tensor wide = elementwise(tape, {&outside}, DType::fp32);
    update = elementwise(tape, {&wide}, DType::fp32);
  }
  {
    const Tensor picked = tape.empty({rows}, DType::fp32);
    gather(tape, Gather::Function::index, rows, {operand(range), operand(picked)}, {operand(picked)});
    in_place(picked, {&picked, &update});
    gather(tape, Gather::Function::scatter, rows, {operand(range), operand(picked)}, {operand(picked)});
  }
  in_place(probabilities, {&probabilities, &gradient});
}

}  // namespace

Tensor vocab_parallel_cross_entropy(MegatronRuntime& runtime, const Tensor& logits, const Tensor& target) {
  PythonFunction op("vocab_parallel_cross_entropy", {&logits});
  LocalTarget local;
  Tensor loss, probabilities;
  {
    const GradMode no_grad(op.tape(), false);
    probabilities = to(logits, DType::fp32).detach();
    loss = cross_entropy_in_place(runtime, probabilities, target, local);
  }
  op.save_output(probabilities);
  op.save_output(local.outside);
  op.save_output(local.index);
  return op.done(loss, [](BackwardCall& b) {
    const Tensor softmax = b.saved(0);
    cross_entropy_gradient(b.tape, softmax, b.saved(1), b.grad());
    b.give(0, softmax);
    b.drop_gradients();
  });
}

Tensor fused_vocab_parallel_cross_entropy(MegatronRuntime& runtime, const Tensor& logits, const Tensor& target) {
  PythonFunction op("fused_vocab_parallel_cross_entropy", {&logits});
  Tape& tape = op.tape();
  const std::int64_t rows = target.elements();
  const Tensor scores = tape.empty(logits.sizes(), DType::fp32);
  Tensor outside, index, loss;
  {
    const Tensor most = elementwise(tape, {&target}, DType::fp32);
    runtime.collective(CollectiveKind::all_reduce, most.bytes(), DType::fp32);
    outside = tape.empty(target.sizes(), DType::boolean);
    index = tape.empty({rows}, DType::int64);
    const Tensor predicted_and_sums = tape.empty({2 * rows}, DType::fp32);
    {  // the exponentials, copied back over the scores
      const Tensor exponentials = tape.empty(logits.sizes(), DType::fp32);
      pointwise(Pointwise::Form::fused, {&scores, &most}, {&exponentials});
      in_place(scores, {&exponentials});
    }
    runtime.collective(CollectiveKind::all_reduce, predicted_and_sums.bytes(), DType::fp32);
    loss = tape.empty(target.sizes(), DType::fp32);
    pointwise(Pointwise::Form::fused, {&scores, &predicted_and_sums}, {&scores, &loss});
  }
  op.save_output(scores);
  op.save_output(outside);
  op.save_output(index);
  return op.done(loss, [](BackwardCall& b) {
    const Tensor softmax = b.saved(0);
    // The kernel's own result is bf16 whatever the logits are; the engine casts it.
    const Tensor updated = b.tape.empty(softmax.sizes(), DType::fp32);
    pointwise(Pointwise::Form::fused, {&softmax}, {&updated});
    const Tensor gradient = b.tape.empty(softmax.sizes(), DType::bf16);
    pointwise(Pointwise::Form::fused, {&updated, &b.grad()}, {&gradient});
    b.give(0, gradient);
    b.drop_gradients();
  });
}

Tensor vocab_parallel_embedding(MegatronRuntime& runtime, const Tensor& weight, const Tensor& indices) {
  if (runtime.tp() == 1) return embedding(weight, indices);
  const LocalTarget local = local_target(indices);
  const Tensor rows = embedding(weight, local.index);
  Op op("masked_fill_", {&rows});
  op.save(local.outside);
  in_place(rows, {&local.outside});
  Tensor filled = rows.detach();
  return op.done(filled, [](BackwardCall& b) { b.give(0, masked_copy(b.grad(), b.saved(0))); });
}

}  // namespace plimsoll::program
