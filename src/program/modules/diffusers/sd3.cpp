// SD3Transformer2DModel of diffusers 0.42: blocks of two streams joined in one attention; some with a second attention of the image alone,
// the last without an output of the text.
#include <array>
#include <optional>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/modules/diffusers/diffusion.hpp"
#include "program/modules/transformers/families.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// Attention with JointAttnProcessor2_0.
class JointAttention {
 public:
  JointAttention(Module& module, Tape& tape, std::int64_t head_dim) : module_(module), tape_(tape), head_dim_(head_dim) {}

  /// `text` may be undefined: the image alone.
  TokenStreams operator()(const Tensor& image_in, const Tensor& text_in) const {
    Tensor image = image_in, text = text_in;
    ModuleCall call(module_, tape_, {&image, &text});
    Heads heads = project(image, {"to_q", "to_k", "to_v"}, "norm_q", "norm_k");
    Heads added;
    if (text) {
      added = project(text, {"add_q_proj", "add_k_proj", "add_v_proj"}, "norm_added_q", "norm_added_k");
      heads.query = cat({heads.query, added.query}, 2);
      heads.key = cat({heads.key, added.key}, 2);
      heads.value = cat({heads.value, added.value}, 2);
    }
    TokenStreams out;
    Tensor hidden = scaled_dot_product_attention(heads.query, heads.key, heads.value, {}, {});
    hidden = reshape(transpose(hidden, 1, 2), {image.size(0), -1, heads.query.size(1) * head_dim_});
    hidden = to(hidden, heads.query.dtype());
    if (text) {
      const Tensor image_part = slice(hidden, 1, 0, image.size(1));
      out.text = slice(hidden, 1, image.size(1), hidden.size(1));
      hidden = image_part;
      if (Module* last = module_.find_child("to_add_out")) out.text = Linear(*last, tape_)(out.text);
    }
    out.image = Linear(module_.child("to_out").child("0"), tape_)(hidden);
    call.done({&out.image, &out.text});
    return out;
  }

 private:
  struct Heads {
    Tensor query, key, value;
  };

  Heads project(const Tensor& x, const std::array<const char*, 3>& names, const char* norm_q, const char* norm_k) const {
    const auto dense = [&](const char* name) { return Linear(module_.child(name), tape_)(x); };
    Heads heads;
    heads.query = dense(names[0]);
    heads.key = dense(names[1]);
    heads.value = dense(names[2]);
    for (Tensor* part : {&heads.query, &heads.key, &heads.value}) *part = transpose(split_heads(*part, head_dim_), 1, 2);
    if (Module* norm = module_.find_child(norm_q)) heads.query = eager_rms_norm(*norm, tape_, heads.query);
    if (Module* norm = module_.find_child(norm_k)) heads.key = eager_rms_norm(*norm, tape_, heads.key);
    return heads;
  }

  Module& module_;
  Tape& tape_;
  std::int64_t head_dim_;
};

/// JointTransformerBlock.
class Sd3Block {
 public:
  Sd3Block(Module& module, Tape& tape, std::int64_t head_dim)
      : module_(module), tape_(tape), attention_(module.child("attn"), tape, head_dim) {
    module.type = "JointTransformerBlock";
    if (Module* second = module.find_child("attn2")) second_.emplace(*second, tape, head_dim);
  }

  TokenStreams operator()(const std::vector<Tensor>& arguments) const {
    Tensor image = arguments[0], text = arguments[1], condition = arguments[2];
    ModuleCall call(module_, tape_, {&image, &text, &condition});
    const bool answers_text = module_.find_child("ff_context") != nullptr;
    Modulated of_image = zero_norm("norm1", image, condition, second_ ? 9 : 6), of_text;
    if (answers_text) {
      of_text = zero_norm("norm1_context", text, condition, 6);
    } else {
      of_text.normed = continuous_norm(module_.child("norm1_context"), tape_, text, condition);
    }
    TokenStreams attended = attention_(of_image.normed, of_text.normed);
    TokenStreams out;
    Tensor image_branch, text_branch, second;
    {
      attended.image = gated(of_image.vectors[2], attended.image);
      Tensor hidden = add(image, attended.image);
      if (second_) {
        second = (*second_)(of_image.second, {}).image;
        second = gated(of_image.vectors[8], second);
        hidden = add(hidden, second);
      }
      image_branch = feed(hidden, of_image, "ff");
      image_branch = gated(of_image.vectors[5], image_branch);
      out.image = add(hidden, image_branch);
    }
    if (answers_text) {
      attended.text = gated(of_text.vectors[2], attended.text);
      const Tensor hidden = add(text, attended.text);
      text_branch = feed(hidden, of_text, "ff_context");
      const Tensor branch = gated(of_text.vectors[5], text_branch);
      out.text = add(hidden, branch);
    }
    call.done({&out.text, &out.image});
    return out;
  }

 private:
  struct Modulated {
    Tensor normed, second;        ///< second: what attn2 reads
    std::vector<Tensor> vectors;  ///< shift, scale and gate of the attention, of the MLP, of attn2
  };

  /// AdaLayerNormZero, and SD35AdaLayerNormZeroX with nine vectors.
  Modulated zero_norm(const char* name, const Tensor& input, const Tensor& condition, int parts) const {
    Module& norm = module_.child(name);
    Tensor x = input, vector = condition;
    ModuleCall call(norm, tape_, {&x, &vector});
    Modulated out;
    out.vectors = modulation(norm, tape_, vector, parts);
    Tensor normed = layer_norm(x, {}, {});
    if (parts == 6) {
      out.normed = modulated(std::move(normed), out.vectors[1], out.vectors[0]);
    } else {
      out.normed = modulated(normed, out.vectors[1], out.vectors[0]);
      out.second = modulated(normed, out.vectors[7], out.vectors[6]);
    }
    call.done({&out.normed, &out.second});
    return out;
  }

  /// norm2 and the MLP of a stream.
  Tensor feed(const Tensor& hidden, Modulated& by, const char* mlp) const {
    by.normed = layer_norm(hidden, {}, {});
    by.normed = modulated(by.normed, by.vectors[4], by.vectors[3]);
    return feed_forward(module_.child(mlp), tape_, by.normed);
  }

  Module& module_;
  Tape& tape_;
  JointAttention attention_;
  std::optional<JointAttention> second_;
};

class Sd3 final : public DiffusionNetwork {
 public:
  Sd3(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : DiffusionNetwork(model, options, root, tape), blocks_(stack<Sd3Block>("transformer_blocks")) {}

 protected:
  Tensor predict(const Batch& batch) override {
    Tensor latents = batch.input_ids, text = batch.conditions[0], pooled = batch.conditions[1], timestep = batch.conditions[2];
    ModuleCall call(root_, tape_, {&latents, &text, &pooled, &timestep});
    TokenStreams streams;
    streams.image = embed_patches(root_.child("pos_embed"), tape_, latents, model_.patch_size);
    streams.image = contiguous(streams.image);
    const Tensor condition = combined_condition(root_.child("time_text_embed"), tape_, timestep, {}, pooled);
    streams.text = Linear(root_.child("context_embedder"), tape_)(text);
    for (const Sd3Block& block : blocks_)
      streams = run_block(tape_, options_, {streams.image, streams.text, condition},
                          [&block](const std::vector<Tensor>& arguments) { return block(arguments); });
    streams.image = continuous_norm(root_.child("norm_out"), tape_, streams.image, condition);
    streams.image = Linear(root_.child("proj_out"), tape_)(streams.image);
    return call.done(
        joined_patches(streams.image, latents.size(2) / model_.patch_size, latents.size(3) / model_.patch_size, model_.patch_size));
  }

 private:
  std::vector<Sd3Block> blocks_;
};

}  // namespace

std::unique_ptr<Network> make_sd3(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<Sd3>(model, options, root, tape);
}

}  // namespace plimsoll::program
