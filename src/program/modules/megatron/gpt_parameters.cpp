// The parameters of a model chunk: when each is made, and which other ranks hold parts or copies of them.
#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "program/modules/megatron/gpt.hpp"

namespace plimsoll::program {

void MegatronChunk::construct() {
  Tape& tape = runtime_.tape();
  for (const auto& parameter : parameters_) {
    if (std::find(born_on_host_.begin(), born_on_host_.end(), parameter.get()) == born_on_host_.end())
      parameter->tensor = tape.parameter(parameter->sizes, parameter->type, parameter->trainable);
    if (parameter->type == DType::fp8) {
      parameter->tensor.impl()->grad_dtype = config_.type;
      runtime_.make_scales(parameter->tensor);
    }
    if (parameter == parameters_.front() && plan_.embedding && config_.rotary > 0)
      frequencies_ = tape.empty({config_.rotary / 2}, DType::fp32, Category::parameter);
  }
  if (!plan_.embedding && config_.rotary > 0) frequencies_ = tape.empty({config_.rotary / 2}, DType::fp32, Category::parameter);
}

void MegatronChunk::move_to_device() {
  Tape& tape = runtime_.tape();
  for (Parameter* parameter : born_on_host_) {
    // torch.nn makes norms and tables in fp32; a router has its type from the start.
    if (config_.type == DType::fp32 || in_final_type_.count(parameter) > 0) {
      parameter->tensor = tape.parameter(parameter->sizes, parameter->type, parameter->trainable);
    } else {
      in_fp32_.push_back(tape.empty(parameter->sizes, DType::fp32, Category::parameter));
    }
  }
}

void MegatronChunk::convert() {
  auto old = in_fp32_.begin();
  for (Parameter* parameter : born_on_host_) {
    if (parameter->tensor) continue;
    parameter->tensor = runtime_.tape().parameter(parameter->sizes, parameter->type, parameter->trainable);
    (old++)->reset();
  }
  in_fp32_.clear();
}

const Parameter* MegatronChunk::shared_embedding() const {
  const bool predicts = config_.prediction.depth > 0;
  if ((!config_.tied && !predicts) || config_.pipeline == 1 || plan_.embedding == plan_.head) return nullptr;
  return plan_.embedding || predicts ? parameters_.front().get() : parameters_.back().get();
}

bool MegatronChunk::sequence_partial(const Module& module, const Parameter& parameter) const {
  if (parameter.expert || !parameter.trainable) return false;
  const std::string_view path = module.path;
  const auto ends = [&](std::string_view end) { return path.ends_with(end); };
  // Norms of heads see this rank's heads alone, whether or not the sequence is cut.
  if (ends("q_layernorm") || ends("k_layernorm")) return true;
  if (!runtime_.sequence_parallel()) return false;
  if (ends("layernorm") || ends("enorm") || ends("hnorm") || ends("router") || ends("down_proj") || ends("latent_proj") ||
      parameter.name.rfind("layer_norm", 0) == 0)
    return true;
  return parameter.name == "bias" && (ends("linear_proj") || ends("linear_fc2"));
}

std::vector<const Parameter*> MegatronChunk::sequence_partials() const {
  if (runtime_.tp() == 1) return {};
  std::unordered_map<const Parameter*, const Module*> owners;
  for (const Module* module : root_->all_modules())
    for (const auto& parameter : module->parameters) owners.emplace(parameter.get(), module);
  std::vector<const Parameter*> partial;
  for (const auto& parameter : parameters_)
    if (const auto owner = owners.find(parameter.get()); owner != owners.end() && sequence_partial(*owner->second, *parameter))
      partial.push_back(parameter.get());
  return partial;
}

}  // namespace plimsoll::program
