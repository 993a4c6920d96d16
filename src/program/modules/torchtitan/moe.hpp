/// TorchTitan's mixtures of experts: router, dispatch, grouped experts, combine.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "plimsoll/model.hpp"
#include "program/modules/torchtitan/layers.hpp"

namespace plimsoll::program {

class TitanMixture {
 public:
  virtual ~TitanMixture() = default;
  /// [batch, length, hidden] to the same; with tensor parallelism cut or replicated as the activations between the blocks are.
  virtual Tensor operator()(const Tensor& input) const = 0;
};

/// Adds the module "moe" as the run's release builds it.
/// Throws Error (refused): experts whose projections are not TorchTitan's GroupedExperts.
std::unique_ptr<TitanMixture> make_titan_mixture(Module& parent, const MoeSpec& spec, const TitanContext& context);

/// The same before 0.3 (torchtitan/models/moe/moe.py): tokens are sorted by expert, every expert's rows padded to whole groups of eight.
std::unique_ptr<TitanMixture> make_sorted_mixture(Module& parent, const MoeSpec& spec, const TitanContext& context);

/// MoE of 0.3 (torchtitan/models/common/moe.py, token_dispatcher.py).
class TitanMoe final : public TitanMixture {
 public:
  TitanMoe(Module& parent, const MoeSpec& spec, const TitanContext& context);
  Tensor operator()(const Tensor& input) const override;

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

/// SelectiveAC never keeps nor counts products (mm) of the shape of the router's; with a bias it is another operator, which is kept.
class OutsideOfPolicy {
 public:
  OutsideOfPolicy(Tape& tape, bool biased) : tape_(tape), before_(tape.selective_outputs) {
    if (!biased) tape.selective_outputs = nullptr;
  }
  ~OutsideOfPolicy() { tape_.selective_outputs = std::move(before_); }
  OutsideOfPolicy(const OutsideOfPolicy&) = delete;
  OutsideOfPolicy& operator=(const OutsideOfPolicy&) = delete;

 private:
  Tape& tape_;
  std::shared_ptr<SelectiveOutputs> before_;
};

/// _get_node_limited_routing_scores: scores [..., experts], of which those outside the chosen groups are masked. All its variables live
/// until it returns.
Tensor scores_within_groups(const MoeSpec& spec, const Tensor& scores);

/// _run_experts_grouped_mm: w2(silu(w1(x)) * w3(x)) of each expert's rows.
Tensor run_grouped_experts(const Tensor& rows, const Tensor& counts, const Tensor& w1, const Tensor& w2, const Tensor& w3);

/// Adds the mixtures' load balancing before the optimizer step: counts of all layers together, each bias moved
/// (register_moe_load_balancing_hook). `recomputed`: counts are halved where checkpoints ran the layers twice.
void balance_experts(Tape& tape, const std::vector<Module*>& mixtures, bool recomputed);

}  // namespace plimsoll::program
