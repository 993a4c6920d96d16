#include "model/families/towers.hpp"

#include "model/families/encoder.hpp"
#include "model/families/vision.hpp"
#include "model/operators/convolution.hpp"

namespace plimsoll::model {
namespace {

struct TowerSizes {
  std::int64_t width, layers, heads, intermediate;
};

TowerSizes sizes_of(const Config& config) {
  const TowerSizes sizes{config.dimension("hidden_size"), config.layers(), config.dimension("num_attention_heads"),
                         config.dimension("intermediate_size")};
  config.require_divisible("hidden_size", sizes.width, "num_attention_heads", sizes.heads);
  return sizes;
}

Block tower_layers(const Config& config, const TowerSizes& sizes, TowerKind kind, bool causal, const std::string& stack) {
  LayerPlan plan;
  plan.stack = stack;
  plan.repeat = sizes.layers;
  plan.norm = layer_norm(sizes.width);
  plan.attention.hidden = sizes.width;
  plan.attention.heads = plan.attention.kv_heads = sizes.heads;
  plan.attention.head_dim = sizes.width / sizes.heads;
  plan.attention.causal = causal;
  plan.attention.positions = Positions::learned;
  plan.attention.dropout = config.rate_or("attention_dropout", 0.0);
  set_attention_bias(plan.attention, true);
  plan.mlp = MlpSpec{.hidden = sizes.width,
                     .intermediate = sizes.intermediate,
                     .gated = false,
                     .fused_gate_up = false,
                     .bias = true,
                     .activation = config.activation("hidden_act")};
  plan.names.output = "out_proj";
  plan.names.up = "fc1";
  plan.names.down = "fc2";
  plan.names.activation = "activation_fn";
  plan.names.attention_norm = "layer_norm1";
  plan.names.mlp_norm = "layer_norm2";
  plan.registration = {"self_attn.k_proj", "self_attn.v_proj", "self_attn.q_proj", "self_attn.out_proj"};
  const std::vector<std::string> rest = kind == TowerKind::clip ? std::vector<std::string>{"layer_norm1", "mlp", "layer_norm2"}
                                                                : std::vector<std::string>{"layer_norm2", "mlp"};
  if (kind == TowerKind::siglip) plan.registration.insert(plan.registration.begin(), "layer_norm1");
  plan.registration.insert(plan.registration.end(), rest.begin(), rest.end());
  return encoder_layer(plan);
}

void append_tower_norm(Model& model, const std::string& name, std::int64_t width, std::int64_t tokens) {
  Chain(Block::Role::other, name, width, tokens).norm("").append_to(model);
}

/// Patches of the image behind the class token, where there is one, and the positions of both.
std::int64_t append_patches(Model& model, const Config& config, TowerKind kind, const std::string& name, std::int64_t width) {
  constexpr std::int64_t kLargestImage = 1 << 16;
  const std::int64_t image = config.dimension("image_size", kLargestImage), patch = config.dimension("patch_size", kLargestImage);
  const std::int64_t side = image / patch, tokens = side * side + (kind == TowerKind::clip ? 1 : 0);
  BlockBuilder patches(Block::Role::embedding, name);
  const int pixels = patches.add(
      patch_embedding("patch_embedding", config.dimension("num_channels", kLargestImage), patch, width, kind == TowerKind::siglip),
      {kBlockInput});
  if (kind == TowerKind::clip) patches.add(learned(OperatorKind::reshape, "class_embedding", {width}, width), {pixels});
  patches.block().tokens = side * side;
  model.blocks.push_back(patches.build({"class_embedding", "patch_embedding"}));

  BlockBuilder positions(Block::Role::embedding, name);
  Operator table = position_embedding("position_embedding", tokens, width);
  table.buffers.push_back({"position_ids", {1, tokens}, DType::int64, false});
  positions.sum("positioned", kBlockInput, positions.add(std::move(table), {}), width);
  positions.block().tokens = tokens;
  model.blocks.push_back(positions.build());
  return tokens;
}

/// A learned query attends to all patches; an MLP with a residual follows (SiglipMultiheadAttentionPoolingHead).
void append_pooling_head(Model& model, const Config& config, const TowerSizes& sizes, const std::string& name) {
  BlockBuilder head(Block::Role::pooler, name);
  const int probe = head.add(learned(OperatorKind::reshape, "probe", {1, 1, sizes.width}, sizes.width), {kBlockInput});
  Operator qkv = linear("attention", {.in = sizes.width, .out = 3 * sizes.width, .bias = true, .parallel = Parallel::column});
  qkv.parameters[0].name = "attention.in_proj_weight";
  qkv.parameters[1].name = "attention.in_proj_bias";
  AttentionSpec spec;
  spec.hidden = sizes.width;
  spec.heads = spec.kv_heads = sizes.heads;
  spec.head_dim = sizes.width / sizes.heads;
  spec.causal = false;
  const int context = head.add(attention("attention.products", spec), {head.add(std::move(qkv), {probe})});
  const int pooled =
      head.linear("attention.out_proj", context, {.in = sizes.width, .out = sizes.width, .bias = true, .parallel = Parallel::row});
  const int normed = head.norm("layernorm", pooled, layer_norm(sizes.width));
  const int up = head.linear("mlp.fc1", normed, {.in = sizes.width, .out = sizes.intermediate, .bias = true, .parallel = Parallel::column});
  const int active = head.activation("mlp.activation_fn", up, config.activation("hidden_act"), sizes.intermediate);
  const int down = head.linear("mlp.fc2", active, {.in = sizes.intermediate, .out = sizes.width, .bias = true, .parallel = Parallel::row});
  head.sum("residual", pooled, down, sizes.width);
  head.block().tokens = 1;
  model.blocks.push_back(head.build());
}

}  // namespace

Model counted_model(const Config& config) {
  Model model;
  model.name = config.name();
  model.model_type = config.model_type();
  model.architecture = config.architecture();
  model.task = Model::Task::backbone;
  model.activations_modelled = false;
  return model;
}

void append_vision_tower(Model& model, const Config& vision, TowerKind kind, const std::string& name) {
  note_keys(vision, {"projection_dim", "vocab_size"});
  const TowerSizes sizes = sizes_of(vision);
  const auto first = model.blocks.size();
  const std::int64_t tokens = append_patches(model, vision, kind, name + ".embeddings", sizes.width);
  if (kind == TowerKind::clip) append_tower_norm(model, name + ".pre_layrnorm", sizes.width, tokens);
  model.blocks.push_back(tower_layers(vision, sizes, kind, false, name + ".encoder.layers"));
  model.blocks.back().tokens = tokens;
  append_tower_norm(model, name + ".post_layernorm", sizes.width, kind == TowerKind::clip ? 1 : tokens);
  if (kind == TowerKind::siglip && vision.flag("vision_use_head")) append_pooling_head(model, vision, sizes, name + ".head");
  for (auto block = first; block < model.blocks.size(); ++block) model.blocks[block].stream = Block::Stream::second;
}

void append_text_tower(Model& model, const Config& text, TowerKind kind, const std::string& name) {
  const TowerSizes sizes = sizes_of(text);
  model.hidden_size = sizes.width;
  model.layers = sizes.layers;
  model.heads = model.kv_heads = sizes.heads;
  model.head_dim = sizes.width / sizes.heads;
  model.intermediate_size = sizes.intermediate;
  model.vocab_size = text.dimension("vocab_size");
  model.max_positions = text.dimension("max_position_embeddings");
  append_token_embedding(
      model,
      {.module = name + ".embeddings", .token = "token_embedding", .position = "position_embedding", .position_rows = model.max_positions});
  model.blocks.back().operators.front().buffers.push_back({"position_ids", {1, model.max_positions}, DType::int64, false});
  model.blocks.push_back(tower_layers(text, sizes, kind, kind == TowerKind::clip, name + ".encoder.layers"));
  append_tower_norm(model, name + ".final_layer_norm", sizes.width, 0);
  if (kind == TowerKind::siglip)
    Chain(Block::Role::pooler, name + ".head", sizes.width, 1)
        .dense("", text.dimension_or("projection_size", sizes.width))
        .append_to(model);
  else
    note_keys(text, {"projection_dim"});
}

}  // namespace plimsoll::model
