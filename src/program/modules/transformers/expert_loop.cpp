#include "program/modules/transformers/expert_loop.hpp"

#include <algorithm>

#include "plimsoll/error.hpp"
#include "program/ops/routing.hpp"

namespace plimsoll::program {
namespace {

/// An expert's linears in the order in which its class registers them: gate, up, down; MixtralBlockSparseTop2MLP has w1, w2, w3.
std::vector<const char*> linears_of(std::string_view model_type) {
  if (model_type == "mixtral") return {"gate_proj", "down_proj", "up_proj"};
  for (const char* relative : {"qwen2_moe", "qwen3_moe", "olmoe"})
    if (model_type == relative) return {"gate_proj", "up_proj", "down_proj"};
  refuse("the experts of model type '" + std::string(model_type) + "' before transformers 5 are not modelled", "releases.transformers", "5.0");
}

/// One expert's share of the stacked weights.
void add_expert(Module& list, std::int64_t expert, const Parameter& gate_up, const Parameter& down, std::string_view model_type) {
  const std::int64_t inner = gate_up.sizes[1] / 2, hidden = gate_up.sizes[2];
  Module& one = list.child(std::to_string(expert), true);
  for (const std::string_view name : linears_of(model_type)) {
    Parameter weight = name == "down_proj" ? down : gate_up;
    weight.name = "weight";
    weight.sizes = name == "down_proj" ? Dims{hidden, inner} : Dims{inner, hidden};
    one.child(name, true).parameters.push_back(std::make_shared<Parameter>(std::move(weight)));
  }
}

void separate(Module& block, std::string_view model_type) {
  Module& list = block.child("experts");
  const Parameter gate_up = *list.find_parameter("gate_up_proj"), down = *list.find_parameter("down_proj");
  list.parameters.clear();
  for (std::int64_t expert = 0; expert < gate_up.sizes[0]; ++expert) add_expert(list, expert, gate_up, down, model_type);
  const auto router = std::find_if(block.children.begin(), block.children.end(), [](const auto& child) { return child->name() == "gate"; });
  if (router != block.children.end()) std::rotate(block.children.begin(), router, router + 1);
}

}  // namespace

void separate_experts(Module& root, const Model& model, const HfRelease& release, Tape& tape) {
  if (!model.has_experts() || release.stacks_experts()) return;
  (void)linears_of(model.model_type);
  for (Module* module : root.all_modules()) {
    Module* list = module->find_child("experts");
    if (list && list->find_parameter("gate_up_proj")) separate(*module, model.model_type);
  }
  for (Module* module : root.all_modules()) module->label = tape.intern(module->path);
}

ExpertLoop::ExpertLoop(Module& experts, Tape& tape, const MoeSpec& spec, bool asks)
    : tape_(tape), experts_(spec.experts), top_k_(spec.top_k), asks_(asks) {
  for (std::int64_t expert = 0; expert < experts_; ++expert)
    mlps_.emplace_back(experts.child(std::to_string(expert)), tape, spec.activation);
}

Tensor ExpertLoop::operator()(const Tensor& hidden, const Tensor& experts, const Tensor& weights) const {
  const std::int64_t tokens = hidden.size(0), pairs = tokens * top_k_;
  Tensor mixed = zeros(tape_, hidden.sizes(), hidden.dtype());
  const Tensor mask = permute(one_hot(experts, experts_), {2, 1, 0});
  Tensor hit;
  if (asks_) {  // torch.greater(expert_mask.sum(dim=(-1, -2)), 0).nonzero()
    const Tensor counts = sum(mask, {-1, -2}, false);
    const Tensor worked = elementwise(tape_, {&counts}, DType::boolean);
    hit = nonzero(worked, experts_);
  }
  Tensor places, rows, outputs;
  for (std::int64_t expert = 0; expert < experts_; ++expert) {
    const std::int64_t share = pairs / experts_ + (expert < pairs % experts_ ? 1 : 0);
    if (share == 0) continue;
    Tensor of_expert;
    if (asks_) {
      tape_.read_back();  // self.experts[expert_idx] asks for the number
      of_expert = squeeze(index_one(mask, 0), 0);
    } else {
      of_expert = select(mask, 0);
    }
    places = nonzero(of_expert, share);  // torch.where: idx and top_x are its columns
    const Tensor chosen_by = select(places, 0), place = select(places, 0);
    rows = index_rows(hidden, chosen_by);
    Tensor output = mlps_[static_cast<std::size_t>(expert)](rows);
    {
      const Tensor chosen = index_pairs(weights, chosen_by, place);
      output = multiply(output, unsqueeze(chosen, -1));
    }
    outputs = output;
    mixed = index_add_into(mixed, chosen_by, outputs);
  }
  return mixed;
}

}  // namespace plimsoll::program
