#include "program/modules/diffusers/diffusion.hpp"

#include <cmath>
#include <memory>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/checkpoint.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

std::int64_t side_of(std::int64_t places) {
  const auto side = static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(places))));
  if (side * side != places) fail("images that are not square are not modelled: the patches of one are a square number", "seq_len");
  return side;
}

namespace {

/// An elementwise kernel on a tensor that takes no part in autograd.
Tensor map(const Tensor& x) { return elementwise(x.tape(), {&x}, x.dtype()); }

}  // namespace

Tensor timestep_features(const Tensor& timesteps, std::int64_t channels, bool flip_sine_to_cosine) {
  Tape& tape = timesteps.tape();
  const GradMode no_grad(tape, false);
  const std::int64_t half = channels / 2;
  Tensor exponent;
  {
    const Tensor numbers = arange(tape, half, DType::fp32);
    exponent = map(numbers);
  }
  exponent = map(exponent);
  Tensor features = map(exponent);
  {
    const Tensor column = to(unsqueeze(timesteps, 1), DType::fp32);
    features = multiply(column, unsqueeze(features, 0));
  }
  features = map(features);
  {
    const Tensor sines = sine(features), cosines = cosine(features);
    features = cat({sines, cosines}, -1);
  }
  if (flip_sine_to_cosine) features = cat({slice(features, -1, half, channels), slice(features, -1, 0, half)}, -1);
  return features;
}

Tensor embed_features(Module& module, Tape& tape, const Tensor& features) {
  Tensor sample = features;
  ModuleCall call(module, tape, {&sample});
  Tensor hidden = Linear(module.child("linear_1"), tape)(sample);
  hidden = silu(hidden);
  hidden = Linear(module.child("linear_2"), tape)(hidden);
  return call.done(hidden);
}

Tensor combined_condition(Module& module, Tape& tape, const Tensor& timestep_in, const Tensor& guidance_in, const Tensor& pooled_in) {
  Tensor timestep = timestep_in, guidance = guidance_in, pooled = pooled_in;
  ModuleCall call(module, tape, {&timestep, &guidance, &pooled});
  const auto embed = [&](const Tensor& features, const char* name) {
    const Tensor low = to(features, pooled.dtype());
    return embed_features(module.child(name), tape, low);
  };
  const Tensor timestep_rows = timestep_features(timestep, 256);
  const Tensor timestep_embedding = embed(timestep_rows, "timestep_embedder");
  Tensor guidance_rows, guidance_embedding, sum = timestep_embedding;
  if (guidance) {
    guidance_rows = timestep_features(guidance, 256);
    guidance_embedding = embed(guidance_rows, "guidance_embedder");
    sum = add(timestep_embedding, guidance_embedding);
  }
  const Tensor text = embed_features(module.child("text_embedder"), tape, pooled);
  return call.done(add(sum, text));
}

std::vector<Tensor> modulation(Module& norm, Tape& tape, const Tensor& condition, int parts) {
  const Tensor activated = silu(condition);
  const Tensor vectors = Linear(norm.child("linear"), tape)(activated);
  return chunk(vectors, parts, 1);
}

Tensor modulated(Tensor x, const Tensor& scale, const Tensor& shift) {
  Tensor y;
  {
    const Tensor factor = add_scalar(unsqueeze(scale, 1));
    y = multiply(x, factor);
  }
  x.reset();
  return add(y, unsqueeze(shift, 1));
}

Tensor continuous_norm(Module& norm, Tape& tape, const Tensor& input, const Tensor& condition_in) {
  Tensor x = input, condition = condition_in;
  ModuleCall call(norm, tape, {&x, &condition});
  Tensor vectors;
  {
    Tensor activated = silu(condition);
    activated = to(activated, x.dtype());
    vectors = Linear(norm.child("linear"), tape)(activated);
  }
  const std::vector<Tensor> parts = chunk(vectors, 2, 1);
  Tensor y;
  {
    const Tensor normed = layer_norm(x, {}, {});
    const Tensor factor = add_scalar(parts[0]);
    y = multiply(normed, unsqueeze(factor, 1));
  }
  return call.done(add(y, unsqueeze(parts[1], 1)));
}

Tensor gated(const Tensor& gate, const Tensor& x) { return multiply(unsqueeze(gate, 1), x); }

Tensor eager_rms_norm(Module& module, Tape& tape, const Tensor& input) {
  Tensor x = input;
  ModuleCall call(module, tape, {&x});
  const Tensor& weight = module.tensor("weight");
  Tensor variance;
  {
    Tensor squares;
    {
      const Tensor wide = to(x, DType::fp32);
      squares = power(wide);
    }
    variance = mean(squares, -1, true);
  }
  Tensor hidden;
  {
    Tensor root = add_scalar(variance);
    root = rsqrt(root);
    hidden = multiply(x, root);
  }
  if (weight.dtype() != DType::fp32) hidden = to(hidden, weight.dtype());
  return call.done(multiply(hidden, weight));
}

Tensor embed_patches(Module& module, Tape& tape, const Tensor& input, std::int64_t patch) {
  Tensor latents = input;
  ModuleCall call(module, tape, {&latents});
  const std::int64_t height = latents.size(2) / patch, width = latents.size(3) / patch;
  Module& projection = module.child("proj");
  Tensor places;
  {
    const LabelScope label(tape, projection.label);
    places = convolution(latents, projection.tensor("weight"), projection.tensor("bias"), {.stride = patch});
  }
  places = transpose(view(places, {places.size(0), places.size(1), -1}), 1, 2);
  const Tensor& table = module.buffer("pos_embed");
  const std::int64_t side = side_of(table.size(1));
  if (height > side || width > side)
    fail("an image of " + std::to_string(height) + " x " + std::to_string(width) + " patches exceeds the model's table of positions",
         "seq_len", "at most " + std::to_string(side) + " patches a side");
  const std::int64_t top = (side - height) / 2, left = (side - width) / 2;
  Tensor positions = view(table, {1, side, side, -1});
  positions = slice(slice(positions, 1, top, top + height), 2, left, left + width);
  positions = reshape(positions, {1, height * width, -1});
  const Tensor placed = add(places, positions);
  return call.done(to(placed, places.dtype()));
}

Tensor joined_patches(const Tensor& patches, std::int64_t height, std::int64_t width, std::int64_t patch) {
  const std::int64_t batch = patches.size(0);
  const Tensor grid = permute(reshape(patches, {batch, height, width, patch, patch, -1}), {0, 5, 1, 3, 2, 4});
  return reshape(grid, {batch, grid.size(1), height * patch, width * patch});
}

Tensor feed_forward(Module& module, Tape& tape, const Tensor& input) {
  Tensor hidden = input;
  ModuleCall call(module, tape, {&hidden});
  Module& net = module.child("net");
  {
    Module& first = net.child("0");
    ModuleCall gelu_call(first, tape, {&hidden});
    Tensor inner = Linear(first.child("proj"), tape)(hidden);
    inner = gelu(inner);
    hidden = gelu_call.done(inner);
  }
  return call.done(Linear(net.child("2"), tape)(hidden));
}

Tensor split_heads(const Tensor& x, std::int64_t head_dim) { return view(x, {x.size(0), x.size(1), -1, head_dim}); }

Tensor attend_heads(Module& module, Tape& tape, const Tensor& input, const Tensor& context_in, std::int64_t head_dim) {
  Tensor x = input, context = context_in;
  ModuleCall call(module, tape, {&x, &context});
  const auto heads = [&](const char* name, const Tensor& of) {
    return transpose(split_heads(Linear(module.child(name), tape)(of), head_dim), 1, 2);
  };
  const Tensor query = heads("to_q", x), key = heads("to_k", context), value = heads("to_v", context);
  Tensor hidden = scaled_dot_product_attention(query, key, value, {}, {});
  hidden = reshape(transpose(hidden, 1, 2), {x.size(0), -1, query.size(1) * head_dim});
  hidden = to(hidden, query.dtype());
  hidden = Linear(module.child("to_out").child("0"), tape)(hidden);
  return call.done(divide_scalar(hidden));
}

Tensor dispatch_attention(const Tensor& query, const Tensor& key, const Tensor& value) {
  const Dims order{0, 2, 1, 3};
  const Tensor q = permute(query, order), k = permute(key, order), v = permute(value, order);
  const Tensor output = scaled_dot_product_attention(q, k, v, {}, {});
  return permute(output, order);
}

TokenStreams run_block(Tape& tape, const RunOptions& options, const std::vector<Tensor>& arguments, const BlockForward& forward) {
  switch (options.checkpointing) {
    case RunOptions::Checkpointing::none:
      return forward(arguments);
    case RunOptions::Checkpointing::reentrant:
      refuse("diffusers checkpoints without re-entrance", "recompute");
    case RunOptions::Checkpointing::non_reentrant:
      break;
  }
  // A region has one output; the second leaves beside it. When the region runs again it stops before it returns.
  const auto text = std::make_shared<Tensor>();
  const Region region = [forward, text](const std::vector<Tensor>& inputs) {
    TokenStreams streams = forward(inputs);
    *text = std::move(streams.text);
    return streams.image;
  };
  TokenStreams streams;
  streams.image = checkpoint(tape, region, arguments);
  streams.text = std::exchange(*text, Tensor());
  return streams;
}

Tensor DiffusionNetwork::criterion(Tensor prediction) { return prediction_loss(prediction); }

Tensor prediction_loss(const Tensor& prediction) {
  Tape& tape = prediction.tape();
  tape.phase(Phase::loss);
  const Tensor wide = to(prediction, DType::fp32);
  const Tensor target = zeros(tape, prediction.sizes(), DType::fp32);
  return mse_loss(wide, target);
}

// ---- inputs ------------------------------------------------------------------------------------------------------------

namespace {

/// Input width of the linear `name` of a block.
std::int64_t width_into(const Model& model, const std::string& block_name, const std::string& name) {
  for (const Block& block : model.blocks) {
    if (block.name != block_name) continue;
    for (const Operator& op : block.operators)
      if (op.name == name) return op.in_features;
  }
  throw Error(ErrorCode::internal, "model '" + model.name + "' has no linear '" + block_name + "." + name + "'");
}

bool has_operator(const Model& model, const std::string& block_name, const std::string& name) {
  for (const Block& block : model.blocks)
    for (const Operator& op : block.operators)
      if (block.name == block_name && op.name == name) return true;
  return false;
}

/// hidden_states, encoder_hidden_states, pooled_projections, timestep, guidance (in fp32), img_ids, txt_ids.
Batch flux_batch(const Model& model, Tape& tape, DType type, std::int64_t batch, std::int64_t tokens, std::int64_t text_tokens) {
  const auto input = [&](const Dims& sizes, DType of) { return tape.empty(sizes, of, Category::input); };
  const std::int64_t context = width_into(model, "context_embedder", ""),
                     pooled = width_into(model, "time_text_embed", "text_embedder.linear_1");
  Batch made;
  made.input_ids = input({batch, tokens, model.channels}, type);
  for (const Dims& sizes : {Dims{batch, text_tokens, context}, Dims{batch, pooled}, Dims{batch}})
    made.conditions.push_back(input(sizes, type));
  const Tensor guidance = input({batch}, DType::fp32);
  made.conditions.push_back(has_operator(model, "time_text_embed", "guidance_embedder.linear_1") ? guidance : Tensor());
  made.conditions.push_back(input({tokens, 3}, type));
  made.conditions.push_back(input({text_tokens, 3}, type));
  return made;
}

/// hidden_states, encoder_hidden_states, pooled_projections, timestep.
Batch sd3_batch(const Model& model, Tape& tape, DType type, std::int64_t batch, std::int64_t tokens, std::int64_t text_tokens) {
  const std::int64_t side = side_of(tokens) * model.patch_size;
  Batch made;
  made.input_ids = tape.empty({batch, model.channels, side, side}, type, Category::input);
  const std::int64_t context = width_into(model, "context_embedder", ""),
                     pooled = width_into(model, "time_text_embed", "text_embedder.linear_1");
  for (const Dims& sizes : {Dims{batch, text_tokens, context}, Dims{batch, pooled}, Dims{batch}})
    made.conditions.push_back(tape.empty(sizes, type, Category::input));
  return made;
}

/// hidden_states of a model whose table of positions is of one size.
Tensor sized_latents(const Model& model, Tape& tape, DType type, std::int64_t batch, std::int64_t tokens) {
  const std::int64_t side = side_of(tokens) * model.patch_size;
  if (side != model.image_size)
    refuse("latents of another size than the model's sample_size are not modelled", "seq_len",
           std::to_string(model.image_size / model.patch_size * (model.image_size / model.patch_size)) + " patches");
  return tape.empty({batch, model.channels, side, side}, type, Category::input);
}

/// hidden_states, timestep, class_labels.
Batch dit_batch(const Model& model, Tape& tape, DType type, std::int64_t batch, std::int64_t tokens) {
  Batch made;
  made.input_ids = sized_latents(model, tape, type, batch, tokens);
  for (int i = 0; i < 2; ++i) made.conditions.push_back(tape.empty({batch}, DType::int64, Category::input));
  return made;
}

/// hidden_states, encoder_hidden_states, timestep.
Batch pixart_batch(const Model& model, Tape& tape, DType type, std::int64_t batch, std::int64_t tokens, std::int64_t text_tokens) {
  Batch made;
  made.input_ids = sized_latents(model, tape, type, batch, tokens);
  made.conditions.push_back(tape.empty({batch, text_tokens, width_into(model, "caption_projection", "linear_1")}, type, Category::input));
  made.conditions.push_back(tape.empty({batch}, DType::int64, Category::input));
  return made;
}

}  // namespace

Batch diffusion_batch(const Model& model, Tape& tape, DType type, std::int64_t batch, std::int64_t tokens, std::int64_t text_tokens) {
  if (model.model_type == "FluxTransformer2DModel") return flux_batch(model, tape, type, batch, tokens, text_tokens);
  if (model.model_type == "SD3Transformer2DModel") return sd3_batch(model, tape, type, batch, tokens, text_tokens);
  if (model.model_type == "DiTTransformer2DModel") return dit_batch(model, tape, type, batch, tokens);
  if (model.model_type == "PixArtTransformer2DModel") return pixart_batch(model, tape, type, batch, tokens, text_tokens);
  refuse("the inputs of a training step of '" + model.model_type + "' are not modelled");
}

}  // namespace plimsoll::program
