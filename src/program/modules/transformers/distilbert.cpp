// Sequence classification and masked language modeling of distilbert.
#include <string>

#include "plimsoll/error.hpp"
#include "program/modules/transformers/causal_lm.hpp"
#include "program/modules/transformers/families.hpp"
#include "program/modules/transformers/text_heads.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

class DistilBertLayer {
 public:
  DistilBertLayer(Module& module, Tape& tape, const RunOptions& options, const Block& block)
      : module_(module),
        attention_(module.child("attention")),
        tape_(tape),
        options_(options),
        block_(block),
        q_(attention_.child("q_lin"), tape),
        k_(attention_.child("k_lin"), tape),
        v_(attention_.child("v_lin"), tape),
        output_(attention_.child("out_lin"), tape),
        up_(module.child("ffn").child("lin1"), tape),
        down_(module.child("ffn").child("lin2"), tape),
        attention_norm_(module.child("sa_layer_norm"), tape, block.norm),
        output_norm_(module.child("output_layer_norm"), tape, block.norm) {}

  Tensor operator()(const Tensor& input, const Tensor& mask) const {
    return run_layer(module_, tape_, options_, input, [this, mask](const Tensor& x) { return forward(x, mask); });
  }

 private:
  Tensor forward(const Tensor& input, const Tensor& mask) const {
    Tensor probabilities;  // the second of the attention's results lives until the layer returns
    Tensor attended = attend_all(input, mask, probabilities);
    {
      const Tensor sum = add(attended, input);
      attended = attention_norm_(sum);
    }
    Tensor fed = up_(attended);
    fed = activate(block_.mlp->activation, fed);
    fed = down_(fed);
    fed = dropout(fed, block_.hidden_dropout);
    const Tensor sum = add(fed, attended);
    return output_norm_(sum);
  }

  Tensor attend_all(const Tensor& input, const Tensor& mask, Tensor& probabilities) const {
    Tensor hidden = input;
    ModuleCall call(attention_, tape_, {&hidden});
    const AttentionSpec& spec = *block_.attention;
    const std::int64_t batch = hidden.size(0), length = hidden.size(1);
    const auto heads = [&](const Tensor& x) { return transpose(view(x, {batch, length, -1, spec.head_dim}), 1, 2); };
    const Tensor query = heads(q_(hidden)), key = heads(k_(hidden)), value = heads(v_(hidden));
    const AttentionCall arguments{
        .kind = options_.attention, .causal = false, .dropout = spec.dropout, .weights = &probabilities, .softmax_in_fp32 = false};
    Tensor output = attend(query, key, value, mask, arguments);
    output = contiguous(reshape(output, {batch, length, -1}));
    output = output_(output);
    return call.done(output);
  }

  Module& module_;
  Module& attention_;
  Tape& tape_;
  const RunOptions& options_;
  const Block& block_;
  Linear q_, k_, v_, output_, up_, down_;
  Norm attention_norm_, output_norm_;
};

class DistilBert final : public Network {
 public:
  DistilBert(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : tape_(tape),
        options_(options),
        model_(model),
        root_(root),
        base_(root.child("distilbert")),
        embeddings_(base_.child("embeddings")) {
    const bool paired = model.architecture.ends_with("ForMultipleChoice");
    if (paired || (model.task != Model::Task::classification && model.task != Model::Task::masked_lm))
      refuse("the head of " + model.architecture + " is not modelled for training", "architectures",
             "one that ends in ForMaskedLM, ForSequenceClassification, ForTokenClassification or ForQuestionAnswering");
    for (const Block& block : model.blocks) {
      if (block.role != Block::Role::encoder) continue;
      norm_ = block.norm;
      activation_ = block.mlp->activation;
      for (std::int64_t i = 0; i < block.repeat; ++i) {
        Module& layer = base_.child("transformer").child("layer").child(std::to_string(block.first + i));
        layers_.emplace_back(layer, tape_, options_.of_layer(block.first + i), block);
      }
    }
  }

  Tensor loss(const Batch& batch) override {
    Tensor ids = batch.input_ids, labels = batch.labels;
    ModuleCall call(root_, tape_, {&ids, &labels});
    Tensor hidden = encode(ids);
    if (model_.architecture.ends_with("ForQuestionAnswering")) {
      hidden = dropout(hidden, kAnswerDropout);
      const Tensor logits = Linear(root_.child("qa_outputs"), tape_)(hidden);
      std::vector<Tensor> ends;
      Tensor loss = answer_loss(logits, batch, ends);
      call.done({&loss, &ends[0], &ends[1]});
      hold(options_, {ends[0], ends[1]});
      return loss;
    }
    Tensor logits = model_.task == Model::Task::masked_lm ? predict(hidden) : classify(hidden);
    tape_.phase(Phase::loss);
    Tensor loss = label_loss(logits, labels);
    call.done({&loss, &logits});
    hold(options_, {logits});
    return loss;
  }

 private:
  Tensor classify(const Tensor& hidden) {
    if (model_.architecture.ends_with("ForTokenClassification")) {
      const Tensor kept = dropout(hidden, model_.embedding_dropout);
      return Linear(root_.child("classifier"), tape_)(kept);
    }
    Tensor pooled = select(hidden, 1);
    pooled = Linear(root_.child("pre_classifier"), tape_)(pooled);
    pooled = relu(pooled);
    pooled = dropout(pooled, kClassifierDropout);
    return Linear(root_.child("classifier"), tape_)(pooled);
  }

  Tensor predict(const Tensor& hidden) {
    Tensor x = Linear(root_.child("vocab_transform"), tape_)(hidden);
    x = activate(activation_, x);
    x = Norm(root_.child("vocab_layer_norm"), tape_, norm_)(x);
    return Linear(root_.child("vocab_projector"), tape_)(x);
  }

  static constexpr double kClassifierDropout = 0.2;  // seq_classif_dropout of the class
  static constexpr double kAnswerDropout = 0.1;      // qa_dropout

  Tensor encode(const Tensor& input) {
    Tensor ids = input;
    ModuleCall call(base_, tape_, {&ids});
    const Tensor embeddings = embed(ids);  // the model's variable outlives the encoder
    Tensor hidden = embeddings;
    const Tensor mask = bidirectional_mask(tape_, options_, hidden);
    for (const DistilBertLayer& layer : layers_) hidden = layer(hidden, mask);
    return call.done(hidden);
  }

  Tensor embed(const Tensor& input) {
    Tensor ids = input;
    ModuleCall call(embeddings_, tape_, {&ids});
    const Tensor words = Embedding(embeddings_.child("word_embeddings"), tape_)(ids);
    const Tensor positions = slice(embeddings_.buffer("position_ids"), 1, 0, ids.size(1));
    const Tensor places = Embedding(embeddings_.child("position_embeddings"), tape_)(positions);
    Tensor hidden = add(words, places);
    hidden = Norm(embeddings_.child("LayerNorm"), tape_, norm_)(hidden);
    hidden = dropout(hidden, model_.embedding_dropout);
    return call.done(hidden);
  }

  Tape& tape_;
  RunOptions options_;
  const Model& model_;
  Module& root_;
  Module& base_;
  Module& embeddings_;
  std::string activation_;  ///< of the layers and of the head
  NormSpec norm_;
  std::vector<DistilBertLayer> layers_;
};

}  // namespace

std::unique_ptr<Network> make_distilbert(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<DistilBert>(model, options, root, tape);
}

}  // namespace plimsoll::program
