// OPTForCausalLM.
#include "program/modules/bare.hpp"
#include "program/modules/transformers/compiled_layer.hpp"
#include "program/modules/transformers/decoder_stack.hpp"
#include "program/modules/transformers/families.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

class OptLayer {
 public:
  OptLayer(Module& module, Tape& tape, const RunOptions& options, const Block& block)
      : module_(module),
        attention_(module.child("self_attn")),
        tape_(tape),
        options_(options),
        block_(block),
        attention_norm_(module.child("self_attn_layer_norm", !block.norm.weight), tape, block.norm),
        final_norm_(module.child("final_layer_norm", !block.norm.weight), tape, block.norm),
        q_(attention_.child("q_proj"), tape),
        k_(attention_.child("k_proj"), tape),
        v_(attention_.child("v_proj"), tape),
        output_(attention_.child("out_proj"), tape),
        up_(module.child("fc1"), tape),
        down_(module.child("fc2"), tape),
        activation_fn_(module, "activation_fn", tape, block.mlp->activation) {}

  Tensor operator()(const Tensor& input, const Tensor& mask, const Tensor& positions) const {
    return run_layer(module_, tape_, options_, input, [this, mask, positions](const Tensor& x) {
      if (!options_.compiled_blocks) return forward(x, mask, positions);
      const auto make = [&](Module& twin, Tape& tape, const RunOptions& eager) -> LayerForward {
        const auto layer = std::make_shared<OptLayer>(twin, tape, eager, block_);
        return [layer](const std::vector<Tensor>& given) { return layer->forward(given[0], given[1], given[2]); };
      };
      return run_compiled_layer(module_, options_, &block_, {x, mask, positions}, make);
    });
  }

 private:
  Tensor forward(const Tensor& input, const Tensor& mask, const Tensor& positions) const {
    Tensor probabilities;  // the second of the attention's results lives until the layer returns
    const bool before = block_.placement == NormPlacement::pre;
    Tensor residual = input, hidden = input;
    if (before) hidden = attention_norm_(hidden);
    hidden = attend_all(hidden, mask, positions, probabilities);
    hidden = dropout(hidden, block_.hidden_dropout);
    hidden = add(residual, hidden);
    if (!before) hidden = attention_norm_(hidden);
    const Dims sizes = hidden.sizes();
    hidden = reshape(hidden, {-1, hidden.size(-1)});
    residual = hidden;
    if (before) hidden = final_norm_(hidden);
    hidden = up_(hidden);
    hidden = activation_fn_(hidden);
    hidden = down_(hidden);
    hidden = dropout(hidden, block_.hidden_dropout);
    hidden = view(add(residual, hidden), sizes);
    if (!before) hidden = final_norm_(hidden);
    return hidden;
  }

  Tensor attend_all(const Tensor& input, const Tensor& mask, const Tensor& positions, Tensor& probabilities) const {
    Tensor hidden = input;
    ModuleCall call(attention_, tape_, {&hidden});
    const AttentionSpec& spec = *block_.attention;
    const std::int64_t batch = hidden.size(0), length = hidden.size(1);
    const auto heads = [&](const Tensor& x) { return transpose(view(x, {batch, -1, spec.heads, spec.head_dim}), 1, 2); };
    Tensor query = q_(hidden);
    query = multiply_scalar(query);
    query = heads(query);
    Tensor key = k_(hidden);
    Tensor value = v_(hidden);
    key = heads(key);
    value = heads(value);
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
  Norm attention_norm_, final_norm_;
  Linear q_, k_, v_, output_, up_, down_;
  Activation activation_fn_;
};

class Opt final : public DecoderStack<OptLayer> {
 public:
  Opt(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : DecoderStack(model, options, root, tape, {"model.decoder", "embed_tokens", "layers", "final_layer_norm"}),
        table_(base_.child("embed_positions"), tape) {
    if (Module* narrow = base_.find_child("project_in")) project_in_.emplace(*narrow, tape_);
    if (Module* narrow = base_.find_child("project_out")) project_out_.emplace(*narrow, tape_);
  }

  Tensor loss(const Batch& batch) override {
    Tensor ids = batch.input_ids, labels = batch.labels;
    ModuleCall call(root_, tape_, {&ids, &labels});
    const Tensor hidden = decode(ids);
    if (head_.classifies()) return head_.classify(options_, call, hidden, {ids, labels, batch.conditions});
    Tensor logits = contiguous(head_(slice(hidden, 1, 0, hidden.size(1))));
    tape_.phase(Phase::loss);
    Tensor loss = causal_lm_loss(logits, labels, options_.release.causal_loss("opt"));
    call.done({&loss, &logits});
    hold(options_, {logits});
    return loss;
  }

 private:
  Tensor decode(const Tensor& input) override {
    Tensor ids = input;
    ModuleCall call(base_, tape_, {&ids});
    Tensor embeddings = embed(ids);
    const Tensor ones = filled(tape_, {ids.size(0), ids.size(1)}, DType::fp32);
    const Tensor positions = summed_positions(ones);
    const Tensor mask = causal_mask(tape_, options_, embeddings, std::nullopt);
    const Tensor position_embeddings = table_(add_scalar(positions));
    if (project_in_) embeddings = (*project_in_)(embeddings);
    Tensor hidden = add(embeddings, position_embeddings);
    for (const OptLayer& layer : layers_) hidden = layer(hidden, mask, positions);
    if (norm_) hidden = (*norm_)(hidden);
    if (project_out_) hidden = (*project_out_)(hidden);
    return call.done(hidden);
  }

  /// Positions from a mask of ones: (cumsum(mask, 1) * mask - 1).long().
  Tensor summed_positions(const Tensor& ones) {
    Tensor positions = cumulative_sum(ones, ones.dtype());
    Tensor shifted = multiply(positions, ones);
    shifted = add_scalar(shifted);
    positions = to(shifted, DType::int64);
    shifted.reset();
    return positions;
  }

  Embedding table_;
  std::optional<Linear> project_in_, project_out_;  ///< where the tokens are narrower than the hidden state
};

}  // namespace

std::unique_ptr<Network> make_opt(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<Opt>(model, options, root, tape);
}

}  // namespace plimsoll::program
