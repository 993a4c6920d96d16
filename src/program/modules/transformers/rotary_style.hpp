/// How llama's relatives differ from it.
#pragma once

#include <optional>
#include <string>

#include "plimsoll/model.hpp"
#include "program/modules/layers.hpp"
#include "program/modules/liger.hpp"
#include "program/modules/network.hpp"
#include "program/modules/transformers/latent_attention.hpp"

namespace plimsoll::program::rotary {

/// How a family's modeling file differs from llama's where the model's blocks do not say it.
struct Style {
  Norm::Rounding norm_rounding = Norm::Rounding::before_weight;
  bool fp32_tables = false;            ///< olmo2: cosines and sines stay fp32, the rotated tensors are cast back
  bool scaled_embedding = false;       ///< gemma: times a buffer
  bool scaled_everywhere = false;      ///< granite: embeddings, branches and logits times a constant
  bool wide_tables = false;            ///< ernie4_5: cosines and sines stay fp32, the rotation itself casts back
  bool scaled_logits = false;          ///< cohere
  bool norms_turned_heads = false;     ///< gemma3, phi: queries' and keys' norms run behind the transposition of the heads
  bool dropout_within = false;         ///< starcoder2, seed_oss: the branches' dropouts are within their modules
  bool norms_behind_rotation = false;  ///< hunyuan: queries' and keys' norms run on the rotated heads
  bool scaled_queries = false;         ///< ministral3: rotated queries times a scale of their positions
  bool frequencies_by_kind = false;    ///< gemma3, olmo3: sliding layers rotate by frequencies of their own
  bool norms_behind_all = false;       ///< glm4_moe: queries' and keys' norms run when all three projections are there
  bool norm_each_head = false;         ///< stablelm: queries' and keys' norms are modules of every head
  bool joins_both_at_last = false;     ///< nemotron: the rotated parts live until both are joined
  bool rotates_in_frame = false;       ///< phi, stablelm: the attention itself rotates, and keeps the parts until it returns
  bool masks_outside = false;          ///< gemma3 beside images: the outer model makes the masks, before there are positions
  bool positions_3d = false;           ///< qwen2_vl: positions in time, height and width
  bool complex_heads = false;          ///< llama4: [batch, length, heads, dim] turned as complex numbers; softmax in the scores' type
  bool norm_before_layers = false;     ///< nanochat: the final norm runs before the first layer as well
  bool attended_kept = false;          ///< llama4: the attention's result lives until the layer returns
  bool sinks = false;                  ///< gpt_oss: its own attention and rotation; its MLP's second result takes the probabilities' place
  bool one_mask = false;               ///< mistral and its kin: the mask of the config's one kind; all others make the full one in any case
  bool residual_first = false;         ///< stablelm: residual + attention + dropout(mlp); phi: dropout(attention) + dropout(mlp) + residual
  Rotation rotation = Rotation::whole;
  std::string model_type = {};
  std::optional<LigerPatches> liger = {};  ///< none: transformers' own modules

  const LigerPatches* liger_norms() const { return liger && liger->modules.rms_norm ? &*liger : nullptr; }
  std::optional<LigerPatches> liger_final_norm() const {
    std::optional<LigerPatches> patches = liger_norms() ? liger : std::nullopt;
    if (patches) patches->gradient_in_place = patches->final_gradient_in_place;
    return patches;
  }
  bool liger_gates() const { return liger && liger->modules.glu; }
  const LigerPatches* liger_head_norms() const { return liger_norms() && liger->head_norms ? &*liger : nullptr; }
  LatentAttention::Rotation latent_rotation = LatentAttention::Rotation::neighbours;
  const char *mixture = "mlp", *mlp = "mlp";  ///< names of a layer's mixture of experts and of its dense MLP
  const char *output = "o_proj", *q_norm = "q_norm", *k_norm = "k_norm", *up = "up_proj", *down = "down_proj", *final_norm = "norm";
  const char *attention_norm = "input_layernorm", *plain_mlp_norm = "post_attention_layernorm";  ///< before the branches, of no sandwich
  const char *attention_out_norm = "post_attention_layernorm", *mlp_norm = "pre_feedforward_layernorm",
             *mlp_out_norm = "post_feedforward_layernorm";  ///< of a sandwich
};

/// Type of the language model of a model of images and text; else the type itself.
std::string text_type(const std::string& model_type);

Style style_of(const Model& model, const RunOptions& options);

}  // namespace plimsoll::program::rotary
