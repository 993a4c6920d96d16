// llava, gemma3, qwen2_vl, qwen2_5_vl: a vision tower whose patches, projected, stand among the words of a language model. A training step
// is one of text alone.
#include "model/families/decoder.hpp"
#include "model/families/encoder.hpp"
#include "model/families/families.hpp"
#include "model/families/towers.hpp"
#include "model/registry.hpp"

namespace plimsoll::model {
namespace {

/// "visual" → "model.visual"; in the base model, whose modules carry no prefix: "visual".
Modules modules_of(const Config& config) {
  if (!config.architecture_ends_with("Model") && !config.architecture_ends_with("ForConditionalGeneration"))
    refuse_head(config, "ForConditionalGeneration and the base model");
  return {config, "model"};
}

/// The base class of a language model, by the family of its config.
Model build_language_model(const Config& text) {
  const Family* family = find_family(text.model_type());
  if (family == nullptr) text.refuse_at("model_type", "the language model \"" + text.model_type() + "\" is not modelled");
  return family->build(text.as(text.model_type(), std::string(family->class_prefix) + "Model"));
}

/// Appends the blocks of a base language model, its modules under `prefix`; its dimensions become the model's.
void append_language_model(Model& model, Model text, const std::string& prefix) {
  const int before = static_cast<int>(model.blocks.size());
  for (Block& block : text.blocks) {
    block.name = prefix + "." + block.name;
    if (block.input) *block.input += before;
    for (int& side : block.side_inputs) side += before;
    model.blocks.push_back(std::move(block));
  }
  model.hidden_size = text.hidden_size;
  model.layers = text.layers;
  model.heads = text.heads;
  model.kv_heads = text.kv_heads;
  model.head_dim = text.head_dim;
  model.intermediate_size = text.intermediate_size;
  model.vocab_size = text.vocab_size;
  model.max_positions = text.max_positions;
  model.logit_softcap = text.logit_softcap;
}

void append_vocabulary_head(Model& model, const Config& config, const std::string& embedding) {
  if (config.architecture_ends_with("Model")) return;
  model.task = Model::Task::causal_lm;
  model.tied_embeddings = config.flag("tie_word_embeddings");
  Chain(Block::Role::head, "lm_head", model.hidden_size)
      .vocabulary("", model.vocab_size, model.tied_embeddings ? embedding : "", false)
      .append_to(model);
}

/// Language models whose layers run within a model of images and text as they do alone.
bool is_modelled_beside_images(const std::string& text) {
  return text == "llama" || text == "gemma3_text" || text == "qwen2_vl_text" || text == "qwen2_5_vl_text";
}

/// What every class here is: tower, projector, language model, head.
template <class AppendTower>
Model image_and_text(const Config& config, const Config& text, AppendTower append_tower) {
  const Modules name = modules_of(config);
  note_keys(config, {"image_token_index", "boi_token_index", "eoi_token_index", "image_token_id", "video_token_id", "vision_start_token_id",
                     "vision_end_token_id", "vision_token_id", "ignore_index"});
  Model model = counted_model(config);
  Model language = build_language_model(text);
  append_tower(model, name, language.hidden_size);
  for (Block& block : model.blocks) {  // rests where no image is given
    block.stream = Block::Stream::second;
    block.tokens = 0;
  }
  model.activations_modelled = is_modelled_beside_images(text.model_type()) && !config.architecture_ends_with("Model");
  if (model.activations_modelled) model.assumed.push_back("a batch of text alone: the vision tower rests");
  append_language_model(model, std::move(language), name("language_model"));
  append_vocabulary_head(model, config, name("language_model") + ".embed_tokens.weight");
  return model;
}

struct QwenTower {
  std::int64_t width, intermediate, out;
  bool gated;  ///< 2.5: RMS norms and gated MLPs
};

/// Patches of several frames, layers with rotated positions, and the merger of neighbouring patches.
void append_qwen_tower(Model& model, const Config& vision, const QwenTower& tower, const std::string& name) {
  note_keys(vision, {"in_chans", "hidden_size", "window_size", "tokens_per_second", "spatial_patch_size"});
  if (const auto layers = vision.find("fullatt_block_indexes")) layers->mark_read();
  const std::int64_t heads = vision.dimension("num_heads"), merged = vision.dimension("spatial_merge_size", 64),
                     patch = vision.dimension("patch_size", 1 << 16);
  vision.require_divisible("num_heads", tower.width, "num_heads", heads);
  const std::int64_t pixels =
      product({vision.dimension("in_channels", 1 << 16), vision.dimension("temporal_patch_size", 1 << 16), patch, patch});
  const auto first = model.blocks.size();
  Chain(Block::Role::embedding, name + ".patch_embed", pixels).dense("proj", tower.width, false).append_to(model);
  model.blocks.back().operators.front().parameters.front().shape = {tower.width, vision.dimension("in_channels"),
                                                                    vision.dimension("temporal_patch_size"), patch, patch};
  append_rotary(model, tower.width / heads / 2, name + ".rotary_pos_emb");  // rows and columns rotate a half of a head each
  NormSpec norm;
  if (!tower.gated) norm = layer_norm(tower.width);
  norm.width = tower.width;
  LayerPlan plan;
  plan.stack = name + ".blocks";
  plan.repeat = vision.dimension("depth", kMostLayers);
  plan.norm = norm;
  plan.attention.hidden = tower.width;
  plan.attention.heads = plan.attention.kv_heads = heads;
  plan.attention.head_dim = tower.width / heads;
  plan.attention.causal = false;
  plan.attention.fused_qkv = true;
  set_attention_bias(plan.attention, true);
  plan.mlp = MlpSpec{.hidden = tower.width,
                     .intermediate = tower.intermediate,
                     .gated = tower.gated,
                     .fused_gate_up = false,
                     .bias = true,
                     .activation = vision.activation("hidden_act")};
  plan.names.attention = "attn";
  plan.names.qkv = "qkv";
  plan.names.output = "proj";
  plan.names.attention_norm = "norm1";
  plan.names.mlp_norm = "norm2";
  if (!tower.gated) plan.names.up = "fc1", plan.names.down = "fc2";
  plan.registration = {"norm1", "norm2", "attn", "mlp"};
  model.blocks.push_back(encoder_layer(plan));

  const std::int64_t wide = product({tower.width, merged, merged});
  BlockBuilder merger(Block::Role::other, name + ".merger");
  int x = merger.norm("ln_q", kBlockInput, norm);
  x = merger.linear("mlp.0", x, {.in = wide, .out = wide, .bias = true, .parallel = Parallel::column});
  x = merger.activation("mlp.1", x, "gelu", wide);
  merger.linear("mlp.2", x, {.in = wide, .out = tower.out, .bias = true, .parallel = Parallel::row});
  model.blocks.push_back(merger.build());
  for (auto block = first; block < model.blocks.size(); ++block) model.blocks[block].stream = Block::Stream::second;
}

/// Older configs keep the language model's keys beside the vision tower's.
Config qwen_text(const Config& config) {
  const std::string type = config.model_type() + "_text";
  return config.find("text_config") ? config.part("text_config", type, "") : config.as(type, "");
}

}  // namespace

Model build_llava(const Config& config) {
  note_keys(config, {"vision_feature_select_strategy", "image_seq_length"});
  if (const auto layer = config.find("vision_feature_layer")) layer->mark_read();
  const Config vision = config.part("vision_config", "clip_vision_model", "");
  if (vision.model_type() != "clip_vision_model" && vision.model_type() != "siglip_vision_model")
    vision.refuse_at("model_type", "the vision tower \"" + vision.model_type() + "\" is not modelled");
  const TowerKind kind = vision.model_type() == "clip_vision_model" ? TowerKind::clip : TowerKind::siglip;
  const bool bias = config.flag("multimodal_projector_bias");
  return image_and_text(config, config.part("text_config", "llama", ""), [&](Model& model, const Modules& name, std::int64_t width) {
    append_vision_tower(model, vision, kind, name("vision_tower"));
    Chain(Block::Role::other, name("multi_modal_projector"), vision.dimension("hidden_size"))
        .dense("linear_1", width, bias)
        .activation("act", config.activation("projector_hidden_act"))
        .dense("linear_2", width, bias)
        .append_to(model);
  });
}

Model build_gemma3(const Config& config) {
  note_keys(config, {"mm_tokens_per_image"});
  Config vision = config.part("vision_config", "siglip_vision_model", "");
  return image_and_text(config, config.part("text_config", "gemma3_text", ""), [&](Model& model, const Modules& name, std::int64_t width) {
    append_vision_tower(model, vision, TowerKind::siglip, name("vision_tower"));
    // Pooled patches are normed, then projected by a bare matrix; the matrix is registered first.
    const std::int64_t tower = vision.dimension("hidden_size");
    NormSpec norm;
    norm.width = tower;
    norm.unit_offset = true;
    BlockBuilder projector(Block::Role::other, name("multi_modal_projector"));
    Operator matrix = linear("mm_input_projection_weight", {.in = tower, .out = width});
    matrix.parameters.front() = parameter("mm_input_projection_weight", {tower, width});
    projector.add(std::move(matrix), {projector.norm("mm_soft_emb_norm", kBlockInput, norm)});
    projector.block().stream = Block::Stream::second;
    model.blocks.push_back(projector.build({"mm_input_projection_weight", "mm_soft_emb_norm"}));
  });
}

Model build_qwen2_vl(const Config& config) {
  const Config vision = config.part("vision_config", "qwen2_vl_vision", "").as("qwen2_vl_vision", "");
  return image_and_text(config, qwen_text(config), [&](Model& model, const Modules& name, std::int64_t) {
    const std::int64_t width = vision.dimension("embed_dim");
    const double ratio = vision.number("mlp_ratio", 0.001, 1e4);
    append_qwen_tower(model, vision,
                      {width, static_cast<std::int64_t>(static_cast<double>(width) * ratio), vision.dimension("hidden_size"), false},
                      name("visual"));
  });
}

Model build_qwen2_5_vl(const Config& config) {
  const Config vision = config.part("vision_config", "qwen2_5_vl_vision", "").as("qwen2_5_vl_vision", "");
  return image_and_text(config, qwen_text(config), [&](Model& model, const Modules& name, std::int64_t) {
    append_qwen_tower(model, vision,
                      {vision.dimension("hidden_size"), vision.dimension("intermediate_size"), vision.dimension("out_hidden_size"), true},
                      name("visual"));
  });
}

}  // namespace plimsoll::model
