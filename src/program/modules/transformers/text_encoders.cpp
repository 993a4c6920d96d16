// transformers/models/clip/modeling_clip.py: the tower of texts.
#include "program/modules/transformers/text_encoders.hpp"

#include <utility>
#include <vector>

#include "plimsoll/error.hpp"
#include "program/modules/layers.hpp"
#include "program/modules/text_network.hpp"
#include "program/ops/choosing.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/placing.hpp"

namespace plimsoll::program {

namespace {

class ClipText final : public TextEncoder {
 public:
  ClipText(const Model& model, Module& root, Tape& tape)
      : tape_(tape), root_(root), tower_(root.child("text_model")), head_dim_(model.head_dim), activation_(activation_of(model)) {}

  TextFeatures operator()(const Tensor& ids, bool all_layers) override {
    Tensor input = ids;
    ModuleCall call(root_, tape_, {&input});
    Tensor hidden = embedded(input);
    std::vector<Tensor> held;
    for (const auto& layer : tower_.child("encoder").child("layers").children) {
      if (all_layers) held.push_back(hidden);
      hidden = through(*layer, hidden);
    }
    const Tensor last = normed(tower_.child("final_layer_norm"), hidden);
    TextFeatures made{all_layers ? held.back() : last, pooled(last, input)};
    if (Module* const projection = root_.find_child("text_projection")) made.pooled = Linear(*projection, tape_)(made.pooled);
    call.done({&made.hidden, &made.pooled});
    return made;
  }

 private:
  static std::string activation_of(const Model& model) {
    for (const Block& block : model.blocks)
      if (block.mlp) return block.mlp->activation;
    throw Error(ErrorCode::internal, "the encoder of texts '" + model.name + "' has no layers");
  }

  Tensor normed(Module& norm, const Tensor& input) const {
    Tensor x = input;
    ModuleCall call(norm, tape_, {&x});
    return call.done(layer_norm(x, norm.tensor("weight"), norm.tensor("bias")));
  }

  Tensor embedded(const Tensor& ids) const {
    Module& embeddings = tower_.child("embeddings");
    const Tensor words = Embedding(embeddings.child("token_embedding"), tape_)(ids);
    const Tensor rows = slice(embeddings.buffer("position_ids"), 1, 0, ids.size(1));
    const Tensor positions = Embedding(embeddings.child("position_embedding"), tape_)(rows);
    return add(words, positions);
  }

  Tensor attended(Module& module, const Tensor& input) const {
    Tensor x = input;
    ModuleCall call(module, tape_, {&x});
    const std::int64_t batch = x.size(0), length = x.size(1);
    const Tensor query = Linear(module.child("q_proj"), tape_)(x), key = Linear(module.child("k_proj"), tape_)(x),
                 value = Linear(module.child("v_proj"), tape_)(x);
    const auto heads = [&](const Tensor& of) { return transpose(view(of, {batch, length, -1, head_dim_}), 1, 2); };
    Tensor output = scaled_dot_product_attention(heads(query), heads(key), heads(value), {}, {.causal = true});
    output = contiguous(transpose(output, 1, 2));
    output = contiguous(reshape(output, {batch, length, -1}));
    return call.done(Linear(module.child("out_proj"), tape_)(output));
  }

  Tensor forwarded(Module& module, const Tensor& input) const {
    Tensor x = input;
    ModuleCall call(module, tape_, {&x});
    x = Linear(module.child("fc1"), tape_)(x);
    x = activate(activation_, x);
    return call.done(Linear(module.child("fc2"), tape_)(x));
  }

  Tensor through(Module& layer, const Tensor& input) const {
    Tensor hidden = input;
    ModuleCall call(layer, tape_, {&hidden});
    Tensor residual = hidden;
    hidden = normed(layer.child("layer_norm1"), hidden);
    hidden = attended(layer.child("self_attn"), hidden);
    hidden = add(residual, hidden);
    residual = hidden;
    hidden = normed(layer.child("layer_norm2"), hidden);
    hidden = forwarded(layer.child("mlp"), hidden);
    return call.done(add(residual, hidden));
  }

  /// The features at each text's end, the highest of its numbers.
  Tensor pooled(const Tensor& last, const Tensor& ids) const {
    const Tensor rows = arange(tape_, last.size(0));
    const Tensor narrow = to(ids, DType::int32);
    return indexed_by(last, 0, {rows, place_of_extreme(narrow, 1, false)});
  }

  Tape& tape_;
  Module& root_;
  Module& tower_;
  std::int64_t head_dim_;
  std::string activation_;
};

}  // namespace

Model in_evaluation(Model model) {
  model.embedding_dropout = 0;
  for (Block& block : model.blocks) {
    block.hidden_dropout = 0;
    if (block.attention) block.attention->dropout = 0;
    if (block.cross_attention) block.cross_attention->dropout = 0;
    if (block.mlp) block.mlp->dropout = 0;
  }
  return model;
}

std::unique_ptr<TextEncoder> make_text_encoder(const Model& model, const HfRelease& release, Module& root, Tape& tape) {
  if (model.model_type == "clip_text_model") return std::make_unique<ClipText>(model, root, tape);
  if (model.model_type == "t5") return make_told_text_encoder(model, release, root, tape);
  refuse("a prompt that " + model.architecture + " encodes is not modelled", "text_encoders", "absent");
}

}  // namespace plimsoll::program
