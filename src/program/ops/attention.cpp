/// Scaled dot-product attention: PyTorch's flash and memory-efficient kernels (aten/src/ATen/native/transformers/cuda).
#include <cmath>

#include "plimsoll/error.hpp"
#include "program/attention_library.hpp"
#include "program/ops/attention_choice.hpp"
#include "program/ops/attention_generations.hpp"
#include "program/ops/attention_kernels.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

namespace {

struct Shape {
  AttentionLibrary library;
  std::int64_t batch, heads, kv_heads, queries, keys, head_dim, value_dim;
  bool causal, dropout = false, masked = false;
  std::int64_t window = 0;
  std::int64_t packed = 0;  ///< sequences of equal length that lie end to end in the one row; 0: every row is one

  /// Rows of backward's accumulators: those of every row fill its last block, packed sequences have a block each beside their tokens.
  std::int64_t accumulated() const { return packed > 0 ? queries + 128 * packed : round_up(queries, 128); }

  Attention attention(Attention::Part part, DType type) const {
    Attention attention;
    attention.library = library;
    attention.part = part;
    attention.type = type;
    attention.causal = causal;
    attention.dropout = dropout;
    attention.masked = masked;
    attention.batch = packed > 0 ? packed : batch;
    attention.heads = heads;
    attention.kv_heads = kv_heads;
    attention.queries = packed > 0 ? queries / packed : queries;
    attention.keys = packed > 0 ? keys / packed : keys;
    attention.head_dim = head_dim;
    attention.value_dim = value_dim;
    attention.window = window;
    return attention;
  }
};

Shape shape_of(AttentionLibrary library, const Tensor& query, const Tensor& key, const Tensor& value, bool causal, double dropout = 0) {
  return {library,     query.size(0), query.size(1), key.size(1), query.size(2),
          key.size(2), query.size(3), value.size(3), causal,      dropout > 0};
}

/// A new [batch, heads, length, dim] tensor that lies in memory as [batch, length, heads, dim].
Tensor heads_inside(Tape& tape, std::int64_t batch, std::int64_t heads, std::int64_t length, std::int64_t dim, DType type) {
  Tensor y = tape.empty({batch, heads, length, dim}, type);
  y.impl()->strides = {length * heads * dim, dim, heads * dim, 1};
  return y;
}

using InputGradients = FlashGradients;

InputGradients empty_gradients(Tape& tape, const Shape& s, DType type) {
  InputGradients g;
  g.query = heads_inside(tape, s.batch, s.heads, s.queries, s.head_dim, type);
  g.key = heads_inside(tape, s.batch, s.kv_heads, s.keys, s.head_dim, type);
  g.value = heads_inside(tape, s.batch, s.kv_heads, s.keys, s.value_dim, type);
  return g;
}

void give(BackwardCall& b, InputGradients& g) {
  b.give(0, std::move(g.query));
  b.give(1, std::move(g.key));
  b.give(2, std::move(g.value));
}

/// Gradients of keys and values for every query head, summed over the group afterwards.
struct ExpandedGradients {
  ExpandedGradients(Tape& tape_in, const Shape& s, DType type) : tape(tape_in), shape(s) {
    if (s.heads == s.kv_heads) return;
    key = tape.empty({s.batch, s.keys, s.heads, s.head_dim}, type, Category::workspace);
    value = tape.empty({s.batch, s.keys, s.heads, s.value_dim}, type, Category::workspace);
  }
  void sum() const {
    if (!key) return;
    for (int i = 0; i < 2; ++i) tape.kernel({shape.attention(Attention::Part::sum_heads, key.dtype())});
  }
  Tape& tape;
  const Shape& shape;
  Tensor key, value;
};

void launch_attention(Tape& tape, Attention::Part part, DType type, const Shape& s) { tape.kernel({s.attention(part, type)}); }

// ---- flash ----------------------------------------------------------------------------------------------------------------

/// num_splits_heuristic of flash-attention: how many parts the keys are cut into when there are too few blocks for the device.
std::int64_t key_splits(const Tape& tape, const Shape& s) {
  const std::int64_t block = s.head_dim <= 64 ? 256 : s.head_dim <= 128 ? 128 : 64;
  const std::int64_t key_blocks = ceil_div(s.keys, block), work = s.batch * s.heads * ceil_div(s.queries, 64);
  const std::int64_t processors = 2 * tape.device.units;
  if (static_cast<double>(work) >= 0.8 * static_cast<double>(processors)) return 1;
  const std::int64_t most = std::min<std::int64_t>({128, processors, key_blocks});
  const auto eligible = [&](std::int64_t n) { return n == 1 || ceil_div(key_blocks, n) != ceil_div(key_blocks, n - 1); };
  const auto efficiency = [&](std::int64_t n) {
    const double waves = static_cast<double>(work * n) / static_cast<double>(processors);
    return eligible(n) ? waves / std::ceil(waves) : 0.0;
  };
  double best = 0;
  for (std::int64_t n = 1; n <= most; ++n) best = std::max(best, efficiency(n));
  for (std::int64_t n = 1; n <= most; ++n) {
    if (eligible(n) && efficiency(n) >= 0.85 * best) return n;
  }
  return 1;
}

std::int64_t rounded_head_dim(std::int64_t head_dim) { return round_up(head_dim, head_dim <= 128 ? 32 : 64); }

/// What AOTriton's backward needs beside the gradients: the dot products of output and gradient, unless one kernel does it all
/// (use_fused_bwd). Groups of heads it reads as they are.
void run_aotriton_backward(Tape& tape, const Shape& s, DType type) {
  const bool fused = s.head_dim <= 192 && s.head_dim * s.queries < 64 * 512;
  Tensor delta;
  if (!fused) delta = tape.empty({s.batch, s.heads, s.queries}, DType::fp32, Category::workspace);
  if (!fused) launch_attention(tape, Attention::Part::delta, type, s);
  launch_attention(tape, Attention::Part::backward, type, s);
}

InputGradients flash_gradients(const Tensor& query, const Tensor& key, const Tensor& value, const Shape& s) {
  Tape& tape = query.tape();
  const DType type = query.dtype();
  InputGradients gradients{empty_like(query), empty_like(key), empty_like(value)};
  if (s.library == AttentionLibrary::aotriton) {
    run_aotriton_backward(tape, s, type);
    return gradients;
  }
  const std::int64_t rounded = s.accumulated();
  const Tensor softmax_d = tape.empty({s.batch, s.heads, rounded}, DType::fp32, Category::workspace);
  const Tensor dq_accumulator = tape.empty({s.batch, rounded, s.heads, rounded_head_dim(s.head_dim)}, DType::fp32, Category::workspace);
  const ExpandedGradients expanded(tape, s, type);
  // The dot product of the gradient with the output, the backward itself, the conversion of dq.
  for (const Attention::Part part : {Attention::Part::delta, Attention::Part::backward, Attention::Part::convert})
    launch_attention(tape, part, type, s);
  expanded.sum();
  return gradients;
}

void flash_backward(BackwardCall& b, const Shape& s) {
  const Tensor grad = contiguous(transpose(b.grad(), 1, 2));
  const Tensor out = contiguous(transpose(b.saved(4), 1, 2));
  InputGradients gradients = flash_gradients(b.saved(1), b.saved(0), b.saved(2), s);
  give(b, gradients);
}

/// What flash_api.cpp's mha_fwd writes: the output and its statistics, and, where the keys are cut, those of the parts.
struct FlashResults {
  FlashResults(Tape& tape_in, const Tensor& query, const Shape& shape)
      : tape(tape_in),
        s(shape),
        splits(s.dropout || s.packed > 0 || tape.device.amd() ? 1 : key_splits(tape, s)),
        out(empty_like(query)),
        lse(tape.empty({s.batch, s.heads, s.queries}, DType::fp32)) {
    if (splits == 1) return;
    partial_lse = tape.empty({splits, s.batch, s.heads, s.queries}, DType::fp32, Category::workspace);
    partial_out = tape.empty({splits, s.batch, s.heads, s.queries, rounded_head_dim(s.head_dim)}, DType::fp32, Category::workspace);
  }
  void launch() const {
    launch_attention(tape, Attention::Part::forward, out.dtype(), s);
    if (splits > 1) launch_attention(tape, Attention::Part::combine, out.dtype(), s);
  }
  Tape& tape;
  const Shape& s;
  std::int64_t splits;
  Tensor out, lse, partial_lse, partial_out;
};

/// The forward kernel: output, log-sum-exp, the generator's state and an unused scalar.
std::vector<Tensor> flash_forward(Tape& tape, const Tensor& query, const Shape& s) {
  const FlashResults results(tape, query, s);
  Tensor rng_state = tape.empty({2}, DType::int64);
  const Tensor unused = tape.empty({1}, DType::int64);
  if (s.dropout) rng_state = tape.empty({2}, DType::int64);
  results.launch();
  return {results.out, results.lse, rng_state, unused};
}

Tensor flash(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionArguments& arguments) {
  const Shape s = shape_of(torch_flash(query.tape().device), query, key, value, arguments.causal, arguments.dropout);
  Op op("flash_attention", {&query, &key, &value});
  op.tell_number(arguments.causal);
  op.tell_rate(arguments.dropout);
  Tape& tape = op.tape();
  op.save(key);
  op.save(query);
  op.save(value);
  const std::vector<Tensor> outputs = selected(tape, "flash_attention", [&] { return flash_forward(tape, query, s); });
  Tensor out = outputs[0];
  const Tensor &lse = outputs[1], &rng_state = outputs[2], &unused = outputs[3];
  op.save_output(lse);
  op.save_output(out);
  op.save_output(rng_state);
  op.save_output(unused);
  return op.done(out, [s](BackwardCall& b) { flash_backward(b, s); });
}

// ---- flash-attention's own interface ---------------------------------------------------------------------------------------

/// Shape of [batch, length, heads, dim] tensors.
Shape shape_of_rows(const Tensor& query, const Tensor& key, const FlashAttnArguments& arguments) {
  return {arguments.library, query.size(0), query.size(2),    key.size(2),           query.size(1),    key.size(1),
          query.size(3),     key.size(3),   arguments.causal, arguments.dropout > 0, /*masked=*/false, arguments.window, arguments.sequences};
}

/// Zero padding of the last dimension to a multiple of eight, which flash wants.
Tensor padded(const Tensor& x) { return pad_last(x, 0, round_up(x.size(-1), 8) - x.size(-1)); }

/// FlashAttnFunc.backward: gradients in the padded width, of which the front goes on.
void flash_attn_backward(BackwardCall& b, const Shape& s) {
  const Tensor grad = b.grad().strides()[3] == 1 ? b.grad() : contiguous(b.grad());
  const std::int64_t width = grad.size(-1);
  const Tensor wide_grad = width == s.head_dim ? grad : padded(grad);
  InputGradients gradients = flash_gradients(b.saved(0), b.saved(1), b.saved(2), s);
  if (width != s.head_dim) {
    for (Tensor* gradient : {&gradients.query, &gradients.key, &gradients.value}) *gradient = slice(*gradient, -1, 0, width);
  }
  give(b, gradients);
}

// ---- memory-efficient -----------------------------------------------------------------------------------------------------

/// Tile of a CUTLASS backward kernel and the widest head that it takes.
struct BackwardTile {
  std::int64_t rows, columns, most;
  /// kOutputInRF: dK and dV stay in registers.
  bool keeps_gradients(bool sixteen_bit) const { return sixteen_bit && most <= rows; }
};

/// dispatch_cutlassB: the first kernel of the architecture's list (cutlassB.h) that takes heads so wide and whose shared memory a block can
/// have: on sm_86 and sm_89 few do.
BackwardTile backward_tile(const TargetDevice& device, std::int64_t widest, bool sixteen_bit, bool dropout) {
  constexpr std::int64_t kAnyHead = 65536, kWideTiles = 128 * 1024;
  if (widest <= 64) return {64, 64, 64};
  const std::int64_t most = widest <= 128 ? 128 : kAnyHead;
  if (!device.from(80)) return {sixteen_bit ? 128 : 64, 64, most};
  if (device.shared_memory > kWideTiles) return {128, sixteen_bit && most == 128 ? 128 : 64, most};
  if (sixteen_bit && widest <= 96 && !dropout) return {128, 64, 96};
  return {sixteen_bit && most > 128 ? 128 : 64, 64, most};
}

/// AttentionBackwardKernel::Params::workspace_size: dQ accumulators with their locks, and those of dK and dV where they are needed.
std::int64_t backward_workspace(const TargetDevice& device, const Shape& s, bool sixteen_bit) {
  const BackwardTile tile = backward_tile(device, std::max(s.head_dim, s.value_dim), sixteen_bit, s.dropout);
  const std::int64_t blocks = ceil_div(s.queries, tile.rows), columns = ceil_div(s.head_dim, tile.columns);
  std::int64_t elements = blocks * columns * (4 + tile.rows * tile.columns);
  if (sixteen_bit && !tile.keeps_gradients(sixteen_bit)) {
    const std::int64_t splits = std::max<std::int64_t>(1, std::min(ceil_div(s.keys, tile.columns), 200 / (s.batch * s.heads)));
    elements += splits * tile.columns * (round_up(s.head_dim, tile.rows) + round_up(s.value_dim, tile.rows));
  }
  return s.batch * s.heads * round_up(elements, 4) * 4;
}

/// The backward kernel and what it needs beside the gradients that it writes.
void run_efficient_backward(Tape& tape, const Shape& s, DType type, const Tensor& grad) {
  if (s.library == AttentionLibrary::aotriton) return run_aotriton_backward(tape, s, type);
  const bool sixteen_bit = type != DType::fp32;
  const ExpandedGradients expanded(tape, s, type);
  Tensor delta;
  if (sixteen_bit) {
    delta = tape.empty({s.batch, s.heads, s.queries}, DType::fp32, Category::workspace);
  } else {  // (grad * out).sum(-1), transposed
    const Tensor product = elementwise(tape, {&grad}, DType::fp32);
    const Tensor sums = tape.empty({s.batch, s.queries, s.heads}, DType::fp32, Category::workspace);
    tape.kernel({Reduction{Reduction::Axis::inner, sums.elements(), s.value_dim, Operands({operand(product)}, {operand(sums)})}});
    delta = s.heads == 1 ? sums : elementwise(tape, {&sums}, DType::fp32);  // heads in front; a single head lies so already
  }
  const Tensor workspace = tape.empty({backward_workspace(tape.device, s, sixteen_bit)}, DType::uint8, Category::workspace);
  launch_attention(tape, Attention::Part::backward, type, s);
  expanded.sum();
}

void efficient_backward(BackwardCall& b, const Shape& s) {
  Tape& tape = b.tape;
  const DType type = b.saved(2).dtype();
  const Tensor grad = contiguous(transpose(b.grad(), 1, 2));
  InputGradients gradients = empty_gradients(tape, s, type);
  if (b.needs(3)) {  // of a learned mask, its rows aligned to 16 elements
    const std::int64_t width = round_up(s.keys, 16);
    const Tensor whole = tape.empty({s.batch, s.heads, s.queries, width}, type);
    b.give(3, tape.view(whole, {s.batch, s.heads, s.queries, s.keys}, whole.strides()));
  }
  run_efficient_backward(tape, s, type, grad);
  give(b, gradients);
}

/// pad_bias: an additive mask in the query's type, its last dimension aligned to 16 bytes.
Tensor aligned_mask(Tape& tape, const Tensor& mask, DType type) {
  Tensor bias = mask;
  if (mask.dtype() == DType::boolean) bias = additive_attention_mask(tape, mask, type);
  const std::int64_t quantum = 16 / size_of(type), width = bias.size(-1);
  if (width % quantum == 0) return bias;
  return pad_last(bias, 0, round_up(width, quantum) - width);
}

/// A mask that takes part in autograd, seen by every sample and head: pad_bias and expand are operators then.
Tensor learned_mask(const Tensor& mask, const Shape& s) {
  const std::int64_t quantum = 16 / size_of(mask.dtype()), missing = round_up(s.keys, quantum) - s.keys;
  Tensor bias = mask;
  if (missing > 0) {
    const Tensor wide = pad_last(mask, 0, missing);
    bias = slice(wide, -1, 0, s.keys);
  }
  return expand(bias, {s.batch, s.heads, s.queries, s.keys});
}

/// The forward kernel. Only a backward reads the log-sum-exp.
EfficientOutputs efficient_forward(Tape& tape, const Tensor& query, const Shape& s, bool differentiable) {
  EfficientOutputs all;
  if (!s.dropout) {  // with dropout they are the generator's, on the host
    all.seed = tape.empty({}, DType::int64);
    all.offset = tape.empty({}, DType::int64);
  }
  all.output = heads_inside(tape, s.batch, s.heads, s.queries, s.value_dim, query.dtype());
  if (differentiable) all.log_sum_exp = tape.empty({s.batch, s.heads, round_up(s.queries, 32)}, DType::fp32);
  if (query.dtype() != DType::fp32 && std::max(s.head_dim, s.value_dim) > 128)
    tape.scratch(4 * all.output.elements());  // accumulator of the output
  launch_attention(tape, Attention::Part::forward, query.dtype(), s);
  return all;
}

Tensor efficient(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, const AttentionArguments& arguments) {
  Shape s = shape_of(torch_memory_efficient(query.tape().device), query, key, value, arguments.causal, arguments.dropout);
  s.masked = mask.defined();
  Tensor bias;
  if (mask) bias = mask.requires_grad() ? learned_mask(mask, s) : aligned_mask(query.tape(), mask, query.dtype());
  Op op("efficient_attention", {&query, &key, &value, &bias});
  op.tell_number(arguments.causal);
  op.tell_rate(arguments.dropout);
  Tape& tape = op.tape();
  op.save(bias);
  op.save(key);
  op.save(query);
  op.save(value);
  const std::vector<Tensor> outputs = selected(tape, "efficient_attention", [&]() -> std::vector<Tensor> {
    EfficientOutputs all = efficient_forward(tape, query, s, op.differentiable());
    return {std::move(all.output), std::move(all.log_sum_exp), std::move(all.seed), std::move(all.offset)};
  });
  Tensor output = outputs[0];
  const Tensor &log_sum_exp = outputs[1], &seed = outputs[2], &offset = outputs[3];
  op.save_output(log_sum_exp);
  op.save_output(output);
  op.save_output(offset);
  op.save_output(seed);
  return op.done(output, [s](BackwardCall& b) { efficient_backward(b, s); });
}

Tensor padded_flash(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionArguments& arguments) {
  if (q.size(-1) % 8 == 0) return flash(q, k, v, arguments);
  const Tensor wide_q = padded(q), wide_k = padded(k), wide_v = padded(v);
  return slice(flash(wide_q, wide_k, wide_v, arguments), -1, 0, v.size(-1));
}

}  // namespace

Tensor additive_attention_mask(Tape& tape, const Tensor& mask, DType type) {
  const Tensor zero = filled(tape, {}, type), least = filled(tape, {}, type);  // scalars of at::where
  Tensor bias = elementwise(tape, {&mask, &zero, &least}, type);
  if (tape.trace) tape.trace->ran("attention_bias", {&mask}, {}, {bias});
  return bias;
}

FlashOutputs flash_attention_forward(const Tensor& query, const Tensor& key, const Tensor& value, bool causal, double dropout) {
  const AttentionLibrary library = torch_flash(query.tape().device);
  std::vector<Tensor> outputs = flash_forward(query.tape(), query, shape_of(library, query, key, value, causal, dropout));
  return {std::move(outputs[0]), std::move(outputs[1]), std::move(outputs[2]), std::move(outputs[3])};
}

FlashGradients flash_attention_backward(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& /*gradient*/,
                                        bool causal) {
  return flash_gradients(query, key, value, shape_of(torch_flash(query.tape().device), query, key, value, causal));
}

Tensor flash_attn(const Tensor& query, const Tensor& key, const Tensor& value, const FlashAttnArguments& arguments) {
  if (arguments.library == AttentionLibrary::flash3 || arguments.library == AttentionLibrary::flash4)
    return later_flash_attn(query, key, value, arguments);
  PythonFunction op("FlashAttnFunc", {&query, &key, &value});
  Tape& tape = op.tape();
  const std::int64_t width = query.size(-1);
  Tensor q = query, k = key, v = value;
  if (width % 8 != 0) {
    const GradMode no_grad(tape, false);
    for (Tensor* x : {&q, &k, &v}) *x = padded(*x);
  }
  const Shape s = shape_of_rows(q, k, arguments);
  const FlashResults results(tape, q, s);
  const Tensor rng_state = tape.empty({2}, DType::int64);
  results.launch();
  for (const Tensor* kept : {&q, &k, &v}) op.save(*kept);
  op.save(results.lse);
  op.save(rng_state);
  Tensor out = results.out;
  if (width == s.head_dim) {
    op.save_output(out);
  } else {
    op.save(out);
    const GradMode no_grad(tape, false);
    out = slice(out, -1, 0, width);
  }
  return op.done(out, [s](BackwardCall& b) { flash_attn_backward(b, s); });
}

EfficientOutputs efficient_attention_forward(const Tensor& query, const Tensor& key, const Tensor& value) {
  return efficient_forward(query.tape(), query, shape_of(torch_memory_efficient(query.tape().device), query, key, value, false), true);
}

FlashGradients efficient_attention_backward(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& gradient) {
  Tape& tape = query.tape();
  const Shape s = shape_of(torch_memory_efficient(query.tape().device), query, key, value, false);
  InputGradients gradients = empty_gradients(tape, s, query.dtype());
  run_efficient_backward(tape, s, query.dtype(), gradient);
  return gradients;
}

Tensor efficient_attention(const Tensor& query, const Tensor& key, const Tensor& value) {
  return efficient(query, key, value, {}, {.causal = true});
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                                    const AttentionArguments& arguments) {
  const Tensor bias = mask ? autocast_low(mask) : mask;  // the compiler's order, the last argument first
  const Tensor v = autocast_low(value), k = autocast_low(key), q = autocast_low(query);
  if (q.rank() == 3 && q.tape().torch.fuses_three_dimensions()) {
    const auto batch_of_one = [](const Tensor& x) { return x && x.rank() == 3 ? unsqueeze(x, 0) : x; };
    return squeeze(scaled_dot_product_attention(batch_of_one(q), batch_of_one(k), batch_of_one(v), batch_of_one(bias), arguments), 0);
  }
  switch (sdpa_backend(q, k, v, bias, arguments)) {
    case SdpaBackend::cudnn:
      return cudnn_attention(q, k, v, bias, arguments);
    case SdpaBackend::flash:
      return padded_flash(q, k, v, arguments);
    case SdpaBackend::efficient:
      return efficient(q, k, v, bias, arguments);
    case SdpaBackend::math:
      return math_attention(q, k, v, bias, arguments);
  }
  throw Error(ErrorCode::internal, "an attention kernel that is none of PyTorch's");
}

}  // namespace plimsoll::program
