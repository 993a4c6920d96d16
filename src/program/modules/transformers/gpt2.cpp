// GPT2LMHeadModel.
#include "program/modules/bare.hpp"
#include "program/modules/transformers/compiled_layer.hpp"
#include "program/modules/transformers/decoder_stack.hpp"
#include "program/modules/transformers/families.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// gpt2's own eager_attention_forward: softmax in the scores' type, no copy of the transposed output.
Tensor attend_eagerly(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, const Dropout& attention_dropout,
                      Tensor& probabilities) {
  Tensor weights = matmul(query, transpose(key, -1, -2));
  weights = multiply_scalar(weights);
  if (mask) weights = add(weights, mask);
  weights = softmax(weights, weights.dtype());
  weights = to(weights, value.dtype());
  weights = attention_dropout(weights);
  probabilities = weights;
  return transpose(matmul(weights, value), 1, 2);
}

class Gpt2Block {
 public:
  Gpt2Block(Module& module, Tape& tape, const RunOptions& options, const Block& block)
      : module_(module),
        attention_(module.child("attn")),
        mlp_(module.child("mlp")),
        tape_(tape),
        options_(options),
        block_(block),
        attention_norm_(module.child("ln_1"), tape, block.norm),
        mlp_norm_(module.child("ln_2"), tape, block.norm),
        qkv_(attention_.child("c_attn"), tape),
        output_(attention_.child("c_proj"), tape),
        up_(mlp_.child("c_fc"), tape),
        down_(mlp_.child("c_proj"), tape),
        attention_dropout_(attention_, "attn_dropout", tape, block.attention->dropout),
        output_dropout_(attention_, "resid_dropout", tape, block.hidden_dropout),
        act_(mlp_, "act", tape, block.mlp->activation),
        mlp_dropout_(mlp_, "dropout", tape, block.hidden_dropout) {}

  Tensor operator()(const Tensor& input, const Tensor& mask, const Tensor& positions) const {
    return run_layer(module_, tape_, options_, input, [this, mask, positions](const Tensor& x) {
      if (!options_.compiled_blocks) return forward(x, mask, positions);
      const auto make = [&](Module& twin, Tape& tape, const RunOptions& eager) -> LayerForward {
        const auto layer = std::make_shared<Gpt2Block>(twin, tape, eager, block_);
        return [layer](const std::vector<Tensor>& given) { return layer->forward(given[0], given[1], given[2]); };
      };
      return run_compiled_layer(module_, options_, &block_, {x, mask, positions}, make);
    });
  }

 private:
  Tensor forward(const Tensor& input, const Tensor& mask, const Tensor& positions) const {
    Tensor probabilities;  // the second of the attention's results lives until the block returns
    Tensor residual = input;
    Tensor hidden = attention_norm_(input);
    const Tensor attended = attend_all(hidden, mask, positions, probabilities);
    hidden = add(attended, residual);
    residual = hidden;
    hidden = mlp_norm_(hidden);
    const Tensor fed = feed_forward(hidden);
    hidden = add(residual, fed);
    return hidden;
  }

  Tensor attend_all(const Tensor& input, const Tensor& mask, const Tensor& positions, Tensor& probabilities) const {
    Tensor hidden = input;
    ModuleCall call(attention_, tape_, {&hidden});
    const AttentionSpec& spec = *block_.attention;
    const std::int64_t batch = hidden.size(0), length = hidden.size(1), width = spec.heads * spec.head_dim;
    Tensor query, key, value;
    {
      const std::vector<Tensor> parts = split(qkv_(hidden), {width, width, width}, 2);
      const auto heads = [&](const Tensor& x) { return transpose(view(x, {batch, length, -1, spec.head_dim}), 1, 2); };
      key = heads(parts[1]);
      value = heads(parts[2]);
      query = heads(parts[0]);
    }
    Tensor output = options_.attention == RunOptions::Attention::eager
                        ? attend_eagerly(query, key, value, mask, attention_dropout_, probabilities)
                        : attend(query, key, value, mask, causal_call(options_, spec, positions, nullptr));
    output = contiguous(reshape(output, {batch, length, -1}));
    output = output_(output);
    output = output_dropout_(output);
    return call.done(output);
  }

  Tensor feed_forward(const Tensor& input) const {
    Tensor hidden = input;
    ModuleCall call(mlp_, tape_, {&hidden});
    hidden = up_(hidden);
    hidden = act_(hidden);
    hidden = down_(hidden);
    hidden = mlp_dropout_(hidden);
    return call.done(hidden);
  }

  Module& module_;
  Module& attention_;
  Module& mlp_;
  Tape& tape_;
  const RunOptions& options_;
  const Block& block_;
  Norm attention_norm_, mlp_norm_;
  Conv1D qkv_, output_, up_, down_;
  Dropout attention_dropout_, output_dropout_;
  Activation act_;
  Dropout mlp_dropout_;
};

class Gpt2 final : public DecoderStack<Gpt2Block> {
 public:
  Gpt2(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : DecoderStack(model, options, root, tape, {"transformer", "wte", "h", "ln_f"}),
        table_(base_.child("wpe"), tape),
        drop_(base_, "drop", tape, embedding_dropout_) {}

 private:
  Tensor decode(const Tensor& input) override {
    Tensor ids = input;
    ModuleCall call(base_, tape_, {&ids});
    const Tensor embeddings = embed(ids);
    const Tensor positions = position_ids(tape_, ids.size(1));
    const Tensor position_embeddings = table_(positions);
    Tensor hidden = add(embeddings, position_embeddings);
    const Tensor mask = model_mask(tape_, options_, embeddings, positions, std::nullopt);
    hidden = drop_(hidden);
    for (const Gpt2Block& block : layers_) hidden = block(hidden, mask, positions);
    hidden = (*norm_)(hidden);
    hidden = view(hidden, {-1, hidden.size(1), hidden.size(2)});
    return call.done(hidden);
  }

  Embedding table_;
  Dropout drop_;
};

}  // namespace

std::unique_ptr<Network> make_gpt2(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<Gpt2>(model, options, root, tape);
}

}  // namespace plimsoll::program
