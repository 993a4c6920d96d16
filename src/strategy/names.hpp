// The written names of every choice: the first name of a value is the one that is printed, the others are read too.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "plimsoll/strategy.hpp"

namespace plimsoll::strategy {

template <class Enum>
struct Named {
  const char* name;
  Enum value;
};

/// Names of one kind of choice.
template <class Enum>
using Names = std::vector<Named<Enum>>;

const Names<DataParallel>& data_parallel_names();
const Names<Precision>& precision_names();
const Names<LowPrecision>& low_precision_names();
const Names<Fp8Scaling>& fp8_scaling_names();
const Names<OptimizerKind>& optimizer_names();
const Names<OptimizerImpl>& optimizer_impl_names();
const Names<AttentionKernel>& attention_names();
const Names<LossKernel>& loss_names();
const Names<Recompute::Kind>& recompute_names();
const Names<Offload::By>& offload_by_names();
const Names<Strategy::Task>& task_names();
const Names<BaseWeights>& base_weights_names();
const Names<PostTraining::Kind>& post_training_names();
const Names<PostTraining::Program>& trainer_program_names();
const Names<PostTraining::Reference>& reference_names();
const Names<PostTraining::Divergence>& divergence_names();
const Names<PostTraining::Rollout>& rollout_names();
const Names<NeighbourPlaces::Place>& neighbour_place_names();
const Names<HostLoading>& host_loading_names();
const Names<PeftMethod>& peft_method_names();
const Names<MegatronOptions::Sharding>& megatron_sharding_names();
const Names<DType>& dtype_names();

/// The first name of a value.
template <class Enum>
std::string_view name_in(const Names<Enum>& names, Enum value) {
  for (const auto& entry : names)
    if (entry.value == value) return entry.name;
  return "automatic";
}

/// "a, b, c": every value once, for a message.
template <class Enum>
std::string list_of(const Names<Enum>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    bool first_name = name_in(names, names[i].value) == names[i].name;
    if (first_name) text += (text.empty() ? "" : ", ") + std::string(names[i].name);
  }
  return text;
}

}  // namespace plimsoll::strategy
