// What text decoders share: attention, MLP and mixture-of-experts branches, the layer that joins them, and the blocks around the stack.
// A family file states its specs, names and registration order; the operators are put together here, once.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
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
  std::string correction_bias = "gate.e_score_correction_bias";                                              ///< within moe
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
  std::optional<NormSpec> qk_norm;              ///< of queries and keys, where it is not `norm`
  bool qk_norm_modules = false;                 ///< stablelm: each_head as a list of norms
  std::vector<BufferTensor> attention_buffers;  ///< gpt_neo's causal mask, gptj's sines
  std::optional<MlpSpec> mlp;
  std::optional<MoeSpec> moe;
  std::optional<int> rotary_block;                                  ///< index of the block whose cosines and sines the layers read
  double hidden_dropout = 0;                                        ///< behind the branches
  bool dropout_behind_attention = true, dropout_behind_mlp = true;  ///< distilbert has none behind attention, albert none behind the MLP
  bool scaled_branches = false;                                     ///< granite: branches times residual_multiplier
  bool transposed_linears = false;                                  ///< gpt2: Conv1D
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

/// The attention that the model's dimensions imply: causal, rotary on the share of each head that the config says.
AttentionSpec rotary_attention(const Config& config, const Model& model, double default_share = 1.0);
/// A causal attention without rotation: learned positions, ALiBi, or none.
AttentionSpec plain_attention(const Model& model, Positions positions);
/// DeepSeek's experts, which others took over key by key: n_routed_experts chosen by corrected scores, in groups, beside n_shared_experts.
struct ExpertDefaults {
  bool normalized_top_k = true;
  std::int64_t groups = 1, chosen_groups = 1;
};
MoeSpec corrected_experts(const Config& config, const Model& model, const ExpertDefaults& defaults = {});
/// Names and order of registration of a layer that may have such experts, "shared_experts" beside them; its attention is known by now.
void name_shared_experts(LayerPlan& layer);
/// Llama's layer: rotary_attention and a gated MLP of intermediate_size, no biases.
LayerPlan llama_layer(const Config& config, Model& model, double default_share = 1.0);
/// Sets queries', keys', values' and the output's biases alike.
void set_attention_bias(AttentionSpec& attention, bool bias);

NormSpec layer_norm(bool bias = true);
/// MLP of two linears, "up" and "down".
MlpSpec plain_mlp(const Model& model, const std::string& activation, bool bias);

/// For every layer whether its attention slides (is of `kind`): the config's "layer_types", else `by_default(layer)`.
std::vector<bool> sliding_layers(const Config& config, std::int64_t layers, const std::function<bool(std::int64_t)>& by_default,
                                 std::string_view kind = "sliding_attention");
/// For every layer whether it rotates: the config's "no_rope_layers" (1: it does), else all but every no_rope_layer_interval-th.
std::vector<bool> rotating_layers(const Config& config, std::int64_t layers);
/// Prefixes of the buffers of a rotary module that has frequencies for each kind of layer there is.
std::vector<std::string> rotary_prefixes(const std::vector<bool>& slides);
/// The members of a list of layer numbers ("mlp_only_layers") as a flag per layer.
std::vector<bool> listed_layers(const Config& config, std::string_view key, std::int64_t layers);

/// Appends the blocks around the stack, which the caller appends between the two.
struct EmbeddingPlan {
  std::string module = "model", token = "embed_tokens";
  std::string position = {};  ///< name of a learned position table of `position_rows`, or empty
  std::int64_t position_rows = 0;
  std::string norm = {};      ///< bloom: name of a LayerNorm behind the lookup, or empty
  bool scaled = false;        ///< gemma, granite: times a constant
  bool scale_buffer = false;  ///< gemma: the constant is a buffer
};
void append_token_embedding(Model& model, const EmbeddingPlan& plan = {});
/// The rotary module: per layer type two buffers of rotary_dim / 2 inverse frequencies (as it is and as it was); it has no parameters.
void append_rotary(Model& model, std::int64_t rotary_dim, const std::string& name = "model.rotary_emb",
                   const std::vector<std::string>& buffer_prefixes = {""});
void append_final_norm(Model& model, const NormSpec& norm, const std::string& name = "model.norm");
/// The head that the architecture asks for: tied or own lm_head, the score of a sequence classifier, or none (base model).
/// Throws Error for a head that plimsoll does not know.
struct HeadPlan {
  std::string name = "lm_head";
  bool bias = false;
  bool scaled = false;     ///< cohere, granite: logits times or over a constant
  std::int64_t width = 0;  ///< of its input; 0: hidden_size
  std::string token_classifier = "score";
};
void append_head(Model& model, const Config& config, const HeadPlan& plan = {});

/// Where a language model's config adds the routers' auxiliary loss ("output_router_logits"), each router's operator says so.
void balance_routers(Model& model, const Config& config);

/// The common whole: embedding, rotary module, equal layers, final norm, head, all under "model".
Model rotary_decoder(Model model, const Config& config, const LayerPlan& layer);

/// Appends `repeat` equal layers, the first of them number `first` of the stack, joined to the rotary module where there is one.
void append_layer_run(Model& model, LayerPlan plan, std::int64_t first, std::int64_t repeat);
/// Calls `append(kind, first, repeat)` for every run of equal layers among 0 … layers − 1; `kind(i)` tells kinds apart.
template <class Kind, class Append>
void for_each_run(std::int64_t layers, Kind kind, Append append) {
  for (std::int64_t first = 0; first < layers;) {
    std::int64_t end = first + 1;
    while (end < layers && kind(end) == kind(first)) ++end;
    append(kind(first), first, end - first);
    first = end;
  }
}
/// Appends layers 0 … model.layers − 1 as runs of equal ones: `kind(i)` tells kinds apart, `plan(kind)` describes one.
template <class Kind, class Plan>
void append_layers(Model& model, Kind kind, Plan plan) {
  for_each_run(model.layers, kind,
               [&](auto&& of, std::int64_t first, std::int64_t repeat) { append_layer_run(model, plan(of), first, repeat); });
}
/// All layers alike.
void append_layers(Model& model, const LayerPlan& plan);
/// Layers of which those with a true flag attend within `window`.
void append_sliding_layers(Model& model, const LayerPlan& plan, const std::vector<bool>& slides, std::optional<std::int64_t> window);
/// Layers of `moe` where `routed(i)`, of the plan's MLP elsewhere, of which those with a true flag of `slides` attend within `window`; none
/// where there are no flags.
void append_routed_layers(Model& model, const LayerPlan& plan, const MoeSpec& moe, const std::function<bool(std::int64_t)>& routed,
                          const std::vector<bool>& slides = {}, std::optional<std::int64_t> window = {});

}  // namespace plimsoll::model
