/// What of transformers' modules depends on its release.
///
/// Each rule was read in the wheels of 4.36 to 4.57, 5.0, 5.1, 5.3, 5.6, 5.9, 5.12, 5.17 and 5.23. Between 5.17 and 5.23 stand releases that
/// nobody looked at: what the one does and the other does not is taken to have ended with 5.17.
#pragma once

#include <cstdint>
#include <string_view>

#include "plimsoll/release.hpp"

namespace plimsoll::program {

/// A release of transformers.
class HfRelease {
 public:
  /// The newest that was read.
  HfRelease() = default;
  explicit HfRelease(const Release& release) : release_(release) {}

  // ---- attention (integrations/sdpa_attention.py, modeling_flash_attention_utils.py) ----
  /// use_gqa_in_sdpa: without a mask, fewer key heads than query heads are left to PyTorch, which has to be 2.5; before, repeat_kv copies
  /// them.
  bool groups_heads_in_sdpa() const { return release_.since(4, 54); }
  /// sdpa_attention_forward makes queries, keys and values contiguous.
  bool packs_for_sdpa() const { return release_.since(4, 48) && !release_.since(4, 56); }
  /// T5Attention gives SDPA its position bias in rows; before, as the table of buckets was read.
  bool packs_position_bias() const { return after_5_17(); }
  /// _flash_attention_forward asks, layer by layer, whether positions start anew within a sequence: of any batch until 4.52, then of a
  /// single sequence alone.
  bool looks_for_packed_sequences(std::int64_t batch) const { return release_.since(4, 44) && (batch == 1 || !release_.since(4, 53)); }

  // ---- the loss (the classes' forward, loss/loss_utils.py) ----
  /// How a class for causal language models comes from its logits to its loss.
  struct CausalLoss {
    bool upcasts_before = false;  ///< forward makes the logits fp32, which the output object then holds
    bool upcasts_within = true;   ///< ForCausalLMLoss does
    bool copies_shifted = false;  ///< logits[..., :-1, :].contiguous(); since 4.49 the labels are padded instead
    bool warns = false;           ///< the class's name tells no loss (LOSS_MAPPING): looking for it warns, which no traced graph can do
  };
  CausalLoss causal_loss(std::string_view model_type) const;

  // ---- mixtures (the sparse blocks, integrations/moe.py) ----
  /// Experts are stacked in one parameter, and run as grouped products; before, each is a module of linears, run one after the other.
  bool stacks_experts() const { return release_.since(5, 0); }
  /// The loop asks first which experts got a token, and goes through these alone.
  bool asks_for_hit_experts(std::string_view model_type) const;
  /// grouped_mm_experts_forward fills rows of experts of other ranks with zeros, though there be none.
  bool masks_absent_experts() const { return !after_5_17(); }

  // ---- checkpoints (modeling_layers.py) ----
  /// GradientCheckpointingLayer checkpoints the layer's forward, which torch.compile sees as part of the layer's graph; before, its call,
  /// so that a whole compiled layer runs again.
  bool checkpoints_forward() const { return after_5_17(); }

 private:
  bool after_5_17() const { return release_.since(5, 18); }

  Release release_{5, 23};
};

}  // namespace plimsoll::program
