// resnet: residual blocks of convolutions and batch norms, basic (18, 34) or bottleneck (50, 101, 152; stride on the 3x3 convolution unless
// downsample_in_bottleneck).
#include <fmt/format.h>

#include <algorithm>

#include "model/families/encoder.hpp"
#include "model/families/families.hpp"
#include "model/operators/convolution.hpp"

namespace plimsoll::model {
namespace {

constexpr std::int64_t kImageSize = 224;  // of the published classifiers; the config does not say
constexpr std::int64_t kReduction = 4;    // a bottleneck's inner width is a quarter of its output
constexpr std::int64_t kLargestImage = 1 << 16;

struct ResnetKind {
  bool bottleneck, stride_first;
  std::string activation;
};

FeatureMap map_of(BlockBuilder& builder, int op) { return feature_map(builder.block().operators[static_cast<std::size_t>(op)]); }

// Convolution and batch norm, and the activation unless it is empty.
int add_unit(BlockBuilder& builder, const std::string& name, int from, const ConvolutionSpec& spec, const std::string& activation) {
  int x = builder.add(convolution(name + ".convolution", spec), {from});
  const FeatureMap map = map_of(builder, x);
  x = builder.add(batch_norm(name + ".normalization", map), {x});
  return activation.empty() ? x : builder.add(map_elementwise(OperatorKind::activation, name + ".activation", map, activation), {x});
}

// The main path: convolutions 3-3, or 1-3-1 through the inner width.
int add_main_path(BlockBuilder& builder, const FeatureMap& input, std::int64_t channels, std::int64_t stride, const ResnetKind& kind) {
  const auto unit = [&](int index, int from, const FeatureMap& map, std::int64_t out, const Window& window, bool last) {
    return add_unit(builder, fmt::format("layer.{}", index), from, {map, out, window}, last ? "" : kind.activation);
  };
  const auto behind = [&](int op) { return map_of(builder, op); };
  if (!kind.bottleneck) {
    const int x = unit(0, kBlockInput, input, channels, {3, stride, 1}, false);
    return unit(1, x, behind(x), channels, {3, 1, 1}, true);
  }
  const std::int64_t inner = channels / kReduction;
  int x = unit(0, kBlockInput, input, inner, {1, kind.stride_first ? stride : 1, 0}, false);
  x = unit(1, x, behind(x), inner, {3, kind.stride_first ? 1 : stride, 1}, false);
  return unit(2, x, behind(x), channels, {1, 1, 0}, true);
}

Block residual_layer(const std::string& stack, std::int64_t first, std::int64_t repeat, const FeatureMap& input, std::int64_t channels,
                     std::int64_t stride, const ResnetKind& kind) {
  BlockBuilder builder(Block::Role::encoder, stack, repeat, first);
  const int main = add_main_path(builder, input, channels, stride, kind);
  int shortcut = kBlockInput;
  if (stride != 1 || input.channels != channels)
    shortcut = add_unit(builder, "shortcut", kBlockInput, {input, channels, {1, stride, 0}}, "");
  const FeatureMap map = map_of(builder, main);
  const int sum = builder.add(map_elementwise(OperatorKind::add, "residual", map, "in_place"), {main, shortcut});
  builder.add(map_elementwise(OperatorKind::activation, "activation", map, kind.activation), {sum});
  builder.block().tokens = 1;
  return builder.build({"shortcut", "layer"});
}

FeatureMap output_of(const Block& block) { return feature_map(block.operators.back()); }

Block stem(const Config& config, const std::string& name, const FeatureMap& image, const ResnetKind& kind) {
  BlockBuilder builder(Block::Role::embedding, name);
  const int x = add_unit(builder, "embedder", kBlockInput, {image, config.dimension("embedding_size"), {7, 2, 3}}, kind.activation);
  builder.add(pool("pooler", map_of(builder, x), {3, 2, 1}, "max"), {x});
  builder.block().tokens = 1;
  return builder.build();
}

void append_stages(Model& model, const Config& config, const std::string& stages, const ResnetKind& kind) {
  const auto sizes = config.find("hidden_sizes"), depths = config.find("depths");
  if (!sizes || !depths || sizes->size() != depths->size()) config.fail_at("depths", "a depth is needed for each of hidden_sizes");
  for (std::size_t stage = 0; stage < sizes->size(); ++stage) {
    const std::int64_t channels = sizes->at(stage).integer(kind.bottleneck ? kReduction : 1, kLargestDimension),
                       depth = depths->at(stage).integer(1, kMostLayers);
    const bool strided = stage > 0 || config.flag_or("downsample_in_first_stage", false);
    const std::string stack = fmt::format("{}.{}.layers", stages, stage);
    model.blocks.push_back(residual_layer(stack, 0, 1, output_of(model.blocks.back()), channels, strided ? 2 : 1, kind));
    if (depth > 1) model.blocks.push_back(residual_layer(stack, 1, depth - 1, output_of(model.blocks.back()), channels, 1, kind));
    model.hidden_size = channels;
    model.layers += depth;
  }
}

}  // namespace

Model build_resnet(const Config& config) {
  const Modules name(config, "resnet");
  const bool classifies = config.architecture_ends_with("ForImageClassification");
  if (!name.base_model() && !classifies) refuse_head(config, "ForImageClassification and the base model");
  note_keys(config, {"num_labels", "out_features", "out_indices", "stage_names"});
  const std::string type = config.text_or("layer_type", "bottleneck");
  if (type != "basic" && type != "bottleneck") config.fail_at("layer_type", "expected \"basic\" or \"bottleneck\", got \"" + type + "\"");
  const ResnetKind kind{type == "bottleneck", config.flag_or("downsample_in_bottleneck", false), config.activation_or("hidden_act", "relu")};

  Model model;
  model.name = config.name();
  model.model_type = config.model_type();
  model.architecture = config.architecture();
  model.channels = config.dimension("num_channels", kLargestImage);
  model.image_size = config.dimension_or("image_size", kImageSize, kLargestImage);
  if (!config.given("image_size")) model.assumed.push_back(fmt::format("images of {0} x {0} (the config does not say)", kImageSize));
  model.blocks.push_back(stem(config, name("embedder"), {model.channels, model.image_size, model.image_size}, kind));
  append_stages(model, config, name("encoder.stages"), kind);

  BlockBuilder pooled(Block::Role::pooler, name("pooler"));
  pooled.add(global_pool("", output_of(model.blocks.back())), {kBlockInput});
  pooled.block().tokens = 1;
  model.blocks.push_back(pooled.build());
  model.task = Model::Task::backbone;
  if (classifies) {
    model.task = Model::Task::image_classification;
    model.labels = config.labels();
    Chain(Block::Role::head, "classifier.1", model.hidden_size, 1).dense("", model.labels).append_to(model);
  }
  return model;
}

}  // namespace plimsoll::model
