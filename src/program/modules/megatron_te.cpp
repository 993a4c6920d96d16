#include "program/modules/megatron_te.hpp"

#include <utility>
#include <vector>

#include "plimsoll/error.hpp"
#include "program/op.hpp"
#include "program/ops.hpp"

namespace plimsoll::program {

namespace {

std::int64_t rows_of(const Tensor& x) { return x.elements() / x.size(-1); }

Dims with_last(const Dims& sizes, std::int64_t last) {
  Dims other = sizes;
  other[-1] = last;
  return other;
}

/// One product on Transformer Engine's own workspace.
void te_gemm(MegatronRuntime& runtime, DType type, std::int64_t rows, std::int64_t columns, std::int64_t inner) {
  runtime.reserve_gemm_workspace();
  Tape& tape = runtime.tape();
  const std::int64_t eager = std::exchange(tape.gemm_workspace, 0);
  gemm(tape, type, rows, columns, inner);
  tape.gemm_workspace = eager;
}

/// x · weightᵀ.
Tensor product(MegatronRuntime& runtime, const Tensor& x, const Tensor& weight) {
  Tensor y = runtime.tape().empty(with_last(x.sizes(), weight.size(0)), x.dtype());
  te_gemm(runtime, x.dtype(), rows_of(x), weight.size(0), weight.size(1));
  return y;
}

/// The input's gradient: gradient · weight.
Tensor input_gradient(MegatronRuntime& runtime, const Tensor& gradient, const Tensor& weight) {
  Tensor y = runtime.tape().empty(with_last(gradient.sizes(), weight.size(1)), gradient.dtype());
  te_gemm(runtime, gradient.dtype(), rows_of(gradient), weight.size(1), weight.size(0));
  return y;
}

/// Gradients of the weight and, from the product's epilogue, of the bias: forward inputs `index` and `index` + 1.
void give_weight_gradients(MegatronRuntime& runtime, BackwardCall& b, std::size_t index, const Tensor& weight, std::int64_t rows) {
  if (b.needs(index)) {
    const bool fused = runtime.fused_weight_gradients();
    Tensor gradient = fused ? Tensor() : b.tape.empty(weight.sizes(), weight.dtype());
    te_gemm(runtime, weight.dtype(), weight.size(0), weight.size(1), rows);
    if (fused) gradient = runtime.dummy_gradient(weight);
    b.give(index, std::move(gradient));
  }
  if (b.needs(index + 1)) b.give(index + 1, b.tape.empty({weight.size(0)}, weight.dtype()));
}

/// What a norm's kernel leaves beside its output.
struct Normed {
  Tensor output, mean, deviation;
};

Normed normalize(Tape& tape, const Tensor& x, bool centred) {
  Normed normed;
  normed.output = tape.empty(x.sizes(), x.dtype());
  if (centred) normed.mean = tape.empty({rows_of(x)}, DType::fp32);
  normed.deviation = tape.empty({rows_of(x)}, DType::fp32);
  launch(tape, KernelKind::reduction, x.dtype(), x.bytes(), x.bytes(), 4.0 * static_cast<double>(x.elements()));
  return normed;
}

/// Gradients of a norm's input, weight and bias: forward inputs 0, 1 and 2. Each multiprocessor adds the weight's up on its own.
void give_norm_gradients(BackwardCall& b, const Tensor& x, const TeNorm& norm) {
  const int parts = norm.bias ? 2 : 1;
  const Tensor partial = b.tape.empty({parts, b.tape.multiprocessors, x.size(-1)}, DType::fp32, Category::workspace);
  Tensor gradient = b.tape.empty(x.sizes(), x.dtype());
  b.give(1, b.tape.empty(norm.weight.sizes(), norm.weight.dtype()));
  if (norm.bias) b.give(2, b.tape.empty(norm.bias.sizes(), norm.bias.dtype()));
  launch(b.tape, KernelKind::reduction, x.dtype(), 2 * x.bytes(), x.bytes(), 8.0 * static_cast<double>(x.elements()));
  b.give(0, std::move(gradient));
}

}  // namespace

// ---- norms and linears ------------------------------------------------------------------------------------------------------

Tensor te_norm(const Tensor& input, const TeNorm& norm) {
  const Tensor x = contiguous(input);
  Op op("te_norm", {&x, &norm.weight, &norm.bias});
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

void layernorm_linear_backward(MegatronRuntime& runtime, BackwardCall& b) {
  const Tensor x = b.saved(0), weight = b.saved(1);
  const TeNorm norm{b.saved(2), b.saved(3)};
  Tensor normed = b.take_saved(4);
  const bool sequence = runtime.sequence_parallel();
  const Tensor gradient = contiguous(b.grad());
  Tensor total = sequence ? gather_sequence(runtime, normed) : normed;
  const Tensor whole = input_gradient(runtime, gradient, weight);
  Tensor part = sequence ? reduce_scatter_sequence(runtime, whole) : reduce_over_tensor_parallel(runtime, whole);
  give_weight_gradients(runtime, b, 3, weight, rows_of(gradient));
  total.reset();
  normed.reset();
  give_norm_gradients(b, x, norm);
  b.drop_gradients();
}

void linear_backward(MegatronRuntime& runtime, TeParallel parallel, BackwardCall& b) {
  const Tensor input = b.saved(0), weight = b.saved(1);
  const bool sequence = runtime.sequence_parallel();
  Tensor gradient = contiguous(b.grad());
  if (parallel == TeParallel::row && sequence) gradient = gather_sequence(runtime, gradient);
  Tensor total = parallel == TeParallel::column && sequence ? gather_sequence(runtime, input) : Tensor();
  Tensor whole = input_gradient(runtime, gradient, weight), part = whole;
  if (parallel == TeParallel::column)
    part = sequence ? reduce_scatter_sequence(runtime, whole) : reduce_over_tensor_parallel(runtime, whole);
  give_weight_gradients(runtime, b, 1, weight, rows_of(gradient));
  if (b.needs(0)) b.give(0, std::move(part));
  b.drop_gradients();
}

}  // namespace

Tensor te_layernorm_linear(MegatronRuntime& runtime, const Tensor& x, const TeNorm& norm, const Tensor& weight, const Tensor& bias) {
  Op op("te_layernorm_linear", {&x, &norm.weight, &norm.bias, &weight, &bias});
  op.save(x);
  op.save(weight);
  op.save(norm.weight);
  op.save(norm.bias);
  Normed normed = normalize(op.tape(), x, norm.bias.defined());
  Tensor output;
  {
    const GradMode no_grad(op.tape(), false);
    const Tensor total = runtime.sequence_parallel() ? gather_sequence(runtime, normed.output) : normed.output;
    output = product(runtime, total, weight);
  }
  op.save_output(normed.output);
  op.save_output(normed.mean);
  op.save_output(normed.deviation);
  return op.done(output, [&runtime](BackwardCall& b) { layernorm_linear_backward(runtime, b); });
}

Tensor te_linear(MegatronRuntime& runtime, const Tensor& x, const Tensor& weight, const Tensor& bias, TeParallel parallel) {
  Op op("te_linear", {&x, &weight, &bias});
  op.save(x);
  op.save(weight);
  Tensor output;
  {
    const GradMode no_grad(op.tape(), false);
    const bool sequence = runtime.sequence_parallel();
    Tensor total = parallel == TeParallel::column && sequence ? gather_sequence(runtime, x) : x;
    output = product(runtime, total, weight);
    total.reset();
    if (parallel == TeParallel::row)
      output = sequence ? reduce_scatter_sequence(runtime, output) : reduce_over_tensor_parallel(runtime, output);
  }
  return op.done(output, [&runtime, parallel](BackwardCall& b) { linear_backward(runtime, parallel, b); });
}

// ---- attention --------------------------------------------------------------------------------------------------------------

Tensor te_rotary(const Tensor& x, const Tensor& table) {
  Op op("te_rotary", {&x});
  op.save(table);
  Tensor y = op.output(x.sizes(), x.dtype());
  launch(op.tape(), KernelKind::elementwise, x.dtype(), x.bytes(), x.bytes(), 6.0 * static_cast<double>(x.elements()));
  return op.done(y, [](BackwardCall& b) {
    const Tensor gradient = b.tape.empty(b.grad().sizes(), b.grad().dtype());
    launch(b.tape, KernelKind::elementwise, gradient.dtype(), gradient.bytes(), gradient.bytes(),
           6.0 * static_cast<double>(gradient.elements()));
    b.give(0, gradient);
    b.drop_gradients();
  });
}

namespace {

/// FLOPs of a causal attention's two products over [s, b, heads, width].
double causal_flops(const Tensor& query, const Tensor& key, const Tensor& value) {
  const double pairs = static_cast<double>(query.size(0)) * static_cast<double>(key.size(0)) / 2;
  return 2 * pairs * static_cast<double>(query.size(1) * query.size(2)) * static_cast<double>(query.size(3) + value.size(3));
}

/// Outputs of cuDNN's fused forward: the result, the softmax's statistics and the generator's state.
struct Attended {
  Tensor output, statistics, generator;
};

Attended attend(Tape& tape, const Tensor& query, const Tensor& key, const Tensor& value) {
  Attended attended;
  attended.output = tape.empty(with_last(query.sizes(), value.size(-1)), query.dtype());
  attended.generator = tape.empty({2}, DType::int64);
  attended.statistics = tape.empty({query.size(1), query.size(2), query.size(0), 1}, DType::fp32);
  tape.kernel({.kind = KernelKind::attention,
               .type = query.dtype(),
               .m = query.size(0),
               .n = key.size(0),
               .k = query.size(3),
               .batch = query.size(1) * query.size(2),
               .flops = causal_flops(query, key, value),
               .bytes_read = query.bytes() + key.bytes() + value.bytes(),
               .bytes_written = attended.output.bytes()});
  return attended;
}

struct AttentionGradients {
  Tensor query, key, value;
};

/// The fused backward; it adds the queries' gradient up in fp32.
AttentionGradients attend_backward(Tape& tape, const Tensor& query, const Tensor& key, const Tensor& value) {
  AttentionGradients gradients;
  gradients.query = tape.empty(query.sizes(), query.dtype());
  gradients.key = tape.empty(key.sizes(), key.dtype());
  gradients.value = tape.empty(value.sizes(), value.dtype());
  tape.scratch(query.elements() * 4 + rows_of(query) * 4);
  tape.kernel({.kind = KernelKind::attention_backward,
               .type = query.dtype(),
               .m = query.size(0),
               .n = key.size(0),
               .k = query.size(3),
               .batch = query.size(1) * query.size(2),
               .flops = 2.5 * causal_flops(query, key, value),
               .bytes_read = 2 * (query.bytes() + key.bytes() + value.bytes()),
               .bytes_written = query.bytes() + key.bytes() + value.bytes()});
  return gradients;
}

/// FusedAttnFunc.
Tensor fused_attention(const Tensor& query, const Tensor& key, const Tensor& value) {
  Op op("te_attention", {&query, &key, &value});
  op.save(query);
  op.save(key);
  op.save(value);
  Attended attended = attend(op.tape(), query, key, value);
  op.save_output(attended.output);
  op.save_output(attended.statistics);
  op.save_output(attended.generator);
  return op.done(attended.output, [](BackwardCall& b) {
    const Tensor gradient = contiguous(b.grad());
    const AttentionGradients gradients = attend_backward(b.tape, b.saved(0), b.saved(1), b.saved(2));
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
  Op op("te_attention", {&query, &key, &value});
  std::vector<Tensor> exchanged;
  Attended attended;
  Tensor output;
  {
    const GradMode no_grad(op.tape(), false);
    exchanged = heads_to_sequence(runtime, {query, key, value});
    attended = attend(op.tape(), exchanged[0], exchanged[1], exchanged[2]);
    output = sequence_to_heads(runtime, {attended.output}).front();
  }
  for (const Tensor& each : exchanged) op.save_output(each);
  op.save_output(attended.output);
  op.save_output(attended.statistics);
  op.save_output(attended.generator);
  return op.done(output, [&runtime](BackwardCall& b) {
    const std::vector<Tensor> gradient = heads_to_sequence(runtime, {b.grad()});
    const AttentionGradients gradients = attend_backward(b.tape, b.saved(0), b.saved(1), b.saved(2));
    const std::vector<Tensor> own = sequence_to_heads(runtime, {gradients.query, gradients.key, gradients.value});
    for (std::size_t i = 0; i < own.size(); ++i) b.give(i, own[i]);
    b.drop_gradients();
  });
}

}  // namespace

Tensor te_attention(MegatronRuntime& runtime, const Tensor& query, const Tensor& key, const Tensor& value, const std::string& exchange) {
  // get_qkv_layout: three row-major tensors, or copies of all of them.
  const Tensor q = contiguous(query), k = contiguous(key), v = contiguous(value);
  Tensor output;
  if (runtime.cp() == 1) {
    output = fused_attention(q, k, v);
  } else if (exchange == "a2a") {
    output = exchanged_attention(runtime, q, k, v);
  } else {
    refuse("context parallelism by " + exchange + " is not modelled for Transformer Engine", "cp_comm_type", "a2a is");
  }
  return view(output, {output.size(0), output.size(1), output.size(2) * output.size(3)});
}

// ---- loss -------------------------------------------------------------------------------------------------------------------

Tensor te_cross_entropy(MegatronRuntime& runtime, const Tensor& logits, const Tensor& target) {
  Op op("te_cross_entropy", {&logits});
  op.save(logits);
  Tape& tape = op.tape();
  Tensor loss = zeros(tape, target.sizes(), DType::fp32);
  {
    const Tensor statistics = zeros(tape, {3 * target.elements()}, DType::fp32);
    const Tensor all = runtime.tp() > 1 ? zeros(tape, {3 * target.elements() * runtime.tp()}, DType::fp32) : Tensor();
    launch(tape, KernelKind::reduction, logits.dtype(), logits.bytes(), statistics.bytes());
    if (all) runtime.collective(CollectiveKind::all_gather, all.bytes(), DType::fp32);
    launch(tape, KernelKind::elementwise, logits.dtype(), logits.bytes(), logits.bytes(), 4.0 * static_cast<double>(logits.elements()));
  }
  return op.done(loss, [](BackwardCall& b) {
    const Tensor gradient = b.saved(0).detach();
    in_place(gradient, {&gradient});
    b.give(0, gradient);
    b.drop_gradients();
  });
}

}  // namespace plimsoll::program
