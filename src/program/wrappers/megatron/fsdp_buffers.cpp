// ParamAndGradBuffer: what Megatron-FSDP keeps of parameters, gradients and main weights from step to step.
#include <algorithm>
#include <map>

#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/wrappers/megatron/fsdp.hpp"

namespace plimsoll::program {

namespace {

/// Elements [begin, end) of a flat tensor; no view to autograd.
Tensor piece(const Tensor& flat, std::int64_t elements) {
  Tensor part = flat.detach();
  part.impl()->sizes = Dims{elements};
  part.impl()->strides = contiguous_strides(part.sizes());
  return part;
}

}  // namespace

void MegatronFsdp::make_groups(const MegatronFsdpModules& modules) {
  std::unordered_map<const Parameter*, std::int64_t> units;
  std::int64_t in_units = 0;
  for (std::size_t i = 0; shards_weights() && i < modules.layers.size(); ++i) {
    for (const auto& parameter : modules.layers[i]->all_parameters()) {
      units[parameter.get()] = static_cast<std::int64_t>(i);
      in_units += parameter->sizes.product();
    }
  }
  std::unordered_set<const Parameter*> experts;
  for (const Module* module : modules.root->all_modules()) {
    if ((module->path + ".").find(".experts.") == std::string::npos) continue;
    for (const auto& parameter : module->parameters) experts.insert(parameter.get());
  }
  std::vector<MegatronFsdpParameter> all;
  for (const auto& parameter : parameters_) {
    const auto unit = units.find(parameter.get());
    all.push_back({.parameter = parameter, .unit = {}, .expert = experts.count(parameter.get()) > 0});
    if (unit != units.end()) all.back().unit = unit->second;
  }
  const MegatronFsdpLayoutOptions layout_options{
      .shards = shards_states(), .bucket_size = options_.bucket_size, .ranks = options_.ranks, .expert_ranks = options_.expert_ranks};
  for (MegatronFsdpLayout& layout : megatron_fsdp_layout(all, layout_options)) {
    Group& group = groups_.emplace_back();
    group.layout = std::move(layout);
    group.shares_weights = shards_weights() && group.layout.ranks > 1;
    group.shares_gradients = shards_gradients() && group.layout.ranks > 1;
    group.gathered_event = tape_.new_event();
    group.reduced_event = tape_.new_event();
  }
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const MegatronFsdpLayout& own = groups_[i].layout;
    for (std::size_t item = 0; item < own.items.size(); ++item) places_[own.items[item].parameter.get()] = {i, item};
    for (std::size_t j = 0; j < groups_.size(); ++j) {
      const MegatronFsdpLayout& other = groups_[j].layout;
      if (i == j || (own.unit && own.unit == other.unit && own.expert == other.expert)) groups_[i].together.push_back(j);
    }
  }
  // The unit that runs and the next one, but never fewer than a billion elements.
  constexpr std::int64_t kLeast = 1'000'000'000;
  const std::int64_t count = std::max<std::int64_t>(static_cast<std::int64_t>(modules.layers.size()), 1);
  const std::int64_t two_units = shards_weights() ? in_units / count * 2 : options_.bucket_size;
  under_way_ = options_.communication_unit > 0 ? options_.communication_unit : std::max(kLeast, two_units);
}

/// FixedPoolAllocator's choice: the most layers whose groups are alike.
void MegatronFsdp::choose_pooled() {
  using Kind = std::vector<std::pair<DType, std::int64_t>>;
  std::map<std::int64_t, Kind> kinds;  // by unit
  for (const Group& group : groups_) {
    std::int64_t elements = 0;
    for (const auto& item : group.layout.items) elements += item.end - item.begin;
    if (group.layout.unit) kinds[*group.layout.unit].emplace_back(group.layout.type, elements);
  }
  const auto alike = [&](const Kind& kind) {
    return std::count_if(kinds.begin(), kinds.end(), [&](const auto& unit) { return unit.second == kind; });
  };
  const auto most = std::max_element(kinds.begin(), kinds.end(),
                                     [&](const auto& a, const auto& b) { return alike(a.second) < alike(b.second); });
  std::map<std::int64_t, std::size_t> places;
  for (Group& group : groups_) {
    if (group.layout.unit && kinds[*group.layout.unit] == most->second) group.pooled = places[*group.layout.unit]++;
  }
}

void MegatronFsdp::make_buffers() {
  for (std::size_t index = 0; index < groups_.size(); ++index) {
    Group& group = groups_[index];
    const MegatronFsdpLayout& layout = group.layout;
    if (shards_states()) {
      group.weights = tape_.empty({group.shares_weights ? layout.share() : layout.elements}, layout.type, Category::parameter);
      if (group.shares_weights) fetch_bucket(index);
      if (!group.shares_weights) group.gathered = group.weights;
    }
    const bool shares_mains = shards_states() && layout.ranks > 1;
    group.main_weights = tape_.empty({shares_mains ? layout.share() : layout.elements}, DType::fp32, Category::optimizer_state);
    if (shards_states()) set_weights(group);
    if (group.shares_weights) free_bucket(index);
  }
}

/// param.data becomes a piece of the bucket: the TensorImpl that everybody holds changes its storage.
void MegatronFsdp::set_weights(Group& group) {
  for (const auto& item : group.layout.items) item.parameter->tensor.impl()->storage = group.gathered.impl()->storage;
}

/// buffer_all_in_one: one tensor for the gradients of all groups.
void MegatronFsdp::make_gradients() {
  std::int64_t elements = 0;
  const auto own = [](const Group& group) { return group.shares_gradients ? group.layout.share() : group.layout.elements; };
  for (const Group& group : groups_) elements += own(group);
  all_gradients_ = tape_.empty({elements}, options_.grad_dtype, Category::gradient);
  for (Group& group : groups_) {
    group.gradients = piece(all_gradients_, own(group));
    if (!group.shares_gradients) group.whole_gradients = group.gradients;
  }
}

void MegatronFsdp::make_mains() {
  for (Group& group : groups_) {
    for (const auto& item : group.layout.items) {
      const std::int64_t elements =
          shards_states() ? group.layout.part(item, options_.rank).elements() : item.parameter->sizes.product();
      MegatronMain& main = group.mains.emplace_back();
      if (elements == 0) continue;
      main = {piece(group.main_weights, elements), piece(group.gradients, elements), item.parameter->sizes.rank() > 1};
    }
  }
}

/// update_main_grads: gradients in 16 bits are widened here, and live until the next step begins.
void MegatronFsdp::attach_gradients() {
  for (Group& group : groups_) {
    for (MegatronMain& main : group.mains) {
      if (main.parameter) main.parameter.grad() = to(main.source, DType::fp32);
    }
  }
}

}  // namespace plimsoll::program
