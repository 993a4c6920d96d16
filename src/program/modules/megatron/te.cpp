#include "program/modules/megatron/te.hpp"

#include <utility>
#include <vector>

#include "plimsoll/error.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

namespace {

std::int64_t rows_of(const Tensor& x) { return x.elements() / x.size(-1); }

Dims with_last(const Dims& sizes, std::int64_t last) {
  Dims other = sizes;
  other[-1] = last;
  return other;
}

/// One product of a linear layer, on Transformer Engine's own workspace.
void te_gemm(MegatronRuntime& runtime, LinearPass pass, std::int64_t rows, const Tensor& weight, DType type,
             Epilogue epilogue = Epilogue::none) {
  runtime.reserve_gemm_workspace();
  const TeProduct product = te_product(runtime, pass, rows, {weight.size(0), weight.size(1)}, type);
  ProductOptions options = product.options;
  options.epilogue = epilogue;
  linear_product(runtime.tape(), pass, product.shape, options);
}

Tensor eight_bits(MegatronRuntime& runtime, const Dims& sizes) {
  Dims with_scales = sizes;
  const std::int64_t block = runtime.quantization().block;
  if (block > 0) with_scales[-1] += ceil_div(with_scales[-1], block);
  return runtime.tape().empty(with_scales, DType::fp8);
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
  runtime.reserve_quantized(weight, false);
  Tensor y = runtime.tape().empty(with_last(leading, weight.size(0)), type);
  te_gemm(runtime, LinearPass::forward, rows_of(y), weight, type, biased ? Epilogue::bias : Epilogue::none);
  return y;
}

/// The input's gradient: gradient · weight, of the gradient's leading sizes.
Tensor input_gradient(MegatronRuntime& runtime, const Dims& leading, const Tensor& weight, DType type) {
  runtime.reserve_quantized(weight, true);
  Tensor y = runtime.tape().empty(with_last(leading, weight.size(1)), type);
  te_gemm(runtime, LinearPass::input_gradient, rows_of(y), weight, type);
  return y;
}

/// Gradients of the weight and, from the product's epilogue, of the bias: forward inputs `index` and `index` + 1.
void give_weight_gradients(MegatronRuntime& runtime, BackwardCall& b, std::size_t index, const Tensor& weight, std::int64_t rows) {
  if (b.needs(index)) {
    const bool fused = runtime.fused_weight_gradients();
    Tensor gradient = fused ? Tensor() : b.tape.empty(weight.sizes(), b.grad().dtype());
    // In 8 bits the bias's gradient comes of the kernel that quantizes the output's.
    const bool with_bias = b.needs(index + 1) && !runtime.quantization().enabled;
    te_gemm(runtime, LinearPass::weight_gradient, rows, weight, b.grad().dtype(), with_bias ? Epilogue::bias_gradient : Epilogue::none);
    if (fused) gradient = runtime.dummy_gradient(weight);
    b.give(index, std::move(gradient));
  }
  if (b.needs(index + 1)) b.give(index + 1, b.tape.empty({weight.size(0)}, b.grad().dtype()));
}

/// What a norm's kernel leaves beside its output.
struct Normed {
  Tensor output, mean, deviation;
};

/// `output`: in x's type; else the kernel writes 8 bits, whose storage is the caller's.
Normed normalize(Tape& tape, const Tensor& x, bool centred, bool output = true) {
  Normed normed;
  if (output) normed.output = tape.empty(x.sizes(), x.dtype());
  if (centred) normed.mean = tape.empty({rows_of(x)}, DType::fp32);
  normed.deviation = tape.empty({rows_of(x)}, DType::fp32);
  const auto function = centred ? RowWise::Function::layer_norm : RowWise::Function::rms_norm;
  const Operand written = output ? operand(normed.output) : packed(x.elements(), DType::fp8);
  row_wise(tape, function, rows_of(x), x.size(-1), {operand(x)}, {written, operand(normed.deviation)});
  return normed;
}

/// Gradients of a norm's input, weight and bias: forward inputs 0, 1 and 2. Each multiprocessor adds the weight's up on its own.
void give_norm_gradients(BackwardCall& b, const Tensor& x, const TeNorm& norm) {
  const int parts = norm.bias ? 2 : 1;
  const Tensor partial = b.tape.empty({parts, b.tape.multiprocessors, x.size(-1)}, DType::fp32, Category::workspace);
  Tensor gradient = b.tape.empty(x.sizes(), x.dtype());
  if (b.needs(1)) b.give(1, b.tape.empty(norm.weight.sizes(), norm.weight.dtype()));
  if (norm.bias && b.needs(2)) b.give(2, b.tape.empty(norm.bias.sizes(), norm.bias.dtype()));
  const auto function = norm.bias ? RowWise::Function::layer_norm_backward : RowWise::Function::rms_norm_backward;
  row_wise(function, rows_of(x), x.size(-1), {&x, &b.grad(), &norm.weight}, {&gradient, &partial});
  b.give(0, std::move(gradient));
}

}  // namespace

TeOperand te_quantize(MegatronRuntime& runtime, const Tensor& x, bool turned) {
  if (!runtime.quantization().enabled) return {x, {}};
  TeOperand quantized{eight_bits(runtime, x.sizes()), {}};
  if (turned && runtime.quantization().transposes) quantized.transposed = eight_bits(runtime, x.sizes());
  if (runtime.quantization().block > 0) {
    row_wise(RowWise::Function::quantize, rows_of(x), x.size(-1), {&x}, {&quantized.straight, &quantized.transposed});
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

/// Whole where the input was cut. With user buffers the first product works through the pieces that are there.
OutputGradient output_gradient(MegatronRuntime& runtime, const Tensor& gradient, bool gathers) {
  const Tensor packed = contiguous(gradient);
  if (!gathers) return {te_quantize(runtime, packed, true), {}};
  const Tensor part = te_quantize(runtime, packed, false).straight;
  Awaited whole = gather_sequence_async(runtime, part);
  const bool turns = runtime.quantization().enabled && runtime.quantization().transposes;
  if (turns || !runtime.user_buffers()) runtime.await(whole);
  TeOperand operand = turn(runtime, std::exchange(whole.tensor, {}));
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
  const std::int64_t bytes = rows_of(x) * weight.size(0) * size_of(type);
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
    give_weight_gradients(runtime, b, 3, weight, rows_of(b.grad()));
  }
  runtime.await(scattered);
  normed.reset();
  give_norm_gradients(b, x, norm);
  b.drop_gradients();
}

void linear_backward(MegatronRuntime& runtime, TeParallel parallel, DType type, BackwardCall& b) {
  const Tensor input = b.saved(0), weight = b.saved(1);
  const bool sequence = runtime.sequence_parallel();
  const bool gathers_gradient = parallel == TeParallel::row && sequence, gathers_input = parallel == TeParallel::column && sequence;
  OutputGradient gradient = output_gradient(runtime, b.grad(), gathers_gradient);
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
    give_weight_gradients(runtime, b, 1, weight, rows_of(whole));
  }
  runtime.await(scattered);
  if (b.needs(0)) b.give(0, std::move(part));
  b.drop_gradients();
}

}  // namespace

Tensor te_layernorm_linear(MegatronRuntime& runtime, const Tensor& x, const TeNorm& norm, const Tensor& weight, const Tensor& bias,
                           Tensor* returned) {
  PythonFunction op("te_layernorm_linear", {&x, &norm.weight, &norm.bias, &weight, &bias});
  op.save(x);
  op.save(weight);
  op.save(norm.weight);
  op.save(norm.bias);
  const bool sequence = runtime.sequence_parallel(), trained = op.needs(3);
  const bool in_eight_bits = runtime.quantization().enabled && runtime.quantization().fused_norm && returned == nullptr;
  Normed normed = normalize(op.tape(), x, norm.bias.defined(), !in_eight_bits);
  // Rows that are gathered are turned behind the gathering.
  const TeOperand quantized = te_quantize(runtime, in_eight_bits ? x : normed.output, trained && !sequence);
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
  if (returned == nullptr) return op.done(output, [&runtime](BackwardCall& b) { layernorm_linear_backward(runtime, false, b); });
  *returned = normed.output.detach();
  op.finish({&output, returned}, [&runtime](BackwardCall& b) { layernorm_linear_backward(runtime, true, b); });
  return output;
}

Tensor te_linear(MegatronRuntime& runtime, const Tensor& x, const Tensor& weight, const Tensor& bias, TeParallel parallel) {
  PythonFunction op("te_linear", {&x, &weight, &bias});
  const bool sequence = runtime.sequence_parallel(), gathers = parallel == TeParallel::column && sequence;
  const bool trained = op.needs(1);
  const TeOperand quantized = te_quantize(runtime, x, trained && !gathers);
  op.save_if(trained, quantized.kept());
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
  return op.done(output, [&runtime, parallel, type = x.dtype()](BackwardCall& b) { linear_backward(runtime, parallel, type, b); });
}

// ---- attention --------------------------------------------------------------------------------------------------------------

Tensor te_rotary(const Tensor& x, const Tensor& table) {
  PythonFunction op("te_rotary", {&x});
  op.save(table);
  Tensor y = op.output(x.sizes(), x.dtype());
  row_wise(RowWise::Function::rope, rows_of(x), x.size(-1), {&x, &table}, {&y});
  return op.done(y, [](BackwardCall& b) {
    const Tensor gradient = b.tape.empty(b.grad().sizes(), b.grad().dtype());
    row_wise(RowWise::Function::rope, rows_of(gradient), gradient.size(-1), {&b.grad(), &b.saved(0)}, {&gradient});
    b.give(0, gradient);
    b.drop_gradients();
  });
}

namespace {

/// How the fused kernels attend: whose they are, the type that they multiply, and whether the queries meet keys of another
/// context-parallel rank, by half and without a mask.
struct AttentionKernels {
  AttentionLibrary library = AttentionLibrary::cudnn;
  DType type = DType::bf16;
  bool of_other_rank = false;
};

AttentionKernels kernels_of(const MegatronRuntime& runtime, const Tensor& query, bool in_eight_bits = false) {
  return {runtime.attention(), in_eight_bits ? DType::fp8 : query.dtype()};
}

/// Causal attention over [s, b, heads, width].
Attention attention_of(Attention::Part part, const AttentionKernels& kernels, const Tensor& query, const Tensor& key, const Tensor& value) {
  Attention attention;
  attention.library = kernels.library;
  attention.part = part;
  attention.type = kernels.type;
  attention.causal = !kernels.of_other_rank;
  attention.batch = query.size(1);
  attention.heads = query.size(2);
  attention.kv_heads = key.size(2);
  attention.queries = kernels.of_other_rank ? query.size(0) / 2 : query.size(0);
  attention.keys = key.size(0);
  attention.head_dim = query.size(3);
  attention.value_dim = value.size(3);
  return attention;
}

/// Outputs of the fused forward: the result, the softmax's statistics and the generator's state.
struct Attended {
  Tensor output, statistics, generator;
};

Attended attend(Tape& tape, const AttentionKernels& kernels, const Tensor& query, const Tensor& key, const Tensor& value) {
  Attended attended;
  attended.output = tape.empty(with_last(query.sizes(), value.size(-1)), query.dtype());
  attended.generator = tape.empty({2}, DType::int64);
  attended.statistics = tape.empty({query.size(1), query.size(2), query.size(0), 1}, DType::fp32);
  tape.kernel({attention_of(Attention::Part::forward, kernels, query, key, value)});
  return attended;
}

struct AttentionGradients {
  Tensor query, key, value;
};

Tensor eight_bit_copy(const Tensor& x) {
  Tensor copy = x.tape().empty(x.sizes(), DType::fp8);
  in_place(copy, {&x});
  return copy;
}

/// The fused backward; it adds the queries' gradient up in fp32.
AttentionGradients attend_backward(Tape& tape, const AttentionKernels& kernels, const Tensor& query, const Tensor& key,
                                   const Tensor& value) {
  AttentionGradients gradients;
  gradients.query = tape.empty(query.sizes(), query.dtype());
  gradients.key = tape.empty(key.sizes(), key.dtype());
  gradients.value = tape.empty(value.sizes(), value.dtype());
  tape.scratch(query.elements() * 4 + rows_of(query) * 4);
  tape.kernel({attention_of(Attention::Part::backward, kernels, query, key, value)});
  return gradients;
}

/// FusedAttnFunc with 8-bit arguments, result and gradients; what it takes and gives back has 16 bits.
Tensor fused_attention_in_eight_bits(const MegatronRuntime& runtime, const Tensor& query, const Tensor& key, const Tensor& value) {
  PythonFunction op("te_attention", {&query, &key, &value});
  const Tensor q = eight_bit_copy(query), k = eight_bit_copy(key), v = eight_bit_copy(value);
  const AttentionKernels kernels = kernels_of(runtime, query, true);
  Attended attended = attend(op.tape(), kernels, query, key, value);
  const Tensor inverse = empty_like(attended.statistics), output = eight_bit_copy(attended.output);
  for (const Tensor& each : {q, k, v, output, attended.statistics, inverse, attended.generator}) op.save_output(each);
  const DType type = query.dtype();
  return op.done(attended.output, [type, kernels](BackwardCall& b) {
    const Tensor gradient = eight_bit_copy(contiguous(b.grad()));
    const AttentionGradients gradients = attend_backward(b.tape, kernels, b.saved(0), b.saved(1), b.saved(2));
    const Tensor query_gradient = b.tape.empty(gradients.query.sizes(), type), key_gradient = b.tape.empty(gradients.key.sizes(), type);
    const Tensor value_gradient = b.tape.empty(gradients.value.sizes(), type);
    b.give(0, query_gradient);
    b.give(1, key_gradient);
    b.give(2, value_gradient);
    b.drop_gradients();
  });
}

/// FusedAttnFunc.
Tensor fused_attention(const MegatronRuntime& runtime, const Tensor& query, const Tensor& key, const Tensor& value) {
  PythonFunction op("te_attention", {&query, &key, &value});
  op.save(query);
  op.save(key);
  op.save(value);
  const AttentionKernels kernels = kernels_of(runtime, query);
  Attended attended = attend(op.tape(), kernels, query, key, value);
  op.save_output(attended.output);
  op.save_output(attended.statistics);
  op.save_output(attended.generator);
  return op.done(attended.output, [kernels](BackwardCall& b) {
    const Tensor gradient = contiguous(b.grad());
    const AttentionGradients gradients = attend_backward(b.tape, kernels, b.saved(0), b.saved(1), b.saved(2));
    b.give(0, gradients.query);
    b.give(1, gradients.key);
    b.give(2, gradients.value);
    b.drop_gradients();
  });
}

void exchange_over_context(MegatronRuntime& runtime, CollectiveKind kind, const Tensor& x) {
  runtime.tape().collective({.kind = kind, .group = Group::context, .bytes = x.bytes(), .type = x.dtype()}, runtime.context_stream());
}

/// flash_attn_a2a_communicate before the attention: [s/cp, b, heads, w] → [s, b, heads/cp, w], reordered on the stream of its own.
std::vector<Tensor> heads_to_sequence(MegatronRuntime& runtime, std::vector<Tensor> inputs) {
  Tape& tape = runtime.tape();
  const std::int64_t cp = runtime.cp();
  std::vector<Tensor> outputs(inputs.size());
  for (std::size_t i = 0; i < inputs.size() + 2; ++i) {
    if (i > 0 && i < inputs.size() + 1) {
      outputs[i - 1] = empty_like(inputs[i - 1]);
      tape.wait(runtime.context_stream(), kComputeStream);
      exchange_over_context(runtime, CollectiveKind::all_to_all, outputs[i - 1]);
    }
    if (i > 1) {
      const StreamScope stream(tape, runtime.context_stream());
      Tensor ordered = tape.empty(inputs[i - 2].sizes(), inputs[i - 2].dtype());
      in_place(ordered, {&outputs[i - 2]});
      outputs[i - 2] = std::move(ordered);
    }
    if (i < inputs.size()) {
      const Tensor x = inputs[i];
      Tensor moved = tape.empty({x.size(0) * cp, x.size(1), x.size(2) / cp, x.size(3)}, x.dtype());
      in_place(moved, {&x});
      inputs[i] = std::move(moved);
    }
  }
  tape.wait(kComputeStream, runtime.context_stream());
  return outputs;
}

/// The same behind the attention: [s, b, heads/cp, w] → [s/cp, b, heads, w].
std::vector<Tensor> sequence_to_heads(MegatronRuntime& runtime, std::vector<Tensor> inputs) {
  Tape& tape = runtime.tape();
  const std::int64_t cp = runtime.cp();
  std::vector<Tensor> outputs(inputs.size());
  for (std::size_t i = 0; i < inputs.size() + 2; ++i) {
    if (i > 0 && i < inputs.size() + 1) {
      outputs[i - 1] = empty_like(inputs[i - 1]);
      tape.wait(runtime.context_stream(), kComputeStream);
      exchange_over_context(runtime, CollectiveKind::all_to_all, outputs[i - 1]);
    }
    if (i < inputs.size()) {
      Tensor ordered = empty_like(inputs[i]);
      in_place(ordered, {&inputs[i]});
      inputs[i] = std::move(ordered);
    }
    if (i > 1) {
      const StreamScope stream(tape, runtime.context_stream());
      const Tensor x = outputs[i - 2];
      Tensor moved = tape.empty({x.size(0) / cp, x.size(1), x.size(2) * cp, x.size(3)}, x.dtype());
      in_place(moved, {&x});
      outputs[i - 2] = std::move(moved);
    }
  }
  tape.wait(kComputeStream, runtime.context_stream());
  return outputs;
}

/// AttnFuncWithCPAndQKVOA2A: the exchanged queries, keys, values and result are saved.
Tensor exchanged_attention(MegatronRuntime& runtime, const Tensor& query, const Tensor& key, const Tensor& value) {
  PythonFunction op("te_attention", {&query, &key, &value});
  std::vector<Tensor> exchanged;
  Attended attended;
  Tensor output;
  {
    const GradMode no_grad(op.tape(), false);
    exchanged = heads_to_sequence(runtime, {query, key, value});
    attended = attend(op.tape(), kernels_of(runtime, query), exchanged[0], exchanged[1], exchanged[2]);
    output = sequence_to_heads(runtime, {attended.output}).front();
  }
  for (const Tensor& each : exchanged) op.save_output(each);
  op.save_output(attended.output);
  op.save_output(attended.statistics);
  op.save_output(attended.generator);
  return op.done(output, [&runtime](BackwardCall& b) {
    const std::vector<Tensor> gradient = heads_to_sequence(runtime, {b.grad()});
    const AttentionGradients gradients =
        attend_backward(b.tape, kernels_of(runtime, b.saved(0)), b.saved(0), b.saved(1), b.saved(2));
    const std::vector<Tensor> own = sequence_to_heads(runtime, {gradients.query, gradients.key, gradients.value});
    for (std::size_t i = 0; i < own.size(); ++i) b.give(i, own[i]);
    b.drop_gradients();
  });
}

/// AttnFuncWithCPAndKVP2P: keys and values go around the ring, one attention per step; the last ranks' pieces are saved. The first rank,
/// whose queries meet their own keys whole and all others' by half.
Tensor ring_of_keys(MegatronRuntime& runtime, const Tensor& query, const Tensor& key, const Tensor& value, bool in_eight_bits) {
  PythonFunction op("te_attention", {&query, &key, &value});
  Tape& tape = op.tape();
  const auto steps = static_cast<std::size_t>(runtime.cp());
  Tensor received, output, kept, statistics, queries = query;
  AttentionKernels kernels = kernels_of(runtime, query, in_eight_bits);
  {
    const GradMode no_grad(tape, false);
    if (in_eight_bits) queries = eight_bit_copy(query);
    std::vector<Tensor> buffers{tape.empty({key.elements() + value.elements()}, queries.dtype())};
    std::vector<Attended> attended;
    for (std::size_t i = 0; i < steps; ++i) {
      if (i + 1 < steps) {
        buffers.push_back(empty_like(buffers[i]));
        tape.wait(runtime.context_stream(), kComputeStream);
        exchange_over_context(runtime, CollectiveKind::send, buffers.back());
      }
      kernels.of_other_rank = i > 0;
      attended.push_back(attend(tape, kernels, query, key, value));
      tape.wait(kComputeStream, runtime.context_stream());
    }
    statistics = empty_like(attended.front().statistics);
    output = empty_like(attended.front().output);
    kept = in_eight_bits ? eight_bit_copy(output) : output;
    received = buffers.back();
  }
  op.save(queries);
  op.save_output(received);
  op.save_output(kept);
  op.save_output(statistics);
  const DType type = query.dtype();
  return op.done(output, [&runtime, kernels, steps, type, key_sizes = key.sizes(), value_sizes = value.sizes()](BackwardCall& b) {
    const Tensor saved = b.saved(0), own = b.saved(1), gradient = contiguous(b.grad());
    const Tensor key_gradient = b.tape.empty(key_sizes, type), value_gradient = b.tape.empty(value_sizes, type);
    const Tensor total = b.tape.empty(saved.sizes(), type);
    const std::vector<Tensor> buffers{b.tape.empty({2 * own.elements()}, own.dtype()), b.tape.empty({2 * own.elements()}, own.dtype())};
    for (std::size_t i = 0; i < steps; ++i) {
      b.tape.wait(runtime.context_stream(), kComputeStream);
      exchange_over_context(runtime, CollectiveKind::send, buffers[i % 2]);
      AttentionKernels own_kernels = kernels;
      own_kernels.of_other_rank = i > 0;
      const AttentionGradients gradients = attend_backward(b.tape, own_kernels, saved, key_gradient, value_gradient);
      in_place(total, {&gradients.query});
      b.tape.wait(kComputeStream, runtime.context_stream());
    }
    b.give(0, total);
    b.give(1, key_gradient);
    b.give(2, value_gradient);
    b.drop_gradients();
  });
}

}  // namespace

Tensor te_attention(MegatronRuntime& runtime, const Tensor& query, const Tensor& key, const Tensor& value, const TeAttention& options) {
  // get_qkv_layout: three row-major tensors, or copies of all of them.
  const Tensor q = contiguous(query), k = contiguous(key), v = contiguous(value);
  Tensor output;
  if (runtime.cp() == 1) {
    output = options.in_eight_bits ? fused_attention_in_eight_bits(runtime, q, k, v) : fused_attention(runtime, q, k, v);
  } else if (options.exchange == "a2a" && !options.in_eight_bits) {
    output = exchanged_attention(runtime, q, k, v);
  } else if (options.exchange == "p2p") {
    output = ring_of_keys(runtime, q, k, v, options.in_eight_bits);
  } else {
    refuse("context parallelism by " + options.exchange + (options.in_eight_bits ? " in 8 bits" : "") +
               " is not modelled for Transformer Engine",
           "cp_comm_type");
  }
  return view(output, {output.size(0), output.size(1), output.size(2) * output.size(3)});
}

// ---- loss -------------------------------------------------------------------------------------------------------------------

Tensor te_cross_entropy(MegatronRuntime& runtime, const Tensor& logits, const Tensor& target) {
  PythonFunction op("te_cross_entropy", {&logits});
  op.save(logits);
  Tape& tape = op.tape();
  Tensor loss = zeros(tape, target.sizes(), DType::fp32);
  {
    const Tensor statistics = zeros(tape, {3 * target.elements()}, DType::fp32);
    const Tensor all = runtime.tp() > 1 ? zeros(tape, {3 * target.elements() * runtime.tp()}, DType::fp32) : Tensor();
    const std::int64_t rows = target.elements(), columns = logits.size(-1);
    row_wise(RowWise::Function::cross_entropy, rows, columns, {&logits, &target}, {&statistics});
    if (all) runtime.collective(CollectiveKind::all_gather, all.bytes(), DType::fp32);
    row_wise(RowWise::Function::cross_entropy, rows, columns, {&logits, &statistics}, {&logits, &loss});
  }
  return op.done(loss, [](BackwardCall& b) {
    const Tensor gradient = b.saved(0).detach();
    in_place(gradient, {&gradient});
    b.give(0, gradient);
    b.drop_gradients();
  });
}

}  // namespace plimsoll::program
