// AutoencoderKL of diffusers: images to latents and back, by residual blocks of convolutions and group norms.
//
// It stands frozen beside a diffusion model that is trained: its parameters are exact, its encoder is run by program/modules/diffusers.
#include <fmt/format.h>

#include "model/block_builder.hpp"
#include "model/families/encoder.hpp"
#include "model/families/families.hpp"
#include "model/families/towers.hpp"
#include "model/operators/convolution.hpp"

namespace plimsoll::model {
namespace {

constexpr std::int64_t kLargestImage = 1 << 14;
constexpr std::size_t kMostStages = 8;

/// GroupNorm over a feature map: weight and bias per channel.
Operator group_norm(const std::string& name, std::int64_t channels, std::int64_t groups) {
  NormSpec spec;
  spec.kind = NormSpec::Kind::layer_norm;
  spec.bias = true;
  spec.width = channels;
  Operator op = norm(name, spec);
  op.groups = groups;
  return op;
}

/// One half of the autoencoder, whose operators are appended as its modules are registered.
class HalfBuilder {
 public:
  HalfBuilder(const std::string& name, std::int64_t groups, FeatureMap input)
      : block_(Block::Role::other, name), groups_(groups), map_(input) {}

  void convolve(const std::string& name, std::int64_t out, const Window& window) {
    append(convolution(name, {map_, out, window, 1, true}));
    map_ = feature_map(block_.block().operators.back());
  }
  void norm(const std::string& name) { append(group_norm(name, map_.channels, groups_)); }

  /// ResnetBlock2D: norm1, conv1, norm2, conv2, and a shortcut where the width changes.
  void residual(const std::string& name, std::int64_t out) {
    const FeatureMap input = map_;
    norm(name + ".norm1");
    convolve(name + ".conv1", out, {3, 1, 1});
    norm(name + ".norm2");
    convolve(name + ".conv2", out, {3, 1, 1});
    if (input.channels != out) append(convolution(name + ".conv_shortcut", {input, out, {1, 1, 0}, 1, true}));
  }

  /// UNetMidBlock2D: an attention of one head, registered before the two residual blocks that stand around it.
  void middle(const std::string& name, bool attends) {
    if (attends) {
      const std::string attention = name + ".attentions.0";
      norm(attention + ".group_norm");
      for (const char* linear : {".to_q", ".to_k", ".to_v", ".to_out.0"})
        append(model::linear(attention + linear, {.in = map_.channels, .out = map_.channels, .bias = true}));
    }
    for (int i = 0; i < 2; ++i) residual(fmt::format("{}.resnets.{}", name, i), map_.channels);
  }

  void stand_at(const FeatureMap& map) { map_ = map; }
  const FeatureMap& map() const { return map_; }

  Block build() {
    block_.block().tokens = 1;
    return block_.build();
  }

 private:
  void append(Operator op) { block_.add(std::move(op), {static_cast<int>(block_.block().operators.size()) - 1}); }

  BlockBuilder block_;
  std::int64_t groups_;
  FeatureMap map_;
};

struct Shape {
  std::vector<std::int64_t> widths;  ///< of the stages, from the image to the latents
  std::int64_t layers = 0, groups = 0, latents = 0;
  bool attends = true;
};

/// Stages of one kind, by convolutions and group norms alone.
Shape autoencoder_shape(const Config& config) {
  Shape shape;
  const auto widths = config.find("block_out_channels");
  if (!widths || widths->size() == 0 || widths->size() > kMostStages)
    config.fail_at("block_out_channels", fmt::format("a list of 1 to {} widths is needed", kMostStages));
  for (const JsonValue& width : widths->elements()) shape.widths.push_back(width.integer(1, kLargestDimension));
  for (const auto& [key, kind] : {std::pair{"down_block_types", "DownEncoderBlock2D"}, {"up_block_types", "UpDecoderBlock2D"}}) {
    const auto kinds = config.find(key);
    if (!kinds) continue;
    if (kinds->size() != shape.widths.size()) config.fail_at(key, "a kind is needed for each of block_out_channels");
    for (const JsonValue& each : kinds->elements())
      if (each.text() != kind) config.refuse_at(key, fmt::format("blocks other than {} are not modelled", kind));
  }
  shape.layers = config.dimension_or("layers_per_block", 1, kMostLayers);
  shape.groups = config.dimension_or("norm_num_groups", 32);
  for (const std::int64_t width : shape.widths)
    if (width % shape.groups != 0) config.fail_at("norm_num_groups", fmt::format("{} groups do not divide {} channels", shape.groups, width));
  shape.latents = config.dimension("latent_channels");
  shape.attends = config.flag_or("mid_block_add_attention", true);
  return shape;
}

Block encoder(const Shape& shape, const FeatureMap& image) {
  HalfBuilder half("encoder", shape.groups, image);
  half.convolve("conv_in", shape.widths.front(), {3, 1, 1});
  for (std::size_t stage = 0; stage < shape.widths.size(); ++stage) {
    const std::string name = fmt::format("down_blocks.{}", stage);
    for (std::int64_t i = 0; i < shape.layers; ++i) half.residual(fmt::format("{}.resnets.{}", name, i), shape.widths[stage]);
    if (stage + 1 == shape.widths.size()) continue;
    half.stand_at({half.map().channels, half.map().height + 1, half.map().width + 1});  // F.pad(x, (0, 1, 0, 1))
    half.convolve(name + ".downsamplers.0.conv", shape.widths[stage], {3, 2, 0});
  }
  half.middle("mid_block", shape.attends);
  half.norm("conv_norm_out");
  half.convolve("conv_out", 2 * shape.latents, {3, 1, 1});
  return half.build();
}

Block decoder(const Shape& shape, const FeatureMap& latents, std::int64_t image_channels) {
  HalfBuilder half("decoder", shape.groups, latents);
  half.convolve("conv_in", shape.widths.back(), {3, 1, 1});
  for (std::size_t stage = 0; stage < shape.widths.size(); ++stage) {
    const std::int64_t width = shape.widths[shape.widths.size() - 1 - stage];
    const std::string name = fmt::format("up_blocks.{}", stage);
    for (std::int64_t i = 0; i <= shape.layers; ++i) half.residual(fmt::format("{}.resnets.{}", name, i), width);
    if (stage + 1 == shape.widths.size()) continue;
    half.stand_at({width, 2 * half.map().height, 2 * half.map().width});
    half.convolve(name + ".upsamplers.0.conv", width, {3, 1, 1});
  }
  const FeatureMap behind = half.map();
  half.stand_at({shape.widths.back(), latents.height, latents.width});  // the middle runs first and is registered behind the stages
  half.middle("mid_block", shape.attends);
  half.stand_at(behind);
  half.norm("conv_norm_out");
  half.convolve("conv_out", image_channels, {3, 1, 1});
  return half.build();
}

/// A convolution of 1 x 1 between moments or latents.
Block quantiser(const std::string& name, const FeatureMap& map) {
  BlockBuilder block(Block::Role::other, name);
  block.add(convolution("", {map, map.channels, {1, 1, 0}, 1, true}), {kBlockInput});
  block.block().tokens = 1;
  return block.build();
}

}  // namespace

Model build_autoencoder_kl(const Config& config) {
  note_keys(config, {"scaling_factor", "shift_factor", "latents_mean", "latents_std", "force_upcast", "out_channels"});
  const std::string activation = config.text_or("act_fn", "silu");
  if (activation != "silu") config.refuse_at("act_fn", "activations other than silu are not modelled");
  const Shape shape = autoencoder_shape(config);
  Model model = counted_model(config);
  model.channels = config.dimension_or("in_channels", 3);
  model.image_size = config.dimension_or("sample_size", 1024, kLargestImage);
  model.hidden_size = shape.latents;
  model.layers = static_cast<std::int64_t>(shape.widths.size());
  const FeatureMap image{model.channels, model.image_size, model.image_size};
  model.blocks.push_back(encoder(shape, image));
  const FeatureMap moments = feature_map(model.blocks.back().operators.back());
  const FeatureMap latents{shape.latents, moments.height, moments.width};
  model.blocks.push_back(decoder(shape, latents, config.dimension_or("out_channels", 3)));
  if (config.flag_or("use_quant_conv", true)) model.blocks.push_back(quantiser("quant_conv", moments));
  if (config.flag_or("use_post_quant_conv", true)) model.blocks.push_back(quantiser("post_quant_conv", latents));
  return model;
}

}  // namespace plimsoll::model
