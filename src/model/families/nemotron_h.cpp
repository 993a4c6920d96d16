// nemotron_h: layers of one branch each, by a letter of the config's pattern: a Mamba-2 mixer, attention without positions, an MLP, or a
// mixture of experts.
#include "model/families/decoder.hpp"
#include "model/families/encoder.hpp"
#include "model/families/families.hpp"
#include "model/families/state_space.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll::model {
namespace {

constexpr char kMamba = 'M', kAttention = '*', kMlp = '-', kExperts = 'E';

MambaSpec mixer_of(const Config& config, const Model& model) {
  MambaSpec spec;
  spec.hidden = model.hidden_size;
  spec.heads = config.dimension("mamba_num_heads");
  spec.head_dim = config.dimension("mamba_head_dim");
  spec.groups = config.dimension("n_groups");
  spec.states = config.dimension("ssm_state_size");
  spec.kernel = config.dimension("conv_kernel", 1 << 16);
  (void)product({4, spec.groups, spec.states});
  (void)product({4, spec.heads, spec.head_dim});
  return spec;
}

MoeSpec experts_of(const Config& config, const Model& model) {
  MoeSpec moe;
  moe.hidden = model.hidden_size;
  moe.experts = config.dimension("n_routed_experts");
  moe.top_k = config.dimension("num_experts_per_tok", moe.experts);
  moe.expert_intermediate = config.dimension("moe_intermediate_size");
  moe.shared_intermediate = config.dimension("moe_shared_expert_intermediate_size");  // of all n_shared_experts together
  moe.correction_bias = true;
  moe.normalized_top_k = config.flag_or("norm_topk_prob", true);
  moe.groups = config.integer_or("n_group", 1, 1, moe.experts);
  moe.chosen_groups = config.integer_or("topk_group", 1, 1, moe.groups);
  moe.gated = false;
  const auto latent = config.find("moe_latent_size");
  if (latent && !latent->is_null()) moe.latent = config.dimension("moe_latent_size");
  moe.activation = config.activation("mlp_hidden_act");
  return moe;
}

/// A letter per layer.
std::string pattern_of(const Config& config, const Model& model) {
  std::string pattern = config.text("hybrid_override_pattern");
  const bool known = pattern.find_first_not_of("M*-E") == std::string::npos;
  if (!known || static_cast<std::int64_t>(pattern.size()) != model.layers)
    config.fail_at("hybrid_override_pattern", "a letter of M, *, - and E for each of the num_hidden_layers layers");
  return pattern;
}

LayerPlan plan_of(const Config& config, const Model& model) {
  LayerPlan plan;
  plan.stack = "model.layers";
  plan.norm.width = model.hidden_size;
  plan.attention = plain_attention(model, Positions::none);
  set_attention_bias(plan.attention, config.flag_or("attention_bias", false));
  plan.mlp = plain_mlp(model, config.activation("mlp_hidden_act"), config.flag_or("mlp_bias", false));
  plan.names.attention = plan.names.mlp = plan.names.moe = "mixer";
  plan.names.shared = "shared_experts";
  return plan;
}

int add_branch(BlockBuilder& block, int from, char kind, const Config& config, const Model& model, LayerPlan& plan) {
  switch (kind) {
    case kMamba:
      return add_mamba2(block, from, mixer_of(config, model), config.flag_or("mamba_proj_bias", false),
                        config.flag_or("use_conv_bias", true));
    case kAttention:
      block.block().attention = plan.attention;
      return add_attention(block, from, plan);
    case kExperts:
      plan.moe = experts_of(config, model);
      block.block().moe = plan.moe;
      return add_moe(block, from, plan);
    default:
      block.block().mlp = plan.mlp;
      return add_mlp(block, from, plan);
  }
}

/// The order in which a layer registers what is in it.
std::vector<std::string> registration_of(char kind) {
  if (kind == kExperts)
    return {"norm", "mixer.experts", "mixer.gate", "mixer.shared_experts", "mixer.fc1_latent_proj", "mixer.fc2_latent_proj"};
  std::vector<std::string> order = {"norm"};
  const std::vector<std::string> mixer = kind == kMamba ? mamba2_registration() : std::vector<std::string>{"mixer"};
  order.insert(order.end(), mixer.begin(), mixer.end());
  return order;
}

/// mtp_hybrid_override_pattern: the layers of a module that predicts a further token, which are like some of the decoder's.
void set_prediction(Model& model, const Config& config, const std::string& pattern) {
  if (config.integer_or("num_nextn_predict_layers", 0, 0, kLargestDimension) == 0) return;
  const auto said = config.find("mtp_hybrid_override_pattern");
  const std::string predicted = said && !said->is_null() ? config.text("mtp_hybrid_override_pattern") : "*E";
  for (const char kind : predicted) {
    const auto layer = pattern.find(kind);
    if (layer == std::string::npos) config.fail_at("mtp_hybrid_override_pattern", "letters of layers that hybrid_override_pattern has");
    for (std::size_t i = 0; i < model.blocks.size(); ++i) {
      const Block& block = model.blocks[i];
      if (block.role == Block::Role::decoder && block.first == static_cast<std::int64_t>(layer))
        model.prediction_blocks.push_back(static_cast<int>(i));
    }
  }
}

}  // namespace

Model build_nemotron_h(const Config& config) {
  note_keys(config, {"n_shared_experts",
                     "chunk_size",
                     "expand",
                     "mamba_hidden_act",
                     "time_step_floor",
                     "time_step_max",
                     "time_step_min",
                     "time_step_rank",
                     "time_step_limit",
                     "use_mamba_kernels",
                     "num_logits_to_keep",
                     "residual_in_fp32",
                     "use_bias",
                     "rescale_prenorm_residual",
                     "sliding_window",
                     "layer_norm_epsilon",
                     "norm_eps",
                     "hidden_dropout",
                     "attention_dropout",
                     "routed_scaling_factor",
                     "rope_theta",
                     "partial_rotary_factor",
                     "n_groups",
                     "n_group",
                     "topk_group",
                     "ssm_state_size",
                     "conv_kernel",
                     "mamba_num_heads",
                     "mamba_head_dim",
                     "mamba_proj_bias",
                     "use_conv_bias",
                     "mlp_hidden_act",
                     "mlp_bias",
                     "attention_bias",
                     "n_routed_experts",
                     "num_experts_per_tok",
                     "moe_intermediate_size",
                     "moe_shared_expert_intermediate_size",
                     "norm_topk_prob",
                     "moe_latent_size",
                     "moe_shared_expert_overlap",
                     "num_nextn_predict_layers",
                     "mtp_hybrid_override_pattern"});
  Model model = decoder_model(config);
  model.intermediate_size = config.dimension("intermediate_size");
  const std::string pattern = pattern_of(config, model);
  append_token_embedding(model, {.module = "model", .token = "embeddings"});
  for_each_run(
      model.layers, [&](std::int64_t layer) { return pattern[static_cast<std::size_t>(layer)]; },
      [&](char kind, std::int64_t first, std::int64_t repeat) {
        LayerPlan plan = plan_of(config, model);
        BlockBuilder block(Block::Role::decoder, plan.stack, repeat, first);
        const int branch = add_branch(block, block.norm("norm", kBlockInput, plan.norm), kind, config, model, plan);
        block.sum("residual", kBlockInput, branch, model.hidden_size);
        block.block().norm = plan.norm;
        model.blocks.push_back(block.build(registration_of(kind)));
      });
  set_prediction(model, config, pattern);
  NormSpec norm;
  norm.width = model.hidden_size;
  append_final_norm(model, norm, "model.norm_f");
  append_head(model, config);
  return model;
}

}  // namespace plimsoll::model
