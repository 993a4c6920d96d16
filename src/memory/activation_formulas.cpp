#include "memory/activation_formulas.hpp"

#include <algorithm>
#include <cmath>

namespace plimsoll::memory {

std::int64_t llama_saved_per_token(LlamaKernels kernels, const LayerShape& shape, std::int64_t seq_len) {
  const std::int64_t h = shape.hidden, f = shape.intermediate, a = shape.heads, g = shape.kv_heads, d = shape.head_dim;
  const std::int64_t statistics = 2 * 4;               // rstd of two norms
  const std::int64_t flash = 4 * d * (a + g) + 4 * a;  // q and out, k and v, log-sum-exp
  switch (kernels) {
    case LlamaKernels::hf_eager_norm:
      return 16 * h + statistics + flash + 8 * f;
    case LlamaKernels::fused_norm:
      return 8 * h + statistics + flash + 8 * f;
    case LlamaKernels::repeated_kv:
      return 16 * h + statistics + 8 * a * d + 4 * a + 8 * f;
    case LlamaKernels::eager_attention:
      return 16 * h + statistics + 8 * a * d + 6 * a * seq_len + 8 * f;
    case LlamaKernels::fp32:
      return 24 * h + statistics + 8 * d * (a + g) + 4 * a + 16 * f;
    case LlamaKernels::autocast:
      return 26 * h + statistics + flash + 8 * f;
    case LlamaKernels::liger:
    case LlamaKernels::transformer_engine:
      return 8 * h + statistics + flash + 6 * f;
    case LlamaKernels::transformer_engine_fp8:
      return 6 * h + statistics + flash + a * d + 5 * f;
  }
  return 0;
}

std::int64_t llama_saved_per_token(LlamaRecompute recompute, const LayerShape& shape) {
  const std::int64_t h = shape.hidden, f = shape.intermediate, a = shape.heads, g = shape.kv_heads, d = shape.head_dim;
  const std::int64_t products = 2 * a * d + 2 * g * d + 2 * f;  // wq, wv, w1
  const std::int64_t flash = 2 * a * d + 4 * a;
  switch (recompute) {
    case LlamaRecompute::operators_eager:
      return 2 * h + products + flash + 2 * h;
    case LlamaRecompute::operators_compiled:
      return 2 * h + products + flash;
    case LlamaRecompute::full:
      return 2 * h;
  }
  return 0;
}

// Korthikanti et al. 2022, table 2.
double gpt_layer_bytes(const LayerShape& shape, std::int64_t seq_len, std::int64_t micro_batch, GptRecompute recompute,
                       const GptParallel& parallel) {
  const double s = static_cast<double>(seq_len), h = static_cast<double>(shape.hidden), a = static_cast<double>(shape.heads);
  const double sbh = s * static_cast<double>(micro_batch) * h, t = static_cast<double>(parallel.tensor);
  const double replicated = parallel.sequence ? t : 1;
  if (recompute == GptRecompute::full) return 2 * sbh / replicated;
  const double core = recompute == GptRecompute::none ? 5 * a * s / h : 0;
  return sbh * (10 / replicated + (24 + core) / t);
}

std::int64_t mla_saved_per_token(const MlaShape& shape, bool recompute_up_projection) {
  const std::int64_t norms = 2 * 2 * shape.hidden;  // input and its norm
  const std::int64_t latents = 2 * 2 * shape.q_lora_rank + 2 * (shape.kv_lora_rank + shape.rope_dim) + 2 * shape.kv_lora_rank;
  const std::int64_t queries_and_keys = 2 * 2 * shape.heads * (shape.nope_dim + shape.rope_dim);
  const std::int64_t values = 2 * shape.heads * shape.v_dim, output = values;
  const std::int64_t kept = norms + latents + output + 4 * shape.heads;
  return recompute_up_projection ? kept : kept + queries_and_keys + values;
}

std::int64_t moe_saved_per_token(const MoeShape& shape, bool eager_gate, bool probabilities_in_activation, double imbalance) {
  const std::int64_t router = 8 * shape.experts + 12 * shape.top_k;                 // logits and softmax fp32; indices, probabilities
  const std::int64_t gate = eager_gate ? 8 : 6;                                     // fc1 output with the activation's tensors
  const std::int64_t combine = probabilities_in_activation ? 0 : 2 * shape.hidden;  // fc2 output, multiplied afterwards
  const std::int64_t dispatched = shape.top_k * (2 * shape.hidden + gate * shape.expert_intermediate + combine);
  return router + static_cast<std::int64_t>(std::llround(imbalance * static_cast<double>(dispatched)));
}

LossBytes loss_bytes_per_logit(LossHead head) {
  switch (head) {
    case LossHead::transformers:
      return {4 + 2, 2 + 4 + 4, 2 + 4 + 4 + 4};
    case LossHead::torchtitan_eager:
      return {4, 2 + 4 + 4, 4 + 4 + 4};
    case LossHead::compiled:
      return {2, 2, 4};
    case LossHead::megatron:
      return {4, 2 + 4, 4 + 2};
    case LossHead::transformer_engine:
      return {4, 6, 6};
    case LossHead::liger:
      return {2, 2, 2};
    case LossHead::fp32_logits:
      return {4 + 4, 4 + 4, 4 + 4 + 4};
  }
  return {};
}

// Liger-Kernel, fused_linear_cross_entropy: chunks so that a chunk's logits are about as large as the input.
LigerFusedLinear liger_fused_linear(std::int64_t tokens, std::int64_t hidden, std::int64_t vocabulary) {
  LigerFusedLinear result{};
  result.factor = ceil_div(vocabulary, hidden);
  result.chunk_rows = 1;
  while (result.chunk_rows < ceil_div(tokens, result.factor)) result.chunk_rows *= 2;
  result.chunks = ceil_div(tokens, result.chunk_rows);
  result.chunk_logits = Bytes(2 * result.chunk_rows * vocabulary);
  result.grad_weight = Bytes(2 * vocabulary * hidden);
  result.grad_input = Bytes(2 * tokens * hidden);
  return result;
}

// flash-attention: csrc/flash_attn/flash_api.cpp and hopper/flash_api.cpp, mha_bwd.
FlashBackwardWorkspace flash_backward_workspace(FlashVersion version, const LayerShape& shape, std::int64_t seq_len,
                                                std::int64_t micro_batch) {
  const std::int64_t rows = round_up(seq_len, 128), depth = round_up(shape.head_dim, 32), b = micro_batch;
  const bool grouped = shape.kv_heads < shape.heads;
  FlashBackwardWorkspace workspace;
  workspace.dq_accumulator = Bytes(4 * b * rows * shape.heads * depth);
  const std::int64_t statistics = 4 * b * shape.heads * rows;
  workspace.softmax_statistics = Bytes(version == FlashVersion::two ? statistics : 2 * statistics);
  if (grouped)
    workspace.expanded_kv = version == FlashVersion::two ? Bytes(2 * 2 * b * seq_len * shape.heads * shape.head_dim)
                                                         : Bytes(2 * 4 * b * shape.kv_heads * rows * depth);
  return workspace;
}

// A convolution keeps its input, batch norm its input, an in-place ReLU its result (the next convolution's input, the same storage), a
// max pool its input and int64 indices. The sum of a block is made in place in the last batch norm's output.
ConvolutionActivations bottleneck_resnet_activations(const std::array<int, 4>& blocks, std::int64_t image_size, std::int64_t classes,
                                                     DType type) {
  const std::int64_t stem = image_size / 2;
  std::int64_t elements = 3 * image_size * image_size + 2 * 64 * stem * stem, channels = 64;
  std::int64_t size = stem / 2;
  const std::int64_t pool = 64 * size * size;
  elements += pool;
  for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
    const std::int64_t width = 64LL << stage, out = 4 * width;
    for (int block = 0; block < blocks[stage]; ++block) {
      const std::int64_t next = stage > 0 && block == 0 ? size / 2 : size;
      elements += 2 * width * size * size + 2 * width * next * next + 2 * out * next * next;
      channels += 2 * width + out;
      if (block == 0) {  // the shortcut's convolution and batch norm
        elements += out * next * next;
        channels += out;
      }
      size = next;
    }
  }
  elements += 4 * (64LL << 3);                            // input of the classifier
  const std::int64_t loss = size_of(type) * classes + 8;  // log-softmax and the label
  return {elements * size_of(type) + 8 * pool + loss, 2 * 4 * channels + 4};
}

std::int64_t micro_batches_in_flight(PipelineKind kind, std::int64_t ranks, std::int64_t rank, std::int64_t micro_batches,
                                     std::int64_t chunks) {
  const std::int64_t p = ranks, r = rank, m = micro_batches;
  switch (kind) {
    case PipelineKind::gpipe:
      return m;
    case PipelineKind::one_forward_one_backward:
      return std::min(m, p - r);
    case PipelineKind::interleaved:
      return std::min(m * chunks, 2 * (p - r - 1) + (chunks - 1) * p + 1);
    case PipelineKind::zb_h1:
      return std::min(m, p);
    case PipelineKind::zb_h2:
      return std::min(m, 2 * p - 1);
    case PipelineKind::zb_v:
      return std::min(2 * m, 2 * p);
    case PipelineKind::dual_pipe:
      return std::min(m, p + 1);
  }
  return m;
}

}  // namespace plimsoll::memory
