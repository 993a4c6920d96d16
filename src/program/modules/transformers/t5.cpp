// T5ForConditionalGeneration and MT5ForConditionalGeneration.
#include "program/checkpoint.hpp"
#include "program/modules/bare.hpp"
#include "program/modules/transformers/families.hpp"
#include "program/modules/transformers/seq2seq.hpp"
#include "program/modules/transformers/text_encoders.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

/// T5LayerNorm: the variance in fp32, the product in the input's type, cast to 16-bit weights' type.
Tensor t5_norm(const Tensor& x, const Tensor& weight) {
  Tensor variance;
  {
    Tensor wide = to(x, DType::fp32);
    Tensor squares = power(wide);
    wide.reset();
    variance = mean(squares, -1, true);
  }
  Tensor hidden;
  {
    Tensor scale = add_scalar(variance);
    scale = rsqrt(scale);
    hidden = multiply(x, scale);
  }
  if (weight.dtype() != DType::fp32) hidden = to(hidden, weight.dtype());
  return multiply(weight, hidden);
}

class T5Norm {
 public:
  T5Norm(Module& module, Tape& tape) : module_(module), tape_(tape) {}
  Tensor operator()(const Tensor& input) const {
    Tensor x = input;
    ModuleCall call(module_, tape_, {&x});
    return call.done(t5_norm(x, module_.tensor("weight")));
  }

 private:
  Module& module_;
  Tape& tape_;
};

/// An attention's results: a block keeps the probabilities until its next attention's.
struct Attended {
  Tensor output, weights;
};

/// What the first layer's attentions leave to the others: biases of the scores.
struct Biases {
  Tensor self, cross;
};

class T5Attention {
 public:
  T5Attention(Module& module, Tape& tape, const RunOptions& options, const AttentionSpec& spec, bool decoder)
      : module_(module),
        tape_(tape),
        options_(options),
        spec_(spec),
        decoder_(decoder),
        table_(module.find_child("relative_attention_bias")),
        q_(module.child("q"), tape),
        k_(module.child("k"), tape),
        v_(module.child("v"), tape),
        output_(module.child("o"), tape) {}

  /// `bias` is made where it is undefined.
  Attended operator()(const Tensor& input, const Tensor& sources, const Tensor& mask, Tensor& bias) const {
    Tensor hidden = input;
    ModuleCall call(module_, tape_, {&hidden});
    const std::int64_t batch = hidden.size(0), length = hidden.size(1);
    const auto heads = [&](const Tensor& x) { return transpose(view(x, {batch, x.size(1), -1, spec_.head_dim}), 1, 2); };
    const Tensor query = heads(q_(hidden));
    Tensor key = heads(k_(sources));
    Tensor value = heads(v_(sources));
    if (decoder_ && options_.checkpointing == RunOptions::Checkpointing::none) {
      // The decoder's config keeps use_cache: keys and values are joined to an empty cache.
      const Tensor cached_key = cat({key}, 2), cached_value = cat({value}, 2);
      key = cached_key;
      value = cached_value;
    }
    if (!bias) bias = make_bias(length, key.size(2), query.dtype());
    Attended attended = attend_with(query, key, value, mask, bias);
    attended.output = contiguous(reshape(attended.output, {batch, length, -1}));
    attended.output = output_(attended.output);
    call.done({&attended.output});
    return attended;
  }

 private:
  /// create_position_bias_mask: the bias is SDPA's mask, with the least number where a causal layer may not look.
  Tensor bias_mask(const Tensor& bias, std::int64_t queries, std::int64_t keys) const {
    const auto packed = [&](const Tensor& mask) { return options_.release.packs_position_bias() ? contiguous(mask) : mask; };
    if (!spec_.causal) return packed(bias);
    Tensor allowed;
    {
      const Tensor rows = arange(tape_, queries), columns = arange(tape_, keys);
      const Tensor row = view(rows, {queries, 1}), column = view(columns, {1, keys});
      allowed = elementwise(tape_, {&row, &column}, DType::boolean);
    }
    const Operand scalar{1, bias.dtype(), Walk::contiguous};  // the least number, of at::where
    tape_.kernel({Pointwise{Pointwise::Form::map, 1, Operands({}, {scalar})}});
    const Tensor masked = where(view(allowed, {1, 1, queries, keys}), bias);
    return packed(masked);
  }

  Attended attend_fused(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias) const {
    const Tensor mask = bias_mask(bias, query.size(2), key.size(2));
    const Tensor output = scaled_dot_product_attention(query, key, value, mask, {.dropout = spec_.dropout});
    return {contiguous(transpose(output, 1, 2)), {}};
  }

  Attended attend_with(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, const Tensor& bias) const {
    if (options_.attention == RunOptions::Attention::sdpa) return attend_fused(query, key, value, bias);
    Tensor weights = matmul(query, transpose(key, 2, 3));
    weights = multiply_scalar(weights);
    weights = add(weights, bias);
    if (mask) weights = add(weights, mask);
    weights = softmax(weights, weights.dtype());
    weights = dropout(weights, spec_.dropout);
    const Tensor output = matmul(weights, value);
    return {contiguous(transpose(output, 1, 2)), weights};
  }

  Tensor make_bias(std::int64_t queries, std::int64_t keys, DType type) const {
    if (table_) return compute_bias(queries, keys);
    Tensor none = zeros(tape_, {1, spec_.heads, queries, keys}, type);
    if (options_.checkpointing != RunOptions::Checkpointing::none) none.set_requires_grad(true);
    return none;
  }

  /// compute_bias: a value per bucket of distances and head, [1, heads, queries, keys].
  Tensor compute_bias(std::int64_t queries, std::int64_t keys) const {
    Tensor buckets;
    Tensor values;
    const Tensor context = add_scalar(view(arange(tape_, queries), {queries, 1}));
    const Tensor memory = view(arange(tape_, keys), {1, keys});
    const Tensor distance = elementwise(tape_, {&memory, &context}, DType::int64);
    buckets = decoder_ ? backward_buckets(distance) : both_ways_buckets(distance);
    values = Embedding(*table_, tape_)(buckets);
    return unsqueeze(permute(values, {2, 0, 1}), 0);
  }

  Tensor integers(const Tensor& x) const { return elementwise(tape_, {&x}, DType::int64); }

  Tensor both_ways_buckets(const Tensor& distance) const {
    Tensor buckets;
    {
      Tensor ahead = elementwise(tape_, {&distance}, DType::boolean);
      ahead = integers(ahead);
      ahead = integers(ahead);
      buckets = integers(ahead);
    }
    const Tensor steps = integers(distance);
    return add_chosen(buckets, steps);
  }

  Tensor backward_buckets(const Tensor& distance) const {
    Tensor steps;
    {
      Tensor least = zeros(tape_, distance.sizes(), DType::int64);
      const Tensor smaller = elementwise(tape_, {&distance, &least}, DType::int64);
      least.reset();
      steps = integers(smaller);
    }
    return add_chosen({}, steps);
  }

  /// buckets += where(is_small, steps, logarithm of steps in buckets); a new tensor where `buckets` is still the number 0.
  Tensor add_chosen(const Tensor& buckets, const Tensor& steps) const {
    const Tensor small = elementwise(tape_, {&steps}, DType::boolean);
    Tensor large = elementwise(tape_, {&steps}, DType::fp32);
    for (int i = 0; i < 4; ++i) large = elementwise(tape_, {&large}, DType::fp32);  // / exact, log, / log(…), * buckets
    large = integers(large);
    large = integers(large);
    {
      const Tensor most = integers(large);
      large = elementwise(tape_, {&large, &most}, DType::int64);
    }
    const Tensor chosen = elementwise(tape_, {&small, &steps, &large}, DType::int64);
    if (!buckets) return integers(chosen);
    in_place(buckets, {&chosen});
    return buckets;
  }

  Module& module_;
  Tape& tape_;
  const RunOptions& options_;
  const AttentionSpec& spec_;
  bool decoder_;
  Module* table_;
  Linear q_, k_, v_, output_;
};

/// T5LayerSelfAttention and T5LayerCrossAttention: norm, attention, residual.
class T5AttentionLayer {
 public:
  T5AttentionLayer(Module& module, const char* name, Tape& tape, const RunOptions& options, const Block& block, const AttentionSpec& spec,
                   bool decoder)
      : module_(module),
        tape_(tape),
        dropout_(module, "dropout", tape, block.hidden_dropout),
        norm_(module.child("layer_norm"), tape),
        attention_(module.child(name), tape, options, spec, decoder) {}

  /// Answers the sum, and the weights, which the block keeps.
  Attended operator()(const Tensor& input, const Tensor& encoded, const Tensor& mask, Tensor& bias) const {
    Tensor hidden = input;
    ModuleCall call(module_, tape_, {&hidden});
    const Tensor normed = norm_(hidden);
    const Attended attended = attention_(normed, encoded ? encoded : normed, mask, bias);
    const Tensor kept = dropout_(attended.output);
    Tensor output = add(hidden, kept);
    call.done({&output});
    return {output, attended.weights};
  }

 private:
  Module& module_;
  Tape& tape_;
  Dropout dropout_;
  T5Norm norm_;
  T5Attention attention_;
};

/// T5LayerFF.
class T5FeedForward {
 public:
  T5FeedForward(Module& module, Tape& tape, const Block& block)
      : module_(module),
        dense_(module.child("DenseReluDense")),
        tape_(tape),
        norm_(module.child("layer_norm"), tape),
        up_(dense_.child(block.mlp->gated ? "wi_1" : "wi"), tape),
        down_(dense_.child("wo"), tape),
        act_(dense_, "act", tape, block.mlp->activation),
        inner_dropout_(dense_, "dropout", tape, block.mlp->dropout),
        dropout_(module, "dropout", tape, block.hidden_dropout) {
    if (block.mlp->gated) gate_.emplace(dense_.child("wi_0"), tape);
  }

  Tensor operator()(const Tensor& input) const {
    Tensor hidden = input;
    ModuleCall call(module_, tape_, {&hidden});
    Tensor forwarded = norm_(hidden);
    forwarded = dense(forwarded);
    {
      const Tensor kept = dropout_(forwarded);
      hidden = add(hidden, kept);
    }
    return call.done(hidden);
  }

 private:
  Tensor dense(const Tensor& input) const {
    Tensor x = input;
    ModuleCall call(dense_, tape_, {&x});
    if (gate_) {
      Tensor gate = (*gate_)(x);
      gate = act_(gate);
      const Tensor up = up_(x);
      x = multiply(gate, up);
      return call.done(leave(x));
    }
    x = up_(x);
    x = act_(x);
    return call.done(leave(x));
  }

  /// Dropout, the cast to the type that wo's weight is kept in, wo.
  Tensor leave(Tensor& x) const {
    x = inner_dropout_(x);
    Module& wo = dense_.child("wo");
    Module* const base = wo.find_child("base_layer");  // of an adapter, whose weight is its base layer's
    x = to(x, (base ? *base : wo).tensor("weight").dtype());
    return down_(x);
  }

  Module& module_;
  Module& dense_;
  Tape& tape_;
  T5Norm norm_;
  Linear up_, down_;
  Activation act_;
  Dropout inner_dropout_, dropout_;
  std::optional<Linear> gate_;
};

/// clamp(x, low, high) between tensors: low and high are saved beside x.
Tensor clamped_between(const Tensor& x, const Tensor& low, const Tensor& high) {
  Op op("clamp", {&x, &low, &high});
  for (const Tensor* saved : {&x, &low, &high}) op.save(*saved);
  Tensor y = op.elementwise({&x}, x.dtype());
  return op.done(y, [](BackwardCall& b) {  // where(self within its bound, grad, 0), once for each bound
    const Tensor self = b.saved(0), zero = zeros(b.tape, {}, DType::boolean);
    const auto compared = [&] { return elementwise(b.tape, {&self}, DType::boolean); };
    Tensor above, below;
    {
      const Tensor greater = compared(), equal = compared(), unordered = compared();
      above = elementwise(b.tape, {&greater, &equal, &unordered}, DType::boolean);
    }
    {
      const Tensor less = compared(), equal = compared();
      below = elementwise(b.tape, {&less, &equal}, DType::boolean);
    }
    const Tensor kept = elementwise(b.tape, {&above, &b.grad(), &zero}, b.grad().dtype());
    b.give(0, elementwise(b.tape, {&below, &kept, &zero}, b.grad().dtype()));
  });
}

/// "clamp inf values to enable fp16 training": between limits that depend on whether any value is infinite.
Tensor without_infinities(Tape& tape, const Tensor& hidden) {
  if (hidden.dtype() != DType::fp16) return hidden;
  Tensor limit;
  {
    Tensor any;
    {
      Tensor magnitude = elementwise(tape, {&hidden}, hidden.dtype());
      const Tensor infinite = elementwise(tape, {&magnitude}, DType::boolean);
      magnitude.reset();
      any = reduce(infinite, std::vector<bool>(static_cast<std::size_t>(infinite.rank()), true), false, DType::boolean, 1);
    }
    const Tensor lower = zeros(tape, {}, DType::fp32), highest = zeros(tape, {}, DType::fp32);
    limit = elementwise(tape, {&any, &lower, &highest}, DType::fp32);
  }
  const Tensor least = elementwise(tape, {&limit}, DType::fp32);
  return clamped_between(hidden, least, limit);
}

class T5Block {
 public:
  T5Block(Module& module, Tape& tape, const RunOptions& options, const Block& block)
      : module_(module),
        tape_(tape),
        options_(options),
        self_(module.child("layer").child("0"), "SelfAttention", tape, options, block, *block.attention, block.cross_attention.has_value()),
        feed_forward_(module.child("layer").child(block.cross_attention ? "2" : "1"), tape, block) {
    if (!block.cross_attention) return;
    cross_.emplace(module.child("layer").child("1"), "EncDecAttention", tape, options, block, *block.cross_attention, true);
  }

  /// Every tensor is an argument of the checkpointed region, and the biases are results: gradients of a bias come from all blocks.
  Tensor operator()(const Tensor& input, const Tensor& mask, const Tensor& encoded, Biases& biases) const {
    const TupleRegion region = [this](const std::vector<Tensor>& x) {
      Biases now{x[2], x[4]};
      const Tensor hidden = forward(x[0], x[1], x[3], now);
      return std::vector<Tensor>{hidden, now.self, now.cross};
    };
    const std::vector<Tensor> results = run_layer(module_, tape_, options_, {input, mask, biases.self, encoded, biases.cross}, region);
    biases = {results[1], results[2]};
    return results[0];
  }

 private:
  Tensor forward(const Tensor& input, const Tensor& mask, const Tensor& encoded, Biases& biases) const {
    Attended attended = self_(input, {}, mask, biases.self);
    Tensor hidden = std::move(attended.output);
    hidden = without_infinities(tape_, hidden);
    if (cross_) {
      Attended crossed = (*cross_)(hidden, encoded, {}, biases.cross);
      hidden = std::move(crossed.output);
      hidden = without_infinities(tape_, hidden);
      attended.weights = crossed.weights;
    }
    hidden = feed_forward_(hidden);
    return without_infinities(tape_, hidden);
  }

  Module& module_;
  Tape& tape_;
  const RunOptions& options_;
  T5AttentionLayer self_;
  T5FeedForward feed_forward_;
  std::optional<T5AttentionLayer> cross_;
};

class T5Stack {
 public:
  T5Stack(const Model& model, const RunOptions& options, Module& module, Tape& tape, Block::Stream stream)
      : tape_(tape),
        options_(options),
        module_(module),
        dropout_(module, "dropout", tape, model.embedding_dropout),
        norm_(module.child("final_layer_norm"), tape) {
    for (const Block& block : model.blocks) {
      if (!block.attention || block.stream != stream) continue;
      for (std::int64_t i = 0; i < block.repeat; ++i) {
        blocks_.emplace_back(module.child("block").child(std::to_string(block.first + i)), tape_, options_.of_layer(block.first + i),
                             block);
      }
    }
  }

  /// `words`: the embedding that both stacks share.
  Tensor operator()(const Tensor& input, Module& words, const Tensor& encoded) const {
    Tensor ids = input;
    ModuleCall call(module_, tape_, {&ids});
    const Tensor embeddings = Embedding(words, tape_)(ids);
    const Tensor mask = encoded ? causal_mask(tape_, options_, embeddings, std::nullopt) : Tensor();
    Tensor hidden = dropout_(embeddings);
    Biases biases;
    for (const T5Block& block : blocks_) hidden = block(hidden, mask, encoded, biases);
    hidden = norm_(hidden);
    hidden = dropout_(hidden);
    return call.done(hidden);
  }

 private:
  Tape& tape_;
  const RunOptions& options_;
  Module& module_;
  Dropout dropout_;
  T5Norm norm_;
  std::vector<T5Block> blocks_;
};

/// scale_decoder_outputs
bool divides_head_input(const Model& model) {
  const std::vector<Operator>& head = model.blocks.back().operators;
  return std::any_of(head.begin(), head.end(), [](const Operator& op) { return op.kind == OperatorKind::scale; });
}

class T5 final : public Network {
 public:
  T5(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : tape_(tape),
        options_(options),
        scaled_(divides_head_input(model)),
        root_(root),
        encoder_(model, options_, root.child("encoder"), tape, Block::Stream::main),
        decoder_(model, options_, root.child("decoder"), tape, Block::Stream::second),
        head_(root.child("lm_head"), tape) {}

  Tensor loss(const Batch& batch) override {
    Tensor ids = batch.input_ids, labels = batch.labels;
    ModuleCall call(root_, tape_, {&ids, &labels});
    Tensor encoded = encoder_(ids, words("encoder"), {});
    const Tensor targets = shift_right(labels);
    const Tensor decoded = decoder_(targets, words("decoder"), encoded);
    const Tensor hidden = scaled_ ? multiply_scalar(decoded) : decoded;
    Tensor logits = head_(hidden);
    tape_.phase(Phase::loss);
    Tensor loss = flat_cross_entropy(logits, labels);
    call.done({&loss, &logits, &encoded});
    hold(options_, {logits, encoded});
    return loss;
  }

 private:
  /// embed_tokens of a stack where it is registered there, else the shared one.
  Module& words(const char* stack) {
    Module* own = root_.child(stack).find_child("embed_tokens");
    return own ? *own : root_.child("shared");
  }

  Tape& tape_;
  RunOptions options_;
  bool scaled_;
  Module& root_;
  T5Stack encoder_, decoder_;
  Linear head_;
};

/// T5EncoderModel, frozen.
class T5Encoder final : public TextEncoder {
 public:
  T5Encoder(const Model& model, RunOptions options, Module& root, Tape& tape)
      : model_(in_evaluation(model)),
        options_(std::move(options)),
        tape_(tape),
        root_(root),
        encoder_(model_, options_, root.child("encoder"), tape, Block::Stream::main) {}

  TextFeatures operator()(const Tensor& ids, bool) override {
    Tensor input = ids;
    ModuleCall call(root_, tape_, {&input});
    return {call.done(encoder_(input, root_.child("shared"), {})), {}};
  }

 private:
  Model model_;
  RunOptions options_;
  Tape& tape_;
  Module& root_;
  T5Stack encoder_;
};

}  // namespace

std::unique_ptr<TextEncoder> make_t5_encoder(const Model& model, const HfRelease& release, Module& root, Tape& tape) {
  RunOptions options;
  options.release = release;
  return std::make_unique<T5Encoder>(model, std::move(options), root, tape);
}

std::unique_ptr<Network> make_t5(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<T5>(model, options, root, tape);
}

}  // namespace plimsoll::program
