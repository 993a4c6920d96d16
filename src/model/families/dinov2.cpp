// dinov2: a vision transformer whose branches are scaled by a learned vector, perhaps with a gated MLP.
#include "model/families/families.hpp"
#include "model/families/vision.hpp"

namespace plimsoll::model {
namespace {

MlpSpec dinov2_mlp(const Model& model, const Config& config) {
  const double ratio = config.number_or("mlp_ratio", 4, 1e-6, 1e6);
  const auto inner = static_cast<std::int64_t>(static_cast<double>(model.hidden_size) * ratio);
  MlpSpec spec;
  spec.hidden = model.hidden_size;
  spec.bias = true;
  spec.gated = config.flag_or("use_swiglu_ffn", false);
  // The gated MLP keeps two thirds of the width, rounded up to a multiple of 8.
  const auto two_thirds = static_cast<std::int64_t>(static_cast<double>(inner) * 2 / 3);
  spec.intermediate = spec.gated ? round_up(two_thirds, 8) : inner;
  spec.activation = spec.gated ? "silu" : config.activation_or("hidden_act", "gelu");
  return spec;
}

LayerPlan dinov2_layer(const Model& model, const Config& config, const std::string& stack) {
  LayerPlan plan;
  plan.stack = stack;
  plan.repeat = model.layers;
  plan.norm = layer_norm(model.hidden_size);
  plan.attention = bidirectional_attention(model, config.rate_or("attention_probs_dropout_prob", 0.0));
  plan.attention.qkv_bias = config.flag_or("qkv_bias", true);
  plan.mlp = dinov2_mlp(model, config);
  plan.names.attention = "attention";
  if (!plan.mlp->gated) {
    plan.names.up = "fc1";
    plan.names.down = "fc2";
    plan.names.activation = "activation";
  }
  plan.names.attention_norm = "norm1";
  plan.names.mlp_norm = "norm2";
  plan.registration = {"norm1", "attention", "layer_scale1", "norm2", "mlp", "layer_scale2"};
  return plan;
}

Operator layer_scale(const std::string& name, std::int64_t width) {
  Operator op = scale(name, width);
  op.parameters.push_back(parameter(name + ".lambda1", {width}));
  return op;
}

Block scaled_layer(const LayerPlan& plan) {
  BlockBuilder builder(Block::Role::encoder, plan.stack, plan.repeat);
  const std::int64_t width = plan.attention.hidden;
  const int attended = add_attention(builder, builder.norm("norm1", kBlockInput, plan.norm), plan);
  const int x = builder.sum("residual_attention", kBlockInput, builder.add(layer_scale("layer_scale1", width), {attended}), width);
  const int fed = add_mlp(builder, builder.norm("norm2", x, plan.norm), plan);
  builder.sum("residual_mlp", x, builder.add(layer_scale("layer_scale2", width), {fed}), width);
  Block& block = builder.block();
  block.norm = plan.norm;
  block.attention = plan.attention;
  block.mlp = plan.mlp;
  return builder.build(plan.registration);
}

}  // namespace

Model build_dinov2(const Config& config) {
  const Modules name(config, "dinov2");
  if (!name.base_model() && !config.architecture_ends_with("ForImageClassification"))
    refuse_head(config, "ForImageClassification and the base model");
  if (config.rate_or("drop_path_rate", 0.0) > 0) config.refuse_at("drop_path_rate", "branches dropped at random are not modelled");
  note_keys(config,
            {"num_labels", "layerscale_value", "apply_layernorm", "reshape_hidden_states", "out_features", "out_indices", "stage_names"});
  Vision vision = vision_model(config, 1);
  Model& model = vision.model;
  append_image_embeddings(vision,
                          {.name = name("embeddings"), .mask_token = config.flag_or("use_mask_token", true), .distillation_token = false});
  const LayerPlan plan = dinov2_layer(model, config, name("encoder.layer"));
  model.intermediate_size = plan.mlp->intermediate;
  model.blocks.push_back(scaled_layer(plan));
  model.blocks.back().tokens = vision.tokens;
  append_final_norm(model, plan.norm, name("layernorm"));
  model.blocks.back().tokens = vision.tokens;
  model.task = Model::Task::backbone;
  if (!name.base_model()) {
    model.task = Model::Task::image_classification;
    model.labels = config.labels();
    // It reads the class token beside the mean of the patches.
    Chain(Block::Role::head, "classifier", 2 * model.hidden_size, 1).dense("", model.labels).append_to(model);
  }
  register_rest(model);
  return model;
}

}  // namespace plimsoll::model
