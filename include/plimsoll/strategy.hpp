/// What the user chose: degrees, sharding, batch, precision, recompute, optimizer, offload, adapters, kernels.
///
/// A `Strategy` is first what was said: 0, an empty optional, an empty text or `automatic` mean "not said". `resolve()`
/// (plimsoll/framework.hpp) fills all of them from the framework's defaults, the cluster and the model, or names every
/// contradiction; behind it no field that says "resolved" below is left open. The JSON names are those of docs/rows.md, object `training`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plimsoll/allocator_settings.hpp"
#include "plimsoll/dtype.hpp"
#include "plimsoll/release.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll {

/// How the ranks of a data-parallel group share the work and the model states.
enum class DataParallel : std::uint8_t {
  automatic,
  none,  ///< one rank, or ranks that do not synchronise
  ddp,   ///< everything replicated, gradients all-reduced (torch DDP, Megatron DDP, nanotron: the framework says)
  zero0,
  zero1,
  zero2,
  zero3,  ///< DeepSpeed's stages; zero1 also nanotron's
  fsdp,
  hsdp,  ///< the framework's FSDP, full or hybrid: resolved to one of the three below
  fsdp1,
  fsdp2,  ///< torch FullyShardedDataParallel, torch fully_shard
  megatron_fsdp,
  megatron_distopt,  ///< Megatron's distributed optimizer
};

/// Torch's FSDP, whichever implementation.
inline bool is_fsdp(DataParallel kind) {
  return kind == DataParallel::fsdp || kind == DataParallel::hsdp || kind == DataParallel::fsdp1 || kind == DataParallel::fsdp2;
}
std::string_view name_of(DataParallel kind);

/// What the weights, gradients and the optimizer hold, and in which type the step computes (modelling: bytes per parameter).
enum class Precision : std::uint8_t {
  automatic,
  bf16,
  fp16,  ///< 16-bit training as the framework does it: resolved to one of those below
  fp32,
  amp_bf16,
  amp_fp16,  ///< torch.autocast over the weights of param_dtype (fp32 unless said)
  pure_bf16,
  pure_fp16,  ///< weights, gradients and states in 16 bits
  mixed_bf16,
  mixed_fp16,  ///< 16-bit weights with an fp32 master in the optimizer: Megatron, DeepSpeed, nanotron
  fsdp_mixed_bf16,
  fsdp_mixed_fp16,  ///< fp32 shards, gathered and computed in 16 bits: FSDP's MixedPrecision
  msamp_o1,
  msamp_o2,
  msamp_o3,  ///< MS-AMP
};
std::string_view name_of(Precision precision);

/// Matrix multiplications in less than 16 bits, on top of a 16-bit precision.
enum class LowPrecision : std::uint8_t { none, fp8, mxfp8, nvfp4 };
std::string_view name_of(LowPrecision type);

/// `fp8_recipe`.
enum class Fp8Scaling : std::uint8_t { automatic, delayed, tensorwise, rowwise, blockwise };
std::string_view name_of(Fp8Scaling scaling);

enum class OptimizerKind : std::uint8_t {
  automatic,
  adam,
  adamw,
  sgd,
  sgdm,
  adafactor,
  lion,
  muon,
  adagrad,
  rmsprop,
  sophia,
  shampoo,
  lora_fa,
  adam_8bit,
  adamw_8bit,
  paged_adamw_8bit,
  lion_8bit,
  adadelta,
  adamax,
  asgd,
  nadam,
  radam,
  rprop,
  torch_adafactor,  ///< torch.optim.Adafactor; `adafactor` is transformers'
  adamw_bnb,        ///< bitsandbytes with fp32 states, as the next five
  paged_adamw,
  lion_bnb,
  paged_lion,
  rmsprop_bnb,
  ademamix,
  paged_lion_8bit,
  rmsprop_8bit,
  adagrad_8bit,
  sgdm_8bit,
  ademamix_8bit,
  adamw_torch_8bit,  ///< torchao's
};
std::string_view name_of(OptimizerKind optimizer);

enum class OptimizerImpl : std::uint8_t {
  automatic,
  foreach,
  fused,
  for_loop,
  library,  ///< the optimizer's own library decides (bitsandbytes, transformers' Adafactor)
  cpu,      ///< on the host (DeepSpeedCPUAdam)
};
std::string_view name_of(OptimizerImpl implementation);

enum class AttentionKernel : std::uint8_t {
  automatic,
  eager,    ///< the model's own expression: scores, softmax and product are tensors of their own
  unfused,  ///< Megatron's DotProductAttention
  sdpa,     ///< torch's choice, by release and device: cuDNN or flash for 16 bits, memory-efficient, or written out
  flash,    ///< flash-attention 2; in TorchTitan and torchtune PyTorch's own
  flash3,   ///< flash-attention 3, of Hopper
  flash4,   ///< flash-attention 4, of Hopper and Blackwell
  flash_varlen,
  flex,  ///< torch.nn.attention.flex_attention over a block mask, compiled
  memory_efficient,
  cudnn,
  te,  ///< Transformer Engine's (cuDNN or flash)
};
std::string_view name_of(AttentionKernel kernel);
/// flash-attention of any generation.
inline bool is_flash(AttentionKernel kernel) {
  return kernel == AttentionKernel::flash || kernel == AttentionKernel::flash3 || kernel == AttentionKernel::flash4;
}

enum class LossKernel : std::uint8_t {
  automatic,
  cross_entropy,         ///< logits upcast to fp32, F.cross_entropy
  chunked,               ///< torchtitan, torchtune: head and loss over pieces of the sequence (loss_chunks)
  vocab_parallel,        ///< Megatron's cross entropy over the tensor-parallel vocabulary
  fused_vocab_parallel,  ///< Megatron's `cross_entropy_loss_fusion`, implementation native
  te,                    ///< the same, implementation te
  compiled,              ///< cross entropy under torch.compile
  liger,
  liger_fused_linear,
  cut_cross_entropy,  ///< Apple's: head and loss in one, without logits in either direction
};
std::string_view name_of(LossKernel loss);

/// Which forward passes are run again in the backward pass.
struct Recompute {
  enum class Kind : std::uint8_t {
    automatic,
    none,
    full,       ///< every layer, or as method and layers say
    selective,  ///< `modules` of each layer (Megatron); none named: core_attn
    operators,  ///< torchtitan's per-operator selection
    alternate,  ///< every `every`-th layer fully
  };
  enum class Method : std::uint8_t { none, uniform, block };  ///< Megatron's recompute_method
  Kind kind = Kind::automatic;
  std::vector<std::string> modules;  ///< core_attn, layernorm, moe_act, mla_up_proj, mlp, moe, shared_experts
  Method method = Method::none;
  int layers = 0;                 ///< uniform: layers per chunk; block: how many layers of a stage; 0: not said
  int of_layers = 0;              ///< that the model is said to have; 0: not said
  int every = 0;                  ///< of alternate
  std::optional<bool> reentrant;  ///< torch.utils.checkpoint's use_reentrant; resolved
};

struct DdpOptions {
  std::optional<double> bucket_cap_mb;          ///< MiB; resolved (25)
  std::optional<bool> gradient_as_bucket_view;  ///< resolved (false)
  std::optional<bool> static_graph;             ///< resolved (false)
  std::optional<bool> find_unused_parameters;   ///< resolved (false)
};

/// FSDP 1 and 2.
struct FsdpOptions {
  /// Wrap list: module classes ("LlamaDecoderLayer") or paths ("layers.*", "norm+lm_head" is one unit); "none" alone: the root is the only
  /// one.
  std::vector<std::string> units;
  std::int64_t min_num_params = 0;  ///< parameters from which on a module is a unit (size_based_auto_wrap_policy); 0: `units` say it
  std::optional<bool> root_unit;    ///< the root module is a unit of its own; resolved (true)
  enum class Reshard : std::uint8_t { automatic, always, never, number } reshard = Reshard::automatic;  ///< reshard_after_forward
  int reshard_to = 0;  ///< of Reshard::number: ranks that keep one copy after forward
  enum class Sharding : std::uint8_t {
    automatic,
    full_shard,
    shard_grad_op,
    no_shard,
    hybrid_shard,
    hybrid_shard_zero2
  } sharding = Sharding::automatic;       ///< FSDP1
  std::optional<bool> mixed_precision;    ///< false: units are gathered in the weights' own type; resolved
  std::optional<bool> limit_all_gathers;  ///< FSDP1; resolved (true)
  std::optional<bool> use_orig_params;    ///< FSDP1; resolved
  std::optional<bool> forward_prefetch;   ///< resolved (false)
  /// FSDP1, in backward: the unit that ran before one in forward is gathered before its gradients are computed, after, or when it is
  /// needed.
  enum class Prefetch : std::uint8_t { automatic, none, pre, post } backward_prefetch = Prefetch::automatic;  ///< resolved
};

/// DeepSpeed's JSON, as far as it changes memory or time. Sizes are in elements, as in DeepSpeed.
struct DeepSpeedOptions {
  std::int64_t reduce_bucket_size = 500'000'000;
  std::int64_t allgather_bucket_size = 500'000'000;
  std::optional<bool> overlap_comm;  ///< resolved: true for stage 3 only
  bool contiguous_gradients = true;
  bool reduce_scatter = true;
  std::int64_t sub_group_size = 1'000'000'000;
  std::int64_t stage3_prefetch_bucket_size = 50'000'000;
  std::int64_t stage3_param_persistence_threshold = 100'000;
  /// Of the engine that holds a model of reference; empty: as above.
  std::optional<std::int64_t> reference_prefetch_bucket_size, reference_param_persistence_threshold;
  std::int64_t stage3_model_persistence_threshold = INT64_MAX;
  std::int64_t stage3_max_live_parameters = 1'000'000'000;
  std::int64_t stage3_max_reuse_distance = 1'000'000'000;
  int zero_hpz_partition_size = 1;
  int mics_shard_size = -1;
  bool round_robin_gradients = false;
  bool zero_quantized_weights = false, zero_quantized_gradients = false;
  std::optional<DType> grad_accum_dtype;  ///< data_types.grad_accum_dtype
  bool fp16_master_weights_and_grads = false, bf16_master_weights_and_grads = false, bf16_optimizer_states = false;
  std::optional<bool> zero_init;  ///< the model is built sharded; resolved (true for stage 3)
  std::string wrapper;            ///< class of the optimizer wrapper ("BF16_Optimizer"); resolved as DeepSpeed chooses it
  /// offload_optimizer and offload_param. `pin_memory` is resolved (true; before 0.17 false); buffers are those of the NVMe swapper, sizes
  /// in elements.
  struct Offload {
    bool nvme = false;  ///< device nvme: host memory is a buffer only
    std::optional<bool> pin_memory;
    std::int64_t buffer_count = 0;                                          ///< resolved (4 of the optimizer, 5 of parameters)
    std::int64_t buffer_size = 100'000'000, max_in_cpu = 1'000'000'000;     ///< parameters
    bool pipeline_read = false, pipeline_write = false, fast_init = false;  ///< optimizer
    double ratio = 1;                                                       ///< optimizer: share of the sub-groups on the host
  };
  Offload offload_optimizer, offload_param;
  std::optional<DType> communication_data_type;  ///< gradients on their way; empty: the weights' type
  bool prescale_gradients = false;
  double gradient_predivide_factor = 1;
  bool use_all_reduce_for_fetch_params = false, allgather_sequential = false;  ///< stage3_…
  std::vector<std::string>
      lower_precision_safe_modules;  ///< torch_autocast: classes whose gradients are sent in its type; empty: DeepSpeed's list
};

/// Megatron-LM and Megatron-core.
struct MegatronOptions {
  std::optional<bool> overlap_grad_reduce, overlap_param_gather;  ///< resolved (false)
  /// The interleaved schedule gathers a model chunk's weights while the chunk before it computes, at the same time on all stages; else each
  /// chunk gathers them when it needs them. Resolved (false).
  std::optional<bool> align_param_gather;
  /// Gradients of the output layer's weight wait for the end of the schedule, where the last stage idles; of the last
  /// `wgrad_deferral_limit` micro-batches (0: of all). Resolved (false).
  std::optional<bool> defer_embedding_wgrad_compute;
  std::int64_t wgrad_deferral_limit = 0;
  std::int64_t ddp_bucket_size = 0;  ///< elements; 0: max(40e6, 1e6 · dp)
  bool pad_buckets_for_high_nccl_busbw = false;
  bool check_for_nan_in_grad = false;  ///< the host asks for the norm of every bucket before it is reduced
  std::optional<bool> gradient_accumulation_fusion, masked_softmax_fusion, rope_fusion, bias_swiglu_fusion;  ///< resolved
  std::string layer_spec;                                                                                    ///< "local" or "te"; resolved
  bool precision_aware_optimizer = false;
  std::string cp_comm_type;  ///< "p2p", "a2a", "allgather"; empty: the framework's
  int make_vocab_size_divisible_by = 128;
  /// Megatron-FSDP's data_parallel_sharding_strategy: what is cut over the data-parallel ranks.
  enum class Sharding : std::uint8_t { automatic, no_shard, optim, optim_grads, optim_grads_params } sharding = Sharding::automatic;
  bool fsdp_double_buffer = false;                ///< gathered layers and their gradients lie in buffers that are never given back
  std::int64_t suggested_communication_unit = 0;  ///< elements under way at once; 0: the framework's
  int mtp_num_layers = 0;                         ///< modules of multi-token prediction behind the decoder
  bool mtp_use_repeated_layer = false;            ///< one module's weights serve all of them
  /// Linears with a recipe of their own, "pattern=bf16" or "pattern=mxfp8" by name; the first pattern that fits decides (quant_recipe).
  std::vector<std::string> module_precision;
};

/// How routed tokens spread, and what carries them.
struct MoeOptions {
  std::string dispatcher;                 ///< "alltoall", "allgather", "deepep", "local"; resolved
  std::optional<double> capacity_factor;  ///< empty: no token is dropped
  bool pad_to_capacity = false;
  bool forced_balance = false;  ///< the router gives every expert the same number of tokens
  double imbalance = 1;         ///< tokens of the fullest expert rank over the mean
  std::string load_balancing;   ///< "aux_loss", "none" …; empty: the framework's
  double aux_loss_coeff = 0;
  std::optional<bool> a2a_overlap;  ///< resolved (false)
  bool delay_wgrad = false;         ///< gradients of weights are computed beside the exchange of another micro-batch (delay_wgrad_compute)
  bool grouped_gemm = true;         ///< false: expert after expert (SequentialMLP)
  std::optional<bool> permute_fusion;  ///< moe_permute_fusion: Transformer Engine's permutations; resolved
  bool fused_mlp = false;              ///< use_transformer_engine_op_fuser: products, activation and quantization are one kernel each
};

/// What leaves the device between its uses.
struct Offload {
  bool params = false, grads = false, optimizer = false, activations = false;
  int activation_layers = 0;  ///< `offload_layers`; 0: all
  /// Who takes activations to the host: torch.autograd.graph.save_on_cpu to pageable or pinned memory, or TRL's OffloadActivations.
  enum class By : std::uint8_t { automatic, save_on_cpu, save_on_cpu_pinned, trl } activations_by = By::automatic;
  bool any() const { return params || grads || optimizer || activations; }
};

/// Low-rank adapters over frozen weights.
struct Lora {
  int r = 0;  ///< must be given
  double alpha = 0;
  double dropout = 0;
  std::vector<std::string> targets;          ///< names of linears, as in PEFT's target_modules
  std::vector<std::string> modules_to_save;  ///< trained whole
  std::optional<DType> adapter_dtype;        ///< resolved (the type of the weights)
  bool dora = false;
  /// axolotl's autograd functions in the place of PEFT's linears (axolotl/kernels/lora.py): a gated MLP's three, attention's three
  /// projections, and its output's.
  bool mlp_kernel = false, qkv_kernel = false, o_kernel = false;

  bool has_kernels() const { return mlp_kernel || qkv_kernel || o_kernel; }
};

/// What PEFT trains in, or before, a frozen model instead of low-rank adapters (`task`).
enum class PeftMethod : std::uint8_t {
  ia3,            ///< vectors that scale the outputs (of a feed-forward: the inputs) of some linears
  ln_tuning,      ///< the norms
  prompt_tuning,  ///< embeddings of virtual tokens before the text
  p_tuning,       ///< the same, made by an encoder
  prefix_tuning,  ///< keys and values of virtual tokens in every layer
};
struct Peft {
  PeftMethod method = PeftMethod::ia3;
  std::vector<std::string> targets;      ///< ia3, ln_tuning: module names; resolved (PEFT's table by model type)
  std::vector<std::string> feedforward;  ///< ia3: those of `targets` whose input is scaled; resolved (likewise)
  std::int64_t virtual_tokens = 0;       ///< prompt_tuning, p_tuning, prefix_tuning: must be given, or follow from `trainable_params`
  std::int64_t encoder_hidden_size = 0;  ///< p_tuning; resolved (the model's hidden size)
};

/// How frozen base weights are stored (`base_weights`).
enum class BaseWeights : std::uint8_t { as_trained, nf4, nf4_double_quant, int8 };

/// Training by one of TRL's trainers or by their like, whose losses are their own.
struct PostTraining {
  enum class Kind : std::uint8_t {
    automatic,  ///< not said: resolve() asks for it
    sft,  ///< the next token of what is given (SFTTrainer since 1.15, which holds no logits; before 1.7 its loss is the model's own)
    dpo,     ///< two answers to each prompt, of which the first is to become the likelier one: a sample is such a pair (DPOTrainer)
    reward,  ///< a head of one number learns to rank two texts: a sample is such a pair (RewardTrainer)
    kto,     ///< answers that are wanted or not: a sample is one answer (KTOTrainer)
    orpo,    ///< a pair as dpo's without a reference, beside the next token of the better text (ORPOTrainer)
    cpo,     ///< a pair as dpo's without a reference, with or without the next token of the better answer; SimPO's (CPOTrainer)
    grpo,    ///< answers that the model wrote itself, with rewards: a sample is one answer behind its prompt (GRPOTrainer)
    rloo,    ///< the same, learnt of by whole answers (RLOOTrainer since 0.22)
    gkd      ///< what a larger model says of every next word is learnt of, in given texts (GKDTrainer of TRL's experimental ones, `lmbda` 0)
  } kind = Kind::automatic;
  /// Whose trainer it is: TRL's, a subclass of it with a forward of its own, or verl's workers (grpo alone).
  enum class Program : std::uint8_t { trl, llamafactory, ms_swift, verl } program = Program::trl;
  /// Who says how likely the answers were before: a frozen copy of the model, the model with its adapters switched off, a pass over the
  /// data before training (dpo, kto), another model (gkd), nobody (reward, orpo, cpo; grpo and rloo without a KL term).
  enum class Reference : std::uint8_t { automatic, model, adapter_off, precomputed, teacher, none } reference = Reference::automatic;  ///< resolved
  std::string teacher;                  ///< gkd: a shipped model's name, or a config.json
  /// gkd: between which distributions of the next word Kullback and Leibler's divergence is taken (`beta`): student and teacher from the mixture
  /// of both, as its share is neither 0 nor 1; the student's from the teacher's (0), the teacher's from the student's (1).
  enum class Divergence : std::uint8_t { automatic, mixture, forward, reverse } divergence = Divergence::automatic;  ///< resolved
  std::int64_t prompt_len = 0;  ///< tokens of a sequence that are the prompt, of which nothing is learnt; resolved
  std::optional<bool> supervised_term;  ///< cpo: the next token of the better answer is learnt as well (cpo_alpha); resolved
  std::optional<bool> disable_dropout;  ///< the trainer switches all dropout of its models off, that of adapters too; resolved
  std::optional<bool> router_loss;      ///< a mixture's routers' auxiliary loss is learnt of as well (router_aux_loss_coef); resolved
  std::optional<bool> kl_batch;         ///< kto: answers go through both models behind others' prompts as well, for the KL term; resolved
  // ---- grpo, rloo ----
  /// Who writes the answers: an engine on devices of its own, or vLLM beside the trainer on the same ones.
  enum class Rollout : std::uint8_t { automatic, elsewhere, colocated } rollout = Rollout::automatic;  ///< resolved
  std::optional<bool> old_log_probs;  ///< the answers are scored once more before they are learnt of; resolved
  double engine_share = 0;            ///< of the device's memory, that the colocated engine takes (vllm_gpu_memory_utilization); resolved
  bool engine_sleeps = false;         ///< it gives its weights and cache back while the trainer trains (vllm_enable_sleep_mode)
  /// verl's alone.
  struct Workers {
    std::int64_t answers = 0;        ///< that a device learns of in an update; resolved: micro_batch · grad_accum
    std::int64_t row_tokens = 0;     ///< of a packed micro-batch that is learnt of; resolved: micro_batch · seq_len
    std::int64_t score_tokens = 0;   ///< of a packed micro-batch that the actor scores; resolved: as row_tokens
    std::int64_t reference_tokens = 0;  ///< the same of the reference; resolved: as score_tokens
    bool params_rest = false;        ///< between its passes the actor's parameters lie on the host (param_offload)
    bool states_rest = false;        ///< and the optimizer's states (optimizer_offload)
    bool scales_logits = false;      ///< logits are divided by a temperature that is not 1
    bool learns_entropy = false;     ///< the loss has a term of entropy (entropy_coeff)
    std::int64_t engine_tp = 1;      ///< devices of one engine (tensor_model_parallel_size)
    std::int64_t updates = 1;        ///< of one rollout (train_batch_size / ppo_mini_batch_size)
  } workers;

  /// A sample is two texts.
  bool takes_pairs() const { return kind == Kind::dpo || kind == Kind::reward || kind == Kind::orpo || kind == Kind::cpo; }
  /// The model writes what it learns of.
  bool writes_answers() const { return kind == Kind::grpo || kind == Kind::rloo; }
  /// verl's workers, not TRL's trainer or one of its kind.
  bool by_verl() const { return program == Program::verl; }
  /// What the loss compares with is a model of its own, frozen beside the trained one.
  bool keeps_frozen_model() const { return reference == Reference::model || reference == Reference::teacher; }
  /// The loss compares with what the model was, or with what another says.
  bool compares() const { return kind == Kind::dpo || kind == Kind::kto || kind == Kind::gkd || writes_answers(); }
};

/// TorchTitan only.
struct TitanOptions {
  std::string spmd_backend;                  ///< "spmd_types" (0.3 default) or "partial_dtensor"
  std::optional<bool> fused_qkv;             ///< resolved (true from 0.3)
  std::optional<bool> compiled_loss;         ///< torch.compile of the loss (of a chunked one: of each chunk's cross entropy); resolved
  std::optional<bool> rope_positions_given;  ///< rotary rows are gathered by position ids; resolved
  std::string rope_cache;                    ///< "complex64, one per layer" or "fp32 cos and sin, one per layer"
};

/// What stands frozen beside a diffusion model while it is trained, as diffusers' training scripts keep it.
struct NeighbourPlaces {
  enum class Place : std::uint8_t {
    automatic,  ///< as the model's script does; resolved
    device,     ///< on the device for the whole run, and asked in every step
    cached,     ///< on the device until what they say was kept, then gone
    absent      ///< never on the device: what they say was computed before the run
  };
  Place text_encoders = Place::automatic, vae = Place::automatic;

  static bool comes(Place place) { return place == Place::device || place == Place::cached; }  ///< onto the device, for a while at least
  bool any() const { return comes(text_encoders) || comes(vae); }
  bool stay() const { return text_encoders == Place::device || vae == Place::device; }
};

/// Who reads a checkpoint into the host's memory before the weights reach the devices.
enum class HostLoading : std::uint8_t {
  automatic,   ///< not said
  every_rank,  ///< each rank a copy of its own (from_pretrained in every process)
  first_rank   ///< one of each host, the others get theirs from it (cpu_ram_efficient_loading, sync_module_states)
};

/// Of Liger's modules those that are wanted (TrainingArguments.liger_kernel_config).
struct LigerModules {
  bool rope = true, rms_norm = true, glu = true;
};

struct Strategy {
  // ---- who runs it -------------------------------------------------------------------------------------------------
  std::string framework;                 ///< name of the framework catalogue ("torchtitan"); resolved ("torch")
  std::string framework_version;         ///< its release as it was said ("0.3.0"); resolve() reads it into `releases` and leaves it empty
  Releases releases;                     ///< which packages run; resolved: those that the answer stands on
  /// What the model is trained for, which asks for its head: mlm masked words, cls classes of sequences, token_cls classes of tokens, qa the
  /// ends of an answer. Resolved from the model.
  enum class Task : std::uint8_t { automatic, lm, mlm, cls, token_cls, qa, seq2seq, image, diffusion } task = Task::automatic;

  // ---- ranks (0: not said; resolved) ---------------------------------------------------------------------------------
  int gpus = 0;                        ///< world size; from the cluster
  int tp = 0, pp = 0, cp = 0;          ///< tensor, pipeline, context parallel (1)
  int vp = 0;                          ///< model chunks per pipeline rank (1)
  int ep = 0, etp = 0;                 ///< expert parallel (1), tensor parallel of the experts (tp)
  int dp = 0;                          ///< data parallel: gpus / (tp · pp · cp)
  int dp_shard = 0, dp_replicate = 0;  ///< ranks that share one copy of the states (without cp) and copies: dp = shard · replicate
  int fsdp_degree = 0;                 ///< ranks over which FSDP shards: dp_shard · cp; resolved
  /// Megatron's: norms and dropout on 1/tp of the sequence; empty: the framework's default (torchtitan: with tensor parallelism); resolved
  std::optional<bool> sequence_parallel;
  std::string pp_schedule;                        ///< name of the schedule catalogue ("1f1b"); resolved when pp > 1
  std::vector<int> pp_layers;                     ///< layers of each of the pp · vp stages in order; resolved (empty without a pipeline)
  std::vector<std::pair<int, int>> stage_layers;  ///< first and last layer of each chunk of the rank that is asked about; empty: not said
  std::optional<bool> stage_has_embedding, stage_has_head;  ///< of that rank
  std::optional<int> rank;                                  ///< the data-parallel rank asked about; empty: the worst
  std::optional<int> pp_rank;                               ///< the pipeline rank asked about; empty: the worst

  // ---- batch (0: not said; resolved) ---------------------------------------------------------------------------------
  std::int64_t micro_batch = 0;   ///< samples per rank and micro-batch: sequences, images, pairs of sequences
  std::int64_t global_batch = 0;  ///< sequences per optimizer step
  std::int64_t grad_accum = 0;    ///< backward passes (pipeline: runs of the schedule) whose gradients add up to one step
  std::int64_t micro_batches =
      0;  ///< micro-batches per optimizer step of one replica: grad_accum, or with a pipeline grad_accum · those of one run
  std::int64_t seq_len = 0;      ///< tokens of a sequence (seq2seq: of the source; image and diffusion: patches)
  std::int64_t tgt_len = 0;      ///< seq2seq: tokens of the target
  std::int64_t num_labels = 0;   ///< tasks cls, token-cls and image: classes of the head; 0: what the model's config says, else 2
  std::int64_t text_tokens = 0;  ///< diffusion: tokens of the prompt
  bool packed = false;           ///< sequences packed without padding
  double average_tokens = 0;     ///< mean tokens that are no padding; 0: seq_len
  bool no_sync = false;          ///< gradients are reduced in the last micro-batch only (ddp.no_sync, fsdp.no_sync)
  /// Sequences that a sample is made of.
  std::int64_t sequences_per_sample() const { return post_training && post_training->takes_pairs() ? 2 : 1; }
  /// Micro-batches of one run of the pipeline schedule; resolved.
  std::int64_t micro_batches_per_run() const { return grad_accum > 0 ? micro_batches / grad_accum : micro_batches; }

  // ---- data parallel -------------------------------------------------------------------------------------------------
  DataParallel data_parallel = DataParallel::automatic;  ///< resolved
  DdpOptions ddp;
  FsdpOptions fsdp;
  DeepSpeedOptions deepspeed;
  MegatronOptions megatron;
  MoeOptions moe;
  TitanOptions titan;

  // ---- precision -----------------------------------------------------------------------------------------------------
  Precision precision = Precision::automatic;  ///< resolved
  LowPrecision low_precision = LowPrecision::none;
  Fp8Scaling fp8_scaling = Fp8Scaling::automatic;
  bool fp8_params = false;  ///< primary weights in fp8
  bool fp8_activations = false, fp8_attention = false;
  bool fp8_all_gather = false;         ///< float8 all-gather of FSDP2
  int bf16_tail_layers = 0;            ///< last layers kept in bf16
  std::optional<DType> param_dtype;    ///< weights as stored; resolved
  std::optional<DType> compute_dtype;  ///< gathered or cast weights and activations; resolved
  std::optional<DType> grad_dtype;     ///< gradients that reach the optimizer (Megatron: main_grad); resolved
  std::optional<DType> reduce_dtype;   ///< gradients while they are reduced; resolved
  std::optional<DType> state_dtype;    ///< moments of the optimizer; resolved
  std::optional<bool>
      master_weights;  ///< an fp32 copy of the weights in the optimizer (`master_dtype`, where the stored weights are 16-bit); resolved

  // ---- optimizer -----------------------------------------------------------------------------------------------------
  OptimizerKind optimizer = OptimizerKind::automatic;       ///< resolved (adamw)
  OptimizerImpl optimizer_impl = OptimizerImpl::automatic;  ///< resolved
  bool optimizer_in_backward = false;
  /// Under DeepSpeed, transformers' Trainer makes the optimizer, as it always does where Accelerate prepares it: norms and biases are a group of
  /// their own (create_optimizer), which ZeRO flattens by itself. Else all parameters are one group.
  bool trainer_optimizer = false;
  std::optional<bool> clip_grad_norm;  ///< resolved

  // ---- activations and kernels -----------------------------------------------------------------------------------------
  Recompute recompute;                                     ///< kind resolved (none)
  AttentionKernel attention = AttentionKernel::automatic;  ///< resolved
  LossKernel loss = LossKernel::automatic;                 ///< resolved
  int loss_chunks = 0;                                     ///< resolved when chunked
  std::optional<bool> loss_parallel;                       ///< torchtitan: logits stay cut over tp; resolved
  /// What torch.compile is given: every block, or the whole model with its loss; `own`: whatever the framework's own switch compiles.
  enum class Compile : std::uint8_t { automatic, no, own, blocks, model, jit_fusers } compile = Compile::automatic;  ///< resolved (no)
  std::string cuda_graph;            ///< which graphs are captured; empty: none
  std::optional<bool> async_tp;      ///< tensor-parallel collectives overlap with their matrix products
  std::optional<bool> comm_overlap;  ///< false: no collective overlaps with compute
  int autograd_threads = 0;          ///< threads that run backward (each has its own BLAS workspace); resolved (1)
  Offload offload;
  std::optional<Lora> lora;
  std::optional<Peft> peft;           ///< not together with `lora`
  std::int64_t trainable_params = 0;  ///< as the run printed them; what `peft` leaves open follows from it
  /// Modules that are trained with all below them, by a name that ends their path or by the whole path ("lm_head", "model.layers.31"); all
  /// else is frozen. Empty: everything is trained, or what adapters leave. Not together with adapters.
  std::vector<std::string> trained_modules;
  std::optional<PostTraining> post_training;  ///< none: trained by the next token
  NeighbourPlaces neighbours;         ///< of a diffusion model; resolved
  HostLoading host_loading = HostLoading::automatic;
  std::optional<Bytes> host_memory;   ///< of one host, where the cluster's file does not say, or not right
  BaseWeights base_weights = BaseWeights::as_trained;
  /// Quantization-aware training by torchao's fake quantizers (Int8DynActInt4WeightQATQuantizer): inputs of linears are rounded to 8 bits token
  /// by token, weights to 4 bits in groups of so many elements, and stay in their type; 0: neither.
  std::int64_t qat_group_size = 0;
  std::optional<DType> quant_storage;  ///< bnb_4bit_quant_storage, the type that 4-bit weights lie in; empty: uint8
  bool tf32 = false;                   ///< fp32 products in tf32 (torch.backends.cuda.matmul.allow_tf32)
  /// Whether scaled_dot_product_attention takes cuDNN's kernels before its own (torch.backends.cuda.enable_cudnn_sdp); resolved: where the
  /// release and the device prefer them.
  std::optional<bool> cudnn_attention;
  bool cudnn = true;          ///< convolutions by cuDNN, on AMD by MIOpen (torch.backends.cudnn.enabled), else by ATen's own kernels
  bool liger_kernel = false;  ///< Liger's modules in the place of transformers' (TrainingArguments.use_liger_kernel)
  LigerModules liger_modules;  ///< which of them
  AllocatorSettings allocator;
  bool launch_blocking = false;  ///< the host waits for each launch to end (CUDA_LAUNCH_BLOCKING=1, HIP_LAUNCH_BLOCKING=1)

  // ---- what resolve() and the readers say about it ---------------------------------------------------------------------
  std::vector<std::string> assumed;                          ///< every default taken, in words
  std::vector<std::string> unread_keys;                      ///< keys that nothing read
  std::vector<std::string> file_keys;                        ///< keys that a strategy's own file set, as they were spelled
  std::vector<std::pair<std::string, std::string>> options;  ///< keys and values that `set_options` was given, as they were spelled
};

/// Reads a strategy from the text of a JSON object with the keys of docs/rows.md. `where` names the text in errors.
/// Throws Error: no JSON, wrong type, unknown value, or a key that is nearly a known one.
Strategy parse_strategy(const std::string& json, const std::string& where);

/// Reads a strategy from a JSON file. Throws Error also when it cannot be read.
Strategy load_strategy(const std::string& path);

/// Sets one key from text: `set_option(s, "tp", "8")`; dashes count as underscores, a dotted key goes into an object
/// ("fsdp.reduce_dtype"), lists are separated by commas. Throws Error with the nearest key or the valid values.
void set_option(Strategy& strategy, const std::string& key, const std::string& value);

/// Sets the keys of one command line, which replace what a file said before; a key given twice takes its last value. Throws Error as
/// `set_option` does, and where two keys that say the same thing differ ("zero" and "data_parallel"), naming both.
void set_options(Strategy& strategy, const std::vector<std::pair<std::string, std::string>>& options);

/// One key that a strategy understands.
struct StrategyOption {
  std::string key;     ///< "fsdp.units"
  std::string values;  ///< "none, full, selective, …" or a unit
  std::string help;
  std::string short_for;  ///< the key that this one is another name of: "seq_len" of "seq"; empty: it is one itself
};
/// All of them, in the order of the struct.
const std::vector<StrategyOption>& strategy_options();

}  // namespace plimsoll
