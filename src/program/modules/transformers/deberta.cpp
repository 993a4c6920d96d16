// Masked language modeling and sequence classification of deberta-v2 and v3: attention that scores contents against positions and back.
#include "plimsoll/error.hpp"
#include "program/modules/transformers/causal_lm.hpp"
#include "program/modules/transformers/families.hpp"
#include "program/modules/transformers/post_norm.hpp"
#include "program/modules/transformers/text_heads.hpp"
#include "program/ops/copying.hpp"

namespace plimsoll::program {

namespace {

/// What the config says of relative positions, as the table's operator carries it.
struct RelativePositions {
  bool used = false, bucketed = false, shared = false, content_to_position = false, position_to_content = false, normed = false;
};

RelativePositions relative_positions(const Model& model) {
  RelativePositions relative;
  for (const Block& block : model.blocks)
    for (const Operator& op : block.operators) {
      if (op.kind != OperatorKind::position_embedding || op.name != "rel_embeddings") continue;
      const auto says = [&](const char* word) { return op.function.find(word) != std::string::npos; };
      relative = {true, says("buckets"), says("shared"), says("c2p"), says("p2c"), block.operators.size() > 1};
    }
  return relative;
}

/// x.repeat(times, 1, 1).
Tensor repeated(const Tensor& x, std::int64_t times) {
  Op op("repeat", {&x});
  Tensor y = op.output({times * x.size(0), x.size(1), x.size(2)}, x.dtype());
  copy_into(y, x);
  return op.done(y, [times, sizes = x.sizes()](BackwardCall& b) {  // repeat_backward
    if (times == 1) return b.give(0, b.grad());
    b.give(0, sum(reshape(b.grad(), {times, sizes[0], sizes[1], sizes[2]}), {0}, false));
  });
}

/// What every layer is given beside the hidden state.
struct DebertaInputs {
  Tensor mask;       ///< [batch, 1, length, length], fp32
  Tensor positions;  ///< [1, length, length] int64
  Tensor table;      ///< [2 × span, hidden]
};

class DisentangledSelfAttention {
 public:
  DisentangledSelfAttention(Module& module, Tape& tape, const Block& block, const RelativePositions& relative)
      : module_(module),
        tape_(tape),
        block_(block),
        spec_(*block.attention),
        relative_(relative),
        query_(module.child("query_proj"), tape),
        key_(module.child("key_proj"), tape),
        value_(module.child("value_proj"), tape) {
    const auto own = [&](const char* name, const Linear& shared) {
      Module* projection = module.find_child(name);
      return projection ? Linear(*projection, tape) : shared;
    };
    position_key_ = own("pos_key_proj", key_);
    position_query_ = own("pos_query_proj", query_);
  }

  Tensor operator()(const Tensor& input, const DebertaInputs& inputs) const {
    Tensor hidden = input;
    ModuleCall call(module_, tape_, {&hidden});
    const std::int64_t batch = hidden.size(0), length = hidden.size(1);
    const Tensor query = heads_of(query_, hidden), key = heads_of(key_, hidden), value = heads_of(value_, hidden);
    Tensor scores;
    {
      const Tensor scaled = divide_scalar(transpose(key, -1, -2));
      scores = bmm(query, scaled);
    }
    Tensor table, bias;
    if (relative_.used) {
      table = dropout(inputs.table, block_.hidden_dropout);
      bias = position_scores(query, key, inputs.positions, table);
      scores = bias ? add(scores, bias) : add_scalar(scores);
    }
    scores = view(scores, {batch, spec_.heads, length, length});
    const Tensor seen = elementwise(tape_, {&inputs.mask}, DType::boolean);
    scores = masked_fill(scores, elementwise(tape_, {&seen}, DType::boolean));
    Tensor weights = softmax(scores, scores.dtype());
    weights = dropout(weights, spec_.dropout);
    Tensor context = bmm(view(weights, {batch * spec_.heads, length, length}), value);
    context = contiguous(permute(view(context, {batch, spec_.heads, length, spec_.head_dim}), {0, 2, 1, 3}));
    return call.done(view(context, {batch, length, -1}));
  }

 private:
  /// transpose_for_scores: [batch × heads, length, head_dim].
  Tensor heads_of(const Linear& projection, const Tensor& x) const {
    const Tensor projected = projection(x);
    const Tensor split = view(projected, {x.size(0), x.size(1), spec_.heads, spec_.head_dim});
    return view(contiguous(permute(split, {0, 2, 1, 3})), {-1, x.size(1), spec_.head_dim});
  }

  /// disentangled_attention_bias: nothing where neither kind is scored.
  Tensor position_scores(const Tensor& query, const Tensor& key, const Tensor& relative, const Tensor& table_in) const {
    const std::int64_t length = query.size(1), samples = query.size(0) / spec_.heads;
    const Tensor positions = unsqueeze(relative, 1), table = unsqueeze(alias(table_in), 0);
    Tensor position_query, position_key;
    const auto all_samples = [&](const Linear& projection) { return repeated(heads_of(projection, table), samples); };
    if (relative_.shared) position_query = all_samples(position_query_);
    if (relative_.shared || relative_.content_to_position) position_key = all_samples(position_key_);
    if (!relative_.shared && relative_.position_to_content) position_query = all_samples(position_query_);
    Tensor score, content_scores, content_places, position_scores, position_places;
    const auto places_of = [&](Tensor from) {
      from = elementwise(tape_, {&from}, DType::int64);
      return elementwise(tape_, {&from}, DType::int64);  // clamped to the table
    };
    const auto expanded = [&](const Tensor& places) { return expand(view(places, {1, length, length}), {query.size(0), -1, -1}); };
    if (relative_.content_to_position) {
      content_scores = bmm(query, transpose(position_key, -1, -2));
      content_places = places_of(positions);
      content_scores = gather_last(content_scores, expanded(content_places));
      const Tensor scaled = divide_scalar(content_scores);
      score = add_scalar(scaled);  // 0 + scaled
    }
    if (relative_.position_to_content) {
      position_places = places_of(elementwise(tape_, {&positions}, DType::int64));
      position_scores = bmm(key, transpose(position_query, -1, -2));
      position_scores = transpose(gather_last(position_scores, expanded(position_places)), -1, -2);
      const Tensor scaled = divide_scalar(position_scores);
      score = score ? add_into(score, scaled) : add_scalar(scaled);
    }
    return score;
  }

  Module& module_;
  Tape& tape_;
  const Block& block_;
  const AttentionSpec& spec_;
  RelativePositions relative_;
  Linear query_, key_, value_, position_key_, position_query_;
};

class DebertaLayer {
 public:
  DebertaLayer(Module& module, Tape& tape, const RunOptions& options, const Block& block, const RelativePositions& relative)
      : module_(module),
        tape_(tape),
        options_(options),
        block_(block),
        attention_(module.child("attention").child("self"), tape, block, relative),
        up_(module.child("intermediate").child("dense"), tape),
        attention_output_(module.child("attention").child("output"), tape, block),
        output_(module.child("output"), tape, block) {}

  Tensor operator()(const Tensor& input, const DebertaInputs& all) const {
    const auto inputs = std::make_shared<DebertaInputs>(all);
    const auto body = [this, inputs](const Tensor& x) {
      Tensor attended = attention_(x, *inputs);
      attended = attention_output_(attended, x);
      Tensor up = up_(attended);
      up = activate(block_.mlp->activation, up);
      return output_(up, attended);
    };
    return run_layer(module_, tape_, options_, input, body, {&inputs->mask, &inputs->table});
  }

 private:
  Module& module_;
  Tape& tape_;
  const RunOptions& options_;
  const Block& block_;
  DisentangledSelfAttention attention_;
  Linear up_;
  PostNorm attention_output_, output_;
};

class Deberta final : public Network {
 public:
  Deberta(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : tape_(tape),
        options_(options),
        model_(model),
        relative_(relative_positions(model)),
        root_(root),
        base_(root.child("deberta")),
        embeddings_(base_.child("embeddings")),
        encoder_(base_.child("encoder")) {
    const bool of_tokens =
        model.architecture.ends_with("ForTokenClassification") || model.architecture.ends_with("ForQuestionAnswering");
    if (model.task != Model::Task::masked_lm && !of_tokens && !model.architecture.ends_with("ForSequenceClassification"))
      refuse("the head of " + model.architecture + " is not modelled for training");
    if (model.task == Model::Task::masked_lm && !root.find("cls.predictions"))
      refuse("deberta's new head for masked language modeling is not modelled", "legacy", "true");
    for (const Block& block : model.blocks) {
      if (block.role != Block::Role::encoder) continue;
      norm_spec_ = block.norm;
      for (std::int64_t i = 0; i < block.repeat; ++i)
        layers_.emplace_back(encoder_.child("layer").child(std::to_string(block.first + i)), tape_, options_, block, relative_);
    }
  }

  Tensor loss(const Batch& batch) override {
    Tensor ids = batch.input_ids, labels = batch.labels;
    ModuleCall call(root_, tape_, {&ids, &labels});
    const Tensor hidden = encode(ids);
    Tensor logits, loss;
    if (model_.architecture.ends_with("ForQuestionAnswering")) {
      logits = linear_of(root_.child("qa_outputs"), hidden);
      std::vector<Tensor> ends;
      loss = answer_loss(logits, batch, ends);
      call.done({&loss, &ends[0], &ends[1]});
      hold(options_, {ends[0], ends[1]});
      return loss;
    }
    if (model_.task == Model::Task::masked_lm || model_.architecture.ends_with("ForTokenClassification")) {
      logits = model_.task == Model::Task::masked_lm
                   ? predict(hidden)
                   : linear_of(root_.child("classifier"), dropout(hidden, rate(Block::Role::head)));
      tape_.phase(Phase::loss);
      loss = cross_entropy(view(logits, {-1, logits.size(-1)}), view(labels, {-1}));
    } else {
      logits = classify(hidden);
      tape_.phase(Phase::loss);
      loss = labelled_loss(logits, labels);
    }
    call.done({&loss, &logits});
    hold(options_, {logits});
    return loss;
  }

 private:
  Tensor norm_of(Module& module, const Tensor& x) const {
    NormSpec spec = norm_spec_;
    spec.width = x.size(-1);
    return Norm(module, tape_, spec)(x);
  }
  Tensor linear_of(Module& module, const Tensor& x) const { return Linear(module, tape_)(x); }

  Tensor predict(const Tensor& hidden) const {
    Module& transform = root_.child("cls").child("predictions").child("transform");
    Tensor x = linear_of(transform.child("dense"), hidden);
    x = activate(activation(Block::Role::head), x);
    x = norm_of(transform.child("LayerNorm"), x);
    return linear_of(root_.child("cls").child("predictions").child("decoder"), x);
  }

  /// ContextPooler, dropout, classifier.
  Tensor classify(const Tensor& hidden) const {
    Tensor pooled;
    {
      Tensor first = select(hidden, 1);
      first = dropout(first, rate(Block::Role::pooler));
      pooled = linear_of(root_.child("pooler").child("dense"), first);
      pooled = activate(activation(Block::Role::pooler), pooled);
    }
    pooled = dropout(pooled, rate(Block::Role::head));
    return linear_of(root_.child("classifier"), pooled);
  }

  /// Samples whose label is not negative, gathered: all of them.
  Tensor labelled_loss(const Tensor& logits, const Tensor& labels) const {
    if (logits.size(-1) == 1) return label_loss(logits, labels);
    Tensor indices;
    {
      const Tensor labelled = elementwise(tape_, {&labels}, DType::boolean);
      indices = tape_.empty({labels.size(0), 1}, DType::int64);
      gather(Gather::Function::scan, labelled.elements(), {&labelled}, {&indices});
    }
    const Tensor kept = gather_last(logits, expand(indices, logits.sizes()));
    const Tensor chosen = elementwise(tape_, {&labels}, DType::int64);
    const Tensor wide = to(kept, DType::fp32);
    return cross_entropy(wide, chosen);
  }

  const Operator* operator_of(Block::Role role, OperatorKind kind) const {
    for (const Block& block : model_.blocks)
      if (block.role == role)
        for (const Operator& op : block.operators)
          if (op.kind == kind) return &op;
    return nullptr;
  }
  std::string activation(Block::Role role) const { return operator_of(role, OperatorKind::activation)->function; }
  /// Any rate: the mask and the kept elements are what it costs.
  double rate(Block::Role role) const { return operator_of(role, OperatorKind::dropout) ? 0.5 : 0; }

  Tensor encode(const Tensor& input) {
    Tensor ids = input;
    ModuleCall call(base_, tape_, {&ids});
    look_for_padding(ids);
    const Tensor mask = filled(tape_, ids.sizes(), DType::fp32);
    const Tensor segments = zeros(tape_, ids.sizes(), DType::int64);
    const Tensor embedded = embed(ids, segments, mask);
    std::vector<Tensor> states;  // the encoder gives all hidden states
    const Tensor last = run_layers(embedded, mask, states);
    return call.done(last);
  }

  /// warn_if_padding_and_no_attention_mask: pad_token_id in input_ids[:, [-1, 0]].
  void look_for_padding(const Tensor& ids) const {
    tape_.operator_name = "look_for_padding";
    Tensor places = tape_.empty({2}, DType::int64);  // copied from the host
    const Tensor ends = tape_.empty({ids.size(0), 2}, DType::int64);
    gather(Gather::Function::index, ends.elements(), {&ends, &places}, {&ends});
    places.reset();
    const Tensor equal = elementwise(tape_, {&ends}, DType::boolean), any = tape_.empty({}, DType::boolean);
    program::reduce(any, equal, {true, true});
  }

  Tensor run_layers(const Tensor& input, const Tensor& mask, std::vector<Tensor>& states) {
    Tensor hidden = input;
    ModuleCall call(encoder_, tape_, {&hidden});
    DebertaInputs inputs;
    {
      const std::int64_t batch = mask.size(0), length = mask.size(1);
      const Tensor queries = view(mask, {batch, 1, length, 1}), keys = view(mask, {batch, 1, 1, length});
      inputs.mask = elementwise(tape_, {&keys, &queries}, DType::fp32);
    }
    if (relative_.used) {
      inputs.positions = positions_of(hidden.size(1));
      inputs.table = encoder_.child("rel_embeddings").tensor("weight");
      if (relative_.normed) inputs.table = norm_of(encoder_.child("LayerNorm"), inputs.table);
    }
    states.push_back(hidden);
    for (const DebertaLayer& layer : layers_) {
      hidden = layer(hidden, inputs);
      states.push_back(hidden);
    }
    return call.done(hidden);
  }

  /// build_relative_position.
  Tensor positions_of(std::int64_t length) {
    const Tensor queries = view(arange(tape_, length), {length, 1}), keys = view(arange(tape_, length), {1, length});
    Tensor relative = elementwise(tape_, {&queries, &keys}, DType::int64);
    if (relative_.bucketed) relative = buckets_of(relative);
    relative = to(relative, DType::int64);
    return unsqueeze(relative, 0);
  }

  /// make_log_bucket_position: fp32.
  Tensor buckets_of(const Tensor& relative) {
    const auto like = [&](const Tensor& x, DType type) { return elementwise(tape_, {&x}, type); };
    const Tensor sign = like(relative, DType::int64);
    Tensor distance;
    {
      Tensor below = like(relative, DType::boolean), above = like(relative, DType::boolean);
      const Tensor near = elementwise(tape_, {&below, &above}, DType::boolean);
      below.reset();
      above.reset();
      const Tensor middle = zeros(tape_, {}, DType::int64), absolute = like(relative, DType::int64);
      distance = elementwise(tape_, {&near, &middle, &absolute}, DType::int64);
    }
    Tensor logarithm = like(distance, DType::fp32);
    for (int step = 0; step < 5; ++step) logarithm = like(logarithm, DType::fp32);  // log, /, ×, ceil, +
    const Tensor near = like(distance, DType::boolean), wide = like(relative, DType::fp32);
    const Tensor signed_logarithm = elementwise(tape_, {&logarithm, &sign}, DType::fp32);
    return elementwise(tape_, {&near, &wide, &signed_logarithm}, DType::fp32);
  }

  Tensor embed(const Tensor& input, const Tensor& segments, const Tensor& mask) {
    Tensor ids = input;
    ModuleCall call(embeddings_, tape_, {&ids});
    const auto table = [&](const char* name) { return embeddings_.find_child(name); };
    const Tensor words = Embedding(embeddings_.child("word_embeddings"), tape_)(ids);
    Tensor places, kinds, hidden = words;
    if (Module* positions = table("position_embeddings")) {
      places = Embedding(*positions, tape_)(slice(embeddings_.buffer("position_ids"), 1, 0, ids.size(1)));
      hidden = add(hidden, places);
    } else {
      places = zeros(tape_, words.sizes(), words.dtype());
    }
    if (Module* types = table("token_type_embeddings")) {
      kinds = Embedding(*types, tape_)(segments);
      hidden = add(hidden, kinds);
    }
    if (Module* projection = table("embed_proj")) hidden = linear_of(*projection, hidden);
    hidden = norm_of(embeddings_.child("LayerNorm"), hidden);
    const Tensor real = to(unsqueeze(mask, 2), hidden.dtype());
    hidden = multiply(hidden, real);
    hidden = dropout(hidden, model_.embedding_dropout);
    return call.done(hidden);
  }

  Tape& tape_;
  RunOptions options_;
  const Model& model_;
  RelativePositions relative_;
  Module& root_;
  Module& base_;
  Module& embeddings_;
  Module& encoder_;
  NormSpec norm_spec_;
  std::vector<DebertaLayer> layers_;
};

}  // namespace

std::unique_ptr<Network> make_deberta(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<Deberta>(model, options, root, tape);
}

}  // namespace plimsoll::program
