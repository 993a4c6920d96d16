#include "program/modules/torchtune/decoder.hpp"

#include <algorithm>
#include <optional>

#include "plimsoll/error.hpp"
#include "program/checkpoint.hpp"
#include "program/modules/layers.hpp"
#include "program/modules/adapters/nf4.hpp"
#include "program/modules/torchtune/compiled.hpp"
#include "program/op.hpp"
#include "program/ops/choosing.hpp"
#include "program/ops/copying.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/token_scores.hpp"

namespace plimsoll::program {

namespace {

/// MultiHeadAttention.
class Attention {
 public:
  Attention(Module& parent, const AttentionSpec& spec, const TuneRope& rope, const TuneContext& context)
      : module_(add_tune_module(parent, "attn", context.tape)),
        context_(context),
        spec_(spec),
        rope_(rope),
        query_(module_, "q_proj", "q_proj", {spec.hidden, spec.heads * spec.head_dim, spec.qkv_bias}, context),
        key_(module_, "k_proj", "k_proj", {spec.hidden, spec.kv_heads * spec.head_dim, spec.qkv_bias}, context),
        value_(module_, "v_proj", "v_proj", {spec.hidden, spec.kv_heads * spec.head_dim, spec.qkv_bias}, context),
        output_(module_, "output_proj", "output_proj", {spec.heads * spec.head_dim, spec.hidden, spec.output_bias}, context) {
    if (spec.qk_norm == AttentionSpec::QkNorm::none) return;
    query_norm_.emplace(module_, "q_norm", spec.head_dim, false, context);
    key_norm_.emplace(module_, "k_norm", spec.head_dim, false, context);
  }

  Tensor operator()(const Tensor& input, const TuneBatch& batch) const {
    Tensor x = input;
    ModuleCall call(module_, context_.tape, {&x});
    const std::int64_t count = x.size(0), length = x.size(1);
    Tensor query = query_(x);
    query = view(query, {count, length, spec_.heads, spec_.head_dim});
    query = rope_(normed(query_norm_, query), batch.positions);
    Tensor turned = query;
    query = transpose(query, 1, 2);
    Tensor key = key_(x), value = value_(x);
    copy_keys(key, value, batch);
    Seen allowed;  // lives until the call's end
    Tensor output = spec_.softcap > 0 ? attend_capped(turned, std::move(query), key, value, allowed) : attend(query, key, value, batch);
    output = contiguous(transpose(output, 1, 2));
    output = view(output, {count, length, -1});
    Tensor projected = output_(output);
    for (Tensor* local : {&allowed.mask, &turned, &query, &key, &value, &output, &allowed.ones, &allowed.window}) local->reset();  // as Python does
    return call.done(std::move(projected));
  }

  /// The same under torch.compile, of an input that is normed already.
  Tensor compiled(const Tensor& normed, const TuneBatch& batch) const {
    Tensor output;
    {
      const TuneHeads heads = compiled_tune_projections(
          {query_, key_, value_, spec_.heads, spec_.kv_heads, spec_.head_dim, context_.run.keeps_rotary_rows && batch.positions.defined()},
          normed);
      output = attend(heads.query, heads.key, heads.value, batch);
    }
    output = contiguous(transpose(output, 1, 2));
    output = view(output, {normed.size(0), normed.size(1), -1});
    return compiled_tune_output(output_, output);
  }

  std::vector<const TuneLinear*> linears() const { return {&query_, &key_, &value_, &output_}; }

 private:
  std::int64_t group() const { return spec_.heads / spec_.kv_heads; }

  /// Qwen3Attention: heads are normed before they are turned.
  static Tensor normed(const std::optional<TuneNorm>& norm, const Tensor& x) {
    if (!norm) return x;
    return transpose((*norm)(transpose(x, 1, 2)), 1, 2);
  }

  /// [batch, length, kv heads, dim] → one head per query, by a copy where queries share keys.
  Tensor copied(const Tensor& x) const {
    const Tensor grouped = view(x, {x.size(0), x.size(1), spec_.kv_heads, 1, spec_.head_dim});
    if (group() == 1) return view(grouped, {x.size(0), x.size(1), -1, spec_.head_dim});
    const Tensor wide = expand(grouped, {x.size(0), x.size(1), spec_.kv_heads, group(), spec_.head_dim});
    return reshape(wide, {x.size(0), x.size(1), -1, spec_.head_dim});
  }

  /// The same of [batch, kv heads, length, dim].
  Tensor copied_by_head(const Tensor& x) const {
    if (group() == 1) return x;
    const Tensor wide = expand(unsqueeze(x, 2), {x.size(0), spec_.kv_heads, group(), -1, spec_.head_dim});
    return reshape(wide, {x.size(0), -1, x.size(2), spec_.head_dim});
  }

  /// From the projections' results to keys and values per query head, [batch, heads, length, dim].
  void copy_keys(Tensor& key, Tensor& value, const TuneBatch& batch) const {
    using Copies = TuneRun::KeyCopies;
    const Dims by_key{key.size(0), key.size(1), -1, spec_.head_dim};
    key = view(key, by_key);
    // Gemma2Attention is a file of its own, which later releases of the other left as it was.
    const Copies copies = spec_.softcap > 0 ? Copies::behind_rotation : context_.run.key_copies;
    if (copies == Copies::before_rotation) {
      key = copied(key);
      value = copied(view(value, by_key));
      key = transpose(rope_(key, batch.positions), 1, 2);
      value = transpose(value, 1, 2);
      return;
    }
    if (copies == Copies::by_head) value = view(value, by_key);
    key = rope_(normed(key_norm_, key), batch.positions);
    if (copies == Copies::behind_rotation) {
      key = copied(key);
      value = copied(view(value, by_key));
      key = transpose(key, 1, 2);
      value = transpose(value, 1, 2);
      return;
    }
    key = transpose(key, 1, 2);
    value = transpose(value, 1, 2);
    key = copied_by_head(key);
    value = copied_by_head(value);
  }

  Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value, const TuneBatch& batch) const {
    if (batch.block_mask) return flex_attention(query, key, value);
    const Tensor mask = batch.mask ? unsqueeze(batch.mask, 1) : Tensor();
    return scaled_dot_product_attention(query, key, value, mask, {.causal = !batch.mask, .dropout = spec_.dropout});
  }

  /// What a query may see, as Gemma2Attention.forward makes it anew in each layer: numbers in fp32 to add to the scores. What a window is made
  /// of lives as long as the call.
  struct Seen {
    Tensor mask, ones, window;
  };
  Seen seen(std::int64_t length) const {
    Tape& tape = context_.tape;
    const auto made = [&](std::initializer_list<const Tensor*> from, DType type) { return elementwise(tape, from, type); };
    Seen seen;
    {
      Tensor causal;
      {
        const Tensor ones = tape.empty({length, length}, DType::boolean);  // they come from the host
        tape.copy({Copy::Direction::host_to_device, ones.bytes()}, tape.stream);
        causal = made({&ones}, DType::boolean);
      }
      const Tensor hidden = made({&causal}, DType::boolean);
      seen.mask = where(hidden, {}, {}, DType::fp32);
    }
    if (!spec_.sliding_window) return seen;
    seen.ones = made({&seen.mask}, DType::fp32);
    {
      const Tensor above = made({&seen.ones}, DType::fp32), below = made({&seen.ones}, DType::fp32);
      seen.window = made({&above, &below}, DType::fp32);
    }
    Tensor narrowed;
    {
      const Tensor within = made({&seen.window}, DType::boolean);
      narrowed = where(within, seen.mask, {}, DType::fp32);
    }
    seen.mask = std::move(narrowed);
    return seen;
  }

  /// Gemma2Attention's own arithmetic: queries are scaled in place, scores capped, and widened by the mask that is added to them.
  Tensor attend_capped(const Tensor& turned, Tensor query, const Tensor& key, const Tensor& value, Seen& allowed) const {
    query = view_again(scale_part(turned, query), query.sizes(), query.strides());
    Tensor output = matmul(query, transpose(key, 2, 3));
    allowed = seen(query.size(2));
    output = divide_scalar(output);
    output = tanh(output);
    output = multiply_scalar(output);
    output = add(output, allowed.mask);
    {
      const Tensor probabilities = softmax(output, DType::fp32);
      output = to(probabilities, query.dtype());
    }
    return matmul(output, value);
  }

  /// A view of a tensor that was written to through it: as_strided, whose backward copies into zeros.
  static Tensor view_again(const Tensor& base, const Dims& sizes, const Dims& strides) {
    Op op("as_strided", {&base});
    Tensor y = op.tape().view(base, sizes, strides);
    return op.done(y, [whole = base.sizes(), sizes, strides](BackwardCall& b) {
      Tensor gradient = zeros(b.tape, whole, b.grad().dtype());
      copy_into(b.tape.view(gradient, sizes, strides), b.grad());
      b.give(0, std::move(gradient));
    });
  }

  Module& module_;
  TuneContext context_;
  AttentionSpec spec_;
  const TuneRope& rope_;
  TuneLinear query_, key_, value_, output_;
  std::optional<TuneNorm> query_norm_, key_norm_;
};

/// FeedForward: w2(activation(w1(x)) * w3(x)).
class FeedForward {
 public:
  FeedForward(Module& parent, const MlpSpec& spec, const TuneContext& context)
      : module_(add_tune_module(parent, "mlp", context.tape)),
        context_(context),
        activation_(spec.activation),
        gate_(module_, "w1", "w1", {spec.hidden, spec.intermediate, false}, context),
        down_(module_, "w2", "w2", {spec.intermediate, spec.hidden, false}, context),
        up_(module_, "w3", "w3", {spec.hidden, spec.intermediate, false}, context) {}

  Tensor operator()(const Tensor& input) const {
    Tensor x = input;
    ModuleCall call(module_, context_.tape, {&x});
    Tensor hidden = gate_(x);
    hidden = activate(activation_, hidden);
    {
      const Tensor raised = up_(x);
      hidden = multiply(hidden, raised);
    }
    return call.done(down_(hidden));
  }

  const TuneLinear& gate() const { return gate_; }
  const TuneLinear& down() const { return down_; }
  const TuneLinear& up() const { return up_; }
  /// In the order in which the builder makes them.
  std::vector<const TuneLinear*> linears() const { return {&gate_, &down_, &up_}; }

 private:
  Module& module_;
  TuneContext context_;
  std::string activation_;
  TuneLinear gate_, down_, up_;
};

bool is_gemma(const Model& model) { return model.model_type == "gemma" || model.model_type == "gemma2"; }

/// lora_gemma_self_attention and its like make a table for each layer; all other builders make one for all.
bool has_table_per_layer(const Model& model, const TuneRun& run) { return is_gemma(model) && run.lora; }

/// What torchtune has of the family, and whether it is what its builder makes.
void check_family(const Model& model, const TuneRun& run) {
  static const std::vector<std::string> families = {"llama", "mistral", "gemma", "gemma2", "phi3", "qwen2", "qwen3"};
  if (std::find(families.begin(), families.end(), model.model_type) == families.end())
    refuse("torchtune's modules of model type '" + model.model_type + "' are not modelled", {}, suggest(model.model_type, families));
  if (model.model_type == "qwen3" && run.compiled) refuse("compiled layers of torchtune whose heads are normed are not modelled", "compile", "false");
  if (model.model_type == "gemma2" && run.compiled)
    refuse("compiled layers of torchtune whose scores are capped are not modelled", "compile", "false");
  if (model.model_type == "gemma2" && run.packed) fail("torchtune's Gemma 2 takes no block masks (Gemma2Attention raises)", "packed", "false");
  using QkNorm = AttentionSpec::QkNorm;
  const NormPlacement placement = model.model_type == "gemma2" ? NormPlacement::sandwich : NormPlacement::pre;
  for (const Block& block : model.blocks) {
    if (block.role != Block::Role::decoder) continue;
    const bool known = block.attention && block.mlp && !block.moe && block.mlp->gated && !block.mlp->bias &&
                       block.placement == placement && block.attention->qk_norm == (model.model_type == "qwen3" ? QkNorm::per_head : QkNorm::none) &&
                       block.attention->rotary_dim == block.attention->head_dim && block.hidden_dropout == 0;
    if (!known) refuse("layers of this kind are not torchtune's", "model");
  }
}

TuneRope::Kind rope_of(const Model& model) {
  if (model.model_type == "qwen2" || model.model_type == "qwen3") return TuneRope::Kind::halves;
  if (model.model_type == "phi3") return TuneRope::Kind::halves_in_fp32;
  return TuneRope::Kind::neighbours;
}

}  // namespace

/// TransformerSelfAttentionLayer.
class TuneLayer {
 public:
  TuneLayer(Module& module, const Block& block, bool unit_offset, const TuneRope& rope, const TuneContext& context)
      : module_(module),
        context_(context),
        attention_(module, *block.attention, rope, context),
        feed_forward_(module, *block.mlp, context),
        attention_norm_(module, "sa_norm", block.attention->hidden, unit_offset, context),
        mlp_norm_(module, "mlp_norm", block.attention->hidden, unit_offset, context) {
    if (block.placement != NormPlacement::sandwich) return;
    attention_scale_.emplace(module, "sa_scale", block.attention->hidden, unit_offset, context);
    mlp_scale_.emplace(module, "mlp_scale", block.attention->hidden, unit_offset, context);
  }

  Tensor operator()(const Tensor& input, const TuneBatch& batch) const {
    Tensor x = input;
    ModuleCall call(module_, context_.tape, {&x});
    if (!context_.run.checkpointed) return call.done(forward(x, batch));
    return call.done(
        checkpoint(context_.tape, [this, &batch](const std::vector<Tensor>& arguments) { return forward(arguments[0], batch); }, {x}));
  }

  const Attention& attention() const { return attention_; }
  const FeedForward& feed_forward() const { return feed_forward_; }

 private:
  Tensor forward(const Tensor& x, const TuneBatch& batch) const {
    if (context_.run.compiled) return compiled(x, batch);
    Tensor hidden = attention_norm_(x);
    const Tensor attended = attention_(hidden, batch);
    hidden = add(scaled(attention_scale_, attended), x);
    Tensor branch;
    {
      const Tensor normed = mlp_norm_(hidden);
      branch = feed_forward_(normed);
    }
    return add(hidden, scaled(mlp_scale_, branch));
  }

  static Tensor scaled(const std::optional<TuneNorm>& scale, const Tensor& x) { return scale ? (*scale)(x) : x; }

  Tensor compiled(const Tensor& x, const TuneBatch& batch) const {
    Tensor attended;
    {
      const Tensor normed = compiled_tune_norm(attention_norm_, x);
      attended = attention_.compiled(normed, batch);
    }
    return compiled_tune_mlp({mlp_norm_, feed_forward_.gate(), feed_forward_.down(), feed_forward_.up()}, attended, x);
  }

  Module& module_;
  TuneContext context_;
  Attention attention_;
  FeedForward feed_forward_;
  TuneNorm attention_norm_, mlp_norm_;
  std::optional<TuneNorm> attention_scale_, mlp_scale_;
};

TuneDecoder::TuneDecoder(const Model& model, const TuneRun& run, Tape& tape)
    : tape_(tape), run_(run), scaled_embeddings_(is_gemma(model)), tied_(model.tied_embeddings) {
  check_family(model, run);
  const TuneContext context{run_, tape_};
  Module& tokens = add_tune_module(root_, "tok_embeddings", tape_);
  tokens.parameters.push_back(std::make_shared<Parameter>(
      Parameter{.name = "weight", .sizes = {model.vocab_size, model.hidden_size}, .type = run.type, .trainable = !run.lora, .tensor = {}}));
  Module& layers = add_tune_module(root_, "layers", tape_);
  for (const Block& block : model.blocks) {
    if (block.role != Block::Role::decoder) continue;
    for (std::int64_t i = 0; i < block.repeat; ++i) {
      if (ropes_.empty() || has_table_per_layer(model, run))
        ropes_.push_back(std::make_unique<TuneRope>(rope_of(model), run.positions, block.attention->head_dim, tape_));
      Module& module = add_tune_module(layers, std::to_string(block.first + i), tape_);
      layer_modules_.push_back(&module);
      layers_.push_back(std::make_unique<TuneLayer>(module, block, is_gemma(model), *ropes_.back(), context));
    }
  }
  capped_ = model.model_type == "gemma2";
  Module& last = capped_ ? add_tune_module(root_, "norm", tape_) : root_;  // Gemma2FinalNorm
  norm_ = std::make_unique<TuneNorm>(last, capped_ ? "rms_norm" : "norm", model.hidden_size, is_gemma(model), context);
  if (tied_ && run.lora && std::find(run.lora->targets.begin(), run.lora->targets.end(), "output") != run.lora->targets.end())
    fail("a head that is the embedding's weight takes no adapter (torchtune's builders of such models)", "lora.target_modules", "leave output out");
  if (!tied_) {
    const TuneLinear::Shape shape{model.hidden_size, model.vocab_size, false};
    output_ = std::make_unique<TuneLinear>(root_, "output", "output", shape, context);
  }
}

TuneDecoder::~TuneDecoder() = default;

void TuneDecoder::materialize_module(Module& module) {
  const LabelScope label(tape_, module.label);
  tape_.operator_name = "init";
  for (const auto& parameter : module.parameters) {
    if (!parameter->tensor) parameter->tensor = tape_.parameter(parameter->sizes, parameter->type, parameter->trainable);
  }
}

/// nn.Linear makes its weight; an NF4 one is quantised behind it, and dies when the module is made.
void TuneDecoder::materialize_linear(const TuneLinear& linear) {
  Tensor weight;
  if (linear.quantized()) {
    const LabelScope label(tape_, linear.module().label);
    weight = tape_.empty({linear.shape().out, linear.shape().in}, run_.type);
    quantize_nf4(linear.module(), weight);
    if (!linear.adapted()) weight.reset();
  }
  for (Module* module : linear.module().all_modules()) materialize_module(*module);
}

/// load_state_dict; what is not quantised is copied in place.
void TuneDecoder::load_weights() {
  for (const auto& layer : layers_) {
    for (const std::vector<const TuneLinear*>& linears : {layer->attention().linears(), layer->feed_forward().linears()}) {
      for (const TuneLinear* linear : linears) {
        if (linear->quantized()) load_nf4(linear->module(), tape_, linear->shape().out, linear->shape().in, run_.type);
      }
    }
  }
}

void TuneDecoder::materialize_rope() {
  for (const auto& rope : ropes_) rope->materialize();
}

void TuneDecoder::materialize() {
  // The builders of Gemma 2 (capped) make a layer's MLP before its attention, and lora_gemma2 the embeddings before all layers.
  const bool per_layer = ropes_.size() > 1, embeddings_first = capped_ && run_.lora;
  if (embeddings_first) materialize_module(root_.child("tok_embeddings"));
  if (!per_layer) materialize_rope();
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto feed_forward = [&] {
      for (const TuneLinear* linear : layers_[i]->feed_forward().linears()) materialize_linear(*linear);
    };
    if (capped_) feed_forward();
    for (const TuneLinear* linear : layers_[i]->attention().linears()) materialize_linear(*linear);
    if (per_layer) ropes_[i]->materialize();
    if (!capped_) feed_forward();
    for (Module* module : layer_modules_[i]->all_modules()) materialize_module(*module);
  }
  if (!embeddings_first) materialize_module(root_.child("tok_embeddings"));
  if (output_) materialize_linear(*output_);
  for (Module* module : root_.child("norm").all_modules()) materialize_module(*module);
  load_weights();
}

Tensor TuneDecoder::embed(const Tensor& tokens) {
  Tensor ids = tokens;
  Module& module = root_.child("tok_embeddings");
  ModuleCall call(module, tape_, {&ids});
  const Tensor rows = embedding(module.tensor("weight"), ids);
  return call.done(scaled_embeddings_ ? multiply_scalar(rows) : rows);
}

namespace {

/// NoOpManager: what is saved stays where it is.
class KeepInPlace final : public SavedTensorHooks {
 public:
  std::unique_ptr<Packed> pack(const Tensor& tensor) override {
    auto kept = std::make_unique<Kept>();
    kept->tensor = tensor;
    return kept;
  }
  Tensor unpack(Packed& packed) override { return static_cast<Kept&>(packed).tensor; }

 private:
  struct Kept final : Packed {
    Tensor tensor;
  };
};

}  // namespace

Tensor TuneDecoder::head(const Tensor& hidden) {
  const auto project = [&] { return output_ ? (*output_)(hidden) : linear(hidden, root_.child("tok_embeddings").tensor("weight")); };
  if (!spares_head_) return project();
  const SavedTensorHooksScope scope(tape_, std::make_shared<KeepInPlace>());
  return project();
}

/// Gemma2FinalNorm caps the hidden states behind its norm, not the logits.
Tensor TuneDecoder::last_norm(const Tensor& hidden) const {
  const Tensor normed = (*norm_)(hidden);
  if (!capped_) return normed;
  Tensor x = divide_scalar(normed);
  x = tanh(x);
  return multiply_scalar(x);
}

std::vector<Tensor> TuneDecoder::logits_of(const Tensor& hidden) {
  std::vector<Tensor> logits;
  if (run_.output_chunks == 0) {
    const Tensor low = head(hidden);
    logits.push_back(to(low, DType::fp32));
    return logits;
  }
  const std::vector<Tensor> parts = chunk(hidden, run_.output_chunks, 1);
  for (const Tensor& part : parts) logits.push_back(head(part));
  return logits;
}

std::vector<Tensor> TuneDecoder::operator()(const TuneBatch& batch) {
  Tensor ids = batch.tokens;
  ModuleCall call(root_, tape_, {&ids});
  Tensor hidden = embed(ids);
  for (const auto& layer : layers_) hidden = (*layer)(hidden, batch);
  Tensor normed = last_norm(hidden);
  if (!run_.own_unembed) hidden.reset();
  std::vector<Tensor> logits = logits_of(normed);
  std::vector<Tensor*> outputs;
  for (Tensor& part : logits) outputs.push_back(&part);
  call.done(outputs);
  return logits;
}

}  // namespace plimsoll::program
