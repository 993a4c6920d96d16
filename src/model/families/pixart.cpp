// PixArt in diffusers' keys: PixArtTransformer2DModel, a DiT with cross attention to the prompt and one modulation for all blocks (Chen et
// al. 2023), each of which adds a table of its own.
#include <string>

#include "model/families/diffusion.hpp"
#include "model/families/encoder.hpp"
#include "model/families/families.hpp"
#include "model/operators/convolution.hpp"

namespace plimsoll::model {
namespace {

// A learned table that is added to the modulation.
Operator shift_table(std::int64_t rows, std::int64_t width) {
  Operator table = scale("", product({rows, width}));
  table.parameters.push_back(parameter("scale_shift_table", {rows, width}));
  return table;
}

class PixArtLayer {
 public:
  PixArtLayer(const Model& model, std::int64_t context)
      : model_(model), context_(context), width_(model.hidden_size), builder_(Block::Role::encoder, "transformer_blocks", model.layers) {}

  Block build() {
    const int modulation = builder_.add(shift_table(6, width_), {kConditionInput});
    const int normed = builder_.norm("norm1", kBlockInput, adaptive_norm(width_));
    const int shifted = builder_.multiply("norm1.modulated", normed, modulation, width_);
    const int attended = attend("attn1", shifted, shifted, width_, false);
    int x = builder_.sum("attn1.residual", kBlockInput, builder_.multiply("attn1.gated", attended, modulation, width_), width_);
    x = builder_.sum("attn2.residual", x, attend("attn2", x, kTextInput, context_, true), width_);
    const int again = builder_.multiply("norm2.modulated", builder_.norm("norm2", x, adaptive_norm(width_)), modulation, width_);
    int y = dense("ff.net.0.proj", again, width_, model_.intermediate_size);
    y = builder_.activation("ff.net.0.gelu", y, "gelu_pytorch_tanh", model_.intermediate_size);
    y = dense("ff.net.2", y, model_.intermediate_size, width_);
    builder_.sum("ff.residual", x, builder_.multiply("ff.gated", y, modulation, width_), width_);
    Block& block = builder_.block();
    block.norm = adaptive_norm(width_);
    block.attention = block.cross_attention = image_attention(model_);
    block.cross_attention->cross = true;
    block.mlp = MlpSpec{.hidden = width_,
                        .intermediate = model_.intermediate_size,
                        .gated = false,
                        .fused_gate_up = false,
                        .bias = true,
                        .activation = "gelu_pytorch_tanh"};
    return builder_.build();
  }

 private:
  int dense(const std::string& name, int from, std::int64_t in, std::int64_t out) {
    return builder_.linear(name, from, {.in = in, .out = out, .bias = true});
  }
  int attend(const std::string& name, int from, int context, std::int64_t context_width, bool of_text) {
    const int q = dense(name + ".to_q", from, width_, width_), k = dense(name + ".to_k", context, context_width, width_);
    const int v = dense(name + ".to_v", context, context_width, width_);
    Operator products = attention(name, image_attention(model_));
    products.side = of_text;
    for (const int op : {k, v}) builder_.block().operators[static_cast<std::size_t>(op)].side = of_text;
    return dense(name + ".to_out.0", builder_.add(std::move(products), {q, k, v}), width_, width_);
  }

  const Model& model_;
  std::int64_t context_, width_;
  BlockBuilder builder_;
};

// adaln_single: the timestep through an MLP, and six vectors of it.
Block single_condition(std::int64_t width) {
  BlockBuilder block(Block::Role::embedding, "adaln_single");
  const std::string name = "emb.timestep_embedder";
  int x = block.linear(name + ".linear_1", kBlockInput, {.in = kTimestepChannels, .out = width, .bias = true});
  x = block.activation(name + ".act", x, "silu", width);
  x = block.linear(name + ".linear_2", x, {.in = width, .out = width, .bias = true});
  block.linear("linear", block.activation("silu", x, "silu", width), {.in = width, .out = 6 * width, .bias = true});
  block.block().tokens = 1;
  return block.build();
}

Block caption_projection(std::int64_t channels, std::int64_t width) {
  BlockBuilder block(Block::Role::embedding, "caption_projection");
  int x = block.linear("linear_1", kBlockInput, {.in = channels, .out = width, .bias = true});
  x = block.activation("act_1", x, "gelu_pytorch_tanh", width);
  block.linear("linear_2", x, {.in = width, .out = width, .bias = true});
  block.block().stream = Block::Stream::second;
  return block.build();
}

void require_plain_pixart(const Config& config, std::int64_t sample_size) {
  if (config.text_or("norm_type", "ada_norm_single") != "ada_norm_single")
    config.fail_at("norm_type", "PixArt's norms are ada_norm_single");
  if (config.activation_or("activation_fn", "gelu-approximate") != "gelu-approximate")
    config.refuse_at("activation_fn", "activations other than gelu-approximate are not modelled");
  if (!config.flag_or("attention_bias", true)) config.refuse_at("attention_bias", "attention without biases is not modelled");
  if (config.flag_or("norm_elementwise_affine", false)) config.refuse_at("norm_elementwise_affine", "norms with weights are not modelled");
  if (config.number_or("dropout", 0, 0, 1) > 0) config.refuse_at("dropout", "dropout is not modelled");
  if (config.flag_or("use_additional_conditions", sample_size == 128))
    config.refuse_at("use_additional_conditions", "conditions on resolution and aspect ratio are not modelled");
}

}  // namespace

Model build_pixart(const Config& config) {
  Model model = diffusion_model(config);
  model.image_size = config.dimension("sample_size");
  require_plain_pixart(config, model.image_size);
  model.layers = config.layers("num_layers");
  model.patch_size = config.dimension("patch_size");
  config.require_divisible("sample_size", model.image_size, "patch_size", model.patch_size);
  model.channels = config.dimension("in_channels");
  model.intermediate_size = product({4, model.hidden_size});
  const std::int64_t width = model.hidden_size, side = model.image_size / model.patch_size;
  const std::int64_t context = config.dimension_or("cross_attention_dim", width);
  if (context != width)
    config.fail_at("cross_attention_dim", "the prompt's projection is as wide as num_attention_heads * attention_head_dim");
  enum : int { kImageBlock, kConditionBlock, kTextBlock };

  BlockBuilder image(Block::Role::embedding, "pos_embed");
  Operator projection = patch_embedding("proj", model.channels, model.patch_size, width);
  projection.buffers.push_back({"pos_embed", {1, product({side, side}), width}, DType::fp32, false});
  image.add(std::move(projection), {kBlockInput});
  model.blocks.push_back(image.build());
  model.blocks.push_back(single_condition(width));
  model.blocks.push_back(caption_projection(config.dimension("caption_channels"), width));
  Block layers = PixArtLayer(model, context).build();
  layers.input = kImageBlock;
  layers.side_inputs = {kTextBlock, kConditionBlock};
  model.blocks.push_back(std::move(layers));

  BlockBuilder last(Block::Role::head, "");
  const int table = last.add(shift_table(2, width), {kSideInput});
  const int normed = last.norm("norm_out", kBlockInput, adaptive_norm(width));
  const int shifted = last.multiply("modulated", normed, table, width);
  const std::int64_t out_channels = config.dimension_or("out_channels", model.channels);
  last.linear("proj_out", shifted, {.in = width, .out = product({model.patch_size, model.patch_size, out_channels}), .bias = true});
  last.block().side_inputs = {kConditionBlock};
  model.blocks.push_back(last.build());
  model.registration = {0, 3, 4, 1, 2};  // patches, blocks, output, modulation, prompt
  return model;
}

}  // namespace plimsoll::model
