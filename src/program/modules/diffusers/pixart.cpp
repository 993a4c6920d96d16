// PixArtTransformer2DModel of diffusers 0.42 (PixArt-alpha at 256 and 512 pixels, PixArt-sigma): blocks that attend within the image and to
// the prompt; one modulation for all, to which every block adds a table of its own.
#include <vector>

#include "program/modules/diffusers/diffusion.hpp"
#include "program/modules/transformers/families.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// x * (1 + scale) + shift of vectors [batch, 1, width].
Tensor shifted(Tensor x, const Tensor& scale, const Tensor& shift) {
  Tensor y;
  {
    const Tensor factor = add_scalar(scale);
    y = multiply(x, factor);
  }
  x.reset();
  return add(y, shift);
}

/// BasicTransformerBlock with ada_norm_single.
class PixArtBlock {
 public:
  PixArtBlock(Module& module, Tape& tape, std::int64_t head_dim) : module_(module), tape_(tape), head_dim_(head_dim) {
    module.type = "BasicTransformerBlock";
  }

  Tensor operator()(const std::vector<Tensor>& arguments) const {
    Tensor input = arguments[0], text = arguments[1], timestep = arguments[2];
    ModuleCall call(module_, tape_, {&input, &text, &timestep});
    std::vector<Tensor> vectors;
    {
      const Tensor table = unsqueeze(module_.tensor("scale_shift_table"), 0);
      const Tensor sum = add(table, reshape(timestep, {input.size(0), 6, -1}));
      vectors = chunk(sum, 6, 1);
    }
    Tensor normed = layer_norm(input, {}, {});
    normed = shifted(normed, vectors[1], vectors[0]);
    Tensor attended = attend_heads(module_.child("attn1"), tape_, normed, normed, head_dim_);
    attended = multiply(vectors[2], attended);
    Tensor hidden = add(attended, input);
    normed = hidden;
    attended = attend_heads(module_.child("attn2"), tape_, normed, text, head_dim_);
    hidden = add(attended, hidden);
    normed = layer_norm(hidden, {}, {});
    normed = shifted(normed, vectors[4], vectors[3]);
    Tensor branch = feed_forward(module_.child("ff"), tape_, normed);
    branch = multiply(vectors[5], branch);
    hidden = add(branch, hidden);
    return call.done(hidden);
  }

 private:
  Module& module_;
  Tape& tape_;
  std::int64_t head_dim_;
};

class PixArt final : public DiffusionNetwork {
 public:
  PixArt(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : DiffusionNetwork(model, options, root, tape), blocks_(stack<PixArtBlock>("transformer_blocks")) {}

 protected:
  Tensor predict(const Batch& batch) override {
    Tensor latents = batch.input_ids, prompt = batch.conditions[0], time = batch.conditions[1];
    ModuleCall call(root_, tape_, {&latents, &prompt, &time});
    Tensor hidden = embed_patches(root_.child("pos_embed"), tape_, latents, model_.patch_size);
    Tensor embedded;
    const Tensor timestep = single_norm(time, hidden.dtype(), embedded);
    const Tensor text = project_caption(prompt);
    for (const PixArtBlock& block : blocks_)
      hidden = run_block(tape_, options_, {hidden, text, timestep}, [&block](const std::vector<Tensor>& arguments) {
                 return TokenStreams{block(arguments), {}};
               }).image;
    std::vector<Tensor> vectors;
    {
      const Tensor table = unsqueeze(root_.tensor("scale_shift_table"), 0);
      const Tensor sum = add(table, unsqueeze(embedded, 1));
      vectors = chunk(sum, 2, 1);
    }
    hidden = layer_norm(hidden, {}, {});
    hidden = shifted(hidden, vectors[1], vectors[0]);
    hidden = Linear(root_.child("proj_out"), tape_)(hidden);
    return call.done(joined_patches(hidden, latents.size(2) / model_.patch_size, latents.size(3) / model_.patch_size, model_.patch_size));
  }

 private:
  /// AdaLayerNormSingle: six vectors per sample in one, and the embedding of the timestep.
  Tensor single_norm(const Tensor& time_in, DType type, Tensor& embedded) {
    Module& norm = root_.child("adaln_single");
    Tensor time = time_in;
    ModuleCall call(norm, tape_, {&time});
    {
      const Tensor features = timestep_features(time, 256);
      const Tensor low = to(features, type);
      embedded = embed_features(norm.child("emb").child("timestep_embedder"), tape_, low);
    }
    const Tensor activated = silu(embedded);
    Tensor vectors = Linear(norm.child("linear"), tape_)(activated);
    call.done({&vectors, &embedded});
    return vectors;
  }

  /// PixArtAlphaTextProjection.
  Tensor project_caption(const Tensor& input) {
    Module& module = root_.child("caption_projection");
    Tensor caption = input;
    ModuleCall call(module, tape_, {&caption});
    Tensor hidden = Linear(module.child("linear_1"), tape_)(caption);
    hidden = gelu(hidden);
    return call.done(Linear(module.child("linear_2"), tape_)(hidden));
  }

  std::vector<PixArtBlock> blocks_;
};

}  // namespace

std::unique_ptr<Network> make_pixart(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<PixArt>(model, options, root, tape);
}

}  // namespace plimsoll::program
