// vit, deit: pre-norm encoders of image patches.
#include "model/families/families.hpp"
#include "model/families/vision.hpp"

namespace plimsoll::model {
namespace {

LayerPlan vit_layer(const Model& model, const Config& config, const std::string& stack) {
  LayerPlan plan;
  plan.stack = stack;
  plan.repeat = model.layers;
  plan.norm = layer_norm(model.hidden_size);
  plan.attention = bidirectional_attention(model, config.rate_or("attention_probs_dropout_prob", 0.0));
  plan.attention.qkv_bias = config.flag_or("qkv_bias", true);
  plan.attention.positions = Positions::learned;
  plan.mlp = MlpSpec{.hidden = model.hidden_size,
                     .intermediate = model.intermediate_size,
                     .gated = false,
                     .fused_gate_up = false,
                     .bias = true,
                     .activation = config.activation_or("hidden_act", "gelu")};
  plan.hidden_dropout = config.rate_or("hidden_dropout_prob", 0.0);
  plan.names.attention = "attention";
  plan.names.up = "fc1";
  plan.names.down = "fc2";
  plan.names.activation = "activation_fn";
  plan.names.attention_norm = "layernorm_before";
  plan.names.mlp_norm = "layernorm_after";
  plan.registration = {"attention", "layernorm_before", "layernorm_after", "mlp"};
  return plan;
}

void append_vit_heads(Model& model, const Config& config, bool with_teacher) {
  model.task = Model::Task::image_classification;
  model.labels = config.labels();
  const int body = static_cast<int>(model.blocks.size()) - 1;
  if (!with_teacher) {
    Chain(Block::Role::head, "classifier", model.hidden_size, 1).dense("", model.labels).append_to(model);
    return;
  }
  // One head reads the class token, the other the distillation token.
  for (const char* name : {"cls_classifier", "distillation_classifier"}) {
    Chain(Block::Role::head, name, model.hidden_size, 1).dense("", model.labels).append_to(model);
    model.blocks.back().input = body;
  }
}

}  // namespace

Model build_vit(const Config& config) {
  const bool deit = config.model_type() == "deit";
  const Modules name(config, deit ? "deit" : "vit");
  const bool teacher = config.architecture_ends_with("ForImageClassificationWithTeacher");
  if (!name.base_model() && !teacher && !config.architecture_ends_with("ForImageClassification"))
    refuse_head(config, "ForImageClassification, ForImageClassificationWithTeacher (deit) and the base model");
  note_keys(config, {"num_labels", "encoder_stride", "pooler_output_size", "pooler_act"});
  Vision vision = vision_model(config, deit ? 2 : 1);
  Model& model = vision.model;
  model.intermediate_size = config.dimension("intermediate_size");
  append_image_embeddings(vision, {.name = name("embeddings"), .mask_token = false, .distillation_token = deit});
  Block layers = encoder_layer(vit_layer(model, config, name("layers")));
  layers.tokens = vision.tokens;
  model.blocks.push_back(std::move(layers));
  append_final_norm(model, layer_norm(model.hidden_size), name("layernorm"));
  model.blocks.back().tokens = vision.tokens;
  if (name.base_model()) {
    model.task = Model::Task::backbone;
    Chain(Block::Role::pooler, "pooler", model.hidden_size, 1)
        .dense("dense", config.dimension_or("pooler_output_size", model.hidden_size))
        .activation("activation", config.activation_or("pooler_act", "tanh"))
        .append_to(model);
  } else {
    append_vit_heads(model, config, teacher);
  }
  register_rest(model);
  return model;
}

}  // namespace plimsoll::model
