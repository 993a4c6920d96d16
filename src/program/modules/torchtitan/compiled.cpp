#include "program/modules/torchtitan/compiled.hpp"

#include <utility>
#include <vector>

#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

namespace {

/// What a product's gradients read is there in 8 bits before: the gradient of its result, and its input.
struct Narrow {
  bool gradient = false, input = false;
};

/// Sizes of the block's tensors and the kernels that make them.
class Graph {
 public:
  Graph(Tape& tape, const CompiledBlock& block, const Tensor& x)
      : tape_(tape),
        group_(block.tensor_parallel),
        tokens_(x.elements() / x.size(-1) * group_.degree),
        batch_(x.size(0)),
        spec_(block.attention),
        inner_(block.intermediate),
        context_ranks_(block.context_ranks),
        recomputed_(block.recomputed),
        four_bits_(block.four_bits),
        scaling_(block.scaling),
        pieces_(block.pieces),
        library_(block.attention_library),
        type_(x.dtype()) {}

  std::int64_t query_width() const { return group_.share(spec_.heads * spec_.head_dim); }
  std::int64_t key_width() const { return group_.share(spec_.kv_heads * spec_.head_dim); }
  std::int64_t inner() const { return group_.share(inner_); }
  std::int64_t hidden() const { return spec_.hidden; }

  /// Whether what the ranks gather is cast before (torchao's float8 tensor-parallel styles, which take a scale per tensor alone).
  bool gathers_eight_bits() const { return group_.on() && scaling_ == Scaling::tensor; }

  /// A product of [tokens, in] with a weight [width, in], piece by piece while its input is being gathered. `cast_already`: of an input
  /// that another product has cast, or that was gathered so.
  Tensor product(std::int64_t in, std::int64_t width, bool cast_already = false) {
    Tensor y = tape_.empty({tokens_, width}, type_);
    const Tensor narrow = cast_already ? Tensor() : cast(tokens_, in, Scales::by_row), narrow_weight = cast(width, in, Scales::by_row);
    multiply(LinearPass::forward, in, width, gathering_ ? group_.degree : 1);
    return y;
  }
  /// A product of [tokens, in] with a weight [width, in] whose result is reduced and scattered over the ranks. Asynchronous tensor
  /// parallelism (fused_matmul_reduce_scatter) sends all pieces but the last while the product still works.
  Tensor product_scattered(std::int64_t in, std::int64_t width) {
    if (!group_.on() || !group_.asynchronous) return scattered(product(in, width));
    const std::int64_t bytes = tokens_ * width * size_of(type_);
    send_beside(CollectiveKind::reduce_scatter, bytes - bytes / group_.degree, type_);
    const Tensor partial = tape_.empty({tokens_, width}, type_);
    {
      const Tensor narrow = cast(tokens_, in, Scales::by_row), narrow_weight = cast(width, in, Scales::by_row);
      multiply(LinearPass::forward, in, width, group_.degree);
    }
    Tensor part = tape_.empty({tokens_ / group_.degree, width}, type_);
    send_beside(CollectiveKind::reduce_scatter, bytes / group_.degree, type_);
    tape_.wait(kComputeStream, pieces_);
    return part;
  }
  /// The gradient of the input of a layer with a weight [out, in].
  Tensor input_gradient(std::int64_t out, std::int64_t in, Narrow narrow = {}) {
    Tensor y = tape_.empty({tokens_, in}, type_);
    const Tensor narrow_gradient = narrow.gradient ? Tensor() : cast(tokens_, out, Scales::by_row),
                 narrow_weight = cast(out, in, Scales::by_column);
    multiply(LinearPass::input_gradient, in, out, gathering_ ? group_.degree : 1);
    await_gathered();
    return y;
  }
  /// The gradient of a weight [out, in]. `input_cast_already`: for another weight.
  Tensor weight_gradient(std::int64_t out, std::int64_t in, Narrow narrow = {}, bool input_cast_already = false) {
    await_gathered();
    Tensor y = tape_.empty({out, in}, type_);
    const Tensor narrow_gradient = narrow.gradient ? turn(tokens_, out) : cast(tokens_, out, Scales::by_column);
    Tensor narrow_input;
    if (!input_cast_already) narrow_input = narrow.input ? turn(tokens_, in) : cast(tokens_, in, Scales::by_column);
    multiply(LinearPass::weight_gradient, in, out, 1);
    return y;
  }
  /// Whether what was reduced and scattered behind attention is kept for the backward graph: selective checkpoints list reductions.
  bool keeps_reduced() const { return group_.on() && !recomputed_ && !four_bits_; }

  /// One generated kernel over [tokens, width].
  Tensor fused(std::int64_t width, DType type) {
    await_gathered();
    Tensor y = tape_.empty({tokens_, width}, type);
    generated(y);
    return y;
  }
  Tensor fused(std::int64_t width) { return fused(width, type_); }
  Tensor statistics() { return tape_.empty({batch_, group_.share(spec_.heads), tokens_ / batch_}, DType::fp32); }

  /// One generated kernel over the activations between the blocks, which tensor parallelism cuts over the sequence.
  Tensor fused_between() {
    await_gathered();
    Tensor y = tape_.empty({tokens_ / group_.degree, spec_.hidden}, type_);
    row_wise(tape_, RowWise::Function::rms_norm, y.size(0), y.size(1), {operand(y), operand(y)}, {operand(y)});
    return y;
  }
  /// The whole sequence of such activations: gathered over the first dimension, then put in order.
  Tensor gathered(Tensor part) {
    if (!group_.on()) return part;
    const DType type = gathers_eight_bits() ? DType::fp8 : type_;
    if (gathers_eight_bits()) cast(tokens_ / group_.degree, spec_.hidden, Scales::by_row);
    Tensor flat = tape_.empty({tokens_, spec_.hidden}, type, Category::communication_buffer);
    if (group_.asynchronous) {  // fused_all_gather_matmul: the next product works through the pieces that are there
      send_beside(CollectiveKind::all_gather, flat.bytes(), type);
      gathering_ = true;
    } else {
      communicate(CollectiveKind::all_gather, flat);
    }
    part.reset();
    return group_.asynchronous || batch_ == 1 ? flat : put_in_order(flat);
  }
  /// The ranks' partial sums, reduced, this rank's part of the sequence.
  Tensor scattered(Tensor partial) {
    if (!group_.on()) return partial;
    if (!group_.asynchronous && batch_ > 1) partial = put_in_order(partial);
    return reduced(partial);
  }
  /// The sum of gradients of one input of several products, which one kernel writes in the order that is scattered.
  Tensor sum_of(std::vector<Tensor> gradients) {
    Tensor sum = fused(spec_.hidden);
    if (!group_.on()) return sum;
    gradients.clear();
    sum = reduced(sum);
    return fused_between();
  }
  /// Keys and values side by side, and those of all context-parallel ranks (_AllGatherRotater); nothing without such ranks.
  std::vector<Tensor> rotated() {
    if (context_ranks_ == 1) return {};
    const Tensor own = tape_.empty({2, tokens_, query_width()}, type_, Category::communication_buffer);
    Tensor all = tape_.empty({context_ranks_, 2, tokens_, query_width()}, type_, Category::communication_buffer);
    tape_.collective({.kind = CollectiveKind::all_gather, .group = Group::context, .bytes = all.bytes(), .type = type_}, kComputeStream);
    return {own, all};
  }
  /// Flash attention over repeated keys and values. Of several context-parallel ranks, the first one's part: once with its own keys, then
  /// with those of every other rank, which half of its queries see whole (head-tail balance), each result merged in fp32.
  void attend(bool backward) {
    for (std::int64_t rank = 0; rank < context_ranks_; ++rank) {
      const bool own = rank == 0;
      const auto run = [&](Attention::Part part) { tape_.kernel({attention_of(part, own)}); };
      if (backward) {
        for (const Attention::Part part : {Attention::Part::delta, Attention::Part::backward, Attention::Part::convert}) run(part);
        if (context_ranks_ > 1) pass_gradients_on();
      } else {
        run(Attention::Part::forward);
        if (context_ranks_ > 1) merge(own);
      }
    }
  }

 private:
  Attention attention_of(Attention::Part part, bool own_keys) const {
    Attention attention;
    attention.library = library_;
    attention.part = part;
    attention.type = type_;
    attention.causal = own_keys;
    attention.batch = batch_;
    attention.heads = attention.kv_heads = group_.share(spec_.heads);
    attention.keys = tokens_ / batch_;
    attention.queries = own_keys ? attention.keys : attention.keys / 2;
    attention.head_dim = attention.value_dim = spec_.head_dim;
    return attention;
  }
  /// _SDPAMerger.step: the partial result in fp32; from the second one on (of half the queries) difference, scaling, subtraction, and the
  /// merged result put together anew.
  void merge(bool first) {
    const std::int64_t whole = tokens_ * query_width(), part = first ? whole : whole / 2;
    const auto map = [&](DType from) { pointwise(tape_, Pointwise::Form::map, {packed(part, from)}, {packed(part, DType::fp32)}); };
    map(type_);
    if (first) return;
    for (int i = 0; i < 3; ++i) map(DType::fp32);
    pointwise(tape_, Pointwise::Form::concatenate, {packed(whole, DType::fp32)}, {packed(whole, DType::fp32)});
  }
  /// Gradients of keys and values go around the ring in fp32, beside the sum of the queries' own.
  void pass_gradients_on() {
    const Operand pair = packed(2 * tokens_ * query_width(), DType::fp32);
    pointwise(tape_, Pointwise::Form::map, {packed(pair.elements, type_), pair}, {pair});
    tape_.collective({.kind = CollectiveKind::send, .group = Group::context, .bytes = pair.bytes(), .type = DType::fp32}, kComputeStream);
  }

  /// A generated kernel that reads two tensors like y and writes it.
  void generated(const Tensor& y) { pointwise(tape_, Pointwise::Form::fused, {operand(y), operand(y)}, {operand(y)}); }
  bool low() const { return scaling_ != Scaling::none; }
  enum class Scales : std::uint8_t {
    by_row,    ///< what a product sums over lies along the rows; of a whole tensor: its scale is to be found
    by_column  ///< along the columns; of a whole tensor: the scale is that of the first cast, which the graph keeps
  };
  /// A matrix in 8 or 4 bits, which are said to be 8; nothing where products take 16. Largest magnitudes and the cast: along rows in one
  /// generated kernel, of a whole tensor or along columns in two; along columns the result is written the other way round.
  Tensor cast(std::int64_t rows, std::int64_t columns, Scales scales) {
    if (!low()) return {};
    Tensor y = tape_.empty({rows, columns}, DType::fp8);
    const Operand high = packed(rows * columns, type_);
    Operand narrow = packed(rows * columns, DType::fp8);
    const bool whole = scaling_ == Scaling::tensor, by_column = scales == Scales::by_column;
    if (scaling_ == Scaling::nvfp4) largest_of_all(high);  // scales of blocks are themselves scaled, by the tensor
    if (!whole && !by_column) {
      row_wise(tape_, RowWise::Function::quantize, rows, columns, {high}, {narrow});
      return y;
    }
    if (scaling_ == Scaling::row) reduce(tape_, Reduction::Axis::outer, columns, {high}, {packed(columns, DType::fp32)});
    if (whole && !by_column) largest_of_all(high);
    if (!whole) narrow.walk = Walk::transposed;
    pointwise(tape_, Pointwise::Form::fused, {high}, {narrow});
    return y;
  }
  /// The largest magnitude of a tensor that the ranks hold parts of.
  void largest_of_all(const Operand& part) {
    reduce(tape_, Reduction::Axis::all, 1, {part}, {packed(1, DType::fp32)});
    if (!group_.on()) return;
    tape_.collective({.kind = CollectiveKind::all_reduce, .group = Group::tensor, .bytes = size_of(DType::fp32), .type = DType::fp32},
                     kComputeStream);
  }
  /// A matrix of 8 bits in the other layout.
  Tensor turn(std::int64_t rows, std::int64_t columns) {
    Tensor y = tape_.empty({rows, columns}, DType::fp8);
    pointwise(tape_, Pointwise::Form::fused, {operand(y)}, {operand(y)});
    return y;
  }
  /// A gathered sequence rank by rank as rows of the batch, or the other way round.
  Tensor put_in_order(const Tensor& flat) {
    Tensor y = tape_.empty(flat.sizes(), flat.dtype());
    pointwise(tape_, Pointwise::Form::fused, {operand(flat)}, {operand(y)});
    return y;
  }
  Tensor reduced(const Tensor& partial) {
    Tensor part = tape_.empty({tokens_ / group_.degree, spec_.hidden}, type_);
    communicate(CollectiveKind::reduce_scatter, partial);
    return part;
  }
  /// 8-bit operands are taken in one layout alone (torch._scaled_mm); 4-bit ones are said to have 8 bits, the least of a tensor here.
  /// `pieces`: of the tokens, one product each, where a collective comes or goes beside them.
  void multiply(LinearPass pass, std::int64_t in, std::int64_t out, std::int64_t pieces) {
    LinearShape shape{tokens_ / pieces, in, out, low() ? DType::fp8 : type_, type_};
    shape.turned = low();
    for (std::int64_t piece = 0; piece < pieces; ++piece) linear_product(tape_, pass, shape, {.scaling = scaling_});
  }
  /// Pieces that come and go on a stream of their own.
  void send_beside(CollectiveKind kind, std::int64_t bytes, DType type) {
    tape_.wait(pieces_, kComputeStream);
    tape_.collective({.kind = kind, .group = Group::tensor, .bytes = bytes, .type = type, .expected = true}, pieces_);
  }
  void await_gathered() {
    if (std::exchange(gathering_, false)) tape_.wait(kComputeStream, pieces_);
  }
  void communicate(CollectiveKind kind, const Tensor& whole) {
    tape_.collective({.kind = kind, .group = Group::tensor, .bytes = whole.bytes(), .type = whole.dtype()}, kComputeStream);
  }

  Tape& tape_;
  TensorParallel group_;
  std::int64_t tokens_, batch_;
  AttentionSpec spec_;
  std::int64_t inner_;
  std::int64_t context_ranks_;
  bool recomputed_, four_bits_;
  Scaling scaling_;
  StreamId pieces_;
  AttentionLibrary library_;
  bool gathering_ = false;  ///< what was gathered last has not been waited for
  DType type_;
};

/// What attention reads: rotated queries, and keys and values repeated for them.
struct Heads {
  Tensor query, keys, values;
};

Heads heads_of(Graph& g) { return {g.fused(g.query_width()), g.fused(g.query_width()), g.fused(g.query_width())}; }

/// What the forward graph makes that the backward graph may read: kept, or made again there.
struct Kept {
  Tensor normed, query, key, value, out, statistics;
  Tensor attended;  ///< attention's projected output: reduced and scattered, or the residual stream behind it
  Tensor mlp_normed, gate;
  Heads heads;  ///< where the backward graph runs attention's forward too
};

/// The forward up to the gate projection. `all`: of a layer that is computed again for its backward, which reads what lies between as well.
Kept attention_and_gate(Graph& g, bool all) {
  Kept kept;
  const bool gathered = g.gathers_eight_bits();
  kept.normed = g.gathered(g.fused_between());
  kept.query = g.product(g.hidden(), g.query_width(), gathered);
  kept.key = g.product(g.hidden(), g.key_width(), true);
  kept.value = g.product(g.hidden(), g.key_width(), true);
  if (!all) kept.normed.reset();
  {
    const Heads heads = heads_of(g);
    if (!all) kept.key.reset();
    const std::vector<Tensor> ring = g.rotated();
    kept.out = g.fused(g.query_width());
    kept.statistics = g.statistics();
    g.attend(false);
  }
  kept.attended = g.product_scattered(g.query_width(), g.hidden());
  kept.mlp_normed = g.gathered(g.fused_between());
  kept.gate = g.product(g.hidden(), g.inner(), gathered);
  return kept;
}

/// Attention's forward in the backward graph.
void attend_again(Graph& g, Kept& kept) {
  kept.heads = heads_of(g);
  const std::vector<Tensor> ring = g.rotated();
  kept.out = g.fused(g.query_width());
  kept.statistics = g.statistics();
  g.attend(false);
}

/// The products that NVFP4 blocks compute again, beside attention's output.
void products_again(Graph& g, Kept& kept) {
  kept.normed = g.gathered(g.fused_between());
  kept.query = g.product(g.hidden(), g.query_width());
  kept.value = g.product(g.hidden(), g.key_width(), true);
  kept.attended = g.product_scattered(g.query_width(), g.hidden());
  kept.mlp_normed = g.gathered(g.fused_between());
  kept.gate = g.product(g.hidden(), g.inner());
}

/// Everything that the forward makes; its result.
Tensor forward_graph(Graph& g, Kept& kept) {
  kept = attention_and_gate(g, false);
  Tensor up = g.product(g.hidden(), g.inner(), true);
  kept.mlp_normed.reset();
  const Tensor product = g.fused(g.inner());
  up.reset();
  Tensor y = g.product_scattered(g.inner(), g.hidden());
  if (!g.keeps_reduced()) kept.attended.reset();
  return y;
}

/// Positions of the weights among the node's inputs, behind x.
enum Input : std::size_t { kX, kQuery, kKey, kValue, kOutput, kGate, kDown, kUp, kAttentionNorm, kFfnNorm };

/// The feed-forward half: gradients of its weights; the gradient of the hidden states between the halves.
Tensor feed_forward_backward(BackwardCall& b, Graph& g, Tensor up, Tensor product, Tensor gate, Tensor normed) {
  const bool gathered = g.gathers_eight_bits();
  const Tensor incoming = g.gathered(b.take_grad());
  b.give(kDown, g.weight_gradient(g.hidden(), g.inner(), {.gradient = gathered}));
  Tensor of_product = g.input_gradient(g.hidden(), g.inner(), {.gradient = gathered});
  product.reset();
  Tensor of_up = g.fused(g.inner()), of_gate = g.fused(g.inner());
  of_product.reset();
  up.reset();
  gate.reset();
  b.give(kGate, g.weight_gradient(g.inner(), g.hidden(), {.input = gathered}));
  Tensor through_gate = g.input_gradient(g.inner(), g.hidden());
  of_gate.reset();
  b.give(kUp, g.weight_gradient(g.inner(), g.hidden(), {}, true));
  Tensor through_up = g.input_gradient(g.inner(), g.hidden());
  of_up.reset();
  normed.reset();
  return g.sum_of({std::move(through_gate), std::move(through_up)});
}

struct AttentionGradients {
  Tensor query, key, value;
};

/// Attention's own backward, over repeated keys and values.
AttentionGradients attention_backward(BackwardCall& b, Graph& g, Kept& kept, const Tensor& of_hidden) {
  AttentionGradients wide;
  {
    const Tensor incoming = g.gathered(of_hidden);
    const bool gathered = g.gathers_eight_bits();
    const Tensor of_out = g.input_gradient(g.hidden(), g.query_width(), {.gradient = gathered});
    b.give(kOutput, g.weight_gradient(g.hidden(), g.query_width(), {.gradient = gathered}));
    const Heads heads = kept.heads.query ? std::move(kept.heads) : heads_of(g);
    const std::vector<Tensor> ring = g.rotated();
    const Tensor accumulator = g.fused(g.query_width(), DType::fp32), products = g.statistics();
    wide = {g.fused(g.query_width()), g.fused(g.query_width()), g.fused(g.query_width())};
    g.attend(true);
  }
  kept.out.reset();
  kept.statistics.reset();
  return wide;
}

void backward_graph(BackwardCall& b, Graph& g, Kept kept) {
  const bool gathered = g.gathers_eight_bits(), cast_already = gathered || kept.mlp_normed;
  if (!kept.normed) kept.normed = g.gathered(g.fused_between());
  if (!kept.key) kept.key = g.product(g.hidden(), g.key_width(), gathered);
  if (!kept.out) attend_again(g, kept);
  if (!kept.attended) kept.attended = g.product_scattered(g.query_width(), g.hidden());
  if (!kept.mlp_normed) kept.mlp_normed = g.gathered(g.fused_between());
  Tensor of_hidden;
  {
    Tensor up = g.product(g.hidden(), g.inner(), cast_already), product = g.fused(g.inner());
    of_hidden = feed_forward_backward(b, g, std::move(up), std::move(product), std::move(kept.gate), std::move(kept.mlp_normed));
  }
  AttentionGradients grad = attention_backward(b, g, kept, of_hidden);
  kept.attended.reset();
  {
    AttentionGradients narrow{g.fused(g.query_width()), g.fused(g.key_width()), g.fused(g.key_width())};
    grad = std::move(narrow);
  }
  b.give(kQuery, g.weight_gradient(g.query_width(), g.hidden(), {.input = gathered}));
  Tensor through_query = g.input_gradient(g.query_width(), g.hidden());
  grad.query.reset();
  b.give(kKey, g.weight_gradient(g.key_width(), g.hidden(), {}, true));
  Tensor through_key = g.input_gradient(g.key_width(), g.hidden());
  grad.key.reset();
  b.give(kValue, g.weight_gradient(g.key_width(), g.hidden(), {}, true));
  Tensor through_value = g.input_gradient(g.key_width(), g.hidden());
  grad.value.reset();
  kept = {};
  const Tensor gradient = g.sum_of({std::move(through_query), std::move(through_key), std::move(through_value)});
  Tensor shaped = b.tape.view(gradient, b.saved(0).sizes(), contiguous_strides(b.saved(0).sizes()));
  shaped.impl()->base.reset();  // the graph's own output
  b.give(kX, std::move(shaped));
}

}  // namespace

Tensor run_compiled(Tape& tape, const CompiledBlock& block, const Tensor& x) {
  Module& attention = block.module->child("attention");
  Module& projections = attention.child("qkv_linear");
  Module& mlp = block.module->child("feed_forward");
  const auto weight = [](Module& of, const char* name) { return &of.child(name).tensor("weight"); };
  CompiledLayerGraph op("compiled_block", {&x, weight(projections, "wq"), weight(projections, "wk"), weight(projections, "wv"),
                                           weight(attention, "wo"), weight(mlp, "w1"), weight(mlp, "w2"), weight(mlp, "w3"),
                                           weight(*block.module, "attention_norm"), weight(*block.module, "ffn_norm")});
  Graph graph(tape, block, x);
  Kept kept;
  Tensor y;
  {
    const GradMode no_grad(tape, false);
    const Tensor flat = forward_graph(graph, kept);
    y = unsafe_view(flat, x.sizes());
  }
  op.save(x);
  if (!block.recomputed) {
    for (const Tensor* tensor : {&kept.query, &kept.value}) op.save_if(!block.four_bits, *tensor);
    for (const Tensor* tensor : {&kept.out, &kept.statistics}) op.save_if(!block.attends_again, *tensor);
    op.save_if(!block.four_bits, kept.gate);
    op.save_if(graph.keeps_reduced(), kept.attended);
  }
  return op.done(
      y, [graph, recomputed = block.recomputed, four_bits = block.four_bits, width = block.attention.hidden](BackwardCall& b) mutable {
        const Tensor input = b.saved(0);
        Kept again;
        if (recomputed) {
          again = attention_and_gate(graph, true);
        } else {
          again.query = b.take_saved(1), again.value = b.take_saved(2);
          again.out = b.take_saved(3), again.statistics = b.take_saved(4);
          again.gate = b.take_saved(5), again.attended = b.take_saved(6);
          if (four_bits) products_again(graph, again);
        }
        backward_graph(b, graph, std::move(again));
        for (const Input norm : {kAttentionNorm, kFfnNorm}) b.give(norm, b.tape.empty({width}, input.dtype()));
      });
}

}  // namespace plimsoll::program
