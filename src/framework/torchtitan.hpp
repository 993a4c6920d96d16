// What of TorchTitan depends on its release.
#pragma once

#include <optional>

#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::framework {

/// A state of TorchTitan's code, by its day: year · 10000 + month · 100 + day. A release is that of its day; what changed when is told by
/// the days of pytorch/torchtitan's commits, and what came between 0.2.2 and 0.3 is taken to have come with 0.3.
class TitanRelease {
 public:
  explicit TitanRelease(int day) : day_(day) {}
  int day() const { return day_; }

  /// Embedding and head of a Llama may be one table (8953d2e39); Qwen3's always could.
  bool ties_llama() const { return day_ >= 20260324; }
  /// One rotary table per layer whose rows are gathered, fused projections, spmd_types, chunked losses.
  bool is_0_3() const { return day_ >= 20260903; }
  /// Key and value heads are fewer than query heads in attention too (enable_gqa); before, they are repeated (ff0829c10).
  bool groups_heads() const { return day_ >= 20260127; }
  /// The loss is a sum, divided by the valid tokens of all ranks; before, a mean (0cb743558).
  bool counts_tokens() const { return day_ >= 20260125; }
  /// The mean is divided by the micro-batches that are accumulated, be it one (8570415c3).
  bool rescales_loss() const { return day_ >= 20250605 && !counts_tokens(); }
  /// cp_shard gives each rank its part of the sequences; before, the context manager context_parallel() does (1e8f9acd1).
  bool shards_context_itself() const { return day_ >= 20260120; }
  /// ScaledDotProductAttention's own order of kernels has cuDNN's first from this compute capability on: of Blackwell (3b85aa31f), then of any
  /// (6a3a9da95); before, the order was PyTorch's.
  std::optional<int> cudnn_attention_from() const {
    if (day_ >= 20251009) return 0;
    return day_ >= 20250514 ? std::optional<int>(100) : std::nullopt;
  }
  /// Selective checkpoints keep cuDNN's attention; before, they list flash and memory-efficient kernels alone (b39377f9f).
  bool keeps_cudnn_attention() const { return day_ >= 20251201; }
  /// Routed outputs are put back in the order of tokens and summed there; before, added to their tokens (scatter_add; e1f7f318a).
  bool unsorts_experts() const { return day_ >= 20251121; }
  /// schedule.step gives back nothing; before, the last stage's outputs live until the next step (e5ef99aab).
  bool drops_pipeline_outputs() const { return day_ >= 20251022; }
  /// activation_checkpoint.early_stop, which is false; before, torch.utils.checkpoint's own default (25413d224).
  bool recomputes_to_the_end() const { return day_ >= 20250829; }
  /// fully_shard wraps the embedding, and norm and head together; before, they are the root's, and the last layer stays gathered between
  /// its passes (83e694105).
  bool wraps_ends() const { return day_ >= 20250728; }
  /// Pipeline stages count the embedding and the head as a layer each (f64cf3c18).
  bool counts_ends() const { return day_ >= 20250415; }

 private:
  int day_;
};

/// Whether TorchTitan builds the model with one table for embedding and head.
bool torchtitan_ties(const TitanRelease& release, const Model& model);

/// The release that was said, or the newest.
TitanRelease titan_release(const Strategy& strategy);

/// Where nothing is said. From 0.3 on model_registry's attn_backend is "flex", gpt-oss's "varlen"; flex under context parallelism has no
/// lowering, scaled dot-product attention is taken there.
AttentionKernel torchtitan_attention(const Strategy& strategy, const Model& model);

/// Where nothing is said: chunked from 0.3 on; before, compiled where blocks are, and chunked where chunks are counted.
LossKernel torchtitan_loss(const Strategy& strategy);

}  // namespace plimsoll::framework
