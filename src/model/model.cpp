#include "plimsoll/model.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "model/operators/operators.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

/// Sums that no sane model reaches are refused here, so that bytes of states and gradients stay within 63 bits.
constexpr std::int64_t kMostParameters = std::int64_t{1} << 56;

std::int64_t checked_sum(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum) || sum > kMostParameters) fail("the model has more than 2^56 parameters");
  return sum;
}

/// Parameters of one repeat that a token passes through: of the routed experts only the chosen share.
std::int64_t active(const Operator& op) {
  std::int64_t total = 0;
  for (const auto& tensor : op.parameters) {
    if (!tensor.tied_to.empty()) continue;
    const std::int64_t elements = tensor.elements();
    total = checked_sum(total, tensor.expert && op.experts > 0 ? elements / op.experts * op.top_k : elements);
  }
  return total;
}

template <class Count>
std::int64_t total_over(const std::vector<Block>& blocks, Count count) {
  std::int64_t total = 0;
  for (const auto& block : blocks) total = checked_sum(total, model::product({count(block), block.repeat}));
  return total;
}

template <class Item>
std::vector<const Item*> in_order(const std::vector<Item>& items, const std::vector<int>& order) {
  std::vector<const Item*> listed;
  if (order.empty())
    for (const auto& item : items) listed.push_back(&item);
  else
    for (const int index : order) listed.push_back(&items[static_cast<std::size_t>(index)]);
  return listed;
}

}  // namespace

std::int64_t ParameterTensor::elements() const { return model::product(shape); }

std::string_view name_of(OperatorKind kind) {
  switch (kind) {
    case OperatorKind::embedding:
      return "embedding";
    case OperatorKind::position_embedding:
      return "position_embedding";
    case OperatorKind::linear:
      return "linear";
    case OperatorKind::layer_norm:
      return "layer_norm";
    case OperatorKind::rms_norm:
      return "rms_norm";
    case OperatorKind::rope:
      return "rope";
    case OperatorKind::attention:
      return "attention";
    case OperatorKind::activation:
      return "activation";
    case OperatorKind::multiply:
      return "multiply";
    case OperatorKind::add:
      return "add";
    case OperatorKind::scale:
      return "scale";
    case OperatorKind::dropout:
      return "dropout";
    case OperatorKind::router:
      return "router";
    case OperatorKind::experts:
      return "experts";
    case OperatorKind::convolution:
      return "convolution";
    case OperatorKind::batch_norm:
      return "batch_norm";
    case OperatorKind::pool:
      return "pool";
    case OperatorKind::patch_embedding:
      return "patch_embedding";
    case OperatorKind::reshape:
      return "reshape";
    case OperatorKind::softmax:
      return "softmax";
    case OperatorKind::cross_entropy:
      return "cross_entropy";
    case OperatorKind::modulation:
      return "modulation";
  }
  return "";
}

std::int64_t Block::parameters() const {
  std::int64_t total = 0;
  for (const auto& op : operators)
    for (const auto& tensor : op.parameters)
      if (tensor.tied_to.empty()) total = checked_sum(total, tensor.elements());
  return total;
}

std::vector<const ParameterTensor*> Block::parameter_list() const {
  std::vector<const ParameterTensor*> list;
  for (const Operator* op : in_order(operators, registration))
    for (const auto& tensor : op->parameters) list.push_back(&tensor);
  return list;
}

std::int64_t Model::parameters() const {
  return total_over(blocks, [](const Block& block) { return block.parameters(); });
}

bool Model::has_experts() const {
  return std::any_of(blocks.begin(), blocks.end(), [](const Block& block) { return block.moe.has_value(); });
}

std::int64_t Model::active_parameters() const {
  return total_over(blocks, [](const Block& block) {
    std::int64_t total = 0;
    for (const auto& op : block.operators) total = checked_sum(total, active(op));
    return total;
  });
}

std::vector<const Block*> Model::registered_blocks() const { return in_order(blocks, registration); }

std::string full_name(const Block& block, std::int64_t index, const ParameterTensor& parameter) {
  if (block.numbered) return fmt::format("{}.{}.{}", block.name, block.first + index, parameter.name);
  return block.name.empty() ? parameter.name : block.name + "." + parameter.name;
}

}  // namespace plimsoll
