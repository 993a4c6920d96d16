// DiTTransformer2DModel of diffusers 0.42: blocks of one stream, each with an embedding of timestep and class of its own.
#include <vector>

#include "plimsoll/error.hpp"
#include "program/modules/diffusers/diffusion.hpp"
#include "program/modules/transformers/families.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// LabelEmbedding.token_drop: a tenth of the labels become the class of none.
Tensor drop_labels(const Tensor& labels) {
  Tape& tape = labels.tape();
  Tensor dropped;
  {
    const Tensor random = tape.empty(labels.sizes(), DType::fp32);
    pointwise(Pointwise::Form::random, {}, {&random});
    dropped = elementwise(tape, {&random}, DType::boolean);
  }
  const Tensor none = zeros(tape, {}, DType::int64);
  return elementwise(tape, {&dropped, &none, &labels}, DType::int64);
}

/// CombinedTimestepLabelEmbeddings: [batch, width].
Tensor label_condition(Module& module, Tape& tape, const Tensor& timestep_in, const Tensor& labels_in, DType type) {
  Tensor timestep = timestep_in, labels = labels_in;
  ModuleCall call(module, tape, {&timestep, &labels});
  const Tensor features = timestep_features(timestep, 256);
  Tensor time;
  {
    const Tensor low = to(features, type);
    time = embed_features(module.child("timestep_embedder"), tape, low);
  }
  Tensor classes;
  {
    const Tensor kept = drop_labels(labels);
    classes = Embedding(module.child("class_embedder").child("embedding_table"), tape)(kept);
  }
  return call.done(add(time, classes));
}

/// BasicTransformerBlock with ada_norm_zero.
class DitBlock {
 public:
  DitBlock(Module& module, Tape& tape, std::int64_t head_dim) : module_(module), tape_(tape), head_dim_(head_dim) {
    module.type = "BasicTransformerBlock";
  }

  Tensor operator()(const std::vector<Tensor>& arguments) const {
    Tensor input = arguments[0], timestep = arguments[1], labels = arguments[2];
    ModuleCall call(module_, tape_, {&input, &timestep, &labels});
    std::vector<Tensor> vectors;
    Tensor normed = zero_norm(input, timestep, labels, vectors);
    Tensor attended = attend_heads(module_.child("attn1"), tape_, normed, normed, head_dim_);
    attended = gated(vectors[2], attended);
    Tensor hidden = add(attended, input);
    normed = layer_norm(hidden, {}, {});
    normed = modulated(normed, vectors[4], vectors[3]);
    Tensor branch = feed_forward(module_.child("ff"), tape_, normed);
    branch = gated(vectors[5], branch);
    hidden = add(branch, hidden);
    return call.done(hidden);
  }

 private:
  Tensor zero_norm(const Tensor& input, const Tensor& timestep, const Tensor& labels, std::vector<Tensor>& vectors) const {
    Module& norm = module_.child("norm1");
    Tensor x = input;
    ModuleCall call(norm, tape_, {&x});
    {
      const Tensor condition = label_condition(norm.child("emb"), tape_, timestep, labels, x.dtype());
      vectors = modulation(norm, tape_, condition, 6);
    }
    return call.done(modulated(layer_norm(x, {}, {}), vectors[1], vectors[0]));
  }

  Module& module_;
  Tape& tape_;
  std::int64_t head_dim_;
};

class Dit final : public DiffusionNetwork {
 public:
  Dit(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : DiffusionNetwork(model, options, root, tape), blocks_(stack<DitBlock>("transformer_blocks")) {}

 protected:
  Tensor predict(const Batch& batch) override {
    Module& first = root_.child("transformer_blocks").child("0");
    if (!first.pre_forward.empty())
      fail("diffusers' DiT calls the first block's embedding outside of the block, which sharding it on its own forbids", "fsdp.units");
    Tensor latents = batch.input_ids, timestep = batch.conditions[0], labels = batch.conditions[1];
    ModuleCall call(root_, tape_, {&latents, &timestep, &labels});
    Tensor hidden = embed_patches(root_.child("pos_embed"), tape_, latents, model_.patch_size);
    for (const DitBlock& block : blocks_)
      hidden = run_block(tape_, options_, {hidden, timestep, labels}, [&block](const std::vector<Tensor>& arguments) {
                 return TokenStreams{block(arguments), {}};
               }).image;
    const Tensor condition = label_condition(first.child("norm1").child("emb"), tape_, timestep, labels, hidden.dtype());
    std::vector<Tensor> vectors;
    {
      const Tensor activated = silu(condition);
      vectors = chunk(Linear(root_.child("proj_out_1"), tape_)(activated), 2, 1);
    }
    hidden = modulated(layer_norm(hidden, {}, {}), vectors[1], vectors[0]);
    hidden = Linear(root_.child("proj_out_2"), tape_)(hidden);
    const std::int64_t side = latents.size(2) / model_.patch_size;
    return call.done(joined_patches(hidden, side, side, model_.patch_size));
  }

 private:
  std::vector<DitBlock> blocks_;
};

}  // namespace

std::unique_ptr<Network> make_dit(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<Dit>(model, options, root, tape);
}

}  // namespace plimsoll::program
