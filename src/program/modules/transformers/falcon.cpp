// FalconForCausalLM: the RW kind (ALiBi, a head of keys for each of queries, sequential), the 7B kind (one key-value head, one shared norm)
// and the 40B kind (grouped heads, a norm for each branch).
#include "plimsoll/error.hpp"
#include "program/modules/adapters/peft.hpp"
#include "program/modules/transformers/decoder_stack.hpp"
#include "program/modules/transformers/families.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// FalconLinear: input @ weight.T, then the bias as an addition of its own.
class FalconLinear {
 public:
  FalconLinear(Module& module, Tape& tape) : module_(module), tape_(tape) {}

  Tensor operator()(const Tensor& input) const {
    Tensor x = input;
    ModuleCall call(module_, tape_, {&x});
    if (module_.replacement) return call.done(module_.replacement(x));
    if (Module* base = module_.find_child("base_layer")) return call.done(adapted(module_, tape_, x, FalconLinear(*base, tape_)));
    const Tensor hidden = linear(x, alias(module_.tensor("weight")));  // weight.T is a view: autocast casts it every time
    const Tensor& bias = module_.tensor("bias");
    return call.done(bias ? add(hidden, bias) : hidden);
  }

 private:
  Module& module_;
  Tape& tape_;
};

/// Keyword arguments of every layer; a checkpointed layer's closure keeps them all.
struct FalconPlaces {
  Tensor alibi;  ///< [batch, heads, 1, length], of models with ALiBi; within the mask already
  Tensor mask, positions;
  RotaryTables tables;  ///< made with ALiBi too
};

class FalconLayer {
 public:
  FalconLayer(Module& module, Tape& tape, const RunOptions& options, const Block& block)
      : module_(module),
        attention_(module.child("self_attention")),
        mlp_(module.child("mlp")),
        tape_(tape),
        options_(options),
        block_(block),
        qkv_(attention_.child("query_key_value"), tape),
        output_(attention_.child("dense"), tape),
        up_(mlp_.child("dense_h_to_4h"), tape),
        down_(mlp_.child("dense_4h_to_h"), tape) {
    const bool two = block.placement == NormPlacement::parallel_two;
    attention_norm_.emplace(module.child(two ? "ln_attn" : "input_layernorm"), tape, block.norm);
    if (two) mlp_norm_.emplace(module.child("ln_mlp"), tape, block.norm);
    if (sequential()) mlp_norm_.emplace(module.child("post_attention_layernorm"), tape, block.norm);
  }

  Tensor operator()(const Tensor& input, const FalconPlaces& places, const std::weak_ptr<Tensor>& outputs) const {
    return run_layer_of_tuples(module_, tape_, options_, input, outputs,
                               [this, places](const Tensor& x, Tensor& probabilities) { return forward(x, places, probabilities); });
  }

 private:
  bool sequential() const { return block_.placement == NormPlacement::pre; }

  Tensor forward(const Tensor& input, const FalconPlaces& places, Tensor& probabilities) const {
    const Tensor attention_input = (*attention_norm_)(input);
    if (sequential()) return forward_sequential(attention_input, input, places, probabilities);
    const Tensor mlp_input = mlp_norm_ ? (*mlp_norm_)(input) : attention_input;
    const Tensor attended = attend_all(attention_input, places, probabilities);
    Tensor fed = feed_forward(mlp_input);
    fed = add_into(fed, attended);
    return dropout_add(fed, input, block_.hidden_dropout);
  }

  /// The attention's rate is that of its output's dropout too.
  Tensor forward_sequential(const Tensor& attention_input, const Tensor& input, const FalconPlaces& places, Tensor& probabilities) const {
    const Tensor attended = attend_all(attention_input, places, probabilities);
    const Tensor residual = dropout_add(attended, input, block_.attention->dropout);
    const Tensor mlp_input = (*mlp_norm_)(residual);
    const Tensor fed = feed_forward(mlp_input);
    return dropout_add(fed, residual, block_.hidden_dropout);
  }

  static Tensor dropout_add(const Tensor& x, const Tensor& residual, double rate) {
    const Tensor kept = dropout(x, rate);
    return add(residual, kept);
  }

  /// The new decoder architecture: heads of queries in groups with their keys and values. With one norm the widths alone tell.
  bool grouped() const {
    const AttentionSpec& spec = *block_.attention;
    return block_.placement == NormPlacement::parallel_two || (spec.kv_heads > 1 && spec.kv_heads < spec.heads);
  }

  /// _split_heads: [batch, length, heads, head_dim] of each.
  void split_heads(const Tensor& fused, Tensor& query, Tensor& key, Tensor& value) const {
    const AttentionSpec& spec = *block_.attention;
    const std::int64_t batch = fused.size(0), length = fused.size(1), dim = spec.head_dim;
    if (grouped()) {
      const Tensor all = view(fused, {batch, length, -1, spec.heads / spec.kv_heads + 2, dim});
      const std::int64_t width = all.size(3);
      query = slice(all, 3, 0, width - 2);
      key = index_one(all, 3);
      value = index_one(all, 3);
      key = expand(key, query.sizes());
      value = expand(value, query.sizes());
      const auto flat = [&](const Tensor& x) { return reshape(x, {batch, length, spec.heads, dim}); };
      const Tensor flat_query = flat(query), flat_key = flat(key), flat_value = flat(value);  // a list, whose members are unpacked last
      query = flat_query;
      key = flat_key;
      value = flat_value;
      return;
    }
    if (spec.kv_heads > 1) {  // no multi-query: a third each
      const Tensor all = view(fused, {batch, length, spec.heads, 3, dim});
      query = select(all, 3);
      key = select(all, 3);
      value = select(all, 3);
      return;
    }
    const Tensor all = view(fused, {batch, length, spec.heads + 2, dim});
    query = slice(all, 2, 0, spec.heads);
    key = index_one(all, 2);
    value = index_one(all, 2);
  }

  Tensor attend_all(const Tensor& input, const FalconPlaces& places, Tensor& probabilities) const {
    Tensor hidden = input;
    ModuleCall call(attention_, tape_, {&hidden});
    const AttentionSpec& spec = *block_.attention;
    const std::int64_t batch = hidden.size(0), length = hidden.size(1);
    Tensor value, key, query;  // they die in the order of the names in Python: fused, query, key, value
    const Tensor fused = qkv_(hidden);
    split_heads(fused, query, key, value);
    const auto heads = [&](const Tensor& x) { return reshape(transpose(x, 1, 2), {batch, x.size(2), length, spec.head_dim}); };
    query = heads(query);
    key = heads(key);
    value = heads(value);
    if (!places.alibi) rotate_pair(query, key, places.tables, Rotation::whole);
    if (options_.attention == RunOptions::Attention::eager)
      return call.done(eager(query, key, value, places, hidden.dtype(), probabilities));
    Tensor output = scaled_dot_product_attention(query, key, value, places.mask,
                                                 {.causal = !places.mask && length > 1, .dropout = places.alibi ? spec.dropout : 0});
    return call.done(merged(output));
  }

  /// The heads joined, and projected.
  Tensor merged(Tensor& output) const {
    const AttentionSpec& spec = *block_.attention;
    output = permute(output, {0, 2, 1, 3});
    output = reshape(output, {output.size(0), output.size(1), spec.heads * spec.head_dim});
    output = output_(output);
    return output;
  }

  Tensor eager(const Tensor& query, const Tensor& key, const Tensor& value, const FalconPlaces& places, DType type,
               Tensor& probabilities) const {
    Tensor scores = matmul(query, transpose(key, -1, -2)), output;
    if (places.alibi) {
      const Tensor wide = to(scores, DType::fp32);  // matmul_result and attention_scores live as long as the function
      Tensor logits = add(wide, places.alibi);
      logits = divide_scalar_into(logits);
      {
        const Tensor masked = add(logits, places.mask);
        probabilities = softmax(masked, type);
      }
      probabilities = dropout(probabilities, block_.attention->dropout);
      output = matmul(probabilities, value);
      return merged(output);
    }
    scores = divide_scalar_into(scores);
    {
      const Tensor masked = add(scores, places.mask);
      scores = softmax(masked, type);
    }
    probabilities = scores;
    output = matmul(scores, value);
    return merged(output);
  }

  Tensor feed_forward(const Tensor& input) const {
    Tensor x = input;
    ModuleCall call(mlp_, tape_, {&x});
    Tensor up = up_(x);
    x = activate(block_.mlp->activation, up);
    up.reset();
    x = down_(x);
    return call.done(x);
  }

  Module& module_;
  Module& attention_;
  Module& mlp_;
  Tape& tape_;
  const RunOptions& options_;
  const Block& block_;
  std::optional<Norm> attention_norm_, mlp_norm_;
  FalconLinear qkv_, output_, up_, down_;
};

/// build_alibi_tensor, reshaped: slopes × positions in bf16, cast: [batch, heads, 1, length].
Tensor alibi_of(Tape& tape, std::int64_t batch, std::int64_t length, std::int64_t heads, DType type) {
  const Tensor mask = filled(tape, {batch, length}, DType::int64);
  const Tensor slopes = alibi_slopes(tape, heads);
  Tensor positions;
  {
    const Tensor counted = cumulative_sum(mask, DType::int64), before = elementwise(tape, {&counted}, DType::int64);
    positions = elementwise(tape, {&before, &mask}, DType::int64);
  }
  positions = view(positions, {batch, 1, length});
  const Tensor low = view(to(slopes, DType::bf16), {heads, 1});
  const Tensor products = elementwise(tape, {&low, &positions}, DType::bf16);
  return view(to(products, type), {batch, heads, 1, length});
}

/// The additive mask of the attention with ALiBi: biases where keys may be seen, the type's minimum elsewhere.
Tensor mask_with_alibi(Tape& tape, const Tensor& causal, const Tensor& alibi) {
  const DType type = alibi.dtype();
  Tensor additive = causal;
  if (causal.dtype() == DType::boolean) {
    const Tensor zero = filled(tape, {}, type), least = filled(tape, {}, type);
    additive = elementwise(tape, {&causal, &zero, &least}, type);
  }
  const Tensor scaled = elementwise(tape, {&alibi}, type);
  const Tensor hidden = elementwise(tape, {&additive}, DType::boolean);
  return masked_fill(expand(scaled, {-1, -1, causal.size(-2), -1}), hidden);
}

class Falcon final : public DecoderStack<FalconLayer> {
 public:
  Falcon(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : DecoderStack(model, options, root, tape, {"transformer", "word_embeddings", "h", "ln_f"}), heads_(model.heads) {
    for (const Block& block : model.blocks)
      if (block.role == Block::Role::decoder) with_alibi_ = block.attention->positions == Positions::alibi;
  }

 private:
  Tensor decode(const Tensor& input) override {
    Tensor ids = input;
    ModuleCall call(base_, tape_, {&ids});
    const Tensor embeddings = embed(ids);
    FalconPlaces places;
    if (with_alibi_) places.alibi = alibi_of(tape_, ids.size(0), ids.size(1), heads_, embeddings.dtype());
    places.positions = position_ids(tape_, ids.size(1));
    find_packed_sequences(tape_);
    places.mask = materialized_causal_mask(tape_, options_, embeddings);
    if (with_alibi_) places.mask = mask_with_alibi(tape_, places.mask, places.alibi);
    Tensor hidden = embeddings;
    places.tables = rotary_tables(base_.child("rotary_emb"), tape_, places.positions, hidden.dtype());
    std::shared_ptr<Tensor> outputs;
    hidden = run_holding_tuples(hidden, outputs, [&](const FalconLayer& layer, const Tensor& x, const std::weak_ptr<Tensor>& held) {
      return layer(x, places, held);
    });
    hidden = (*norm_)(hidden);
    return call.done(hidden);
  }

  std::int64_t heads_;
  bool with_alibi_ = false;
};

}  // namespace

std::unique_ptr<Network> make_falcon(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<Falcon>(model, options, root, tape);
}

}  // namespace plimsoll::program
