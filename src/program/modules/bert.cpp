// BertForSequenceClassification and BertForMaskedLM.
#include "plimsoll/error.hpp"
#include "program/modules/causal_lm.hpp"
#include "program/modules/families.hpp"
#include "program/ops.hpp"

namespace plimsoll::program {

namespace {

NormSpec layer_norm_of(std::int64_t width) { return {.kind = NormSpec::Kind::layer_norm, .bias = true, .width = width}; }

/// BertSelfOutput and BertOutput: dense, dropout, LayerNorm of the sum with the input.
class PostNorm {
 public:
  PostNorm(Module& module, Tape& tape, const Block& block)
      : module_(module),
        tape_(tape),
        rate_(block.hidden_dropout),
        dense_(module.child("dense"), tape),
        norm_(module.child("LayerNorm"), tape, block.norm) {}

  Tensor operator()(const Tensor& input, const Tensor& residual) const {
    Tensor hidden = input;
    ModuleCall call(module_, tape_, {&hidden});
    hidden = dense_(hidden);
    hidden = dropout(hidden, rate_);
    {
      const Tensor sum = add(hidden, residual);
      hidden = norm_(sum);
    }
    return call.done(hidden);
  }

 private:
  Module& module_;
  Tape& tape_;
  double rate_;
  Linear dense_;
  Norm norm_;
};

class BertLayer {
 public:
  BertLayer(Module& module, Tape& tape, const RunOptions& options, const Block& block)
      : module_(module),
        self_(module.child("attention").child("self")),
        tape_(tape),
        options_(options),
        block_(block),
        q_(self_.child("query"), tape),
        k_(self_.child("key"), tape),
        v_(self_.child("value"), tape),
        up_(module.child("intermediate").child("dense"), tape),
        attention_output_(module.child("attention").child("output"), tape, block),
        output_(module.child("output"), tape, block) {}

  Tensor operator()(const Tensor& input, const Tensor& mask) const {
    return run_layer(module_, tape_, options_, input, [this, mask](const Tensor& x) { return forward(x, mask); });
  }

 private:
  Tensor forward(const Tensor& input, const Tensor& mask) const {
    Tensor probabilities;  // the second of the attention's results lives until the layer returns
    Tensor attended = attend_all(input, mask, probabilities);
    attended = attention_output_(attended, input);
    Tensor up = up_(attended);
    up = activate(block_.mlp->activation, up);
    return output_(up, attended);
  }

  Tensor attend_all(const Tensor& input, const Tensor& mask, Tensor& probabilities) const {
    Tensor hidden = input;
    ModuleCall call(self_, tape_, {&hidden});
    const AttentionSpec& spec = *block_.attention;
    const std::int64_t batch = hidden.size(0), length = hidden.size(1);
    const auto heads = [&](const Tensor& x) { return transpose(view(x, {batch, length, -1, spec.head_dim}), 1, 2); };
    const Tensor query = heads(q_(hidden)), key = heads(k_(hidden)), value = heads(v_(hidden));
    const AttentionCall arguments{
        .kind = options_.attention, .causal = false, .dropout = spec.dropout, .weights = &probabilities, .softmax_in_fp32 = false};
    Tensor output = attend(query, key, value, mask, arguments);
    output = contiguous(reshape(output, {batch, length, -1}));
    return call.done(output);
  }

  Module& module_;
  Module& self_;
  Tape& tape_;
  const RunOptions& options_;
  const Block& block_;
  Linear q_, k_, v_, up_;
  PostNorm attention_output_, output_;
};

class Bert final : public Network {
 public:
  Bert(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : tape_(tape), options_(options), model_(model), root_(root), base_(root.child("bert")), embeddings_(base_.child("embeddings")) {
    if (model.task != Model::Task::classification && model.task != Model::Task::masked_lm)
      refuse("this head of BERT is not modelled for training");
    for (const Block& block : model.blocks) {
      if (block.role != Block::Role::encoder) continue;
      for (std::int64_t i = 0; i < block.repeat; ++i) {
        layers_.emplace_back(base_.child("encoder").child("layer").child(std::to_string(block.first + i)), tape_, options_, block);
      }
    }
  }

  Tensor loss(const Batch& batch) override {
    Tensor ids = batch.input_ids, labels = batch.labels;
    ModuleCall call(root_, tape_, {&ids, &labels});
    return call.done(model_.task == Model::Task::classification ? classify(ids, labels) : predict(ids, labels));
  }

 private:
  Tensor classify(const Tensor& ids, const Tensor& labels) {
    const Tensor hidden = encode(ids);
    Tensor pooled;
    {
      const Tensor first = select(hidden, 1);
      pooled = Linear(base_.child("pooler").child("dense"), tape_)(first);
    }
    pooled = tanh(pooled);
    pooled = dropout(pooled, model_.embedding_dropout);
    const Tensor logits = Linear(root_.child("classifier"), tape_)(pooled);
    tape_.phase(Phase::loss);
    return cross_entropy(view(logits, {-1, logits.size(-1)}), view(labels, {-1}));
  }

  Tensor predict(const Tensor& ids, const Tensor& labels) {
    const Tensor hidden = encode(ids);
    Module& predictions = root_.child("cls").child("predictions");
    Module& transform = predictions.child("transform");
    Tensor transformed = Linear(transform.child("dense"), tape_)(hidden);
    transformed = activate("gelu", transformed);
    transformed = Norm(transform.child("LayerNorm"), tape_, layer_norm_of(model_.hidden_size))(transformed);
    const Tensor logits = Linear(predictions.child("decoder"), tape_)(transformed);
    tape_.phase(Phase::loss);
    return cross_entropy(view(logits, {-1, logits.size(-1)}), view(labels, {-1}));
  }

  Tensor encode(const Tensor& input) {
    Tensor ids = input;
    ModuleCall call(base_, tape_, {&ids});
    const Tensor embeddings = embed(ids);  // the model's variable outlives the encoder
    Tensor hidden = embeddings;
    const Tensor mask = bidirectional_mask(tape_, options_, hidden);
    for (const BertLayer& layer : layers_) hidden = layer(hidden, mask);
    return call.done(hidden);
  }

  Tensor embed(const Tensor& input) {
    Tensor ids = input;
    ModuleCall call(embeddings_, tape_, {&ids});
    const std::int64_t batch = ids.size(0), length = ids.size(1);
    const Tensor positions = slice(embeddings_.buffer("position_ids"), 1, 0, length);
    const Tensor gathered = tape_.empty({1, length}, DType::int64);  // token types of these positions
    launch(tape_, KernelKind::gather, DType::int64, 2 * gathered.bytes(), gathered.bytes());
    const Tensor types = expand(gathered, {batch, length});
    const Tensor words = Embedding(embeddings_.child("word_embeddings"), tape_)(ids);
    const Tensor kinds = Embedding(embeddings_.child("token_type_embeddings"), tape_)(types);
    Tensor hidden = add(words, kinds);
    const Tensor places = Embedding(embeddings_.child("position_embeddings"), tape_)(positions);
    hidden = add(hidden, places);
    hidden = Norm(embeddings_.child("LayerNorm"), tape_, layer_norm_of(model_.hidden_size))(hidden);
    hidden = dropout(hidden, model_.embedding_dropout);
    return call.done(hidden);
  }

  Tape& tape_;
  RunOptions options_;
  const Model& model_;
  Module& root_;
  Module& base_;
  Module& embeddings_;
  std::vector<BertLayer> layers_;
};

}  // namespace

std::unique_ptr<Network> make_bert(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<Bert>(model, options, root, tape);
}

}  // namespace plimsoll::program
