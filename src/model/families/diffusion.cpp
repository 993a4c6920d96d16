// Diffusion transformers: the paper's DiT, and in diffusers' keys DiTTransformer2DModel and FluxTransformer2DModel.
//
// The main stream is the image's patches, the second the text's tokens. Adaptive norms have no parameters of their own: a linear on the
// conditioning vector gives their shifts, scales and gates.
#include "model/families/diffusion.hpp"

#include <fmt/format.h>

#include "model/families/encoder.hpp"
#include "model/families/families.hpp"
#include "model/operators/convolution.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::model {
NormSpec adaptive_norm(std::int64_t width) {
  NormSpec spec = layer_norm(width, false);
  spec.weight = false;
  return spec;
}

int add_modulation(BlockBuilder& builder, const std::string& name, int condition, std::int64_t width, std::int64_t parts) {
  const int activated = builder.activation(name + ".silu", condition, "silu", width);
  const int out = builder.linear(name + ".linear", activated, {.in = width, .out = parts * width, .bias = true});
  builder.block().operators[static_cast<std::size_t>(out)].kind = OperatorKind::modulation;
  return out;
}

Model diffusion_model(const Config& config) {
  Model model;
  model.name = config.name();
  model.model_type = config.model_type();
  model.architecture = config.architecture();
  model.task = Model::Task::diffusion;
  model.heads = model.kv_heads = config.dimension("num_attention_heads");
  model.head_dim = config.dimension("attention_head_dim");
  model.hidden_size = product({model.heads, model.head_dim});
  return model;
}

AttentionSpec image_attention(const Model& model) {
  AttentionSpec spec = bidirectional_attention(model, 0);
  spec.positions = Positions::none;
  return spec;
}

Block time_text_condition(const Model& model, std::int64_t pooled_width, bool guided) {
  const std::int64_t width = model.hidden_size;
  BlockBuilder block(Block::Role::embedding, "time_text_embed");
  const auto embedder = [&](const std::string& name, std::int64_t in) {
    int x = block.linear(name + ".linear_1", kBlockInput, {.in = in, .out = width, .bias = true});
    x = block.activation(name + ".act", x, "silu", width);
    return block.linear(name + ".linear_2", x, {.in = width, .out = width, .bias = true});
  };
  int x = embedder("timestep_embedder", kTimestepChannels);
  if (guided) x = block.sum("with_guidance", x, embedder("guidance_embedder", kTimestepChannels), width);
  block.sum("with_text", x, embedder("text_embedder", pooled_width), width);
  block.block().tokens = 1;
  return block.build();
}

Block stream_projection(const std::string& name, std::int64_t in, std::int64_t out, Block::Stream stream) {
  BlockBuilder block(Block::Role::embedding, name);
  block.linear("", kBlockInput, {.in = in, .out = out, .bias = true});
  block.block().stream = stream;
  return block.build();
}

void append_continuous_output(Model& model, std::int64_t out_channels, int condition) {
  const std::int64_t width = model.hidden_size;
  BlockBuilder last(Block::Role::head, "");
  const int modulation = add_modulation(last, "norm_out", kSideInput, width, 2);
  const int normed = last.norm("norm_out.norm", kBlockInput, adaptive_norm(width));
  const int x = last.multiply("norm_out.modulated", normed, modulation, width);
  last.linear("proj_out", x, {.in = width, .out = out_channels, .bias = true});
  last.block().side_inputs = {condition};
  model.blocks.push_back(last.build());
}

namespace {

// ---- DiT -----------------------------------------------------------------------------------------------------------

// x + gate · attn(adanorm(x)), x + gate · mlp(adanorm(x)); six vectors per layer from the conditioning (adaLN-Zero).
Block dit_layer(const Model& model, std::int64_t repeat) {
  const std::int64_t width = model.hidden_size;
  LayerPlan plan;
  plan.attention = image_attention(model);
  plan.mlp = MlpSpec{.hidden = width,
                     .intermediate = model.intermediate_size,
                     .gated = false,
                     .fused_gate_up = false,
                     .bias = true,
                     .activation = "gelu_pytorch_tanh"};
  plan.names.attention = "attn1";
  plan.names.q = "to_q";
  plan.names.k = "to_k";
  plan.names.v = "to_v";
  plan.names.output = "to_out.0";
  plan.names.mlp = "ff.net";
  plan.names.up = "0.proj";
  plan.names.activation = "0.gelu";
  plan.names.down = "2";
  BlockBuilder builder(Block::Role::encoder, "transformer_blocks", repeat);
  const int modulation = add_modulation(builder, "norm1", kSideInput, width, 6);
  const auto branch = [&](const std::string& norm, int stream, auto add_branch) {
    const int normed = builder.norm(norm, stream, adaptive_norm(width));
    const int out = add_branch(builder.multiply(norm + ".modulated", normed, modulation, width));
    return builder.sum(norm + ".residual", stream, builder.multiply(norm + ".gated", out, modulation, width), width);
  };
  const int x = branch("norm1.norm", kBlockInput, [&](int from) { return add_attention(builder, from, plan); });
  branch("norm3", x, [&](int from) { return add_mlp(builder, from, plan); });
  Block& block = builder.block();
  block.norm = adaptive_norm(width);
  block.attention = plan.attention;
  block.mlp = plan.mlp;
  return builder.build();
}

// Timestep features through an MLP, plus the embedding of the class (and of none): one vector per sample. As in
// the paper and its code, once; diffusers gives every layer a copy of its own.
void append_dit_condition(Model& model, std::int64_t classes) {
  const std::int64_t width = model.hidden_size;
  BlockBuilder block(Block::Role::embedding, "");
  int t = block.linear("t_embedder.mlp.0", kBlockInput, {.in = kTimestepChannels, .out = width, .bias = true});
  t = block.activation("t_embedder.mlp.1", t, "silu", width);
  t = block.linear("t_embedder.mlp.2", t, {.in = width, .out = width, .bias = true});
  const int y = block.add(embedding("y_embedder.embedding_table", classes + 1, width, false), {kBlockInput});
  block.sum("condition", t, y, width);
  block.block().tokens = 1;
  model.blocks.push_back(block.build());
}

}  // namespace

Model build_dit(const Config& config) {
  Model model = diffusion_model(config);
  model.layers = config.layers("num_layers");
  model.image_size = config.dimension("sample_size");
  model.patch_size = config.dimension("patch_size");
  config.require_divisible("sample_size", model.image_size, "patch_size", model.patch_size);
  model.channels = config.dimension("in_channels");
  model.labels = config.dimension_or("num_embeds_ada_norm", 1000);
  const std::int64_t width = model.hidden_size, out_channels = config.dimension_or("out_channels", model.channels);
  model.intermediate_size = product({4, width});
  const std::int64_t side = model.image_size / model.patch_size, patches = product({side, side});

  Operator positions = position_embedding("", patches, width);
  positions.parameters.front() = parameter("pos_embed", {1, patches, width});
  positions.parameters.front().trainable = false;
  BlockBuilder image(Block::Role::embedding, "");
  const int projected = image.add(patch_embedding("x_embedder.proj", model.channels, model.patch_size, width), {kBlockInput});
  image.add(std::move(positions), {projected});
  image.block().tokens = patches;
  model.blocks.push_back(image.build());
  append_dit_condition(model, model.labels);

  Block layers = dit_layer(model, model.layers);
  layers.tokens = patches;
  layers.input = 0;
  layers.side_inputs = {1};
  model.blocks.push_back(std::move(layers));

  BlockBuilder last(Block::Role::head, "final_layer");
  const int modulation = add_modulation(last, "adaLN_modulation", kSideInput, width, 2);
  const int normed = last.norm("norm_final", kBlockInput, adaptive_norm(width));
  const int shifted = last.multiply("modulated", normed, modulation, width);
  last.linear("linear", shifted, {.in = width, .out = product({model.patch_size, model.patch_size, out_channels}), .bias = true});
  last.block().tokens = patches;
  last.block().side_inputs = {1};
  model.blocks.push_back(last.build());
  return model;
}

// ---- diffusers' DiT --------------------------------------------------------------------------------------------------

namespace {

// norm1.emb: timestep features through an MLP, plus the class's row, of every layer its own.
int add_label_condition(BlockBuilder& builder, std::int64_t width, std::int64_t classes) {
  const auto once_per_sample = [&](int op) {
    builder.block().operators[static_cast<std::size_t>(op)].kind = OperatorKind::modulation;
    return op;
  };
  const std::string name = "norm1.emb.timestep_embedder";
  int time = once_per_sample(builder.linear(name + ".linear_1", kBlockInput, {.in = kTimestepChannels, .out = width, .bias = true}));
  time = builder.activation(name + ".act", time, "silu", width);
  time = once_per_sample(builder.linear(name + ".linear_2", time, {.in = width, .out = width, .bias = true}));
  const int label = builder.add(embedding("norm1.emb.class_embedder.embedding_table", classes + 1, width, false), {kBlockInput});
  return builder.sum("norm1.emb.condition", time, label, width);
}

Block label_conditioned_layer(const Model& model) {
  const std::int64_t width = model.hidden_size;
  BlockBuilder builder(Block::Role::encoder, "transformer_blocks", model.layers);
  const int modulation = add_modulation(builder, "norm1", add_label_condition(builder, width, model.labels), width, 6);
  const auto dense = [&](const std::string& name, int from, std::int64_t in, std::int64_t out) {
    return builder.linear(name, from, {.in = in, .out = out, .bias = true});
  };
  const auto branch = [&](const std::string& norm, int stream, auto add_branch) {
    const int normed = builder.norm(norm, stream, adaptive_norm(width));
    const int out = add_branch(builder.multiply(norm + ".modulated", normed, modulation, width));
    return builder.sum(norm + ".residual", stream, builder.multiply(norm + ".gated", out, modulation, width), width);
  };
  const AttentionSpec spec = image_attention(model);
  const int x = branch("norm1.norm", kBlockInput, [&](int from) {
    const int q = dense("attn1.to_q", from, width, width), k = dense("attn1.to_k", from, width, width);
    const int v = dense("attn1.to_v", from, width, width);
    return dense("attn1.to_out.0", builder.add(attention("attn1", spec), {q, k, v}), width, width);
  });
  branch("norm3", x, [&](int from) {
    const int up = dense("ff.net.0.proj", from, width, model.intermediate_size);
    const int activated = builder.activation("ff.net.0.gelu", up, "gelu_pytorch_tanh", model.intermediate_size);
    return dense("ff.net.2", activated, model.intermediate_size, width);
  });
  Block& block = builder.block();
  block.norm = adaptive_norm(width);
  block.attention = spec;
  block.mlp = MlpSpec{.hidden = width,
                      .intermediate = model.intermediate_size,
                      .gated = false,
                      .fused_gate_up = false,
                      .bias = true,
                      .activation = "gelu_pytorch_tanh"};
  return builder.build();
}

void require_plain_dit(const Config& config) {
  if (config.text_or("norm_type", "ada_norm_zero") != "ada_norm_zero") config.refuse_at("norm_type", "DiT's norms are ada_norm_zero");
  if (config.activation_or("activation_fn", "gelu-approximate") != "gelu-approximate")
    config.refuse_at("activation_fn", "activations other than gelu-approximate are not modelled");
  if (!config.flag_or("attention_bias", true)) config.refuse_at("attention_bias", "attention without biases is not modelled");
  if (config.flag_or("norm_elementwise_affine", false)) config.refuse_at("norm_elementwise_affine", "norms with weights are not modelled");
  if (config.number_or("dropout", 0, 0, 1) > 0) config.refuse_at("dropout", "dropout is not modelled");
}

}  // namespace

Model build_label_dit(const Config& config) {
  require_plain_dit(config);
  Model model = diffusion_model(config);
  model.layers = config.layers("num_layers");
  model.image_size = config.dimension("sample_size");
  model.patch_size = config.dimension("patch_size");
  config.require_divisible("sample_size", model.image_size, "patch_size", model.patch_size);
  model.channels = config.dimension("in_channels");
  model.labels = config.dimension_or("num_embeds_ada_norm", 1000);
  model.intermediate_size = product({4, model.hidden_size});
  const std::int64_t width = model.hidden_size, side = model.image_size / model.patch_size;

  BlockBuilder image(Block::Role::embedding, "pos_embed");
  Operator projection = patch_embedding("proj", model.channels, model.patch_size, width);
  projection.buffers.push_back({"pos_embed", {1, product({side, side}), width}, DType::fp32, false});
  image.add(std::move(projection), {kBlockInput});
  image.block().tokens = product({side, side});
  model.blocks.push_back(image.build());
  Block layers = label_conditioned_layer(model);
  layers.tokens = product({side, side});
  model.blocks.push_back(std::move(layers));

  BlockBuilder last(Block::Role::head, "");
  const int modulation = last.linear("proj_out_1", kBlockInput, {.in = width, .out = 2 * width, .bias = true});
  last.block().operators.back().kind = OperatorKind::modulation;
  const int normed = last.norm("norm_out", kBlockInput, adaptive_norm(width));
  const int shifted = last.multiply("modulated", normed, modulation, width);
  const std::int64_t out_channels = config.dimension_or("out_channels", model.channels);
  last.linear("proj_out_2", shifted, {.in = width, .out = product({model.patch_size, model.patch_size, out_channels}), .bias = true});
  last.block().tokens = product({side, side});
  model.blocks.push_back(last.build());
  return model;
}

// ---- FLUX ----------------------------------------------------------------------------------------------------------

namespace {

struct FluxStream {
  std::string norm, q, k, v, output, q_norm, k_norm, mlp_norm, mlp;
  bool side;
};
const FluxStream kImageStream{"norm1",       "attn.to_q",   "attn.to_k", "attn.to_v", "attn.to_out.0",
                              "attn.norm_q", "attn.norm_k", "norm2",     "ff",        false};
const FluxStream kTextStream{"norm1_context",     "attn.add_q_proj",   "attn.add_k_proj", "attn.add_v_proj", "attn.to_add_out",
                             "attn.norm_added_q", "attn.norm_added_k", "norm2_context",   "ff_context",      true};

// A double block: image and text each with their own weights, joined in one attention.
class FluxDoubleBlock {
 public:
  explicit FluxDoubleBlock(const Model& model)
      : width_(model.hidden_size),
        inner_(model.intermediate_size),
        spec_(image_attention(model)),
        builder_(Block::Role::encoder, "transformer_blocks", model.layers) {}

  Block build() {
    const Part image = project(kImageStream, kBlockInput), text = project(kTextStream, kTextInput);
    Operator products = attention("attn", spec_);
    products.joint = true;
    const int context = builder_.add(std::move(products), {image.q, image.k, image.v, text.q, text.k, text.v});
    finish(kTextStream, text, context);
    finish(kImageStream, image, context);
    builder_.block().norm = adaptive_norm(width_);
    builder_.block().attention = spec_;
    builder_.block().mlp = MlpSpec{
        .hidden = width_, .intermediate = inner_, .gated = false, .fused_gate_up = false, .bias = true, .activation = "gelu_pytorch_tanh"};
    return builder_.build({"norm1", "norm1_context", "attn.norm_q", "attn.norm_k", "attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0",
                           "attn.norm_added_q", "attn.norm_added_k", "attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj",
                           "attn.to_add_out", "ff", "ff_context"});
  }

 private:
  struct Part {
    int input, modulation, q, k, v;
  };

  int on(const FluxStream& stream, int op) {
    builder_.block().operators[static_cast<std::size_t>(op)].side = stream.side;
    return op;
  }
  int dense(const FluxStream& stream, const std::string& name, int from, std::int64_t in, std::int64_t out) {
    return on(stream, builder_.linear(name, from, {.in = in, .out = out, .bias = true}));
  }
  int modulated(const FluxStream& stream, const std::string& norm, int from, int modulation) {
    const int normed = on(stream, builder_.norm(norm + ".norm", from, adaptive_norm(width_)));
    return on(stream, builder_.multiply(norm + ".modulated", normed, modulation, width_));
  }
  int head_norm(const FluxStream& stream, const std::string& name, int from) {
    NormSpec norm;
    norm.width = spec_.head_dim;
    return on(stream, builder_.norm(name, from, norm));
  }

  Part project(const FluxStream& stream, int input) {
    const int modulation = add_modulation(builder_, stream.norm, kConditionInput, width_, 6);
    const int x = modulated(stream, stream.norm, input, modulation);
    const int q = dense(stream, stream.q, x, width_, width_), k = dense(stream, stream.k, x, width_, width_);
    const int v = dense(stream, stream.v, x, width_, width_);
    return {input, modulation, head_norm(stream, stream.q_norm, q), head_norm(stream, stream.k_norm, k), v};
  }

  int gated_sum(const FluxStream& stream, const std::string& name, int residual, int branch, int modulation) {
    const int gated = on(stream, builder_.multiply(name + ".gated", branch, modulation, width_));
    return on(stream, builder_.sum(name + ".residual", residual, gated, width_));
  }

  void finish(const FluxStream& stream, const Part& part, int context) {
    int x = gated_sum(stream, "attn." + stream.norm, part.input, dense(stream, stream.output, context, width_, width_), part.modulation);
    int y = modulated(stream, stream.mlp_norm, x, part.modulation);
    y = dense(stream, stream.mlp + ".net.0.proj", y, width_, inner_);
    y = on(stream, builder_.activation(stream.mlp + ".net.0.gelu", y, "gelu_pytorch_tanh", inner_));
    y = dense(stream, stream.mlp + ".net.2", y, inner_, width_);
    gated_sum(stream, stream.mlp, x, y, part.modulation);
  }

  std::int64_t width_, inner_;
  AttentionSpec spec_;
  BlockBuilder builder_;
};

// A single block: both streams as one sequence; attention and MLP in parallel, one projection out.
Block flux_single_block(const Model& model, std::int64_t repeat) {
  const std::int64_t width = model.hidden_size, inner = model.intermediate_size;
  BlockBuilder builder(Block::Role::encoder, "single_transformer_blocks", repeat);
  const int modulation = add_modulation(builder, "norm", kSideInput, width, 3);
  const int normed = builder.norm("norm.norm", kBlockInput, adaptive_norm(width));
  const int x = builder.multiply("norm.modulated", normed, modulation, width);
  const int up = builder.linear("proj_mlp", x, {.in = width, .out = inner, .bias = true});
  const int activated = builder.activation("act_mlp", up, "gelu_pytorch_tanh", inner);
  const auto project = [&](const std::string& name) { return builder.linear(name, x, {.in = width, .out = width, .bias = true}); };
  NormSpec head;
  head.width = model.head_dim;
  const int q = builder.norm("attn.norm_q", project("attn.to_q"), head), k = builder.norm("attn.norm_k", project("attn.to_k"), head);
  const int context = builder.add(attention("attn", image_attention(model)), {q, k, project("attn.to_v")});
  const int out = builder.linear("proj_out", builder.sum("concatenated", context, activated, width + inner),
                                 {.in = width + inner, .out = width, .bias = true});
  builder.block().operators[static_cast<std::size_t>(out) - 1].kind = OperatorKind::reshape;
  builder.sum("residual", kBlockInput, builder.multiply("gated", out, modulation, width), width);
  builder.block().stream = Block::Stream::joint;
  builder.block().norm = adaptive_norm(width);
  builder.block().attention = image_attention(model);
  return builder.build({"norm", "proj_mlp", "proj_out", "attn.norm_q", "attn.norm_k", "attn.to_q", "attn.to_k", "attn.to_v"});
}

std::vector<std::int64_t> axis_widths(const Config& config) {
  const auto given = config.find("axes_dims_rope");
  if (!given) return {16, 56, 56};
  std::vector<std::int64_t> widths;
  for (const JsonValue& width : given->elements()) widths.push_back(width.integer(2, kLargestDimension));
  if (widths.size() != 3) config.refuse_at("axes_dims_rope", "positions of other than three axes are not modelled");
  return widths;
}

// Tables of rotary positions, one part of every head per axis: time, height, width.
Block flux_positions(const Model& model, const Config& config) {
  Block block;
  block.role = Block::Role::rotary;
  block.name = "pos_embed";
  std::int64_t together = 0;
  for (const std::int64_t width : axis_widths(config)) {
    block.operators.push_back(rope("axis." + std::to_string(block.operators.size()), 0, 0, width));
    together += width;
  }
  if (together != model.head_dim)
    config.fail_at("axes_dims_rope", fmt::format("the axes' widths add up to {}, not to attention_head_dim {}", together, model.head_dim));
  return block;
}

}  // namespace

Model build_flux(const Config& config) {
  Model model = diffusion_model(config);
  model.layers = config.layers("num_layers");
  model.decoder_layers = config.layers("num_single_layers");
  model.intermediate_size = product({4, model.hidden_size});
  model.channels = config.dimension("in_channels");
  const std::int64_t patch = config.dimension_or("patch_size", 1);
  model.patch_size = patch;
  enum : int { kConditionBlock, kTextBlock, kImageBlock, kPositionsBlock };
  model.blocks.push_back(time_text_condition(model, config.dimension("pooled_projection_dim"), config.flag_or("guidance_embeds", false)));
  model.blocks.push_back(
      stream_projection("context_embedder", config.dimension("joint_attention_dim"), model.hidden_size, Block::Stream::second));
  model.blocks.push_back(stream_projection("x_embedder", model.channels, model.hidden_size, Block::Stream::main));
  model.blocks.push_back(flux_positions(model, config));
  Block doubles = FluxDoubleBlock(model).build();
  doubles.input = kImageBlock;
  doubles.side_inputs = {kTextBlock, kConditionBlock};
  model.blocks.push_back(std::move(doubles));
  Block singles = flux_single_block(model, model.decoder_layers);
  singles.side_inputs = {kConditionBlock};
  model.blocks.push_back(std::move(singles));
  append_continuous_output(model, product({patch, patch, config.dimension_or("out_channels", model.channels)}), kConditionBlock);
  return model;
}

}  // namespace plimsoll::model
