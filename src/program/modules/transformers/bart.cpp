// ForConditionalGeneration of bart, mbart and pegasus.
#include "program/modules/transformers/families.hpp"
#include "program/modules/transformers/seq2seq.hpp"
#include "program/ops/copying.hpp"
#include "program/ops/ops.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

/// BartAttention, of self and cross attention.
class BartAttention {
 public:
  BartAttention(Module& module, Tape& tape, const RunOptions& options, const AttentionSpec& spec)
      : module_(module),
        tape_(tape),
        options_(options),
        spec_(spec),
        q_(module.child("q_proj"), tape),
        k_(module.child("k_proj"), tape),
        v_(module.child("v_proj"), tape),
        output_(module.child("out_proj"), tape) {}

  /// `sources`: what keys and values come from, [batch, length, hidden]; `probabilities` gets the second of the results.
  Tensor operator()(const Tensor& input, const Tensor& sources, const Tensor& mask, Tensor& probabilities) const {
    Tensor hidden = input;
    ModuleCall call(module_, tape_, {&hidden});
    const std::int64_t batch = hidden.size(0), length = hidden.size(1);
    const auto heads = [&](const Tensor& x) { return transpose(view(x, {batch, x.size(1), -1, spec_.head_dim}), 1, 2); };
    const Tensor query = heads(q_(hidden));
    Tensor key = k_(sources), value = v_(sources);
    key = heads(key);
    value = heads(value);
    Tensor output = attend(query, key, value, mask,
                           {.kind = options_.attention,
                            .causal = spec_.causal,
                            .dropout = spec_.dropout,
                            .weights = &probabilities,
                            .softmax_in_fp32 = false});
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

/// A layer of either stack; a decoder's has a cross attention between self attention and MLP.
class BartLayer {
 public:
  BartLayer(Module& module, Tape& tape, const RunOptions& options, const Block& block)
      : module_(module),
        tape_(tape),
        options_(options),
        block_(block),
        self_attention_(module.child("self_attn"), tape, options, *block.attention),
        self_norm_(module.child("self_attn_layer_norm"), tape, block.norm),
        final_norm_(module.child("final_layer_norm"), tape, block.norm),
        up_(module.child("fc1"), tape),
        down_(module.child("fc2"), tape) {
    if (!block.cross_attention) return;
    cross_attention_.emplace(module.child("encoder_attn"), tape, options, *block.cross_attention);
    cross_norm_.emplace(module.child("encoder_attn_layer_norm"), tape, block.norm);
  }

  Tensor operator()(const Tensor& input, const Tensor& mask) const {
    return run_layer(module_, tape_, options_, {input}, [this, mask](const std::vector<Tensor>& x) { return forward(x[0], mask, {}); });
  }
  Tensor operator()(const Tensor& input, const Tensor& mask, const Tensor& encoded) const {
    return run_layer(module_, tape_, options_, {input, mask, encoded},
                     [this](const std::vector<Tensor>& x) { return forward(x[0], x[1], x[2]); });
  }

 private:
  Tensor forward(const Tensor& input, const Tensor& mask, const Tensor& encoded) const {
    Tensor probabilities;  // the second of the attention's results lives until the next attention's
    Tensor hidden = before(self_norm_, input);
    hidden = self_attention_(hidden, hidden, mask, probabilities);
    hidden = behind(self_norm_, input, std::move(hidden));
    if (cross_attention_) {
      const Tensor residual = hidden;
      hidden = before(*cross_norm_, residual);
      Tensor crossed_probabilities;
      hidden = (*cross_attention_)(hidden, encoded, {}, crossed_probabilities);
      probabilities = std::move(crossed_probabilities);
      hidden = behind(*cross_norm_, residual, std::move(hidden));
    }
    const Tensor residual = hidden;
    hidden = before(final_norm_, residual);
    {  // one expression: the norm's output lives until the activation's exists
      const Tensor raised = up_(hidden);
      hidden = activate(block_.mlp->activation, raised);
    }
    hidden = dropout(hidden, block_.mlp->dropout);
    hidden = down_(hidden);
    hidden = behind(final_norm_, residual, std::move(hidden));
    if (cross_attention_ || hidden.dtype() != DType::fp16) return hidden;
    if (block_.placement == NormPlacement::pre) return clamp(hidden);  // mbart, pegasus
    read_whether_finite(hidden);
    return hidden;
  }

  /// bart clamps only what is not finite, which the host asks of every layer: torch.isfinite(x).all(). Values are taken to be finite.
  void read_whether_finite(const Tensor& x) const {
    Tensor finite;
    {
      const Tensor number = elementwise(tape_, {&x}, DType::boolean), magnitude = elementwise(tape_, {&x}, x.dtype());
      const Tensor bounded = elementwise(tape_, {&magnitude}, DType::boolean);
      finite = elementwise(tape_, {&number, &bounded}, DType::boolean);
    }
    const Tensor all = reduce(finite, std::vector<bool>(static_cast<std::size_t>(finite.rank()), true), false, DType::boolean, 1);
    tape_.read_back();
  }

  Tensor before(const Norm& norm, const Tensor& x) const { return block_.placement == NormPlacement::pre ? norm(x) : x; }

  /// norm(residual + dropout(branch)), the norm only where it stands behind the branch; the branch dies on the way.
  Tensor behind(const Norm& norm, const Tensor& residual, Tensor branch) const {
    branch = dropout(branch, block_.hidden_dropout);
    branch = add(residual, branch);
    return block_.placement == NormPlacement::pre ? branch : norm(branch);
  }

  Module& module_;
  Tape& tape_;
  const RunOptions& options_;
  const Block& block_;
  BartAttention self_attention_;
  Norm self_norm_, final_norm_;
  Linear up_, down_;
  std::optional<BartAttention> cross_attention_;
  std::optional<Norm> cross_norm_;
};

/// One of the two stacks.
class BartStack {
 public:
  /// `words`: the embedding that both stacks share.
  BartStack(const Model& model, const RunOptions& options, Module& module, Module& words, Tape& tape, Block::Stream stream)
      : tape_(tape), options_(options), model_(model), module_(module), words_(words) {
    const NormSpec norm{.kind = NormSpec::Kind::layer_norm, .bias = true, .width = model.hidden_size};
    if (Module* first = module.find_child("layernorm_embedding")) embedding_norm_.emplace(*first, tape, norm);
    if (Module* last = module.find_child("layer_norm")) last_norm_.emplace(*last, tape, norm);
    for (const Block& block : model.blocks) {
      if (!block.attention || block.stream != stream) continue;
      for (std::int64_t i = 0; i < block.repeat; ++i) {
        layers_.emplace_back(module.child("layers").child(std::to_string(block.first + i)), tape_, options_.of_layer(block.first + i),
                             block);
      }
    }
  }

  Tensor encode(const Tensor& input) const {
    Tensor ids = input;
    ModuleCall call(module_, tape_, {&ids});
    const Tensor words = embed(ids);
    const Tensor places = positions_of(words);
    Tensor hidden = start(words, places);
    for (const BartLayer& layer : layers_) hidden = layer(hidden, {});
    if (last_norm_) hidden = (*last_norm_)(hidden);
    return call.done(hidden);
  }

  Tensor decode(const Tensor& input, const Tensor& encoded) const {
    Tensor ids = input;
    ModuleCall call(module_, tape_, {&ids});
    const Tensor words = embed(ids);
    Tensor range = add_scalar(arange(tape_, words.size(1)));
    Tensor ones = filled(tape_, {words.size(0), words.size(1)}, DType::fp32);
    const Tensor mask = padded_causal_mask(words, ones);
    const bool names_anew = model_.model_type == "bart";  // attention_mask is the causal mask from here on; mbart keeps both
    if (names_anew) ones.reset();
    const Tensor places = frozen_positions() ? Embedding(module_.child("embed_positions"), tape_)(range) : places_of(range);
    if (model_.model_type == "mbart") range.reset();
    Tensor hidden = start(words, places);
    for (const BartLayer& layer : layers_) hidden = layer(hidden, mask, encoded);
    if (last_norm_) hidden = (*last_norm_)(hidden);
    return call.done(hidden);
  }

 private:
  /// BartScaledWordEmbedding.
  Tensor embed(const Tensor& ids) const {
    const Tensor words = Embedding(words_, tape_)(ids);
    return multiply_scalar(words);
  }

  bool frozen_positions() const { return model_.model_type == "pegasus"; }

  /// Learned positions stand two rows further down.
  Tensor places_of(const Tensor& range) const {
    const Tensor shifted = add_scalar(unsqueeze(range, 0));
    return Embedding(module_.child("embed_positions"), tape_)(shifted);
  }

  /// BartLearnedPositionalEmbedding of every position of every sample; pegasus: sinusoids, the same for all samples.
  Tensor positions_of(const Tensor& words) const {
    const Tensor range = arange(tape_, words.size(1));
    if (frozen_positions()) return Embedding(module_.child("embed_positions"), tape_)(range);
    const Tensor wide = expand(unsqueeze(range, 0), {words.size(0), -1});
    Tensor shifted = tape_.empty(wide.sizes(), DType::int64);
    in_place(shifted, {&range});
    return Embedding(module_.child("embed_positions"), tape_)(shifted);
  }

  Tensor start(const Tensor& words, const Tensor& places) const {
    Tensor hidden = add(words, places);
    if (embedding_norm_) hidden = (*embedding_norm_)(hidden);
    return dropout(hidden, model_.embedding_dropout);
  }

  /// create_causal_mask with the mask of ones that the decoder makes. Whether it really is all ones is asked of the device
  /// (fast_all); the mask is taken to stay, as with padding in the batch.
  Tensor padded_causal_mask(const Tensor& words, const Tensor& ones) const {
    tape_.operator_name = "causal_mask";
    const Tensor padding = to(ones, DType::boolean);
    const bool sdpa = options_.attention == RunOptions::Attention::sdpa;
    for (int asked = 0; sdpa && asked < 2; ++asked) ask_whether_all(padding);
    Tensor allowed = combined_mask(padding);
    if (sdpa) return allowed;
    const Tensor zero = zeros(tape_, {}, words.dtype()), least = filled(tape_, {}, words.dtype());
    return elementwise(tape_, {&allowed, &zero, &least}, words.dtype());
  }

  void ask_whether_all(const Tensor& padding) const {
    const Tensor total = tape_.empty({}, DType::int64);
    {
      const Tensor counted = to(padding, DType::int64);
      in_place(total, {&counted});
    }
    const Tensor equal = elementwise(tape_, {&total}, DType::boolean);
  }

  /// and_masks(causal_mask_function, padding_mask_function) on index ranges.
  Tensor combined_mask(const Tensor& padding) const {
    const std::int64_t batch = padding.size(0), length = padding.size(1);
    const auto compare = [&](const Tensor& a, const Tensor& b) { return elementwise(tape_, {&a, &b}, DType::boolean); };
    const Tensor batch_range = arange(tape_, batch), head_range = arange(tape_, 1);
    const Tensor queries = add_scalar(arange(tape_, length)), keys = add_scalar(arange(tape_, length));
    const Tensor query = view(queries, {1, 1, length, 1}), key = view(keys, {1, 1, 1, length});
    Tensor causal;
    {
      const Tensor one = filled(tape_, {}, DType::boolean);
      const Tensor before = compare(key, query);
      causal = compare(one, before);
    }
    Tensor kept;
    {
      // Indices of index(): expanded to one shape, then made contiguous.
      const Tensor rows = tape_.empty({batch, length}, DType::int64), columns = tape_.empty({batch, length}, DType::int64);
      copy_into(rows, expand(unsqueeze(batch_range, 1), {batch, length}));
      copy_into(columns, expand(unsqueeze(keys, 0), {batch, length}));
      kept = tape_.empty({batch, 1, 1, length}, DType::boolean);
      in_place(kept, {&rows, &columns, &padding});
    }
    return compare(causal, kept);
  }

  Tape& tape_;
  const RunOptions& options_;
  const Model& model_;
  Module& module_;
  Module& words_;
  std::optional<Norm> embedding_norm_, last_norm_;
  std::vector<BartLayer> layers_;
};

class Bart final : public Network {
 public:
  Bart(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : tape_(tape),
        options_(options),
        wraps_(model.model_type == "mbart"),
        root_(root),
        base_(root.child("model")),
        encoder_(model, options_, base_.child("encoder"), words("encoder"), tape, Block::Stream::main),
        decoder_(model, options_, base_.child("decoder"), words("decoder"), tape, Block::Stream::second),
        head_(root.child("lm_head"), tape) {}

  Tensor loss(const Batch& batch) override {
    Tensor ids = batch.input_ids, labels = batch.labels;
    ModuleCall call(root_, tape_, {&ids, &labels});
    const Tensor targets = wraps_ ? wrap_right(labels) : shift_right(labels);
    Tensor encoded;
    const Tensor hidden = run_stacks(ids, targets, encoded);
    Tensor logits = head_(hidden);
    logits = add(logits, root_.buffer("final_logits_bias"));
    tape_.phase(Phase::loss);
    Tensor loss = flat_cross_entropy(logits, labels);
    call.done({&loss, &logits, &encoded});
    hold(options_, {logits, encoded});
    return loss;
  }

 private:
  /// embed_tokens of a stack where it is registered there, else the shared one.
  Module& words(const char* stack) {
    Module* own = base_.child(stack).find_child("embed_tokens");
    return own ? *own : base_.child("shared");
  }

  Tensor run_stacks(const Tensor& input, const Tensor& targets, Tensor& encoded) {
    Tensor ids = input;
    ModuleCall call(base_, tape_, {&ids});
    encoded = encoder_.encode(ids);
    return call.done(decoder_.decode(targets, encoded));
  }

  /// shifted.ne(padding).sum(dim=1).
  Tensor count_real(const Tensor& shifted) const {
    const Tensor real = elementwise(tape_, {&shifted}, DType::boolean);
    const Tensor counts = tape_.empty({shifted.size(0)}, DType::int64);
    const Tensor counted = to(real, DType::int64);
    in_place(counts, {&counted});
    return counts;
  }

  /// mbart's shift_tokens_right: the last token that is no padding comes first.
  Tensor wrap_right(const Tensor& labels) const {
    tape_.operator_name = "shift_right";
    const Tensor shifted = clone(labels);
    {
      const Tensor ignored = elementwise(tape_, {&shifted}, DType::boolean);
      in_place(shifted, {&ignored});
    }
    Tensor last;
    {
      const Tensor counts = count_real(shifted);
      last = add_scalar(counts);
    }
    const Tensor first = tape_.empty({labels.size(0)}, DType::int64);
    in_place(first, {&shifted, &last});
    const std::int64_t length = labels.size(1);
    const Tensor kept = tape_.empty({labels.size(0), length - 1}, DType::int64);
    copy_into(kept, slice(shifted, -1, 0, length - 1));
    copy_into(slice(shifted, -1, 1, length), kept);
    copy_into(slice(shifted, -1, 0, 1), unsqueeze(first, 1));
    return shifted;
  }

  Tape& tape_;
  RunOptions options_;
  bool wraps_;
  Module& root_;
  Module& base_;
  BartStack encoder_, decoder_;
  Linear head_;
};

}  // namespace

std::unique_ptr<Network> make_bart(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<Bart>(model, options, root, tape);
}

}  // namespace plimsoll::program
