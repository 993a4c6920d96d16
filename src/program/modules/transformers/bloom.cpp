// BloomForCausalLM: ALiBi added by baddbmm, eager attention only, a GELU with a backward of its own.
#include <memory>

#include "plimsoll/error.hpp"
#include "program/modules/transformers/decoder_stack.hpp"
#include "program/modules/transformers/families.hpp"
#include "program/ops/copying.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// bias.baddbmm(a, b, alpha≠1) of a bias without gradient, in autocast's low type.
Tensor scaled_baddbmm(const Tensor& bias_in, const Tensor& a_in, const Tensor& b_in) {
  const Tensor bias = autocast_low(bias_in), a = autocast_low(a_in), b = autocast_low(b_in);
  const Matrix left = matrix(a), right = matrix(b);
  Op op("baddbmm", {&bias, &a, &b});
  op.save_if(op.needs(2), a);
  op.save_if(op.needs(1), b);
  Tensor y = op.output({left.batch, left.rows, right.columns}, a.dtype());
  in_place(y, {&bias});
  gemm(op.tape(), left, right, matrix(y), {.accumulates = true});
  return op.done(y, [left, right](BackwardCall& call) {
    const Matrix g = matrix(call.grad());
    const auto scaled_product = [&](const Matrix& one, const Matrix& other) {
      const Tensor product = call.tape.empty({one.batch, one.rows, other.columns}, call.grad().dtype());
      gemm(call.tape, one, other, matrix(product));
      return elementwise(call.tape, {&product}, product.dtype());
    };
    if (call.needs(1)) call.give(1, scaled_product(g, right.t()));
    if (call.needs(2)) call.give(2, scaled_product(left.t(), g));
  });
}

/// tanh(0.79788456 x (1 + 0.044715 x x)), without gradient.
Tensor gelu_tanh(Tape& tape, const Tensor& x) {
  const DType type = x.dtype();
  Tensor scaled = elementwise(tape, {&x}, type);
  Tensor inner = elementwise(tape, {&x}, type);
  inner = elementwise(tape, {&inner, &x}, type);
  inner = elementwise(tape, {&inner}, type);
  inner = elementwise(tape, {&scaled, &inner}, type);
  scaled.reset();
  return elementwise(tape, {&inner}, type);
}

/// bloom_gelu_back: 0.5 x ((1 − t t) (0.79788456 + 0.1070322243 x x)) + 0.5 (1 + t), times the gradient.
Tensor gelu_back(Tape& tape, const Tensor& gradient, const Tensor& x) {
  const DType type = x.dtype();
  const Tensor t = gelu_tanh(tape, x);
  Tensor slope = elementwise(tape, {&x}, type);
  {
    Tensor left = elementwise(tape, {&t, &t}, type);
    left = elementwise(tape, {&left}, type);
    Tensor right = elementwise(tape, {&x}, type);
    right = elementwise(tape, {&right, &x}, type);
    right = elementwise(tape, {&right}, type);
    left = elementwise(tape, {&left, &right}, type);
    right.reset();
    slope = elementwise(tape, {&slope, &left}, type);
  }
  {
    Tensor half = elementwise(tape, {&t}, type);
    half = elementwise(tape, {&half}, type);
    slope = elementwise(tape, {&slope, &half}, type);
  }
  return elementwise(tape, {&slope, &gradient}, type);
}

/// GeLUFunction.apply: an autograd function that saves its input only.
Tensor bloom_gelu(const Tensor& x) {
  Op op("bloom_gelu", {&x});
  op.save(x);
  Tape& tape = op.tape();
  const DType type = x.dtype();
  Tensor y;
  {
    const Tensor half = elementwise(tape, {&x}, type);
    Tensor curve = gelu_tanh(tape, x);
    curve = elementwise(tape, {&curve}, type);
    y = op.elementwise({&half, &curve}, type);
  }
  return op.done(y, [](BackwardCall& b) { b.give(0, gelu_back(b.tape, b.grad(), b.saved(0))); });
}

class BloomBlock {
 public:
  BloomBlock(Module& module, Tape& tape, const RunOptions& options, const Block& block)
      : module_(module),
        attention_(module.child("self_attention")),
        mlp_(module.child("mlp")),
        tape_(tape),
        options_(options),
        block_(block),
        attention_norm_(module.child("input_layernorm"), tape, block.norm),
        mlp_norm_(module.child("post_attention_layernorm"), tape, block.norm),
        qkv_(attention_.child("query_key_value"), tape),
        output_(attention_.child("dense"), tape),
        up_(mlp_.child("dense_h_to_4h"), tape),
        down_(mlp_.child("dense_4h_to_h"), tape) {}

  Tensor operator()(const Tensor& input, const Tensor& alibi, const Tensor& mask, const std::weak_ptr<Tensor>& outputs) const {
    return run_layer_of_tuples(module_, tape_, options_, input, outputs, [this, alibi, mask](const Tensor& x, Tensor& probabilities) {
      return forward(x, alibi, mask, probabilities);
    });
  }

 private:
  Tensor forward(const Tensor& input, const Tensor& alibi, const Tensor& mask, Tensor& probabilities) const {
    Tensor normed = attention_norm_(input);
    const Tensor attended = attend_all(normed, input, alibi, mask, probabilities);
    normed = mlp_norm_(attended);
    return feed_forward(normed, attended);
  }

  Tensor attend_all(const Tensor& input, const Tensor& residual, const Tensor& alibi, const Tensor& mask, Tensor& probabilities) const {
    Tensor hidden = input;
    ModuleCall call(attention_, tape_, {&hidden});
    const std::int64_t batch = hidden.size(0), length = hidden.size(1), heads = block_.attention->heads, dim = block_.attention->head_dim;
    const Tensor fused = view(qkv_(hidden), {batch, length, heads, 3, dim});
    const auto part = [&](std::int64_t i) { return transpose(view(slice(fused, 3, i, i + 1), {batch, length, heads, dim}), 1, 2); };
    Tensor query = part(0), key = part(1), value = part(2);
    query = reshape(query, {batch * heads, length, dim});
    key = transpose(reshape(key, {batch * heads, length, dim}), -1, -2);
    value = reshape(value, {batch * heads, length, dim});
    const Tensor scores = scaled_baddbmm(alibi, query, key);
    Tensor weights = view(scores, {batch, heads, length, length});
    if (mask) weights = add(weights, mask);
    {
      const Tensor wide = softmax(weights, DType::fp32);
      probabilities = to(wide, query.dtype());
    }
    probabilities = dropout(probabilities, block_.attention->dropout);
    Tensor context = bmm(view(probabilities, {batch * heads, length, length}), value);
    context = permute(view(context, {batch, heads, length, dim}), {0, 2, 1, 3});
    context = reshape(context, {batch, length, heads * dim});
    const Tensor projected = output_(context);
    return call.done(dropout_add(projected, residual));
  }

  Tensor feed_forward(const Tensor& input, const Tensor& residual) const {
    Tensor hidden = input;
    ModuleCall call(mlp_, tape_, {&hidden});
    Tensor inner = up_(hidden);
    inner = bloom_gelu(inner);
    const Tensor projected = down_(inner);
    return call.done(dropout_add(projected, residual));
  }

  Tensor dropout_add(const Tensor& x, const Tensor& residual) const {
    const Tensor kept = dropout(x, block_.hidden_dropout);
    return add(residual, kept);
  }

  Module& module_;
  Module& attention_;
  Module& mlp_;
  Tape& tape_;
  const RunOptions& options_;
  const Block& block_;
  Norm attention_norm_, mlp_norm_;
  Linear qkv_, output_, up_, down_;
};

/// slopes × positions, repeated for every sample: [batch × heads, 1, length].
Tensor alibi_of(Tape& tape, const Tensor& slopes, std::int64_t batch, std::int64_t length, DType type) {
  const std::int64_t heads = slopes.size(0);
  Tensor biases;
  {
    const Tensor positions = arange(tape, length), column = view(slopes, {heads, 1, 1});
    biases = elementwise(tape, {&column, &positions}, DType::fp32);
  }
  const Tensor repeated = tape.empty({batch * heads, 1, length}, DType::fp32);
  copy_into(repeated, biases);
  return to(repeated, type);
}

class Bloom final : public DecoderStack<BloomBlock> {
 public:
  Bloom(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : DecoderStack(model, options, root, tape, {"transformer", "word_embeddings", "h", "ln_f"}), heads_(model.heads) {
    if (options.attention != RunOptions::Attention::eager) fail("sdpa attention does not exist for bloom", {}, "use eager attention");
    for (const Block& block : model.blocks) {
      if (block.role == Block::Role::decoder) embedding_norm_.emplace(base_.child("word_embeddings_layernorm"), tape, block.norm);
    }
  }

 private:
  Tensor decode(const Tensor& input) override {
    Tensor ids = input;
    ModuleCall call(base_, tape_, {&ids});
    const Tensor embeddings = embed(ids);
    Tensor hidden = (*embedding_norm_)(embeddings);
    const Tensor slopes = alibi_slopes(tape_, heads_);
    const Tensor alibi = alibi_of(tape_, slopes, ids.size(0), ids.size(1), hidden.dtype());
    const Tensor mask = causal_mask(tape_, options_, embeddings, std::nullopt);
    std::shared_ptr<Tensor> outputs;
    hidden = run_holding_tuples(hidden, outputs, [&](const BloomBlock& block, const Tensor& x, const std::weak_ptr<Tensor>& held) {
      return block(x, alibi, mask, held);
    });
    hidden = (*norm_)(hidden);
    return call.done(hidden);
  }

  std::int64_t heads_;
  std::optional<Norm> embedding_norm_;
};

}  // namespace

std::unique_ptr<Network> make_bloom(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<Bloom>(model, options, root, tape);
}

}  // namespace plimsoll::program
