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
#include "program/module.hpp"
#include "program/modules/megatron/config.hpp"
#include "program/modules/megatron/ops.hpp"
#include "program/modules/megatron/parameter_list.hpp"
#include "program/modules/megatron/runtime.hpp"
#include "program/modules/megatron/te_offload.hpp"
#include "program/wrappers/megatron/fsdp_modules.hpp"

namespace plimsoll::program {

/// The inputs of one micro-batch; a stage between the first and the last has the loss mask alone.
struct MegatronBatch {
  Tensor tokens, labels, loss_mask, positions;
};

/// Micro-batches whose gradient of the output layer's weight waits for the end of the schedule.
struct DeferredMicroBatches {
  std::int64_t recorded = 0;  ///< the first so many of those that are recorded
  std::int64_t repeated = 0;  ///< of those that are not: their products run at the end too
  std::int64_t held = 0;      ///< of those that are not: what their products need is kept to the end
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

  /// clear_embedding_activation_buffer: the output layer leaves its weight's gradient of those micro-batches to the end; `input` is that of
  /// one on this rank.
  void defer_weight_gradients(const DeferredMicroBatches& micro_batches, const Dims& input);
  /// finish_embedding_wgrad_compute.
  void finish_weight_gradients();

  /// set_input_tensor: the hidden states of the stage before; the decoder keeps them until the next call.
  void set_input(const Tensor& hidden) { input_ = hidden; }
  /// GPTModel.forward: hidden states of the stage [s, b, h], or the loss of every token [b, s].
  Tensor forward(const MegatronBatch& batch);

  Module& root() { return *root_; }
  /// The modules that a sharding wrapper hooks.
  MegatronFsdpModules fsdp_modules();
  /// Parameters in registration order, frozen ones too.
  const std::vector<std::shared_ptr<Parameter>>& parameters() const { return parameters_; }
  const ChunkPlan& plan() const { return plan_; }
  /// The weight that the embedding and the head share with another pipeline stage; null when they do not.
  const Parameter* shared_embedding() const;
  /// Parameters whose gradients are partial sums on each tensor-parallel rank: norms and the biases added after a reduce-scatter.
  std::vector<const Parameter*> sequence_partials() const;

 private:
  class Layer;

  bool sequence_partial(const Module& module, const Parameter& parameter) const;
  Tensor embed(const MegatronBatch& batch);
  Tensor rotary(std::int64_t length);
  Tensor decode(Tensor hidden, const Tensor& rotary_embedding);
  Tensor decode_offloaded(Tensor hidden, const Tensor& rotary_embedding);
  Tensor run(const Layer& layer, const Tensor& hidden, const Tensor& rotary_embedding) const;
  Tensor predict(std::size_t depth, const Tensor& hidden, const Tensor& embedded, const Tensor& rotary_embedding);
  Tensor predict_further(const Tensor& hidden, const Tensor& rotary_embedding, const MegatronBatch& batch);
  Tensor attach_predictions(const Tensor& hidden, const MegatronBatch& batch);
  Tensor token_losses(const Tensor& logits, const Tensor& target) const;
  Tensor loss(const Tensor& hidden, const Tensor& labels);
  Tensor norm(Module& module, const Tensor& x) const;
  const Tensor& output_weight();
  void build();
  void build_predictions();
  void set_recipes();

  MegatronRuntime& runtime_;
  const MegatronConfig& config_;
  ChunkPlan plan_;
  std::unique_ptr<Module> root_;
  std::vector<std::shared_ptr<Parameter>> parameters_;
  std::vector<std::unique_ptr<Layer>> layers_;
  /// A module of multi-token prediction.
  struct Prediction {
    Module& module;
    std::vector<std::unique_ptr<Layer>> layers;
  };
  std::vector<Prediction> predictions_;
  std::shared_ptr<TeOffload> offload_;                  ///< null: activations stay
  std::vector<Parameter*> born_on_host_;                ///< norms, position table, router: fp32 from torch.nn's own constructors
  std::unordered_set<const Parameter*> in_final_type_;  ///< of those
  std::vector<Tensor> in_fp32_;
  Tensor frequencies_, rotary_table_, input_;
  DeferredGradients deferred_;
  std::vector<Tensor> held_for_others_;  ///< of micro-batches that are not recorded
};

}  // namespace plimsoll::program
