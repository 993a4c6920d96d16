// wav2vec2: a waveform through convolutions, and an encoder with a convolution for positions.
#include <fmt/format.h>

#include <numeric>

#include "model/families/encoder.hpp"
#include "model/families/families.hpp"
#include "model/families/towers.hpp"
#include "model/families/vision.hpp"
#include "model/operators/convolution.hpp"

namespace plimsoll::model {
namespace {

std::vector<std::int64_t> sizes_at(const Config& config, const char* key) {
  std::vector<std::int64_t> sizes;
  const auto list = config.find(key);
  if (!list) config.fail_at(key, "the sizes of the convolutions are needed");
  for (const auto& element : list->elements()) sizes.push_back(element.integer(1, 1 << 20));
  return sizes;
}

/// The waveform's convolutions; FLOPs are per position of the encoder, which the strides make fewer than samples.
std::int64_t append_feature_extractor(Model& model, const Config& config, const std::string& name) {
  const std::vector<std::int64_t> widths = sizes_at(config, "conv_dim"), kernels = sizes_at(config, "conv_kernel"),
                                  strides = sizes_at(config, "conv_stride");
  if (widths.empty() || widths.size() != kernels.size() || widths.size() != strides.size())
    config.fail_at("conv_dim", "conv_dim, conv_kernel and conv_stride are lists of equal length");
  const std::string norms = config.text("feat_extract_norm");
  if (norms != "group" && norms != "layer") config.fail_at("feat_extract_norm", "is \"group\" or \"layer\"");
  const bool bias = config.flag("conv_bias");
  BlockBuilder block(Block::Role::embedding, name);
  double outputs =
      std::accumulate(strides.begin(), strides.end(), 1.0, [](double all, std::int64_t one) { return all * static_cast<double>(one); });
  int x = kBlockInput;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const std::string layer = fmt::format("conv_layers.{}", i);
    outputs /= static_cast<double>(strides[i]);
    x = block.add(
        sequence_convolution(
            layer + ".conv",
            {.in = i == 0 ? 1 : widths[i - 1], .out = widths[i], .kernel = kernels[i], .bias = bias, .outputs_per_token = outputs}),
        {x});
    if (norms == "layer" || i == 0) x = block.norm(layer + ".layer_norm", x, layer_norm(widths[i]));
    x = block.activation(layer + ".activation", x, config.activation("feat_extract_activation"), widths[i]);
  }
  model.blocks.push_back(block.build());
  return widths.back();
}

/// A grouped convolution over the positions, its weight normed: a direction and a length per tap (torch.nn.utils.parametrizations).
void append_positions(Model& model, const Config& config, const std::string& encoder) {
  const std::int64_t width = model.hidden_size, taps = config.dimension("num_conv_pos_embeddings", 1 << 16),
                     groups = config.dimension("num_conv_pos_embedding_groups", 1 << 16);
  BlockBuilder block(Block::Role::embedding, encoder);
  Operator op = sequence_convolution("pos_conv_embed.conv", {.in = width, .out = width, .kernel = taps, .groups = groups, .bias = true});
  const std::string weight = "pos_conv_embed.conv.parametrizations.weight.original";
  op.parameters = {op.parameters[1], parameter(weight + "0", {1, 1, taps}), parameter(weight + "1", op.parameters[0].shape)};
  const int positions =
      block.activation("pos_conv_embed.activation", block.add(std::move(op), {kBlockInput}), config.activation("feat_extract_activation"), width);
  block.sum("positioned", kBlockInput, positions, width);
  model.blocks.push_back(block.build());
}

LayerPlan wav2vec2_layer(const Model& model, const Config& config, const std::string& stack, bool stable) {
  LayerPlan plan;
  plan.stack = stack;
  plan.repeat = model.layers;
  plan.placement = stable ? NormPlacement::pre : NormPlacement::post;
  plan.norm = layer_norm(model.hidden_size);
  plan.attention = bidirectional_attention(model, config.rate_or("attention_dropout", 0.0));
  plan.mlp = MlpSpec{.hidden = model.hidden_size,
                     .intermediate = model.intermediate_size,
                     .gated = false,
                     .fused_gate_up = false,
                     .bias = true,
                     .activation = config.activation("hidden_act"),
                     .dropout = config.rate_or("activation_dropout", 0.0)};
  plan.hidden_dropout = config.rate_or("hidden_dropout", 0.0);
  plan.names.attention = "attention";
  plan.names.output = "out_proj";
  plan.names.attention_norm = "layer_norm";
  plan.names.mlp = "feed_forward";
  plan.names.up = "intermediate_dense";
  plan.names.activation = "intermediate_act_fn";
  plan.names.down = "output_dense";
  plan.names.mlp_norm = "final_layer_norm";
  plan.registration = {"attention.k_proj", "attention.v_proj", "attention.q_proj", "attention.out_proj",
                       "layer_norm",       "feed_forward",     "final_layer_norm"};
  return plan;
}

void append_body(Model& model, const Config& config, const Modules& name) {
  const std::int64_t features = append_feature_extractor(model, config, name("feature_extractor"));
  Chain projection(Block::Role::other, name("feature_projection"), features);
  projection.norm("layer_norm").dense("projection", model.hidden_size).dropout(config.rate_or("feat_proj_dropout", 0.0)).append_to(model);
  if (config.rate_or("mask_time_prob", 0.0) > 0 || config.rate_or("mask_feature_prob", 0.0) > 0) {
    // Masked positions take a learned vector, which the model registers first.
    BlockBuilder masked(Block::Role::embedding, name.base_model() ? "" : name("").substr(0, name("").size() - 1));
    masked.add(learned(OperatorKind::reshape, "masked_spec_embed", {model.hidden_size}, model.hidden_size), {kBlockInput});
    model.blocks.push_back(masked.build());
    model.registration = {2, 0, 1};
  } else {
    model.registration = {0, 1};
  }
  append_positions(model, config, name("encoder"));
  const bool stable = config.flag("do_stable_layer_norm");
  const auto append_norm = [&] { Chain(Block::Role::other, name("encoder.layer_norm"), model.hidden_size).norm("").append_to(model); };
  const auto append_stack = [&] { model.blocks.push_back(encoder_layer(wav2vec2_layer(model, config, name("encoder.layers"), stable))); };
  // Post-norm layers follow the norm, pre-norm ones are followed by it; it is registered before either.
  if (stable) {
    append_stack();
    append_norm();
  } else {
    append_norm();
    append_stack();
  }
  const int last = static_cast<int>(model.blocks.size()) - 1;
  model.registration.push_back(last - 2);
  model.registration.push_back(stable ? last : last - 1);
  model.registration.push_back(stable ? last - 1 : last);
}

}  // namespace

Model build_wav2vec2(const Config& config) {
  const Modules name(config, "wav2vec2");
  if (!name.base_model() && !config.architecture_ends_with("ForCTC")) refuse_head(config, "ForCTC and the base model");
  if (config.flag_or("add_adapter", false)) config.refuse_at("add_adapter", "the adapter behind the encoder is not modelled");
  if (config.optional_dimension("adapter_attn_dim")) config.refuse_at("adapter_attn_dim", "adapters within the layers are not modelled");
  note_keys(config, {"apply_spec_augment",
                     "final_dropout",
                     "layerdrop",
                     "output_hidden_size",
                     "use_weighted_layer_sum",
                     "num_labels",
                     "classifier_proj_size",
                     "codevector_dim",
                     "proj_codevector_dim",
                     "num_codevector_groups",
                     "num_codevectors_per_group",
                     "num_negatives",
                     "contrastive_logits_temperature",
                     "diversity_loss_weight",
                     "feat_quantizer_dropout",
                     "ctc_loss_reduction",
                     "ctc_zero_infinity",
                     "mask_time_length",
                     "mask_feature_length",
                     "adapter_kernel_size",
                     "adapter_stride",
                     "num_adapter_layers",
                     "xvector_output_dim",
                     "num_feat_extract_layers"});
  Model model = counted_model(config);
  model.layers = config.layers();
  model.hidden_size = config.dimension("hidden_size");
  model.heads = model.kv_heads = config.dimension("num_attention_heads");
  config.require_divisible("hidden_size", model.hidden_size, "num_attention_heads", model.heads);
  model.head_dim = model.hidden_size / model.heads;
  model.intermediate_size = config.dimension("intermediate_size");
  append_body(model, config, name);
  if (name.base_model()) {
    note_keys(config, {"vocab_size"});
    return model;
  }
  model.vocab_size = config.dimension("vocab_size");
  Chain(Block::Role::head, "lm_head", model.hidden_size).vocabulary("", model.vocab_size, "", true).append_to(model);
  model.registration.push_back(static_cast<int>(model.blocks.size()) - 1);
  return model;
}

}  // namespace plimsoll::model
