// LlamaForCausalLM and its relatives: rotary positions; RMS norms or LayerNorms; gated or plain MLPs.
#include <map>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/equal_layers.hpp"
#include "program/modules/transformers/causal_lm.hpp"
#include "program/modules/transformers/compiled_layer.hpp"
#include "program/modules/transformers/dense_mixture.hpp"
#include "program/modules/transformers/families.hpp"
#include "program/modules/transformers/gpt_oss.hpp"
#include "program/modules/transformers/latent_attention.hpp"
#include "program/modules/transformers/mixture.hpp"
#include "program/modules/transformers/plain_mlp.hpp"
#include "program/modules/transformers/rotary_3d.hpp"
#include "program/modules/transformers/rotary_attention.hpp"
#include "program/modules/transformers/rotary_complex.hpp"
#include "program/modules/transformers/rotary_style.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

using rotary::Attention;
using rotary::LayerInputs;
using rotary::Style;
using rotary::style_of;
using rotary::text_type;

class Layer {
 public:
  Layer(Module& module, Tape& tape, const RunOptions& options, const Block& block, const Style& style, RouterRecord& record)
      : module_(module), tape_(tape), options_(options), block_(block), style_(style) {
    if (block.attention->mla) {
      latent_attention_.emplace(module.child("self_attn"), tape, options, block, style.latent_rotation);
    } else {
      attention_.emplace(module.child("self_attn"), tape, options, block, style);
    }
    if (block.moe && style.model_type == "llama4_text")
      dense_mixture_.emplace(module.child(style.mixture), tape, *block.moe);
    else if (block.moe)
      mixture_.emplace(module.child(style.mixture), tape, *block.moe, style.model_type, record, options.release, style.liger_gates());
    if (block.mlp && style.liger_gates() && (style.model_type == "qwen3_moe" || style.model_type == "mixtral"))
      fail("Liger patches the experts of every layer, and " + module.path + " has none", "liger_kernel");
    if (block.mlp && block.mlp->gated)
      mlp_.emplace(module.child(style.mlp), tape, block.mlp->activation, block.mlp->fused_gate_up, style.liger_gates());
    else if (block.mlp)
      plain_mlp_.emplace(module.child("mlp"), tape, block.mlp->activation, style.up, style.down);
    if (!block.norm.weight) {  // olmo: modules without parameters
      for (const char* name : {"input_layernorm", "post_attention_layernorm"}) (void)module.child(name, true);
    }
    for (const char* name :
         {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
          "post_self_attn_layernorm", "post_mlp_layernorm", "attention_layernorm", "feedforward_layernorm", "post_norm1", "post_norm2"}) {
      if (Module* norm = module.find_child(name))
        norms_.emplace(name, PatchedNorm(*norm, tape, block.norm, style.norm_rounding, style.liger_norms()));
    }
  }

  Tensor operator()(const Tensor& input, const LayerInputs& all) const {
    const auto inputs = std::make_shared<LayerInputs>(all);  // a layer is given the mask of its kind only
    (block_.attention->sliding_window ? inputs->full_mask : inputs->sliding_mask).reset();
    if (block_.attention->sliding_window && inputs->sliding_tables.cosine) inputs->tables = inputs->sliding_tables;
    inputs->sliding_tables = {};
    const auto body = [this, inputs](const Tensor& x) { return options_.compiled_blocks ? compiled(x, *inputs) : forward(x, *inputs); };
    return run_layer(module_, tape_, options_, input, body,
                     {&inputs->full_mask, &inputs->sliding_mask, &inputs->tables.cosine, &inputs->tables.sine});
  }

 private:
  Tensor compiled(const Tensor& x, const LayerInputs& inputs) const {
    RouterRecord none;
    const auto make = [&](Module& twin, Tape& tape, const RunOptions& eager) -> LayerForward {
      const auto layer = std::make_shared<Layer>(twin, tape, eager, block_, style_, none);
      return [layer](const std::vector<Tensor>& given) {
        return layer->forward(given[0],
                              {.full_mask = given[1], .sliding_mask = given[2], .tables = {given[3], given[4]}, .positions = given[5]});
      };
    };
    return run_compiled_layer(module_, options_, &block_,
                              {x, inputs.full_mask, inputs.sliding_mask, inputs.tables.cosine, inputs.tables.sine, inputs.positions}, make);
  }

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
    Tensor hidden = norm(style_.attention_norm, input);
    Tensor attended = attend_all(hidden, inputs, probabilities);
    if (!style_.attended_kept) hidden = std::exchange(attended, {});
    hidden = join(residual, style_.attended_kept ? attended : hidden, style_.dropout_within ? 0 : block_.hidden_dropout);
    residual = hidden;
    hidden = norm(style_.plain_mlp_norm, hidden);
    if (dense_mixture_)
      hidden = (*dense_mixture_)(hidden, probabilities);
    else
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
    branch = dropout(branch, block_.hidden_dropout);
    return add(residual, branch);
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
    hidden = join(residual, hidden, 0);
    residual = hidden;
    hidden = norm(style_.mlp_norm, hidden);
    hidden = feed_forward(hidden);
    hidden = norm(style_.mlp_out_norm, hidden);
    return join(residual, hidden, 0);
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
    return (*latent_attention_)(x, inputs.full_mask, inputs.tables, inputs.positions, probabilities);
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
  std::optional<DenseMixture> dense_mixture_;
};

class RotaryDecoder final : public Network {
 public:
  RotaryDecoder(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : tape_(tape),
        options_(options),
        style_(style_of(model, options)),
        softcap_(model.logit_softcap > 0),
        embedding_dropout_(model.embedding_dropout),
        root_(root),
        outer_(text_type(model.model_type) == model.model_type ? nullptr : &root.child("model")),
        base_(outer_ ? outer_->child("language_model") : root.child("model")),
        embed_(base_.child("embed_tokens"), tape),
        head_(model, root, tape) {
    if (style_.sinks && options.attention != RunOptions::Attention::eager)
      refuse("transformers' GPT-OSS does not support scaled_dot_product_attention", "attention", "eager");
    if (model.model_type == "qwen2_moe") window_ = 0;  // its config says 0 where no window is used, and the mask of it is made all the same
    const std::optional<LigerPatches> final_patches = style_.liger_final_norm();
    for (const Block& block : model.blocks) {
      if (block.role == Block::Role::final_norm) final_norm_ = block.norm;
      if (block.role == Block::Role::final_norm)
        norm_.emplace(base_.child(style_.final_norm, !block.norm.weight), tape, block.norm, style_.norm_rounding,
                      final_patches ? &*final_patches : nullptr);
      if (block.role != Block::Role::decoder) continue;
      if (block.attention->sliding_window) window_ = block.attention->sliding_window;
      if (!block.attention->sliding_window) full_attention_ = true;
      chunked_ = chunked_ || block.attention->chunked;
      latent_ = latent_ || block.attention->mla.has_value();
      for (const Operator& op : block.operators)
        if (op.kind == OperatorKind::router && op.function == "auxiliary_loss") balanced_ = &*block.moe;
      for (std::int64_t i = 0; i < block.repeat; ++i) {
        layers_.emplace_back(base_.child("layers").child(std::to_string(block.first + i)), tape_, options_.of_layer(block.first + i), block,
                             style_, *record_);
      }
    }
  }

  Tensor loss(const Batch& batch) override {
    Tensor ids = batch.input_ids, labels = batch.labels;
    ModuleCall call(root_, tape_, {&ids, &labels});
    const bool asks_routers = balanced_ && (options_.loss != RunOptions::Loss::token_scores || batch.router_mask);
    record_->open = asks_routers;
    const Tensor hidden = decode(ids);
    record_->open = false;
    std::vector<Tensor> router_logits = std::exchange(record_->logits, {});
    if (head_.classifies()) return head_.classify(options_, call, hidden, {ids, labels, batch.conditions});
    if (options_.loss == RunOptions::Loss::liger_fused_linear) {
      if (balanced_) refuse("Liger's loss beside the routers' auxiliary loss is not modelled", "output_router_logits");
      tape_.phase(Phase::loss);
      Tensor loss = liger_fused_causal_lm_loss(slice(hidden, 1, 0, hidden.size(1)), root_.child("lm_head"), labels);
      call.done({&loss});
      return loss;
    }
    if (options_.loss == RunOptions::Loss::cut_cross_entropy) {
      if (balanced_) refuse("cut cross entropy beside the routers' auxiliary loss is not modelled", "output_router_logits");
      if (style_.scaled_everywhere || style_.scaled_logits) refuse("cut cross entropy of scaled logits is not modelled", "loss", "ce");
      tape_.phase(Phase::loss);
      Tensor loss = cut_causal_lm_loss(hidden, root_.child("lm_head"), labels, softcap_);
      call.done({&loss});
      return loss;
    }
    if (options_.loss == RunOptions::Loss::token_scores) {
      tape_.phase(Phase::loss);
      Tensor scores = token_scores(options_, hidden, head_.module(), labels);
      if (!asks_routers) return call.done(scores);
      auxiliary_ = load_balancing_loss(tape_, router_logits, *balanced_, batch.router_mask);
      call.done({&scores, &auxiliary_});
      return scores;
    }
    if (balanced_ && answers_no_loss(options_))
      refuse("the routers' auxiliary loss beside a trainer's own is not modelled", "output_router_logits");
    Tensor logits = head_(predicting(options_, hidden));
    const HfRelease::CausalLoss code = options_.release.causal_loss(style_.model_type);
    if (answers_no_loss(options_)) return call.done(capped(std::exchange(logits, {}), code));
    Tensor loss = options_.compiled_frames ? compiled_end(logits, labels, code) : end(logits, labels, code);
    Tensor auxiliary;
    std::vector<Tensor*> outputs{&loss, &logits};
    if (balanced_) {
      auxiliary = load_balancing_loss(tape_, router_logits, *balanced_);
      const Tensor scaled = multiply_scalar(auxiliary);
      loss = add_into(loss, scaled);
      outputs.insert(outputs.begin() + 1, &auxiliary);
      for (Tensor& each : router_logits) outputs.push_back(&each);
    }
    call.done(outputs);
    hold(options_, {logits});
    return loss;
  }

  /// The head's output as forward answers it.
  Tensor capped(Tensor logits, const HfRelease::CausalLoss& code) const {
    if (style_.scaled_everywhere && !style_.scaled_logits) logits = divide_scalar(logits);
    if (style_.scaled_logits) logits = multiply_scalar(logits);
    if (softcap_) {
      logits = divide_scalar(logits);
      logits = tanh(logits);
      logits = multiply_scalar(logits);
    }
    logits.tape().phase(Phase::loss);
    return code.upcasts_before ? to(logits, DType::fp32) : logits;
  }

  /// What follows the head, whose output becomes the logits; the loss.
  Tensor end(Tensor& logits, const Tensor& labels, const HfRelease::CausalLoss& code) const {
    logits = capped(std::exchange(logits, {}), code);
    return options_.loss == RunOptions::Loss::liger ? liger_causal_lm_loss(logits, labels) : causal_lm_loss(logits, labels, code);
  }

  /// The same as a frame of its own, of which the logits are a result where it changes them.
  Tensor compiled_end(Tensor& logits, const Tensor& labels, const HfRelease::CausalLoss& code) const {
    const auto make = [&](Module&, Tape&) -> FrameForward {
      return [&](const std::vector<Tensor>& given) {
        Tensor changed = given[0];
        const Tensor loss = end(changed, given[1], code);
        return std::vector<Tensor>{loss, changed};
      };
    };
    Module none;
    std::vector<Tensor> results = run_frame(options_, "behind_head", none, {std::exchange(logits, {}), labels}, make);
    logits = std::move(results[1]);
    return std::move(results[0]);
  }

  Tensor take_auxiliary_loss() override { return std::exchange(auxiliary_, {}); }

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
    if (style_.masks_outside) make_masks(inputs, input, {});
    Tensor ids = input;
    ModuleCall call(base_, tape_, {&ids});
    Tensor embeddings = embed(ids);
    if (style_.scaled_everywhere && style_.model_type != "granitemoe") embeddings = multiply_scalar(embeddings);
    const Tensor positions = position_ids(tape_, ids.size(1));
    if (!style_.masks_outside) make_masks(inputs, embeddings, positions);
    if (style_.scaled_everywhere && style_.model_type == "granitemoe") embeddings = multiply_scalar(embeddings);
    Tensor hidden = dropout(embeddings, embedding_dropout_);
    if (style_.model_type == "phi") embeddings = hidden;
    inputs.tables = tables(positions, hidden);
    if (style_.frequencies_by_kind && window_)
      inputs.sliding_tables = tables_of("sliding_rotary_emb", positions, hidden, [&](Module& rotary, Tape& tape, const Tensor& at) {
        return rotary_tables(rotary, tape, at, table_type(hidden), "sliding_attention_inv_freq");
      });
    if (!style_.positions_3d) inputs.positions = positions;  // else layers are given those of packed sequences only
    if (style_.norm_before_layers) hidden = normed(hidden);
    hidden = run_layers(tape_, layers_.size(), std::move(hidden), [&](std::size_t i, const Tensor& x) { return layers_[i](x, inputs); });
    hidden = normed(hidden);
    return call.done(hidden);
  }

  /// The final norm, a class of transformers' own unless it is PyTorch's LayerNorm.
  Tensor normed(const Tensor& hidden) {
    if (!options_.compiled_frames || final_norm_.kind == NormSpec::Kind::layer_norm) return (*norm_)(hidden);
    Module& module = base_.child(style_.final_norm);
    Tensor input = hidden;
    ModuleCall call(module, tape_, {&input});
    const auto make = [this](Module& twin, Tape& tape) -> FrameForward {
      const auto norm = std::make_shared<Norm>(twin, tape, final_norm_, style_.norm_rounding);
      return [norm](const std::vector<Tensor>& given) { return std::vector<Tensor>{(*norm)(given[0])}; };
    };
    return call.done(run_frame(options_, "final_norm", module, {input}, make).front());
  }

  void make_masks(LayerInputs& inputs, const Tensor& embeddings, const Tensor& positions) {
    if (full_attention_ || !style_.one_mask) inputs.full_mask = model_mask(tape_, options_, embeddings, positions, std::nullopt);
    if (!window_) return;
    if (!chunked_) {
      inputs.sliding_mask = model_mask(tape_, options_, embeddings, positions, window_);
      return;
    }
    find_packed_sequences(tape_);
    inputs.sliding_mask = chunked_causal_mask(tape_, options_, embeddings, *window_);
  }

  RotaryTables tables(const Tensor& positions, const Tensor& hidden) {
    if (style_.frequencies_by_kind && !full_attention_) return {};
    return tables_of("rotary_emb", positions, hidden, [&](Module& rotary, Tape& tape, const Tensor& at) {
      const DType type = hidden.dtype();
      if (style_.positions_3d) return rotary_tables_3d(rotary, tape, at, hidden.size(0), type);
      if (style_.sinks) return half_rotary_tables(rotary, tape, at, type);
      const bool complex = style_.complex_heads || (latent_ && style_.latent_rotation == LatentAttention::Rotation::complex);
      if (complex) return polar_tables(rotary, tape, at);
      return rotary_tables(rotary, tape, at, table_type(hidden), style_.frequencies_by_kind ? "full_attention_inv_freq" : "inv_freq");
    });
  }

  /// Tables by the model's module of rotary positions.
  RotaryTables tables_of(const char* name, const Tensor& positions, const Tensor& hidden,
                         const std::function<RotaryTables(Module& rotary, Tape& tape, const Tensor& positions)>& make) {
    const auto forward = [&](Module& twin, Tape& tape) -> FrameForward {
      return [&](const std::vector<Tensor>& given) {
        RotaryTables made = make(twin, tape, given[0]);
        return std::vector<Tensor>{std::move(made.cosine), std::move(made.sine)};
      };
    };
    const GradMode no_grad(tape_, false);
    std::vector<Tensor> made = run_frame(options_, name, base_.child("rotary_emb"), {positions, hidden}, forward);
    return {std::move(made[0]), std::move(made[1])};
  }

  DType table_type(const Tensor& hidden) const { return style_.fp32_tables || style_.wide_tables ? DType::fp32 : hidden.dtype(); }

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
  Module& root_;
  Module* outer_;  ///< of images and text
  Module& base_;
  Embedding embed_;
  std::vector<Layer> layers_;
  std::optional<PatchedNorm> norm_;
  NormSpec final_norm_;
  std::optional<std::int64_t> window_;
  bool full_attention_ = false, latent_ = false, chunked_ = false;
  std::unique_ptr<RouterRecord> record_ = std::make_unique<RouterRecord>();  // the layers refer to it
  const MoeSpec* balanced_ = nullptr;                                        ///< of routers whose balance is part of the loss
  Tensor auxiliary_;                                                         ///< of the last pass, where a trainer adds it
  DecoderHead head_;
};

}  // namespace

std::unique_ptr<Network> make_rotary_decoder(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<RotaryDecoder>(model, options, root, tape);
}

}  // namespace plimsoll::program
