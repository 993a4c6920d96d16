#include "search/layer_stack.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace plimsoll::searching {
namespace {

/// What a layer is made of: operators with their sizes and windows, and their parameters.
std::string kind_of(const Block& block) {
  std::string kind = block.name;
  for (const Operator& op : block.operators) {
    kind += fmt::format(" {} {} {} {} {} {} {}", op.name, op.in_features, op.out_features, op.heads, op.experts, op.window.value_or(0),
                        op.flops_per_token);
    for (const ParameterTensor& parameter : op.parameters) kind += fmt::format(" {}", parameter.elements());
  }
  return kind;
}

/// The kind of every layer, as the number of the first layer of that kind.
std::vector<std::size_t> kinds_of(const Model& model, std::size_t first, std::size_t last) {
  std::vector<std::string> seen;
  std::vector<std::size_t> kinds;
  for (std::size_t block = first; block < last; ++block) {
    std::string kind = kind_of(model.blocks[block]);
    const auto found = std::find(seen.begin(), seen.end(), kind);
    kinds.insert(kinds.end(), static_cast<std::size_t>(model.blocks[block].repeat), static_cast<std::size_t>(found - seen.begin()));
    if (found == seen.end()) seen.push_back(std::move(kind));
  }
  return kinds;
}

bool repeats(const std::vector<std::size_t>& kinds, std::size_t prefix, std::size_t period) {
  return std::equal(kinds.begin() + static_cast<std::ptrdiff_t>(prefix + period), kinds.end(),
                    kinds.begin() + static_cast<std::ptrdiff_t>(prefix));
}

/// The block of layer `index` of a model whose stack goes on for ever.
const Block& block_of(const Model& model, const LayerStack& stack, std::int64_t index) {
  std::int64_t left = index < stack.prefix ? index : stack.prefix + (index - stack.prefix) % stack.period;
  std::size_t block = stack.first;
  while (left >= model.blocks[block].repeat) left -= model.blocks[block++].repeat;
  return model.blocks[block];
}

}  // namespace

std::optional<LayerStack> layer_stack(const Model& model) {
  const auto first = std::find_if(model.blocks.begin(), model.blocks.end(), is_layer);
  const auto last = std::find_if_not(first, model.blocks.end(), is_layer);
  const auto in_stack = [&](const Block& block) {
    return block.numbered && block.name == first->name && (!block.input || &block == &*first);
  };
  if (first == last || !std::all_of(first, last, in_stack) || std::any_of(last, model.blocks.end(), is_layer)) return {};
  LayerStack stack{static_cast<std::size_t>(first - model.blocks.begin()), static_cast<std::size_t>(last - model.blocks.begin()), 0, 1};
  const std::vector<std::size_t> kinds = kinds_of(model, stack.first, stack.last);
  if (static_cast<std::int64_t>(kinds.size()) != model.layers) return {};
  for (std::size_t length = 1; 2 * length <= kinds.size(); ++length)  // the shortest beginning that tells the rest
    for (std::size_t period = 1; period <= length; ++period) {
      if (length - period + 2 * period > kinds.size() || !repeats(kinds, length - period, period)) continue;
      stack.prefix = static_cast<std::int64_t>(length - period);
      stack.period = static_cast<std::int64_t>(period);
      return stack;
    }
  return kinds.size() == 1 ? std::optional(stack) : std::nullopt;
}

Model with_layers(const Model& model, const LayerStack& stack, std::int64_t layers) {
  Model other = model;
  other.layers = layers;
  other.blocks.erase(other.blocks.begin() + static_cast<std::ptrdiff_t>(stack.first), other.blocks.end());
  for (std::int64_t index = 0; index < layers; ++index) {
    const Block& block = block_of(model, stack, index);
    if (other.blocks.size() > stack.first && kind_of(other.blocks.back()) == kind_of(block)) {
      ++other.blocks.back().repeat;
      continue;
    }
    other.blocks.push_back(block);
    other.blocks.back().first = model.blocks[stack.first].first + index;
    other.blocks.back().repeat = 1;
    if (index > 0) other.blocks.back().input.reset();  // it reads the layer before it
  }
  const int shift = static_cast<int>(other.blocks.size()) - static_cast<int>(stack.last);
  const int stack_first = static_cast<int>(stack.first), stack_last = static_cast<int>(stack.last);
  const auto moved = [&](int block) { return block >= stack_last - 1 ? block + shift : block; };  // the last layer is what the head reads
  other.blocks.insert(other.blocks.end(), model.blocks.begin() + stack_last, model.blocks.end());
  for (std::size_t i = static_cast<std::size_t>(stack_last + shift); i < other.blocks.size(); ++i) {
    if (other.blocks[i].input) *other.blocks[i].input = moved(*other.blocks[i].input);
    for (int& side : other.blocks[i].side_inputs) side = moved(side);
  }
  other.registration.clear();
  for (const int block : model.registration) {
    if (block == stack_first)
      for (int layer = stack_first; layer < stack_last + shift; ++layer) other.registration.push_back(layer);
    if (block < stack_first || block >= stack_last) other.registration.push_back(moved(block));
  }
  return other;
}

}  // namespace plimsoll::searching
