// GPTNeoForCausalLM: its own eager attention, with scores in fp32 and a mask of bools kept by every layer.
#include "plimsoll/error.hpp"
#include "program/modules/transformers/decoder_stack.hpp"
#include "program/modules/transformers/families.hpp"
#include "program/modules/transformers/plain_mlp.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

class GptNeoBlock {
 public:
  GptNeoBlock(Module& module, Tape& tape, const RunOptions& options, const Block& block)
      : module_(module),
        outer_(module.child("attn")),
        attention_(outer_.child("attention")),
        tape_(tape),
        options_(options),
        block_(block),
        attention_norm_(module.child("ln_1"), tape, block.norm),
        mlp_norm_(module.child("ln_2"), tape, block.norm),
        q_(attention_.child("q_proj"), tape),
        k_(attention_.child("k_proj"), tape),
        v_(attention_.child("v_proj"), tape),
        output_(attention_.child("out_proj"), tape),
        mlp_(module.child("mlp"), tape, block.mlp->activation, "c_fc", "c_proj") {}

  Tensor operator()(const Tensor& input, const Tensor& mask, const std::weak_ptr<Tensor>& outputs) const {
    return run_layer_of_tuples(module_, tape_, options_, input, outputs,
                               [this, mask](const Tensor& x, Tensor& probabilities) { return forward(x, mask, probabilities); });
  }

 private:
  Tensor forward(const Tensor& input, const Tensor& mask, Tensor& probabilities) const {
    Tensor hidden = attention_norm_(input);
    const Tensor attended = attend_all(hidden, mask, probabilities);
    hidden = add(attended, input);
    const Tensor residual = hidden;
    hidden = mlp_norm_(hidden);
    Tensor fed = mlp_(hidden);
    fed = dropout(fed, block_.hidden_dropout);
    return add(residual, fed);
  }

  Tensor attend_all(const Tensor& input, const Tensor& mask, Tensor& probabilities) const {
    Tensor hidden = input;
    ModuleCall outer(outer_, tape_, {&hidden});
    ModuleCall call(attention_, tape_, {&hidden});
    const std::int64_t batch = hidden.size(0), length = hidden.size(1), dim = block_.attention->head_dim;
    const auto heads = [&](const Tensor& x) { return permute(view(x, {batch, length, -1, dim}), {0, 2, 1, 3}); };
    Tensor query = q_(hidden), key = k_(hidden), value = v_(hidden);
    query = heads(query);
    key = heads(key);
    value = heads(value);
    Tensor output = attend_in_fp32(query, key, value, mask, probabilities);
    output = contiguous(permute(output, {0, 2, 1, 3}));
    output = view(output, {batch, length, -1});
    output = output_(output);
    output = dropout(output, block_.hidden_dropout);
    return outer.done(call.done(output));
  }

  /// GPTNeoSelfAttention._attn: unscaled.
  Tensor attend_in_fp32(const Tensor& low_query, const Tensor& low_key, const Tensor& value, const Tensor& mask,
                        Tensor& probabilities) const {
    const Tensor query = to(low_query, DType::fp32), key = to(low_key, DType::fp32);
    Tensor weights = matmul(query, transpose(key, -1, -2));
    const std::int64_t length = query.size(-2);
    const Tensor allowed = slice(slice(attention_.buffer("bias"), 2, 0, length), 3, 0, length);
    weights = where(allowed, weights);
    if (mask) weights = add(weights, mask);
    weights = softmax(weights, weights.dtype());
    weights = to(weights, value.dtype());
    weights = dropout(weights, block_.attention->dropout);
    probabilities = weights;
    return matmul(weights, value);
  }

  Module& module_;
  Module& outer_;
  Module& attention_;
  Tape& tape_;
  const RunOptions& options_;
  const Block& block_;
  Norm attention_norm_, mlp_norm_;
  Linear q_, k_, v_, output_;
  PlainMlp mlp_;
};

class GptNeo final : public DecoderStack<GptNeoBlock> {
 public:
  GptNeo(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : DecoderStack(model, options, root, tape, {"transformer", "wte", "h", "ln_f"}), table_(base_.child("wpe"), tape) {
    if (options.attention != RunOptions::Attention::eager) fail("sdpa attention does not exist for gpt_neo", {}, "use eager attention");
  }

 private:
  Tensor decode(const Tensor& input) override {
    Tensor ids = input;
    ModuleCall call(base_, tape_, {&ids});
    const Tensor embeddings = embed(ids);
    const Tensor positions = position_ids(tape_, ids.size(1));
    find_packed_sequences(tape_);
    const Tensor mask = causal_mask(tape_, options_, embeddings, std::nullopt);
    const Tensor position_embeddings = table_(positions);
    Tensor hidden = add(embeddings, position_embeddings);
    hidden = dropout(hidden, embedding_dropout_);
    std::shared_ptr<Tensor> outputs;
    hidden = run_holding_tuples(hidden, outputs, [&](const GptNeoBlock& block, const Tensor& x, const std::weak_ptr<Tensor>& held) {
      return block(x, mask, held);
    });
    hidden = (*norm_)(hidden);
    hidden = view(hidden, {-1, hidden.size(1), hidden.size(2)});
    return call.done(hidden);
  }

  Embedding table_;
};

}  // namespace

std::unique_ptr<Network> make_gpt_neo(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<GptNeo>(model, options, root, tape);
}

}  // namespace plimsoll::program
