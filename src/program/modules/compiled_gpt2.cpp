#include "program/modules/compiled_gpt2.hpp"

#include <initializer_list>
#include <string>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/attention_kernels.hpp"
#include "program/modules/inductor.hpp"
#include "program/op.hpp"

namespace plimsoll::program {

namespace {

/// The graph's sizes and types: `low` is that of its products; under autocast the residual stream and the weights are fp32.
struct Shape {
  DType low = DType::bf16;
  bool casts = false;  ///< weights are cast within the graph: the copies are kept for the backward, gradients are cast back
  std::int64_t batch = 0, length = 0, hidden = 0, heads = 0, head_dim = 0, inner = 0;
  std::int64_t rows() const { return batch * length; }
};

/// The graph's inputs that need gradients, as Conv1D has them: weights [in, out].
struct Weights {
  Tensor attention_norm, attention_norm_bias, qkv, qkv_bias, output, output_bias, mlp_norm, mlp_norm_bias, up, up_bias, down, down_bias;
};
enum Input : std::size_t {
  kHidden, kAttentionNorm, kAttentionNormBias, kQkv, kQkvBias, kOutput, kOutputBias, kMlpNorm, kMlpNormBias, kUp, kUpBias, kDown, kDownBias
};

Weights weights_of(Module& block) {
  const auto tensor = [&block](const char* module, const char* name) { return block.find(module)->tensor(name); };
  return {tensor("ln_1", "weight"),       tensor("ln_1", "bias"),       tensor("attn.c_attn", "weight"), tensor("attn.c_attn", "bias"),
          tensor("attn.c_proj", "weight"), tensor("attn.c_proj", "bias"), tensor("ln_2", "weight"),        tensor("ln_2", "bias"),
          tensor("mlp.c_fc", "weight"),    tensor("mlp.c_fc", "bias"),    tensor("mlp.c_proj", "weight"),  tensor("mlp.c_proj", "bias")};
}

/// What the forward graph keeps.
enum Saved : std::size_t {
  kSavedAttentionNorm, kSavedHidden, kSavedQkv, kSavedOutput, kSavedMlpNorm, kSavedUp, kSavedDown, kMean, kScale, kKey, kValue, kQuery,
  kAttended, kLogSumExp, kRngState, kRngOffset, kProjected, kAttentionMask, kMlpMean, kMlpScale, kRaised, kMlpMask, kActivated, kMlpNormed,
  kNormed
};

Shape shape_of(const Tensor& hidden, const Weights& w, const Block& block) {
  const Autocast& autocast = hidden.tape().autocast;
  const DType low = autocast.enabled ? autocast.type : hidden.dtype();
  if (low == DType::fp32) refuse("compiled blocks with fp32 products are not modelled", "compile");
  if (hidden.dtype() != w.qkv.dtype()) refuse("compiled blocks whose weights and inputs have different types are not modelled", "compile");
  const Shape s{low, w.qkv.dtype() != low, hidden.size(0), hidden.size(1), hidden.size(2), block.attention->heads, block.attention->head_dim,
                block.mlp->intermediate};
  if (inductor::mixes_reduction_orders(s.rows(), s.hidden))
    refuse("compiled GPT-2 blocks of so many tokens, whose norms' sums are fused, are not modelled", "compile", "a smaller micro-batch");
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
  LinearBackward(BackwardCall& call, const Shape& s, Input weight, Input bias, DType wide)
      : b_(call), s_(s), weight_(weight), bias_(bias), wide_(wide) {}

  /// The gradients of weight [in, out] and bias, and that of the input into `input_gradient` (made here where it is undefined). Drops
  /// `gradient` [rows, out] and the two saved tensors.
  void start(Tensor& gradient, Tensor& input_gradient, Saved saved_input, Saved saved_weight, std::int64_t in, std::int64_t out) {
    if (s_.casts) {
      to_input(input_gradient, in, out);
      b_.take_saved(saved_weight);
      weight_gradient_ = inductor::product(b_.tape, s_.low, in, out, s_.rows());
      if (saved_input != kAttended) b_.take_saved(saved_input);  // attention's backward reads its output again
      sum_rows(gradient, out);
      gradient.reset();
      return;
    }
    sum_rows(gradient, out);
    b_.give(bias_, inductor::finish_sum(partial_, out, wide_));
    partial_.reset();
    b_.give(weight_, inductor::product(b_.tape, s_.low, in, out, s_.rows()));
    if (saved_input != kAttended) b_.take_saved(saved_input);
    to_input(input_gradient, in, out);
    gradient.reset();
    b_.take_saved(saved_weight);
  }

  /// The weight's gradient in fp32, and the bias's.
  void finish(std::int64_t out) {
    if (!s_.casts) return;
    Tensor wide = b_.tape.empty(weight_gradient_.sizes(), DType::fp32);
    inductor::fused(b_.tape, {&weight_gradient_}, {&wide});
    weight_gradient_.reset();
    b_.give(weight_, std::move(wide));
    b_.give(bias_, inductor::finish_sum(partial_, out, wide_));
    partial_.reset();
  }

 private:
  void to_input(Tensor& input_gradient, std::int64_t in, std::int64_t out) {
    if (!input_gradient) input_gradient = b_.tape.empty({s_.rows(), in}, s_.low);
    inductor::product_into(input_gradient, s_.rows(), in, out);
  }
  void sum_rows(const Tensor& gradient, std::int64_t out) {
    partial_ = inductor::partial_sums(b_.tape, s_.rows(), out);
    inductor::fused(b_.tape, {&gradient}, {&partial_});
  }

  BackwardCall& b_;
  const Shape& s_;
  Input weight_, bias_;
  DType wide_;
  Tensor weight_gradient_, partial_;
};

/// The backward of one LayerNorm's weight and bias: fp32 partial sums of both.
struct NormSums {
  NormSums(Tape& tape, const Shape& s)
      : weight(inductor::partial_sums(tape, s.rows(), s.hidden)), bias(inductor::partial_sums(tape, s.rows(), s.hidden)) {}
  void finish(BackwardCall& b, Input weight_input, Input bias_input, const Shape& s, DType wide) {
    b.give(weight_input, inductor::finish_sum(weight, s.hidden, wide));
    b.give(bias_input, inductor::finish_sum(bias, s.hidden, wide));
  }
  Tensor weight, bias;
};

void backward(BackwardCall& b, const Shape& s) {
  Tape& tape = b.tape;
  Tensor incoming = b.take_grad();
  const DType wide = incoming.dtype(), low = s.low;
  const Dims sizes{s.batch, s.length, s.hidden};
  const auto drop = [&b](std::initializer_list<Saved> saved) {
    for (const Saved index : saved) b.take_saved(index);
  };

  // The MLP: dropout, down projection, activation in the place of its gradient, up projection.
  Tensor masked = tape.empty(sizes, low);
  inductor::fused(tape, {&incoming, &b.saved(kMlpMask)}, {&masked});
  drop({kMlpMask});
  LinearBackward down(b, s, kDown, kDownBias, wide), up(b, s, kUp, kUpBias, wide);
  Tensor raised, normed;
  down.start(masked, raised, kActivated, kSavedDown, s.inner, s.hidden);
  inductor::fused(tape, {&raised, &b.saved(kRaised)}, {&raised});
  drop({kRaised});
  down.finish(s.hidden);
  up.start(raised, normed, kMlpNormed, kSavedUp, s.hidden, s.inner);

  // The MLP's norm and the dropout before it: the gradient of the residual stream, and that of the output projection.
  Tensor product = tape.empty(sizes, DType::fp32);
  Tensor stream = tape.empty(sizes, wide);
  masked = tape.empty(sizes, low);
  inductor::fused(tape, {&b.saved(kAttentionMask), &b.saved(kProjected), &b.saved(kSavedHidden), &normed, &incoming}, {&product, &stream, &masked});
  drop({kProjected, kMlpMean, kAttentionMask, kSavedMlpNorm, kMlpScale});
  incoming.reset();
  {
    NormSums sums(tape, s);
    inductor::fused(tape, {&normed, &product}, {&sums.weight, &sums.bias});
    product.reset();
    up.finish(s.inner);
    sums.finish(b, kMlpNorm, kMlpNormBias, s, wide);
  }

  // The output projection and attention.
  LinearBackward output(b, s, kOutput, kOutputBias, wide), qkv(b, s, kQkv, kQkvBias, wide);
  Tensor attended = std::move(normed);
  output.start(masked, attended, kAttended, kSavedOutput, s.hidden, s.hidden);
  FlashGradients attention = flash_attention_backward(b.saved(kQuery), b.saved(kKey), b.saved(kValue), attended, true);
  attended.reset();
  drop({kRngState, kRngOffset, kAttended, kLogSumExp, kKey, kValue, kQuery});
  output.finish(s.hidden);
  Tensor joined = tape.empty({s.batch, s.length, 3 * s.hidden}, low);
  inductor::fused(tape, {&attention.query, &attention.key, &attention.value}, {&joined});
  attention.query.reset();
  attention.key.reset();
  Tensor from_qkv = std::move(attention.value);
  qkv.start(joined, from_qkv, kNormed, kSavedQkv, s.hidden, 3 * s.hidden);

  // The attention's norm; the input's gradient takes the place of the residual stream's.
  inductor::fused(tape, {&stream, &from_qkv, &b.saved(kSavedHidden)}, {&stream});
  drop({kSavedAttentionNorm});
  NormSums sums(tape, s);
  inductor::fused(tape, {&from_qkv, &b.saved(kSavedHidden)}, {&sums.weight, &sums.bias});
  from_qkv.reset();
  drop({kMean, kSavedHidden, kScale});
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

Tensor compiled_gpt2_block(Module& module, const Block& block, const Tensor& hidden) {
  const Weights w = weights_of(module);
  const Shape s = shape_of(hidden, w, block);
  Op op("compiled_block", {&hidden, &w.attention_norm, &w.attention_norm_bias, &w.qkv, &w.qkv_bias, &w.output, &w.output_bias, &w.mlp_norm,
                           &w.mlp_norm_bias, &w.up, &w.up_bias, &w.down, &w.down_bias});
  Tape& tape = op.tape();
  const auto linear = [&](const Tensor& weight, const Tensor& bias, Tensor& low_weight) {
    low_weight = low_copy(s, weight);
    const Tensor low_bias = low_copy(s, bias);
    return inductor::biased_product(tape, s.low, s.rows(), weight.size(1), weight.size(0));
  };

  // The attention's norm, the projection of queries, keys and values, attention.
  const Tensor mean = per_row(tape, s), scale = per_row(tape, s);
  const Tensor normed = tape.empty(hidden.sizes(), s.low);
  inductor::fused(tape, {&hidden, &w.attention_norm, &w.attention_norm_bias}, {&normed, &mean, &scale});
  Tensor qkv_weight, output_weight, up_weight, down_weight;
  Tensor query, key, value;
  {
    const Tensor qkv = linear(w.qkv, w.qkv_bias, qkv_weight);
    query = heads_of(s, qkv);
    key = heads_of(s, qkv);
    value = heads_of(s, qkv);
  }
  const FlashOutputs attention = flash_attention_forward(query, key, value, true, block.attention->dropout);
  const Tensor projected = linear(w.output, w.output_bias, output_weight);

  // Both dropouts draw from seeds made at once.
  Tensor seeds = tape.empty({2}, DType::int64, Category::workspace);
  const Tensor attention_mask = tape.empty(hidden.sizes(), DType::boolean);
  const Tensor mlp_mean = per_row(tape, s), mlp_scale = per_row(tape, s);
  const Tensor mlp_normed = tape.empty(hidden.sizes(), s.low);
  inductor::fused(tape, {&projected, &hidden, &w.output_bias, &w.mlp_norm, &w.mlp_norm_bias}, {&mlp_normed, &attention_mask, &mlp_mean, &mlp_scale});

  // The MLP.
  const Tensor raised = linear(w.up, w.up_bias, up_weight);
  const Tensor activated = tape.empty({s.rows(), s.inner}, s.low);
  inductor::fused(tape, {&raised}, {&activated});
  Tensor branch = linear(w.down, w.down_bias, down_weight);
  const Tensor mlp_mask = tape.empty(hidden.sizes(), DType::boolean);
  Tensor output = s.casts ? tape.empty(hidden.sizes(), hidden.dtype()) : tape.view(branch, hidden.sizes(), hidden.strides());
  inductor::fused(tape, {&branch, &attention_mask, &projected, &hidden}, {&output, &mlp_mask});
  seeds.reset();
  branch.reset();

  for (const Tensor* kept : std::initializer_list<const Tensor*>{
           &w.attention_norm, &hidden, &qkv_weight, &output_weight, &w.mlp_norm, &up_weight, &down_weight, &mean, &scale, &key, &value, &query,
           &attention.output, &attention.log_sum_exp, &attention.rng_state, &attention.rng_offset, &projected, &attention_mask, &mlp_mean,
           &mlp_scale, &raised, &mlp_mask, &activated, &mlp_normed, &normed}) {
    op.save_output(*kept);
  }
  return op.done(output, [s](BackwardCall& b) { backward(b, s); });
}

}  // namespace plimsoll::program
