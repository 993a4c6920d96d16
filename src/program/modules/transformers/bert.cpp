// Sequence classification and masked language modeling of bert, ernie, roberta, data2vec-text, xlm-roberta, camembert, electra, albert and
// mpnet.
#include <algorithm>
#include <functional>

#include "plimsoll/error.hpp"
#include "program/modules/bare.hpp"
#include "program/modules/transformers/causal_lm.hpp"
#include "program/modules/transformers/compiled_layer.hpp"
#include "program/modules/transformers/families.hpp"
#include "program/modules/transformers/post_norm.hpp"
#include "program/modules/transformers/text_heads.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

NormSpec layer_norm_of(std::int64_t width) { return {.kind = NormSpec::Kind::layer_norm, .bias = true, .width = width}; }

/// The projections and the attention of a module that holds query, key and value: [batch, length, hidden], heads joined again.
class SelfAttention {
 public:
  SelfAttention(Module& module, Tape& tape, const RunOptions& options, const Block& block)
      : options_(options),
        spec_(*block.attention),
        q_(module.child("query"), tape),
        k_(module.child("key"), tape),
        v_(module.child("value"), tape) {}

  struct Heads {
    Tensor query, key, value;
  };

  Tensor operator()(const Tensor& hidden, const Tensor& mask, Tensor& probabilities) const {
    return joined(project(hidden), mask, probabilities);
  }

  Heads project(const Tensor& hidden) const {
    const auto heads = [&](const Tensor& x) { return transpose(view(x, {hidden.size(0), hidden.size(1), -1, spec_.head_dim}), 1, 2); };
    Heads result;
    result.query = heads(q_(hidden));
    result.key = heads(k_(hidden));
    result.value = heads(v_(hidden));
    return result;
  }

  Tensor joined(const Heads& heads, const Tensor& mask, Tensor& probabilities) const {
    const AttentionCall arguments{
        .kind = options_.attention, .causal = false, .dropout = spec_.dropout, .weights = &probabilities, .softmax_in_fp32 = false};
    const Tensor output = attend(heads.query, heads.key, heads.value, mask, arguments);
    return contiguous(reshape(output, {output.size(0), output.size(1), -1}));
  }

 private:
  const RunOptions& options_;
  const AttentionSpec& spec_;
  Linear q_, k_, v_;
};

class BertLayer {
 public:
  BertLayer(Module& module, Tape& tape, const RunOptions& options, const Block& block)
      : module_(module),
        self_(module.child("attention").child("self")),
        tape_(tape),
        options_(options),
        block_(block),
        attend_(self_, tape, options, block),
        up_(module.child("intermediate").child("dense"), tape),
        attention_output_(module.child("attention").child("output"), tape, block),
        output_(module.child("output"), tape, block),
        act_(module.child("intermediate"), "intermediate_act_fn", tape, block.mlp->activation) {
  }

  Tensor operator()(const Tensor& input, const Tensor& mask) const {
    return run_layer(module_, tape_, options_, input, [this, mask](const Tensor& x) {
      if (!options_.compiled_blocks) return forward(x, mask);
      const auto make = [&](Module& twin, Tape& tape, const RunOptions& eager) -> LayerForward {
        const auto layer = std::make_shared<BertLayer>(twin, tape, eager, block_);
        return [layer](const std::vector<Tensor>& given) { return layer->forward(given[0], given[1]); };
      };
      return run_compiled_layer(module_, options_, &block_, {x, mask}, make);
    });
  }

 private:
  Tensor forward(const Tensor& input, const Tensor& mask) const {
    Tensor probabilities;  // the second of the attention's results lives until the layer returns
    Tensor attended = attend_all(input, mask, probabilities);
    attended = attention_output_(attended, input);
    Tensor up = up_(attended);
    up = act_(up);
    return output_(up, attended);
  }

  Tensor attend_all(const Tensor& input, const Tensor& mask, Tensor& probabilities) const {
    Tensor hidden = input;
    ModuleCall call(self_, tape_, {&hidden});
    return call.done(attend_(hidden, mask, probabilities));
  }

  Module& module_;
  Module& self_;
  Tape& tape_;
  const RunOptions& options_;
  const Block& block_;
  SelfAttention attend_;
  Linear up_;
  PostNorm attention_output_, output_;
  Activation act_;
};

/// AlbertLayer: all runs of a group share its parameters.
class AlbertLayer {
 public:
  AlbertLayer(Module& module, Tape& tape, const RunOptions& options, const Block& block)
      : module_(module),
        attention_(module.child("attention")),
        tape_(tape),
        block_(block),
        attend_(attention_, tape, options, block),
        output_(attention_.child("dense"), tape),
        up_(module.child("ffn"), tape),
        down_(module.child("ffn_output"), tape),
        attention_norm_(attention_.child("LayerNorm"), tape, block.norm),
        output_norm_(module.child("full_layer_layer_norm"), tape, block.norm) {}

  Tensor operator()(const Tensor& input, const Tensor& mask) const {
    Tensor hidden = input;
    ModuleCall call(module_, tape_, {&hidden});
    Tensor probabilities;
    const Tensor attended = attend_all(hidden, mask, probabilities);
    Tensor fed = up_(attended);
    fed = activate(block_.mlp->activation, fed);
    fed = down_(fed);
    const Tensor sum = add(fed, attended);
    return call.done(output_norm_(sum));
  }

 private:
  Tensor attend_all(const Tensor& input, const Tensor& mask, Tensor& probabilities) const {
    Tensor hidden = input;
    ModuleCall call(attention_, tape_, {&hidden});
    return call.done(attend_and_norm(hidden, mask, probabilities));
  }

  /// AlbertAttention.forward: one function, whose variables keep the heads to its end.
  Tensor attend_and_norm(const Tensor& hidden, const Tensor& mask, Tensor& probabilities) const {
    const SelfAttention::Heads heads = attend_.project(hidden);
    Tensor attended = attend_.joined(heads, mask, probabilities);
    attended = output_(attended);
    attended = dropout(attended, block_.hidden_dropout);
    const Tensor sum = add(hidden, attended);
    return attention_norm_(sum);
  }

  Module& module_;
  Module& attention_;
  Tape& tape_;
  const Block& block_;
  SelfAttention attend_;
  Linear output_, up_, down_;
  Norm attention_norm_, output_norm_;
};

/// MPNetLayer: scores with a bias of relative positions, in eager attention of its own.
class MpnetLayer {
 public:
  MpnetLayer(Module& module, Tape& tape, const RunOptions&, const Block& block)
      : module_(module),
        attention_(module.child("attention")),
        self_(attention_.child("attn")),
        tape_(tape),
        block_(block),
        q_(self_.child("q"), tape),
        k_(self_.child("k"), tape),
        v_(self_.child("v"), tape),
        o_(self_.child("o"), tape),
        up_(module.child("intermediate").child("dense"), tape),
        attention_norm_(attention_.child("LayerNorm"), tape, block.norm),
        output_(module.child("output"), tape, block) {}

  Tensor operator()(const Tensor& input, const Tensor& bias) const {
    Tensor hidden = input;
    ModuleCall call(module_, tape_, {&hidden});
    Tensor attended;
    {
      const Tensor projected = attend(hidden, bias);  // its tuple is a variable of MPNetAttention
      Tensor sum = dropout(projected, block_.hidden_dropout);
      sum = add(sum, hidden);
      attended = attention_norm_(sum);
    }
    Tensor up = up_(attended);
    up = activate(block_.mlp->activation, up);
    return call.done(output_(up, attended));
  }

 private:
  Tensor attend(const Tensor& input, const Tensor& bias) const {
    Tensor hidden = input;
    ModuleCall call(self_, tape_, {&hidden});
    const AttentionSpec& spec = *block_.attention;
    const std::int64_t batch = hidden.size(0), length = hidden.size(1);
    const auto heads = [&](const Tensor& x) { return transpose(view(x, {batch, length, -1, spec.head_dim}), 1, 2); };
    const Tensor query = heads(q_(hidden)), key = heads(k_(hidden)), value = heads(v_(hidden));
    Tensor scores = matmul(query, transpose(key, -1, -2));
    scores = divide_scalar(scores);
    scores = add_into(scores, bias);
    Tensor weights = softmax(scores, scores.dtype());
    weights = dropout(weights, spec.dropout);
    Tensor context = matmul(weights, value);
    context = view(contiguous(permute(context, {0, 2, 1, 3})), {batch, length, -1});
    return call.done(o_(context));
  }

  Module& module_;
  Module& attention_;
  Module& self_;
  Tape& tape_;
  const Block& block_;
  Linear q_, k_, v_, o_, up_;
  Norm attention_norm_;
  PostNorm output_;
};

class Bert final : public Network {
 public:
  Bert(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : tape_(tape),
        options_(options),
        model_(model),
        kind_(kind_of(model)),
        head_(head_of(model)),
        root_(root),
        base_(base_of(model, root, kind_)),
        embeddings_(base_.child("embeddings")) {
    for (const Block& block : model.blocks) {
      if (block.role != Block::Role::encoder) continue;
      Module& stack = *root.find(block.name);
      for (std::int64_t i = 0; i < block.repeat; ++i) {
        if (kind_ == Kind::mpnet) {
          layers_.emplace_back(MpnetLayer(stack.child(std::to_string(block.first + i)), tape_, options_, block));
        } else if (kind_ == Kind::albert) {
          layers_.emplace_back(AlbertLayer(stack.child("0"), tape_, options_, block));
        } else {
          layers_.emplace_back(BertLayer(stack.child(std::to_string(block.first + i)), tape_, options_.of_layer(block.first + i), block));
        }
      }
    }
    if ((kind_ == Kind::albert || kind_ == Kind::mpnet) && options.checkpointing != RunOptions::Checkpointing::none)
      fail("gradient checkpointing does not exist for " + model.model_type, {}, "leave recompute out");
  }

  Tensor loss(const Batch& batch) override {
    Tensor ids = batch.input_ids, labels = batch.labels;
    ModuleCall call(root_, tape_, {&ids, &labels});
    Tensor pooled;
    const Tensor hidden = encode(ids, pooled);
    if (head_ == Head::span) {
      const Tensor logits = linear_of(root_.child("qa_outputs"))(hidden);
      std::vector<Tensor> ends;
      Tensor loss = answer_loss(logits, batch, ends);
      call.done({&loss, &ends[0], &ends[1]});
      hold(options_, {ends[0], ends[1]});
      return loss;
    }
    if (head_ == Head::pretraining) return pretraining_loss(call, hidden, pooled, labels, batch.conditions.front());
    pooled = pooled ? dropout(pooled, head_dropout(model_)) : pooled;
    Tensor logits = logits_of(hidden, pooled);
    tape_.phase(Phase::loss);
    Tensor loss = label_loss(logits, labels);
    call.done({&loss, &logits});
    hold(options_, {logits});
    return loss;
  }

 private:
  enum class Kind { bert, roberta, electra, albert, mpnet };
  enum class Head { masked, sequence, tokens, span, pretraining };

  static Head head_of(const Model& model) {
    if (model.architecture.ends_with("ForMaskedLM")) return Head::masked;
    if (model.architecture.ends_with("ForSequenceClassification")) return Head::sequence;
    if (model.architecture.ends_with("ForTokenClassification")) return Head::tokens;
    if (model.architecture.ends_with("ForQuestionAnswering")) return Head::span;
    if (model.model_type == "bert" && model.architecture.ends_with("ForPreTraining")) return Head::pretraining;
    const bool bare = model.task == Model::Task::backbone;
    refuse(bare ? model.architecture + " has no head, and so nothing that is trained"
                : "the head of " + model.architecture + " is not modelled for training",
           "architectures", "one that ends in ForMaskedLM, ForSequenceClassification, ForTokenClassification or ForQuestionAnswering");
  }

  static Module& base_of(const Model& model, Module& root, Kind kind) {
    if (model.model_type == "data2vec-text") return root.child("data2vec_text");
    return root.child(kind == Kind::roberta ? "roberta" : model.model_type);
  }

  static Kind kind_of(const Model& model) {
    if (model.model_type == "bert" || model.model_type == "ernie") return Kind::bert;
    if (model.model_type == "mpnet") return Kind::mpnet;
    if (model.model_type == "albert") return Kind::albert;
    return model.model_type == "electra" ? Kind::electra : Kind::roberta;
  }

  Linear linear_of(Module& module) const { return Linear(module, tape_); }
  Tensor norm_of(Module& module, const Tensor& x) const { return Norm(module, tape_, layer_norm_of(x.size(-1)))(x); }

  /// BertForPreTraining.forward: masked words, and whether the second sentence follows the first.
  Tensor pretraining_loss(ModuleCall& call, const Tensor& hidden, const Tensor& pooled, const Tensor& labels, const Tensor& follows) {
    Tensor words = predict(hidden), relation = linear_of(root_.child("cls").child("seq_relationship"))(pooled);
    tape_.phase(Phase::loss);
    const Tensor of_words = cross_entropy(view(words, {-1, words.size(-1)}), view(labels, {-1}));
    const Tensor of_relation = cross_entropy(view(relation, {-1, 2}), view(follows, {-1}));
    Tensor loss = add(of_words, of_relation);
    call.done({&loss, &words, &relation});
    hold(options_, {words, relation});
    return loss;
  }

  Tensor logits_of(const Tensor& hidden, const Tensor& pooled) {
    if (model_.task == Model::Task::masked_lm) return predict(hidden);
    if (head_ == Head::tokens) return linear_of(root_.child("classifier"))(dropout(hidden, head_dropout(model_)));
    return pooled ? linear_of(root_.child("classifier"))(pooled) : classify(hidden);
  }

  /// BertPooler.
  Tensor pool(const Tensor& hidden) {
    Tensor pooled;
    {
      const Tensor first = select(hidden, 1);
      Module& pooler = base_.child("pooler");
      pooled = linear_of(kind_ == Kind::albert ? pooler : pooler.child("dense"))(first);
    }
    return tanh(pooled);
  }

  /// RobertaClassificationHead and ElectraClassificationHead.
  Tensor classify(const Tensor& hidden) {
    Module& head = root_.child("classifier");
    Tensor x = select(hidden, 1);
    x = dropout(x, head_dropout(model_));
    x = linear_of(head.child("dense"))(x);
    x = kind_ == Kind::electra ? gelu(x) : tanh(x);
    x = dropout(x, head_dropout(model_));
    return linear_of(head.child("out_proj"))(x);
  }

  /// Logits of the vocabulary: a dense layer, gelu, a norm, the projection.
  Tensor predict(const Tensor& hidden) {
    switch (kind_) {
      case Kind::bert: {
        Module& transform = root_.child("cls").child("predictions").child("transform");
        return project(hidden, transform.child("dense"), transform.child("LayerNorm"),
                       root_.child("cls").child("predictions").child("decoder"));
      }
      case Kind::mpnet:
      case Kind::roberta: {
        Module& head = root_.child("lm_head");
        return project(hidden, head.child("dense"), head.child("layer_norm"), head.child("decoder"));
      }
      case Kind::albert: {
        Module& head = root_.child("predictions");
        return project(hidden, head.child("dense"), head.child("LayerNorm"), head.child("decoder"));
      }
      case Kind::electra:
        break;
    }
    Module& predictions = root_.child("generator_predictions");
    return project(hidden, predictions.child("dense"), predictions.child("LayerNorm"), root_.child("generator_lm_head"));
  }

  Tensor project(const Tensor& hidden, Module& dense, Module& norm, Module& vocabulary) {
    Tensor x = linear_of(dense)(hidden);
    const bool fixed = kind_ == Kind::roberta || kind_ == Kind::mpnet;  // their heads call gelu, whatever the config says
    x = activate(fixed ? "gelu" : model_activation(), x);
    x = norm_of(norm, x);
    return linear_of(vocabulary)(x);
  }

  const std::string& model_activation() const {
    const auto layer = std::find_if(model_.blocks.begin(), model_.blocks.end(), [](const Block& block) { return block.mlp.has_value(); });
    return layer->mlp->activation;
  }

  Tensor encode(const Tensor& input, Tensor& pooled) {
    Tensor ids = input;
    ModuleCall call(base_, tape_, {&ids});
    Tensor embeddings = embed(ids);  // the model's variable outlives the encoder
    if (Module* projection = base_.find_child("embeddings_project")) embeddings = linear_of(*projection)(embeddings);
    Tensor hidden = embeddings;
    const Tensor mask = kind_ == Kind::mpnet ? distance_bias(hidden) : bidirectional_mask(tape_, options_, hidden);
    if (Module* wider = base_.find("encoder.embedding_hidden_mapping_in")) hidden = linear_of(*wider)(hidden);
    for (const auto& layer : layers_) hidden = layer(hidden, mask);
    if (base_.find_child("pooler")) pooled = pool(hidden);
    return call.done(hidden);
  }

  /// MPNetEncoder.compute_position_bias: a value per bucket of distances and head, [batch, heads, length, length].
  Tensor distance_bias(const Tensor& hidden) {
    const std::int64_t length = hidden.size(1);
    const Tensor queries = view(arange(tape_, length), {length, 1}), keys = view(arange(tape_, length), {1, length});
    const Tensor distance = elementwise(tape_, {&keys, &queries}, DType::int64);
    const Tensor buckets = both_ways_buckets(distance);
    const Tensor values = Embedding(base_.child("encoder").child("relative_attention_bias"), tape_)(buckets);
    return contiguous(expand(unsqueeze(permute(values, {2, 0, 1}), 0), {hidden.size(0), -1, length, length}));
  }

  /// relative_position_bucket: half of the buckets for each direction, near distances one by one, far ones by their logarithm.
  Tensor both_ways_buckets(const Tensor& distance) {
    const auto like = [&](const Tensor& x, DType type) { return elementwise(tape_, {&x}, type); };
    Tensor steps = like(distance, DType::int64), buckets;
    {
      Tensor ahead = like(steps, DType::boolean), scaled = to(ahead, DType::int64);
      ahead.reset();
      scaled = like(scaled, DType::int64);
      buckets = like(scaled, DType::int64);
    }
    steps = like(steps, DType::int64);
    const Tensor near = like(steps, DType::boolean);
    Tensor far = to(steps, DType::fp32);
    for (int step = 0; step < 4; ++step) far = like(far, DType::fp32);  // /, log, /, ×
    far = to(far, DType::int64);
    far = like(far, DType::int64);
    {
      const Tensor most = like(far, DType::int64);
      far = elementwise(tape_, {&far, &most}, DType::int64);
    }
    const Tensor chosen = elementwise(tape_, {&near, &steps, &far}, DType::int64);
    in_place(buckets, {&chosen});
    return buckets;
  }

  /// RobertaEmbeddings.create_position_ids_from_input_ids: positions counted over the tokens that are no padding.
  Tensor positions_of(const Tensor& ids) {
    Tensor real;
    {
      const Tensor is_real = elementwise(tape_, {&ids}, DType::boolean);
      real = to(is_real, DType::int32);
    }
    Tensor counted = cumulative_sum(real, DType::int64);
    counted = to(counted, DType::int32);
    if (kind_ != Kind::mpnet) counted = add_scalar(counted);  // + past_key_values_length
    counted = multiply(counted, real);
    const Tensor positions = to(counted, DType::int64);
    return add_scalar(positions);
  }

  Tensor embed(const Tensor& input) {
    Tensor ids = input;
    ModuleCall call(embeddings_, tape_, {&ids});
    const std::int64_t batch = ids.size(0), length = ids.size(1);
    if (kind_ == Kind::mpnet) return call.done(embed_without_segments(ids));
    const Tensor positions = kind_ == Kind::roberta ? positions_of(ids) : slice(embeddings_.buffer("position_ids"), 1, 0, length);
    const Tensor gathered = tape_.empty(positions.sizes(), DType::int64);  // token types of these positions
    gather(Gather::Function::index, gathered.elements(), {&gathered, &positions}, {&gathered});
    const Tensor types = expand(gathered, {batch, length});
    const Tensor words = embed_words(ids);
    const Tensor kinds = Embedding(embeddings_.child("token_type_embeddings"), tape_)(types);
    Tensor hidden = add(words, kinds);
    const Tensor places = Embedding(embeddings_.child("position_embeddings"), tape_)(positions);
    hidden = add(hidden, places);
    hidden = norm_of(embeddings_.child("LayerNorm"), hidden);
    hidden = dropout(hidden, model_.embedding_dropout);
    return call.done(hidden);
  }

  Tensor embed_words(const Tensor& ids) {
    const Tensor words = Embedding(embeddings_.child("word_embeddings"), tape_)(ids);
    if (options_.hidden_requires_grad && !words.requires_grad()) words.set_requires_grad(true);
    return words;
  }

  Tensor embed_without_segments(const Tensor& ids) {
    const Tensor positions = positions_of(ids);
    const Tensor words = embed_words(ids);
    const Tensor places = Embedding(embeddings_.child("position_embeddings"), tape_)(positions);
    Tensor hidden = add(words, places);
    hidden = norm_of(embeddings_.child("LayerNorm"), hidden);
    return dropout(hidden, model_.embedding_dropout);
  }

  Tape& tape_;
  RunOptions options_;
  const Model& model_;
  Kind kind_;
  Head head_;
  Module& root_;
  Module& base_;
  Module& embeddings_;
  std::vector<std::function<Tensor(const Tensor& hidden, const Tensor& mask)>> layers_;
};

}  // namespace

std::unique_ptr<Network> make_bert(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<Bert>(model, options, root, tape);
}

}  // namespace plimsoll::program
