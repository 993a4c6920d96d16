// MptForCausalLM: ALiBi in fp32 over all positions of the config, its own eager attention, a mask of bools.
#include "plimsoll/error.hpp"
#include "program/modules/transformers/decoder_stack.hpp"
#include "program/modules/transformers/families.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

class MptBlock {
 public:
  MptBlock(Module& module, Tape& tape, const RunOptions& options, const Block& block)
      : module_(module),
        attention_(module.child("attn")),
        mlp_(module.child("ffn")),
        tape_(tape),
        options_(options),
        block_(block),
        attention_norm_(module.child("norm_1"), tape, block.norm),
        mlp_norm_(module.child("norm_2"), tape, block.norm),
        qkv_(attention_.child("Wqkv"), tape),
        output_(attention_.child("out_proj"), tape),
        up_(mlp_.child("up_proj"), tape),
        down_(mlp_.child("down_proj"), tape) {}

  Tensor operator()(const Tensor& input, const Tensor& alibi, const Tensor& mask, const std::weak_ptr<Tensor>& outputs) const {
    return run_layer_of_tuples(module_, tape_, options_, input, outputs, [this, alibi, mask](const Tensor& x, Tensor& probabilities) {
      return forward(x, alibi, mask, probabilities);
    });
  }

 private:
  Tensor forward(const Tensor& input, const Tensor& alibi, const Tensor& mask, Tensor& probabilities) const {
    Tensor normed = attention_norm_(input);
    const Tensor attended = attend_all(normed, alibi, mask, probabilities);
    Tensor hidden;
    {
      const Tensor kept = dropout(attended, block_.hidden_dropout);
      hidden = add(kept, input);
    }
    normed = mlp_norm_(hidden);
    return feed_forward(normed, hidden);
  }

  Tensor attend_all(const Tensor& input, const Tensor& alibi, const Tensor& mask, Tensor& probabilities) const {
    Tensor hidden = input;
    ModuleCall call(attention_, tape_, {&hidden});
    const AttentionSpec& spec = *block_.attention;
    const std::int64_t batch = hidden.size(0), length = hidden.size(1);
    Tensor fused = qkv_(hidden);
    if (spec.clip > 0) fused = clamp(fused);
    std::vector<Tensor> parts = chunk(fused, 3, 2);
    for (Tensor& part : parts) part = transpose(reshape(part, {batch, length, spec.heads, spec.head_dim}), 1, 2);
    Tensor scores = matmul(parts[0], transpose(parts[1], -1, -2));
    scores = multiply_scalar(scores);
    scores = add(scores, slice(alibi, 2, alibi.size(2) - length, alibi.size(2)));
    scores = masked_fill(scores, mask);
    Tensor weights;
    {
      const Tensor wide = softmax(to(scores, DType::fp32), DType::fp32);
      weights = to(wide, parts[2].dtype());
    }
    weights = dropout(weights, spec.dropout);
    probabilities = weights;
    Tensor context = matmul(weights, parts[2]);
    context = view(contiguous(permute(context, {0, 2, 1, 3})), {batch, length, -1});
    return call.done(output_(context));
  }

  Tensor feed_forward(const Tensor& input, const Tensor& residual) const {
    Tensor hidden = input;
    ModuleCall call(mlp_, tape_, {&hidden});
    {
      const Tensor up = up_(hidden);
      hidden = activate(block_.mlp->activation, up);
    }
    const Tensor inner = down_(hidden);
    const Tensor output = dropout(inner, block_.hidden_dropout);
    return call.done(add(output, residual));
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

class Mpt final : public DecoderStack<MptBlock> {
 public:
  Mpt(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : DecoderStack(model, options, root, tape, {"transformer", "wte", "blocks", "norm_f"}),
        heads_(model.heads),
        positions_(model.max_positions) {
    if (options.attention != RunOptions::Attention::eager) fail("sdpa attention does not exist for mpt", {}, "use eager attention");
  }

 private:
  Tensor decode(const Tensor& input) override {
    Tensor ids = input;
    ModuleCall call(base_, tape_, {&ids});
    const Tensor embeddings = embed(ids);
    const Tensor alibi = alibi_of();
    Tensor mask;
    {
      const Tensor additive = causal_mask(tape_, options_, embeddings, std::nullopt);
      mask = to(additive, DType::boolean);
    }
    std::shared_ptr<Tensor> outputs;
    Tensor hidden = run_holding_tuples(embeddings, outputs, [&](const MptBlock& block, const Tensor& x, const std::weak_ptr<Tensor>& held) {
      return block(x, alibi, mask, held);
    });
    hidden = (*norm_)(hidden);
    return call.done(hidden);
  }

  /// build_mpt_alibi_tensor: distances of all positions times a slope per head, [heads, 1, positions].
  Tensor alibi_of() const {
    tape_.operator_name = "alibi";
    const Tensor distances = view(arange(tape_, positions_, DType::int32), {1, 1, 1, positions_});
    std::int64_t slopes_in_all = 1;
    while (slopes_in_all < heads_) slopes_in_all *= 2;
    Tensor base = to(arange(tape_, slopes_in_all), DType::fp32);
    base = multiply_scalar(base);
    Tensor slopes;
    {
      const Tensor powers = tape_.empty(base.sizes(), DType::fp32);
      {
        const Tensor two = filled(tape_, {}, DType::int64);
        in_place(powers, {&two, &base});
      }
      const Tensor inverse = elementwise(tape_, {&powers}, DType::fp32);
      slopes = elementwise(tape_, {&inverse}, DType::fp32);
    }
    slopes = view(slopes, {1, slopes_in_all, 1, 1});
    if (slopes_in_all != heads_) {  // every second, then the others between
      const Tensor joined = tape_.empty({1, slopes_in_all, 1, 1}, DType::fp32);
      in_place(joined, {&slopes});
      slopes = slice(joined, 1, 0, heads_);
    }
    const Tensor biases = elementwise(tape_, {&distances, &slopes}, DType::fp32);
    return view(biases, {heads_, 1, positions_});
  }

  std::int64_t heads_, positions_;
};

}  // namespace

std::unique_ptr<Network> make_mpt(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<Mpt>(model, options, root, tape);
}

}  // namespace plimsoll::program
