// GPTNeoXForCausalLM.
#include "program/modules/bare.hpp"
#include "program/modules/transformers/compiled_layer.hpp"
#include "program/modules/transformers/decoder_stack.hpp"
#include "program/modules/transformers/families.hpp"
#include "program/modules/transformers/plain_mlp.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

class NeoxLayer {
 public:
  NeoxLayer(Module& module, Tape& tape, const RunOptions& options, const Block& block)
      : module_(module),
        attention_(module.child("attention")),
        tape_(tape),
        options_(options),
        block_(block),
        attention_norm_(module.child("input_layernorm"), tape, block.norm),
        mlp_norm_(module.child("post_attention_layernorm"), tape, block.norm),
        qkv_(attention_.child("query_key_value"), tape),
        output_(attention_.child("dense"), tape),
        mlp_(module.child("mlp"), tape, block.mlp->activation, "dense_h_to_4h", "dense_4h_to_h"),
        attention_dropout_(module, "post_attention_dropout", tape, block.hidden_dropout),
        mlp_dropout_(module, "post_mlp_dropout", tape, block.hidden_dropout) {}

  Tensor operator()(const Tensor& input, const Tensor& mask, const RotaryTables& tables, const Tensor& positions) const {
    return run_layer(module_, tape_, options_, input, [this, mask, tables, positions](const Tensor& x) {
      if (!options_.compiled_blocks) return forward(x, mask, tables, positions);
      const auto make = [&](Module& twin, Tape& tape, const RunOptions& eager) -> LayerForward {
        const auto layer = std::make_shared<NeoxLayer>(twin, tape, eager, block_);
        return [layer](const std::vector<Tensor>& given) { return layer->forward(given[0], given[1], {given[2], given[3]}, given[4]); };
      };
      return run_compiled_layer(module_, options_, &block_, {x, mask, tables.cosine, tables.sine, positions}, make);
    });
  }

 private:
  Tensor forward(const Tensor& input, const Tensor& mask, const RotaryTables& tables, const Tensor& positions) const {
    Tensor probabilities;  // the second of the attention's results lives until the layer returns
    Tensor attended;
    {
      const Tensor normed = attention_norm_(input);
      attended = attend_all(normed, mask, tables, positions, probabilities);
    }
    attended = attention_dropout_(attended);
    const bool parallel = block_.placement == NormPlacement::parallel_two;
    if (!parallel) attended = add(attended, input);
    Tensor fed;
    {
      const Tensor normed = mlp_norm_(parallel ? input : attended);
      fed = mlp_(normed);
    }
    fed = mlp_dropout_(fed);
    const Tensor joined = add(fed, attended);
    return parallel ? add(joined, input) : joined;
  }

  Tensor attend_all(const Tensor& input, const Tensor& mask, const RotaryTables& tables, const Tensor& positions,
                    Tensor& probabilities) const {
    Tensor hidden = input;
    ModuleCall call(attention_, tape_, {&hidden});
    const AttentionSpec& spec = *block_.attention;
    const std::int64_t batch = hidden.size(0), length = hidden.size(1);
    Tensor query, key, value;
    const Tensor qkv = transpose(view(qkv_(hidden), {batch, length, -1, 3 * spec.head_dim}), 1, 2);
    {
      const std::vector<Tensor> parts = chunk(qkv, 3, -1);
      query = parts[0];
      key = parts[1];
      value = parts[2];
    }
    rotate_pair(query, key, tables, Rotation::join_last);
    Tensor output = attend(query, key, value, mask, causal_call(options_, spec, positions, &probabilities));
    output = contiguous(reshape(output, {batch, length, -1}));
    output = output_(output);
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
  Dropout attention_dropout_, mlp_dropout_;
};

class GptNeox final : public DecoderStack<NeoxLayer> {
 public:
  GptNeox(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : DecoderStack(model, options, root, tape, {"gpt_neox", "embed_in", "layers", "final_layer_norm"}),
        emb_dropout_(base_, "emb_dropout", tape, embedding_dropout_) {}

 private:
  Tensor decode(const Tensor& input) override {
    Tensor ids = input;
    ModuleCall call(base_, tape_, {&ids});
    const Tensor embeddings = embed(ids);
    const Tensor positions = position_ids(tape_, ids.size(1));
    find_packed_sequences(tape_);
    const Tensor mask = causal_mask(tape_, options_, embeddings, std::nullopt);
    Tensor hidden = emb_dropout_(embeddings);
    const RotaryTables tables = rotary_tables(base_.child("rotary_emb"), tape_, positions, hidden.dtype());
    for (const NeoxLayer& layer : layers_) hidden = layer(hidden, mask, tables, positions);
    hidden = (*norm_)(hidden);
    return call.done(hidden);
  }

  Dropout emb_dropout_;
};

}  // namespace

std::unique_ptr<Network> make_gpt_neox(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<GptNeox>(model, options, root, tape);
}

}  // namespace plimsoll::program
