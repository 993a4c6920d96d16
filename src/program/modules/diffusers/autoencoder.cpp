// diffusers/models/autoencoders/vae.py (Encoder, DiagonalGaussianDistribution), resnet.py, downsampling.py, attention_processor.py of 0.42.
#include "program/modules/diffusers/autoencoder.hpp"

#include <string>

#include "plimsoll/error.hpp"
#include "program/modules/layers.hpp"
#include "program/ops/pointwise.hpp"
#include "program/ops/images.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/placing.hpp"

namespace plimsoll::program {

namespace {

/// norm_num_groups, which all norms share.
std::int64_t norm_groups(const Model& model) {
  for (const Block& block : model.blocks)
    for (const Operator& op : block.operators)
      if (op.kind == OperatorKind::layer_norm) return op.groups;
  throw Error(ErrorCode::internal, "the autoencoder '" + model.name + "' has no norm");
}

class Encoder {
 public:
  Encoder(Module& module, Tape& tape, std::int64_t groups) : module_(module), tape_(tape), groups_(groups) {}

  Tensor operator()(const Tensor& pixels) const {
    Tensor sample = pixels;
    ModuleCall call(module_, tape_, {&sample});
    sample = convolved(module_.child("conv_in"), sample, {.padding = 1});
    for (const auto& stage : module_.child("down_blocks").children) sample = down(*stage, sample);
    sample = middle(module_.child("mid_block"), sample);
    sample = normed(module_.child("conv_norm_out"), sample);
    sample = silu(sample);
    sample = convolved(module_.child("conv_out"), sample, {.padding = 1});
    return call.done(sample);
  }

 private:
  Tensor convolved(Module& module, const Tensor& input, const ConvolutionArguments& arguments) const {
    Tensor x = input;
    ModuleCall call(module, tape_, {&x});
    return call.done(convolution(x, module.tensor("weight"), module.tensor("bias"), arguments));
  }

  Tensor normed(Module& module, const Tensor& input) const {
    Tensor x = input;
    ModuleCall call(module, tape_, {&x});
    return call.done(group_norm(x, module.tensor("weight"), module.tensor("bias"), groups_));
  }

  /// ResnetBlock2D without an embedding of time: its input lives to the end, for the sum.
  Tensor residual(Module& module, const Tensor& input) const {
    Tensor shortcut = input;
    ModuleCall call(module, tape_, {&shortcut});
    Tensor hidden = normed(module.child("norm1"), shortcut);
    hidden = silu(hidden);
    hidden = convolved(module.child("conv1"), hidden, {.padding = 1});
    hidden = normed(module.child("norm2"), hidden);
    hidden = silu(hidden);
    hidden = convolved(module.child("conv2"), hidden, {.padding = 1});
    if (Module* const conv = module.find_child("conv_shortcut")) shortcut = convolved(*conv, contiguous(shortcut), {});
    Tensor sum = add(shortcut, hidden);
    return call.done(divide_scalar(sum));
  }

  /// DownEncoderBlock2D; the convolution between stages sees a row and a column more.
  Tensor down(Module& module, const Tensor& input) const {
    Tensor hidden = input;
    ModuleCall call(module, tape_, {&hidden});
    for (const auto& each : module.child("resnets").children) hidden = residual(*each, hidden);
    if (Module* const samplers = module.find_child("downsamplers")) {
      Module& sampler = samplers->child("0");
      ModuleCall inner(sampler, tape_, {&hidden});
      Tensor wider = padded(hidden, {0, 0, 0, 0}, {0, 0, 1, 1});
      hidden = inner.done(convolved(sampler.child("conv"), wider, {.stride = 2}));
    }
    return call.done(hidden);
  }

  /// One head as wide as the channels, over all places.
  Tensor attended(Module& module, const Tensor& input) const {
    Tensor residual_input = input;
    ModuleCall call(module, tape_, {&residual_input});
    const std::int64_t batch = input.size(0), channels = input.size(1), places = input.size(2) * input.size(3);
    Tensor hidden = transpose(view(residual_input, {batch, channels, places}), 1, 2);
    hidden = transpose(normed(module.child("group_norm"), transpose(hidden, 1, 2)), 1, 2);
    const auto head = [&](const char* name) {
      return transpose(view(Linear(module.child(name), tape_)(hidden), {batch, -1, 1, channels}), 1, 2);
    };
    const Tensor query = head("to_q"), key = head("to_k"), value = head("to_v");
    hidden = scaled_dot_product_attention(query, key, value, {}, {});
    hidden = reshape(transpose(hidden, 1, 2), {batch, -1, channels});
    hidden = Linear(module.child("to_out").child("0"), tape_)(hidden);
    hidden = reshape(transpose(hidden, 1, 2), {batch, channels, input.size(2), input.size(3)});
    hidden = add(hidden, residual_input);
    return call.done(divide_scalar(hidden));
  }

  Tensor middle(Module& module, const Tensor& input) const {
    Tensor hidden = input;
    ModuleCall call(module, tape_, {&hidden});
    Module& blocks = module.child("resnets");
    hidden = residual(blocks.child("0"), hidden);
    if (Module* const attentions = module.find_child("attentions")) hidden = attended(attentions->child("0"), hidden);
    return call.done(residual(blocks.child("1"), hidden));
  }

  Module& module_;
  Tape& tape_;
  std::int64_t groups_;
};

}  // namespace

LatentDistribution encode_images(const Model& model, Module& root, Tape& tape, const Tensor& pixels) {
  LatentDistribution made;
  made.moments = Encoder(root.child("encoder"), tape, norm_groups(model))(pixels);
  if (Module* const mixing = root.find_child("quant_conv"))
    made.moments = convolution(made.moments, mixing->tensor("weight"), mixing->tensor("bias"), ConvolutionArguments{});
  const std::vector<Tensor> halves = chunk(made.moments, 2, 1);
  made.mean = halves[0];
  made.logvar = clamp(halves[1]);
  {
    const Tensor half = multiply_scalar(made.logvar);
    made.deviation = exponential(half);
  }
  made.variance = exponential(made.logvar);
  return made;
}

Tensor sample_latents(const LatentDistribution& distribution) {
  const Tensor noise = filled(distribution.moments.tape(), distribution.mean.sizes(), distribution.moments.dtype());
  const Tensor spread = multiply(distribution.deviation, noise);
  return add(distribution.mean, spread);
}

std::int64_t pixels_of_latent(const Model& model) { return std::int64_t{1} << (model.layers - 1); }

}  // namespace plimsoll::program
