#include "program/inductor/fuse.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "program/inductor/expressions.hpp"

namespace plimsoll::program::inductor {

namespace {

using Sizes = std::vector<std::int64_t>;

/// The same without the innermost loops on which it does not depend (dependencies.py, drop_unused_symbols).
Access without_idle_loops(Access access) {
  while (access.way == 0 && !access.strides.empty() && access.strides.back() == 0) access.sizes.pop_back(), access.strides.pop_back();
  return access;
}

/// Whether a read finds what the write left, where more loops may be inside (_same_index_with_prefix_size).
bool begins_as(const Access& read, const Access& write) {
  if (read.sizes.size() < write.sizes.size()) return false;
  for (std::size_t i = 0; i < read.sizes.size(); ++i) {
    const bool inside = i >= write.sizes.size();
    if (inside ? read.strides[i] != 0 : read.sizes[i] != write.sizes[i] || read.strides[i] != write.strides[i]) return false;
  }
  return true;
}
/// fusable_read_and_write.
bool finds(const Access& read, const Access& write) {
  if (read.buffer != write.buffer || read.offset != write.offset || read.way != 0) return false;
  return begins_as(read, write) || (read.sizes.size() != write.sizes.size() && begins_as(merged(read), merged(write)));
}

/// A set of numbers from 0, of which whole graphs have thousands, and each of their operations one.
class Numbers {
 public:
  Numbers() = default;
  explicit Numbers(std::size_t all) : words_((all + kBits - 1) / kBits) {}

  void insert(int number) { words_[word_of(number)] |= bit_of(number); }
  void insert(const Numbers& others) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= others.words_[i];
  }
  bool contains(int number) const { return word_of(number) < words_.size() && (words_[word_of(number)] & bit_of(number)) != 0; }
  bool contains_any(const std::vector<int>& numbers) const {
    return std::any_of(numbers.begin(), numbers.end(), [this](int number) { return contains(number); });
  }
  /// Calls `take` with every number that `known` has not.
  template <class Take>
  void each_but(const Numbers& known, Take&& take) const {
    for (std::size_t i = 0; i < words_.size(); ++i)
      for (std::uint64_t left = words_[i] & ~known.words_[i]; left != 0; left &= left - 1)
        take(static_cast<int>(i * kBits) + std::countr_zero(left));
  }

 private:
  static constexpr std::size_t kBits = 64;
  static std::size_t word_of(int number) { return static_cast<std::size_t>(number) / kBits; }
  static std::uint64_t bit_of(int number) { return std::uint64_t{1} << (static_cast<std::size_t>(number) % kBits); }

  std::vector<std::uint64_t> words_;
};

struct Node {
  std::vector<int> operations;
  std::vector<int> columns, rows;  ///< of sums over both: the operations of either kind
  std::set<Access> reads, writes;
  std::set<int> buffers, made;
  Numbers ancestors;  ///< operations
  bool is_extern = false, sums = false;
  std::int64_t kept = 1, summed = 1;
  int first = 0, last = 0;

  bool mixed() const { return !rows.empty(); }
};

class Fuser {
 public:
  explicit Fuser(const LoweredGraph& graph) : graph_(graph) {
    ancestors_.assign(graph.operations.size(), Numbers(graph.operations.size()));
    readers_.resize(graph.buffers.size());
    for (std::size_t i = 0; i < graph.operations.size(); ++i) {
      const int id = static_cast<int>(i);
      Node node = node_of(id);
      for (const int buffer : read_buffers(id)) {
        readers_[static_cast<std::size_t>(buffer)].insert(id);
        const int maker = graph.buffers[static_cast<std::size_t>(buffer)].operation;
        if (maker < 0 || maker == id) continue;
        ancestors_[i].insert(maker);
        ancestors_[i].insert(ancestors_[static_cast<std::size_t>(maker)]);
      }
      node.ancestors = ancestors_[i];
      nodes_.push_back(std::move(node));
      owner_.push_back(id);
    }
    for (const Region& result : graph.results)
      if (result.buffer >= 0) results_.insert(result.buffer);
  }

  std::vector<FusedKernel> run() {
    constexpr int kMostRounds = 10;
    for (int round = 0; round < kMostRounds; ++round)
      if (!fuse_once()) break;
    reorders_ = true;  // a last round, in which loops may be turned to share more
    fuse_once();
    std::vector<FusedKernel> kernels;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (owner_[i] != static_cast<int>(i) || nodes_[i].operations.size() < 2) continue;
      kernels.push_back({nodes_[i].operations, nodes_[i].rows});
    }
    return kernels;
  }

 private:
  const LoweredOperation& operation(int id) const { return graph_.operations[static_cast<std::size_t>(id)]; }
  Node& at(int node) { return nodes_[static_cast<std::size_t>(node)]; }
  std::int64_t bytes_of(const Access& access) const {
    return access.elements() * size_of(graph_.buffers[static_cast<std::size_t>(access.buffer)].type);
  }

  std::set<int> read_buffers(int id) const {
    std::set<int> buffers;
    for (const Load& load : operation(id).loads) buffers.insert(load.buffer);
    for (const Region& argument : operation(id).arguments) buffers.insert(argument.buffer);
    return buffers;
  }

  Node node_of(int id) const {
    const LoweredOperation& op = operation(id);
    Node node;
    node.operations = {id};
    node.buffers = read_buffers(id);
    node.made.insert(op.outputs.begin(), op.outputs.end());
    node.buffers.insert(op.outputs.begin(), op.outputs.end());
    node.is_extern = !op.is_loops();
    node.sums = op.is_reduction();
    node.first = node.last = id;
    if (node.is_extern) return node;
    node.kept = op.kept_elements(), node.summed = op.summed_elements();
    Sizes sizes = op.kept;
    sizes.insert(sizes.end(), op.summed.begin(), op.summed.end());
    if (is_inverted(op)) {
      const std::size_t places = ~op.loads.front().way;
      node.reads.insert({op.loads.front().buffer, 0, 0, {node.kept}, {1}, 0});
      node.writes.insert({op.outputs.front(), 0, places, {node.kept}, {1}, 0});
      return node;
    }
    for (const Load& load : op.loads)
      node.reads.insert(without_idle_loops({load.buffer, load.offset, load.way, sizes, load.strides, load.places}));
    const std::size_t scattered = op.changes >= 0 ? 1 : 0;  // no reader's way
    node.writes.insert({op.outputs.front(), 0, scattered, op.kept, op.places, 0});
    return node;
  }

  /// Whether loops that copy a kernel's result in another order go as that kernel does, and write in another order instead
  /// (shared_data_after_inverting_indexing).
  bool is_inverted(const LoweredOperation& op) const {
    if (op.kind != LoweredOperation::Kind::pointwise || op.loads.size() != 1) return false;
    const Load& load = op.loads.front();
    const int maker = graph_.buffers[static_cast<std::size_t>(load.buffer)].operation;
    if (maker < 0 || !operation(maker).is_loops() || operation(maker).kept_elements() != op.kept_elements()) return false;
    const bool as_it_lies = load.way == 0 && load.strides == in_a_row(op.kept);
    return !as_it_lies && op.places == in_a_row(op.kept) && reads_each_once(load, op.kept);
  }

  // ---- scores ----

  std::int64_t shared_bytes(const Node& a, const Node& b) const {
    std::int64_t bytes = 0;
    const auto add = [&](const std::set<Access>& of_a) {
      for (const Access& access : of_a)
        if (b.reads.contains(access) || b.writes.contains(access)) bytes += bytes_of(access);
    };
    add(a.reads);
    for (const Access& access : a.writes)
      if (!a.reads.contains(access) && (b.reads.contains(access) || b.writes.contains(access))) bytes += bytes_of(access);
    return bytes;
  }

  struct Score {
    std::int64_t bytes = 0;
    std::int64_t saved = 0;  ///< the same without loops that are only counted as one
    bool mixed = false;
  };
  Score score(const Node& a, const Node& b, bool may_mix = true) const {
    if (may_mix && mixes(a, b)) return {whole(a).first * whole(a).second, whole(a).first * whole(a).second, true};
    const std::int64_t bytes = shared_bytes(a, b);
    const Order order = bytes >= kLeastShared || !may_mix ? Order::as_it_is : order_of(a, b);
    if (order == Order::as_it_is) return {bytes, bytes};
    const auto [left, right] = in_order(order, a, b);
    const std::int64_t more = shared_bytes(left, right);
    return {more, order == Order::turned ? more : bytes};
  }

  /// The access to a buffer that says how a kernel's loops go through it: where it is made, else where it is read.
  static const Access* access_to(const Node& node, int buffer) {
    for (const std::set<Access>* all : {&node.writes, &node.reads}) {
      const auto found = std::find_if(all->begin(), all->end(), [&](const Access& access) { return access.buffer == buffer; });
      if (found != all->end()) return &*found;
    }
    return nullptr;
  }

  /// How loops are changed to share more: they are turned, those that go on from one to the next are taken as one, or they become a sum's.
  enum class Order : std::uint8_t { as_it_is, turned, merged, as_a_sum };

  Order order_of(const Node& a, const Node& b) const {
    const Order order = order_by_buffer(a, b);
    return order == Order::as_it_is && goes_as_a_sum(a, b) ? Order::as_a_sum : order;
  }
  std::pair<Node, Node> in_order(Order order, const Node& a, const Node& b) const {
    if (order != Order::as_a_sum) return {reordered(a), reordered(b)};
    const Node& sum = a.sums ? a : b;
    return {as_a_sum(a, sum), as_a_sum(b, sum)};
  }

  /// shared_data_after_reordering_loop: whether element-wise loops can be turned to go through a common buffer as the other kernel's do.
  /// What one makes and the other reads is looked at before what both read, then the largest. Both have as many loops, each with a step of
  /// its own; else they are the same when merged.
  Order order_by_buffer(const Node& a, const Node& b) const {
    if (!reorders_ || (a.sums && b.sums)) return Order::as_it_is;
    using Candidate = std::tuple<bool, std::int64_t, const Access*, const Access*>;
    std::optional<Candidate> best;
    for (const int buffer : a.buffers) {
      const Access *left = access_to(a, buffer), *right = access_to(b, buffer);
      if (left == nullptr || right == nullptr) continue;
      const bool handed_on = a.made.contains(buffer) != b.made.contains(buffer);
      if (in_order_of_strides(*left) != in_order_of_strides(*right)) continue;
      const Candidate candidate{handed_on, left->elements(), left, right};
      if (!best || std::tie(handed_on, std::get<1>(candidate)) > std::tie(std::get<0>(*best), std::get<1>(*best))) best = candidate;
    }
    if (!best) return Order::as_it_is;
    const auto& [handed_on, elements, left, right] = *best;
    if (left->sizes.size() == right->sizes.size())
      return steps_of(*left) == steps_of(*right) && !steps_of(*left).empty() ? Order::turned : Order::as_it_is;
    return merged(*left) == merged(*right) ? Order::merged : Order::as_it_is;
  }
  /// The steps of an access, if each loop has another one (MemoryDep.decide_loop_order_to_match).
  static std::set<std::int64_t> steps_of(const Access& access) {
    std::set<std::int64_t> steps(access.strides.begin(), access.strides.end());
    if (steps.size() != access.strides.size() || steps.contains(0)) return {};
    return steps;
  }
  static Node reordered(Node node) {
    const auto turn = [](const std::set<Access>& accesses) {
      std::set<Access> turned;
      for (const Access& access : accesses) turned.insert(in_order_of_strides(access));
      return turned;
    };
    node.reads = turn(node.reads), node.writes = turn(node.writes);
    return node;
  }

  /// _try_reindex_pointwise_for_reduction: whether element-wise loops, taken as the two of a sum over as many elements, go through a common
  /// buffer as that does. Taken so they read no worse (_reindexing_regresses_memory_coalescing) where they go from an element to the next.
  bool goes_as_a_sum(const Node& a, const Node& b) const {
    const Node &sum = a.sums ? a : b, &other = a.sums ? b : a;
    if (!reorders_ || a.sums == b.sums || sum.mixed() || other.kept != sum.kept * sum.summed || !is_contiguous(other)) return false;
    const Sizes loops = {sum.kept, sum.summed};
    bool changes = false;
    for (const int id : other.operations) {
      const Sizes& sizes = operation(id).kept;
      if (in_loops_of_sum({0, 0, 0, sizes, in_a_row(sizes)}, sum.kept, sum.summed).sizes != loops) return false;
      changes = changes || sizes != loops;
    }
    return changes && std::any_of(sum.buffers.begin(), sum.buffers.end(), [&](int buffer) {
             const Access *left = access_to(sum, buffer), *right = access_to(other, buffer);
             return left != nullptr && right != nullptr &&
                    in_loops_of_sum(*left, sum.kept, sum.summed) == in_loops_of_sum(*right, sum.kept, sum.summed);
           });
  }
  static Node as_a_sum(Node node, const Node& sum) {
    for (std::set<Access>* all : {&node.reads, &node.writes}) {
      std::set<Access> taken;
      for (const Access& access : *all) taken.insert(in_loops_of_sum(access, sum.kept, sum.summed));
      *all = std::move(taken);
    }
    return node;
  }

  static int distance(const Node& a, const Node& b) { return std::max(std::abs(a.first - b.last), std::abs(b.first - a.last)); }

  // ---- sums over rows and over columns ----

  /// Kept and summed elements, of sums in parts those of the whole sum.
  std::pair<std::int64_t, std::int64_t> whole(const Node& node) const {
    for (const int id : node.operations)
      if (operation(id).is_reduction() && !operation(id).whole.empty() && is_in_parts(node))
        return {operation(id).whole[0], operation(id).whole[1]};
    return {node.kept, node.summed};
  }
  bool is_in_parts(const Node& node) const {
    return std::all_of(node.operations.begin(), node.operations.end(),
                       [&](int id) { return !operation(id).is_reduction() || !operation(id).whole.empty(); });
  }
  /// The innermost loop goes from an element to the next, or stays.
  bool is_contiguous(const Node& node) const {
    return std::all_of(node.operations.begin(), node.operations.end(), [&](int id) {
      return std::all_of(operation(id).loads.begin(), operation(id).loads.end(),
                         [&](const Load& load) { return load.strides.empty() || load.strides.back() == 0 || load.strides.back() == 1; });
    });
  }
  bool reads_all(const Node& node, int buffer) const {
    const auto found = std::find_if(node.reads.begin(), node.reads.end(), [&](const Access& read) { return read.buffer == buffer; });
    return found != node.reads.end() && found->elements() == node.kept * node.summed;
  }

  /// MixOrderReduction.can_fuse.
  bool mixes(const Node& a, const Node& b) const {
    if (!a.sums || !b.sums || a.mixed() || b.mixed() || depends(a, b) || depends(b, a)) return false;
    const auto [kept_a, summed_a] = whole(a);
    const auto [kept_b, summed_b] = whole(b);
    if (kept_a != summed_b || summed_a != kept_b) return false;
    const bool common = std::any_of(a.buffers.begin(), a.buffers.end(),
                                    [&](int buffer) { return b.buffers.contains(buffer) && reads_all(a, buffer) && reads_all(b, buffer); });
    if (!common) return false;
    const bool first = is_contiguous(a);
    if (!first && !is_contiguous(b)) return false;
    const auto [rows, columns] = whole(first ? a : b);
    return mixes_reduction_orders(rows, columns) && !is_in_parts(first ? a : b);
  }

  // ---- what may be fused ----

  /// Whether b reads what comes of a.
  static bool depends(const Node& b, const Node& a) { return b.ancestors.contains_any(a.operations); }

  bool may_fuse(const Node& a, const Node& b, bool may_mix = true) const {
    if (b.mixed()) return a.mixed() && may_join_mixed(a, b);
    if (a.mixed()) return may_join(a, b) != Side::none;
    if (a.is_extern || b.is_extern || depends(a, b)) return false;
    const Score shared = score(a, b, may_mix);
    if (shared.bytes == 0 || a.operations.size() + b.operations.size() > kMostFused) return false;
    if (elements_kept_apart(a, b) > kWorthOfSavedByte * shared.saved) return false;
    if (depends(b, a)) {
      const Order order = may_mix && shared_bytes(a, b) < kLeastShared ? order_of(a, b) : Order::as_it_is;
      if (order == Order::as_it_is) return reads_at_equal_places(a, b) && loops_fit(a, b, may_mix);
      const auto [left, right] = in_order(order, a, b);
      return reads_at_equal_places(left, right) && loops_fit(a, b, may_mix);
    }
    return (shared.mixed || (shared.bytes >= kLeastShared && distance(a, b) <= kFarthest)) && loops_fit(a, b, may_mix);
  }

  /// Elements of buffers that both could overwrite if they were apart: each reads its own, of equal size and type, last
  /// (can_fusion_increase_peak_memory, which compares them with bytes).
  std::int64_t elements_kept_apart(const Node& a, const Node& b) const {
    const auto keys = [&](const Node& node) {
      std::set<std::pair<DType, std::int64_t>> all;
      for (const Access& read : node.reads) {
        const LoweredBuffer& buffer = graph_.buffers[static_cast<std::size_t>(read.buffer)];
        if (buffer.operation < 0 || results_.contains(read.buffer)) continue;
        const std::set<int>& readers = readers_[static_cast<std::size_t>(read.buffer)];
        if (readers.size() == 1) all.emplace(buffer.type, buffer.sizes.product());
      }
      return all;
    };
    const std::set<std::pair<DType, std::int64_t>> of_a = keys(a);
    std::int64_t elements = 0;
    for (const auto& key : keys(b))
      if (of_a.contains(key)) elements += key.second;
    return elements;
  }

  /// can_fuse_vertical: b finds what a makes where it reads it, and no other kernel would have to run between them.
  bool reads_at_equal_places(const Node& a, const Node& b) const {
    for (const Access& read : b.reads) {
      if (b.made.contains(read.buffer)) continue;
      if (std::any_of(a.writes.begin(), a.writes.end(), [&](const Access& write) { return finds(read, write); })) continue;
      if (a.made.contains(read.buffer)) return false;
      const int maker = graph_.buffers[static_cast<std::size_t>(read.buffer)].operation;
      if (maker >= 0 && depends(nodes_[static_cast<std::size_t>(owner(maker))], a)) return false;
    }
    return true;
  }

  /// SIMDScheduling.can_fuse.
  bool loops_fit(const Node& a, const Node& b, bool may_mix) const {
    if (a.sums && b.sums) return (a.kept == b.kept && a.summed == b.summed) || (may_mix && mixes(a, b));
    if (!a.sums && !b.sums) return a.kept == b.kept;
    const Node &sum = a.sums ? a : b, &other = a.sums ? b : a;
    return other.kept == sum.kept * sum.summed || other.kept == sum.kept;
  }

  // ---- kernels that sum over both ----

  enum class Side : std::uint8_t { none, columns, rows };

  Node part(const std::vector<int>& operations) const {
    Node node = node_of(operations.front());
    for (std::size_t i = 1; i < operations.size(); ++i) node = joined(node, node_of(operations[i]));
    node.ancestors = Numbers(ancestors_.size());
    for (const int id : operations) node.ancestors.insert(own_ancestors(id));
    return node;
  }
  const Numbers& own_ancestors(int id) const { return ancestors_.at(static_cast<std::size_t>(id)); }

  Side may_join(const Node& mixed, const Node& other) const {
    std::set<int> read;
    for (const Node* node : {&mixed, &other})
      for (const int id : node->operations)
        for (const Load& load : operation(id).loads) read.insert(load.buffer);
    if (read.size() > kMostReadsOfMixed) return Side::none;
    const Node columns = part(mixed.columns), rows = part(mixed.rows);
    if (joins(columns, other, rows, mixed)) return Side::columns;
    if (joins(rows, other, columns, mixed)) return Side::rows;
    return Side::none;
  }
  bool joins(const Node& side, const Node& added, const Node& opposite, const Node& mixed) const {
    if (added.mixed() || !may_fuse(side, added, false)) return false;
    if (is_contiguous(side) && !is_contiguous(added)) return false;
    if (depends(side, opposite) || depends(added, opposite) || depends(opposite, side) || depends(opposite, added)) return false;
    return !added.sums || elements_shared(side, added) >= whole(part(mixed.columns)).first * whole(part(mixed.columns)).second;
  }
  std::int64_t elements_shared(const Node& a, const Node& b) const {
    std::int64_t count = 0;
    for (const Access& access : a.reads)
      if (b.reads.contains(access) || b.writes.contains(access)) count += access.elements();
    for (const Access& access : a.writes)
      if (b.reads.contains(access)) count += access.elements();
    return count;
  }
  bool may_join_mixed(const Node& a, const Node& b) const {
    const Node columns_a = part(a.columns), rows_a = part(a.rows), columns_b = part(b.columns), rows_b = part(b.rows);
    return joins(columns_a, columns_b, rows_a, a) && !depends(columns_b, rows_b) && joins(rows_a, rows_b, Node{}, a);
  }

  // ---- fusing ----

  static Node joined(const Node& a, const Node& b) {
    Node node = a;
    node.operations.insert(node.operations.end(), b.operations.begin(), b.operations.end());
    node.reads.insert(b.reads.begin(), b.reads.end());
    node.writes.insert(b.writes.begin(), b.writes.end());
    node.buffers.insert(b.buffers.begin(), b.buffers.end());
    node.made.insert(b.made.begin(), b.made.end());
    node.ancestors.insert(b.ancestors);
    node.first = std::min(a.first, b.first), node.last = std::max(a.last, b.last);
    if (b.sums && !a.sums) node.kept = b.kept, node.summed = b.summed;
    node.sums = a.sums || b.sums;
    // What one of them makes and the other reads is no read of the kernel's.
    std::erase_if(node.reads, [&](const Access& read) { return node.writes.contains(read) && node.made.contains(read.buffer); });
    return node;
  }

  int owner(int node) const {
    while (owner_[static_cast<std::size_t>(node)] != node) node = owner_[static_cast<std::size_t>(node)];
    return node;
  }

  /// Whether another kernel would have to run both behind one of them and before the other.
  bool makes_cycle(int a, int b) const {
    const Node &left = nodes_[static_cast<std::size_t>(a)], &right = nodes_[static_cast<std::size_t>(b)];
    std::vector<int> names = left.operations;
    names.insert(names.end(), right.operations.begin(), right.operations.end());
    Numbers entered(nodes_.size());
    for (int id = first_of_overlapping(std::min(left.first, right.first)); id-- > 0;) entered.insert(id);
    for (const int name : names) entered.insert(name);
    std::vector<int> open;
    std::vector<bool> seen(nodes_.size());
    const auto enter = [&](const Numbers& ancestors) {
      ancestors.each_but(entered, [&](int id) {
        entered.insert(id);
        const auto kernel = static_cast<std::size_t>(owner(id));
        if (!seen[kernel]) open.push_back(owner(id));
        seen[kernel] = true;
      });
    };
    enter(left.ancestors), enter(right.ancestors);
    while (!open.empty()) {
      const Node& node = nodes_[static_cast<std::size_t>(open.back())];
      open.pop_back();
      if (node.ancestors.contains_any(names)) return true;
      enter(node.ancestors);
    }
    return false;
  }

  /// The first operation of the kernels that go on behind `id`, and of those that go on behind their first: what is before that depends on
  /// nothing behind it.
  int first_of_overlapping(int id) const {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t i = nodes_.size(); i-- > 0;) {
        if (owner_[i] != static_cast<int>(i) || nodes_[i].last < id || nodes_[i].first >= id) continue;
        id = nodes_[i].first;
        moved = true;
      }
    }
    return id;
  }

  bool fuse_once() {
    std::map<int, std::vector<int>> by_buffer;  // nodes in their order
    std::vector<int> order;
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (owner_[i] == static_cast<int>(i)) order.push_back(static_cast<int>(i));
    for (const int node : order) {
      if (at(node).is_extern) continue;
      for (const int buffer : at(node).buffers) by_buffer[buffer].push_back(node);
    }
    using Key = std::tuple<int, std::int64_t, int>;  // FusionScore
    std::vector<std::pair<Key, std::pair<int, int>>> possible;
    std::set<std::pair<int, int>> seen;
    for (const auto& [buffer, group] : by_buffer) {
      for (std::size_t i = 0; i < group.size(); ++i) {
        for (std::size_t j = i + 1; j < group.size() && j <= i + kMostPairs; ++j) {
          const Node &a = at(group[i]), &b = at(group[j]);
          if (!seen.emplace(group[i], group[j]).second || !may_fuse(a, b)) continue;
          const Score shared = score(a, b);
          possible.push_back({{a.sums == b.sums, shared.bytes, -distance(a, b)}, {group[i], group[j]}});
        }
      }
    }
    std::stable_sort(possible.begin(), possible.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    bool fused = false;
    for (const auto& [key, pair] : possible) {
      const int a = owner(pair.first), b = owner(pair.second);
      if (a == b || !may_fuse(at(a), at(b)) || makes_cycle(a, b)) continue;
      join(a, b);
      fused = true;
    }
    return fused;
  }

  void join(int a, int b) {
    Node &left = at(a), &right = at(b);
    Node node = joined(left, right);
    if (left.mixed() && right.mixed()) {
      node.columns = left.columns, node.rows = left.rows;
      node.columns.insert(node.columns.end(), right.columns.begin(), right.columns.end());
      node.rows.insert(node.rows.end(), right.rows.begin(), right.rows.end());
    } else if (left.mixed()) {
      std::vector<int>& side = may_join(left, right) == Side::columns ? (node.columns = left.columns) : (node.rows = left.rows);
      side.insert(side.end(), right.operations.begin(), right.operations.end());
      if (node.columns.empty()) node.columns = left.columns;
      if (node.rows.empty()) node.rows = left.rows;
    } else if (mixes(left, right)) {
      const bool first = is_contiguous(left);
      node.columns = first ? left.operations : right.operations;
      node.rows = first ? right.operations : left.operations;
    }
    if (node.mixed()) {
      node.operations = node.columns;
      node.operations.insert(node.operations.end(), node.rows.begin(), node.rows.end());
    }
    left = std::move(node);
    owner_[static_cast<std::size_t>(b)] = a;
  }

  static constexpr std::size_t kMostFused = 64, kMostPairs = 64, kMostReadsOfMixed = 10;
  static constexpr std::int64_t kLeastShared = 10, kWorthOfSavedByte = 32;
  static constexpr int kFarthest = 64;

  const LoweredGraph& graph_;
  std::vector<Node> nodes_;
  std::vector<Numbers> ancestors_;  ///< of each operation
  std::vector<int> owner_;
  bool reorders_ = false;
  std::vector<std::set<int>> readers_;  ///< of each buffer: operations
  std::set<int> results_;
};

}  // namespace

std::vector<FusedKernel> fuse(const LoweredGraph& graph) { return Fuser(graph).run(); }

}  // namespace plimsoll::program::inductor
