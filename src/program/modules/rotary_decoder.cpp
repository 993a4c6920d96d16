// LlamaForCausalLM and its relatives.
#include "program/modules/causal_lm.hpp"
#include "program/modules/families.hpp"
#include "program/ops.hpp"

namespace plimsoll::program {

namespace {

/// Keyword arguments of every layer; a checkpointed layer's closure keeps them all.
struct LayerInputs {
  Tensor mask;
  RotaryTables tables;
  Tensor positions;
};

class Attention {
 public:
  Attention(Module& module, Tape& tape, const RunOptions& options, const AttentionSpec& spec)
      : module_(module), tape_(tape), options_(options), spec_(spec), output_(module.child("o_proj"), tape, options.lora_dropout) {
    q_ = Linear(module.child("q_proj"), tape, options.lora_dropout);
    k_ = Linear(module.child("k_proj"), tape, options.lora_dropout);
    v_ = Linear(module.child("v_proj"), tape, options.lora_dropout);
  }

  Tensor operator()(const Tensor& input, const Tensor& mask, const RotaryTables& tables) const {
    Tensor hidden = input;
    ModuleCall call(module_, tape_, {&hidden});
    const std::int64_t batch = hidden.size(0), length = hidden.size(1);
    const auto heads = [&](const Tensor& x) { return transpose(view(x, {batch, length, -1, spec_.head_dim}), 1, 2); };
    Tensor query = heads(q_(hidden));
    Tensor key = heads(k_(hidden));
    const Tensor value = heads(v_(hidden));
    {
      const Tensor cosine = unsqueeze(tables.cosine, 1), sine = unsqueeze(tables.sine, 1);
      const Tensor turned_query = rotate(query, cosine, sine);
      key = rotate(key, cosine, sine);
      query = turned_query;
    }
    Tensor output = attend(query, key, value, mask, {.kind = options_.attention, .causal = spec_.causal, .dropout = spec_.dropout});
    output = contiguous(reshape(output, {batch, length, -1}));
    output = output_(output);
    return call.done(output);
  }

 private:
  Module& module_;
  Tape& tape_;
  const RunOptions& options_;
  const AttentionSpec& spec_;
  Linear q_, k_, v_, output_;
};

class Mlp {
 public:
  Mlp(Module& module, Tape& tape, const RunOptions& options, const MlpSpec& spec)
      : module_(module),
        tape_(tape),
        spec_(spec),
        gate_(module.child("gate_proj"), tape, options.lora_dropout),
        up_(module.child("up_proj"), tape, options.lora_dropout),
        down_(module.child("down_proj"), tape, options.lora_dropout) {}

  Tensor operator()(const Tensor& input) const {
    Tensor x = input;
    ModuleCall call(module_, tape_, {&x});
    Tensor gate = gate_(x);
    gate = activate(spec_.activation, gate);
    {
      const Tensor up = up_(x);
      gate = multiply(gate, up);
    }
    return call.done(down_(gate));
  }

 private:
  Module& module_;
  Tape& tape_;
  const MlpSpec& spec_;
  Linear gate_, up_, down_;
};

class Layer {
 public:
  Layer(Module& module, Tape& tape, const RunOptions& options, const Block& block)
      : module_(module),
        tape_(tape),
        options_(options),
        input_norm_(module.child("input_layernorm"), tape, block.norm),
        mlp_norm_(module.child("post_attention_layernorm"), tape, block.norm),
        attention_(module.child("self_attn"), tape, options, *block.attention),
        mlp_(module.child("mlp"), tape, options, *block.mlp) {}

  Tensor operator()(const Tensor& input, const LayerInputs& inputs) const {
    return run_layer(module_, tape_, options_, input, [this, inputs](const Tensor& x) { return forward(x, inputs.mask, inputs.tables); });
  }

 private:
  Tensor forward(const Tensor& input, const Tensor& mask, const RotaryTables& tables) const {
    Tensor residual = input;
    Tensor hidden = input_norm_(input);
    hidden = attention_(hidden, mask, tables);
    hidden = add(residual, hidden);
    residual = hidden;
    hidden = mlp_norm_(hidden);
    hidden = mlp_(hidden);
    return add(residual, hidden);
  }

  Module& module_;
  Tape& tape_;
  const RunOptions& options_;
  Norm input_norm_, mlp_norm_;
  Attention attention_;
  Mlp mlp_;
};

class RotaryDecoder final : public Network {
 public:
  RotaryDecoder(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : tape_(tape),
        options_(options),
        root_(root),
        base_(root.child("model")),
        embed_(base_.child("embed_tokens"), tape),
        head_(root.child("lm_head"), tape) {
    for (const Block& block : model.blocks) {
      if (block.role == Block::Role::final_norm) norm_.emplace(base_.child("norm"), tape, block.norm);
      if (block.role != Block::Role::decoder) continue;
      for (std::int64_t i = 0; i < block.repeat; ++i) {
        layers_.emplace_back(base_.child("layers").child(std::to_string(block.first + i)), tape_, options_, block);
      }
    }
  }

  Tensor loss(const Batch& batch) override {
    Tensor ids = batch.input_ids, labels = batch.labels;
    ModuleCall call(root_, tape_, {&ids, &labels});
    const Tensor hidden = decode(ids);
    const Tensor logits = head_(slice(hidden, 1, 0, hidden.size(1)));
    tape_.phase(Phase::loss);
    return call.done(causal_lm_loss(logits, labels));
  }

 private:
  Tensor decode(const Tensor& input) {
    Tensor ids = input;
    ModuleCall call(base_, tape_, {&ids});
    const Tensor embeddings = embed_(ids);
    if (options_.hidden_requires_grad) embeddings.set_requires_grad(true);
    const Tensor positions = position_ids(tape_, ids.size(1));
    const Tensor mask = causal_mask(tape_, options_, embeddings, std::nullopt);
    Tensor hidden = embeddings;
    const LayerInputs inputs{mask, rotary_tables(base_.child("rotary_emb"), tape_, positions, hidden.dtype()), positions};
    for (const Layer& layer : layers_) hidden = layer(hidden, inputs);
    hidden = (*norm_)(hidden);
    return call.done(hidden);
  }

  Tape& tape_;
  RunOptions options_;
  Module& root_;
  Module& base_;
  Embedding embed_;
  std::vector<Layer> layers_;
  std::optional<Norm> norm_;
  Linear head_;
};

}  // namespace

std::unique_ptr<Network> make_rotary_decoder(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<RotaryDecoder>(model, options, root, tape);
}

}  // namespace plimsoll::program
