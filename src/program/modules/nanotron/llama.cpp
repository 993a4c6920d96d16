#include "program/modules/nanotron/llama.hpp"

#include <algorithm>
#include <string>

#include "program/attention_library.hpp"
#include "program/checkpoint.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

namespace {

constexpr std::int64_t kFlushBuffer = 256'000'000;  // triton.testing.do_bench, fast_flush
constexpr int kNormConfigurations = 6;              // layer_norm.py: 1 to 32 warps
constexpr std::int64_t kAttentionRows = 128;        // flash_api.cpp: rows are padded per sequence …
constexpr std::int64_t kHeadDimensionQuantum = 32;  // … and head dimensions to this

/// flash-attention's Triton RMSNorm. Besides the statistics it writes the residual stream once more, and keeps it next to its input.
Tensor rms_norm(NanotronDevice& device, const Tensor& x, const Tensor& weight) {
  PythonFunction op("rms_norm", {&x, &weight});
  const std::int64_t columns = x.size(-1), rows = x.elements() / columns;
  Tensor y = op.output(x.sizes(), x.dtype());
  const Tensor residual = op.output(x.sizes(), x.dtype());
  const Tensor scale = op.output({rows}, DType::fp32);
  device.tune(NanotronDevice::TunedKernel::norm_forward);
  row_wise(RowWise::Function::rms_norm, rows, columns, {&x, &weight}, {&y, &residual, &scale});
  op.save(x);
  op.save(weight);
  op.save(scale);
  op.save(residual);
  return op.done(y, [&device, columns](BackwardCall& b) {
    const Tensor gradient = contiguous(b.grad());
    Tensor dx = b.tape.empty(gradient.sizes(), gradient.dtype());
    const Tensor partial = b.tape.empty({b.tape.device.units, columns}, DType::fp32);
    device.tune(NanotronDevice::TunedKernel::norm_backward);
    row_wise(RowWise::Function::rms_norm_backward, gradient.elements() / columns, columns, {&gradient, &b.saved(0)}, {&dx, &partial});
    const Tensor sum = b.tape.empty({columns}, DType::fp32);
    reduce(sum, partial, Reduction::Axis::outer);
    b.give(0, std::move(dx));
    b.give(1, elementwise(b.tape, {&sum}, DType::bf16));
  });
}

/// _ColumnLinearAsyncCommunication: keeps the rank's piece of the input and gathers it again in backward; of a whole input the gradients
/// are added up beside the weight's.
Tensor column_linear(NanotronDevice& device, const Tensor& x, const Tensor& weight) {
  PythonFunction op("column_linear", {&x, &weight});
  const NanotronSizes& sizes = device.sizes;
  const std::int64_t in = weight.size(1), out = weight.size(0), rows = sizes.tokens();
  if (sizes.cuts()) device.gathered_input(x);
  Tensor y = op.output({sizes.sequence, sizes.batch, out}, x.dtype());
  device.product_beside_gather(LinearPass::forward, {rows, in, out});
  op.save(x);
  op.save(weight);
  return op.done(y, [&device, in, out, rows](BackwardCall& b) {
    const NanotronSizes& shape = device.sizes;
    const EventId gathered = b.tape.new_event();
    if (shape.cuts()) {
      device.gathered_input(b.saved(0));
      b.tape.record_event(gathered, device.communication());
    }
    Tensor whole = b.tape.empty({shape.sequence, shape.batch, in}, DType::bf16);
    device.product(LinearPass::input_gradient, {rows, in, out});
    const Tensor gradient = contiguous(b.grad());
    Tensor dx = shape.cuts() ? device.reduce_scattered(whole, b.saved(0).sizes()) : whole;
    if (shape.reduces()) device.all_reduce(dx);
    if (shape.cuts()) b.tape.wait_event(kComputeStream, gathered);
    Tensor dw = b.tape.empty({out, in}, DType::bf16);
    device.product(LinearPass::weight_gradient, {rows, in, out});
    if (shape.tp > 1) device.await_communication();
    b.give(0, std::move(dx));
    b.give(1, std::move(dw));
  });
}

/// _RowLinearAsyncCommunication: the output is reduced and scattered along the sequence, its gradient gathered; or row_linear and
/// differentiable_all_reduce_sum.
Tensor row_linear(NanotronDevice& device, const Tensor& x, const Tensor& weight) {
  PythonFunction op("row_linear", {&x, &weight});
  const NanotronSizes& sizes = device.sizes;
  const std::int64_t in = weight.size(1), out = weight.size(0), rows = sizes.tokens();
  Tensor y;
  {
    const GradMode none(op.tape(), false);
    const Tensor folded = contiguous(x);  // matmul folds sequence and batch: a copy where attention left them transposed
    y = op.output({sizes.sequence, sizes.batch, out}, x.dtype());
    device.product(LinearPass::forward, {rows, in, out});
  }
  if (sizes.cuts()) y = device.reduce_scattered(y, sizes.hidden_state());
  if (sizes.reduces()) device.all_reduce(y);
  if (sizes.tp > 1) device.await_communication();
  op.save(x);
  op.save(weight);
  return op.done(y, [&device, in, out, rows](BackwardCall& b) {
    if (device.sizes.cuts()) device.gathered_gradient(b.grad());
    Tensor dx = b.tape.empty(b.saved(0).sizes(), DType::bf16);
    device.product_beside_gather(LinearPass::input_gradient, {rows, in, out});
    const Tensor folded = contiguous(b.saved(0));
    Tensor dw = b.tape.empty({out, in}, DType::bf16);
    device.product(LinearPass::weight_gradient, {rows, in, out});
    b.give(0, std::move(dx));
    b.give(1, std::move(dw));
  });
}

/// a, b, c = x: views, whose gradients are stacked.
std::vector<Tensor> unbind(const Tensor& x) {
  Op op("unbind", {&x});
  Dims sizes, strides;
  for (int i = 1; i < x.rank(); ++i) {
    sizes.push_back(x.size(i));
    strides.push_back(x.strides()[i]);
  }
  std::vector<Tensor> parts;
  for (std::int64_t i = 0; i < x.size(0); ++i) parts.push_back(op.tape().view(x, sizes, strides));
  op.finish_all(parts, [whole = x.sizes()](BackwardCall& b) {
    Tensor stacked = b.tape.empty(whole, DType::bf16);
    pointwise(b.tape, Pointwise::Form::concatenate, {operand(stacked)}, {operand(stacked)});
    b.give(0, std::move(stacked));
  });
  return parts;
}

/// flash-attention's rotary kernel out of place; its backward copies the gradient first (interleaved = false).
Tensor rotary(const Tensor& x, const Tensor& cosine, const Tensor& sine) {
  PythonFunction op("rotary", {&x});
  Tensor y = empty_like(x);
  row_wise(RowWise::Function::rope, x.elements() / x.size(-1), x.size(-1), {&x, &cosine, &sine}, {&y});
  op.save(cosine);
  op.save(sine);
  return op.done(y, [](BackwardCall& b) {
    const Tensor copy = elementwise(b.tape, {&b.grad()}, DType::bf16);
    Tensor dx = empty_like(copy);
    row_wise(RowWise::Function::rope, dx.elements() / dx.size(-1), dx.size(-1), {&copy, &b.saved(0), &b.saved(1)}, {&dx});
    b.give(0, std::move(dx));
  });
}

/// The keys of keys and values, in place.
void turn_keys(const Tensor& kv) {
  const std::int64_t keys = kv.elements() / 2, width = kv.size(-1);
  row_wise(kv.tape(), RowWise::Function::rope, keys / width, width, {packed(keys, DType::bf16)}, {packed(keys, DType::bf16)});
}

/// The same on the keys within [batch, sequence, 2, heads, dim], in place, as is its backward.
Tensor rotary_of_keys(const Tensor& kv, const Tensor& cosine, const Tensor& sine) {
  PythonFunction op("rotary_kv", {&kv});
  Tensor y = op.tape().view(kv, kv.sizes(), kv.strides());
  turn_keys(kv);
  op.save(cosine);
  op.save(sine);
  return op.done(y, [](BackwardCall& b) {
    turn_keys(b.grad());
    b.give(0, b.grad());
  });
}

Kernel attention_kernel(const NanotronDevice& device, Attention::Part part) {
  const NanotronSizes& sizes = device.sizes;
  Attention attention;
  attention.library = packaged_flash(device.tape.device);
  attention.part = part;
  attention.causal = true;
  attention.batch = sizes.batch;
  attention.heads = sizes.heads;
  attention.kv_heads = sizes.kv_heads;
  attention.queries = attention.keys = sizes.sequence;
  attention.head_dim = attention.value_dim = sizes.head_dim;
  return {attention};
}

/// Where each sequence starts: zeros, then the running sum of each row's count of tokens.
Tensor sequence_starts(NanotronDevice& device) {
  const NanotronSizes& sizes = device.sizes;
  Tape& tape = device.tape;
  Tensor starts = tape.empty({sizes.batch + 1}, DType::int32);
  pointwise(starts, {});
  const Tensor counted = tape.empty({sizes.batch, sizes.sequence}, DType::int32);
  pointwise(tape, Pointwise::Form::map, {packed(sizes.tokens(), DType::boolean)}, {operand(counted)});
  const Tensor counts = tape.empty({sizes.batch}, DType::int32);
  reduce(counts, counted, Reduction::Axis::inner);
  gather(tape, Gather::Function::scan, 0, {}, {});  // the scan's state
  gather(Gather::Function::scan, counts.elements(), {&counts}, {&counts});
  return starts;
}

/// What varlen_bwd takes besides the gradients: row sums, fp32 accumulators of dq, and dk and dv for every query head.
void attention_scratch(NanotronDevice& device) {
  const NanotronSizes& sizes = device.sizes;
  Tape& tape = device.tape;
  const Tensor row_sums =
      tape.empty({sizes.batch, sizes.heads, round_up(sizes.sequence, kAttentionRows)}, DType::fp32, Category::workspace);
  const Tensor accumulator =
      tape.empty({sizes.tokens() + kAttentionRows * sizes.batch, sizes.heads, round_up(sizes.head_dim, kHeadDimensionQuantum)}, DType::fp32,
                 Category::workspace);
  Tensor keys, values;
  if (sizes.kv_heads != sizes.heads) {
    keys = tape.empty({sizes.tokens(), sizes.heads, sizes.head_dim}, DType::bf16, Category::workspace);
    values = tape.empty({sizes.tokens(), sizes.heads, sizes.head_dim}, DType::bf16, Category::workspace);
  }
  for (const Attention::Part part : {Attention::Part::delta, Attention::Part::backward, Attention::Part::convert})
    tape.kernel(attention_kernel(device, part));
}

/// flash_attn_varlen_func on [tokens, heads, dim].
Tensor flash_attention(NanotronDevice& device, const Tensor& query, const Tensor& key, const Tensor& value) {
  const NanotronSizes& sizes = device.sizes;
  Tape& tape = device.tape;
  const Tensor query_starts = sequence_starts(device), key_starts = sequence_starts(device);
  PythonFunction op("flash_attention", {&query, &key, &value});
  Tensor out = empty_like(query);
  const Tensor log_sums = op.output({sizes.batch, sizes.heads, sizes.sequence}, DType::fp32);
  const Tensor random_state = op.output({2}, DType::int64);
  tape.kernel(attention_kernel(device, Attention::Part::forward));
  for (const Tensor* kept : {&query, &key, &value}) op.save(*kept);
  op.save_output(out);
  for (const Tensor* kept : {&log_sums, &query_starts, &key_starts, &random_state}) op.save(*kept);
  return op.done(out, [&device](BackwardCall& b) {
    const Tensor gradient = contiguous(b.grad());
    Tensor dq = empty_like(b.saved(0)), dk = empty_like(b.saved(1)), dv = empty_like(b.saved(2));
    attention_scratch(device);
    b.give(0, std::move(dq));
    b.give(1, std::move(dk));
    b.give(2, std::move(dv));
  });
}

/// out · mask, where this rank's part of the vocabulary was looked up.
Tensor masked(const Tensor& x, const Tensor& mask) {
  Op op("mask", {&x});
  op.save(mask);
  Tensor y = op.elementwise({&x}, x.dtype());
  return op.done(y, [](BackwardCall& b) { b.give(0, elementwise(b.tape, {&b.grad()}, b.grad().dtype())); });
}

/// DifferentiableReduceScatterSum; its backward gathers.
Tensor reduce_scatter(NanotronDevice& device, const Tensor& x) {
  PythonFunction op("reduce_scatter", {&x});
  Tensor y = device.reduce_scattered(x, device.sizes.hidden_state());
  device.await_communication();
  return op.done(y, [&device, whole = x.sizes()](BackwardCall& b) { b.give(0, device.all_gathered(b.grad(), whole)); });
}

/// DifferentiableAllReduceSum, in place.
Tensor reduce_all(NanotronDevice& device, const Tensor& x) {
  PythonFunction op("all_reduce", {&x});
  device.all_reduce(x);
  device.await_communication();
  Tensor y = op.tape().view(x, x.sizes(), x.strides());
  return op.done(y, [](BackwardCall& b) { b.give(0, b.grad()); });
}

void reduce_over_vocabulary(NanotronDevice& device, const Tensor& x) {
  device.communicate(CollectiveKind::all_reduce, x);
  device.use_on_communication_stream(x);
  device.await_communication();
}

/// _ShardedCrossEntropy on fp32 logits [sequence, batch, vocabulary of the rank]: the softmax is made in place of the shifted logits,
/// kept, and turned into the gradient in place.
Tensor sharded_cross_entropy(NanotronDevice& device, const Tensor& logits, const Tensor& target) {
  PythonFunction op("cross_entropy", {&logits});
  Tape& tape = op.tape();
  const Dims& rows = target.sizes();
  const Tensor largest = tape.empty(rows, DType::fp32);
  tape.empty(rows, DType::int64);  // torch.max answers positions too
  reduce(tape, Reduction::Axis::inner, largest.elements(), {operand(logits)}, {operand(largest), packed(largest.elements(), DType::int64)});
  reduce_over_vocabulary(device, largest);
  const Tensor softmax = elementwise(tape, {&logits, &logits}, DType::fp32);
  const Tensor outside = tape.empty(rows, DType::boolean);
  for (int i = 0; i < 3; ++i)
    pointwise(outside, {&target});  // below, above, either
  const Tensor index = tape.empty(rows, DType::int64);
  for (int i = 0; i < 3; ++i)
    pointwise(index, {&target});  // copied, shifted, masked
  const Tensor range = arange(tape, rows.product());
  const Tensor predicted = tape.empty(rows, DType::fp32);
  gather(tape, Gather::Function::index, predicted.elements(), {operand(range), operand(index), operand(predicted)}, {operand(predicted)});
  for (int i = 0; i < 2; ++i) in_place(predicted, {&predicted});  // copied, masked
  reduce_over_vocabulary(device, predicted);
  in_place(softmax, {&softmax});
  const Tensor sums = tape.empty(rows, DType::fp32);
  reduce(sums, softmax, Reduction::Axis::inner);
  reduce_over_vocabulary(device, sums);
  Tensor loss = elementwise(tape, {&sums, &predicted}, DType::fp32);
  in_place(softmax, {&softmax});
  for (const Tensor* kept : {&softmax, &outside, &index}) op.save(*kept);
  return op.done(loss, [](BackwardCall& b) {
    const Tensor softmax_kept = b.saved(0);
    const Tensor rows_range = arange(b.tape, b.saved(2).elements());
    const Tensor corrections = b.tape.empty(b.saved(2).sizes(), DType::fp32);
    for (const Gather::Function function : {Gather::Function::index, Gather::Function::scatter})
      gather(function, corrections.elements(), {&rows_range, &corrections}, {&corrections});
    for (int i = 0; i < 3; ++i) in_place(corrections, {&corrections});
    in_place(softmax_kept, {&softmax_kept, &b.grad()});
    b.give(0, softmax_kept);
  });
}

/// masked_mean: (loss · mask).sum() / mask.sum().
Tensor masked_mean(const Tensor& loss, const Tensor& mask) {
  PythonFunction op("masked_mean", {&loss});
  const Tensor kept = elementwise(op.tape(), {&loss, &mask}, DType::fp32);
  const Tensor sum = op.output({}, DType::fp32), count = op.output({}, DType::int64);
  reduce(sum, kept, Reduction::Axis::all);
  op.save(mask);
  op.save(count);
  Tensor y = op.output({}, DType::fp32);
  return op.done(y, [sizes = loss.sizes()](BackwardCall& b) {
    Tensor gradient = b.tape.empty(sizes, DType::fp32);
    pointwise(gradient, {&b.saved(0)});
    b.give(0, std::move(gradient));
  });
}

}  // namespace

NanotronDevice::NanotronDevice(Tape& tape_in, const NanotronSizes& sizes_in)
    : tape(tape_in), sizes(sizes_in), communication_(tape_in.add_stream("tensor parallel")) {}

void NanotronDevice::product_beside_gather(LinearPass pass, const LinearShape& whole) {
  LinearShape own = whole, others = whole;
  if (sizes.cuts()) own.rows = whole.rows / sizes.tp;
  others.rows -= own.rows;
  product(pass, own);
  if (!sizes.cuts()) return;
  await_communication();
  product(pass, others);
}

void NanotronDevice::product(LinearPass pass, const LinearShape& shape) {
  Tensor& workspace = tape.in_backward() ? backward_workspace_ : forward_workspace_;
  if (!workspace) workspace = tape.empty({tape.blas.blas}, DType::uint8, Category::workspace);
  linear_product(tape, pass, shape, {.workspace = false});
}

void NanotronDevice::communicate(CollectiveKind kind, const Tensor& whole) {
  tape.wait(communication_, kComputeStream);
  tape.collective({.kind = kind, .group = Group::tensor, .bytes = whole.bytes(), .type = whole.dtype()}, communication_);
}

void NanotronDevice::await_communication() { tape.wait(kComputeStream, communication_); }

Tensor NanotronDevice::gathered(Tensor& buffer, const Tensor& shard) {
  if (!buffer) buffer = tape.empty({shard.elements() * sizes.tp}, shard.dtype(), Category::communication_buffer);
  communicate(CollectiveKind::all_gather, buffer);
  use_on_communication_stream(shard);
  return buffer;
}

Tensor NanotronDevice::reduce_scattered(const Tensor& whole, const Dims& piece) {
  Tensor y = tape.empty(piece, whole.dtype());
  communicate(CollectiveKind::reduce_scatter, whole);
  use_on_communication_stream(whole);
  use_on_communication_stream(y);
  return y;
}

void NanotronDevice::all_reduce(const Tensor& partial) {
  communicate(CollectiveKind::all_reduce, partial);
  use_on_communication_stream(partial);
}

void NanotronDevice::use_on_communication_stream(const Tensor& tensor) { tape.record_stream(tensor, communication_); }

Tensor NanotronDevice::all_gathered(const Tensor& piece, const Dims& whole) {
  Tensor y = tape.empty(whole, piece.dtype());
  communicate(CollectiveKind::all_gather, y);
  use_on_communication_stream(piece);
  use_on_communication_stream(y);
  await_communication();
  return y;
}

void NanotronDevice::tune(TunedKernel kernel) {
  bool& tuned = tuned_[static_cast<std::size_t>(kernel)];
  if (tuned) return;
  tuned = true;
  for (int i = 0; i < kNormConfigurations; ++i) tape.scratch(kFlushBuffer);
}

NanotronLlama::NanotronLlama(NanotronDevice& device, const NanotronStage& stage, bool tied_embeddings, bool recomputes)
    : device_(device), tape_(device.tape), sizes_(device.sizes), recomputes_(recomputes) {
  if (stage.embedding) embedding_ = &make("model.token_position_embeddings.pp_block.token_embedding", {sizes_.vocab, sizes_.hidden});
  for (int i = 0; i < stage.layers; ++i) layers_.push_back(make_layer(stage.first_layer + i));
  if (!stage.head) return;
  final_norm_ = &make("model.final_layer_norm.pp_block", {sizes_.hidden});
  head_ = &make("model.lm_head.pp_block", {sizes_.vocab, sizes_.hidden});
  if (tied_embeddings && stage.embedding) head_->parameters = embedding_->parameters;  // tie_parameters: the head's own storage dies
}

Module& NanotronLlama::make(const std::string& path, const Dims& sizes) {
  Module* module = &root_;
  for (std::size_t start = 0; start <= path.size();) {
    const std::size_t end = std::min(path.find('.', start), path.size());
    module = &module->child(std::string_view(path).substr(start, end - start), true);
    start = end + 1;
  }
  module->label = tape_.intern(path);
  const LabelScope label(tape_, module->label);
  auto weight = std::make_shared<Parameter>();
  weight->name = "weight";
  weight->sizes = sizes;
  weight->type = DType::bf16;
  weight->tensor = tape_.parameter(sizes, DType::bf16, true);
  module->parameters.push_back(std::move(weight));
  return *module;
}

NanotronLlama::Layer NanotronLlama::make_layer(int index) {
  const std::string path = "model.decoder." + std::to_string(index) + ".pp_block";
  const std::int64_t queries = sizes_.heads * sizes_.head_dim, keys = sizes_.kv_heads * sizes_.head_dim;
  Layer layer{};
  layer.input_norm = &make(path + ".input_layernorm", {sizes_.hidden});
  layer.qkv = &make(path + ".attn.qkv_proj", {queries + 2 * keys, sizes_.hidden});
  layer.output = &make(path + ".attn.o_proj", {sizes_.hidden, queries});
  layer.attention_norm = &make(path + ".post_attention_layernorm", {sizes_.hidden});
  layer.gate_up = &make(path + ".mlp.gate_up_proj", {2 * sizes_.ffn, sizes_.hidden});
  layer.down = &make(path + ".mlp.down_proj", {sizes_.hidden, sizes_.ffn});
  layer.module = root_.find(path);
  layer.module->label = tape_.intern(path);
  return layer;
}

Tensor NanotronLlama::embed(const Tensor& ids) {
  const LabelScope label(tape_, embedding_->label);
  const Tensor transposed = transpose(ids, 0, 1);
  if (sizes_.tp == 1) return embedding(embedding_->tensor("weight"), transposed);
  const Tensor outside = tape_.empty(transposed.sizes(), DType::boolean);
  for (int i = 0; i < 3; ++i)  // below, above, either
    pointwise(outside, {&transposed});
  for (int i = 0; i < 2; ++i)  // copied, masked; shifted below
    in_place(transposed, {&transposed});
  const Tensor local = elementwise(tape_, {&transposed}, DType::int64);
  Tensor out = embedding(embedding_->tensor("weight"), local);
  const Tensor inside = elementwise(tape_, {&outside}, DType::boolean);
  out = masked(out, inside);
  return sizes_.cuts() ? reduce_scatter(device_, out) : reduce_all(device_, out);
}

Tensor NanotronLlama::attend(Layer& layer, const Tensor& input) {
  const std::int64_t length = sizes_.sequence, batch = sizes_.batch, dim = sizes_.head_dim, heads = sizes_.heads, pairs = sizes_.kv_heads;
  const Tensor qkv = column_linear(device_, input, layer.qkv->tensor("weight"));
  Tensor query, key, value;
  if (heads == pairs) {
    Tensor packed = view(qkv, {length, batch, 3, heads, dim});
    packed = permute(packed, {2, 1, 0, 3, 4});
    packed = contiguous(packed);
    const std::vector<Tensor> parts = unbind(packed);
    query = parts[0];
    key = parts[1];
    value = parts[2];
  } else {
    const std::vector<Tensor> parts = split(qkv, {heads * dim, pairs * dim, pairs * dim}, -1);
    const auto batch_first = [&](const Tensor& part, std::int64_t count) {
      const Tensor turned = transpose(part, 0, 1);
      const Tensor copied = contiguous(turned);
      return view(copied, {batch, length, count, dim});
    };
    query = batch_first(parts[0], heads);
    key = batch_first(parts[1], pairs);
    value = batch_first(parts[2], pairs);
  }
  Tensor pair;
  {
    const Tensor keys = unsqueeze(key, 0), values = unsqueeze(value, 0);
    pair = cat({keys, values}, 0);
  }
  pair = permute(pair, {1, 2, 0, 3, 4});
  pair = contiguous(pair);
  if (!layer.cosine) {
    const Tensor positions = arange(tape_, length, DType::fp32);
    const Tensor angles = tape_.empty({length, dim / 2}, DType::fp32);
    const Tensor cosines = elementwise(tape_, {&angles}, DType::fp32);
    layer.cosine = elementwise(tape_, {&cosines}, DType::bf16);
    layer.sine = elementwise(tape_, {&cosines}, DType::bf16);
  }
  const Tensor rotated = rotary(query, layer.cosine, layer.sine);
  pair = rotary_of_keys(pair, layer.cosine, layer.sine);
  query = rotated;
  {
    const std::vector<Tensor> parts = split(pair, {1, 1}, 2);
    key = parts[0];
    value = parts[1];
  }
  query = view(query, {batch * length, heads, dim});
  key = view(key, {batch * length, pairs, dim});
  value = view(value, {batch * length, pairs, dim});
  Tensor out = flash_attention(device_, query, key, value);
  out = view(out, {batch, length, heads * dim});
  out = transpose(out, 0, 1);
  return row_linear(device_, out, layer.output->tensor("weight"));
}

Tensor NanotronLlama::run_layer(Layer& layer, const Tensor& input) {
  const LabelScope label(tape_, layer.module->label);
  Tensor hidden = rms_norm(device_, input, layer.input_norm->tensor("weight"));
  const Tensor attended = attend(layer, hidden);
  hidden = add(attended, input);
  const Tensor residual = hidden;
  hidden = rms_norm(device_, hidden, layer.attention_norm->tensor("weight"));
  {
    const Tensor merged = column_linear(device_, hidden, layer.gate_up->tensor("weight"));
    Tensor product;
    {
      const std::vector<Tensor> parts = split(merged, {sizes_.ffn, sizes_.ffn}, -1);
      const Tensor gate = silu(parts[0]);
      product = multiply(gate, parts[1]);
    }
    hidden = row_linear(device_, product, layer.down->tensor("weight"));
  }
  return add(hidden, residual);
}

Tensor NanotronLlama::hidden(const Tensor& input) {
  Tensor state = embedding_ ? embed(input) : input;
  for (Layer& layer : layers_) {
    if (!recomputes_) {
      state = run_layer(layer, state);
      continue;
    }
    const Region region = [this, &layer](const std::vector<Tensor>& arguments) { return run_layer(layer, arguments.front()); };
    state = checkpoint_reentrant(tape_, region, {state});  // _checkpointed_forward: CheckpointFunction.apply
  }
  return state;
}

Tensor NanotronLlama::loss(const Tensor& hidden, const Tensor& labels, const Tensor& label_mask) {
  Tensor logits;
  {
    Tensor normed;
    {
      const LabelScope label(tape_, final_norm_->label);
      normed = rms_norm(device_, hidden, final_norm_->tensor("weight"));
    }
    const LabelScope label(tape_, head_->label);
    const Tensor narrow = column_linear(device_, normed, head_->tensor("weight"));
    logits = to(narrow, DType::fp32);
  }
  const LabelScope label(tape_, tape_.intern("loss"));
  const Tensor turned = transpose(labels, 0, 1);
  const Tensor target = contiguous(turned);
  const Tensor token_losses = sharded_cross_entropy(device_, logits, target);
  const Tensor by_sequence = transpose(token_losses, 0, 1);
  return masked_mean(by_sequence, label_mask);
}

}  // namespace plimsoll::program
