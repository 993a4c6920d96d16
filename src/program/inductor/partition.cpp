#include "program/inductor/partition.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <set>
#include <utility>

#include "plimsoll/error.hpp"

namespace plimsoll::program::inductor {

namespace {

constexpr std::int64_t kInfinite = std::numeric_limits<std::int64_t>::max() / 4;

/// The minimal cut by augmenting shortest paths (Edmonds and Karp, with levels: Dinic).
class Flow {
 public:
  explicit Flow(int vertices) : first_(static_cast<std::size_t>(vertices)) {}

  void add(int from, int to, std::int64_t capacity) {
    first_[at(from)].push_back(static_cast<int>(edges_.size()));
    edges_.push_back({to, capacity});
    first_[at(to)].push_back(static_cast<int>(edges_.size()));
    edges_.push_back({from, 0});
  }

  /// The vertices from which the sink can be reached behind the largest flow. Throws Error (internal) where no cut is finite.
  std::vector<bool> sink_side(int source, int sink) {
    std::int64_t flow = 0;
    while (find_levels(source, sink)) {
      next_.assign(first_.size(), 0);
      while (const std::int64_t more = push(source, sink, kInfinite)) {
        flow += more;
        if (flow >= kInfinite) throw Error(ErrorCode::internal, "a value that is needed backward can be neither saved nor computed again");
      }
    }
    return reaching(sink);
  }

 private:
  struct Edge {
    int to;
    std::int64_t left;
  };
  static std::size_t at(int vertex) { return static_cast<std::size_t>(vertex); }

  bool find_levels(int source, int sink) {
    level_.assign(first_.size(), -1);
    level_[at(source)] = 0;
    std::queue<int> open;
    open.push(source);
    for (; !open.empty(); open.pop()) {
      for (const int edge : first_[at(open.front())]) {
        const auto& [to, left] = edges_[at(edge)];
        if (left == 0 || level_[at(to)] >= 0) continue;
        level_[at(to)] = level_[at(open.front())] + 1;
        open.push(to);
      }
    }
    return level_[at(sink)] >= 0;
  }

  std::int64_t push(int vertex, int sink, std::int64_t most) {
    if (vertex == sink) return most;
    for (std::size_t& i = next_[at(vertex)]; i < first_[at(vertex)].size(); ++i) {
      const int number = first_[at(vertex)][i];
      const auto [to, left] = edges_[at(number)];
      if (left == 0 || level_[at(to)] != level_[at(vertex)] + 1) continue;
      const std::int64_t pushed = push(to, sink, std::min(most, left));
      if (pushed == 0) continue;
      if (edges_[at(number)].left < kInfinite) edges_[at(number)].left -= pushed;
      if (edges_[at(number ^ 1)].left < kInfinite) edges_[at(number ^ 1)].left += pushed;
      return pushed;
    }
    return 0;
  }

  std::vector<bool> reaching(int sink) const {
    std::vector<bool> seen(first_.size());
    std::vector<int> open{sink};
    seen[at(sink)] = true;
    while (!open.empty()) {
      const int vertex = open.back();
      open.pop_back();
      for (const int number : first_[at(vertex)]) {
        const int before = edges_[at(number)].to;
        if (edges_[at(number ^ 1)].left == 0 || seen[at(before)]) continue;
        seen[at(before)] = true;
        open.push_back(before);
      }
    }
    return seen;
  }

  std::vector<std::vector<int>> first_;
  std::vector<Edge> edges_;
  std::vector<int> level_;
  std::vector<std::size_t> next_;
};

bool is_view(Aten op) { return rule_of(op).lowering == Lowering::view && op != Aten::getitem; }
bool is_collective(Aten op) { return op == Aten::all_gather || op == Aten::reduce_scatter || op == Aten::wait; }
bool is_tuple(Aten op) { return rule_of(op).lowering == Lowering::several; }

class Partitioner {
 public:
  explicit Partitioner(const JointGraph& joint) : joint_(joint), graph_(joint.graph), users_(graph_.users()), count_(graph_.nodes.size()) {
    classify();
    measure_distances();
    for (int node = 0; node < graph_.size(); ++node) {
      FxNode& n = graph_.at(node);
      // force_save_collectives
      if (is_collective(n.op) && n.recompute != Recompute::prefer_recompute) n.recompute = Recompute::must_save;
    }
  }

  std::vector<int> saved() {
    Flow flow(2 * graph_.size() + 2);
    const int source = 2 * graph_.size(), sink = source + 1;
    for (int node = 0; node < graph_.size(); ++node) {
      if (in(backward_, node)) {
        const bool computed = in(behind_tangents_, node);
        flow.add(computed ? into(node) : out_of(node), sink, kInfinite);
        if (computed) continue;
      }
      if (must_recompute(node)) {
        flow.add(into(node), sink, kInfinite);
        continue;
      }
      if (is_primal(node) || (in(forward_, node) && is_banned(node))) ban(node);
      flow.add(into(node), out_of(node), weight(node));
      for (const int user : readers(node)) flow.add(out_of(node), into(user), kInfinite);
    }
    ban_users_far_apart();
    ban_long_chains();
    for (const int node : banned_) flow.add(source, into(node), kInfinite);
    const std::vector<bool> behind = flow.sink_side(source, sink);
    std::vector<int> saved;
    for (int node = 0; node < graph_.size(); ++node) {
      if (!behind[static_cast<std::size_t>(into(node))] && behind[static_cast<std::size_t>(out_of(node))]) saved.push_back(node);
    }
    return saved;
  }

 private:
  static int into(int node) { return 2 * node; }
  static int out_of(int node) { return 2 * node + 1; }
  static bool in(const std::vector<bool>& set, int node) { return set[static_cast<std::size_t>(node)]; }
  const std::vector<int>& readers(int node) const { return users_[static_cast<std::size_t>(node)]; }
  const FxNode& at(int node) const { return graph_.at(node); }
  bool is_tangent(int node) const { return std::find(joint_.tangents.begin(), joint_.tangents.end(), node) != joint_.tangents.end(); }
  bool is_primal(int node) const { return at(node).op == Aten::placeholder && !is_tangent(node); }
  bool must_recompute(int node) const { return at(node).recompute == Recompute::prefer_recompute; }
  bool is_fusible(int a, int b) const {
    return at(b).op == Aten::cat || (rule_of(at(a).op).recomputable && rule_of(at(b).op).recomputable);
  }

  void classify() {
    behind_tangents_.resize(count_), forward_.resize(count_);
    for (const int tangent : joint_.tangents)
      if (tangent >= 0) behind_tangents_[static_cast<std::size_t>(tangent)] = true;
    for (int node = 0; node < graph_.size(); ++node)
      for (const int arg : at(node).args)
        if (in(behind_tangents_, arg)) behind_tangents_[static_cast<std::size_t>(node)] = true;
    backward_ = behind_tangents_;
    for (const int gradient : joint_.gradients())
      if (gradient >= 0) backward_[static_cast<std::size_t>(gradient)] = true;
    is_output_.resize(count_);
    for (const int output : graph_.outputs)
      if (output >= 0) is_output_[static_cast<std::size_t>(output)] = true;
    for (const int result : joint_.results()) forward_[static_cast<std::size_t>(result)] = true;
    for (const int node : joint_.inputs) forward_[static_cast<std::size_t>(node)] = true;
    for (int node = graph_.size() - 1; node >= 0; --node) {
      if (!in(forward_, node)) continue;
      for (const int arg : at(node).args) forward_[static_cast<std::size_t>(arg)] = true;
    }
    int order = 0;
    order_.assign(count_, -1);
    for (const bool inputs : {true, false})  // which stand in front
      for (int node = 0; node < graph_.size(); ++node)
        if (in(forward_, node) && (at(node).op == Aten::placeholder) == inputs) order_[static_cast<std::size_t>(node)] = order++;
  }

  void measure_distances() {
    constexpr int kFar = 1'000'000'000;
    distance_.assign(count_, 0);
    for (int node = graph_.size() - 1; node >= 0; --node) {
      if (!in(forward_, node)) continue;
      int& distance = distance_[static_cast<std::size_t>(node)] = kFar;
      for (const int user : readers(node)) distance = std::min(distance, distance_[static_cast<std::size_t>(user)] + 1);
    }
  }

  std::int64_t bytes(int node) const {
    if (!is_tuple(at(node).op)) return at(node).bytes();
    std::int64_t sum = 0;
    for (const int item : readers(node)) sum += at(item).bytes();
    return sum;
  }

  std::int64_t weight(int node) const {
    if (at(node).parameter) return 0;
    if (is_tuple(at(node).op)) return kInfinite;
    const int near = std::clamp(distance_[static_cast<std::size_t>(node)], 1, 100);
    const auto weighed = static_cast<std::int64_t>(static_cast<double>(bytes(node)) * std::pow(1.1, near));
    const std::vector<int>& all = readers(node);
    const bool materialized = is_primal(node) || in(is_output_, node) ||
                              !std::all_of(all.begin(), all.end(), [&](int user) { return is_fusible(node, user); });
    return materialized ? weighed : 2 * weighed;
  }

  /// Whether gradients read it by what does not fuse with it: it is written to memory backward, so that computing it is not free.
  bool is_materialized_backward(int node) const {
    if (is_view(at(node).op)) return false;
    std::vector<int> open{node};
    while (!open.empty()) {
      const int current = open.back();
      open.pop_back();
      if (in(is_output_, current)) return true;
      for (const int user : readers(current)) {
        if (!in(forward_, user) && !is_fusible(current, user)) return true;
        if (is_view(at(user).op)) open.push_back(user);
      }
    }
    return false;
  }

  /// should_ban_recomputation.
  bool is_banned(int node) const {
    const FxNode& n = at(node);
    if (n.op == Aten::placeholder || n.op == Aten::getitem) return false;
    if (n.recompute == Recompute::must_save || !rule_of(n.op).recomputable || is_materialized_backward(node)) return true;
    std::int64_t read = 0;
    for (const int arg : n.args) read += bytes(arg);
    return n.op != Aten::cat && bytes(node) * 4 < read;
  }

  void ban(int node) {
    if (!is_view(at(node).op) && !must_recompute(node)) banned_.insert(node);
  }

  /// The order of the first operator behind these that does not fuse with what it reads.
  int first_unfusible(const std::vector<int>& start, int most) const {
    using Step = std::tuple<int, int, bool>;
    std::set<Step> open;
    for (const int node : start) open.emplace(order_[static_cast<std::size_t>(node)], node, true);
    while (!open.empty()) {
      const auto [order, node, fusible] = *open.begin();
      open.erase(open.begin());
      if (!fusible) return order;
      for (const int user : readers(node)) {
        if (in(forward_, user) && order_[static_cast<std::size_t>(user)] <= most)
          open.emplace(order_[static_cast<std::size_t>(user)], user, is_fusible(node, user));
      }
    }
    return most;
  }

  /// Of a value that is read both before and behind such an operator, readers behind it are not computed again.
  void ban_users_far_apart() {
    for (int node = 0; node < graph_.size(); ++node) {
      if (!in(forward_, node)) continue;
      std::vector<int> users;
      int last = -1;
      for (const int user : readers(node)) {
        if (!in(forward_, user)) continue;
        users.push_back(user);
        last = std::max(last, order_[static_cast<std::size_t>(user)]);
      }
      if (users.empty()) continue;
      const int limit = first_unfusible(users, last);
      for (const int user : users)
        if (order_[static_cast<std::size_t>(user)] > limit && is_fusible(node, user)) ban(user);
    }
  }

  /// Chains of more than a hundred operators that all fuse are cut.
  void ban_long_chains() {
    constexpr int kLongest = 100;
    std::vector<bool> visited(count_);
    for (int start = 0; start < graph_.size(); ++start) {
      if (!in(forward_, start)) continue;
      const int first = order_[static_cast<std::size_t>(start)];
      std::multiset<std::pair<int, int>> open{{first, start}};
      while (!open.empty()) {
        const auto [order, node] = *open.begin();
        open.erase(open.begin());
        if (in(visited, node)) continue;
        visited[static_cast<std::size_t>(node)] = true;
        if (order > first + kLongest && open.empty()) {
          ban(node);
          break;
        }
        for (const int user : readers(node)) {
          if (in(forward_, user) && is_fusible(node, user) && !banned_.contains(user))
            open.emplace(order_[static_cast<std::size_t>(user)], user);
        }
      }
    }
  }

  const JointGraph& joint_;
  FxGraph graph_;
  std::vector<std::vector<int>> users_;
  std::size_t count_;
  std::vector<bool> behind_tangents_, backward_, forward_;
  std::vector<bool> is_output_;  ///< of either direction: what returns them fuses with nothing
  std::vector<int> order_, distance_;
  std::set<int> banned_;
};

/// The nodes that make `outputs` out of `inputs`, which become placeholders at the front.
FxGraph extract(const FxGraph& joint, const std::vector<int>& inputs, const std::vector<int>& outputs) {
  FxCopy graph(joint);
  for (const int input : inputs) {
    FxNode placeholder = joint.at(input);
    placeholder.op = Aten::placeholder;
    placeholder.args.clear();
    graph.append(input, std::move(placeholder));
  }
  for (int node = 0; node < joint.size(); ++node) {
    const FxNode& n = joint.at(node);
    const bool valid = n.op != Aten::placeholder && std::all_of(n.args.begin(), n.args.end(), [&](int arg) { return graph.has(arg); });
    if (valid && !graph.has(node)) graph.append(node);
  }
  std::vector<int> kept;
  return without_dead_code(std::move(graph).with_outputs(outputs), kept);
}

/// reordering_to_mimic_autograd_engine: from the first node that reads a tangent on, each with what it needs just before it. Tangents are
/// the placeholders behind the first `saved`.
FxGraph in_order_of_gradients(const FxGraph& graph, int saved) {
  const auto is_tangent = [&](int node) { return node >= saved && graph.at(node).op == Aten::placeholder; };
  int first = 0;
  while (first < graph.size() && std::none_of(graph.at(first).args.begin(), graph.at(first).args.end(), is_tangent)) ++first;
  if (first == graph.size()) return graph;
  FxCopy ordered(graph);
  const auto insert = [&](int wanted) {
    std::set<int> missing;
    std::vector<int> open{wanted};
    while (!open.empty()) {
      const int node = open.back();
      open.pop_back();
      if (ordered.has(node) || !missing.insert(node).second) continue;
      open.insert(open.end(), graph.at(node).args.begin(), graph.at(node).args.end());
    }
    for (const int node : missing) ordered.append(node);
  };
  for (int node = 0; node < graph.size(); ++node)
    if (graph.at(node).op == Aten::placeholder) ordered.append(node);
  for (int node = first; node < graph.size(); ++node) insert(node);
  for (const int output : graph.outputs)
    if (output >= 0) insert(output);
  return std::move(ordered).with_outputs(graph.outputs);
}

/// raise_getitems: results stand directly behind the operator that gives them.
FxGraph with_items_raised(const FxGraph& graph) {
  const std::vector<std::vector<int>> users = graph.users();
  FxCopy raised(graph);
  for (int node = 0; node < graph.size(); ++node) {
    if (raised.has(node)) continue;
    raised.append(node);
    if (!is_tuple(graph.at(node).op)) continue;
    for (const int item : users[static_cast<std::size_t>(node)]) raised.append(item);
  }
  return std::move(raised).with_outputs(graph.outputs);
}

/// post_grad.py, addmm: a product that is added to a matrix is one kernel with it, if nobody else reads the product.
FxGraph with_sums_in_products(const FxGraph& graph) {
  const std::vector<std::vector<int>> users = graph.users();
  std::vector<bool> is_result(graph.nodes.size());
  for (const int output : graph.outputs)
    if (output >= 0) is_result[static_cast<std::size_t>(output)] = true;
  const auto joins = [&](const FxNode& sum, int product) {
    const FxNode& n = graph.at(product);
    return n.op == Aten::product && users[static_cast<std::size_t>(product)].size() == 1 && !is_result[static_cast<std::size_t>(product)] &&
           n.sizes == sum.sizes && n.type == sum.type;
  };
  FxGraph fused = graph;
  for (FxNode& n : fused.nodes) {
    if (n.op != Aten::add || n.args.size() != 2 || n.args[0] == n.args[1]) continue;
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
      const int product = n.args[i], bias = n.args[1 - i];
      if (!joins(n, product) || graph.at(bias).sizes != n.sizes || graph.at(bias).type != n.type) continue;
      n.op = Aten::addmm;
      n.args = {bias, graph.at(product).args[0], graph.at(product).args[1]};
      break;
    }
  }
  std::vector<int> kept;
  return without_dead_code(fused, kept);
}

/// Whether element-wise operators alone read the node, views of it aside (torch/_inductor/utils.py, is_pointwise_use).
bool is_read_by_elements(const FxGraph& graph, const std::vector<std::vector<int>>& users, const std::vector<bool>& is_result, int node) {
  if (is_result[static_cast<std::size_t>(node)]) return false;
  const std::vector<int>& readers = users[static_cast<std::size_t>(node)];
  return std::all_of(readers.begin(), readers.end(), [&](int reader) {
    const Aten op = graph.at(reader).op;
    if (rule_of(op).lowering == Lowering::view) return is_read_by_elements(graph, users, is_result, reader);
    return rule_of(op).lowering == Lowering::pointwise && op != Aten::pad;
  });
}

/// post_grad.py, unfuse_bias_add_to_pointwise: a product's bias that is no matrix is added by those who read the product, if they go through
/// its elements. Of 16 bits it stays (keep_addmm_fused_for_half_dtypes).
FxGraph with_biases_apart(const FxGraph& graph) {
  const std::vector<std::vector<int>> users = graph.users();
  std::vector<bool> is_result(graph.nodes.size());
  for (const int output : graph.outputs)
    if (output >= 0) is_result[static_cast<std::size_t>(output)] = true;
  FxGraph apart;
  std::vector<int> numbers;
  for (int node = 0; node < graph.size(); ++node) {
    FxNode n = graph.at(node);
    for (int& arg : n.args) arg = numbers[static_cast<std::size_t>(arg)];
    if (n.op == Aten::addmm && n.type == DType::fp32 && apart.at(n.args[0]).sizes != n.sizes &&
        is_read_by_elements(graph, users, is_result, node)) {
      FxNode product = n;
      product.op = Aten::product;
      product.args.erase(product.args.begin());
      apart.nodes.push_back(std::move(product));
      n.op = Aten::add;
      n.args = {n.args[0], apart.size() - 1};
      n.name += "_add";
    }
    apart.nodes.push_back(std::move(n));
    numbers.push_back(apart.size() - 1);
  }
  for (const int output : graph.outputs) apart.outputs.push_back(output < 0 ? -1 : numbers[static_cast<std::size_t>(output)]);
  return apart;
}

}  // namespace

std::vector<int> saved_values(const JointGraph& joint) { return Partitioner(joint).saved(); }

PartitionedGraph partition(const JointGraph& joint) {
  const std::vector<int> gradients = joint.gradients();
  std::vector<int> saved = saved_values(joint);
  const auto backward_of = [&] {
    std::vector<int> inputs = saved;
    for (const int tangent : joint.tangents)
      if (tangent >= 0) inputs.push_back(tangent);
    return extract(joint.graph, inputs, gradients);
  };
  {  // what the backward turns out not to read is not saved
    const FxGraph backward = backward_of();
    const std::vector<std::vector<int>> users = backward.users();
    std::vector<int> read;
    for (std::size_t i = 0; i < saved.size(); ++i) {
      const bool returned = std::find(backward.outputs.begin(), backward.outputs.end(), static_cast<int>(i)) != backward.outputs.end();
      if (!users[i].empty() || returned) read.push_back(saved[i]);
    }
    saved = std::move(read);
  }
  PartitionedGraph parts;
  std::vector<int> outputs = joint.results();
  outputs.insert(outputs.end(), saved.begin(), saved.end());
  const auto rewritten = [](const FxGraph& graph) { return with_biases_apart(with_sums_in_products(with_items_raised(graph))); };
  parts.forward = rewritten(extract(joint.graph, joint.inputs, outputs));
  parts.backward = rewritten(in_order_of_gradients(backward_of(), static_cast<int>(saved.size())));
  return parts;
}

}  // namespace plimsoll::program::inductor
