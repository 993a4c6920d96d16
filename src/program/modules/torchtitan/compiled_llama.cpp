#include "program/modules/torchtitan/compiled_llama.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "plimsoll/error.hpp"
#include "program/modules/inductor_graph.hpp"
#include "program/modules/torchtitan/rope.hpp"
#include "program/modules/transformers/compiled/attention.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

using inductor::Graph;
using inductor::Turned;
using inductor::Value;

namespace {

constexpr DType kFp32 = DType::fp32;
constexpr DType kComplex = DType::complex64;
constexpr const char* kName = "compiled_block";

/// What the graphs know by name: the block's arguments, then what the forward graph makes.
enum Slot : std::size_t {
  kInput, kTable, kPositions, kAttentionNorm, kQkv, kOutput, kFeedForwardNorm, kGate, kUp, kDown,
  kArguments,
  kScale = kArguments, kNormed, kProjections, kRows, kQuery, kKey, kValue, kAttended, kLogSumExp, kRngState, kRngOffset, kProjected,
  kMiddleScale, kMiddleNormed, kGated, kRaised, kActivated,
  kSlots
};

using Values = std::vector<Value>;
using Checkpointing = TitanRun::Checkpointing;

struct Shape {
  std::int64_t batch = 0, length = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, inner = 0;
  DType type = DType::bf16;
  Checkpointing checkpointing = Checkpointing::none;
  bool flex = false;
  TensorParallel group;

  std::int64_t rows() const { return batch * length; }
  std::int64_t query_width() const { return heads * head_dim; }
  std::int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  /// What the backward graph is given: with selective checkpoints what their policy lists (attention, every second product), else what the
  /// partitioner cuts at; a block that is checkpointed as a whole its arguments alone.
  bool is_kept(std::size_t slot) const {
    if (slot >= kAttended && slot <= kRngOffset) return checkpointing != Checkpointing::full && !(flex && slot > kLogSumExp);
    if (checkpointing == Checkpointing::operators) return slot == kProjections || slot == kGated;
    return checkpointing == Checkpointing::none && slot >= kArguments && slot != kProjections;
  }
  /// Of the arguments the backward graph is given all but, where the rows of the table are kept, what they were read with.
  bool is_read_again(std::size_t argument) const {
    return checkpointing != Checkpointing::none || (argument != kTable && argument != kPositions);
  }
};

/// [batch, heads, length, width] over [batch, length, heads, width] packed.
Tensor heads_of(const Tensor& x, const Shape& s, std::int64_t heads) {
  return x.tape().view(x, {s.batch, heads, s.length, s.head_dim}, {s.length * heads * s.head_dim, s.head_dim, heads * s.head_dim, 1});
}

/// The graphs of both directions, told operation by operation as they are traced.
class LlamaGraph {
 public:
  LlamaGraph(Graph& graph, const Shape& shape, std::array<Value, kSlots>& values, const Tape& tape)
      : g_(graph), s_(shape), v_(values), tape_(tape) {}

  /// The block's result.
  Value forward() {
    forward_only_ = s_.checkpointing == Checkpointing::full;
    to_gate();
    raise();
    activate();
    const Value down = scattered({product(kActivated, kDown, s_.hidden, s_.inner)});
    return g_.pointwise(stream(), s_.type, {v_[kInput], v_[kProjected], down}, {v_[kProjected], down});
  }

  /// Gradients of the arguments, undefined where they have none.
  std::array<Value, kArguments> backward(Value incoming) {
    const Value residual = incoming;
    incoming = gathered(reorders() ? g_.pointwise(stream(), s_.type, {incoming}) : incoming);
    if (s_.checkpointing == Checkpointing::full) {
      to_gate();
      raise();
    } else if (s_.checkpointing == Checkpointing::operators) {
      v_[kProjected] = product(kAttended, kOutput, s_.hidden, s_.query_width());
      norm(kMiddleScale, kMiddleNormed, kFeedForwardNorm, middle());
      raise();
    }
    const bool again = !v_[kActivated].defined();
    if (again) activate();
    gradients_[kDown] = to_weight(incoming, kActivated, s_.hidden, s_.inner);
    const Values normed = through_gates(incoming, again);
    NormGradient middle_norm = through_norm(kMiddleScale, kFeedForwardNorm, normed, middle(), {residual});
    const Value of_middle = gathered(reorders() ? in_rows_of_its_own(middle_norm) : middle_norm.result);
    gradients_[kOutput] = to_weight(of_middle, kAttended, s_.hidden, s_.query_width());
    const Value of_attended = to_input(of_middle, kOutput, s_.hidden, s_.query_width());
    const Value projections = through_attention(of_attended);
    Values recomputed;
    if (!v_[kNormed].defined()) recomputed = norm(kScale, kNormed, kAttentionNorm, {v_[kInput]});
    gradients_[kQkv] = to_weight(projections, kNormed, s_.qkv_width(), s_.hidden);
    const Value of_normed = scattered({to_input(projections, kQkv, s_.qkv_width(), s_.hidden)});
    const NormGradient first_norm = through_norm(kScale, kAttentionNorm, {of_normed}, {v_[kInput]}, {middle_norm.result});
    gradients_[kInput] = first_norm.result;
    fuse_norms(middle_norm, first_norm, recomputed);
    return gradients_;
  }

 private:
  /// Between the products: with sequence parallelism a rank's part of the sequence.
  std::int64_t part() const { return s_.length / s_.group.degree; }
  std::int64_t stream_rows() const { return s_.batch * part(); }
  Dims stream() const { return {s_.batch, part(), s_.hidden}; }
  Dims per_row() const { return {s_.batch, part(), 1}; }
  Dims inner() const { return {s_.batch, s_.length, s_.inner}; }
  Values middle() const { return {v_[kInput], v_[kProjected]}; }

  /// x · wᵀ of a linear with a weight [out, in].
  Value product(Slot input, Slot weight, std::int64_t out, std::int64_t in) {
    return g_.product(s_.type, s_.rows(), out, in, {v_[input], v_[weight]}, Turned::right);
  }
  Value to_input(Value gradient, Slot weight, std::int64_t out, std::int64_t in) {
    return g_.product(s_.type, s_.rows(), in, out, {gradient, v_[weight]}, Turned::neither);
  }
  Value to_weight(Value gradient, Slot input, std::int64_t out, std::int64_t in) {
    return g_.product(s_.type, out, in, s_.rows(), {gradient, v_[input]}, Turned::left);
  }

  // ---- sequence parallelism: spmd_types' collectives, which are functional ones in the graph ------------------------------

  /// Whether what is exchanged has the sequence in front of the batch, and that is another order of its elements.
  bool reorders() const { return s_.group.on() && s_.batch > 1; }
  Value exchange(CollectiveKind kind, Value from, const Dims& sizes) {
    const DType type = s_.type;
    const Value result = g_.call({from}, {{sizes, type}}, [=](const std::vector<Tensor>& in) {
                            Tape& tape = in[0].tape();
                            Tensor all = tape.empty(sizes, type);
                            const auto whole = std::max(all.bytes(), in[0].bytes());
                            tape.collective({.kind = kind, .group = Group::tensor, .bytes = whole, .type = type}, kComputeStream);
                            return std::vector<Tensor>{std::move(all)};
                          }).front();
    skip_names(2);  // of the wait
    return result;
  }
  /// The ranks' parts one behind the other, then side by side as the sequence.
  Value gathered(Value part_of_it) {
    if (!s_.group.on()) return part_of_it;
    const Value parts = exchange(CollectiveKind::all_gather, part_of_it, {s_.batch * s_.group.degree, part(), s_.hidden});
    return g_.pointwise({s_.batch, s_.length, s_.hidden}, s_.type, {parts});
  }
  /// Partial sums with the sequence in front, which is cut over the ranks; of one rank as they are.
  Value scattered(const Values& sums) {
    if (!s_.group.on()) return sums.front();
    const bool as_it_is = !reorders() && sums.size() == 1;
    const Values replaced = reorders() ? Values{} : sums;
    const Value turned = as_it_is ? sums.front() : g_.pointwise({s_.length, s_.batch, s_.hidden}, s_.type, sums, replaced);
    return exchange(CollectiveKind::reduce_scatter, turned, {part(), s_.batch, s_.hidden});
  }

  // ---- forward ---------------------------------------------------------------------------------------------------------

  /// An RMS norm: its sums over columns, of which 1/sqrt is a buffer where it is kept, and its result, one kernel.
  Values norm(Slot scale, Slot normed, Slot weight, Values reads) {
    const Value mean = g_.reduction(per_row(), kFp32, reads);
    v_[scale] = s_.is_kept(scale) ? g_.pointwise(per_row(), kFp32, {mean}, {mean}) : mean;
    reads.insert(reads.end(), {v_[scale], v_[weight]});
    v_[normed] = g_.pointwise(stream(), s_.type, reads);
    g_.fuse({mean, v_[scale], v_[normed]});
    return {mean, v_[normed]};
  }

  void to_gate() {
    norm(kScale, kNormed, kAttentionNorm, {v_[kInput]});
    v_[kNormed] = gathered(v_[kNormed]);
    v_[kProjections] = product(kNormed, kQkv, s_.qkv_width(), s_.hidden);
    turn();
    attend();
    v_[kProjected] = scattered({product(kAttended, kOutput, s_.hidden, s_.query_width())});
    norm(kMiddleScale, kMiddleNormed, kFeedForwardNorm, middle());
    v_[kMiddleNormed] = gathered(v_[kMiddleNormed]);
    v_[kGated] = product(kMiddleNormed, kGate, s_.inner, s_.hidden);
  }
  void raise() { v_[kRaised] = product(kMiddleNormed, kUp, s_.inner, s_.hidden); }
  void activate() { v_[kActivated] = g_.pointwise(inner(), s_.type, {v_[kGated], v_[kRaised]}, {v_[kGated], v_[kRaised]}); }

  /// freqs_cis of the tokens' positions: complex numbers, for which Inductor makes no code, so that ATen's operators run.
  void look_up_rows() {
    if (s_.batch > 1) skip_names(2);
    const Shape s = s_;
    v_[kRows] = g_.call({v_[kTable], v_[kPositions]}, {{{s.batch, s.length, 1, s.head_dim / 2}, kComplex}}, [s](const std::vector<Tensor>& in) {
                    const Tensor rows = s.batch == 1 ? table_rows(in[0], in[1]) : gather_rows(in[0], in[1]);
                    return std::vector<Tensor>{view(rows, {s.batch, s.length, 1, s.head_dim / 2})};
                  }).front();
  }

  Dims pairs(std::int64_t heads) const { return {s_.batch, s_.length, heads, s_.head_dim / 2, 2}; }
  /// Neighbouring elements as complex fp32 numbers; the kernel that widens them reads a part of the projections.
  Value paired(Value from, std::int64_t heads) {
    const Value wide = g_.pointwise(pairs(heads), kFp32, {from});
    skip_names(1);
    return wide;
  }
  Value turned(Value wide, Value rows, std::int64_t heads) {
    return g_.call({wide, rows}, {{{s_.batch, s_.length, heads, s_.head_dim / 2}, kComplex}}, [](const std::vector<Tensor>& in) {
               return std::vector<Tensor>{multiply_complex(view_as_complex(in[0]), in[1])};
             }).front();
  }
  Value narrowed(Value from, std::int64_t heads) { return g_.pointwise({s_.batch, s_.length, heads, s_.head_dim}, s_.type, {from}); }

  void turn() {
    look_up_rows();
    const Value wide_query = paired(v_[kProjections], s_.heads), wide_key = paired(v_[kProjections], s_.kv_heads);
    turned_query_ = turned(wide_query, v_[kRows], s_.heads);
    turned_key_ = turned(wide_key, v_[kRows], s_.kv_heads);
    narrow();
  }
  void narrow() {
    v_[kQuery] = narrowed(turned_query_, s_.heads);
    v_[kKey] = narrowed(turned_key_, s_.kv_heads);
    v_[kValue] = narrowed(v_[kProjections], s_.kv_heads);
  }

  static FlashOutputs attended(const Shape& s, const std::vector<Tensor>& in) {
    return compiled_attention_forward({heads_of(in[0], s, s.heads), heads_of(in[1], s, s.kv_heads), heads_of(in[2], s, s.kv_heads), {}},
                                      {.causal = true, .enable_gqa = s.kv_heads < s.heads});
  }

  void attend() {
    if (s_.flex) return attend_flex();
    const Shape s = s_;
    const Dims heads{s.batch, s.heads, s.length, s.head_dim}, statistics{s.batch, s.heads, s.length};
    std::vector<Graph::Output> outputs{{heads, s.type}};
    if (!forward_only_) outputs.insert(outputs.end(), {{statistics, kFp32}, {{2}, DType::int64}, {{1}, DType::int64}});
    const Values results = g_.call({v_[kQuery], v_[kKey], v_[kValue]}, outputs, [s](const std::vector<Tensor>& in) {
      FlashOutputs all = attended(s, in);
      return std::vector<Tensor>{std::move(all.output), std::move(all.log_sum_exp), std::move(all.rng_state), std::move(all.rng_offset)};
    });
    skip_names(5 - static_cast<int>(results.size()));
    for (std::size_t i = 0; i < results.size(); ++i) v_[kAttended + i] = results[i];
  }
  void attend_flex() {
    const Shape s = s_;
    const Values results = g_.call({v_[kQuery], v_[kKey], v_[kValue]},
                                   {{{s.batch, s.heads, s.length}, kFp32}, {{s.batch, s.heads, s.length, s.head_dim}, s.type}},
                                   [s](const std::vector<Tensor>& in) {
                                     FlexOutputs all = flex_attention_forward(heads_of(in[0], s, s.heads), heads_of(in[1], s, s.kv_heads),
                                                                              heads_of(in[2], s, s.kv_heads));
                                     return std::vector<Tensor>{std::move(all.log_sum_exp), std::move(all.output)};
                                   });
    skip_names(2);
    v_[kLogSumExp] = results[0], v_[kAttended] = results[1];
  }

  // ---- backward --------------------------------------------------------------------------------------------------------

  /// Gradients of the middle norm's result, from the products up and gate.
  Values through_gates(Value incoming, bool again) {
    const Value down = to_input(incoming, kDown, s_.hidden, s_.inner);
    const Value raised = g_.pointwise(inner(), s_.type, {down, v_[kGated]});
    gradients_[kUp] = to_weight(raised, kMiddleNormed, s_.inner, s_.hidden);
    const Value from_up = to_input(raised, kUp, s_.inner, s_.hidden);
    const Value gated = g_.pointwise(inner(), s_.type, {down, v_[kGated], v_[kRaised]}, {v_[kRaised]});
    gradients_[kGate] = to_weight(gated, kMiddleNormed, s_.inner, s_.hidden);
    const Value from_gate = to_input(gated, kGate, s_.inner, s_.hidden);
    Values kernel{raised, gated};
    if (again) kernel.push_back(v_[kActivated]);
    g_.fuse(kernel);
    if (s_.group.on()) return {scattered({from_up, from_gate})};
    return {from_up, from_gate};
  }

  struct NormGradient {
    Value sum;             ///< over columns
    Value parts, total;    ///< over rows, of the weight
    Value result;          ///< of the norm's input, with the residual's
    Value copied;          ///< the result in the order of a gather's input
  };

  /// The gradient of the stream has the sequence in front of the batch; what is gathered is a copy with the batch in front.
  Value in_rows_of_its_own(NormGradient& norm) { return norm.copied = g_.pointwise(stream(), s_.type, {norm.result}); }

  NormGradient through_norm(Slot scale, Slot weight, const Values& gradients, const Values& input, const Values& residual) {
    Values reads = gradients;
    reads.insert(reads.end(), input.begin(), input.end());
    reads.push_back(v_[scale]);
    Values weighted = reads;
    weighted.push_back(v_[weight]);
    NormGradient norm;
    norm.sum = g_.reduction(per_row(), kFp32, weighted);
    const std::int64_t parts = inductor::outer_sum_splits(tape_, stream_rows(), s_.hidden);
    norm.parts = parts > 1 ? g_.reduction({parts, s_.hidden}, kFp32, reads) : Value{};
    norm.total = g_.reduction({s_.hidden}, kFp32, parts > 1 ? Values{norm.parts} : reads);
    if (parts <= 1) norm.parts = norm.total;
    gradients_[weight] = g_.pointwise({s_.hidden}, s_.type, {norm.total});
    g_.fuse({norm.total, gradients_[weight]});
    weighted.insert(weighted.end(), residual.begin(), residual.end());
    weighted.push_back(norm.sum);
    norm.result = g_.pointwise(stream(), s_.type, weighted);
    return norm;
  }

  /// Sums over rows of both norms are one kernel; with it goes what sums over the first norm's columns, unless it also makes the scale that
  /// the sums read.
  void fuse_norms(const NormGradient& second, const NormGradient& first, Values recomputed) {
    g_.fuse(second.copied.defined() ? Values{second.sum, second.result, second.copied} : Values{second.sum, second.result});
    const bool mixed = recomputed.empty() && inductor::mixes_reduction_orders(stream_rows(), s_.hidden);
    if (mixed) {
      g_.mix({first.sum, first.result}, {second.parts, first.parts}, {second.total, first.total}, stream_rows(), s_.hidden);
      return;
    }
    g_.fuse({second.parts, first.parts});
    recomputed.insert(recomputed.end(), {first.sum, first.result});
    g_.fuse(recomputed);
  }

  /// The gradient of the projections, from that of attention's result.
  Value through_attention(Value gradient) {
    if (s_.checkpointing == Checkpointing::operators) turn();
    if (s_.checkpointing == Checkpointing::full) {
      const Values before{v_[kQuery], v_[kKey], v_[kValue]};
      narrow();
      for (std::size_t i = 0; i < before.size(); ++i) g_.fuse({before[i], v_[kQuery + i]});
    }
    const Values of_heads = s_.flex ? flex_backward(gradient) : flash_backward(gradient);
    const Value wide_key = paired(of_heads[1], s_.kv_heads), rows = conjugate();
    const Value key = turned(wide_key, rows, s_.kv_heads);
    const Value wide_query = paired(of_heads[0], s_.heads);
    const Value query = turned(wide_query, rows, s_.heads);
    return g_.pointwise({s_.batch, s_.length, s_.kv_heads, s_.heads / s_.kv_heads + 2, s_.head_dim}, s_.type, {query, key, of_heads[2]});
  }
  Values flash_backward(Value gradient) {
    const Shape s = s_;
    const Dims wide{s.batch, s.heads, s.length, s.head_dim}, slim{s.batch, s.kv_heads, s.length, s.head_dim};
    return g_.call(
        {gradient, v_[kQuery], v_[kKey], v_[kValue], v_[kAttended], v_[kLogSumExp], v_[kRngState], v_[kRngOffset]},
        {{wide, s.type}, {slim, s.type}, {slim, s.type}}, [s](const std::vector<Tensor>& in) {
          const Dims sizes{s.batch, s.length, s.heads, s.head_dim};
          const Tensor of_result = in[0].tape().view(in[0], sizes, contiguous_strides(sizes));
          FlashGradients all = compiled_attention_backward(
              {heads_of(in[1], s, s.heads), heads_of(in[2], s, s.kv_heads), heads_of(in[3], s, s.kv_heads), {}}, of_result,
              {.causal = true, .enable_gqa = s.kv_heads < s.heads});
          return std::vector<Tensor>{std::move(all.query), std::move(all.key), std::move(all.value)};
        });
  }
  Values flex_backward(Value gradient) {
    const Shape s = s_;
    skip_names(1);
    const Value delta = g_.reduction({s.batch, s.heads, s.length}, kFp32, {v_[kAttended], gradient});
    const Dims wide{s.batch, s.heads, s.length, s.head_dim}, slim{s.batch, s.kv_heads, s.length, s.head_dim};
    const Values of_heads = g_.call({v_[kQuery], v_[kKey], v_[kValue], v_[kLogSumExp], delta, gradient},
                                    {{wide, s.type}, {slim, s.type}, {slim, s.type}}, [s](const std::vector<Tensor>& in) {
                                      FlashGradients all = flex_attention_gradients(
                                          heads_of(in[0], s, s.heads), heads_of(in[1], s, s.kv_heads), heads_of(in[2], s, s.kv_heads));
                                      return std::vector<Tensor>{std::move(all.query), std::move(all.value), std::move(all.key)};
                                    });
    skip_names(1);
    return {of_heads[0], of_heads[2], of_heads[1]};
  }
  Value conjugate() {
    return g_.call({v_[kRows]}, {{g_.sizes(v_[kRows]), kComplex}}, [](const std::vector<Tensor>& in) {
               return std::vector<Tensor>{elementwise(in[0].tape(), {&in[0]}, kComplex)};
             }).front();
  }

  void skip_names(int count) {
    for (int i = 0; i < count; ++i) g_.skip_name();
  }

  Graph& g_;
  const Shape& s_;
  std::array<Value, kSlots>& v_;
  const Tape& tape_;
  Value turned_query_, turned_key_;
  bool forward_only_ = false;  ///< of a block that is checkpointed as a whole: nothing of it is kept
  std::array<Value, kArguments> gradients_{};
};

void require(bool known, const char* what) {
  if (!known) refuse("TorchTitan 0.3's compiled blocks with " + std::string(what) + " are not modelled", "compile", "false");
}

void run_backward(BackwardCall& b, const Shape& s) {
  b.tape.operator_name = kName;
  Graph graph(b.tape);
  const Value incoming = graph.primal(b.take_grad());
  std::array<Value, kSlots> values;
  for (std::size_t i = 0; i < kSlots; ++i) {
    Tensor tensor = b.take_saved(i);
    values[i] = i < kArguments ? graph.primal(std::move(tensor)) : graph.saved(std::move(tensor));
  }
  const std::array<Value, kArguments> gradients = LlamaGraph(graph, s, values, b.tape).backward(incoming);
  for (const Value value : gradients) graph.result(value);
  graph.run();
  for (std::size_t i = 0; i < kArguments; ++i)
    if (gradients[i].defined()) b.give(i, graph.take(gradients[i]));
}

Shape shape_of(const Block& block, const TitanRun& run, const Tensor& x) {
  Shape s;
  s.group = run.tensor_parallel;
  s.batch = x.size(0), s.length = x.size(1) * s.group.degree, s.hidden = x.size(2);
  s.heads = s.group.share(block.attention->heads), s.kv_heads = s.group.share(block.attention->kv_heads), s.head_dim = block.attention->head_dim;
  s.inner = s.group.share(block.mlp->intermediate);
  s.type = x.dtype();
  s.checkpointing = run.checkpointing;
  s.flex = run.attention == TitanRun::Attention::flex;
  return s;
}

std::array<Tensor, kArguments> arguments_of(Module& module, const Tensor& x, const Tensor& positions) {
  Module &attention = module.child("attention"), &mlp = module.child("feed_forward");
  std::array<Tensor, kArguments> all;
  all[kInput] = x;
  all[kTable] = attention.child("rope").buffer(kRopeTable);
  all[kPositions] = positions;
  all[kAttentionNorm] = module.child("attention_norm").tensor("weight");
  all[kQkv] = attention.child("qkv_linear").child("wqkv").tensor("weight");
  all[kOutput] = attention.child("wo").tensor("weight");
  all[kFeedForwardNorm] = module.child("ffn_norm").tensor("weight");
  all[kGate] = mlp.child("w1").tensor("weight");
  all[kUp] = mlp.child("w3").tensor("weight");
  all[kDown] = mlp.child("w2").tensor("weight");
  return all;
}

}  // namespace

void check_compiled_llama(const Block& block, const TitanRun& run) {
  require(block.attention && block.mlp && !block.moe, "a mixture of experts");
  const AttentionSpec& attention = *block.attention;
  require(!attention.mla && !attention.sinks && attention.qk_norm == AttentionSpec::QkNorm::none, "this attention");
  require(run.fused_qkv && run.complex_rope && run.positions_given, "this model's projections and rotation");
  require(run.attention == TitanRun::Attention::scaled_dot_product || run.attention == TitanRun::Attention::flex, "this attention kernel");
  const TensorParallel& group = run.tensor_parallel;
  require(!group.on() || !group.asynchronous, "asynchronous tensor parallelism");
  require(!group.on() || group.sequence, "tensor parallelism without sequence parallelism");
  require(!group.on() || run.checkpointing == TitanRun::Checkpointing::full, "tensor parallelism of blocks that are not checkpointed as a whole");
  require(run.context_ranks == 1, "context parallelism");
  require(run.every == 1, "checkpoints of every n-th layer");
}

Tensor compiled_llama_block(Module& module, const Block& block, const TitanRun& run, const Tensor& x, const Tensor& positions) {
  const std::array<Tensor, kArguments> arguments = arguments_of(module, x, positions);
  const Shape s = shape_of(block, run, x);
  List<const Tensor*> inputs;
  for (const Tensor& argument : arguments) inputs.push_back(&argument);
  CompiledLayerGraph op(kName, inputs);

  Graph graph(op.tape());
  std::array<Value, kSlots> values;
  for (std::size_t i = 0; i < kArguments; ++i) values[i] = graph.primal(arguments[i]);
  const Value output = LlamaGraph(graph, s, values, op.tape()).forward();
  graph.result(output);
  for (std::size_t i = kArguments; i < kSlots; ++i)
    if (s.is_kept(i)) graph.result(values[i]);
  graph.run();
  for (std::size_t i = 0; i < kSlots; ++i) {
    if (i < kArguments) {
      op.save_output(s.is_read_again(i) ? arguments[i] : Tensor());
    } else {
      op.save_output(s.is_kept(i) ? graph.take(values[i]) : Tensor());
    }
  }
  Tensor result = graph.take(output);
  return op.done(result, [s](BackwardCall& b) { run_backward(b, s); });
}

}  // namespace plimsoll::program
