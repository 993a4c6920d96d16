#include "program/inductor/fx.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace plimsoll::program::inductor {

const AtenRule& rule_of(Aten op) {
  using L = Lowering;
  static constexpr auto kRules = std::to_array<AtenRule>({
      {"primals", L::input, false},
      {"convert_element_type", L::pointwise, true},
      {"pow", L::pointwise, true},
      {"add", L::pointwise, true, 1},
      {"add", L::pointwise, true, 1, 1},
      {"sub", L::pointwise, true, 1},
      {"sub", L::pointwise, true, 1, 1},
      {"mul", L::pointwise, true, 1},
      {"mul", L::pointwise, true, 1, 1},
      {"div", L::pointwise, true, 1},
      {"div", L::pointwise, true, 1, 1},
      {"neg", L::pointwise, true, 1},
      {"exp", L::pointwise, true, 1},
      {"sigmoid", L::pointwise, true, 1},
      {"rsqrt", L::pointwise, true, 1},
      {"tanh", L::pointwise, true, 1},
      {"erf", L::pointwise, true, 1},
      {"relu", L::pointwise, true, 1},
      {"cos", L::pointwise, true, 1},
      {"sin", L::pointwise, true, 1},
      {"log", L::pointwise, true, 1},
      {"le", L::pointwise, true, 1, 1},
      {"gt", L::pointwise, true, 1, 1},
      {"ge", L::pointwise, true, 1, 1},
      {"lt", L::pointwise, true, 1, 1},
      {"ne", L::pointwise, true, 1, 1},
      {"eq", L::pointwise, true, 1},
      {"le", L::pointwise, true, 1},
      {"bitwise_and", L::pointwise, true, 1},
      {"where", L::pointwise, true, 1, 1},
      {"where", L::pointwise, true, 1, 2},
      {"clone", L::pointwise, true, 0},
      {"index", L::pointwise, true, 0},
      {"iota", L::pointwise, true, 1},
      {"full", L::pointwise, true, 0, 1},
      {"constant_pad_nd", L::pointwise, false, 3, 2},
      {"slice_scatter", L::pointwise, false, 4},
      {"select_scatter", L::pointwise, false, 2},
      {"inductor_seeds", L::pointwise, false},
      {"inductor_lookup_seed", L::pointwise, false, 1},
      {"inductor_random", L::pointwise, false, 2},
      {"sum", L::reduction, true, 1},
      {"mean", L::reduction, true, 1, 1},
      {"amax", L::reduction, true, 1},
      {"cumsum", L::scan, false, 1},
      {"var_mean", L::several, true, 1, 1},
      {"view", L::view, true},
      {"squeeze", L::view, true},
      {"unsqueeze", L::view, true},
      {"permute", L::view, true},
      {"slice", L::view, true},
      {"select", L::view, true},
      {"expand", L::view, true},
      {"cat", L::cat, false, 0},
      {"split_with_sizes", L::several, false},
      {"_scaled_dot_product_flash_attention", L::several, false},
      {"_scaled_dot_product_flash_attention_backward", L::several, false},
      {"flex_attention", L::several, false},
      {"flex_attention_backward", L::several, false},
      {"getitem", L::view, true},
      {"mm", L::product, false},
      {"addmm", L::product, false},
      {"embedding", L::rows, false, 2},
      {"gather", L::element, true, 2},
      {"_unsafe_masked_index_put_accumulate", L::scatter, false},
      {"index", L::call, true},
      {"gather", L::call, true},
      {"view_as_complex", L::call, false},
      {"view_as_real", L::call, false},
      {"mul", L::call, true},
      {"_conj", L::call, false},
      {"clone", L::call, true},
      {"all_gather_into_tensor", L::call, false},
      {"reduce_scatter_tensor", L::call, false},
      {"wait_tensor", L::call, false},
  });
  return kRules[static_cast<std::size_t>(op)];
}

std::vector<std::vector<int>> FxGraph::users() const {
  std::vector<std::vector<int>> readers(nodes.size());
  for (int node = 0; node < size(); ++node) {
    for (const int arg : at(node).args) {
      std::vector<int>& known = readers[static_cast<std::size_t>(arg)];
      if (known.empty() || known.back() != node) known.push_back(node);
    }
  }
  return readers;
}

bool FxNode::sums(std::size_t at) const {
  const std::vector<std::int64_t> all = listed(dims);
  return std::find(all.begin(), all.end(), static_cast<std::int64_t>(at)) != all.end();
}

std::vector<std::int64_t> listed(const Dims& dims) {
  std::vector<std::int64_t> all;
  for (int i = 0; i < dims.rank(); ++i) all.push_back(dims[i]);
  return all;
}

void FxCopy::append(int node, FxNode copy) {
  for (int& arg : copy.args) arg = numbers_[static_cast<std::size_t>(arg)];
  numbers_[static_cast<std::size_t>(node)] = copy_.size();
  copy_.nodes.push_back(std::move(copy));
}

FxGraph FxCopy::with_outputs(const std::vector<int>& outputs) && {
  for (const int output : outputs) copy_.outputs.push_back(output < 0 ? -1 : numbers_[static_cast<std::size_t>(output)]);
  return std::move(copy_);
}

FxGraph without_dead_code(const FxGraph& graph, std::vector<int>& kept) {
  std::vector<bool> alive(graph.nodes.size());
  for (const int output : graph.outputs)
    if (output >= 0) alive[static_cast<std::size_t>(output)] = true;
  for (int node = graph.size() - 1; node >= 0; --node) {
    if (graph.at(node).op == Aten::placeholder) alive[static_cast<std::size_t>(node)] = true;
    if (!alive[static_cast<std::size_t>(node)]) continue;
    for (const int arg : graph.at(node).args) alive[static_cast<std::size_t>(arg)] = true;
  }
  FxCopy rest(graph);
  for (int node = 0; node < graph.size(); ++node)
    if (alive[static_cast<std::size_t>(node)]) rest.append(node);
  kept = rest.numbers();
  return std::move(rest).with_outputs(graph.outputs);
}

}  // namespace plimsoll::program::inductor
