// mamba, mamba2: layers that scan the sequence with a learned state; jamba: such layers between ones with attention and experts.
#include "model/families/state_space.hpp"

#include "model/families/decoder.hpp"
#include "model/families/encoder.hpp"
#include "model/families/families.hpp"
#include "model/families/towers.hpp"
#include "model/operators/convolution.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll::model {
namespace {

/// A selective state space (Gu & Dao 2023): its inner width, states per channel, rank of the step's projection, and biases.
struct MixerSpec {
  std::string name;  ///< "mixer", "mamba"
  std::int64_t hidden = 0, inner = 0, states = 0, step_rank = 0, kernel = 0;
  bool convolution_bias = true, projection_bias = false;
  bool normed = false;  ///< jamba: norms of the step and of both projections on the states
};

/// "auto" is a sixteenth of the hidden size.
std::int64_t step_rank(const Config& config, const char* key, std::int64_t hidden) {
  const auto value = config.find(key);
  if (!value || (value->is_text() && value->text() == "auto")) return ceil_div(hidden, 16);
  return value->integer(1, kLargestDimension);
}

/// The recurrence itself: element-wise along the sequence; it owns the decay of every state and the skip of every channel.
Operator scan(const std::string& name, std::int64_t width, std::vector<ParameterTensor> parameters) {
  Operator op = activation(name, "selective_scan", width);
  op.parameters = std::move(parameters);
  return op;
}

int add_mixer(BlockBuilder& block, int from, const MixerSpec& spec) {
  const auto member = [&](const char* child) { return spec.name + "." + child; };
  const int both = block.linear(member("in_proj"), from,
                                {.in = spec.hidden, .out = 2 * spec.inner, .bias = spec.projection_bias, .parallel = Parallel::column});
  int x = block.add(sequence_convolution(
                        member("conv1d"),
                        {.in = spec.inner, .out = spec.inner, .kernel = spec.kernel, .groups = spec.inner, .bias = spec.convolution_bias}),
                    {both});
  x = block.activation(member("act"), x, "silu", spec.inner);
  const int selected = block.linear(member("x_proj"), x, {.in = spec.inner, .out = spec.step_rank + 2 * spec.states});
  int step = selected, input = selected, output = selected;
  if (spec.normed) {
    const auto norm = [&](const char* name, std::int64_t width) {
      NormSpec rms;
      rms.width = width;
      return block.norm(member(name), selected, rms);
    };
    step = norm("dt_layernorm", spec.step_rank);
    input = norm("b_layernorm", spec.states);
    output = norm("c_layernorm", spec.states);
  }
  step = block.linear(member("dt_proj"), step, {.in = spec.step_rank, .out = spec.inner, .bias = true, .parallel = Parallel::column});
  std::vector<int> sources = {x, step, input};
  if (output != input) sources.push_back(output);
  const int scanned = block.add(
      scan(member("scan"), spec.inner, {parameter(member("A_log"), {spec.inner, spec.states}), parameter(member("D"), {spec.inner})}),
      sources);
  const int gated = block.multiply(member("gated"), scanned, both, spec.inner);
  return block.linear(member("out_proj"), gated,
                      {.in = spec.inner, .out = spec.hidden, .bias = spec.projection_bias, .parallel = Parallel::row});
}

/// The order in which a mixer registers what is in it.
std::vector<std::string> mixer_registration(const std::string& name) {
  std::vector<std::string> order;
  for (const char* child : {"scan", "conv1d", "in_proj", "x_proj", "dt_proj", "out_proj", "dt_layernorm", "b_layernorm", "c_layernorm"})
    order.push_back(name + "." + child);
  return order;
}

Model state_space_model(const Config& config) {
  if (!config.architecture_ends_with("ForCausalLM") && !config.architecture_ends_with("Model"))
    refuse_head(config, "ForCausalLM and the base model");
  Model model = counted_model(config);
  model.layers = config.layers();
  model.hidden_size = config.dimension("hidden_size");
  model.vocab_size = config.dimension("vocab_size");
  model.tied_embeddings = config.flag("tie_word_embeddings");
  return model;
}

/// Embedding, layers, norm and head of both mambas.
template <class AddMixer>
Model mamba_model(Model model, const Config& config, const std::vector<std::string>& registration, AddMixer add_mixer_to) {
  append_token_embedding(model, {.module = "backbone", .token = "embeddings"});
  NormSpec norm;
  norm.width = model.hidden_size;
  BlockBuilder layer(Block::Role::decoder, "backbone.layers", model.layers);
  const int mixed = add_mixer_to(layer, layer.norm("norm", kBlockInput, norm));
  layer.sum("residual", kBlockInput, mixed, model.hidden_size);
  std::vector<std::string> order = {"norm"};
  order.insert(order.end(), registration.begin(), registration.end());
  model.blocks.push_back(layer.build(order));
  append_final_norm(model, norm, "backbone.norm_f");
  append_head(model, config);
  return model;
}

void note_training_keys(const Config& config) {
  note_keys(config, {"time_step_floor",
                     "time_step_init_scheme",
                     "time_step_max",
                     "time_step_min",
                     "time_step_scale",
                     "rescale_prenorm_residual",
                     "residual_in_fp32",
                     "use_mambapy",
                     "use_associative_scan",
                     "fused_add_norm",
                     "rms_norm",
                     "ssm_cfg",
                     "d_inner",
                     "d_model",
                     "intermediate_size",
                     "n_layer",
                     "pad_vocab_size_multiple",
                     "chunk_size",
                     "norm_before_gate",
                     "hidden_act"});
}

bool every(std::int64_t layer, std::int64_t period, std::int64_t offset) { return layer % period == offset; }

}  // namespace

Model build_mamba(const Config& config) {
  Model model = state_space_model(config);
  note_training_keys(config);
  MixerSpec spec;
  spec.name = "mixer";
  spec.hidden = model.hidden_size;
  spec.inner = product({config.dimension("expand", 1 << 16), model.hidden_size});
  if (config.given("intermediate_size")) spec.inner = config.dimension("intermediate_size");  // no field of the class: set behind them
  spec.states = config.dimension("state_size");
  spec.step_rank = step_rank(config, "time_step_rank", model.hidden_size);
  spec.kernel = config.dimension("conv_kernel", 1 << 16);
  spec.convolution_bias = config.flag("use_conv_bias");
  spec.projection_bias = config.flag("use_bias");
  model.intermediate_size = spec.inner;
  return mamba_model(std::move(model), config, mixer_registration("mixer"),
                     [&](BlockBuilder& block, int from) { return add_mixer(block, from, spec); });
}

int add_mamba2(BlockBuilder& block, int from, const MambaSpec& spec, bool bias, bool convolution_bias) {
  const int all =
      block.linear("mixer.in_proj", from, {.in = spec.hidden, .out = spec.projected(), .bias = bias, .parallel = Parallel::column});
  Operator along = sequence_convolution(
      "mixer.conv1d",
      {.in = spec.convolved(), .out = spec.convolved(), .kernel = spec.kernel, .groups = spec.convolved(), .bias = convolution_bias});
  const int x = block.activation("mixer.act", block.add(std::move(along), {all}), "silu", spec.convolved());
  Operator recurrence =
      scan("mixer.scan", spec.inner(),
           {parameter("mixer.dt_bias", {spec.heads}), parameter("mixer.A_log", {spec.heads}), parameter("mixer.D", {spec.heads})});
  recurrence.flops_per_token = 4.0 * static_cast<double>(product({spec.inner(), spec.states}));  // into the state, and out of it
  NormSpec norm;
  norm.width = spec.inner();
  const int gated = block.norm("mixer.norm", block.add(std::move(recurrence), {x, all}), norm);
  block.block().mamba = spec;
  return block.linear("mixer.out_proj", gated, {.in = spec.inner(), .out = spec.hidden, .bias = bias, .parallel = Parallel::row});
}

std::vector<std::string> mamba2_registration() { return {"mixer.scan", "mixer.conv1d", "mixer.in_proj", "mixer.norm", "mixer.out_proj"}; }

Model build_mamba2(const Config& config) {
  Model model = state_space_model(config);
  note_training_keys(config);
  (void)config.find("time_step_rank");
  MambaSpec spec;
  spec.hidden = model.hidden_size;
  spec.heads = config.dimension("num_heads");
  spec.head_dim = config.dimension("head_dim");
  spec.groups = config.dimension("n_groups");
  spec.states = config.dimension("state_size");
  spec.kernel = config.dimension("conv_kernel", 1 << 16);
  (void)product({2, spec.groups, spec.states});
  if (product({spec.heads, spec.head_dim}) != product({config.dimension("expand", 1 << 16), model.hidden_size}))
    config.fail_at("num_heads", "num_heads times head_dim is expand times hidden_size");
  const bool bias = config.flag("use_bias"), convolution_bias = config.flag("use_conv_bias");
  model.intermediate_size = spec.inner();
  model.heads = model.kv_heads = spec.heads;
  model.head_dim = spec.head_dim;
  return mamba_model(std::move(model), config, mamba2_registration(),
                     [&](BlockBuilder& block, int from) { return add_mamba2(block, from, spec, bias, convolution_bias); });
}

namespace {

struct JambaLayer {
  bool attention, experts;
  friend bool operator==(JambaLayer a, JambaLayer b) { return a.attention == b.attention && a.experts == b.experts; }
};

LayerPlan jamba_plan(const Config& config, const Model& model) {
  LayerPlan plan;
  plan.attention = plain_attention(model, Positions::none);
  plan.attention.dropout = config.rate_or("attention_dropout", 0.0);
  plan.norm.width = model.hidden_size;
  plan.names.mlp = plan.names.moe = "feed_forward";
  plan.names.router = "router";
  plan.names.mlp_norm = "pre_ff_layernorm";
  plan.mlp = MlpSpec{.hidden = model.hidden_size,
                     .intermediate = model.intermediate_size,
                     .gated = true,
                     .fused_gate_up = false,
                     .bias = false,
                     .activation = config.activation("hidden_act")};
  return plan;
}

Block jamba_layer(const JambaLayer& kind, LayerPlan plan, const MixerSpec& mixer, const MoeSpec& moe) {
  const std::int64_t width = mixer.hidden;
  if (kind.experts) {
    plan.moe = moe;
    plan.mlp.reset();
  }
  BlockBuilder block(Block::Role::decoder, plan.stack, plan.repeat, plan.first);
  const int normed = block.norm("input_layernorm", kBlockInput, plan.norm);
  const int mixed = kind.attention ? add_attention(block, normed, plan) : add_mixer(block, normed, mixer);
  const int x = block.sum("residual_mixer", kBlockInput, mixed, width);
  const int inner = block.norm("pre_ff_layernorm", x, plan.norm);
  block.sum("residual_mlp", x, kind.experts ? add_moe(block, inner, plan) : add_mlp(block, inner, plan), width);
  if (kind.attention) block.block().attention = plan.attention;
  block.block().mlp = plan.mlp;
  block.block().moe = plan.moe;
  block.block().norm = plan.norm;
  std::vector<std::string> order = kind.attention ? std::vector<std::string>{"self_attn"} : mixer_registration("mamba");
  order.insert(order.end(), {"feed_forward", "input_layernorm", "pre_ff_layernorm"});
  return block.build(order);
}

}  // namespace

Model build_jamba(const Config& config) {
  note_keys(config,
            {"use_mamba_kernels", "use_mambapy", "use_associative_scan", "num_logits_to_keep", "calc_logits_for_entire_prompt", "n_ctx"});
  Model model = decoder_model(config);
  model.activations_modelled = false;
  model.intermediate_size = config.dimension("intermediate_size");
  MixerSpec mixer;
  mixer.name = "mamba";
  mixer.hidden = model.hidden_size;
  mixer.inner = product({config.dimension("mamba_expand", 1 << 16), model.hidden_size});
  mixer.states = config.dimension("mamba_d_state");
  mixer.step_rank = step_rank(config, "mamba_dt_rank", model.hidden_size);
  mixer.kernel = config.dimension("mamba_d_conv", 1 << 16);
  mixer.convolution_bias = config.flag("mamba_conv_bias");
  mixer.projection_bias = config.flag("mamba_proj_bias");
  mixer.normed = true;
  MoeSpec moe;
  moe.hidden = model.hidden_size;
  moe.experts = config.dimension("num_experts");
  moe.top_k = config.dimension("num_experts_per_tok");
  moe.expert_intermediate = model.intermediate_size;
  moe.activation = config.activation("hidden_act");

  const std::int64_t attention_period = config.dimension("attn_layer_period"), expert_period = config.dimension("expert_layer_period");
  const std::int64_t attention_offset = config.integer("attn_layer_offset", 0, kLargestDimension),
                     expert_offset = config.integer("expert_layer_offset", 0, kLargestDimension);
  const auto kind = [&](std::int64_t i) {
    return JambaLayer{every(i, attention_period, attention_offset), moe.experts > 1 && every(i, expert_period, expert_offset)};
  };
  append_token_embedding(model);
  for_each_run(model.layers, kind, [&](const JambaLayer& of, std::int64_t first, std::int64_t repeat) {
    LayerPlan plan = jamba_plan(config, model);
    plan.first = first;
    plan.repeat = repeat;
    model.blocks.push_back(jamba_layer(of, std::move(plan), mixer, moe));
  });
  NormSpec norm;
  append_final_norm(model, norm, "model.final_layernorm");
  append_head(model, config);
  return model;
}

}  // namespace plimsoll::model
