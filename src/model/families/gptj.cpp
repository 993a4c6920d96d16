// GPT-J and CodeGen: one norm feeds both branches, rotation from tables that every layer keeps, no attention biases.
#include "model/families/decoder.hpp"
#include "model/families/families.hpp"

namespace plimsoll::model {
namespace {

LayerPlan gptj_layer(const Config& config, Model& model) {
  model.intermediate_size = config.dimension_or("n_inner", product({4, model.hidden_size}));
  model.embedding_dropout = config.rate_or("embd_pdrop", 0.0);
  LayerPlan layer;
  layer.stack = "transformer.h";
  layer.placement = NormPlacement::parallel;
  layer.norm = layer_norm();
  layer.attention = plain_attention(model, Positions::rope);
  layer.attention.rotary_dim = config.optional_dimension("rotary_dim", model.head_dim).value_or(model.head_dim);
  layer.attention.dropout = config.rate_or("attn_pdrop", 0.0);
  // Without a rotary_dim the tables are as wide as the hidden state.
  const std::int64_t table_width = config.optional_dimension("rotary_dim").value_or(model.hidden_size);
  layer.attention_buffers = {{"attn.embed_positions", {model.max_positions, table_width}, DType::fp32, false}};
  layer.mlp = plain_mlp(model, config.activation("activation_function"), true);
  layer.hidden_dropout = config.rate_or("resid_pdrop", 0.0);
  layer.names.attention = "attn";
  layer.names.output = "out_proj";
  layer.names.up = "fc_in";
  layer.names.activation = "act";
  layer.names.down = "fc_out";
  layer.names.attention_norm = "ln_1";
  return layer;
}

Model assemble(Model model, const Config& config, const LayerPlan& layer) {
  append_token_embedding(model, {.module = "transformer", .token = "wte"});
  append_layers(model, layer);
  append_final_norm(model, layer.norm, "transformer.ln_f");
  append_head(model, config, {.bias = true});
  return model;
}

}  // namespace

Model build_gptj(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = gptj_layer(config, model);
  layer.registration = {"ln_1", "attn.k_proj", "attn.v_proj", "attn.q_proj", "attn.out_proj", "mlp"};
  return assemble(std::move(model), config, layer);
}

Model build_codegen(const Config& config) {
  Model model = decoder_model(config);
  LayerPlan layer = gptj_layer(config, model);
  layer.attention.fused_qkv = true;
  layer.registration = {"ln_1", "attn", "mlp"};
  return assemble(std::move(model), config, layer);
}

}  // namespace plimsoll::model
