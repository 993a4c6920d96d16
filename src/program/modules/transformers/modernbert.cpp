// Sequence classification and masked language modeling of modernbert.
#include <algorithm>

#include "plimsoll/error.hpp"
#include "program/modules/transformers/causal_lm.hpp"
#include "program/modules/transformers/families.hpp"
#include "program/modules/transformers/text_heads.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// What every layer is given; a checkpointed layer's closure keeps it all.
struct LayerInputs {
  Tensor mask;
  RotaryTables tables;
};

class ModernBertLayer {
 public:
  ModernBertLayer(Module& module, Tape& tape, const RunOptions& options, const Block& block)
      : module_(module),
        attention_(module.child("attn")),
        mlp_(module.child("mlp")),
        tape_(tape),
        options_(options),
        block_(block),
        mlp_norm_(module.child("mlp_norm"), tape, block.norm),
        qkv_(attention_.child("Wqkv"), tape),
        output_(attention_.child("Wo"), tape),
        up_(mlp_.child("Wi"), tape),
        down_(mlp_.child("Wo"), tape) {
    if (Module* norm = module.find_child("attn_norm")) attention_norm_.emplace(*norm, tape, block.norm);
  }

  bool windowed() const { return block_.attention->sliding_window.has_value(); }

  Tensor operator()(const Tensor& input, const LayerInputs& inputs) const {
    return run_layer(module_, tape_, options_, input, [this, inputs](const Tensor& x) { return forward(x, inputs); });
  }

 private:
  Tensor forward(const Tensor& input, const LayerInputs& inputs) const {
    Tensor probabilities;
    Tensor attended;
    {
      const Tensor normed = attention_norm_ ? (*attention_norm_)(input) : input;
      attended = attend_all(normed, inputs, probabilities);
    }
    const Tensor hidden = add(input, attended);
    Tensor fed;
    {
      const Tensor normed = mlp_norm_(hidden);
      fed = feed_forward(normed);
    }
    return add(hidden, fed);
  }

  Tensor attend_all(const Tensor& input, const LayerInputs& inputs, Tensor& probabilities) const {
    Tensor hidden = input;
    ModuleCall call(attention_, tape_, {&hidden});
    const AttentionSpec& spec = *block_.attention;
    const std::int64_t batch = hidden.size(0), length = hidden.size(1);
    const Tensor qkv = view(qkv_(hidden), {batch, length, 3, -1, spec.head_dim});
    Tensor query, key, value;
    {
      const std::vector<Tensor> parts = split(qkv, {1, 1, 1}, 2);
      const auto heads = [](const Tensor& x) { return transpose(squeeze(x, 2), 1, 2); };
      query = heads(parts[0]);
      key = heads(parts[1]);
      value = heads(parts[2]);
    }
    rotate_pair(query, key, inputs.tables, Rotation::whole_in_fp32);
    Tensor output = attend(query, key, value, inputs.mask,
                           {.kind = options_.attention,
                            .causal = false,
                            .dropout = spec.dropout,
                            .window = spec.sliding_window.value_or(0),
                            .weights = &probabilities});
    output = contiguous(reshape(output, {batch, length, -1}));
    output = output_(output);
    return call.done(dropout(output, spec.dropout));
  }

  Tensor feed_forward(const Tensor& input) const {
    Tensor hidden = input;
    ModuleCall call(mlp_, tape_, {&hidden});
    const std::vector<Tensor> halves = chunk(up_(hidden), 2, -1);
    Tensor product;
    {
      const Tensor active = activate(block_.mlp->activation, halves[0]);
      product = multiply(active, halves[1]);
    }
    product = dropout(product, block_.mlp->dropout);
    return call.done(down_(product));
  }

  Module& module_;
  Module& attention_;
  Module& mlp_;
  Tape& tape_;
  const RunOptions& options_;
  const Block& block_;
  std::optional<Norm> attention_norm_;
  Norm mlp_norm_;
  Linear qkv_, output_, up_, down_;
};

class ModernBert final : public Network {
 public:
  ModernBert(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : tape_(tape), options_(options), model_(model), root_(root), base_(root.child("model")) {
    const bool paired = model.architecture.ends_with("ForMultipleChoice");
    if (paired || (model.task != Model::Task::masked_lm && model.task != Model::Task::classification))
      refuse("the head of " + model.architecture + " is not modelled for training");
    for (const Block& block : model.blocks) {
      if (block.role != Block::Role::encoder) continue;
      norm_ = block.norm;
      if (block.attention->sliding_window) window_ = block.attention->sliding_window;
      for (std::int64_t i = 0; i < block.repeat; ++i) {
        layers_.emplace_back(base_.child("layers").child(std::to_string(block.first + i)), tape_, options_.of_layer(block.first + i),
                             block);
      }
    }
  }

  Tensor loss(const Batch& batch) override {
    Tensor ids = batch.input_ids, labels = batch.labels;
    ModuleCall call(root_, tape_, {&ids, &labels});
    Tensor hidden = encode(ids);
    const bool masked = model_.task == Model::Task::masked_lm;
    const bool answers = model_.architecture.ends_with("ForQuestionAnswering");
    const bool of_tokens = masked || answers || model_.architecture.ends_with("ForTokenClassification");
    const Tensor pooled = of_tokens ? hidden : select(hidden, 1);
    Tensor logits = logits_of(pooled, masked ? "decoder" : "classifier");
    if (answers) {
      std::vector<Tensor> ends;
      Tensor loss = answer_loss(logits, batch, ends);
      call.done({&loss, &ends[0], &ends[1]});
      hold(options_, {ends[0], ends[1]});
      return loss;
    }
    tape_.phase(Phase::loss);
    const Tensor wide = masked ? to(logits, DType::fp32) : logits;
    Tensor loss = label_loss(wide, labels);
    call.done({&loss, &logits});
    hold(options_, {logits});
    return loss;
  }

 private:
  /// ModernBertPredictionHead, then the classes or the vocabulary.
  Tensor logits_of(const Tensor& input, const char* last) {
    Tensor hidden;
    {
      Module& head = root_.child("head");
      Tensor x = input;
      ModuleCall call(head, tape_, {&x});
      x = Linear(head.child("dense"), tape_)(x);
      x = gelu(x);
      hidden = call.done(Norm(head.child("norm"), tape_, norm_)(x));
    }
    return Linear(root_.child(last), tape_)(hidden);
  }

  Tensor encode(const Tensor& input) {
    Tensor ids = input;
    ModuleCall call(base_, tape_, {&ids});
    const Tensor positions = unsqueeze(arange(tape_, ids.size(1)), 0);
    const Tensor embeddings = embed(ids);  // the masks' keyword arguments hold it until the model returns
    Tensor hidden = embeddings;
    if (options_.hidden_requires_grad && !hidden.requires_grad()) hidden.set_requires_grad(true);
    LayerInputs full, windowed;
    if (options_.attention == RunOptions::Attention::eager) full.mask = bidirectional_mask(tape_, options_, hidden);
    if (window_) windowed.mask = bidirectional_window_mask(tape_, options_, hidden, *window_ - 1);
    Module& rotary = base_.child("rotary_emb");
    full.tables = rotary_tables(rotary, tape_, positions, hidden.dtype(), "full_attention_inv_freq");
    if (window_) windowed.tables = rotary_tables(rotary, tape_, positions, hidden.dtype(), "sliding_attention_inv_freq");
    for (const ModernBertLayer& layer : layers_) hidden = layer(hidden, layer.windowed() ? windowed : full);
    hidden = Norm(base_.child("final_norm"), tape_, norm_)(hidden);
    return call.done(hidden);
  }

  Tensor embed(const Tensor& input) {
    Module& embeddings = base_.child("embeddings");
    Tensor ids = input;
    ModuleCall call(embeddings, tape_, {&ids});
    Tensor hidden = Embedding(embeddings.child("tok_embeddings"), tape_)(ids);
    hidden = Norm(embeddings.child("norm"), tape_, norm_)(hidden);
    return call.done(dropout(hidden, model_.embedding_dropout));
  }

  Tape& tape_;
  RunOptions options_;
  const Model& model_;
  Module& root_;
  Module& base_;
  NormSpec norm_;
  std::optional<std::int64_t> window_;
  std::vector<ModernBertLayer> layers_;
};

}  // namespace

std::unique_ptr<Network> make_modernbert(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<ModernBert>(model, options, root, tape);
}

}  // namespace plimsoll::program
