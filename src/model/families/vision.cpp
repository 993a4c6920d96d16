#include "model/families/vision.hpp"

#include "model/operators/convolution.hpp"

namespace plimsoll::model {

Operator learned(OperatorKind kind, const std::string& name, std::vector<std::int64_t> shape, std::int64_t width) {
  Operator op{};
  op.kind = kind;
  op.name = name;
  op.in_features = op.out_features = width;
  op.output_per_token = {width};
  op.parameters.push_back(parameter(name, std::move(shape)));
  return op;
}

Vision vision_model(const Config& config, std::int64_t extra_tokens) {
  Vision vision;
  Model& model = vision.model;
  model.name = config.name();
  model.model_type = config.model_type();
  model.architecture = config.architecture();
  model.layers = config.layers();
  model.hidden_size = config.dimension("hidden_size");
  model.heads = model.kv_heads = config.dimension("num_attention_heads");
  config.require_divisible("hidden_size", model.hidden_size, "num_attention_heads", model.heads);
  model.head_dim = model.hidden_size / model.heads;
  constexpr std::int64_t kLargestImage = 1 << 16;
  model.image_size = config.dimension("image_size", kLargestImage);
  model.patch_size = config.dimension("patch_size", kLargestImage);
  if (model.image_size < model.patch_size) config.fail_at("image_size", "no patch fits into the image");
  model.channels = config.dimension("num_channels", kLargestImage);
  model.embedding_dropout = config.rate_or("hidden_dropout_prob", 0.0);
  const std::int64_t side = model.image_size / model.patch_size;  // the convolution sees nothing of what is left over at the edges
  vision.patches = side * side;
  vision.tokens = vision.patches + extra_tokens;
  model.max_positions = vision.tokens;
  return vision;
}

void append_image_embeddings(Vision& vision, const ImageEmbeddings& plan) {
  Model& model = vision.model;
  const std::int64_t width = model.hidden_size;
  BlockBuilder patches(Block::Role::embedding, plan.name);
  patches.add(patch_embedding("patch_embeddings.projection", model.channels, model.patch_size, width), {kBlockInput});
  patches.block().tokens = vision.patches;
  model.blocks.push_back(patches.build());

  BlockBuilder tokens(Block::Role::embedding, plan.name);
  Operator class_token = learned(OperatorKind::reshape, "cls_token", {1, 1, width}, width);
  class_token.function = "concatenate";
  if (plan.mask_token) class_token.parameters.push_back(parameter("mask_token", {1, width}));
  int x = tokens.add(std::move(class_token), {kBlockInput});
  Operator positions = learned(OperatorKind::position_embedding, "position_embeddings", {1, vision.tokens, width}, width);
  if (plan.distillation_token) positions.parameters.push_back(parameter("distillation_token", {1, 1, width}));
  x = tokens.add(std::move(positions), {x});
  tokens.dropout("dropout", x, model.embedding_dropout, width);
  tokens.block().tokens = vision.tokens;
  tokens.block().input = static_cast<int>(model.blocks.size()) - 1;
  model.blocks.push_back(tokens.build());
  model.registration = {1, 0};
}

void register_rest(Model& model) {
  for (auto block = static_cast<int>(model.registration.size()); block < static_cast<int>(model.blocks.size()); ++block)
    model.registration.push_back(block);
}

}  // namespace plimsoll::model
