/// Megatron-core's GPTModel with its local layer spec or Transformer Engine's: the model chunk of one pipeline and tensor-parallel rank.
/// Source: megatron/core/models/gpt, megatron/core/transformer of Megatron-core 0.16.1.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"
#include "program/lower.hpp"
#include "program/module.hpp"
#include "program/modules/megatron_moe.hpp"
#include "program/modules/megatron_ops.hpp"
#include "program/modules/megatron_te.hpp"

namespace plimsoll::program {

/// What TransformerConfig says, for all layers alike.
struct MegatronConfig {
  DType type = DType::bf16;                 ///< of parameters and activations
  std::int64_t hidden = 0, vocabulary = 0;  ///< vocabulary padded to all ranks
  std::int64_t positions = 0;               ///< rows of the learned position table; 0: rotary
  double hidden_dropout = 0;
  bool flash = false;  ///< torch's SDPA as the core attention; else DotProductAttention
  bool te = false;     ///< Transformer Engine's modules; else Megatron's own
  TeQuantization quantization;
  bool eight_bit_activations = false;  ///< the gated activation saves its input in 8 bits
  bool fused_rotary = false;           ///< Transformer Engine's rotary kernel
  TeAttention attention;               ///< of Transformer Engine
  std::optional<Lora> lora;
  std::vector<std::string> adapted;  ///< linears that get an adapter, by Megatron's names
  LossKernel loss = LossKernel::vocab_parallel;
  bool tied = false;
  bool latent = false;  ///< multi-head latent attention
  std::int64_t pipeline = 1;
  ExpertOptions experts;
  Recompute recompute;
  NormSpec norm;
  std::vector<const Block*> layers;  ///< of the whole model, in order
};

/// Throws Error (refused): whatever of the model or the strategy is not modelled for Megatron-core.
MegatronConfig megatron_config(const Model& model, const Strategy& strategy, const MegatronDevice& device = {});

/// How Transformer Engine multiplies in 8 bits. Throws Error (refused): a recipe that is not modelled.
TeQuantization te_quantization(const Strategy& strategy, const MegatronDevice& device = {});

/// What one model chunk holds.
struct ChunkPlan {
  std::int64_t first_layer = 0, layers = 0;
  bool embedding = false, head = false;
};

/// The inputs of one micro-batch; a stage between the first and the last has the loss mask alone.
struct MegatronBatch {
  Tensor tokens, labels, loss_mask, positions;
};

class MegatronChunk {
 public:
  MegatronChunk(MegatronRuntime& runtime, const MegatronConfig& config, const ChunkPlan& plan, std::int64_t index);
  ~MegatronChunk();
  MegatronChunk(const MegatronChunk&) = delete;
  MegatronChunk& operator=(const MegatronChunk&) = delete;

  /// The model's constructor, model.cuda() and Float16Module: what each allocates, for all chunks in turn.
  void construct();
  void move_to_device();
  void convert();

  /// set_input_tensor: the hidden states of the stage before; the decoder keeps them until the next call.
  void set_input(const Tensor& hidden) { input_ = hidden; }
  /// GPTModel.forward: hidden states of the stage [s, b, h], or the loss of every token [b, s].
  Tensor forward(const MegatronBatch& batch);

  Module& root() { return *root_; }
  /// Parameters in registration order, frozen ones too.
  const std::vector<std::shared_ptr<Parameter>>& parameters() const { return parameters_; }
  const ChunkPlan& plan() const { return plan_; }
  /// The weight that the embedding and the head share with another pipeline stage; null when they do not.
  const Parameter* shared_embedding() const;
  /// Parameters whose gradients are partial sums on each tensor-parallel rank: norms and the biases added after a reduce-scatter.
  bool sequence_partial(const Parameter& parameter) const;

 private:
  class Layer;

  Tensor embed(const MegatronBatch& batch);
  Tensor rotary(std::int64_t length);
  Tensor decode(Tensor hidden, const Tensor& rotary_embedding);
  Tensor token_losses(const Tensor& logits, const Tensor& target) const;
  Tensor loss(const Tensor& hidden, const Tensor& labels);
  Tensor norm(Module& module, const Tensor& x) const;
  void build();

  MegatronRuntime& runtime_;
  const MegatronConfig& config_;
  ChunkPlan plan_;
  std::unique_ptr<Module> root_;
  std::vector<std::shared_ptr<Parameter>> parameters_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<Parameter*> born_on_host_;  ///< norms, position table, router: fp32 from torch.nn's own constructors
  std::unordered_set<const Parameter*> routers_;
  std::vector<Tensor> in_fp32_;
  Tensor frequencies_, rotary_table_, input_;
};

}  // namespace plimsoll::program
