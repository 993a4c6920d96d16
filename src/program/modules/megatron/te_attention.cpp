#include "program/modules/megatron/te_attention.hpp"

#include <utility>
#include <vector>

#include "plimsoll/error.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

Tensor te_rotary(const Tensor& x, const Tensor& table) {
  PythonFunction op("te_rotary", {&x});
  op.save(table);
  Tensor y = op.output(x.sizes(), x.dtype());
  row_wise(RowWise::Function::rope, row_count(x), x.size(-1), {&x, &table}, {&y});
  return op.done(y, [](BackwardCall& b) {
    const Tensor gradient = b.tape.empty(b.grad().sizes(), b.grad().dtype());
    row_wise(RowWise::Function::rope, row_count(gradient), gradient.size(-1), {&b.grad(), &b.saved(0)}, {&gradient});
    b.give(0, gradient);
    b.drop_gradients();
  });
}

namespace {

/// How the fused kernels attend: whose they are, the type that they multiply, how far back a query sees (0: to the start), whether
/// the queries meet keys of another context-parallel rank, by half and without a mask, and whether probabilities are dropped.
struct AttentionKernels {
  AttentionLibrary library = AttentionLibrary::cudnn;
  DType type = DType::bf16;
  bool of_other_rank = false;
  std::int64_t window = 0;
  bool dropout = false;
};

/// Sinks are cuDNN's alone: flash-attn has no softmax offsets (get_attention_backend).
AttentionKernels kernels_of(const MegatronRuntime& runtime, const Tensor& query, const Tensor& key, const TeScores& scores, bool in_eight_bits) {
  AttentionKernels kernels{runtime.attention(), in_eight_bits ? DType::fp8 : query.dtype()};
  kernels.dropout = scores.dropout > 0;
  if (scores.window < key.size(0)) kernels.window = scores.window;
  if (scores.sinks) kernels.library = AttentionLibrary::cudnn;
  return kernels;
}

/// Sinks as they are handed over: fp32 [1, heads, 1, 1].
Tensor handed_sinks(const TeScores& scores) { return scores.sinks ? to(reshape(scores.sinks, {1, -1, 1, 1}), DType::fp32) : Tensor(); }

/// Causal attention over [s, b, heads, width].
Attention attention_of(Attention::Part part, const AttentionKernels& kernels, const Tensor& query, const Tensor& key, const Tensor& value) {
  Attention attention = attention_over(kernels.library, query, key, value, HeadsOrder::length_batch_heads);
  attention.part = part;
  attention.type = kernels.type;
  attention.causal = !kernels.of_other_rank;
  if (kernels.of_other_rank) attention.queries /= 2;
  attention.window = kernels.window;
  attention.dropout = kernels.dropout;
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

/// What Transformer Engine's quantizers make of a tensor of another type, without a node of autograd's.
Tensor as_type(const Tensor& x, DType type) {
  if (x.dtype() == type) return x;
  Tensor copy = x.tape().empty(x.sizes(), type);
  in_place(copy, {&x});
  return copy;
}
Tensor eight_bit_copy(const Tensor& x) { return as_type(x, DType::fp8); }

/// The fused backward; it adds the queries' gradient up in fp32.
AttentionGradients attend_backward(Tape& tape, const AttentionKernels& kernels, const Tensor& query, const Tensor& key,
                                   const Tensor& value) {
  AttentionGradients gradients;
  gradients.query = tape.empty(query.sizes(), query.dtype());
  gradients.key = tape.empty(key.sizes(), key.dtype());
  gradients.value = tape.empty(value.sizes(), value.dtype());
  tape.scratch(query.elements() * 4 + row_count(query) * 4);
  tape.kernel({attention_of(Attention::Part::backward, kernels, query, key, value)});
  return gradients;
}

/// FusedAttnFunc with 8-bit arguments, result and gradients; what it takes and gives back has 16 bits.
Tensor fused_attention_in_eight_bits(const MegatronRuntime& runtime, const Tensor& query, const Tensor& key, const Tensor& value,
                                     const TeScores& scores) {
  const Tensor sinks = handed_sinks(scores);
  PythonFunction op("te_attention", {&query, &key, &value, &sinks});
  const Tensor q = eight_bit_copy(query), k = eight_bit_copy(key), v = eight_bit_copy(value);
  const AttentionKernels kernels = kernels_of(runtime, query, key, scores, true);
  Attended attended = attend(op.tape(), kernels, query, key, value);
  const Tensor inverse = empty_like(attended.statistics), output = eight_bit_copy(attended.output);
  for (const Tensor& each : {q, k, v, output, attended.statistics, inverse, attended.generator}) op.save_output(each);
  op.save_output(sinks);
  const DType type = query.dtype();
  return op.done(attended.output, [type, kernels](BackwardCall& b) {
    const Tensor gradient = eight_bit_copy(contiguous(b.grad()));
    const AttentionGradients gradients = attend_backward(b.tape, kernels, b.saved(0), b.saved(1), b.saved(2));
    const Tensor query_gradient = b.tape.empty(gradients.query.sizes(), type), key_gradient = b.tape.empty(gradients.key.sizes(), type);
    const Tensor value_gradient = b.tape.empty(gradients.value.sizes(), type);
    if (b.needs(3)) b.give(3, b.tape.empty(b.saved(7).sizes(), DType::fp32));
    b.give(0, query_gradient);
    b.give(1, key_gradient);
    b.give(2, value_gradient);
    b.drop_gradients();
  });
}

/// FusedAttnFunc.
Tensor fused_attention(const MegatronRuntime& runtime, const Tensor& query, const Tensor& key, const Tensor& value,
                       const TeScores& scores) {
  const Tensor sinks = handed_sinks(scores);
  PythonFunction op("te_attention", {&query, &key, &value, &sinks});
  op.save(query);
  op.save(key);
  op.save(value);
  const AttentionKernels kernels = kernels_of(runtime, query, key, scores, false);
  Attended attended = attend(op.tape(), kernels, query, key, value);
  op.save_output(attended.output);
  op.save_output(attended.statistics);
  op.save_output(attended.generator);
  op.save_output(sinks);
  return op.done(attended.output, [kernels](BackwardCall& b) {
    const Tensor gradient = contiguous(b.grad());
    const AttentionGradients gradients = attend_backward(b.tape, kernels, b.saved(0), b.saved(1), b.saved(2));
    if (b.needs(3)) b.give(3, b.tape.empty(b.saved(6).sizes(), DType::fp32));
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

/// AttnFuncWithCPAndQKVOA2A: the exchanged queries, keys, values and result are saved. In 8 bits all of them are exchanged as such, gradients
/// too; what it takes and gives back has 16.
Tensor exchanged_attention(MegatronRuntime& runtime, const Tensor& query, const Tensor& key, const Tensor& value, const TeScores& scores,
                           bool in_eight_bits) {
  PythonFunction op("te_attention", {&query, &key, &value});
  const AttentionKernels kernels = kernels_of(runtime, query, key, scores, in_eight_bits);
  const DType type = query.dtype(), exchanged_type = in_eight_bits ? DType::fp8 : type;
  std::vector<Tensor> exchanged;
  Attended attended;
  Tensor output, inverse;
  {
    const GradMode no_grad(op.tape(), false);
    exchanged = heads_to_sequence(runtime, {as_type(query, exchanged_type), as_type(key, exchanged_type), as_type(value, exchanged_type)});
    attended = attend(op.tape(), kernels, exchanged[0], exchanged[1], exchanged[2]);
    if (in_eight_bits) inverse = empty_like(attended.statistics);
    output = as_type(sequence_to_heads(runtime, {attended.output}).front(), type);
  }
  for (const Tensor& each : exchanged) op.save_output(each);
  op.save_output(attended.output);
  op.save_output(attended.statistics);
  op.save_output(attended.generator);
  if (inverse) op.save_output(inverse);
  return op.done(output, [&runtime, kernels, exchanged_type, type](BackwardCall& b) {
    const std::vector<Tensor> gradient = heads_to_sequence(runtime, {as_type(b.grad(), exchanged_type)});
    const AttentionGradients gradients = attend_backward(b.tape, kernels, b.saved(0), b.saved(1), b.saved(2));
    const std::vector<Tensor> own = sequence_to_heads(runtime, {gradients.query, gradients.key, gradients.value});
    for (std::size_t i = 0; i < own.size(); ++i) b.give(i, as_type(own[i], type));
    b.drop_gradients();
  });
}

/// AttnFuncWithCPAndKVP2P: keys and values go around the ring, one attention per step; the last ranks' pieces are saved. The first rank,
/// whose queries meet their own keys whole and all others' by half.
Tensor ring_of_keys(MegatronRuntime& runtime, const Tensor& query, const Tensor& key, const Tensor& value, const TeScores& scores,
                    bool in_eight_bits) {
  PythonFunction op("te_attention", {&query, &key, &value});
  Tape& tape = op.tape();
  const auto steps = static_cast<std::size_t>(runtime.cp());
  Tensor received, output, kept, statistics, queries = query;
  AttentionKernels kernels = kernels_of(runtime, query, key, scores, in_eight_bits);
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

Tensor te_attention(MegatronRuntime& runtime, const Tensor& query, const Tensor& key, const Tensor& value, const TeAttention& options,
                    const TeScores& scores) {
  // get_qkv_layout: three row-major tensors, or copies of all of them.
  const Tensor q = contiguous(query), k = contiguous(key), v = contiguous(value);
  if ((scores.window > 0 || scores.sinks) && (runtime.cp() > 1 || (options.in_eight_bits && !options.scores_in_eight_bits)))
    refuse("a sliding window or sinks are not modelled for Transformer Engine's attention over context-parallel ranks, and in 8 bits known to no "
           "kernel before its release 2.15 or before Blackwell",
           runtime.cp() > 1 ? "cp" : "fp8_attention");
  constexpr std::int64_t kModules = 2;  // DotProductAttention and FusedAttention
  runtime.tape().host(HostWork::module, kModules);
  Tensor output;
  if (runtime.cp() == 1) {
    output = options.in_eight_bits ? fused_attention_in_eight_bits(runtime, q, k, v, scores) : fused_attention(runtime, q, k, v, scores);
  } else if (options.exchange == "a2a") {
    output = exchanged_attention(runtime, q, k, v, scores, options.in_eight_bits);
  } else if (options.exchange == "p2p") {
    output = ring_of_keys(runtime, q, k, v, scores, options.in_eight_bits);
  } else {
    refuse("context parallelism by " + options.exchange + " is not modelled for Transformer Engine", "cp_comm_type");
  }
  return view(output, {output.size(0), output.size(1), output.size(2) * output.size(3)});
}

}  // namespace plimsoll::program
