/// What the diffusion transformers of diffusers 0.42 share: embeddings of timesteps and prompts, norms modulated by a conditioning vector,
/// the feed-forward, attention's dispatch, checkpointed blocks, the loss.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "program/modules/layers.hpp"
#include "program/modules/network.hpp"

namespace plimsoll::program {

/// Image and prompt tokens, [batch, tokens, width] each; one of them may be undefined.
struct TokenStreams {
  Tensor image, text;
};

/// get_timestep_embedding of [batch] timesteps: sines and cosines, [batch, channels] in fp32.
Tensor timestep_features(const Tensor& timesteps, std::int64_t channels, bool flip_sine_to_cosine = true);
/// TimestepEmbedding and PixArtAlphaTextProjection: linear_1, silu, linear_2.
Tensor embed_features(Module& module, Tape& tape, const Tensor& features);

/// CombinedTimestep[Guidance]TextProjEmbeddings of `module` (guidance only where there is a guidance_embedder): [batch, width].
Tensor combined_condition(Module& module, Tape& tape, const Tensor& timestep, const Tensor& guidance, const Tensor& pooled);

/// self.linear(self.silu(condition)) of an adaptive norm, in `parts` equal vectors [batch, width], views of one tensor.
std::vector<Tensor> modulation(Module& norm, Tape& tape, const Tensor& condition, int parts);
/// x * (1 + scale[:, None]) + shift[:, None]; an x that nobody else holds dies before the sum.
Tensor modulated(Tensor x, const Tensor& scale, const Tensor& shift);
/// AdaLayerNormContinuous: a norm without weights, scaled and shifted.
Tensor continuous_norm(Module& norm, Tape& tape, const Tensor& x, const Tensor& condition);
/// gate.unsqueeze(1) * x.
Tensor gated(const Tensor& gate, const Tensor& x);

/// diffusers' RMSNorm, in elementwise operators: the mean of squares in fp32, the product with the weight in the weight's type.
Tensor eager_rms_norm(Module& module, Tape& tape, const Tensor& x);

/// PatchEmbed of latents [batch, channels, height, width]: a convolution, and positions cut from the middle of the module's square table:
/// [batch, places, width], not contiguous. Throws Error: more places than the table has.
Tensor embed_patches(Module& module, Tape& tape, const Tensor& latents, std::int64_t patch);
/// Patches [batch, height · width, patch² · channels] as an image [batch, channels, height · patch, width · patch].
Tensor joined_patches(const Tensor& patches, std::int64_t height, std::int64_t width, std::int64_t patch);

/// FeedForward: net.0.proj and GELU of either kind, net.2.
Tensor feed_forward(Module& module, Tape& tape, const Tensor& x);

/// [batch, length, width] → [batch, length, heads, head_dim].
Tensor split_heads(const Tensor& x, std::int64_t head_dim);
/// Attention with AttnProcessor2_0: queries of `x`, keys and values of `context` (x itself, or the prompt).
Tensor attend_heads(Module& module, Tape& tape, const Tensor& x, const Tensor& context, std::int64_t head_dim);
/// dispatch_attention_fn's native backend on [batch, length, heads, head_dim] tensors.
Tensor dispatch_attention(const Tensor& query, const Tensor& key, const Tensor& value);

/// _gradient_checkpointing_func(block, …): hooks of the block's module run within the region.
using BlockForward = std::function<TokenStreams(const std::vector<Tensor>& arguments)>;
TokenStreams run_block(Tape& tape, const RunOptions& options, const std::vector<Tensor>& arguments, const BlockForward& forward);

/// Side of a square image of so many places. Throws Error: no square.
std::int64_t side_of(std::int64_t places);

/// What diffusers' scripts compute of a prediction: a mean squared error in fp32, outside of autocast.
Tensor prediction_loss(const Tensor& prediction);

/// A network whose forward answers a prediction [batch, …]; the loss is a mean squared error in fp32, outside of autocast.
class DiffusionNetwork : public Network {
 public:
  Tensor loss(const Batch& batch) final { return predict(batch); }
  Tensor criterion(Tensor prediction) final;

 protected:
  DiffusionNetwork(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : model_(model), options_(options), root_(root), tape_(tape) {}
  virtual Tensor predict(const Batch& batch) = 0;

  /// The blocks of one stack, in order.
  template <class Transformer>
  std::vector<Transformer> stack(const std::string& name) const {
    std::vector<Transformer> blocks;
    for (const Block& block : model_.blocks) {
      if (block.role != Block::Role::encoder || block.name != name) continue;
      for (std::int64_t i = 0; i < block.repeat; ++i)
        blocks.emplace_back(root_.child(name).child(std::to_string(block.first + i)), tape_, model_.head_dim);
    }
    return blocks;
  }

  const Model& model_;
  RunOptions options_;
  Module& root_;
  Tape& tape_;
};

/// The inputs of one micro-batch, in the order of the training loop: what the model's forward takes.
/// `tokens`: of the image, after patches are cut; `text_tokens`: of the prompt. Throws Error (refused): a model whose inputs are not known.
Batch diffusion_batch(const Model& model, Tape& tape, DType type, std::int64_t batch, std::int64_t tokens, std::int64_t text_tokens);

}  // namespace plimsoll::program
