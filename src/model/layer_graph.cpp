#include "plimsoll/layer_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/depth_first_search.hpp>
#include <cmath>
#include <limits>

#include "plimsoll/error.hpp"
#include "plimsoll/flops.hpp"

namespace plimsoll {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr int kNothing = std::numeric_limits<int>::min();  // an operator that waits for nothing

using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS>;

// Depth-first search: the order of finishing, reversed, is topological; an edge back to a vertex still open closes a cycle.
class Order : public boost::default_dfs_visitor {
 public:
  Order(std::vector<int>& finished, std::vector<int>& parent, std::pair<int, int>& back)
      : finished_(&finished), parent_(&parent), back_(&back) {}

  template <class Edge>
  void tree_edge(Edge edge, const Graph& graph) const {
    (*parent_)[target(edge, graph)] = static_cast<int>(source(edge, graph));
  }
  template <class Edge>
  void back_edge(Edge edge, const Graph& graph) const {
    if (back_->first < 0) *back_ = {static_cast<int>(source(edge, graph)), static_cast<int>(target(edge, graph))};
  }
  void finish_vertex(std::size_t vertex, const Graph&) const { finished_->push_back(static_cast<int>(vertex)); }

 private:
  std::vector<int>*finished_, *parent_;
  std::pair<int, int>* back_;
};

std::int64_t own_parameters(const Operator& op) {
  std::int64_t total = 0;
  for (const auto& tensor : op.parameters)
    if (tensor.tied_to.empty()) total += tensor.elements();
  return total;
}

std::size_t index(int i) { return static_cast<std::size_t>(i); }

}  // namespace

LayerGraph::LayerGraph(const Model& model) : name_(model.name) {
  for (int block = 0; block < static_cast<int>(model.blocks.size()); ++block) add_block(model, block);
  for (int stage = 0; stage < static_cast<int>(stages_.size()); ++stage) connect(stage);
  sort();
}

std::string LayerGraph::full_name(const Block& block, const Operator& op) const {
  std::string name = block.name;
  if (block.numbered)
    name += block.repeat > 1 ? fmt::format(".{}-{}", block.first, block.first + block.repeat - 1) : fmt::format(".{}", block.first);
  if (name.empty()) return op.name;
  return op.name.empty() ? name : name + "." + op.name;
}

int LayerGraph::block_before(const Model& model, int block) const {
  // A rotary module computes cosines for the layers behind it; it passes no hidden states on.
  int before = block - 1;
  while (before >= 0 && model.blocks[index(before)].role == Block::Role::rotary) --before;
  return before;
}

void LayerGraph::add_block(const Model& model, int block) {
  const Block& source = model.blocks[index(block)];
  if (source.operators.empty()) fail(fmt::format("block '{}' has no operators", source.name));
  Stage stage;
  stage.name = source.name;
  stage.repeat = source.repeat;
  stage.tokens = source.tokens;
  stage.first_vertex = static_cast<int>(vertices_.size());
  stage.vertices = static_cast<int>(source.operators.size());
  stage.edges = source.edges;
  const auto output_of = [&](int other) {
    if (other < 0 || other >= block) fail(fmt::format("block '{}' reads block {}, which does not come before it", source.name, other));
    return stages_[index(other)].output();
  };
  const bool first = source.role == Block::Role::embedding || source.role == Block::Role::rotary || block_before(model, block) < 0;
  stage.inputs.push_back(!source.input && first ? -1 : output_of(source.input.value_or(block_before(model, block))));
  for (const int side : source.side_inputs) stage.inputs.push_back(output_of(side));
  for (int i = 0; i < stage.vertices; ++i) {
    const Operator& op = source.operators[index(i)];
    vertices_.push_back({block, i, full_name(source, op), op.kind, source.repeat, own_parameters(op), op.flops_per_token,
                         op.output_per_token, saved_for_backward(op)});
  }
  stages_.push_back(std::move(stage));
}

void LayerGraph::connect(int stage_index) {
  const Stage& stage = stages_[index(stage_index)];
  for (const Edge& edge : stage.edges) {
    const int input = -1 - edge.from;  // kBlockInput is input 0
    const bool from_known = edge.from >= 0 ? edge.from < stage.vertices : input < static_cast<int>(stage.inputs.size());
    if (!from_known || edge.to < 0 || edge.to >= stage.vertices)
      fail(fmt::format("an edge of block '{}' joins {} and {}, which it does not have", stage.name, edge.from, edge.to));
    const int from = edge.from >= 0 ? stage.first_vertex + edge.from : stage.inputs[index(input)];
    tensors_.push_back({from, stage.first_vertex + edge.to, from < 0 ? std::vector<std::int64_t>{} : vertices_[index(from)].shape});
  }
}

void LayerGraph::sort() {
  Graph graph(vertices_.size());
  for (const Tensor& tensor : tensors_)
    if (tensor.from >= 0) boost::add_edge(index(tensor.from), index(tensor.to), graph);
  std::vector<int> parent(vertices_.size(), -1);
  std::pair<int, int> back{-1, -1};
  boost::depth_first_search(graph, boost::visitor(Order(order_, parent, back)));
  if (back.first >= 0) {
    std::string cycle = vertices_[index(back.second)].name;
    for (int at = back.first; at != back.second && at >= 0; at = parent[index(at)]) cycle = vertices_[index(at)].name + " -> " + cycle;
    fail("operators form a cycle: " + vertices_[index(back.second)].name + " -> " + cycle);
  }
  std::reverse(order_.begin(), order_.end());
  for (const int vertex : order_) {
    Stage& stage = stages_[index(vertices_[index(vertex)].block)];
    stage.order.push_back(vertices_[index(vertex)].index);
  }
}

LayerGraph::Reach LayerGraph::reach(const Stage& stage, const std::vector<double>& arrivals, const std::vector<double>& cost) const {
  Reach result{std::vector<double>(index(stage.vertices), kNever), std::vector<int>(index(stage.vertices), kNothing)};
  std::vector<std::vector<int>> reads(index(stage.vertices));
  for (const Edge& edge : stage.edges) reads[index(edge.to)].push_back(edge.from);
  for (const int op : stage.order) {
    double start = reads[index(op)].empty() && arrivals[0] != kNever ? 0 : kNever;
    for (const int from : reads[index(op)]) {
      const double ready = from >= 0 ? result.finish[index(from)] : arrivals[index(-1 - from)];
      if (ready > start) start = ready, result.waited_for[index(op)] = from;
    }
    result.finish[index(op)] = start + cost[index(stage.first_vertex + op)];
  }
  return result;
}

LayerGraph::Path LayerGraph::critical_path(const std::vector<double>& cost) const {
  if (cost.size() != vertices_.size()) fail(fmt::format("{} costs for {} operators", cost.size(), vertices_.size()));
  for (const double c : cost)
    if (!(c >= 0) || !std::isfinite(c)) fail("the cost of an operator must be a finite number of at least 0");
  std::vector<Reach> first, later;               // of each stage: its first repeat, and a repeat that only waits for the one before it
  std::vector<double> end(vertices_.size(), 0);  // of the outputs of stages
  int last = 0;
  for (const Stage& stage : stages_) {
    std::vector<double> arrivals;
    for (const int input : stage.inputs) arrivals.push_back(input < 0 ? 0 : end[index(input)]);
    first.push_back(reach(stage, arrivals, cost));
    std::vector<double> chained(stage.inputs.size(), kNever);
    chained[0] = 0;
    later.push_back(reach(stage, chained, cost));
    const double more = std::max(0.0, later.back().finish.back());
    end[index(stage.output())] = first.back().finish.back() + static_cast<double>(stage.repeat - 1) * more;
    if (end[index(stage.output())] >= end[index(stages_[index(last)].output())]) last = static_cast<int>(first.size()) - 1;
  }
  Path path;
  path.cost = end[index(stages_[index(last)].output())];
  std::vector<bool> on_path(vertices_.size(), false);
  const auto walk = [&](const Stage& stage, const Reach& within) {
    int op = stage.vertices - 1;
    for (; op >= 0; op = within.waited_for[index(op)]) on_path[index(stage.first_vertex + op)] = true;
    return op == kNothing ? -1 : stage.inputs[index(-1 - op)];
  };
  for (int stage = last; stage >= 0;) {
    const auto& here = stages_[index(stage)];
    if (here.repeat > 1) walk(here, later[index(stage)]);
    const int source = walk(here, first[index(stage)]);
    stage = source < 0 ? -1 : vertices_[index(source)].block;
  }
  for (const int vertex : order_)
    if (on_path[index(vertex)]) path.vertices.push_back(vertex);
  return path;
}

// The formulas of torch's derivatives.yaml.
std::string_view saved_for_backward(const Operator& op) {
  switch (op.kind) {
    case OperatorKind::embedding:
    case OperatorKind::position_embedding:
      return "indices";
    case OperatorKind::layer_norm:
    case OperatorKind::rms_norm:
    case OperatorKind::batch_norm:
      return "input, statistics";
    case OperatorKind::attention:
      return "queries, keys, values, output, row statistics";
    case OperatorKind::activation:
      return op.function == "relu" || op.function == "relu_" || op.function == "tanh" || op.function == "sigmoid" ? "output" : "input";
    case OperatorKind::multiply:
      return "inputs";
    case OperatorKind::dropout:
      return "mask";
    case OperatorKind::pool:
      return op.function == "max" ? "input, indices" : "shape";
    case OperatorKind::softmax:
      return "output";
    case OperatorKind::cross_entropy:
      return "log-probabilities, labels";
    case OperatorKind::rope:
      return "cosines, sines";
    case OperatorKind::router:
      return "input, probabilities, choices";
    case OperatorKind::experts:
      return "input, inner activations, choices";
    case OperatorKind::add:
    case OperatorKind::scale:
    case OperatorKind::reshape:
      return op.parameters.empty() ? "nothing" : "input";
    case OperatorKind::linear:
    case OperatorKind::convolution:
    case OperatorKind::patch_embedding:
    case OperatorKind::modulation:
      return "input";
  }
  return "nothing";
}

std::vector<double> forward_flops_per_vertex(const LayerGraph& graph, const Model& model, std::int64_t sequence) {
  std::vector<double> cost;
  for (const auto& vertex : graph.vertices()) {
    const Block& block = model.blocks[index(vertex.block)];
    cost.push_back(flops::operator_forward(block, block.operators[index(vertex.index)], {sequence, 0}, flops::Mask::causal_exact));
  }
  return cost;
}

}  // namespace plimsoll
