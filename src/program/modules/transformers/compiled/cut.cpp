#include "program/modules/transformers/compiled/cut.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "program/inductor/frame.hpp"
#include "program/op.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

using inductor::Graph;
using inductor::GraphParts;
using inductor::Value;

std::vector<int> parts_of(const std::vector<ParameterUse>& uses, const BucketLimits& limits) {
  const std::set<std::size_t> cuts = inductor::bucket_cuts(uses, limits);
  std::vector<int> parts;
  int part = 0;
  for (std::size_t i = 0; i < uses.size(); ++i) parts.push_back(part += cuts.contains(i) ? 1 : 0);
  return parts;
}

// ---- building ---------------------------------------------------------------------------------------------------------

Value CutGraphs::saved(Value made) {
  if (!made.defined()) return {};
  const auto [entry, added] = saved_.emplace(made.index, Value{});
  if (added) {
    entry->second = backward_.awaited(forward_.sizes(made), forward_.type(made));
    made_[entry->second.index] = made.index;
  }
  return entry->second;
}

Value CutGraphs::gradient_of(Value made) {
  const auto [entry, added] = gradients_.emplace(made.index, Value{});
  if (added) entry->second = backward_.awaited(forward_.sizes(made), forward_.type(made));
  return entry->second;
}

Value CutGraphs::hand_back(Value made, Value gradient, bool other_strides) {
  if (!made.defined() || !gradient.defined()) return gradient;
  const int maker = forward_.part_of(made);
  if (maker == backward_.part()) return gradient;
  handed_back_[{backward_.part(), made.index}].push_back(gradient);
  if (maker < 0) return {};
  other_strides_[made.index] = other_strides;
  return gradient_of(made);
}

Value CutGraphs::no_gradient(const Dims& sizes, DType type) {
  zeros_.push_back({backward_.part(), backward_.awaited(sizes, type)});
  return zeros_.back().value;
}

/// A part's gradient of a value, in the value's type, is added up of what the part's operations give to it.
void CutGraphs::add_up_gradients() {
  for (auto& [key, gradients] : handed_back_) {
    const Value made{key.second};
    if (gradients.size() == 1 && backward_.type(gradients.front()) == forward_.type(made)) continue;
    backward_.enter(key.first);
    gradients = {backward_.pointwise(forward_.sizes(made), forward_.type(made), gradients, gradients)};
  }
}

// ---- running ----------------------------------------------------------------------------------------------------------

struct CutGraphs::Backward {
  GraphParts parts;
  std::vector<Zeros> zeros;

  /// Of a part's node, in the order of its outputs, saved tensors and inputs.
  struct Node {
    struct Arriving {
      Value gradient;
      bool other_strides;
    };
    struct Leaving {
      Value gradient;
      Dims sizes;
    };
    std::vector<Arriving> arriving;
    std::vector<Value> saved;
    std::size_t unread = 0;  ///< saved behind these
    std::vector<Leaving> leaving;
  };
  std::vector<Node> nodes;

  void run(int part, BackwardCall& call);
};

/// A gradient as its value's strides have it.
static Tensor restrided(const Tensor& gradient) {
  Tensor copy = gradient.tape().empty(gradient.sizes(), gradient.dtype());
  in_place(copy, {&gradient});
  return copy;
}

/// reinterpret_tensor: no view of autograd's.
static Tensor in_sizes(Tensor gradient, const Dims& sizes) {
  if (gradient.sizes() == sizes) return gradient;
  Tensor same = gradient.tape().view(gradient, sizes, contiguous_strides(sizes));
  same.impl()->base = {};
  return same;
}

void CutGraphs::Backward::run(int part, BackwardCall& call) {
  Node& node = nodes[static_cast<std::size_t>(part)];
  for (std::size_t i = 0; i < node.arriving.size(); ++i) {
    Tensor gradient = call.take_grad(i);
    parts.give(part, node.arriving[i].gradient, node.arriving[i].other_strides ? restrided(gradient) : std::move(gradient));
  }
  for (const Zeros& each : zeros) {
    if (each.part == part)
      parts.give(part, each.value, program::zeros(call.tape, parts.whole().sizes(each.value), parts.whole().type(each.value)));
  }
  for (std::size_t i = 0; i < node.saved.size(); ++i) parts.give(part, node.saved[i], call.take_saved(i));
  for (std::size_t i = 0; i < node.unread; ++i) call.take_saved(node.saved.size() + i);
  parts.run(part);
  for (std::size_t i = 0; i < node.leaving.size(); ++i)
    call.give(i, in_sizes(parts.take(part, node.leaving[i].gradient), node.leaving[i].sizes));
}

template <class GraphOp>
void CutGraphs::run_part(int part, GraphParts& forward, const std::shared_ptr<Backward>& backward, std::map<int, Tensor>& alive) {
  Backward::Node& node = backward->nodes[static_cast<std::size_t>(part)];
  const Graph& whole = forward.whole();
  const auto tensor_of = [&](Value value) { return whole.part_of(value) < 0 ? whole.tensor(value) : alive.at(value.index); };

  std::vector<Tensor> differentiated;
  for (const Value input : forward.inputs(part)) {
    const auto gradient = handed_back_.find({part, input.index});
    if (gradient == handed_back_.end()) continue;
    differentiated.push_back(tensor_of(input));
    node.leaving.push_back({gradient->second.front(), differentiated.back().sizes()});
    backward->parts.result(part, gradient->second.front());
  }
  List<const Tensor*> inputs;
  for (const Tensor& tensor : differentiated) inputs.push_back(&tensor);
  GraphOp op("compiled_part", inputs);
  for (const Value input : forward.inputs(part))
    if (whole.part_of(input) >= 0) forward.give(part, input, alive.at(input.index));

  const std::vector<Value> handed_on = forward.outputs(part);
  std::vector<Value> kept;
  for (const Value input : backward->parts.inputs(part)) {
    const auto made = made_.find(input.index);
    if (made == made_.end()) continue;
    node.saved.push_back(input);
    kept.push_back({made->second});
    if (whole.part_of(kept.back()) == part) forward.result(part, kept.back());
  }
  for (const Value value : kept_) {
    if (!value.defined() || whole.part_of(value) != part) continue;
    ++node.unread;
    kept.push_back(value);
    forward.result(part, value);
  }
  forward.run(part);
  std::map<int, Tensor> made;
  for (const Value output : forward.outputs(part)) made[output.index] = forward.take(part, output);
  for (const Value value : kept) op.save_output(made.count(value.index) > 0 ? made[value.index] : tensor_of(value));

  std::vector<Tensor> outputs;
  for (const Value output : handed_on) {
    alive[output.index] = made[output.index];
    const auto gradient = gradients_.find(output.index);
    if (gradient == gradients_.end()) continue;
    outputs.push_back(made[output.index]);
    node.arriving.push_back({gradient->second, other_strides_[output.index]});
  }
  made.clear();
  op.finish_all(outputs, [backward, part](BackwardCall& call) { backward->run(part, call); });
  // The generated function drops a name behind the last part that reads it.
  std::erase_if(alive, [&](const auto& entry) {
    const Value value{entry.first};
    for (int later = part + 1; later < parts_; ++later)
      if (forward.reads(later, value)) return false;
    return !whole.is_result(value);
  });
}

std::vector<Tensor> CutGraphs::run(const std::vector<Value>& results) {
  for (const Value result : results) forward_.result(result);
  add_up_gradients();
  GraphParts forward(tape_, std::move(forward_), parts_, [](int, Value) { return false; });
  // What a part keeps for itself alone its backward may write into.
  const auto is_donated = [&](int part, Value input) {
    const auto made = made_.find(input.index);
    return made != made_.end() && forward.whole().part_of({made->second}) == part && !forward.returns(part, {made->second});
  };
  auto backward = std::make_shared<Backward>(Backward{GraphParts(tape_, std::move(backward_), parts_, is_donated), std::move(zeros_), {}});
  backward->nodes.resize(static_cast<std::size_t>(parts_));
  std::map<int, Tensor> alive;  // what parts made, by the forward graph's values
  // One frame of Dynamo's: its guards are checked once, and the parts are called one after another (DDPOptimizer's submodules, each with
  // AOTAutograd's wrapper).
  run_part<CompiledLayerGraph>(0, forward, backward, alive);
  for (int part = 1; part < parts_; ++part) run_part<CompiledGraph>(part, forward, backward, alive);
  std::vector<Tensor> tensors;
  for (const Value result : results) tensors.push_back(result.defined() ? alive[result.index] : Tensor());
  return tensors;
}

}  // namespace plimsoll::program
