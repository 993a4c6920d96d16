/// A mixture of experts in transformers: a family's router, the experts in one grouped product, shared experts beside them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "plimsoll/model.hpp"
#include "program/modules/adapters/param_wrapper.hpp"
#include "program/modules/bare.hpp"
#include "program/hf_release.hpp"
#include "program/modules/transformers/expert_loop.hpp"
#include "program/modules/transformers/gated_mlp.hpp"

namespace plimsoll::program {

/// What transformers' output recorder keeps of the routers while the model's forward runs; a recomputation comes later and is not recorded.
struct RouterRecord {
  bool open = false;
  std::vector<Tensor> logits;
};

/// load_balancing_loss_func of mixtral and its relatives; of what `attention_mask` [batch, length] int64 leaves, where one is given.
Tensor load_balancing_loss(Tape& tape, const std::vector<Tensor>& router_logits, const MoeSpec& spec, const Tensor& attention_mask = {});

class MixtureOfExperts {
 public:
  /// `module` is the sparse block (model.layers.3.mlp).
  /// `liger`: LigerExperts in the experts' place. Throws Error (refused): a model type whose router is not modelled.
  MixtureOfExperts(Module& module, Tape& tape, const MoeSpec& spec, std::string_view model_type, RouterRecord& record,
                   const HfRelease& release, bool liger = false);
  /// [batch, length, hidden] to the same.
  Tensor operator()(const Tensor& input) const;

 private:
  /// How a family turns logits into weights.
  enum class Router {
    softmax_of_floats,    ///< mixtral: softmax(logits.float()), top-k, normalized, left in fp32
    softmax_in_floats,    ///< olmoe, qwen2_moe, qwen3_moe, mixtral before 5.0: softmax(logits, dtype=float), top-k, normalized or not, cast back
    top_k_first,          ///< granitemoe: top-k of the logits, then softmax
    top_k_softmax,        ///< gpt_oss: the same in the logits' own type, the product with a bias
    scaled_softmax,       ///< deepseek_v2: fp32 product, softmax, top-k, scaled
    corrected_among_all,  ///< minimax_m2: sigmoid(logits.float()), the best of all by corrected scores, normalized, left in fp32
    corrected_softmax,    ///< ernie4_5_moe: fp32 product and softmax without autocast, top-k by corrected scores, normalized, cast back
    corrected_sigmoid,    ///< deepseek_v3, glm4_moe: fp32 product, sigmoid, groups chosen by corrected scores, weights gathered, scaled
  };
  static Router router_of(std::string_view model_type, const HfRelease& release);

  struct Routing {
    Tensor logits, weights, indices;
  };
  /// What a choice within groups leaves behind.
  struct Choice {
    Tensor scores, group_scores, groups, group_mask, mask, experts;
  };
  Routing route(const Tensor& hidden) const;
  Routing softmax_first(const Tensor& hidden, const Tensor& weight) const;
  Routing top_k_first(const Tensor& hidden) const;
  Routing scaled_softmax(const Tensor& hidden) const;
  Routing corrected_sigmoid(const Tensor& hidden) const;
  Routing corrected_among_all(const Tensor& hidden) const;
  Routing corrected_softmax(const Tensor& hidden) const;
  Tensor wide_logits(const Tensor& hidden) const;
  Choice choose_in_groups(const Tensor& scores) const;
  void keep_best_groups(Choice& choice) const;
  Tensor mix(const Tensor& hidden, const Tensor& indices, const Tensor& weights) const;
  /// Rows of one pass through the experts: where each group ends, each row's expert, and which rows are of none here.
  struct Rows {
    Tensor offsets, expert_ids, absent;
  };
  Tensor run_experts(WrappedParameters& weights, const Tensor& selected, const Rows& rows, Tensor& biases) const;
  Tensor grouped_linear(const Tensor& selected, const Tensor& weight, const Rows& rows, const Tensor& biases) const;
  Tensor gate(const Tensor& rows) const;
  Tensor gated_shared(const Tensor& flat, const Tensor& common) const;
  Tensor beside_shared_first(const Tensor& hidden) const;
  Tensor beside_shared(const Tensor& hidden) const;
  Tensor alone(const Tensor& hidden) const;

  Module& module_;
  Tape& tape_;
  MoeSpec spec_;
  Router kind_;
  Module &outer_router_, &router_;    ///< with PEFT's wrappers of its weight, and without
  Module &outer_experts_, &experts_;  ///< the same
  std::optional<Activation> act_fn_;  ///< of stacked experts
  std::optional<ExpertLoop> loop_;    ///< before they were stacked
  std::optional<GatedMlp> shared_;
  std::optional<Linear> shared_gate_;
  RouterRecord& record_;
  bool masks_absent_, liger_;
};

}  // namespace plimsoll::program
