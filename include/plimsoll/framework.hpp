/// How a framework executes a strategy: what it takes by default, what it can do, whose kernels it runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {

/// Whose module code runs the layers: it decides what every operator saves.
enum class ModelCode : std::uint8_t {
  transformers,  ///< Hugging Face's modules, eager
  diffusers,
  torchtitan,
  torchtune,
  megatron_local,   ///< Megatron-core's own layers
  megatron_te,      ///< Megatron-core over Transformer Engine
  megatron_legacy,  ///< Megatron-LM before core, Megatron-DeepSpeed
  nanotron,
  mpt,      ///< llm-foundry's MPT
  maxtext,  ///< compiled by XLA
};
std::string_view name_of(ModelCode code);

/// Who keeps, shards and reduces the model states.
enum class Engine : std::uint8_t {
  plain,  ///< one rank: gradients accumulate in param.grad
  torch_ddp,
  fsdp1,
  fsdp2,
  deepspeed,  ///< ZeRO 0 to 3
  megatron,   ///< Megatron's DDP buffers, with or without the distributed optimizer
  megatron_fsdp,
  nanotron,  ///< fp32 gradient accumulator and ZeRO-1
};
std::string_view name_of(Engine engine);

/// How a framework deals the layers to the stages of a pipeline.
enum class StageSplit : std::uint8_t {
  even,          ///< the number of stages must divide the layers
  leading,       ///< the first stages take one layer more: DeepSpeed
  counted_ends,  ///< the embedding and the head count as a layer each: Megatron's launchers, torchtitan 0.3
  middle,        ///< stages between the first and the last take one layer more: torchtitan of 2024
  by_cost,       ///< by the products of layers and head: nanotron
};

/// A framework of the catalogue.
struct FrameworkProfile {
  std::string name;                  ///< "torchtitan"
  std::string title;                 ///< "TorchTitan 0.3"
  std::vector<std::string> aliases;  ///< names of measured rows
  std::string refused;               ///< not empty: why nothing of it is modelled
  std::string source;                ///< where the defaults were read

  ModelCode code = ModelCode::transformers;

  // What it takes where the strategy does not say.
  Precision bf16 = Precision::amp_bf16, fp16 = Precision::amp_fp16;  ///< what plain "bf16" and "fp16" mean
  DataParallel data_parallel = DataParallel::ddp;                    ///< of more than one data-parallel rank
  DataParallel fsdp = DataParallel::fsdp2;                           ///< what plain "fsdp" means
  OptimizerImpl optimizer_impl = OptimizerImpl::foreach;
  AttentionKernel attention = AttentionKernel::sdpa;
  /// The compute capability (major · 10 + minor) from which scaled_dot_product_attention is told to take cuDNN's kernels before all others;
  /// empty: PyTorch's own order.
  std::optional<int> cudnn_attention_from;
  LossKernel loss = LossKernel::cross_entropy;
  Recompute::Kind recompute = Recompute::Kind::none;
  bool clip_grad_norm = true;
  bool recompute_reentrant = false;
  DType fsdp_reduce = DType::bf16;     ///< FSDP's gradients while they are reduced
  std::optional<DType> adapter_dtype;  ///< LoRA's weights; empty: the type of the weights
  std::string layer_spec;              ///< Megatron only

  // What it can do; anything else is refused with this list.
  std::vector<DataParallel> kinds;
  std::vector<AttentionKernel> attentions;
  std::vector<LossKernel> losses;
  std::vector<OptimizerKind> optimizers;  ///< empty: whatever steps torch's parameters
  std::vector<Recompute::Kind> recomputes;
  std::vector<LowPrecision> low_precisions;
  std::vector<std::string> schedules;  ///< pipeline schedules; empty: no pipeline
  bool tensor = false, context = false, expert = false, sequence_parallel = false;
  Fp8Scaling fp8_scaling = Fp8Scaling::delayed;  ///< of 8-bit products unless told otherwise
  bool tensor_overlap = false;  ///< where the sequence is cut, tensor-parallel collectives run beside products unless told otherwise
  int other_stage_modules = 0;  ///< modules besides the layers that may fill a stage of their own (embedding, head …)
  StageSplit stages = StageSplit::even;  ///< how layers are dealt to pipeline stages where pp_layers does not say
  bool adapters = false;                 ///< LoRA
  bool offload_activations = false;

  // Kernels of the layers.
  bool fused_rms_norm = false;   ///< saves the input and one statistic per row; else the eager module's tensors
  bool fused_gated_mlp = false;  ///< saves gate and up only; else also silu(gate) and the product
  bool fused_qkv = false;
};

/// The catalogue, in order.
const std::vector<FrameworkProfile>& frameworks();

/// The framework of that name or alias. Throws Error: unknown (nearest name).
const FrameworkProfile& find_framework(const std::string& name);

/// Who runs the data parallelism of a resolved strategy.
Engine engine_of(const Strategy& resolved);
/// The catalogue's entry of a resolved strategy's framework, as its version, layer spec and PyTorch have it.
FrameworkProfile profile_of(const Strategy& resolved);

/// The packages that a framework's run stands on: first the one that the key `framework_version` names where its text is a release alone,
/// then others that it may be a release of, then what else runs.
const std::vector<Package>& packages_of(const std::string& framework);

/// The model beside the teacher that a strategy names (Model::teacher). Throws Error: a model that is not known.
Model beside_teacher(Model model, const Strategy& said);

/// The model as a strategy's task has it. Tasks cls, token-cls, qa and mlm, and image with `num_labels`, put the head of transformers' Auto
/// class in the place of the checkpoint's own, of `num_labels` classes; gkd puts its teacher beside it. Throws Error (refused): a
/// type that has no such head.
Model as_task_has_it(Model model, const Strategy& said);

/// Fills everything that was not said, in the order: what follows from the other settings, the framework's default, the field's usual
/// value; every value taken is told in `assumed`. Throws one Error that names all contradictions together, each with what would resolve it,
/// and what the framework itself would refuse with its reason.
Strategy resolve(const Strategy& said, const Model& model, const Cluster& cluster);

/// One line for people: "fsdp2 × 8, micro-batch 2 × 8192 tokens, bf16 over fp32 shards, full recompute (torchtitan)".
std::string summary(const Strategy& resolved);

}  // namespace plimsoll
