// swin: a vision transformer whose layers attend within windows of patches, with four times fewer patches after every stage.
#include <fmt/format.h>

#include "model/families/families.hpp"
#include "model/families/towers.hpp"
#include "model/families/vision.hpp"
#include "model/operators/convolution.hpp"

namespace plimsoll::model {
namespace {

constexpr std::int64_t kMostStages = 16;

struct Stage {
  std::int64_t width, heads, layers, patches, window;
};

std::vector<Stage> stages_of(const Config& config) {
  const auto depths = config.find("depths"), heads = config.find("num_heads");
  if (!depths || !heads || depths->size() != heads->size() || depths->size() == 0 || depths->size() > kMostStages)
    config.fail_at("depths", "depths and num_heads are lists with one number per stage");
  std::int64_t width = config.dimension("embed_dim", 1 << 20);
  std::int64_t side = config.dimension("image_size", 1 << 16) / config.dimension("patch_size", 1 << 16);
  std::vector<Stage> stages;
  for (std::size_t i = 0; i < depths->size(); ++i) {
    stages.push_back({width, heads->at(i).integer(1, 1 << 20), depths->at(i).integer(1, kMostLayers), side * side,
                      config.dimension("window_size", 1 << 10)});
    config.require_divisible("embed_dim", width, "num_heads", stages.back().heads);
    width *= 2;
    side = (side + 1) / 2;
  }
  return stages;
}

/// Every head adds a learned bias for each offset between two patches of a window.
void add_position_bias(Block& block, const Stage& stage) {
  for (Operator& op : block.operators) {
    if (op.name != "attention.o_proj") continue;
    const std::string module = "attention.relative_position_bias.";
    const std::int64_t offsets = 2 * stage.window - 1, patches = stage.window * stage.window;
    op.parameters.push_back(parameter(module + "relative_position_bias_table", {offsets * offsets, stage.heads}));
    op.buffers.push_back({module + "relative_position_index", {patches * patches}, DType::int64, true});
  }
}

Block stage_layers(const Config& config, const Stage& stage, const std::string& name) {
  LayerPlan plan;
  plan.stack = name + ".blocks";
  plan.repeat = stage.layers;
  plan.norm = layer_norm(stage.width);
  plan.attention.hidden = stage.width;
  plan.attention.heads = plan.attention.kv_heads = stage.heads;
  plan.attention.head_dim = stage.width / stage.heads;
  plan.attention.causal = false;
  plan.attention.positions = Positions::relative_bias;
  plan.attention.qkv_bias = config.flag("qkv_bias");
  plan.attention.output_bias = true;
  plan.attention.dropout = config.rate_or("attention_probs_dropout_prob", 0.0);
  plan.mlp = MlpSpec{.hidden = stage.width,
                     .intermediate = static_cast<std::int64_t>(static_cast<double>(stage.width) * config.number("mlp_ratio", 1e-6, 1e6)),
                     .gated = false,
                     .fused_gate_up = false,
                     .bias = true,
                     .activation = config.activation("hidden_act")};
  plan.hidden_dropout = config.rate_or("hidden_dropout_prob", 0.0);
  plan.names.attention = "attention";
  plan.names.up = "fc1";
  plan.names.down = "fc2";
  plan.names.activation = "activation_fn";
  plan.names.attention_norm = "layernorm_before";
  plan.names.mlp_norm = "layernorm_after";
  plan.registration = {"attention", "layernorm_before", "layernorm_after", "mlp"};
  Block block = encoder_layer(plan);
  block.tokens = stage.patches;
  add_position_bias(block, stage);
  return block;
}

/// Four neighbouring patches become one of twice the width (SwinPatchMerging).
void append_downsampling(Model& model, const Stage& next, const std::string& name) {
  const std::int64_t wide = 2 * next.width;
  BlockBuilder block(Block::Role::other, name + ".downsample");
  block.linear("reduction", block.norm("norm", kBlockInput, layer_norm(wide)), {.in = wide, .out = next.width});
  block.block().tokens = next.patches;
  model.blocks.push_back(block.build({"reduction", "norm"}));
}

void append_patches(Model& model, const Config& config, const Stage& first, const std::string& name) {
  BlockBuilder block(Block::Role::embedding, name);
  const int x =
      block.add(patch_embedding("patch_embeddings.projection", config.dimension("num_channels", 1 << 16), model.patch_size, first.width),
                {kBlockInput});
  block.dropout("dropout", block.norm("norm", x, layer_norm(first.width)), config.rate_or("hidden_dropout_prob", 0.0), first.width);
  block.block().tokens = first.patches;
  model.blocks.push_back(block.build());
}

}  // namespace

Model build_swin(const Config& config) {
  const Modules name(config, "swin");
  if (!name.base_model() && !config.architecture_ends_with("ForImageClassification"))
    refuse_head(config, "ForImageClassification and the base model");
  if (config.flag_or("use_absolute_embeddings", false)) config.refuse_at("use_absolute_embeddings", "absolute positions are not modelled");
  note_keys(config, {"num_labels", "encoder_stride", "drop_path_rate", "hidden_size", "num_layers", "path_norm"});
  const std::vector<Stage> stages = stages_of(config);
  Model model = counted_model(config);
  model.image_size = config.dimension("image_size", 1 << 16);
  model.patch_size = config.dimension("patch_size", 1 << 16);
  model.channels = config.dimension("num_channels", 1 << 16);
  model.hidden_size = stages.back().width;
  model.heads = model.kv_heads = stages.back().heads;
  model.head_dim = model.hidden_size / model.heads;
  append_patches(model, config, stages.front(), name("embeddings"));
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const std::string stage = fmt::format("{}.{}", name("encoder.layers"), i);
    model.layers += stages[i].layers;
    model.blocks.push_back(stage_layers(config, stages[i], stage));
    if (i + 1 < stages.size()) append_downsampling(model, stages[i + 1], stage);
  }
  append_final_norm(model, layer_norm(model.hidden_size), name("layernorm"));
  model.blocks.back().tokens = stages.back().patches;
  if (name.base_model()) return model;
  model.task = Model::Task::image_classification;
  model.labels = config.labels();
  Chain(Block::Role::head, "classifier", model.hidden_size, 1).dense("", model.labels).append_to(model);
  return model;
}

}  // namespace plimsoll::model
