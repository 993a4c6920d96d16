// Stable Diffusion 3 and 3.5 in diffusers' keys: SD3Transformer2DModel, the MMDiT of Esser et al. 2024.
//
// Every block has weights of its own for image and text and joins both in one attention; some blocks of 3.5-medium attend once more within
// the image, and the last block gives no text.
#include <algorithm>
#include <vector>

#include "model/families/diffusion.hpp"
#include "model/families/encoder.hpp"
#include "model/families/families.hpp"
#include "model/operators/convolution.hpp"

namespace plimsoll::model {
namespace {

constexpr std::int64_t kMostPlaces = 1 << 15;  // of a side of the table of positions

struct Sd3Shape {
  bool normed_heads = false, dual = false, last = false;
};
bool operator==(const Sd3Shape& a, const Sd3Shape& b) { return a.normed_heads == b.normed_heads && a.dual == b.dual && a.last == b.last; }

struct Projections {
  std::string q, k, v, q_norm, k_norm;
};

class Sd3BlockBuilder {
 public:
  Sd3BlockBuilder(const Model& model, const Sd3Shape& shape, std::int64_t first, std::int64_t repeat)
      : width_(model.hidden_size),
        inner_(model.intermediate_size),
        spec_(image_attention(model)),
        shape_(shape),
        builder_(Block::Role::encoder, "transformer_blocks", repeat, first) {}

  Block build() {
    const int modulation = add_modulation(builder_, "norm1", kConditionInput, width_, shape_.dual ? 9 : 6);
    const int text_modulation = on_text(add_modulation(builder_, "norm1_context", kConditionInput, width_, shape_.last ? 2 : 6));
    const int normed = builder_.norm("norm1.norm", kBlockInput, adaptive_norm(width_));
    const int x = modulated("norm1", normed, modulation);
    const int text = on_text(builder_.norm("norm1_context.norm", kTextInput, adaptive_norm(width_)));
    const int y = on_text(modulated("norm1_context", text, text_modulation));
    const Heads image = project(x, {"attn.to_q", "attn.to_k", "attn.to_v", "attn.norm_q", "attn.norm_k"}, false);
    const Heads added =
        project(y, {"attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj", "attn.norm_added_q", "attn.norm_added_k"}, true);
    Operator products = attention("attn", spec_);
    products.joint = true;
    const int context = builder_.add(std::move(products), {image.q, image.k, image.v, added.q, added.k, added.v});
    if (!shape_.last) finish_text(context, text_modulation);
    finish_image(context, normed, modulation);
    Block& block = builder_.block();
    block.norm = adaptive_norm(width_);
    block.attention = spec_;
    block.mlp = MlpSpec{
        .hidden = width_, .intermediate = inner_, .gated = false, .fused_gate_up = false, .bias = true, .activation = "gelu_pytorch_tanh"};
    return builder_.build(registration());
  }

 private:
  struct Heads {
    int q, k, v;
  };

  /// diffusers' Attention registers its text projections as keys, values, queries.
  static std::vector<std::string> registration() {
    std::vector<std::string> names{"norm1", "norm1_context"};
    for (const char* attention : {"attn", "attn2"})
      for (const char* part : {"norm_q", "norm_k", "to_q", "to_k", "to_v", "add_k_proj", "add_v_proj", "add_q_proj", "to_out.0",
                               "to_add_out", "norm_added_q", "norm_added_k"})
        names.push_back(std::string(attention) + "." + part);
    names.insert(names.end(), {"ff", "ff_context"});
    return names;
  }

  int on_text(int op) {
    builder_.block().operators[static_cast<std::size_t>(op)].side = true;
    return op;
  }
  int dense(const std::string& name, int from, std::int64_t in, std::int64_t out, bool text) {
    const int op = builder_.linear(name, from, {.in = in, .out = out, .bias = true});
    return text ? on_text(op) : op;
  }
  int modulated(const std::string& name, int normed, int modulation) {
    return builder_.multiply(name + ".modulated", normed, modulation, width_);
  }

  Heads project(int from, const Projections& names, bool text) {
    const auto head_norm = [&](const std::string& name, int x) {
      if (!shape_.normed_heads) return x;
      NormSpec norm;
      norm.width = spec_.head_dim;
      const int op = builder_.norm(name, x, norm);
      return text ? on_text(op) : op;
    };
    const int q = dense(names.q, from, width_, width_, text), k = dense(names.k, from, width_, width_, text);
    const int v = dense(names.v, from, width_, width_, text);
    return {head_norm(names.q_norm, q), head_norm(names.k_norm, k), v};
  }

  int gated_sum(const std::string& name, int residual, int branch, int modulation, bool text) {
    const int gated = builder_.multiply(name + ".gated", branch, modulation, width_);
    const int sum = builder_.sum(name + ".residual", residual, gated, width_);
    return text ? on_text(gated), on_text(sum) : sum;
  }

  void feed_forward(const std::string& norm, const std::string& name, int x, int modulation, bool text) {
    int y = builder_.norm(norm, x, adaptive_norm(width_));
    if (text) on_text(y);
    y = modulated(norm, y, modulation);
    if (text) on_text(y);
    y = dense(name + ".net.0.proj", y, width_, inner_, text);
    y = builder_.activation(name + ".net.0.gelu", y, "gelu_pytorch_tanh", inner_);
    if (text) on_text(y);
    y = dense(name + ".net.2", y, inner_, width_, text);
    gated_sum(name, x, y, modulation, text);
  }

  void finish_text(int context, int modulation) {
    const int x = gated_sum("attn.norm1_context", kTextInput, dense("attn.to_add_out", context, width_, width_, true), modulation, true);
    feed_forward("norm2_context", "ff_context", x, modulation, true);
  }

  void finish_image(int context, int normed, int modulation) {
    int x = gated_sum("attn.norm1", kBlockInput, dense("attn.to_out.0", context, width_, width_, false), modulation, false);
    if (shape_.dual) {
      const int again = modulated("norm1.second", normed, modulation);
      const Heads heads = project(again, {"attn2.to_q", "attn2.to_k", "attn2.to_v", "attn2.norm_q", "attn2.norm_k"}, false);
      const int own = builder_.add(attention("attn2", spec_), {heads.q, heads.k, heads.v});
      x = gated_sum("attn2.norm1", x, dense("attn2.to_out.0", own, width_, width_, false), modulation, false);
    }
    feed_forward("norm2", "ff", x, modulation, false);
  }

  std::int64_t width_, inner_;
  AttentionSpec spec_;
  Sd3Shape shape_;
  BlockBuilder builder_;
};

/// Which blocks attend twice, and whether queries and keys are normed.
std::vector<Sd3Shape> shapes_of(const Config& config, std::int64_t layers) {
  std::vector<Sd3Shape> shapes(static_cast<std::size_t>(layers));
  const std::string norm = config.text_or("qk_norm", "");
  if (!norm.empty() && norm != "rms_norm") config.refuse_at("qk_norm", "norms of queries and keys other than rms_norm are not modelled");
  for (Sd3Shape& shape : shapes) shape.normed_heads = !norm.empty();
  shapes.back().last = true;
  if (const auto dual = config.find("dual_attention_layers"))
    for (const JsonValue& layer : dual->elements()) shapes[static_cast<std::size_t>(layer.integer(0, layers - 1))].dual = true;
  return shapes;
}

Block patches_of(const Model& model, std::int64_t places) {
  BlockBuilder block(Block::Role::embedding, "pos_embed");
  Operator embedding = patch_embedding("proj", model.channels, model.patch_size, model.hidden_size);
  // The module makes its table in fp32, whatever the weights' type.
  embedding.buffers.push_back({"pos_embed", {1, product({places, places}), model.hidden_size}, DType::fp32, false});
  block.add(std::move(embedding), {kBlockInput});
  return block.build();
}

}  // namespace

Model build_sd3(const Config& config) {
  Model model = diffusion_model(config);
  model.layers = config.layers("num_layers");
  model.intermediate_size = product({4, model.hidden_size});
  model.channels = config.dimension("in_channels");
  model.patch_size = config.dimension("patch_size");
  model.image_size = config.dimension("sample_size");
  if (config.dimension_or("caption_projection_dim", model.hidden_size) != model.hidden_size)
    config.fail_at("caption_projection_dim",
                   "the text joins the image in one attention: its width must be num_attention_heads * attention_head_dim");
  enum : int { kImageBlock, kConditionBlock, kTextBlock };
  model.blocks.push_back(patches_of(model, config.dimension("pos_embed_max_size", kMostPlaces)));
  model.blocks.push_back(time_text_condition(model, config.dimension("pooled_projection_dim"), false));
  model.blocks.push_back(
      stream_projection("context_embedder", config.dimension("joint_attention_dim"), model.hidden_size, Block::Stream::second));
  const std::vector<Sd3Shape> shapes = shapes_of(config, model.layers);
  for (std::size_t i = 0; i < shapes.size();) {
    std::size_t end = i + 1;
    while (end < shapes.size() && shapes[end] == shapes[i]) ++end;
    Block block = Sd3BlockBuilder(model, shapes[i], static_cast<std::int64_t>(i), static_cast<std::int64_t>(end - i)).build();
    if (i == 0) block.input = kImageBlock;
    block.side_inputs = {kTextBlock, kConditionBlock};
    model.blocks.push_back(std::move(block));
    i = end;
  }
  append_continuous_output(model, product({model.patch_size, model.patch_size, config.dimension_or("out_channels", model.channels)}),
                           kConditionBlock);
  return model;
}

}  // namespace plimsoll::model
