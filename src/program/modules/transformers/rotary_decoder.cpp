// LlamaForCausalLM and its relatives: rotary positions; RMS norms or LayerNorms; gated or plain MLPs.
#include <algorithm>
#include <iterator>
#include <map>

#include "plimsoll/error.hpp"
#include "program/modules/transformers/causal_lm.hpp"
#include "program/modules/transformers/compiled_rotary.hpp"
#include "program/modules/transformers/families.hpp"
#include "program/modules/transformers/gpt_oss.hpp"
#include "program/modules/transformers/latent_attention.hpp"
#include "program/modules/liger.hpp"
#include "program/modules/transformers/mixture.hpp"
#include "program/modules/transformers/plain_mlp.hpp"
#include "program/modules/transformers/rotary_3d.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/liger.hpp"

namespace plimsoll::program {

namespace {

/// How a family's modeling file differs from llama's where the model's blocks do not say it.
struct Style {
  Norm::Rounding norm_rounding = Norm::Rounding::before_weight;
  bool fp32_tables = false;         ///< olmo2: cosines and sines stay fp32, the rotated tensors are cast back
  bool scaled_embedding = false;    ///< gemma: times a buffer
  bool scaled_everywhere = false;   ///< granite: embeddings, branches and logits times a constant
  bool wide_tables = false;         ///< ernie4_5: cosines and sines stay fp32, the rotation itself casts back
  bool scaled_logits = false;       ///< cohere
  bool norms_turned_heads = false;  ///< gemma3, phi: queries' and keys' norms run behind the transposition of the heads
  bool dropout_within = false;      ///< starcoder2, seed_oss: the branches' dropouts are within their modules
  bool norms_behind_all = false;    ///< glm4_moe: queries' and keys' norms run when all three projections are there
  bool norm_each_head = false;      ///< stablelm: queries' and keys' norms are modules of every head
  bool joins_both_at_last = false;  ///< nemotron: the rotated parts live until both are joined
  bool rotates_in_frame = false;    ///< phi, stablelm: the attention itself rotates, and keeps the parts until it returns
  bool masks_outside = false;       ///< gemma3 beside images: the outer model makes the masks, before there are positions
  bool positions_3d = false;        ///< qwen2_vl: positions in time, height and width
  bool sinks = false;               ///< gpt_oss: its own attention and rotation; its MLP's second result takes the probabilities' place
  bool one_mask = false;            ///< mistral and its kin: the mask of the config's one kind; all others make the full one in any case
  bool residual_first = false;      ///< stablelm: residual + attention + dropout(mlp); phi: dropout(attention) + dropout(mlp) + residual
  Rotation rotation = Rotation::whole;
  std::string model_type = {};
  std::optional<LigerPatches> liger = {};  ///< none: transformers' own modules

  const LigerPatches* liger_norms() const { return liger ? &*liger : nullptr; }
  std::optional<LigerPatches> liger_final_norm() const {
    std::optional<LigerPatches> patches = liger;
    if (patches) patches->gradient_in_place = patches->final_gradient_in_place;
    return patches;
  }
  const LigerPatches* liger_head_norms() const { return liger && liger->head_norms ? &*liger : nullptr; }
  LatentAttention::Rotation latent_rotation = LatentAttention::Rotation::neighbours;
  const char* mixture = "mlp";  ///< name of a layer's mixture of experts
  const char *output = "o_proj", *q_norm = "q_norm", *k_norm = "k_norm", *up = "up_proj", *down = "down_proj", *final_norm = "norm";
  const char *attention_out_norm = "post_attention_layernorm", *mlp_norm = "pre_feedforward_layernorm",
             *mlp_out_norm = "post_feedforward_layernorm";  ///< of a sandwich
};

/// Families with LayerNorm.
void style_with_layer_norms(Style& style, const std::string& model_type) {
  if (model_type == "olmo") style.fp32_tables = true;
  if (model_type == "cohere" || model_type == "cohere2") {
    style.rotation = Rotation::neighbours_in_fp32;
    style.residual_first = style.scaled_logits = true;
  }
  if (model_type == "starcoder2") {
    style.dropout_within = true;
    style.up = "c_fc";
    style.down = "c_proj";
  }
  if (model_type == "stablelm") {
    style.rotation = Rotation::join_last;
    style.residual_first = style.norm_each_head = style.rotates_in_frame = true;
    style.q_norm = "q_layernorm";
    style.k_norm = "k_layernorm";
  }
  if (model_type == "phi") {
    style.rotation = Rotation::join_last;
    style.norms_turned_heads = style.rotates_in_frame = true;
    style.output = "dense";
    style.q_norm = "q_layernorm";
    style.k_norm = "k_layernorm";
    style.up = "fc1";
    style.down = "fc2";
    style.final_norm = "final_layernorm";
  }
}

/// The language model of a model of images and text; else the model itself.
std::string text_type(const std::string& model_type) {
  if (model_type == "gemma3") return "gemma3_text";
  if (model_type == "qwen2_vl" || model_type == "qwen2_5_vl") return "qwen2";
  return model_type == "llava" ? "llama" : model_type;
}

Style style_of(const Model& model, const RunOptions& options) {
  Style style;
  const std::string type = text_type(model.model_type);
  if (type == "gpt_oss") style = {.norm_rounding = Norm::Rounding::after_weight, .sinks = true};
  if (type == "olmo2") style = {.norm_rounding = Norm::Rounding::after_weight, .fp32_tables = true};
  if (type == "gemma" || type == "gemma2" || type == "gemma3_text") style.scaled_embedding = true;
  if (type == "gemma3_text" || type == "exaone4") style.norms_turned_heads = true;
  if (type == "glm4_moe") {
    style.rotation = Rotation::join_last;
    style.norms_behind_all = true;
  }
  if (type == "glm" || type == "glm4") style.rotation = Rotation::neighbours_join_last;
  if (type == "glm4") {
    style.attention_out_norm = "post_self_attn_layernorm";
    style.mlp_norm = "post_attention_layernorm";
    style.mlp_out_norm = "post_mlp_layernorm";
  }
  if (type == "nemotron") {
    style.rotation = Rotation::join_last;
    style.joins_both_at_last = true;
  }
  if (type == "seed_oss") style.dropout_within = true;
  if (type == "ernie4_5") {
    style.wide_tables = true;
    style.rotation = Rotation::neighbours_then_fp32;
  }
  style_with_layer_norms(style, type);
  if (type == "granite" || type == "granitemoe") style.scaled_everywhere = true;
  if (type == "granitemoe") style.mixture = "block_sparse_moe";
  if (type == "phi3") style.rotation = Rotation::join_each;
  constexpr const char* kOneMask[] = {"mistral", "mixtral", "phi3", "starcoder2", "qwen3_moe"};
  style.one_mask = std::find(std::begin(kOneMask), std::end(kOneMask), type) != std::end(kOneMask);
  if (type == "deepseek_v2") style.latent_rotation = LatentAttention::Rotation::complex;
  style.masks_outside = model.model_type == "gemma3";
  style.positions_3d = model.model_type == "qwen2_vl" || model.model_type == "qwen2_5_vl";
  style.model_type = type;
  style.liger = liger_patches(model.model_type, options);
  return style;
}

/// Keyword arguments of every layer; a checkpointed layer's closure keeps them all.
struct LayerInputs {
  Tensor full_mask, sliding_mask;
  RotaryTables tables, sliding_tables;  ///< gemma3's sliding layers have another base
  Tensor positions;
};

class Attention {
 public:
  Attention(Module& module, Tape& tape, const RunOptions& options, const Block& block, const Style& style)
      : module_(module), tape_(tape), options_(options), spec_(*block.attention), style_(style), output_(projection(style.output)) {
    dropout_ = style.dropout_within ? block.hidden_dropout : 0;
    if (spec_.fused_qkv) {
      q_ = projection("qkv_proj");
    } else {
      q_ = projection("q_proj");
      k_ = projection("k_proj");
      v_ = projection("v_proj");
    }
    if (spec_.qk_norm == AttentionSpec::QkNorm::none) return;
    if (style.norm_each_head) {
      add_norms(module.child(style.q_norm).child("norms"), tape, block, q_norms_);
      add_norms(module.child(style.k_norm).child("norms"), tape, block, k_norms_);
      return;
    }
    q_norm_.emplace(module.child(style.q_norm), tape, block.norm, style.norm_rounding, style.liger_head_norms());
    k_norm_.emplace(module.child(style.k_norm), tape, block.norm, style.norm_rounding, style.liger_head_norms());
  }

  /// `probabilities`: the second of the results, which the layer keeps until it returns.
  Tensor operator()(const Tensor& input, const LayerInputs& inputs, Tensor& probabilities) const {
    Tensor hidden = input;
    ModuleCall call(module_, tape_, {&hidden});
    const std::int64_t batch = hidden.size(0), length = hidden.size(1);
    Tensor query, key, value;
    project(hidden, query, key, value);
    std::vector<Tensor> parts;
    rotate_both(query, key, inputs.tables, parts);
    Tensor output = attend_masked(query, key, value, spec_.sliding_window ? inputs.sliding_mask : inputs.full_mask, probabilities);
    output = contiguous(reshape(output, {batch, length, -1}));
    output = output_(output);
    output = dropout(output, dropout_);
    return call.done(output);
  }

 private:
  Tensor attend_masked(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, Tensor& probabilities) const {
    const AttentionCall call{.kind = options_.attention,
                             .causal = spec_.causal,
                             .dropout = spec_.dropout,
                             .softcap = spec_.softcap > 0,
                             .weights = &probabilities};
    if (style_.sinks) return attend_with_sinks(query, key, value, mask, module_.tensor("sinks"), call);
    return attend(query, key, value, mask, call);
  }

  static void add_norms(Module& list, Tape& tape, const Block& block, std::vector<Norm>& norms) {
    NormSpec spec = block.norm;
    spec.bias = false;
    for (const auto& module : list.children) norms.emplace_back(*module, tape, spec);
  }

  /// StableLmLayerNormPerHead: every head through a norm of its own.
  static Tensor normed_heads(const Tensor& x, const std::vector<Norm>& norms) {
    const std::vector<Tensor> parts = split(x, std::vector<std::int64_t>(norms.size(), 1), 1);
    std::vector<Tensor> normed;
    for (std::size_t i = 0; i < norms.size(); ++i) normed.push_back(norms[i](parts[i]));
    return cat(normed, 1);
  }

  /// clip_qkv, in place.
  void clamp_all(Tensor& query, Tensor& key, Tensor& value) const {
    if (spec_.clip == 0) return;
    for (Tensor* x : {&query, &key, &value}) *x = clamp_into(*x);
  }

  Linear projection(const char* name) { return Linear(module_.child(name), tape_); }

  /// [batch, heads, length, head_dim] of the three projections.
  void project(const Tensor& hidden, Tensor& query, Tensor& key, Tensor& value) const {
    const std::int64_t batch = hidden.size(0), length = hidden.size(1);
    const auto split = [&](const Tensor& x) { return view(x, {batch, length, -1, spec_.head_dim}); };
    const auto heads = [&](const Tensor& x) { return transpose(split(x), 1, 2); };
    if (spec_.fused_qkv) {
      const Tensor qkv = q_(hidden);
      const std::int64_t q_end = spec_.heads * spec_.head_dim, k_end = q_end + spec_.kv_heads * spec_.head_dim;
      const Tensor q = slice(qkv, -1, 0, q_end), k = slice(qkv, -1, q_end, k_end), v = slice(qkv, -1, k_end, qkv.size(-1));
      query = heads(q);
      key = heads(k);
      value = heads(v);
      return;
    }
    switch (spec_.qk_norm) {
      case AttentionSpec::QkNorm::none:
        if (style_.norm_each_head || spec_.clip > 0) {  // stablelm, olmo: all projections, then all views
          query = q_(hidden);
          key = k_(hidden);
          value = v_(hidden);
          clamp_all(query, key, value);
          query = heads(query);
          key = heads(key);
          value = heads(value);
          return;
        }
        query = heads(q_(hidden));
        key = heads(k_(hidden));
        value = heads(v_(hidden));
        return;
      case AttentionSpec::QkNorm::each_head:
        if (style_.norm_each_head) {
          query = q_(hidden);
          key = k_(hidden);
          value = v_(hidden);
          query = heads(query);
          key = heads(key);
          value = heads(value);
          query = normed_heads(query, q_norms_);
          key = normed_heads(key, k_norms_);
          return;
        }
        [[fallthrough]];  // cohere: one norm whose weight is [heads, head_dim]
      case AttentionSpec::QkNorm::per_head:
        if (style_.norms_turned_heads) {
          query = heads(q_(hidden));
          key = heads(k_(hidden));
          value = heads(v_(hidden));
          query = (*q_norm_)(query);
          key = (*k_norm_)(key);
          return;
        }
        if (style_.norms_behind_all) {
          query = split(q_(hidden));
          key = split(k_(hidden));
          value = split(v_(hidden));
          query = (*q_norm_)(query);
          key = (*k_norm_)(key);
          query = transpose(query, 1, 2);
          key = transpose(key, 1, 2);
          value = transpose(value, 1, 2);
          return;
        }
        query = transpose((*q_norm_)(split(q_(hidden))), 1, 2);
        key = transpose((*k_norm_)(split(k_(hidden))), 1, 2);
        value = heads(v_(hidden));
        return;
      case AttentionSpec::QkNorm::full_width:
        query = (*q_norm_)(q_(hidden));
        key = (*k_norm_)(k_(hidden));
        value = v_(hidden);
        clamp_all(query, key, value);
        query = heads(query);
        key = heads(key);
        value = heads(value);
        return;
    }
  }

  void rotate_both(Tensor& query, Tensor& key, const RotaryTables& tables, std::vector<Tensor>& parts) const {
    if (spec_.positions != Positions::rope) return;
    if (style_.sinks) {
      const Tensor turned_query = rotate_by_half_tables(query, tables);
      key = rotate_by_half_tables(key, tables);
      query = turned_query;
      return;
    }
    if (style_.liger && style_.liger->rope) {
      const auto turned = liger_rope(query, key, tables.cosine, tables.sine);
      query = turned.first;
      key = turned.second;
      return;
    }
    if (!style_.fp32_tables) {
      std::vector<Tensor> own;
      std::vector<Tensor>* kept = style_.rotates_in_frame ? &parts : style_.joins_both_at_last ? &own : nullptr;
      return rotate_pair(query, key, tables, style_.rotation, kept);
    }
    Tensor turned_query = query, turned_key = key;
    rotate_pair(turned_query, turned_key, tables, style_.rotation);
    const Tensor low_query = to(turned_query, query.dtype()), low_key = to(turned_key, key.dtype());
    query = low_query;
    key = low_key;
  }

  Module& module_;
  Tape& tape_;
  const RunOptions& options_;
  const AttentionSpec& spec_;
  Style style_;
  double dropout_ = 0;
  Linear q_, k_, v_, output_;
  std::optional<PatchedNorm> q_norm_, k_norm_;
  std::vector<Norm> q_norms_, k_norms_;  ///< stablelm: of every head
};

class Layer {
 public:
  Layer(Module& module, Tape& tape, const RunOptions& options, const Block& block, const Style& style)
      : module_(module), tape_(tape), options_(options), block_(block), style_(style) {
    if (block.attention->mla) {
      latent_attention_.emplace(module.child("self_attn"), tape, options, block, style.latent_rotation);
    } else {
      attention_.emplace(module.child("self_attn"), tape, options, block, style);
    }
    if (block.moe) mixture_.emplace(module.child(style.mixture), tape, *block.moe, style.model_type);
    if (block.mlp && block.mlp->gated)
      mlp_.emplace(module.child("mlp"), tape, block.mlp->activation, block.mlp->fused_gate_up, style.liger.has_value());
    else if (block.mlp)
      plain_mlp_.emplace(module.child("mlp"), tape, block.mlp->activation, style.up, style.down);
    if (!block.norm.weight) {  // olmo: modules without parameters
      for (const char* name : {"input_layernorm", "post_attention_layernorm"}) (void)module.child(name, true);
    }
    for (const char* name : {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
                             "post_self_attn_layernorm", "post_mlp_layernorm"}) {
      if (Module* norm = module.find_child(name))
        norms_.emplace(name, PatchedNorm(*norm, tape, block.norm, style.norm_rounding, style.liger_norms()));
    }
  }

  Tensor operator()(const Tensor& input, const LayerInputs& all) const {
    const auto inputs = std::make_shared<LayerInputs>(all);  // a layer is given the mask of its kind only
    (block_.attention->sliding_window ? inputs->full_mask : inputs->sliding_mask).reset();
    if (block_.attention->sliding_window && inputs->sliding_tables.cosine) inputs->tables = inputs->sliding_tables;
    inputs->sliding_tables = {};
    const auto body = [this, inputs](const Tensor& x) {
      if (!options_.compiled_blocks) return forward(x, *inputs);
      const bool checkpointed = options_.checkpointing != RunOptions::Checkpointing::none;
      const CompiledNames names{style_.output, style_.q_norm, style_.k_norm, style_.up, style_.down};
      return compiled_rotary_layer(module_, block_, names, x, inputs->tables, checkpointed);
    };
    return run_layer(module_, tape_, options_, input, body,
                     {&inputs->full_mask, &inputs->sliding_mask, &inputs->tables.cosine, &inputs->tables.sine});
  }

 private:
  Tensor forward(const Tensor& input, const LayerInputs& inputs) const {
    switch (block_.placement) {
      case NormPlacement::pre:
        return style_.residual_first ? pre_norm_named(input, inputs) : pre_norm(input, inputs);
      case NormPlacement::parallel:
        return parallel(input, inputs);
      case NormPlacement::sandwich:
        return sandwich(input, inputs);
      case NormPlacement::post_branch:
        return post_branch(input, inputs);
      default:
        refuse("this placement of norms is not modelled for rotary decoders", module_.path);
    }
  }

  Tensor pre_norm(const Tensor& input, const LayerInputs& inputs) const {
    Tensor probabilities;
    Tensor residual = input;
    Tensor hidden = norm("input_layernorm", input);
    hidden = attend_all(hidden, inputs, probabilities);
    hidden = join(residual, hidden, style_.dropout_within ? 0 : block_.hidden_dropout);
    residual = hidden;
    hidden = norm("post_attention_layernorm", hidden);
    hidden = feed_forward(hidden);
    if (style_.sinks) probabilities.reset();
    return join(residual, hidden, style_.dropout_within ? 0 : block_.hidden_dropout);
  }

  /// stablelm: the same with a variable for every result, which keeps it until the layer returns.
  Tensor pre_norm_named(const Tensor& input, const LayerInputs& inputs) const {
    Tensor probabilities;
    const Tensor hidden = norm("input_layernorm", input);
    const Tensor attended = attend_all(hidden, inputs, probabilities);
    const Tensor residual = add(input, attended);
    Tensor branch = norm("post_attention_layernorm", residual);
    branch = feed_forward(branch);
    return join(residual, branch, block_.hidden_dropout);
  }

  Tensor parallel(const Tensor& input, const LayerInputs& inputs) const {
    Tensor probabilities;
    const Tensor hidden = norm("input_layernorm", input);
    Tensor attended = attend_all(hidden, inputs, probabilities);
    if (!style_.residual_first) attended = dropout(attended, block_.hidden_dropout);
    Tensor branch = feed_forward(hidden);
    branch = dropout(branch, block_.hidden_dropout);
    const Tensor sum = style_.residual_first ? add(input, attended) : add(attended, branch);
    return add(sum, style_.residual_first ? branch : input);
  }

  Tensor sandwich(const Tensor& input, const LayerInputs& inputs) const {
    Tensor probabilities;
    Tensor residual = input;
    Tensor hidden = norm("input_layernorm", input);
    hidden = attend_all(hidden, inputs, probabilities);
    hidden = norm(style_.attention_out_norm, hidden);
    hidden = add(residual, hidden);
    residual = hidden;
    hidden = norm(style_.mlp_norm, hidden);
    hidden = feed_forward(hidden);
    hidden = norm(style_.mlp_out_norm, hidden);
    return add(residual, hidden);
  }

  Tensor post_branch(const Tensor& input, const LayerInputs& inputs) const {
    Tensor probabilities;
    Tensor residual = input;
    Tensor hidden = attend_all(input, inputs, probabilities);
    hidden = norm("post_attention_layernorm", hidden);
    hidden = add(residual, hidden);
    residual = hidden;
    hidden = feed_forward(hidden);
    hidden = norm("post_feedforward_layernorm", hidden);
    return add(residual, hidden);
  }

  /// residual + dropout(branch).
  Tensor join(const Tensor& residual, const Tensor& branch, double probability) const {
    const Tensor kept = dropout(branch, probability);
    return style_.scaled_everywhere ? add(residual, multiply_scalar(kept)) : add(residual, kept);
  }

  Tensor attend_all(const Tensor& x, const LayerInputs& inputs, Tensor& probabilities) const {
    if (!latent_attention_) return (*attention_)(x, inputs, probabilities);
    return (*latent_attention_)(x, inputs.full_mask, inputs.tables, probabilities);
  }

  Tensor feed_forward(const Tensor& x) const {
    if (mixture_) return (*mixture_)(x);
    Tensor hidden = mlp_ ? (*mlp_)(x) : (*plain_mlp_)(x);
    return style_.dropout_within ? dropout(hidden, block_.hidden_dropout) : hidden;
  }

  Tensor norm(const char* name, const Tensor& x) const { return norms_.at(name)(x); }

  Module& module_;
  Tape& tape_;
  const RunOptions& options_;
  const Block& block_;
  std::map<std::string_view, PatchedNorm> norms_;
  Style style_;
  std::optional<Attention> attention_;
  std::optional<LatentAttention> latent_attention_;
  std::optional<GatedMlp> mlp_;
  std::optional<PlainMlp> plain_mlp_;
  std::optional<MixtureOfExperts> mixture_;
};

class RotaryDecoder final : public Network {
 public:
  RotaryDecoder(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : tape_(tape),
        options_(options),
        style_(style_of(model, options)),
        softcap_(model.logit_softcap > 0),
        embedding_dropout_(model.embedding_dropout),
        sliding_frequencies_(style_.model_type == "gemma3_text"),
        root_(root),
        outer_(text_type(model.model_type) == model.model_type ? nullptr : &root.child("model")),
        base_(outer_ ? outer_->child("language_model") : root.child("model")),
        embed_(base_.child("embed_tokens"), tape),
        head_(root.child("lm_head"), tape) {
    if (style_.sinks && options.attention != RunOptions::Attention::eager)
      refuse("transformers' GPT-OSS does not support scaled_dot_product_attention", "attention", "eager");
    if (model.model_type == "qwen2_moe") window_ = 0;  // its config says 0 where no window is used, and the mask of it is made all the same
    const std::optional<LigerPatches> final_patches = style_.liger_final_norm();
    for (const Block& block : model.blocks) {
      if (block.role == Block::Role::final_norm)
        norm_.emplace(base_.child(style_.final_norm, !block.norm.weight), tape, block.norm, style_.norm_rounding,
                      final_patches ? &*final_patches : nullptr);
      if (block.role != Block::Role::decoder) continue;
      if (options.compiled_blocks) check_compiled_rotary(block);
      if (block.attention->sliding_window) window_ = block.attention->sliding_window;
      if (!block.attention->sliding_window) full_attention_ = true;
      latent_ = latent_ || block.attention->mla.has_value();
      for (std::int64_t i = 0; i < block.repeat; ++i) {
        layers_.emplace_back(base_.child("layers").child(std::to_string(block.first + i)), tape_, options_.of_layer(block.first + i), block, style_);
      }
    }
  }

  Tensor loss(const Batch& batch) override {
    Tensor ids = batch.input_ids, labels = batch.labels;
    ModuleCall call(root_, tape_, {&ids, &labels});
    const Tensor hidden = decode(ids);
    if (options_.loss == RunOptions::Loss::liger_fused_linear) {
      tape_.phase(Phase::loss);
      Tensor loss = liger_fused_causal_lm_loss(slice(hidden, 1, 0, hidden.size(1)), root_.child("lm_head"), labels);
      call.done({&loss});
      return loss;
    }
    Tensor logits = head_(slice(hidden, 1, 0, hidden.size(1)));
    if (style_.scaled_everywhere) logits = divide_scalar(logits);
    if (style_.scaled_logits) logits = multiply_scalar(logits);
    if (softcap_) {
      logits = divide_scalar(logits);
      logits = tanh(logits);
      logits = multiply_scalar(logits);
    }
    tape_.phase(Phase::loss);
    Tensor loss = options_.loss == RunOptions::Loss::liger ? liger_causal_lm_loss(logits, labels) : causal_lm_loss(logits, labels);
    call.done({&loss, &logits});
    return loss;
  }

 private:
  /// Beside images the outer model embeds, and holds the embeddings.
  Tensor decode(const Tensor& input) {
    if (!outer_) return decode_text(input);
    Tensor ids = input;
    ModuleCall call(*outer_, tape_, {&ids});
    const Tensor embeddings = embed(ids);
    return call.done(decode_text(embeddings));
  }

  Tensor decode_text(const Tensor& input) {
    LayerInputs inputs;
    if (style_.masks_outside) make_masks(inputs, input);
    Tensor ids = input;
    ModuleCall call(base_, tape_, {&ids});
    Tensor embeddings = embed(ids);
    if (style_.scaled_everywhere && style_.model_type == "granite") embeddings = multiply_scalar(embeddings);
    const Tensor positions = position_ids(tape_, ids.size(1));
    if (options_.compiled_blocks && window_ && ids.size(1) >= *window_)
      refuse("compiled blocks with a sliding window shorter than the sequence are not modelled", "compile");
    if (!style_.masks_outside) make_masks(inputs, embeddings);
    if (style_.scaled_everywhere && style_.model_type == "granitemoe") embeddings = multiply_scalar(embeddings);
    Tensor hidden = dropout(embeddings, embedding_dropout_);
    if (style_.model_type == "phi") embeddings = hidden;
    inputs.tables = tables(positions, hidden);
    if (sliding_frequencies_ && window_)
      inputs.sliding_tables = rotary_tables(base_.child("rotary_emb"), tape_, positions, hidden.dtype(), "sliding_attention_inv_freq");
    if (!style_.positions_3d) inputs.positions = positions;  // else layers are given those of packed sequences only
    for (const Layer& layer : layers_) hidden = layer(hidden, inputs);
    hidden = (*norm_)(hidden);
    return call.done(hidden);
  }

  void make_masks(LayerInputs& inputs, const Tensor& embeddings) {
    if (full_attention_ || !style_.one_mask) inputs.full_mask = causal_mask(tape_, options_, embeddings, std::nullopt);
    if (window_) inputs.sliding_mask = causal_mask(tape_, options_, embeddings, window_);
  }

  RotaryTables tables(const Tensor& positions, const Tensor& hidden) {
    const DType type = hidden.dtype();
    Module& rotary = base_.child("rotary_emb");
    if (style_.positions_3d) return rotary_tables_3d(rotary, tape_, positions, hidden.size(0), type);
    if (style_.sinks) return half_rotary_tables(rotary, tape_, positions, type);
    if (latent_ && style_.latent_rotation == LatentAttention::Rotation::complex) return polar_tables(rotary, tape_, positions);
    const char* frequencies = sliding_frequencies_ ? "full_attention_inv_freq" : "inv_freq";
    if (sliding_frequencies_ && !full_attention_) return {};
    return rotary_tables(rotary, tape_, positions, style_.fp32_tables || style_.wide_tables ? DType::fp32 : type, frequencies);
  }

  /// `ids` may be embeddings already (inputs_embeds).
  Tensor embed(const Tensor& ids) {
    if (ids.dtype() != DType::int64) return ids;
    Tensor embeddings = embed_(ids);
    if (style_.scaled_embedding) {
      Module& module = base_.child("embed_tokens");
      embeddings = multiply(embeddings, to(module.buffer("embed_scale"), embeddings.dtype()));
    }
    if (options_.hidden_requires_grad && !embeddings.requires_grad()) embeddings.set_requires_grad(true);
    return embeddings;
  }

  Tape& tape_;
  RunOptions options_;
  Style style_;
  bool softcap_;
  double embedding_dropout_;
  bool sliding_frequencies_;  ///< gemma3: sliding layers rotate by frequencies of their own
  Module& root_;
  Module* outer_;  ///< of images and text
  Module& base_;
  Embedding embed_;
  std::vector<Layer> layers_;
  std::optional<PatchedNorm> norm_;
  std::optional<std::int64_t> window_;
  bool full_attention_ = false, latent_ = false;
  Linear head_;
};

}  // namespace

std::unique_ptr<Network> make_rotary_decoder(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<RotaryDecoder>(model, options, root, tape);
}

}  // namespace plimsoll::program
