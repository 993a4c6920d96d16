// What text decoders share: attention, MLP and mixture-of-experts branches, the layer that joins them, and the blocks around the stack.
// A family file states its specs, names and registration order; the operators are put together here, once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/block_builder.hpp"
#include "model/config.hpp"
#include "plimsoll/model.hpp"

namespace plimsoll::model {

/// Names of the modules of one layer, as the llama classes call them.
struct LayerNames {
  std::string attention = "self_attn";
  std::string q = "q_proj", k = "k_proj", v = "v_proj", qkv = "qkv_proj", output = "o_proj", q_norm = "q_norm", k_norm = "k_norm";
  std::string mlp = "mlp", gate = "gate_proj", up = "up_proj", gate_up = "gate_up_proj", down = "down_proj", activation = "act_fn";
  std::string moe = "mlp", router = "gate", experts = "experts", shared = "shared_expert", shared_gate = "shared_expert_gate";
  std::string attention_norm = "input_layernorm", mlp_norm = "post_attention_layernorm";                     ///< before the branches
  std::string attention_out_norm = "post_attention_layernorm", mlp_out_norm = "post_feedforward_layernorm";  ///< behind the branches
};

/// One layer: what its branches are and how they join the residual stream.
struct LayerPlan {
  std::string stack = "model.layers";
  std::int64_t first = 0, repeat = 1;
  NormPlacement placement = NormPlacement::pre;
  NormSpec norm;
  AttentionSpec attention;
  std::optional<MlpSpec> mlp;
  std::optional<MoeSpec> moe;
  std::optional<int> rotary_block;  ///< index of the block whose cosines and sines the layers read
  double hidden_dropout = 0;
  bool scaled_branches = false;     ///< granite: branches times residual_multiplier
  bool transposed_linears = false;  ///< gpt2: Conv1D
  LayerNames names;
  std::vector<std::string> registration = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"};
};

Block decoder_layer(const LayerPlan& plan);

/// Branches, for layers that are put together by a family itself. Each answers the index of the branch's last operator.
int add_attention(BlockBuilder& builder, int from, const LayerPlan& plan);
int add_mlp(BlockBuilder& builder, int from, const LayerPlan& plan);
int add_moe(BlockBuilder& builder, int from, const LayerPlan& plan);

/// A model of a decoder family with the dimensions that all configs share: hidden_size, layers, heads, kv heads, head_dim, vocabulary.
/// `kv_heads` and `head_dim` of the config are optional: absent or null, they are the heads and hidden_size / heads.
Model decoder_model(const Config& config);

/// The share of each head that is rotated: "partial_rotary_factor", also within "rope_parameters"; what else these say changes no size.
double rotary_share(const Config& config, double fallback = 1.0);

/// The attention that the model's dimensions imply: causal, rotary on the whole head.
AttentionSpec rotary_attention(const Model& model);

/// Appends the blocks around the stack, which the caller appends between the two.
struct EmbeddingPlan {
  std::string name = "model.embed_tokens";
  bool scaled = false;  ///< gemma, granite: times a constant
};
void append_token_embedding(Model& model, const EmbeddingPlan& plan = {});
/// The rotary module and its two buffers of rotary_dim / 2 inverse frequencies (as it is and as it was); it has no parameters.
void append_rotary(Model& model, std::int64_t rotary_dim, const std::string& name = "model.rotary_emb", bool with_original = true);
void append_final_norm(Model& model, const NormSpec& norm, const std::string& name = "model.norm");
/// The head that the architecture asks for: tied or own lm_head, the score of a sequence classifier, or none (base model).
/// Throws Error for a head that plimsoll does not know.
struct HeadPlan {
  std::string name = "lm_head";
  bool bias = false;
  bool scaled = false;  ///< cohere, granite: logits times or over a constant
  std::string tied_to = "model.embed_tokens.weight";
};
void append_head(Model& model, const Config& config, const HeadPlan& plan = {});

/// Appends `repeat` equal layers, the first of them number `first` of the stack, joined to the rotary module where there is one.
void append_layer_run(Model& model, LayerPlan plan, std::int64_t first, std::int64_t repeat);
/// Appends layers 0 … model.layers − 1 as runs of equal ones: `kind(i)` tells kinds apart, `plan(kind)` describes one.
template <class Kind, class Plan>
void append_layers(Model& model, Kind kind, Plan plan) {
  for (std::int64_t first = 0; first < model.layers;) {
    std::int64_t end = first + 1;
    while (end < model.layers && kind(end) == kind(first)) ++end;
    append_layer_run(model, plan(kind(first)), first, end - first);
    first = end;
  }
}
/// All layers alike.
void append_layers(Model& model, const LayerPlan& plan);

}  // namespace plimsoll::model
