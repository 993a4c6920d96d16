/// Megatron-core's MoELayer: top-k router, all-to-all dispatcher, and SequentialMLP or TEGroupedMLP (Transformer Engine).
/// Source: megatron/core/transformer/moe of Megatron-core 0.16.1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"
#include "program/module.hpp"
#include "program/modules/megatron/expert_mlp.hpp"
#include "program/modules/megatron/runtime.hpp"

namespace plimsoll::program {

/// One parameter below the layer's "mlp".
struct ExpertParameter {
  std::string path;  ///< of its module
  std::string name;
  Dims sizes;
  bool host;    ///< made on the host in its final type, moved later
  bool expert;  ///< of one expert-parallel rank
};

/// How tokens go to experts, for all layers alike.
struct ExpertOptions {
  std::int64_t expert_parallel = 1, expert_tensor_parallel = 1;
  std::optional<double> capacity_factor;  ///< empty: no token is dropped
  double imbalance = 1;                   ///< where none is dropped: tokens that this rank's experts get, over the mean
  bool te = false;                        ///< Transformer Engine's products
  bool grouped = false;                   ///< those of all experts at once; else an MLP per expert
  bool permute_fusion = false;            ///< beside them Transformer Engine's permutations; else PyTorch's operators
  bool fuses_swiglu = true;               ///< bias_swiglu_fusion
  bool fused_mlp = false;                 ///< products of experts with what lies around them (use_transformer_engine_op_fuser)
  bool auxiliary_loss = false;            ///< of load balancing
  enum class Dispatcher : std::uint8_t { all_to_all, deep_ep, hybrid_ep } dispatcher = Dispatcher::all_to_all;
  bool in_turn = false;                ///< a token's experts follow one another (framework::routes_in_turn)
  std::int64_t nvlink_domain = 8;      ///< ranks that NVLink joins
  bool recomputes_activation = false;  ///< selective recomputation of moe_act
  bool recomputes_shared = false;      ///< of shared_experts
  bool recomputes_norm = false;        ///< of the norm before the experts
  double adapter_dropout = 0;          ///< of adapters beside the experts' linears
};

/// Throws Error (refused): what of a mixture of experts is not modelled.
ExpertOptions expert_options(const MoeSpec& spec, const Strategy& strategy, std::int64_t nvlink_domain);

/// The parameters of a layer on one rank, in registration order.
std::vector<ExpertParameter> expert_parameters(const MoeSpec& spec, std::int64_t hidden, std::int64_t tensor_parallel,
                                               const ExpertOptions& options);

/// MoELayer.forward.
class MegatronExperts {
 public:
  MegatronExperts(MegatronRuntime& runtime, Module& module, const MoeSpec& spec, const ExpertOptions& options)
      : runtime_(runtime), module_(module), spec_(spec), options_(options) {}

  Tensor operator()(const Tensor& hidden) const;

 private:
  struct Routed {
    Tensor probabilities, map;  ///< [tokens, experts]
  };
  struct Permuted {
    Tensor tokens, probabilities;  ///< [experts · capacity, hidden] and [experts · capacity]
  };
  struct Remembered {
    Tensor probabilities, map, order;
  };

  Routed route(const Tensor& hidden) const;
  Routed top_k_of(const Tensor& logits) const;
  Routed drop(const Routed& routed) const;
  Tensor with_auxiliary_loss(const Tensor& probabilities, const Tensor& logits) const;
  Permuted permute_tokens(const Tensor& hidden, const Routed& routed) const;
  Tensor compute(const Tensor& dispatched, const Tensor& probabilities) const;
  Tensor compute_rows(const Tensor& dispatched, const Tensor& probabilities) const;
  Permuted permute_rows(const Tensor& hidden, const Routed& routed) const;
  Tensor one_by_one(const Tensor& tokens, const Tensor& probabilities) const;
  Tensor run_experts(const Tensor& tokens, const Tensor& probabilities) const;
  Tensor regrouped(const Tensor& rows, std::int64_t outer, std::int64_t inner) const;
  Tensor run_flex(const Tensor& hidden) const;
  Tensor run_all_to_all(const Tensor& hidden) const;
  GroupedExperts grouped_experts() const;
  AdapterPlace beside_experts() const;
  Tensor shared(const Tensor& hidden) const;
  /// fc1_latent_proj and fc2_latent_proj, before the dispatcher and behind it.
  Tensor to_latent(const Tensor& hidden) const;
  Tensor from_latent(const Tensor& rows) const;
  Tensor latent(const Tensor& rows, const char* name) const;
  /// [own rows, …] → [`rows`, …].
  Tensor all_to_all(const Tensor& x, std::int64_t rows) const;
  std::int64_t capacity(std::int64_t tokens) const;
  /// Rows that this rank sends: capacity of every expert, or every token top_k times.
  std::int64_t sent_rows(std::int64_t tokens) const;
  /// Rows go to their experts as many as they are, or are put in the order of the experts by grouped products' permutations; else every
  /// expert gets its capacity by index.
  bool by_rows() const { return options_.grouped || !options_.capacity_factor; }
  std::int64_t local_experts() const { return spec_.experts / options_.expert_parallel; }

  MegatronRuntime& runtime_;
  Module& module_;
  const MoeSpec& spec_;
  ExpertOptions options_;
  mutable Remembered remembered_;  ///< the dispatcher's attributes, which live from call to call
};

}  // namespace plimsoll::program
