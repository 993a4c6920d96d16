// OPT: learned positions with an offset of two, an MLP of two linears, norms before (or, 350M, behind) the branches.
#include "model/families/decoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {
namespace {

constexpr std::int64_t kPositionOffset = 2;  // rows of the position table beyond max_position_embeddings

LayerPlan opt_layer(const Config& config, Model& model) {
  const bool bias = config.flag("enable_bias");
  model.intermediate_size = config.dimension("ffn_dim");
  LayerPlan layer;
  layer.stack = "model.decoder.layers";
  layer.placement = config.flag("do_layer_norm_before") ? NormPlacement::pre : NormPlacement::post;
  layer.norm = layer_norm();
  layer.norm.weight = layer.norm.bias = config.flag("layer_norm_elementwise_affine");
  layer.attention = plain_attention(model, Positions::learned);
  set_attention_bias(layer.attention, bias);
  layer.attention.dropout = config.rate_or("attention_dropout", 0.0);
  layer.mlp = plain_mlp(model, config.activation("activation_function"), bias);
  layer.hidden_dropout = config.rate_or("dropout", 0.0);
  layer.names.output = "out_proj";
  layer.names.mlp = "";
  layer.names.up = "fc1";
  layer.names.activation = "activation_fn";
  layer.names.down = "fc2";
  layer.names.attention_norm = "self_attn_layer_norm";
  layer.names.mlp_norm = "final_layer_norm";
  layer.registration = {
      "self_attn.k_proj", "self_attn.v_proj", "self_attn.q_proj", "self_attn.out_proj", "self_attn_layer_norm", "fc1", "fc2",
      "final_layer_norm"};
  return layer;
}

int append_projection(Model& model, const std::string& name, std::int64_t in, std::int64_t out) {
  BlockBuilder block(Block::Role::other, name);
  block.linear("", kBlockInput, {.in = in, .out = out});
  model.blocks.push_back(block.build());
  return static_cast<int>(model.blocks.size()) - 1;
}

/// Tokens, a projection where they are narrower than the hidden state, and positions. Answers the projection's block, or nothing.
std::optional<int> append_embeddings(Model& model, std::int64_t token_width) {
  const std::int64_t rows = model.max_positions + kPositionOffset;
  if (token_width == model.hidden_size) {
    append_token_embedding(model, {.module = "model.decoder", .position = "embed_positions", .position_rows = rows});
    return std::nullopt;
  }
  BlockBuilder tokens(Block::Role::embedding, "model.decoder.embed_tokens");
  tokens.add(embedding("", model.vocab_size, token_width), {kBlockInput});
  model.blocks.push_back(tokens.build());
  const int projection = append_projection(model, "model.decoder.project_in", token_width, model.hidden_size);
  BlockBuilder positions(Block::Role::embedding, "model.decoder");
  const int looked_up = positions.add(position_embedding("embed_positions", rows, model.hidden_size), {});
  positions.sum("positioned", kBlockInput, looked_up, model.hidden_size);
  model.blocks.push_back(positions.build());
  return projection;
}

}  // namespace

Model build_opt(const Config& config) {
  Model model = decoder_model(config);
  const std::int64_t token_width = config.dimension_or("word_embed_proj_dim", model.hidden_size);
  const LayerPlan layer = opt_layer(config, model);
  const auto project_in = append_embeddings(model, token_width);
  const int positions = static_cast<int>(model.blocks.size()) - 1;
  append_layers(model, layer);
  const int layers = positions + 1;
  const bool normed = layer.placement == NormPlacement::pre && !config.flag_or("_remove_final_layer_norm", false);
  if (normed) append_final_norm(model, layer.norm, "model.decoder.final_layer_norm");
  const int final_norm = static_cast<int>(model.blocks.size()) - 1;
  std::optional<int> project_out;
  if (project_in) project_out = append_projection(model, "model.decoder.project_out", model.hidden_size, token_width);
  append_head(model, config, {.width = token_width});

  // The module registers its stack last, behind tokens, positions, the projections (out before in) and the final norm.
  if (project_in) model.registration = {0};
  model.registration.push_back(positions);
  if (project_in) model.registration.insert(model.registration.end(), {*project_out, *project_in});
  if (normed) model.registration.push_back(final_norm);
  model.registration.push_back(layers);
  if (model.task != Model::Task::backbone) model.registration.push_back(static_cast<int>(model.blocks.size()) - 1);
  return model;
}

}  // namespace plimsoll::model
