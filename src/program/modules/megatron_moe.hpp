/// Megatron-core's MoELayer with its local layer spec: top-k router, all-to-all dispatcher that drops and pads to capacity, SequentialMLP.
/// Source: megatron/core/transformer/moe of Megatron-core 0.16.1.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"
#include "program/module.hpp"
#include "program/modules/megatron_ops.hpp"

namespace plimsoll::program {

/// One parameter below the layer's "mlp".
struct ExpertParameter {
  std::string path;  ///< of its module
  const char* name;
  Dims sizes;
  bool host;    ///< made on the host in its final type, moved later
  bool expert;  ///< of one expert-parallel rank
};

/// How tokens go to experts, for all layers alike.
struct ExpertOptions {
  std::int64_t expert_parallel = 1, expert_tensor_parallel = 1;
  double capacity_factor = 1;
  bool auxiliary_loss = false;  ///< of load balancing
};

/// Throws Error (refused): what of a mixture of experts is not modelled.
ExpertOptions expert_options(const MoeSpec& spec, const Strategy& strategy);

/// The parameters of a layer on one rank, in registration order.
std::vector<ExpertParameter> expert_parameters(const MoeSpec& spec, std::int64_t hidden, const ExpertOptions& options);

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
  Tensor unpermute(const Tensor& tokens, std::int64_t rows) const;
  Tensor expert(const std::string& index, const Tensor& tokens, const Tensor& probabilities) const;
  Tensor all_to_all(const Tensor& x) const;
  std::int64_t capacity(std::int64_t tokens) const;
  std::int64_t local_experts() const { return spec_.experts / options_.expert_parallel; }

  MegatronRuntime& runtime_;
  Module& module_;
  const MoeSpec& spec_;
  ExpertOptions options_;
  mutable Remembered remembered_;  ///< the dispatcher's attributes, which live from call to call
};

}  // namespace plimsoll::program
