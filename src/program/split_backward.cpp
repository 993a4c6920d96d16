#include "program/split_backward.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

using ReverseEdges = std::unordered_map<Node*, std::vector<Node*>>;
using NodeSet = std::unordered_set<Node*>;

/// construct_reverse_graph.
ReverseEdges reverse_graph(Node* root) {
  ReverseEdges reverse;
  std::vector<Node*> pending{root};
  NodeSet seen{root};
  while (!pending.empty()) {
    Node* node = pending.back();
    pending.pop_back();
    for (const Edge& edge : node->edges) {
      if (!edge.function) continue;
      reverse[edge.function.get()].push_back(node);
      if (seen.insert(edge.function.get()).second) pending.push_back(edge.function.get());
    }
  }
  return reverse;
}

struct Closure {
  NodeSet nodes;
  std::vector<Node*> met;  ///< where it ended, in the order of their discovery
};

/// reverse_closure: what `start` is reached from, up to nodes of `ends`.
Closure closure_above(Node* start, const NodeSet& ends, const ReverseEdges& reverse) {
  Closure closure;
  closure.nodes.insert(start);
  std::vector<Node*> pending{start};
  for (std::size_t next = 0; next < pending.size(); ++next) {
    const auto above = reverse.find(pending[next]);
    if (above == reverse.end()) continue;
    for (Node* node : above->second) {
      if (closure.nodes.count(node) > 0) continue;
      if (ends.count(node) > 0) {
        if (std::find(closure.met.begin(), closure.met.end(), node) == closure.met.end()) closure.met.push_back(node);
        continue;
      }
      closure.nodes.insert(node);
      pending.push_back(node);
    }
  }
  return closure;
}

/// get_param_groups: weights that meet the way to the input at the same operator are one group.
std::vector<WeightGroup> group_weights(Tape& tape, Node* root, const Tensor& input, const std::vector<Tensor>& weights) {
  const ReverseEdges reverse = reverse_graph(root);
  const NodeSet way = closure_above(tape.gradient_edge(input).function.get(), {}, reverse).nodes;
  std::vector<WeightGroup> groups;
  std::unordered_map<Node*, std::size_t> group_of;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Closure closure = closure_above(tape.gradient_edge(weights[i]).function.get(), way, reverse);
    if (closure.met.empty()) continue;
    const auto known = std::find_if(closure.met.begin(), closure.met.end(), [&](Node* node) { return group_of.count(node) > 0; });
    const std::size_t at = known == closure.met.end() ? groups.size() : group_of[*known];
    if (at == groups.size()) groups.emplace_back();
    groups[at].weights.push_back(i);
    for (Node* node : closure.met)
      if (group_of.emplace(node, at).second) groups[at].operators.emplace_back(node);
  }
  return groups;
}

/// While it lives, what arrives at the groups' operators is noted.
class ArrivalHooks {
 public:
  explicit ArrivalHooks(std::vector<WeightGroup>& groups) : groups_(groups) {
    for (WeightGroup& group : groups_) {
      group.gradients.resize(group.operators.size());
      for (std::size_t i = 0; i < group.operators.size(); ++i)
        group.operators[i]->pre_hooks.push_back([&group, i](Gradients& arrived) { group.gradients[i] = arrived; });
    }
  }
  ~ArrivalHooks() {
    for (WeightGroup& group : groups_)
      for (const NodeRef& node : group.operators) node->pre_hooks.pop_back();
  }
  ArrivalHooks(const ArrivalHooks&) = delete;
  ArrivalHooks& operator=(const ArrivalHooks&) = delete;

 private:
  std::vector<WeightGroup>& groups_;
};

}  // namespace

InputBackward backward_to_input(Tape& tape, const Tensor& root, const Tensor& gradient, const Tensor& input,
                                const std::vector<Tensor>& weights) {
  InputBackward result;
  Tensor arriving = gradient;
  if (!arriving) {
    tape.operator_name = "backward";
    arriving = elementwise(tape, {&root}, root.dtype());  // ones_like
  }
  result.groups = group_weights(tape, tape.gradient_edge(root).function.get(), input, weights);
  const ArrivalHooks hooks(result.groups);
  result.gradient = tape.gradients({tape.gradient_edge(root)}, {arriving}, {tape.gradient_edge(input)}, true).front();
  return result;
}

void backward_to_weights(Tape& tape, std::vector<WeightGroup> groups, const std::vector<Tensor>& weights) {
  std::vector<Tensor> found;  // Python's `dweights` lives until the next group's exist
  for (WeightGroup& group : groups) {
    std::vector<Edge> roots, inputs;
    std::vector<Tensor> gradients;
    for (std::size_t i = 0; i < group.operators.size(); ++i) {
      for (std::size_t output = 0; output < group.gradients[i].size(); ++output) {
        if (!group.gradients[i][output]) continue;
        roots.push_back({group.operators[i], static_cast<std::uint16_t>(output)});
        gradients.push_back(group.gradients[i][output]);
      }
    }
    // Hooks on a linear's output hang on the view behind its product, which is not run again.
    for (const NodeRef& node : group.operators)
      if (node->transposed_input >= 0) node->tensor_hooks.clear();
    group.operators.clear();
    for (std::size_t weight : group.weights) inputs.push_back(tape.gradient_edge(weights[weight]));
    if (roots.empty()) continue;
    found = tape.gradients(roots, gradients, inputs, false);
    group.gradients.clear();
    for (std::size_t i = 0; i < found.size(); ++i) {
      Tensor& gradient = weights[group.weights[i]].grad();
      if (!gradient) {
        gradient = found[i];
        Tape::categorize(gradient, Category::gradient);
      } else {
        add_in_place(gradient, found[i]);
      }
    }
  }
}

}  // namespace plimsoll::program
