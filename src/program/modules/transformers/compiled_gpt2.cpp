#include "program/modules/transformers/compiled_gpt2.hpp"

#include <array>
#include <initializer_list>
#include <string>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/ops/attention_kernels.hpp"
#include "program/modules/inductor.hpp"
#include "program/op.hpp"

namespace plimsoll::program {

namespace {

/// The graph's sizes and types: `low` is that of its products; under autocast the residual stream and the weights are fp32.
struct Shape {
  DType low = DType::bf16;
  bool checkpointed = false;  ///< torch.utils.checkpoint within the graph: the backward graph computes the activations again
  bool casts = false;         ///< weights are cast within the graph: the copies are kept for the backward, gradients are cast back
  std::int64_t batch = 0, length = 0, hidden = 0, heads = 0, head_dim = 0, inner = 0;
  std::int64_t rows() const { return batch * length; }
};

/// The graph's inputs that need gradients, as Conv1D has them: weights [in, out].
struct Weights {
  Tensor attention_norm, attention_norm_bias, qkv, qkv_bias, output, output_bias, mlp_norm, mlp_norm_bias, up, up_bias, down, down_bias;
};
enum Input : std::size_t {
  kHidden,
  kAttentionNorm,
  kAttentionNormBias,
  kQkv,
  kQkvBias,
  kOutput,
  kOutputBias,
  kMlpNorm,
  kMlpNormBias,
  kUp,
  kUpBias,
  kDown,
  kDownBias
};

Weights weights_of(Module& block) {
  const auto tensor = [&block](const char* module, const char* name) { return block.find(module)->tensor(name); };
  return {tensor("ln_1", "weight"),        tensor("ln_1", "bias"),        tensor("attn.c_attn", "weight"), tensor("attn.c_attn", "bias"),
          tensor("attn.c_proj", "weight"), tensor("attn.c_proj", "bias"), tensor("ln_2", "weight"),        tensor("ln_2", "bias"),
          tensor("mlp.c_fc", "weight"),    tensor("mlp.c_fc", "bias"),    tensor("mlp.c_proj", "weight"),  tensor("mlp.c_proj", "bias")};
}

/// What the forward graph keeps; when it is checkpointed, only its inputs, the first seven.
enum Saved : std::size_t {
  kSavedAttentionNorm,
  kSavedHidden,
  kSavedQkv,
  kSavedOutput,
  kSavedMlpNorm,
  kSavedUp,
  kSavedDown,
  kMean,
  kScale,
  kKey,
  kValue,
  kQuery,
  kAttended,
  kLogSumExp,
  kRngState,
  kRngOffset,
  kProjected,
  kAttentionMask,
  kMlpMean,
  kMlpScale,
  kRaised,
  kMlpMask,
  kActivated,
  kMlpNormed,
  kNormed,
  kSavedCount
};
using Kept = std::array<Tensor, kSavedCount>;

Shape shape_of(const Tensor& hidden, const Weights& w, const Block& block, bool checkpointed) {
  const Autocast& autocast = hidden.tape().autocast;
  const DType low = autocast.enabled ? autocast.type : hidden.dtype();
  if (low == DType::fp32) refuse("compiled blocks with fp32 products are not modelled", "compile");
  if (hidden.dtype() != w.qkv.dtype()) refuse("compiled blocks whose weights and inputs have different types are not modelled", "compile");
  const Shape s{low,
                checkpointed,
                w.qkv.dtype() != low,
                hidden.size(0),
                hidden.size(1),
                hidden.size(2),
                block.attention->heads,
                block.attention->head_dim,
                block.mlp->intermediate};
  return s;
}

Tensor per_row(Tape& tape, const Shape& s) { return tape.empty({s.batch, s.length, 1}, DType::fp32); }

/// The weight or bias in the type of the products.
Tensor low_copy(const Shape& s, const Tensor& weight) {
  if (!s.casts) return weight;
  Tensor copy = weight.tape().empty(weight.sizes(), s.low);
  inductor::fused(weight.tape(), {&weight}, {&copy});
  return copy;
}

/// One of query, key and value: every third of the columns, [batch, heads, length, head_dim].
Tensor heads_of(const Shape& s, const Tensor& qkv) {
  return qkv.tape().view(qkv, {s.batch, s.heads, s.length, s.head_dim}, {s.length * 3 * s.hidden, s.head_dim, 3 * s.hidden, 1});
}

/// The backward of a Conv1D in two steps: what comes at once, and what Inductor puts off under autocast.
class LinearBackward {
 public:
  LinearBackward(BackwardCall& call, const Shape& s, Kept& kept, Input weight, Input bias, DType wide)
      : b_(call), s_(s), kept_(kept), weight_(weight), bias_(bias), wide_(wide) {}

  /// The gradients of weight [in, out] and bias, and that of the input into `input_gradient` (made here where it is undefined). Drops
  /// `gradient` [rows, out] and the two saved tensors.
  void start(Tensor& gradient, Tensor& input_gradient, Saved saved_input, Saved saved_weight, std::int64_t in, std::int64_t out) {
    if (s_.casts || s_.checkpointed) {
      to_input(input_gradient, saved_weight, in, out);
      to_weight(saved_input, in, out);
      sum_rows(gradient, out);
      gradient.reset();
      if (s_.checkpointed) finish(out);
      return;
    }
    sum_rows(gradient, out);
    b_.give(bias_, inductor::finish_sum(partial_, out, wide_));
    partial_.reset();
    to_weight(saved_input, in, out);
    b_.give(weight_, std::move(weight_gradient_));
    to_input(input_gradient, saved_weight, in, out);
    gradient.reset();
  }

  /// The input's gradient alone, into a new buffer.
  Tensor to_input(Saved saved_weight, std::int64_t in, std::int64_t out) {
    Tensor input_gradient;
    to_input(input_gradient, saved_weight, in, out);
    return input_gradient;
  }
  /// What is left after that.
  void to_weight_and_bias(const Tensor& gradient, Saved saved_input, std::int64_t in, std::int64_t out) {
    to_weight(saved_input, in, out);
    sum_rows(gradient, out);
    finish(out);
  }

  /// The weight's gradient in the weight's type, and the bias's.
  void finish(std::int64_t out) {
    if (!weight_gradient_) return;
    if (s_.casts) {
      const Tensor narrow = std::exchange(weight_gradient_, b_.tape.empty(weight_gradient_.sizes(), DType::fp32));
      inductor::fused(b_.tape, {&narrow}, {&weight_gradient_});
    }
    b_.give(weight_, std::move(weight_gradient_));
    b_.give(bias_, inductor::finish_sum(partial_, out, wide_));
    partial_.reset();
  }

 private:
  void to_input(Tensor& input_gradient, Saved saved_weight, std::int64_t in, std::int64_t out) {
    if (!input_gradient) input_gradient = b_.tape.empty({s_.rows(), in}, s_.low);
    inductor::product_into(input_gradient, s_.rows(), in, out);
    kept_[saved_weight].reset();
  }
  void to_weight(Saved saved_input, std::int64_t in, std::int64_t out) {
    weight_gradient_ = inductor::product(b_.tape, s_.low, in, out, s_.rows());
    if (saved_input != kAttended) kept_[saved_input].reset();  // attention's backward reads its output again
  }
  void sum_rows(const Tensor& gradient, std::int64_t out) {
    partial_ = inductor::partial_sums(b_.tape, s_.rows(), out);
    inductor::fused(b_.tape, {&gradient}, {&partial_});
  }

  BackwardCall& b_;
  const Shape& s_;
  Kept& kept_;
  Input weight_, bias_;
  DType wide_;
  Tensor weight_gradient_, partial_;
};

/// The backward of one LayerNorm's weight and bias: fp32 partial sums of both, of two kernels or of the kernel that takes both orders of
/// sums.
class NormSums {
 public:
  NormSums(Tape& tape, const Shape& s) : mixed_(inductor::mixes_reduction_orders(s.rows(), s.hidden)) {
    if (mixed_) {
      weight_ = inductor::mixed_order_workspace(tape, s.rows(), s.hidden, 2);
    } else {
      weight_ = inductor::partial_sums(tape, s.rows(), s.hidden);
      bias_ = inductor::partial_sums(tape, s.rows(), s.hidden);
    }
  }
  void read(std::initializer_list<const Tensor*> read) {
    inductor::fused(weight_.tape(), read, {&weight_});
    if (!mixed_) return;
    const std::int64_t width = weight_.size(-1);
    bias_ = inductor::mixed_order_sum(weight_, width, DType::fp32);
    weight_ = inductor::mixed_order_sum(weight_, width, DType::fp32);
  }
  void finish(BackwardCall& b, Input weight, Input bias, const Shape& s, DType wide) const {
    b.give(weight, mixed_ && wide == DType::fp32 ? weight_ : inductor::finish_sum(weight_, s.hidden, wide));
    b.give(bias, mixed_ && wide == DType::fp32 ? bias_ : inductor::finish_sum(bias_, s.hidden, wide));
  }

 private:
  bool mixed_;
  Tensor weight_, bias_;
};

/// A Conv1D of the forward graph; under autocast with copies of its weight, which is kept, and its bias, which is not.
Tensor linear(Tape& tape, const Shape& s, Tensor& kept_weight, const Tensor& weight, const Tensor& bias) {
  kept_weight = low_copy(s, weight);
  const Tensor low_bias = low_copy(s, bias);
  return inductor::biased_product(tape, s.low, s.rows(), weight.size(1), weight.size(0));
}

/// The block up to its output projection.
void compute_attention(Tape& tape, const Shape& s, Kept& kept, const Weights& w, double dropout) {
  const Tensor& hidden = kept[kSavedHidden];
  kept[kMean] = per_row(tape, s);
  kept[kScale] = per_row(tape, s);
  kept[kNormed] = tape.empty(hidden.sizes(), s.low);
  inductor::fused(tape, {&hidden}, {&kept[kNormed], &kept[kMean], &kept[kScale]});
  {
    const Tensor qkv = linear(tape, s, kept[kSavedQkv], w.qkv, w.qkv_bias);
    kept[kQuery] = heads_of(s, qkv);
    kept[kKey] = heads_of(s, qkv);
    kept[kValue] = heads_of(s, qkv);
  }
  FlashOutputs attention = flash_attention_forward(kept[kQuery], kept[kKey], kept[kValue], true, dropout);
  kept[kAttended] = std::move(attention.output);
  kept[kLogSumExp] = std::move(attention.log_sum_exp);
  kept[kRngState] = std::move(attention.rng_state);
  kept[kRngOffset] = std::move(attention.rng_offset);
  kept[kProjected] = linear(tape, s, kept[kSavedOutput], w.output, w.output_bias);
}

/// Both dropouts draw from seeds made at once.
Tensor dropout_seeds(Tape& tape) { return tape.empty({2}, DType::int64, Category::workspace); }

/// The whole forward graph: the block's output.
Tensor forward(Tape& tape, const Shape& s, Kept& kept, const Weights& w, double dropout) {
  compute_attention(tape, s, kept, w, dropout);
  const Tensor& hidden = kept[kSavedHidden];
  Tensor seeds = dropout_seeds(tape);
  kept[kAttentionMask] = tape.empty(hidden.sizes(), DType::boolean);
  kept[kMlpMean] = per_row(tape, s);
  kept[kMlpScale] = per_row(tape, s);
  kept[kMlpNormed] = tape.empty(hidden.sizes(), s.low);
  inductor::fused(tape, {&kept[kProjected], &hidden}, {&kept[kMlpNormed], &kept[kAttentionMask], &kept[kMlpMean], &kept[kMlpScale]});

  kept[kRaised] = linear(tape, s, kept[kSavedUp], w.up, w.up_bias);
  kept[kActivated] = tape.empty({s.rows(), s.inner}, s.low);
  inductor::fused(tape, {&kept[kRaised]}, {&kept[kActivated]});
  Tensor branch = linear(tape, s, kept[kSavedDown], w.down, w.down_bias);
  kept[kMlpMask] = tape.empty(hidden.sizes(), DType::boolean);
  // The sum takes the buffer of the last product where it has its type.
  Tensor output = s.casts ? tape.empty(hidden.sizes(), hidden.dtype()) : tape.view(branch, hidden.sizes(), hidden.strides());
  inductor::fused(tape, {&branch, &kept[kAttentionMask], &kept[kProjected], &hidden}, {&output, &kept[kMlpMask]});
  seeds.reset();
  return output;
}

/// The same for a backward that computes everything again: nothing is kept, buffers are handed on.
Tensor forward_only(Tape& tape, const Shape& s, const Kept& kept, const Weights& w, double dropout) {
  const Tensor& hidden = kept[kSavedHidden];
  const auto linear_only = [&](const Tensor& weight, const Tensor& bias) {
    Tensor copy;
    return linear(tape, s, copy, weight, bias);
  };
  Tensor normed = tape.empty(hidden.sizes(), s.low);
  inductor::fused(tape, {&hidden}, {&normed});
  Tensor attended;
  {
    Tensor qkv = linear_only(w.qkv, w.qkv_bias);
    const Tensor query = heads_of(s, qkv);
    qkv.reset();
    attended = flash_attention_forward(query, query, query, true, dropout).output;
  }
  Tensor projected = std::move(normed);
  {
    const Tensor weight = low_copy(s, w.output), bias = low_copy(s, w.output_bias);
    inductor::biased_product_into(projected, s.rows(), s.hidden, s.hidden);
  }
  const Tensor seeds = dropout_seeds(tape);
  Tensor dropped = tape.empty(hidden.sizes(), DType::fp32);
  Tensor mlp_normed = std::move(attended);
  inductor::fused(tape, {&projected, &hidden}, {&dropped, &mlp_normed});
  Tensor raised = linear_only(w.up, w.up_bias);
  mlp_normed.reset();
  inductor::fused(tape, {&raised}, {&raised});
  const Tensor branch = linear_only(w.down, w.down_bias);
  raised.reset();
  // The output takes the place of whichever has its type.
  Tensor output = s.casts ? std::move(dropped) : std::move(projected);
  inductor::fused(tape, {&hidden, &branch}, {&output});
  return output;
}

/// Gradients between the MLP and the attention.
struct Middle {
  Tensor stream;           ///< of the residual stream
  Tensor masked;           ///< of the output projection
  Tensor attended_buffer;  ///< a buffer of the residual stream's size that is free
};

/// From the block's output to the dropout behind the attention.
Middle mlp_backward(BackwardCall& b, const Shape& s, Kept& kept) {
  Tape& tape = b.tape;
  Tensor incoming = b.take_grad();
  const DType wide = incoming.dtype(), low = s.low;
  const Dims sizes{s.batch, s.length, s.hidden};

  // The MLP: dropout, down projection, activation in the place of its gradient, up projection.
  Tensor masked = tape.empty(sizes, low);
  inductor::fused(tape, {&incoming, &kept[kMlpMask]}, {&masked});
  kept[kMlpMask].reset();
  LinearBackward down(b, s, kept, kDown, kDownBias, wide), up(b, s, kept, kUp, kUpBias, wide);
  Tensor standardized;
  const auto standardize = [&] {
    standardized = tape.empty(sizes, DType::fp32);
    inductor::fused(tape, {&kept[kAttentionMask], &kept[kProjected], &kept[kSavedHidden]}, {&standardized});
  };
  if (inductor::mixes_reduction_orders(s.rows(), s.hidden)) {  // a kernel of its own, early: the norm's sums read it twice
    standardize();
    kept[kProjected].reset();
    kept[kMlpMean].reset();
  }
  Tensor raised, normed;
  down.start(masked, raised, kActivated, kSavedDown, s.inner, s.hidden);
  inductor::fused(tape, {&raised, &kept[kRaised]}, {&raised});
  kept[kRaised].reset();
  down.finish(s.hidden);
  up.start(raised, normed, kMlpNormed, kSavedUp, s.hidden, s.inner);

  // The MLP's norm and the dropout before it.
  if (!standardized) standardize();
  Middle middle;
  middle.stream = tape.empty(sizes, wide);
  middle.masked = tape.empty(sizes, low);
  inductor::fused(tape, {&kept[kAttentionMask], &standardized, &normed, &incoming}, {&middle.stream, &middle.masked});
  for (const Saved index : {kProjected, kMlpMean, kAttentionMask, kSavedMlpNorm, kMlpScale}) kept[index].reset();
  incoming.reset();
  NormSums sums(tape, s);
  sums.read({&normed, &standardized});
  standardized.reset();
  up.finish(s.inner);
  sums.finish(b, kMlpNorm, kMlpNormBias, s, wide);
  middle.attended_buffer = std::move(normed);
  return middle;
}

/// The same, computing the activations again on the way.
Middle mlp_backward_again(BackwardCall& b, const Shape& s, Kept& kept, const Weights& w, double dropout) {
  Tape& tape = b.tape;
  Tensor incoming = b.take_grad();
  const DType wide = incoming.dtype(), low = s.low;
  const Dims sizes{s.batch, s.length, s.hidden};
  LinearBackward down(b, s, kept, kDown, kDownBias, wide), up(b, s, kept, kUp, kUpBias, wide);

  Tensor seeds = dropout_seeds(tape);
  Tensor masked = tape.empty(sizes, low);
  inductor::fused(tape, {&incoming}, {&masked});
  kept[kSavedDown] = low_copy(s, kept[kSavedDown]);
  Tensor raised = down.to_input(kSavedDown, s.inner, s.hidden);
  compute_attention(tape, s, kept, w, dropout);
  Tensor dropped = tape.empty(sizes, DType::fp32);
  kept[kMlpScale] = per_row(tape, s);
  Tensor standardized = tape.empty(sizes, DType::fp32);
  kept[kMlpNormed] = tape.empty(sizes, low);
  inductor::fused(tape, {&kept[kProjected], &kept[kSavedHidden]}, {&dropped, &standardized, &kept[kMlpNormed], &kept[kMlpScale]});
  seeds.reset();
  kept[kProjected].reset();
  {
    const Tensor output = linear(tape, s, kept[kSavedUp], w.up, w.up_bias);
    kept[kActivated] = tape.empty({s.rows(), s.inner}, low);
    inductor::fused(tape, {&output}, {&raised, &kept[kActivated]});
  }
  down.to_weight_and_bias(masked, kActivated, s.inner, s.hidden);
  Tensor normed = std::move(masked);
  Middle middle;
  Tensor reused = kept[kMlpNormed];  // its buffer, behind the up projection
  up.start(raised, normed, kMlpNormed, kSavedUp, s.hidden, s.inner);

  middle.stream = s.casts ? tape.empty(sizes, wide) : reused;
  middle.masked = s.casts ? reused : tape.empty(sizes, low);
  reused.reset();
  inductor::fused(tape, {&normed, &standardized, &incoming, &dropped}, {&middle.stream, &middle.masked});
  dropped.reset();
  kept[kMlpScale].reset();
  kept[kSavedMlpNorm].reset();
  incoming.reset();
  NormSums sums(tape, s);
  sums.read({&normed, &standardized});
  standardized.reset();
  sums.finish(b, kMlpNorm, kMlpNormBias, s, wide);
  middle.attended_buffer = std::move(normed);
  return middle;
}

void backward(BackwardCall& b, const Shape& s, const Weights& w, double dropout) {
  Tape& tape = b.tape;
  Kept kept;
  for (std::size_t i = 0; i < kept.size(); ++i) kept[i] = b.take_saved(i);
  const DType wide = b.grad().dtype(), low = s.low;
  Middle middle = s.checkpointed ? mlp_backward_again(b, s, kept, w, dropout) : mlp_backward(b, s, kept);
  Tensor stream = std::move(middle.stream);

  // The output projection and attention.
  LinearBackward output(b, s, kept, kOutput, kOutputBias, wide), qkv(b, s, kept, kQkv, kQkvBias, wide);
  Tensor attended = std::move(middle.attended_buffer);
  output.start(middle.masked, attended, kAttended, kSavedOutput, s.hidden, s.hidden);
  FlashGradients attention = flash_attention_backward(kept[kQuery], kept[kKey], kept[kValue], attended, true);
  attended.reset();
  Tensor joined;
  if (s.checkpointed)
    joined = tape.view(kept[kQuery], {s.batch, s.length, 3 * s.hidden},
                       contiguous_strides({s.batch, s.length, 3 * s.hidden}));  // the graph's own: handed on
  for (const Saved index : {kRngState, kRngOffset, kAttended, kLogSumExp, kKey, kValue, kQuery}) kept[index].reset();
  output.finish(s.hidden);
  if (!joined) joined = tape.empty({s.batch, s.length, 3 * s.hidden}, low);
  inductor::fused(tape, {&attention.query, &attention.key, &attention.value}, {&joined});
  attention.query.reset();
  attention.key.reset();
  Tensor from_qkv = std::move(attention.value);
  qkv.start(joined, from_qkv, kNormed, kSavedQkv, s.hidden, 3 * s.hidden);

  // The attention's norm; the input's gradient takes the place of the residual stream's.
  inductor::fused(tape, {&stream, &from_qkv, &kept[kSavedHidden]}, {&stream});
  kept[kSavedAttentionNorm].reset();
  NormSums sums(tape, s);
  sums.read({&from_qkv, &kept[kSavedHidden]});
  from_qkv.reset();
  for (const Saved index : {kMean, kSavedHidden, kScale}) kept[index].reset();
  qkv.finish(3 * s.hidden);
  sums.finish(b, kAttentionNorm, kAttentionNormBias, s, wide);
  b.give(kHidden, std::move(stream));
}

}  // namespace

void check_compiled_gpt2(const Block& block) {
  const auto require = [](bool known, const char* what) {
    if (!known) refuse(std::string("compiled GPT-2 blocks with ") + what + " are not modelled", "compile");
  };
  require(block.hidden_dropout > 0, "no dropout");
  require(block.mlp->activation == "gelu_new", "this activation");
  require(block.attention->head_dim % 8 == 0 && block.attention->head_dim <= 256, "this head dimension");
}

Tensor compiled_gpt2_block(Module& module, const Block& block, const Tensor& hidden, bool checkpointed) {
  const Weights w = weights_of(module);
  const Shape s = shape_of(hidden, w, block, checkpointed);
  const double dropout = block.attention->dropout;
  Op op("compiled_block", {&hidden, &w.attention_norm, &w.attention_norm_bias, &w.qkv, &w.qkv_bias, &w.output, &w.output_bias, &w.mlp_norm,
                           &w.mlp_norm_bias, &w.up, &w.up_bias, &w.down, &w.down_bias});
  Tape& tape = op.tape();
  Kept kept;
  const std::array<const Tensor*, kMean> inputs{&w.attention_norm, &hidden, &w.qkv, &w.output, &w.mlp_norm, &w.up, &w.down};
  for (std::size_t i = 0; i < inputs.size(); ++i) kept[i] = *inputs[i];
  Tensor output = checkpointed ? forward_only(tape, s, kept, w, dropout) : forward(tape, s, kept, w, dropout);
  for (const Tensor& tensor : kept) op.save_output(tensor);
  if (!checkpointed) return op.done(output, [s](BackwardCall& b) { backward(b, s, {}, 0); });
  return op.done(output, [s, w, dropout](BackwardCall& b) { backward(b, s, w, dropout); });
}

}  // namespace plimsoll::program
