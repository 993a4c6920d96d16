#include "program/modules/megatron_moe.hpp"

#include "plimsoll/error.hpp"

namespace plimsoll::program {

void check_experts(const MoeSpec&, const Strategy&) { refuse("mixtures of experts are not modelled for Megatron-core's local layers"); }

std::vector<ExpertParameter> expert_parameters(const MoeSpec&, std::int64_t, std::int64_t, std::int64_t) { return {}; }

Tensor MegatronExperts::operator()(const Tensor& hidden) const { return hidden; }

}  // namespace plimsoll::program
