/// TorchTitan's mixture of experts (torchtitan/models/common/moe.py, token_dispatcher.py): router, dispatch, grouped experts, combine.
#pragma once

#include <optional>

#include "plimsoll/model.hpp"
#include "program/modules/torchtitan/layers.hpp"

namespace plimsoll::program {

class TitanMoe {
 public:
  /// Throws Error (refused): experts whose projections are not TorchTitan's GroupedExperts.
  TitanMoe(Module& parent, const MoeSpec& spec, const TitanContext& context);
  /// [batch, length, hidden] to the same; with tensor parallelism cut or replicated as the activations between the blocks are.
  Tensor operator()(const Tensor& input) const;

 private:
  struct Routing {
    Tensor weights, experts;  ///< [batch, length, top_k]
    Tensor scores;            ///< [batch, length, experts]
  };
  /// What combine() needs of dispatch().
  struct Dispatched {
    Tensor rows;  ///< tokens in the order of this rank's experts
    Tensor tokens_per_expert;
    Tensor tokens, weights;  ///< of each sorted pair of token and expert
    Tensor order;            ///< from the order of ranks to that of experts; undefined without expert parallelism
  };
  void add_experts();
  Tensor mixed(const Tensor& x) const;
  Routing route(const Tensor& x) const;
  Tensor scores_within_groups(const Tensor& scores) const;
  Tensor own_tokens(const Tensor& x) const;
  Tensor routed(const Tensor& x, const Routing& routing, const Tensor& counts) const;
  Tensor experts_of(const Tensor& x, const Routing& routing, const Tensor& counts) const;
  Dispatched dispatch(const Tensor& x, const Tensor& weights, const Tensor& experts, const Tensor& counts) const;
  Dispatched exchange(const Tensor& rows, const Tensor& counts) const;
  Tensor run_experts(const Tensor& rows, const Tensor& counts) const;
  Tensor local_weight(const char* name) const;
  Tensor combine(const Tensor& output, const Dispatched& dispatched, const Tensor& x) const;

  TitanContext context_;
  MoeSpec spec_;
  Module& module_;
  Module& routed_;
  Module& grouped_;
  Module& router_;
  Linear gate_;
  std::optional<TitanFeedForward> shared_;
};

/// Adds the mixtures' load balancing before the optimizer step: counts of all layers together, each bias moved
/// (register_moe_load_balancing_hook). `recomputed`: counts are halved where checkpoints ran the layers twice.
void balance_experts(Tape& tape, const std::vector<Module*>& mixtures, bool recomputed);

}  // namespace plimsoll::program
