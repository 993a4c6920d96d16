#include "model/families/decoder.hpp"

#include <fmt/format.h>

#include <utility>

#include "model/families/encoder.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll::model {
namespace {

std::string member(const std::string& module, const std::string& child) { return module.empty() ? child : module + "." + child; }

/// The norm of queries or keys: over each head with one weight ("per_head") or a weight per head, or over all heads at once.
int add_qk_norm(BlockBuilder& builder, const std::string& name, int from, const LayerPlan& plan, std::int64_t heads) {
  using QkNorm = AttentionSpec::QkNorm;
  const AttentionSpec& spec = plan.attention;
  NormSpec norm_spec = plan.qk_norm.value_or(plan.norm);
  norm_spec.width = spec.qk_norm == QkNorm::full_width ? heads * spec.head_dim : spec.head_dim;
  Operator op = norm(name, norm_spec);
  op.output_per_token = {heads, spec.head_dim};
  // Weights of single heads are cut with the heads; one weight that all heads share is whole on every rank.
  if (spec.qk_norm != QkNorm::per_head)
    for (auto& tensor : op.parameters) tensor.cut = Cut::rows;
  if (spec.qk_norm == QkNorm::each_head && !plan.qk_norm_modules)
    for (auto& tensor : op.parameters) tensor.shape = {heads, spec.head_dim};
  if (spec.qk_norm == QkNorm::each_head && plan.qk_norm_modules) {
    const std::vector<ParameterTensor> one = std::exchange(op.parameters, {});
    for (std::int64_t head = 0; head < heads; ++head)
      for (auto tensor : one) {
        tensor.name = fmt::format("{}.norms.{}{}", name, head, tensor.name.substr(name.size()));
        tensor.cut = Cut::replicated;
        op.parameters.push_back(std::move(tensor));
      }
  }
  return builder.add(std::move(op), {from});
}

struct Projections {
  int q, k, v;
};

Projections add_projections(BlockBuilder& builder, int from, const LayerPlan& plan) {
  const AttentionSpec& spec = plan.attention;
  const LayerNames& names = plan.names;
  const std::int64_t q_width = spec.heads * spec.head_dim, kv_width = spec.kv_heads * spec.head_dim;
  const auto project = [&](const std::string& name, std::int64_t q_part, std::int64_t kv_part) {
    Operator op = linear(member(names.attention, name), {.in = spec.hidden,
                                                         .out = q_part + kv_part,
                                                         .bias = spec.qkv_bias,
                                                         .parallel = Parallel::column,
                                                         .transposed = plan.transposed_linears});
    for (auto& tensor : op.parameters) {
      tensor.kv_rows = kv_part;
      tensor.kv_heads = kv_part > 0 ? spec.kv_heads : 0;
    }
    return builder.add(std::move(op), {from});
  };
  if (spec.fused_qkv) {
    const int qkv = project(names.qkv, q_width, 2 * kv_width);
    return {qkv, qkv, qkv};
  }
  const int q = project(names.q, q_width, 0);
  const int k = project(names.k, 0, kv_width);
  const int v = project(names.v, 0, kv_width);
  return {q, k, v};
}

int add_core_attention(BlockBuilder& builder, const Projections& from, const LayerPlan& plan) {
  std::vector<int> sources = {from.q};
  if (from.k != from.q) sources.push_back(from.k);
  if (from.v != from.k && from.v != from.q) sources.push_back(from.v);
  Operator op = attention(plan.names.attention, plan.attention);
  op.buffers = plan.attention_buffers;
  return builder.add(std::move(op), sources);
}

/// Rotates queries and keys: one operator that gives both, which the values bypass.
Projections add_rotation(BlockBuilder& builder, Projections from, const LayerPlan& plan) {
  const AttentionSpec& spec = plan.attention;
  if (spec.positions != Positions::rope) return from;
  Operator op = rope(member(plan.names.attention, "rotary"), spec.heads, spec.kv_heads, spec.rotary_dim);
  op.output_per_token = {spec.heads + spec.kv_heads, spec.head_dim};
  const auto sources = from.q == from.k ? std::vector{from.q} : std::vector{from.q, from.k};
  const int rotated = builder.add(std::move(op), sources);
  if (plan.rotary_block) builder.read_side_input(rotated);
  return {rotated, rotated, from.v};
}

/// Multi-head latent attention: queries and keys-values through low-rank projections with a norm each.
Projections add_latent_projections(BlockBuilder& builder, int from, const LayerPlan& plan) {
  const AttentionSpec& spec = plan.attention;
  const MlaSpec& mla = *spec.mla;
  const std::string& module = plan.names.attention;
  const std::int64_t qk_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
  NormSpec low_rank = plan.norm;
  int q = from;
  if (mla.q_lora_rank > 0) {
    q = builder.linear(member(module, "q_a_proj"), from, {.in = spec.hidden, .out = mla.q_lora_rank, .bias = spec.qkv_bias});
    low_rank.width = mla.q_lora_rank;
    q = builder.norm(member(module, "q_a_layernorm"), q, low_rank);
    q = builder.linear(member(module, "q_b_proj"), q, {.in = mla.q_lora_rank, .out = spec.heads * qk_dim, .parallel = Parallel::column});
  } else {
    q = builder.linear(member(module, "q_proj"), from, {.in = spec.hidden, .out = spec.heads * qk_dim, .parallel = Parallel::column});
  }
  const int compressed = builder.linear(member(module, "kv_a_proj_with_mqa"), from,
                                        {.in = spec.hidden, .out = mla.kv_lora_rank + mla.qk_rope_head_dim, .bias = spec.qkv_bias});
  low_rank.width = mla.kv_lora_rank;
  const int normed = builder.norm(member(module, "kv_a_layernorm"), compressed, low_rank);
  const int kv =
      builder.linear(member(module, "kv_b_proj"), normed,
                     {.in = mla.kv_lora_rank, .out = spec.heads * (mla.qk_nope_head_dim + mla.v_head_dim), .parallel = Parallel::column});
  // The rotated part of the keys leaves the compression before its norm and is shared by all heads.
  const int rotated = builder.add(rope(member(module, "rotary"), spec.heads, 1, mla.qk_rope_head_dim), {q, compressed});
  if (plan.rotary_block) builder.read_side_input(rotated);
  return {rotated, kv, kv};
}

NormSpec of_width(NormSpec spec, std::int64_t width) {
  spec.width = width;
  return spec;
}

int add_feed_forward(BlockBuilder& builder, int from, const LayerPlan& plan) {
  if (!plan.moe) return add_mlp(builder, from, plan);
  const int routed = add_moe(builder, from, plan);
  if (!plan.mlp) return routed;
  return builder.sum(member(plan.names.moe, "combined"), routed, add_mlp(builder, from, plan), plan.attention.hidden);
}

/// The layer's dataflow by placement; each lambda adds what its name says.
class LayerAssembly {
 public:
  LayerAssembly(BlockBuilder& builder, const LayerPlan& plan)
      : builder_(builder), plan_(plan), width_(plan.attention.hidden), norm_(of_width(plan.norm, plan.attention.hidden)) {}

  void assemble() {
    const LayerNames& names = plan_.names;
    switch (plan_.placement) {
      case NormPlacement::pre: {
        const int x = join("residual_attention", kBlockInput, attend(norm(names.attention_norm, kBlockInput)));
        join("residual_mlp", x, feed(norm(names.mlp_norm, x)));
        return;
      }
      case NormPlacement::post: {
        const int x = norm(names.attention_norm, join("residual_attention", kBlockInput, attend(kBlockInput)));
        norm(names.mlp_norm, join("residual_mlp", x, feed(x)));
        return;
      }
      case NormPlacement::sandwich: {
        const int attended = norm(names.attention_out_norm, attend(norm(names.attention_norm, kBlockInput)));
        const int x = join("residual_attention", kBlockInput, attended);
        join("residual_mlp", x, norm(names.mlp_out_norm, feed(norm(names.mlp_norm, x))));
        return;
      }
      case NormPlacement::post_branch: {
        const int x = join("residual_attention", kBlockInput, norm(names.attention_out_norm, attend(kBlockInput)));
        join("residual_mlp", x, norm(names.mlp_out_norm, feed(x)));
        return;
      }
      case NormPlacement::parallel: {
        const int normed = norm(names.attention_norm, kBlockInput);
        join_both(attend(normed), feed(normed));
        return;
      }
      case NormPlacement::parallel_two: {
        const int attended = attend(norm(names.attention_norm, kBlockInput));
        join_both(attended, feed(norm(names.mlp_norm, kBlockInput)));
        return;
      }
    }
  }

 private:
  int norm(const std::string& name, int from) { return builder_.norm(name, from, norm_); }
  int attend(int from) { return branch(plan_.names.attention, add_attention(builder_, from, plan_), plan_.dropout_behind_attention); }
  int feed(int from) {
    return branch(plan_.moe ? plan_.names.moe : plan_.names.mlp, add_feed_forward(builder_, from, plan_), plan_.dropout_behind_mlp);
  }
  int branch(const std::string& module, int from, bool dropped_out) {
    if (plan_.scaled_branches) from = builder_.scale(member(module, "residual_multiplier"), from, width_);
    return dropped_out ? builder_.dropout(member(module, "residual_dropout"), from, plan_.hidden_dropout, width_) : from;
  }
  int join(const std::string& name, int stream, int out) { return builder_.sum(name, stream, out, width_); }
  void join_both(int attended, int fed) { join("residual", kBlockInput, builder_.sum("branches", attended, fed, width_)); }

  BlockBuilder& builder_;
  const LayerPlan& plan_;
  std::int64_t width_;
  NormSpec norm_;
};

void append_linear_head(Model& model, const std::string& name, const LinearSpec& spec) {
  BlockBuilder head(Block::Role::head, name);
  head.linear("", kBlockInput, spec);
  model.blocks.push_back(head.build());
}

/// Full name of the token embedding's weight: what a tied head shares.
std::string token_embedding_name(const Model& model) {
  const Block& embedding = model.blocks.front();
  return full_name(embedding, 0, embedding.operators.front().parameters.front());
}

void strip_base_prefix(Model& model) {
  const auto strip = [](std::string& name) {
    const std::size_t dot = name.find('.');
    name = dot == std::string::npos ? std::string() : name.substr(dot + 1);
  };
  for (auto& block : model.blocks) strip(block.name);
}

}  // namespace

int add_attention(BlockBuilder& builder, int from, const LayerPlan& plan) {
  const AttentionSpec& spec = plan.attention;
  const std::string& module = plan.names.attention;
  Projections parts;
  if (spec.mla) {
    parts = add_latent_projections(builder, from, plan);
  } else {
    parts = add_projections(builder, from, plan);
    if (spec.qk_norm != AttentionSpec::QkNorm::none) {
      parts.q = add_qk_norm(builder, member(module, plan.names.q_norm), parts.q, plan, spec.heads);
      parts.k = add_qk_norm(builder, member(module, plan.names.k_norm), parts.k, plan, spec.kv_heads);
    }
    parts = add_rotation(builder, parts, plan);
  }
  const int context = add_core_attention(builder, parts, plan);
  const std::int64_t context_width = spec.heads * (spec.mla ? spec.mla->v_head_dim : spec.head_dim);
  return builder.linear(member(module, plan.names.output), context,
                        {.in = context_width,
                         .out = spec.hidden,
                         .bias = spec.output_bias,
                         .parallel = Parallel::row,
                         .transposed = plan.transposed_linears});
}

int add_mlp(BlockBuilder& builder, int from, const LayerPlan& plan) {
  const MlpSpec& spec = *plan.mlp;
  const LayerNames& names = plan.names;
  const LinearSpec up{
      .in = spec.hidden, .out = spec.intermediate, .bias = spec.bias, .parallel = Parallel::column, .transposed = plan.transposed_linears};
  LinearSpec fused = up;
  fused.out = 2 * spec.intermediate;
  int inner;
  if (!spec.gated) {
    inner = builder.linear(member(names.mlp, names.up), from, up);
    inner = builder.activation(member(names.mlp, names.activation), inner, spec.activation, spec.intermediate);
  } else {
    const int gate = spec.fused_gate_up ? builder.linear(member(names.mlp, names.gate_up), from, fused)
                                        : builder.linear(member(names.mlp, names.gate), from, up);
    const int activated = builder.activation(member(names.mlp, names.activation), gate, spec.activation, spec.intermediate);
    const int value = spec.fused_gate_up ? gate : builder.linear(member(names.mlp, names.up), from, up);
    inner = builder.multiply(member(names.mlp, "gated"), activated, value, spec.intermediate);
  }
  return builder.linear(
      member(names.mlp, names.down), inner,
      {.in = spec.intermediate, .out = spec.hidden, .bias = spec.bias, .parallel = Parallel::row, .transposed = plan.transposed_linears});
}

int add_moe(BlockBuilder& builder, int from, const LayerPlan& plan) {
  const MoeSpec& spec = *plan.moe;
  const LayerNames& names = plan.names;
  Operator gate = router(member(names.moe, names.router), spec.hidden, spec.experts, spec.top_k, spec.router_bias);
  if (spec.wide_router) {
    gate.parameters.front().type = DType::fp32;
    gate.parameters.push_back({.name = member(names.moe, names.correction_bias),
                               .shape = {1, spec.experts},
                               .trainable = false,
                               .type = DType::fp32,
                               .tied_to = {}});
  }
  if (spec.correction_bias) gate.buffers.push_back({member(names.moe, names.correction_bias), {spec.experts}, DType::fp32, true});
  const int routed = builder.add(std::move(gate), {from});
  const auto latent = [&](const char* name, int input, std::int64_t in, std::int64_t out) {
    return spec.latent > 0 ? builder.linear(member(names.moe, name), input, {.in = in, .out = out}) : input;
  };
  const int narrow = latent("fc1_latent_proj", from, spec.hidden, spec.latent);
  const int worked = builder.add(experts(member(names.moe, names.experts), {.hidden = spec.width(),
                                                                            .intermediate = spec.expert_intermediate,
                                                                            .experts = spec.experts,
                                                                            .top_k = spec.top_k,
                                                                            .gated = spec.gated,
                                                                            .bias = spec.expert_bias,
                                                                            .transposed = spec.transposed,
                                                                            .activation = spec.activation,
                                                                            .up_name = spec.gated ? "gate_up_proj" : "up_proj"}),
                                 {narrow, routed});
  const int mixed = latent("fc2_latent_proj", worked, spec.latent, spec.hidden);
  if (spec.shared_intermediate == 0) return mixed;

  LayerPlan shared;
  shared.names = plan.names;
  shared.names.mlp = member(names.moe, names.shared);
  shared.mlp = MlpSpec{.hidden = spec.hidden,
                       .intermediate = spec.shared_intermediate,
                       .gated = spec.gated,
                       .bias = spec.shared_bias,
                       .activation = spec.activation};
  int common = add_mlp(builder, from, shared);
  if (spec.shared_gate) {
    const int opening = builder.linear(member(names.moe, names.shared_gate), from, {.in = spec.hidden, .out = 1});
    const int open = builder.activation(member(names.moe, names.shared_gate + "_sigmoid"), opening, "sigmoid", 1);
    common = builder.multiply(member(names.moe, names.shared + "_gated"), open, common, spec.hidden);
  }
  return builder.sum(member(names.moe, "combined"), mixed, common, spec.hidden);
}

Block decoder_layer(const LayerPlan& plan) {
  BlockBuilder builder(Block::Role::decoder, plan.stack, plan.repeat, plan.first);
  LayerAssembly(builder, plan).assemble();
  Block& block = builder.block();
  block.placement = plan.placement;
  block.norm = of_width(plan.norm, plan.attention.hidden);
  block.attention = plan.attention;
  block.mlp = plan.mlp;
  block.moe = plan.moe;
  block.hidden_dropout = plan.hidden_dropout;
  if (plan.rotary_block) block.side_inputs = {*plan.rotary_block};
  return builder.build(plan.registration);
}

void append_layer_run(Model& model, LayerPlan plan, std::int64_t first, std::int64_t repeat) {
  plan.first = first;
  plan.repeat = repeat;
  const int before = static_cast<int>(model.blocks.size()) - 1;
  for (int i = before; i >= 0 && !plan.rotary_block; --i)
    if (model.blocks[static_cast<std::size_t>(i)].role == Block::Role::rotary) plan.rotary_block = i;
  Block block = decoder_layer(plan);
  // The first run follows the rotary module, whose tables go to the layers aside: its input is the embedding's output.
  if (before > 0 && model.blocks[static_cast<std::size_t>(before)].role == Block::Role::rotary) block.input = before - 1;
  model.blocks.push_back(std::move(block));
}

void append_layers(Model& model, const LayerPlan& plan) { append_layer_run(model, plan, 0, model.layers); }

void append_sliding_layers(Model& model, const LayerPlan& plan, const std::vector<bool>& slides, std::optional<std::int64_t> window) {
  append_layers(
      model, [&](std::int64_t i) { return static_cast<bool>(slides[static_cast<std::size_t>(i)]); },
      [&](bool slide) {
        LayerPlan own = plan;
        if (slide) own.attention.sliding_window = window;
        return own;
      });
}

void append_routed_layers(Model& model, const LayerPlan& plan, const MoeSpec& moe, const std::function<bool(std::int64_t)>& routed,
                          const std::vector<bool>& slides, std::optional<std::int64_t> window) {
  append_layers(
      model, [&](std::int64_t i) { return std::pair(routed(i), !slides.empty() && slides[static_cast<std::size_t>(i)]); },
      [&](std::pair<bool, bool> kind) {
        LayerPlan own = plan;
        if (kind.first) own.moe = moe, own.mlp.reset();
        if (kind.second) own.attention.sliding_window = window;
        return own;
      });
}

void append_token_embedding(Model& model, const EmbeddingPlan& plan) {
  const bool alone = plan.position.empty() && plan.norm.empty();
  BlockBuilder block(Block::Role::embedding, alone ? member(plan.module, plan.token) : plan.module);
  const std::int64_t width = model.hidden_size;
  Operator lookup = embedding(alone ? "" : plan.token, model.vocab_size, width);
  if (plan.scale_buffer) lookup.buffers.push_back({"embed_scale", {}, DType::fp32, false});
  int stream = block.add(std::move(lookup), {kBlockInput});
  if (plan.scaled) stream = block.scale("scale", stream, width);
  if (!plan.position.empty()) {
    const int positions = block.add(position_embedding(plan.position, plan.position_rows, width), {kBlockInput});
    stream = block.sum("positioned", stream, positions, width);
  }
  if (!plan.norm.empty()) {
    NormSpec spec = layer_norm();
    spec.width = width;
    stream = block.norm(plan.norm, stream, spec);
  }
  block.dropout("dropout", stream, model.embedding_dropout, width);
  model.blocks.push_back(block.build());
}

void append_rotary(Model& model, std::int64_t rotary_dim, const std::string& name, const std::vector<std::string>& buffer_prefixes) {
  Block block;
  block.role = Block::Role::rotary;
  block.name = name;
  Operator op = rope("", 0, 0, rotary_dim);
  const std::int64_t frequencies = ceil_div(rotary_dim, 2);
  for (const auto& prefix : buffer_prefixes)
    for (const char* buffer : {"inv_freq", "original_inv_freq"}) op.buffers.push_back({prefix + buffer, {frequencies}, DType::fp32, false});
  op.output_per_token = {2, rotary_dim};  // cosines and sines
  block.operators.push_back(std::move(op));
  model.blocks.push_back(std::move(block));
}

void append_final_norm(Model& model, const NormSpec& norm, const std::string& name) {
  BlockBuilder block(Block::Role::final_norm, name);
  block.norm("", kBlockInput, of_width(norm, model.hidden_size));
  block.block().norm = of_width(norm, model.hidden_size);
  model.blocks.push_back(block.build());
}

void append_head(Model& model, const Config& config, const HeadPlan& plan) {
  const std::int64_t width = plan.width > 0 ? plan.width : model.hidden_size;
  if (config.architecture_ends_with("ForCausalLM") || config.architecture_ends_with("LMHeadModel")) {
    model.task = Model::Task::causal_lm;
    append_linear_head(model, plan.name, {.in = width, .out = model.vocab_size, .bias = plan.bias, .parallel = Parallel::column});
    Block& head = model.blocks.back();
    for (auto& tensor : head.operators.front().parameters) tensor.cut = Cut::vocabulary;
    if (model.tied_embeddings) head.operators.front().parameters.front().tied_to = token_embedding_name(model);
    if (plan.scaled) {
      head.operators.push_back(scale("scale", model.vocab_size));
      head.edges.push_back({0, 1});
    }
    return;
  }
  model.tied_embeddings = false;
  if (config.architecture_ends_with("Model") && !config.architecture_ends_with("DoubleHeadsModel")) {
    model.task = Model::Task::backbone;
    strip_base_prefix(model);
    return;
  }
  model.task = Model::Task::classification;
  const auto exists = [&](std::string_view suffix) { return ConfigDefaults::shipped().has_head(model.model_type, suffix); };
  if (config.architecture_ends_with("ForSequenceClassification")) {
    model.activations_modelled = exists("ForSequenceClassification");
    model.labels = config.labels();
    append_linear_head(model, "score", {.in = width, .out = model.labels});
  } else if (config.architecture_ends_with("ForTokenClassification")) {
    model.activations_modelled = exists("ForTokenClassification");
    model.labels = config.labels();
    const double hidden = config.rate_or("hidden_dropout", 0.1);
    Chain(Block::Role::head, "", width).dropout(config.rate_or("classifier_dropout", hidden)).dense(plan.token_classifier, model.labels).append_to(model);
  } else if (config.architecture_ends_with("ForQuestionAnswering")) {
    model.activations_modelled = exists("ForQuestionAnswering");
    model.labels = 2;  // where an answer starts and ends
    append_linear_head(model, "qa_outputs", {.in = width, .out = model.labels, .bias = true});
  } else {
    refuse(fmt::format("the head of {} is not modelled", config.architecture()), "",
           "ForCausalLM, ForSequenceClassification, ForTokenClassification, ForQuestionAnswering and the base model are");
  }
}

void balance_routers(Model& model, const Config& config) {
  if (!config.architecture_ends_with("ForCausalLM") || !config.flag_or("output_router_logits", false)) return;
  for (Block& block : model.blocks)
    for (Operator& op : block.operators)
      if (op.kind == OperatorKind::router) op.function = "auxiliary_loss";
}

Model rotary_decoder(Model model, const Config& config, const LayerPlan& layer) {
  append_token_embedding(model);
  append_rotary(model, layer.attention.rotary_dim);
  append_layers(model, layer);
  append_final_norm(model, layer.norm);
  append_head(model, config);
  return model;
}

}  // namespace plimsoll::model
