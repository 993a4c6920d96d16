// GPTBigCodeForCausalLM (santacoder, starcoder): gpt2's blocks with linears and one head of keys and values for all queries.
#include "program/modules/transformers/decoder_stack.hpp"
#include "program/modules/transformers/families.hpp"
#include "program/modules/transformers/plain_mlp.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

class BigCodeBlock {
 public:
  BigCodeBlock(Module& module, Tape& tape, const RunOptions& options, const Block& block)
      : module_(module),
        attention_(module.child("attn")),
        tape_(tape),
        options_(options),
        block_(block),
        attention_norm_(module.child("ln_1"), tape, block.norm),
        mlp_norm_(module.child("ln_2"), tape, block.norm),
        qkv_(attention_.child("c_attn"), tape),
        output_(attention_.child("c_proj"), tape),
        mlp_(module.child("mlp"), tape, block.mlp->activation, "c_fc", "c_proj") {}

  Tensor operator()(const Tensor& input, const Tensor& mask) const {
    return run_layer(module_, tape_, options_, input, [this, mask](const Tensor& x) { return forward(x, mask); });
  }

 private:
  Tensor forward(const Tensor& input, const Tensor& mask) const {
    Tensor probabilities;  // the second of the attention's results lives until the block returns
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
    ModuleCall call(attention_, tape_, {&hidden});
    const AttentionSpec& spec = *block_.attention;
    const std::int64_t batch = hidden.size(0), length = hidden.size(1);
    std::vector<Tensor> parts;
    if (spec.kv_heads == 1 && spec.heads > 1) {
      parts = split(unsqueeze(qkv_(hidden), 1), {spec.heads * spec.head_dim, spec.head_dim, spec.head_dim}, 3);
      parts[0] = transpose(view(parts[0], {batch, length, -1, spec.head_dim}), 1, 2);
    } else {
      const Tensor heads = transpose(view(qkv_(hidden), {batch, length, spec.heads, 3 * spec.head_dim}), 1, 2);
      parts = split(heads, {spec.head_dim, spec.head_dim, spec.head_dim}, 3);
    }
    Tensor output = attend(parts[0], parts[1], parts[2], mask,
                           {.kind = options_.attention, .causal = true, .dropout = spec.dropout, .weights = &probabilities});
    output = contiguous(reshape(output, {batch, length, -1}));
    output = output_(output);
    output = dropout(output, block_.hidden_dropout);
    return call.done(output);
  }

  Module& module_;
  Module& attention_;
  Tape& tape_;
  const RunOptions& options_;
  const Block& block_;
  Norm attention_norm_, mlp_norm_;
  Linear qkv_, output_;
  PlainMlp mlp_;
};

class BigCode final : public DecoderStack<BigCodeBlock> {
 public:
  BigCode(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : DecoderStack(model, options, root, tape, {"transformer", "wte", "h", "ln_f"}), table_(base_.child("wpe"), tape) {}

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
    for (const BigCodeBlock& block : layers_) hidden = block(hidden, mask);
    hidden = (*norm_)(hidden);
    return call.done(hidden);
  }

  Embedding table_;
};

}  // namespace

std::unique_ptr<Network> make_gpt_bigcode(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<BigCode>(model, options, root, tape);
}

}  // namespace plimsoll::program
