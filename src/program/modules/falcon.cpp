// FalconForCausalLM: the 7B kind (one key-value head, one shared norm) and the 40B kind (grouped heads, a norm for each branch).
#include "plimsoll/error.hpp"
#include "program/modules/decoder_stack.hpp"
#include "program/modules/families.hpp"
#include "program/modules/lora.hpp"
#include "program/ops.hpp"

namespace plimsoll::program {

namespace {

/// FalconLinear: input @ weight.T, then the bias as an addition of its own.
class FalconLinear {
 public:
  FalconLinear(Module& module, Tape& tape) : module_(module), tape_(tape) {}

  Tensor operator()(const Tensor& input) const {
    Tensor x = input;
    ModuleCall call(module_, tape_, {&x});
    if (Module* base = module_.find_child("base_layer")) return call.done(adapted(module_, tape_, x, FalconLinear(*base, tape_)(x)));
    const Tensor hidden = linear(x, alias(module_.tensor("weight")));  // weight.T is a view: autocast casts it every time
    const Tensor& bias = module_.tensor("bias");
    return call.done(bias ? add(hidden, bias) : hidden);
  }

 private:
  Module& module_;
  Tape& tape_;
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
    if (block.attention->positions != Positions::rope) refuse("Falcon with ALiBi is not modelled");
    const bool two = block.placement == NormPlacement::parallel_two;
    if (!two && block.placement != NormPlacement::parallel) refuse("Falcon without parallel attention is not modelled", module.path);
    attention_norm_.emplace(module.child(two ? "ln_attn" : "input_layernorm"), tape, block.norm);
    if (two) mlp_norm_.emplace(module.child("ln_mlp"), tape, block.norm);
  }

  /// `outputs` gets the probabilities, as the layer's tuple does.
  Tensor operator()(const Tensor& input, const Tensor& mask, const RotaryTables& tables, const Tensor& positions,
                    const std::weak_ptr<Tensor>& outputs) const {
    return run_layer(module_, tape_, options_, input, [this, mask, tables, positions, outputs](const Tensor& x) {
      Tensor probabilities;
      const Tensor hidden = forward(x, mask, tables, probabilities);
      if (const std::shared_ptr<Tensor> held = outputs.lock()) *held = probabilities;
      return hidden;
    });
  }

 private:
  Tensor forward(const Tensor& input, const Tensor& mask, const RotaryTables& tables, Tensor& probabilities) const {
    const Tensor attention_input = (*attention_norm_)(input);
    const Tensor mlp_input = mlp_norm_ ? (*mlp_norm_)(input) : attention_input;
    const Tensor attended = attend_all(attention_input, mask, tables, probabilities);
    Tensor fed = feed_forward(mlp_input);
    fed = add_into(fed, attended);
    const Tensor kept = dropout(fed, block_.hidden_dropout);
    return add(input, kept);
  }

  /// _split_heads: [batch, length, heads, head_dim] of each.
  void split_heads(const Tensor& fused, Tensor& query, Tensor& key, Tensor& value) const {
    const AttentionSpec& spec = *block_.attention;
    const std::int64_t batch = fused.size(0), length = fused.size(1), dim = spec.head_dim;
    if (block_.placement == NormPlacement::parallel_two) {
      const Tensor grouped = view(fused, {batch, length, -1, spec.heads / spec.kv_heads + 2, dim});
      const std::int64_t width = grouped.size(3);
      query = slice(grouped, 3, 0, width - 2);
      key = expand(index_one(grouped, 3), query.sizes());
      value = expand(index_one(grouped, 3), query.sizes());
      const auto flat = [&](const Tensor& x) { return reshape(x, {batch, length, spec.heads, dim}); };
      query = flat(query);
      key = flat(key);
      value = flat(value);
      return;
    }
    const Tensor all = view(fused, {batch, length, spec.heads + 2, dim});
    query = slice(all, 2, 0, spec.heads);
    key = index_one(all, 2);
    value = index_one(all, 2);
  }

  Tensor attend_all(const Tensor& input, const Tensor& mask, const RotaryTables& tables, Tensor& probabilities) const {
    Tensor hidden = input;
    ModuleCall call(attention_, tape_, {&hidden});
    const AttentionSpec& spec = *block_.attention;
    const std::int64_t batch = hidden.size(0), length = hidden.size(1);
    const Tensor fused = qkv_(hidden);
    Tensor query, key, value;
    split_heads(fused, query, key, value);
    const auto heads = [&](const Tensor& x) { return reshape(transpose(x, 1, 2), {batch, x.size(2), length, spec.head_dim}); };
    query = heads(query);
    key = heads(key);
    value = heads(value);
    rotate_pair(query, key, tables, Rotation::whole);
    Tensor output = options_.attention == RunOptions::Attention::sdpa
                        ? scaled_dot_product_attention(query, key, value, mask, {.causal = !mask && length > 1})
                        : eager(query, key, value, mask, hidden.dtype(), probabilities);
    output = view(output, {batch, spec.heads, length, spec.head_dim});
    output = permute(output, {0, 2, 1, 3});
    output = reshape(output, {batch, length, spec.heads * spec.head_dim});
    output = output_(output);
    return call.done(output);
  }

  static Tensor eager(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, DType type, Tensor& probabilities) {
    Tensor scores = matmul(query, transpose(key, -1, -2));
    scores = divide_scalar_into(scores);
    {
      const Tensor masked = add(scores, mask);
      scores = softmax(masked, type);
    }
    probabilities = scores;
    return matmul(scores, value);
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

class Falcon final : public DecoderStack<FalconLayer> {
 public:
  Falcon(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : DecoderStack(model, options, root, tape, {"transformer", "word_embeddings", "h", "ln_f"}) {}

 private:
  Tensor decode(const Tensor& input) override {
    Tensor ids = input;
    ModuleCall call(base_, tape_, {&ids});
    const Tensor embeddings = embed(ids);
    const Tensor positions = position_ids(tape_, ids.size(1));
    const Tensor mask = materialized_causal_mask(tape_, options_, embeddings);
    Tensor hidden = embeddings;
    const RotaryTables tables = rotary_tables(base_.child("rotary_emb"), tape_, positions, hidden.dtype());
    std::shared_ptr<Tensor> outputs;
    hidden = run_holding_tuples(hidden, outputs, [&](const FalconLayer& layer, const Tensor& x, const std::weak_ptr<Tensor>& held) {
      return layer(x, mask, tables, positions, held);
    });
    hidden = (*norm_)(hidden);
    return call.done(hidden);
  }
};

}  // namespace

std::unique_ptr<Network> make_falcon(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<Falcon>(model, options, root, tape);
}

}  // namespace plimsoll::program
