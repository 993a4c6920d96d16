// clip, siglip: a tower of images and one of texts, joined by a contrastive loss.
#include "model/families/encoder.hpp"
#include "model/families/families.hpp"
#include "model/families/towers.hpp"

namespace plimsoll::model {
namespace {

/// The similarity of every image and text, scaled by a learned temperature; registered before the towers.
void append_similarity(Model& model, std::vector<ParameterTensor> learned) {
  BlockBuilder block(Block::Role::head, "");
  Operator op = scale("logit_scale", 1);
  op.parameters = std::move(learned);
  block.add(std::move(op), {kBlockInput});
  block.block().tokens = 1;
  model.blocks.push_back(block.build());
  const int last = static_cast<int>(model.blocks.size()) - 1;
  model.registration = {last};
  for (int i = 0; i < last; ++i) model.registration.push_back(i);
}

void append_projection(Model& model, const std::string& name, std::int64_t in, std::int64_t out) {
  Chain(Block::Role::other, name, in, 1).dense("", out, false).append_to(model);
}

void check_class(const Config& config) {
  if (!config.architecture_ends_with("Model")) refuse_head(config, "the model of both towers");
}

}  // namespace

Model build_clip(const Config& config) {
  check_class(config);
  note_keys(config, {"logit_scale_init_value"});
  const Config text = config.part("text_config", "clip_text_model", ""), vision = config.part("vision_config", "clip_vision_model", "");
  const std::int64_t projected = config.dimension("projection_dim");
  Model model = counted_model(config);
  append_text_tower(model, text, TowerKind::clip, "text_model");
  append_vision_tower(model, vision, TowerKind::clip, "vision_model");
  append_projection(model, "visual_projection", vision.dimension("hidden_size"), projected);
  append_projection(model, "text_projection", model.hidden_size, projected);
  append_similarity(model, {parameter("logit_scale", {})});
  return model;
}

Model build_clip_text(const Config& config) {
  const bool projects = config.architecture_ends_with("ModelWithProjection");
  if (!projects && !config.architecture_ends_with("Model")) refuse_head(config, "the text model, with a projection or without");
  Model model = counted_model(config);
  append_text_tower(model, config, TowerKind::clip, "text_model");
  if (projects) append_projection(model, "text_projection", model.hidden_size, config.dimension("projection_dim"));
  return model;
}

Model build_siglip(const Config& config) {
  check_class(config);
  Model model = counted_model(config);
  append_text_tower(model, config.part("text_config", "siglip_text_model", ""), TowerKind::siglip, "text_model");
  append_vision_tower(model, config.part("vision_config", "siglip_vision_model", ""), TowerKind::siglip, "vision_model");
  append_similarity(model, {parameter("logit_scale", {1}), parameter("logit_bias", {1})});
  return model;
}

}  // namespace plimsoll::model
