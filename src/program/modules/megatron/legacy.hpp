/// Megatron's GPT before Megatron-core, as Megatron-DeepSpeed cuts it into a pipeline: the layers of one stage on one tensor-parallel rank.
/// Sources: megatron/model/{gpt_model,language_model,transformer,fused_softmax}.py and megatron/mpu of BigScience's Megatron-DeepSpeed
/// (and TurkuNLP's, for ROCm).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"
#include "program/module.hpp"
#include "program/modules/megatron/ops.hpp"

namespace plimsoll::program {

/// What all layers share, and what this stage holds of them.
struct LegacyStagePlan {
  std::int64_t hidden = 0, heads = 0, head_dim = 0, inner = 0;  ///< of the whole layer
  std::int64_t vocabulary = 0;                                  ///< padded to all ranks
  std::int64_t positions = 0;                                   ///< rows of the learned position table; 0: ALiBi
  bool embedding_norm = false;                                  ///< --embed-layernorm
  double hidden_dropout = 0, attention_dropout = 0;
  std::int64_t micro_batch = 1, length = 0;
  bool recompute = false;  ///< every layer is a checkpoint of its own (--checkpoint-activations)
  std::int64_t layers = 0;
  bool embedding = false, head = false;
  DType type = DType::bf16;
};

/// Throws Error (refused): whatever of the model or the strategy this code does not have, or is not modelled.
LegacyStagePlan legacy_stage_plan(const Model& model, const Strategy& strategy, int pipeline_rank);

/// PipelineModule with GPTModelPipe's layers.
class LegacyStage {
 public:
  LegacyStage(MegatronRuntime& runtime, const LegacyStagePlan& plan);
  ~LegacyStage();
  LegacyStage(const LegacyStage&) = delete;
  LegacyStage& operator=(const LegacyStage&) = delete;

  /// PipelineModule.forward: token ids [b, s] or hidden states [s, b, h] to hidden states or logits in fp32.
  Tensor forward(const Tensor& input, const Tensor& positions);
  /// CrossEntropy: the mean over tokens of logits [b, s, V/tp].
  Tensor loss(const Tensor& logits, const Tensor& labels, const Tensor& mask);

  const LegacyStagePlan& plan() const { return plan_; }
  /// The stream that marks what collectives use (torch before 2.0: every one of them calls record_stream): freed, it can be given out again
  /// only when the host has waited for the device.
  StreamId collectives() const { return collectives_; }
  /// The two groups of Megatron's optimizers: weights that decay, then norms and biases.
  std::vector<std::vector<std::shared_ptr<Parameter>>> parameter_groups() const;

 private:
  class Layer;

  std::shared_ptr<Parameter> make(const std::string& path, const std::string& name, const Dims& sizes, bool decays);
  void add_norm(const std::string& path);
  void add_linear(const std::string& path, const Dims& sizes);
  void add_layer(std::int64_t index);
  Tensor copied(const Tensor& x);
  Tensor reduced(const Tensor& partial);
  Tensor embed(const Tensor& tokens, const Tensor& positions);
  Tensor logits(const Tensor& hidden);

  MegatronRuntime& runtime_;
  LegacyStagePlan plan_;
  StreamId collectives_;
  Module root_;
  std::vector<std::shared_ptr<Parameter>> decaying_, others_;
  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace plimsoll::program
