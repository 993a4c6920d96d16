/// Floating-point operations of a model: exact sums over its operators, and the conventions by which published MFU figures count them.
///
/// A multiply-add is two. Per-token figures are forward and backward together unless a name says forward; the same run differs by 15 % and
/// more from one convention to the next, so a figure is never given without its convention's name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plimsoll/model.hpp"

namespace plimsoll::flops {

// ---- one operator ------------------------------------------------------------------------------------------------------

/// How much of the score matrix an attention computes.
enum class Mask : std::uint8_t {
  full,          ///< every pair
  causal_half,   ///< half of the pairs: what most papers count
  causal_exact,  ///< s(s+1)/2 pairs
};
/// Pairs (query, key) per sequence of `queries` x `keys`; with `window` W only those with |query − key| < W.
/// Throws Error when a causal or windowed mask meets queries != keys.
double attention_pairs(std::int64_t queries, std::int64_t keys, Mask mask, std::optional<std::int64_t> window = {});
/// Forward of the two attention products of one layer: 2 · batch · pairs · heads · (d_qk + d_v).
double attention_forward(std::int64_t batch, double pairs, std::int64_t heads, std::int64_t qk_dim, std::int64_t v_dim);
/// Backward: twice the forward, 2.5 times with flash attention, which computes the scores again (5 products against 2).
double attention_backward(double forward, bool flash);

// ---- a whole model, exactly ----------------------------------------------------------------------------------------------

/// Lengths of one sample.
struct Lengths {
  std::int64_t sequence =
      0;  ///< tokens of the main stream (an encoder's, a diffusion model's image); unused where the architecture fixes them
  std::int64_t second = 0;  ///< tokens of the second stream (the decoder's, the text's); 0: as `sequence`
};
/// Positions per sample that `block` works on.
std::int64_t positions(const Block& block, const Lengths& lengths);
/// Forward FLOPs per sample of one operator of `block`: matrix product, convolution, router, or attention under `mask` where it is causal.
double operator_forward(const Block& block, const Operator& op, const Lengths& lengths, Mask mask);
/// The same of one repeat of a whole block.
double block_forward(const Block& block, const Lengths& lengths, Mask mask);
/// Forward FLOPs per sample.
double forward(const Model& model, const Lengths& lengths, Mask mask = Mask::causal_exact);
/// The share of it that products with weights have: a backward pass spends as much on their gradients, unless they are frozen.
double weight_products(const Model& model, const Lengths& lengths);

/// What runs on the device besides the model FLOPs.
struct Execution {
  bool flash = true;
  enum class Recompute : std::uint8_t { none, full, selective_core, torchtitan_selective } recompute = Recompute::none;
  Mask mask = Mask::causal_exact;
};
/// FLOPs per sample of forward, backward and recomputation as the kernels run them (modelling: exact sum per operator, causal share, flash
/// backward 2.5 x). Frozen parameters and inputs without gradient are not subtracted.
double hardware(const Model& model, const Lengths& lengths, const Execution& execution = {});
/// torchtitan's per-operator selective recomputation saves every other matrix product: per token it runs wk, wo and w3 (or its like) again,
/// 2(h·g·d + a·d·h + h·f) per layer.
double torchtitan_selective_recompute_per_token(const Model& model);

// ---- the conventions -------------------------------------------------------------------------------------------------------

/// What a convention needs beyond the model.
struct Setting {
  std::int64_t sequence = 0;
  std::int64_t padded_vocab = 0;  ///< Megatron: vocabulary padded to a multiple of 128 · TP; 0: as in the model
  std::int64_t mtp_layers = 0;    ///< Megatron: multi-token-prediction modules, each a layer of the last kind
  bool recompute = false;         ///< the conventions that count recomputation on request
};

/// 6N, with routed experts counted top-k of E (Kaplan 2020, Hoffmann 2022).
double six_n(const Model& model, const Setting& setting);
/// 6(N − N_emb) + 6·L·a·(d_qk + d_v)·s, N_emb the input embedding unless it is tied; experts top-k of E; no causal halving; windows ignored
/// (torchtitan models/utils.py get_dense_model_nparams_and_flops, get_moe_model_nparams_and_flops).
double torchtitan(const Model& model, const Setting& setting);
/// 6N + 12·L·H·Q·T (Chowdhery 2022, appendix B, with N all parameters; experts top-k of E).
double palm(const Model& model, const Setting& setting);
/// Megatron-LM main and Megatron-Bridge, num_floating_point_operations: matrix products per layer, attention halved by causality or its
/// mean window W − W(W−1)/(2s), MLA with its low-rank products, MTP layers, padded head. Routers, biases and norms are not counted.
double megatron(const Model& model, const Setting& setting);
/// Megatron-LM until mid-2025: 12·L·h²·[(1 + k/a + s/h)·(q/h) + (f/h)·topk·1.5 + shared·1.5 + V/(2Lh)] (1 for 1.5 without a gate); no
/// halving.
double megatron_until_2025(const Model& model, const Setting& setting);
/// Narayanan 2021: 72·L·h²·(1 + s/(6h) + V/(12Lh)), with recomputation 96·L·h²·(1 + s/(6h) + V/(16Lh)); MHA and f = 4h by construction.
double megatron_2021(const Model& model, const Setting& setting);
/// 3·(2N + 4·L·h·s) with active N; with recomputation (HFU) 4·2N + 5·4·L·h·s, flash attention's own recomputation included
/// (llm-foundry modeling_mpt.py, scripts/train/benchmarking/README.md).
double llm_foundry(const Model& model, const Setting& setting);
/// 3·[2Lh(a·d + 2k·d) + 4·L·a·d·s + 2L·a·d·h + 6Lhf + 2hV] (nanotron get_flops); dense by design, here f is top-k experts for MoE.
double nanotron(const Model& model, const Setting& setting);
/// 3·L·[6hf + 2h²(2 + 2k/a) + 4hs] + 3·hV·(2 untied, 1 tied), + 1 x the layers with recomputation (LLaMA-Factory cal_mfu.py). It has no MoE
/// term: one expert is counted, as it does.
double llama_factory(const Model& model, const Setting& setting);
/// iter·[2(1+2r)h²L + 4Lhs + 2h²L + 2·n_mlp·(f/h)·h²L] + 4h + 2hV, r = k/a, iter 3, or 4 with recomputation
/// (EleutherAI cookbook calc_transformer_flops.py); the embedding once.
double eleutherai(const Model& model, const Setting& setting);
/// Three times the forward sum over operators, causal pairs counted exactly: the model's true arithmetic, per token.
double exact(const Model& model, const Setting& setting);

/// A convention by name.
struct Convention {
  std::string_view name, source;
  double (*per_token)(const Model&, const Setting&);
};
/// All of them, in the order reports print them.
const std::vector<Convention>& conventions();
/// Throws Error with the nearest name.
const Convention& convention(std::string_view name);
/// Whether the decoder-only conventions (all but "6n" and "exact") say anything about this model: a causal or masked language model of
/// text.
bool conventions_apply(const Model& model);

/// tokens/s per GPU · FLOPs per token / peak.
double mfu(double tokens_per_second_per_gpu, double flops_per_token, double peak_flops_per_second);

}  // namespace plimsoll::flops
