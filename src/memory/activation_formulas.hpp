// Closed forms of what the forward pass keeps for the backward pass, per token and layer, and of the largest transients. They serve
// screening and check the played programs; where both speak, the program is right.
//
// Counting rule: storages, each once, from its making to the last backward node that uses it. h hidden, f intermediate, a heads, g key and
// value heads, d head dimension, s sequence length, V vocabulary; types are 16-bit unless said.
#pragma once

#include <array>
#include <cstdint>

#include "plimsoll/dtype.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll::memory {

struct LayerShape {
  std::int64_t hidden = 0, intermediate = 0, heads = 0, kv_heads = 0, head_dim = 0;
};

// ---- llama's block: RMSNorm, rotary attention, gated MLP -------------------------------------------------------------

enum class LlamaKernels : std::uint8_t {
  hf_eager_norm,           ///< transformers before torch 2.8's fused RMSNorm: keeps an fp32 copy of each norm's input
  fused_norm,              ///< torch ≥ 2.8, torchtitan
  repeated_kv,             ///< hf_eager_norm with keys and values expanded to all heads
  eager_attention,         ///< scores and probabilities are tensors
  fp32,                    ///< fp32 weights and activations
  autocast,                ///< bf16 autocast over fp32 weights: every consumer casts its own copy
  liger,                   ///< fused norm and fused SwiGLU
  transformer_engine,      ///< Megatron-core with TE; same bytes as liger
  transformer_engine_fp8,  ///< the same with fp8 matrix products
};
/// Bytes kept per token by one layer without recomputation. `seq_len` matters to eager attention only.
std::int64_t llama_saved_per_token(LlamaKernels kernels, const LayerShape& shape, std::int64_t seq_len);

enum class LlamaRecompute : std::uint8_t {
  operators_eager,     ///< torchtitan's selective recompute, eager: flash output, every second matrix product
  operators_compiled,  ///< compiled: the last product is not kept, since nothing needs it
  full,                ///< the layer's input
};
std::int64_t llama_saved_per_token(LlamaRecompute recompute, const LayerShape& shape);

// ---- GPT, BERT, ViT: LayerNorm, biases, GELU, dropout ------------------------------------------------------------------

/// Korthikanti et al. 2022: bytes of one 16-bit layer with dropout and unfused attention, f = 4h.
enum class GptRecompute : std::uint8_t { none, selective, full };
struct GptParallel {
  std::int64_t tensor = 1;
  bool sequence = false;
};
double gpt_layer_bytes(const LayerShape& shape, std::int64_t seq_len, std::int64_t micro_batch, GptRecompute recompute,
                       const GptParallel& parallel);

// ---- multi-head latent attention and mixture of experts ----------------------------------------------------------------

struct MlaShape {
  std::int64_t hidden = 0, heads = 0, q_lora_rank = 0, kv_lora_rank = 0, nope_dim = 0, rope_dim = 0, v_dim = 0;
};
/// Bytes kept per token by the attention half of a DeepSeek layer (Megatron); `recompute_up_projection` drops q, k and v.
std::int64_t mla_saved_per_token(const MlaShape& shape, bool recompute_up_projection);

struct MoeShape {
  std::int64_t hidden = 0, experts = 0, top_k = 0, expert_intermediate = 0;
};
/// Bytes kept per token by router and routed experts, without dropped tokens, for `imbalance` ≥ 1 times the mean load.
/// `probabilities_in_activation`: the routing weights are folded into the activation (Megatron ≥ 0.12), so fc2's output is not kept.
std::int64_t moe_saved_per_token(const MoeShape& shape, bool eager_gate, bool probabilities_in_activation, double imbalance);

// ---- the loss head -----------------------------------------------------------------------------------------------------

/// Bytes per logit (tokens · vocabulary / tensor-parallel ranks).
struct LossBytes {
  double saved, forward_peak, backward_peak;
};
enum class LossHead : std::uint8_t {
  transformers,      ///< logits upcast to fp32; the output object keeps the 16-bit logits
  torchtitan_eager,  ///< the same, logits deleted before backward
  compiled,
  megatron,            ///< vocabulary-parallel, in place
  transformer_engine,  ///< parallel_cross_entropy
  liger,               ///< gradient in place of the logits
  fp32_logits,         ///< fp32 model: upcasting is free
};
LossBytes loss_bytes_per_logit(LossHead head);

/// Liger's fused linear cross entropy: logits are made chunk by chunk and never whole.
struct LigerFusedLinear {
  std::int64_t factor, chunk_rows, chunks;
  Bytes chunk_logits, grad_weight, grad_input;
};
LigerFusedLinear liger_fused_linear(std::int64_t tokens, std::int64_t hidden, std::int64_t vocabulary);

// ---- attention backward ------------------------------------------------------------------------------------------------

enum class FlashVersion : std::uint8_t { two, three };
struct FlashBackwardWorkspace {
  Bytes dq_accumulator;      ///< fp32
  Bytes softmax_statistics;  ///< softmax_d, with version 3 also lse_log2
  Bytes expanded_kv;         ///< dk and dv of all heads (version 2) or their fp32 accumulators (version 3), where g < a
};
FlashBackwardWorkspace flash_backward_workspace(FlashVersion version, const LayerShape& shape, std::int64_t seq_len,
                                                std::int64_t micro_batch);

// ---- convolutions ------------------------------------------------------------------------------------------------------

/// A ResNet of bottleneck blocks (ResNet-50: 3, 4, 6, 3) with batch norm, in-place ReLU and cross entropy over `classes`.
struct ConvolutionActivations {
  std::int64_t per_image;  ///< bytes
  std::int64_t fixed;      ///< statistics of batch norm and the loss's total weight: whatever the batch
};
ConvolutionActivations bottleneck_resnet_activations(const std::array<int, 4>& blocks, std::int64_t image_size, std::int64_t classes,
                                                     DType type);

// ---- pipeline ----------------------------------------------------------------------------------------------------------

/// Micro-batches (model chunks where there are several per rank) whose activations a pipeline rank holds at once.
enum class PipelineKind : std::uint8_t { gpipe, one_forward_one_backward, interleaved, zb_h1, zb_h2, zb_v, dual_pipe };
std::int64_t micro_batches_in_flight(PipelineKind kind, std::int64_t ranks, std::int64_t rank, std::int64_t micro_batches,
                                     std::int64_t chunks = 1);

}  // namespace plimsoll::memory
