/// Megatron-core's MoELayer with its local layer spec: top-k router, all-to-all dispatcher, SequentialMLP.
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
  bool host;    ///< made on the host, moved later
  bool expert;  ///< of one expert-parallel rank
};

/// Throws Error (refused): what of a mixture of experts is not modelled.
void check_experts(const MoeSpec& spec, const Strategy& strategy);

/// The parameters of a layer on one rank, in registration order.
std::vector<ExpertParameter> expert_parameters(const MoeSpec& spec, std::int64_t hidden, std::int64_t expert_parallel,
                                               std::int64_t expert_tensor_parallel);

/// MoELayer.forward.
class MegatronExperts {
 public:
  MegatronExperts(MegatronRuntime& runtime, Module& module, const MoeSpec& spec, std::int64_t expert_parallel)
      : runtime_(runtime), module_(module), spec_(spec), expert_parallel_(expert_parallel) {}
  Tensor operator()(const Tensor& hidden) const;

 private:
  MegatronRuntime& runtime_;
  Module& module_;
  const MoeSpec& spec_;
  std::int64_t expert_parallel_;
};

}  // namespace plimsoll::program
