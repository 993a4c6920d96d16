#include "program/inductor/lower.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "plimsoll/error.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll::program::inductor {

namespace {

std::int64_t product_of(const std::vector<std::int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

/// Strides of elements in a row.
std::vector<std::int64_t> in_a_row(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  return strides;
}

/// A part of the elements of a storage: of an expression counted in the order of its dimensions, of a buffer by their places.
struct View {
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;
};

View whole_view(const Dims& sizes) { return {listed(sizes), in_a_row(listed(sizes)), 0}; }

/// What computes a storage's elements: loops over `sizes`, whose loads have a stride for each of them.
struct Expression {
  std::vector<std::int64_t> sizes;
  std::vector<Load> loads = {};
  std::set<std::pair<int, std::size_t>> values = {};  ///< nodes that it computes, each under every way in which it is indexed
};

std::size_t hash_of(const View& view) {
  std::size_t hash = 0;
  const auto add = [&](std::int64_t value) { hash = hash * 1000003U + static_cast<std::size_t>(value) + 1; };
  for (std::size_t i = 0; i < view.sizes.size(); ++i) {
    if (view.sizes[i] == 1) continue;
    add(view.sizes[i]), add(view.strides[i]);
  }
  add(view.offset);
  return hash;
}

/// The strides under a view that has the same dimensions in another order; none where it is another view.
std::optional<std::vector<std::int64_t>> permuted(const std::vector<std::int64_t>& strides, const std::vector<std::int64_t>& sizes,
                                                  const std::vector<std::int64_t>& places, const View& view) {
  if (view.offset != 0 || product_of(view.sizes) != product_of(sizes)) return std::nullopt;
  std::vector<std::int64_t> order;
  for (std::size_t k = 0; k < view.sizes.size(); ++k) {
    std::size_t i = 0;
    while (view.sizes[k] != 1 && i < sizes.size() && (sizes[i] != view.sizes[k] || places[i] != view.strides[k])) ++i;
    if (view.sizes[k] != 1 && i == sizes.size()) return std::nullopt;
    order.push_back(view.sizes[k] == 1 ? 0 : strides[i]);
  }
  return order;
}

/// Whether the load goes through a buffer as the loops go.
bool goes_in_a_row(const Load& load, const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& places) {
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] != 1 && load.strides[i] != places[i]) return false;
  return load.way == 0;
}

/// The view's dimensions in terms of the loops beneath: each begins in one of them, goes `width` there in a step, and on through those
/// around it, which the load must go through as through one.
class Steps {
 public:
  Steps(const Load& load, const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& places, std::int64_t offset)
      : load_(load), sizes_(sizes), places_(places), most_(sizes.size()), told_(load.way == 0), offset_(load.offset) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      most_[i] = offset / places[i];
      offset_ += most_[i] * load.strides[i];
      offset %= places[i];
    }
  }

  /// The load's step for a dimension of the view.
  std::int64_t step(std::int64_t size, std::int64_t stride) {
    if (size == 1 || stride == 0) return 0;
    std::size_t inner = 0;
    while (inner + 1 < sizes_.size() && (sizes_[inner] == 1 || places_[inner] > stride)) ++inner;
    const std::int64_t width = stride / places_[inner];
    told_ = told_ && stride % places_[inner] == 0;
    std::int64_t reach = (size - 1) * width;
    std::size_t i = inner;
    for (; told_ && reach >= sizes_[i] && i > 0; --i) {
      told_ = width == 1 && (reach + 1) % sizes_[i] == 0 && (sizes_[i - 1] == 1 || load_.strides[i - 1] == load_.strides[i] * sizes_[i]);
      most_[i] += sizes_[i] - 1;
      reach = (reach + 1) / sizes_[i] - 1;
    }
    most_[i] += reach;
    if (told_ || reach == 0) return load_.strides[inner] * width;
    // Not by strides: the first step that moves the load at all stands for the dimension, which the place depends on.
    for (std::size_t outer = inner + 1; outer-- > 0;)
      if (sizes_[outer] != 1 && load_.strides[outer] != 0) return load_.strides[outer];
    return 0;
  }

  std::int64_t offset() const { return offset_; }
  /// Whether strides tell every place: no dimension of the loops is left at its end.
  bool told() const {
    for (std::size_t i = 0; i < sizes_.size(); ++i)
      if (most_[i] >= sizes_[i]) return false;
    return told_;
  }

 private:
  const Load& load_;
  const std::vector<std::int64_t>&sizes_, &places_;
  std::vector<std::int64_t> most_;  ///< the largest index that is reached
  bool told_;
  std::int64_t offset_;
};

/// The load seen through `view` of the loops over `sizes` that it belongs to.
Load seen_through(const Load& load, const std::vector<std::int64_t>& sizes, const View& view) {
  const std::vector<std::int64_t> places = in_a_row(sizes);
  if (goes_in_a_row(load, sizes, places)) return {load.buffer, view.strides, load.offset + view.offset};
  if (std::optional<std::vector<std::int64_t>> turned = permuted(load.strides, sizes, places, view))
    return {load.buffer, std::move(*turned), load.offset, load.way};
  Steps steps(load, sizes, places, view.offset);
  Load seen{load.buffer, {}, steps.offset(), load.way};
  for (std::size_t k = 0; k < view.sizes.size(); ++k) seen.strides.push_back(steps.step(view.sizes[k], view.strides[k]));
  if (!steps.told()) seen.way = load.way * 31 + hash_of(view) + 1;
  return seen;
}

class Lowerer {
 public:
  Lowerer(const FxGraph& graph, const Tape& tape) : graph_(graph), tape_(tape), users_(graph.users()), boxes_(graph.nodes.size()) {
    is_result_.resize(graph.nodes.size());
    for (const int output : graph.outputs)
      if (output >= 0) is_result_[static_cast<std::size_t>(output)] = true;
  }

  LoweredGraph run() {
    for (int node = 0; node < graph_.size(); ++node) {
      lower(node);
      realize_by_rule(node);
    }
    for (const int output : graph_.outputs) out_.results.push_back(output < 0 ? Region{} : region(output));
    return std::move(out_);
  }

 private:
  struct Storage {
    int buffer = -1;        ///< -1: an expression
    Expression expression = {};
    std::vector<std::int64_t> sizes = {};
    std::vector<std::int64_t> strides = {};  ///< of a buffer that views count by its places; else its own
    DType type = DType::fp32;
  };
  struct Box {
    int storage = -1;
    View view;
  };

  const FxNode& at(int node) const { return graph_.at(node); }
  Box& box(int node) { return boxes_[static_cast<std::size_t>(node)]; }
  Storage& storage(int node) { return storages_[static_cast<std::size_t>(box(node).storage)]; }
  const std::vector<int>& users(int node) const { return users_[static_cast<std::size_t>(node)]; }
  LoweredOperation& operation() { return out_.operations.back(); }

  int add_buffer(LoweredBuffer buffer) {
    out_.buffers.push_back(std::move(buffer));
    return static_cast<int>(out_.buffers.size()) - 1;
  }
  /// A buffer of the operation that was added last, as its node's.
  int output_of_last(const Dims& sizes, DType type) {
    check_rows(sizes, type);
    const int buffer = add_buffer({.operation = static_cast<int>(out_.operations.size()) - 1, .sizes = sizes, .type = type});
    operation().outputs.push_back(buffer);
    return buffer;
  }
  /// Longer rows are padded to whole 128 bytes (ir.py, Layout._pad_strides).
  static void check_rows(const Dims& sizes, DType type) {
    constexpr std::int64_t kPaddedRow = 1024, kWholeBytes = 128;
    if (sizes.rank() < 2 || sizes[-1] <= kPaddedRow || sizes[-1] * size_of(type) % kWholeBytes == 0) return;
    refuse("rows of " + std::to_string(sizes[-1]) + " elements, which Inductor pads, are not modelled under torch.compile", "compile",
           "sizes that are multiples of 64");
  }
  /// The node's elements are the buffer's, which lies as the node does: views of it count its places in memory.
  void place(int node, int buffer) {
    out_.buffers[static_cast<std::size_t>(buffer)].strides = listed(at(node).strides);
    place_within(node, buffer, at(node));
  }
  /// Another operator's view of the same elements.
  void alias(int node, int of) { place_within(node, storage(of).buffer, at(node)); }
  void place_within(int node, int buffer, const FxNode& as) {
    storages_.push_back({.buffer = buffer, .sizes = {as.elements()}, .strides = {1}, .type = as.type});
    box(node) = {static_cast<int>(storages_.size()) - 1, {listed(as.sizes), listed(as.strides), 0}};
  }
  const std::vector<std::int64_t>& strides_of(const Storage& s) const {
    return s.strides.empty() ? out_.buffers[static_cast<std::size_t>(s.buffer)].strides : s.strides;
  }

  // ---- expressions ----

  /// What an element-wise reader of `node` computes at `view` of it.
  void load_into(Expression& expression, int node, const View& view) {
    const Storage& source = storage(node);
    if (source.buffer >= 0) {
      add_load(expression, seen_through({source.buffer, strides_of(source), 0}, source.sizes, view));
      return;
    }
    const std::size_t hash = hash_of(view);
    for (const Load& load : source.expression.loads) add_load(expression, seen_through(load, source.expression.sizes, view));
    const bool as_it_is = source.expression.sizes == view.sizes && view.offset == 0;
    for (const auto& [value, how] : source.expression.values) expression.values.emplace(value, as_it_is ? how : how * 31 + hash);
  }

  static void add_load(Expression& expression, const Load& load) {
    if (std::find(expression.loads.begin(), expression.loads.end(), load) == expression.loads.end()) expression.loads.push_back(load);
  }

  /// `argument` broadcast to `sizes`.
  View broadcast(int argument, const std::vector<std::int64_t>& sizes) {
    const View& own = box(argument).view;
    View view{sizes, std::vector<std::int64_t>(sizes.size()), own.offset};
    const std::size_t added = sizes.size() - own.sizes.size();
    for (std::size_t i = 0; i < own.sizes.size(); ++i)
      view.strides[i + added] = own.sizes[i] == 1 && sizes[i + added] != 1 ? 0 : own.strides[i];
    return view;
  }

  void hold(int node, Expression expression) {
    storages_.push_back({.expression = std::move(expression), .sizes = listed(at(node).sizes), .type = at(node).type});
    box(node) = {static_cast<int>(storages_.size()) - 1, whole_view(at(node).sizes)};
  }

  /// What expressions share: a constant, the bound of a slice, a dimension's index in one way of indexing.
  using Shared = std::tuple<int, double, std::size_t>;
  enum SharedKind : int { kConstant, kBound, kIndex };

  /// Operations of an expression, equal ones once (OpCounterCSE).
  int operations_of(const Expression& expression) const {
    int count = static_cast<int>(expression.loads.size());
    std::set<Shared> shared;
    int last = -1;
    for (const auto& [node, way] : expression.values) {
      count += operations_of(node);
      if (at(node).op == Aten::slice_scatter) add_bounds(shared, node, way);
      if (node == std::exchange(last, node)) continue;
      if (at(node).constant) {
        shared.emplace(kConstant, *at(node).constant, 0);
      } else {
        count += rule_of(at(node).op).constants;
      }
    }
    return count + static_cast<int>(shared.size());
  }
  /// A slice put among zeros compares its dimension's index with its bounds, and chooses 0 outside.
  void add_bounds(std::set<Shared>& shared, int node, std::size_t way) const {
    const FxNode& n = at(node);
    shared.emplace(kConstant, 0, 0);
    shared.emplace(kIndex, n.dimension, way);
    if (n.number != 0) shared.emplace(kBound, static_cast<double>(n.number), 0);
    if (ends_inside(node)) shared.emplace(kBound, static_cast<double>(n.number + at(n.args.front()).sizes[n.dimension]), 0);
  }
  /// Whether a slice ends before its dimension does.
  bool ends_inside(int node) const {
    const FxNode& n = at(node);
    return n.step == 1 && n.number + at(n.args.front()).sizes[n.dimension] != n.sizes[n.dimension];
  }
  int operations_of(int node) const {
    const FxNode& n = at(node);
    // An index, a bound and two comparisons, a mask and, but for the last, a choice each; the first and the last bound (pointwise_cat).
    const int parts = static_cast<int>(n.args.size());
    if (n.op == Aten::power) return static_cast<int>(std::max<std::int64_t>(n.number - 1, 0));  // products of what it is of
    if (n.op == Aten::slice_scatter) {  // comparisons, and what joins them; of steps the remainder, its zero and their comparison; a mask, a choice
      const int comparisons = (n.number != 0 ? 1 : 0) + (ends_inside(node) ? 1 : 0) + (n.step > 1 ? 1 : 0);
      return 2 * comparisons - 1 + (n.step > 1 ? 2 : 0) + 2;
    }
    if (n.op == Aten::cat) return 1 + 1 + parts + 2 * parts + (parts - 2) + parts + (parts - 1);
    const bool mixed = n.args.size() == 2 && at(n.args[0]).type != at(n.args[1]).type;  // the lower one is converted
    return rule_of(n.op).operations + (mixed ? 1 : 0);
  }

  /// Loops without their dimensions of 1, those of what is kept in the order in which it is written.
  static LoweredOperation loops(LoweredOperation::Kind kind, const std::vector<std::int64_t>& kept, const std::vector<std::int64_t>& places,
                                const std::vector<std::int64_t>& summed, const std::vector<Load>& loads) {
    LoweredOperation operation{.kind = kind};
    std::vector<std::size_t> dimensions;
    for (const int i : loop_order(kept, {places})) {
      const auto dimension = static_cast<std::size_t>(i);
      if (kept[dimension] == 1) continue;
      dimensions.push_back(dimension);
      operation.kept.push_back(kept[dimension]);
      operation.places.push_back(places[dimension]);
    }
    for (std::size_t i = 0; i < summed.size(); ++i) {
      if (summed[i] == 1) continue;
      dimensions.push_back(kept.size() + i);
      operation.summed.push_back(summed[i]);
    }
    for (const Load& load : loads) {
      Load ordered{load.buffer, {}, load.offset, load.way};
      for (const std::size_t dimension : dimensions) ordered.strides.push_back(load.strides[dimension]);
      operation.loads.push_back(std::move(ordered));
    }
    return operation;
  }

  /// Strides of a new buffer that nobody wants to lie otherwise: as what it is made from (ComputedBuffer.get_fill_order).
  static std::vector<std::int64_t> strides_like(const std::vector<std::int64_t>& kept, const std::vector<Load>& loads) {
    std::vector<std::vector<std::int64_t>> read;
    for (const Load& load : loads) read.emplace_back(load.strides.begin(), load.strides.begin() + static_cast<std::ptrdiff_t>(kept.size()));
    std::vector<std::int64_t> strides(kept.size(), 1);
    const std::vector<int> order = loop_order(kept, read);
    std::int64_t stride = 1;
    for (std::size_t i = order.size(); i-- > 0;) {
      strides[static_cast<std::size_t>(order[i])] = stride;
      stride *= kept[static_cast<std::size_t>(order[i])];
    }
    return strides;
  }

  // ---- buffers ----

  /// The buffer that `node`'s elements are in, made now where there is none. Of a result of the graph it lies as the node.
  int realize(int node, bool as_it_lies = false) {
    const Storage& made = storage(node);
    if (made.buffer >= 0) return made.buffer;
    const Expression& expression = made.expression;
    const bool whole = listed(at(node).sizes) == expression.sizes && box(node).view.strides == in_a_row(expression.sizes);
    return put(node, as_it_lies && whole ? listed(at(node).strides) : strides_like(expression.sizes, expression.loads));
  }

  /// Computes the node's expression into a buffer of those strides.
  int put(int node, std::vector<std::int64_t> strides) {
    const Expression expression = std::exchange(storage(node).expression, {});
    return storage(node).buffer = compute(expression, storage(node).type, std::move(strides));
  }

  int compute(const Expression& expression, DType type, std::vector<std::int64_t> strides) {
    out_.operations.push_back(loops(LoweredOperation::Kind::pointwise, expression.sizes, strides, {}, expression.loads));
    Dims sizes;
    for (const std::int64_t size : expression.sizes) sizes.push_back(size);
    const int buffer = output_of_last(sizes, type);
    out_.buffers[static_cast<std::size_t>(buffer)].strides = std::move(strides);
    return buffer;
  }

  /// The node's elements as a call reads them: in a buffer that lies as the node does, a copy of its own where they are a view of an
  /// expression (ExternKernel.require_exact_strides).
  Region region(int node) {
    const Storage& source = storage(node);
    const bool whole = box(node).view.sizes == source.sizes && box(node).view.strides == in_a_row(source.sizes) && box(node).view.offset == 0;
    if (source.buffer >= 0 || whole) return {realize(node, true), at(node).sizes, at(node).strides};
    Expression copy{.sizes = box(node).view.sizes};
    load_into(copy, node, box(node).view);
    return {compute(copy, source.type, listed(at(node).strides)), at(node).sizes, at(node).strides};
  }

  /// The same as a product reads them: a view of an expression is one of its buffer (ExternKernel.realize_input).
  Region factor(int node) {
    if (storage(node).buffer < 0) put(node, in_a_row(storage(node).expression.sizes));
    return {storage(node).buffer, at(node).sizes, at(node).strides};
  }

  /// The node in a buffer of its own that lies as it does, a copy where it is a view of an expression (need_fixed_layout).
  void fix(int node) {
    Expression copy{.sizes = box(node).view.sizes};
    load_into(copy, node, box(node).view);
    place(node, compute(copy, storage(node).type, listed(at(node).strides)));
  }

  void realize_by_rule(int node) {
    constexpr int kMostLoadsOfReused = 4, kMostLoads = 8, kMostOperations = 30, kMostInlined = 100;
    if (box(node).storage < 0) return;
    if (is_result_[static_cast<std::size_t>(node)]) realize(node, true);
    const auto pending = [&] { return storage(node).buffer < 0; };
    const auto loads = [&] { return static_cast<int>(storage(node).expression.loads.size()); };
    const auto count = [&] { return operations_of(storage(node).expression); };
    if (pending() && users(node).size() > 1) {
      const bool read_by_call = std::any_of(users(node).begin(), users(node).end(), [&](int user) {  // needs_realized_inputs
        const Lowering lowering = rule_of(at(user).op).lowering;
        return lowering == Lowering::product || lowering == Lowering::call || (lowering == Lowering::several && at(user).op != Aten::split && at(user).op != Aten::var_mean);
      });
      if (read_by_call && loads() > 1) realize(node);
      const bool multiplied = std::any_of(users(node).begin(), users(node).end(), [&](int user) { return at(user).op == Aten::product; });
      if (multiplied && pending()) fix(node);
    }
    if (pending() && users(node).size() > 1 && (count() > kMostOperations || loads() > kMostLoadsOfReused)) realize(node);
    if (pending() && (loads() > kMostLoads || count() > kMostOperations) && loads() > 1) realize(node);
    if (pending() && count() > kMostInlined) realize(node);
  }

  // ---- operators ----

  void lower(int node) {
    switch (rule_of(at(node).op).lowering) {
      case Lowering::input:
        return place(node, add_buffer({.name = at(node).name, .input = node, .operation = -1, .sizes = at(node).sizes, .type = at(node).type}));
      case Lowering::pointwise:
        return lower_pointwise(node);
      case Lowering::reduction:
        return lower_sum(node);
      case Lowering::view:
        return lower_view(node);
      case Lowering::cat:
        return lower_cat(node);
      case Lowering::several:
        return lower_several(node);
      case Lowering::product:
        return lower_product(node);
      case Lowering::call:
        return lower_call(node);
    }
  }

  void lower_pointwise(int node) {
    Expression expression{.sizes = listed(at(node).sizes)};
    if (at(node).op == Aten::slice_scatter) {
      load_part(expression, at(node).args.front(), at(node).dimension, at(node).number, at(node).step);
    } else if (at(node).op == Aten::seed) {
      add_load(expression, {realize(at(node).args.front()), {}, at(node).number});
    } else {
      for (const int argument : at(node).args) load_into(expression, argument, broadcast(argument, expression.sizes));
    }
    if (rule_of(at(node).op).operations > 0) expression.values.emplace(node, 0);
    hold(node, std::move(expression));
    if (at(node).op == Aten::seeds || at(node).op == Aten::random) realize(node);
  }

  void lower_sum(int node) {
    const FxNode& n = at(node);
    const int argument = n.args.front();
    const View& whole = box(argument).view;
    View view{{}, {}, whole.offset};
    std::vector<std::int64_t> kept, summed;
    for (const bool of_summed : {false, true}) {
      for (std::size_t i = 0; i < whole.sizes.size(); ++i) {
        if (n.sums(i) != of_summed) continue;
        (of_summed ? summed : kept).push_back(whole.sizes[i]);
        view.sizes.push_back(whole.sizes[i]);
        view.strides.push_back(whole.strides[i]);
      }
    }
    constexpr std::int64_t kUnrolled = 8;  // config.unroll_reductions_threshold
    if (product_of(summed) < kUnrolled && product_of(kept) != 1) return unroll(node, view, kept.size());
    Expression expression{.sizes = view.sizes};
    load_into(expression, argument, view);
    const bool outer = n.sums(0) && !n.sums(whole.sizes.size() - 1);
    const std::int64_t rows = product_of(summed), columns = product_of(kept);
    if (outer && kept.size() != 1) refuse("a sum over rows of several dimensions is not modelled under torch.compile", "compile", "false");
    const std::int64_t parts = outer ? outer_sum_splits(tape_, rows, columns) : 1;
    if (parts > 1) {
      sum_in_parts(node, expression, rows, columns, parts);
    } else {
      const std::vector<std::int64_t> strides = strides_like(kept, expression.loads);
      out_.operations.push_back(loops(LoweredOperation::Kind::reduction, kept, strides, summed, expression.loads));
      place(node, output_of_last(n.sizes, n.type));
      spread(node, strides);
    }
    if (n.op == Aten::mean) divide(node);
  }

  /// A sum of few elements is written out: its readers add them up. `view` has what is kept in front.
  void unroll(int node, const View& view, std::size_t kept) {
    const FxNode& n = at(node);
    std::vector<std::int64_t> summed(view.sizes.begin() + static_cast<std::ptrdiff_t>(kept), view.sizes.end());
    Expression expression{.sizes = listed(n.sizes)};
    View element{expression.sizes, std::vector<std::int64_t>(expression.sizes.size()), 0};
    std::size_t next = 0;
    for (std::size_t i = 0; i < element.sizes.size(); ++i)
      element.strides[i] = element.sizes.size() > kept && n.sums(i) ? 0 : view.strides[next++];
    for (std::int64_t step = 0; step < product_of(summed); ++step) {
      element.offset = view.offset;
      std::int64_t rest = step;
      for (std::size_t i = summed.size(); i-- > 0; rest /= summed[i]) element.offset += rest % summed[i] * view.strides[kept + i];
      load_into(expression, n.args.front(), element);
      if (step > 0) expression.values.emplace(node, static_cast<std::size_t>(step));
    }
    hold(node, std::move(expression));
  }

  /// var_mean: mean and squares of what lies along the last dimension by one kernel of three results, of which nobody reads the count (Welford).
  void lower_var_mean(int node) {
    const FxNode& n = at(node);
    const int argument = n.args.front();
    const View& view = box(argument).view;
    Expression expression{.sizes = view.sizes};
    load_into(expression, argument, view);
    const std::vector<std::int64_t> kept(view.sizes.begin(), view.sizes.end() - 1), summed{view.sizes.back()};
    const std::vector<std::int64_t> strides = strides_like(kept, expression.loads);
    const auto sums = [&](int item) {
      out_.operations.push_back(loops(LoweredOperation::Kind::reduction, kept, strides, summed, expression.loads));
      place(item, output_of_last(at(item).sizes, at(item).type));
      std::vector<std::int64_t> lying = strides;
      lying.push_back(1);
      out_.buffers[static_cast<std::size_t>(storage(item).buffer)].strides = box(item).view.strides = lying;
    };
    constexpr std::int64_t kMean = 1;
    for (const bool of_mean : {true, false})
      for (const int item : users(node))
        if ((at(item).number == kMean) == of_mean) sums(item);
    skip_name();
    for (const int item : users(node))
      if (at(item).number != kMean) divide(item);
  }

  /// A sum's buffer lies with those strides of what it keeps.
  void spread(int node, const std::vector<std::int64_t>& of_kept) {
    std::vector<std::int64_t>& strides = out_.buffers[static_cast<std::size_t>(storage(node).buffer)].strides;
    const FxNode& n = at(node);
    std::size_t next = 0;
    for (std::size_t i = 0; i < strides.size(); ++i) {
      const bool summed = strides.size() > of_kept.size() && n.sums(i);
      strides[i] = summed ? 1 : of_kept[next++];
    }
    box(node).view.strides = strides;
  }

  /// A sum over rows in two steps: of each part of them, then of the parts.
  void sum_in_parts(int node, const Expression& expression, std::int64_t rows, std::int64_t columns, std::int64_t parts) {
    const FxNode& n = at(node);
    const std::int64_t each = ceil_div(rows, parts);
    std::vector<Load> loads;
    for (const Load& load : expression.loads) {
      // The loops' dimensions are the columns', then the rows': one each here, where the rows follow each other.
      const std::int64_t column = load.strides.front(), row = load.strides.back();
      loads.push_back({load.buffer, {column, row * each, row}, load.offset, load.way});
    }
    out_.operations.push_back(loops(LoweredOperation::Kind::reduction, {columns, parts}, {1, columns}, {each}, loads));
    operation().whole = {columns, rows};
    const int partial = output_of_last({parts, columns}, DType::fp32);
    out_.operations.push_back(loops(LoweredOperation::Kind::reduction, {columns}, {1}, {parts}, {{partial, {1, columns}, 0}}));
    place(node, output_of_last(n.sizes, n.type));
  }

  /// mean: the sum, times one over the count, which its readers compute.
  void divide(int node) {
    Expression expression{.sizes = listed(at(node).sizes), .loads = {{storage(node).buffer, box(node).view.strides, 0}}};
    expression.values.emplace(node, 0);
    hold(node, std::move(expression));
  }

  void lower_view(int node) {
    const FxNode& n = at(node);
    const int of = n.args.front();
    if (rule_of(at(of).op).lowering == Lowering::several && at(of).op != Aten::split) return;  // a result, placed with the others
    if (n.type == DType::complex64) return alias(node, of), skip_name();  // ATen's own
    const Box source = box(of);
    View view = source.view;
    switch (n.op) {
      case Aten::permute:
        for (int i = 0; i < n.dims.rank(); ++i) {
          view.sizes[static_cast<std::size_t>(i)] = source.view.sizes[static_cast<std::size_t>(n.dims[i])];
          view.strides[static_cast<std::size_t>(i)] = source.view.strides[static_cast<std::size_t>(n.dims[i])];
        }
        break;
      case Aten::expand:
        view = broadcast(of, listed(n.sizes));
        break;
      case Aten::slice:
      case Aten::getitem:
        view.sizes = listed(n.sizes);
        view.offset += n.number * view.strides[static_cast<std::size_t>(n.dimension)];
        view.strides[static_cast<std::size_t>(n.dimension)] *= n.step;
        break;
      default: {  // the view of what lies in a row, or of rows of another memory
        std::optional<std::vector<std::int64_t>> strides = reshaped(source.view, listed(n.sizes));
        if (!strides) refuse("a view of elements that do not follow each other is not modelled under torch.compile", "compile", "false");
        view = {listed(n.sizes), std::move(*strides), source.view.offset};
      }
    }
    box(node) = {source.storage, std::move(view)};
  }

  /// Strides of the view's elements under other sizes.
  static std::optional<std::vector<std::int64_t>> reshaped(const View& view, const std::vector<std::int64_t>& sizes) {
    std::vector<std::int64_t> strides(sizes.size());
    std::size_t next = sizes.size();
    std::int64_t elements = 1, seen = 1;
    std::size_t base = view.sizes.size();
    for (std::size_t i = view.sizes.size(); i-- > 0;) {
      if (base == view.sizes.size()) base = i;
      elements *= view.sizes[i];
      const bool ends = i == 0 || (view.sizes[i - 1] != 1 && view.strides[i - 1] != elements * view.strides[base]);
      if (!ends) continue;
      while (next > 0 && (seen < elements || sizes[next - 1] == 1)) {
        strides[--next] = seen * view.strides[base];
        seen *= sizes[next];
      }
      if (seen != elements) return std::nullopt;
      elements = seen = 1;
      base = view.sizes.size();
    }
    return strides;
  }

  void lower_cat(int node) {
    constexpr std::size_t kMostParts = 8;  // max_complex_pointwise_cat_inputs
    const FxNode& n = at(node);
    if (n.args.size() > kMostParts || !is_pointwise_cat(node)) return lower_concatenation(node);
    Expression expression{.sizes = listed(n.sizes)};
    std::int64_t start = 0;
    for (const int argument : n.args) {
      load_part(expression, argument, n.dimension, start);
      start += at(argument).sizes[n.dimension];
    }
    expression.values.emplace(node, 0);
    hold(node, std::move(expression));
  }

  /// Whether a concatenation is computed element by element: for element-wise readers, or where each part is copied anyway and none is made
  /// of sums. Parts that others read as well are written once, in their places (lowering.py, cat).
  bool is_pointwise_cat(int node) {
    const std::vector<int>& parts = at(node).args;
    const auto copied = [&](int part) {
      const int buffer = storage(part).buffer;
      if (buffer < 0) return true;
      const int maker = out_.buffers[static_cast<std::size_t>(buffer)].operation;
      return maker < 0 || !out_.operations[static_cast<std::size_t>(maker)].is_loops();
    };
    const auto made_of_sums = [&](int part) {
      const std::vector<Load>& loads = storage(part).expression.loads;
      return std::any_of(loads.begin(), loads.end(), [&](const Load& load) {
        const int maker = out_.buffers[static_cast<std::size_t>(load.buffer)].operation;
        return maker >= 0 && out_.operations[static_cast<std::size_t>(maker)].is_reduction();
      });
    };
    const auto shared = [&](int part) {
      return users(part).size() > 1 && (storage(part).buffer < 0 || std::any_of(users(part).begin(), users(part).end(), [&](int user) {
                                          return user != node && is_read_element_wise(user);
                                        }));
    };
    if (std::any_of(parts.begin(), parts.end(), shared)) return false;
    const std::vector<int>& readers = users(node);
    const bool element_wise = std::all_of(readers.begin(), readers.end(), [&](int user) { return is_read_element_wise(user); });
    if (element_wise && std::any_of(parts.begin(), parts.end(), copied)) return true;
    return std::all_of(parts.begin(), parts.end(), copied) && std::none_of(parts.begin(), parts.end(), made_of_sums);
  }
  /// Whether the reader is element-wise, or a view that only such readers have.
  bool is_read_element_wise(int reader) const {
    const Lowering lowering = rule_of(at(reader).op).lowering;
    if (lowering != Lowering::view) return lowering == Lowering::pointwise || lowering == Lowering::cat;
    return std::all_of(users(reader).begin(), users(reader).end(), [&](int user) { return is_read_element_wise(user); });
  }

  /// The parts are written where they stand in the whole (ConcatKernel), which is a buffer without a kernel.
  void lower_concatenation(int node) {
    const FxNode& n = at(node);
    std::vector<int> parts;
    for (const int argument : n.args) {
      Expression part{.sizes = listed(at(argument).sizes)};
      load_into(part, argument, box(argument).view);
      parts.push_back(compute(part, n.type, listed(n.strides)));
    }
    out_.operations.push_back({.kind = LoweredOperation::Kind::concatenation, .node = node});
    for (const int part : parts) {
      const LoweredBuffer& buffer = out_.buffers[static_cast<std::size_t>(part)];
      operation().arguments.push_back({part, buffer.sizes, n.strides});
    }
    place(node, output_of_last(n.sizes, n.type));
    for (const int part : parts) out_.buffers[static_cast<std::size_t>(part)].whole = storage(node).buffer;
  }

  /// A part of the expression that begins at `start` of that dimension: its loads are masked where it is not.
  void load_part(Expression& expression, int argument, int dimension, std::int64_t start, std::int64_t step = 1) {
    Expression part{.sizes = listed(at(argument).sizes)};
    load_into(part, argument, box(argument).view);
    for (Load load : part.loads) {
      const std::int64_t stride = load.strides[static_cast<std::size_t>(dimension)];
      load.offset -= start * stride;
      if (stride != 0) load.way = load.way * 31 + static_cast<std::size_t>(start + 1000 * (step - 1)) + 1;
      add_load(expression, load);
    }
    for (const auto& [value, how] : part.values) expression.values.emplace(value, how * 31 + static_cast<std::size_t>(start) + 1);
  }

  void lower_product(int node) {
    const FxNode& n = at(node);
    const bool biased = n.op == Aten::addmm;
    const Region left = factor(n.args[biased ? 1 : 0]), right = factor(n.args[biased ? 2 : 1]);
    LoweredOperation product{.kind = LoweredOperation::Kind::product, .node = node, .arguments = {left, right}};
    if (biased) product.arguments.push_back(factor(n.args[0]));
    product.rows = left.sizes[0], product.inner = left.sizes[1], product.columns = right.sizes[1];
    const auto is_turned = [](const Region& matrix) { return matrix.strides[1] != 1; };
    product.turned = is_turned(left) ? Turned::left : is_turned(right) ? Turned::right : Turned::neither;
    out_.operations.push_back(std::move(product));
    place(node, output_of_last(n.sizes, n.type));
  }

  void skip_name() {
    if (!out_.operations.empty()) ++operation().names_behind;
  }

  /// The node as a call reads it.
  Box held_copy(int node) {
    storages_.push_back({.buffer = region(node).buffer, .sizes = {at(node).elements()}, .strides = {1}, .type = at(node).type});
    return {static_cast<int>(storages_.size()) - 1, {listed(at(node).sizes), listed(at(node).strides), 0}};
  }

  void add_call(int node) {
    LoweredOperation call{.kind = LoweredOperation::Kind::call, .node = node};
    for (const int argument : at(node).args) call.arguments.push_back(region(argument));
    out_.operations.push_back(std::move(call));
  }

  void lower_call(int node) {
    const FxNode& n = at(node);
    switch (n.op) {
      case Aten::view_as_complex:
      case Aten::view_as_real:
      case Aten::conjugate:
        box(n.args.front()) = held_copy(n.args.front());
        alias(node, n.args.front());
        return skip_name();
      case Aten::table_rows:
      case Aten::gather_rows:
        if (n.type != DType::complex64) return lower_table(node);
        add_call(node);
        return place(node, output_of_last(n.sizes, n.type));
      case Aten::wait:
        alias(node, n.args.front());
        skip_name();
        return skip_name();
      default:
        add_call(node);
        place(node, output_of_last(n.sizes, n.type));
    }
  }

  /// Rows of a table: which one, a load tells.
  void lower_table(int node) {
    const FxNode& n = at(node);
    Expression expression{.sizes = listed(n.sizes)};
    View positions = box(n.args[1]).view;
    positions.sizes.push_back(n.sizes[-1]);
    positions.strides.push_back(0);
    load_into(expression, n.args[1], positions);
    constexpr std::size_t kByPosition = 1;
    add_load(expression, {storage(n.args[0]).buffer, in_a_row(expression.sizes), 0, kByPosition});
    hold(node, std::move(expression));
  }

  void lower_several(int node) {
    const FxNode& n = at(node);
    if (n.op == Aten::split) {
      box(node) = box(n.args.front());
      return;
    }
    if (n.op == Aten::var_mean) return lower_var_mean(node);
    if (n.op == Aten::flex_attention_backward) return lower_flex_backward(node);
    add_call(node);
    if (n.op == Aten::flex_attention) return place_flex(node);
    place_results(node, {0, 1, 2, 3});
    // The tensors that the forward gives: flash attention's last is empty, the memory-efficient one's, which takes a bias, are four.
    const int named = n.args.size() > 3 ? 4 : 5;
    if (n.op == Aten::attention) operation().names_behind += named - static_cast<int>(operation().outputs.size());
  }

  /// The kernel writes both of its results into buffers that the graph makes, read or not; two names are those of what it is told.
  void place_flex(int node) {
    const Dims heads = at(at(node).args.front()).sizes;
    place_results(node, {1});
    if (operation().outputs.empty()) {
      output_of_last({heads[0], heads[1], heads[2]}, DType::fp32);
      operation().results = {1};
    }
    place_results(node, {0});
    operation().names_behind += 2;
  }

  /// The results that are read, in the order in which the call makes them.
  void place_results(int node, const std::vector<int>& order) {
    for (const int number : order) {
      for (const int item : users(node)) {
        if (at(item).number != number) continue;
        place(item, output_of_last(at(item).sizes, at(item).type));
        operation().results.push_back(number);
      }
    }
  }

  /// The product of the gradient and the output summed over a head, then the one kernel.
  void lower_flex_backward(int node) {
    const FxNode& n = at(node);
    const int output = n.args[3], gradient = n.args[5];
    skip_name();
    const std::vector<std::int64_t> rows = listed(at(n.args[4]).sizes), width{at(output).sizes[-1]};
    const auto load = [&](int argument) {
      const Region region_of_it = region(argument);
      return Load{region_of_it.buffer, listed(region_of_it.strides), 0};
    };
    const std::vector<Load> loads{load(output), load(gradient)};
    out_.operations.push_back(loops(LoweredOperation::Kind::reduction, rows, in_a_row(rows), width, loads));
    const int delta = output_of_last(at(n.args[4]).sizes, DType::fp32);
    add_call(node);
    operation().arguments.push_back({delta, at(n.args[4]).sizes, contiguous_strides(at(n.args[4]).sizes)});
    place_results(node, {0, 2, 1});
    ++operation().names_behind;
  }

  const FxGraph& graph_;
  const Tape& tape_;
  std::vector<std::vector<int>> users_;
  std::vector<Box> boxes_;
  std::vector<Storage> storages_;
  std::vector<bool> is_result_;
  LoweredGraph out_;
};

}  // namespace

std::vector<int> loop_order(const std::vector<std::int64_t>& sizes, const std::vector<std::vector<std::int64_t>>& strides) {
  std::vector<int> order(sizes.size());
  std::iota(order.rbegin(), order.rend(), 0);  // the innermost first
  const auto inside = [&](int a, int b) {
    const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
    if (sizes[i] == 1 || sizes[j] == 1) return sizes[i] != 1 && sizes[j] == 1;
    int first = 0, second = 0;
    for (const std::vector<std::int64_t>& steps : strides) {
      first += steps[j] == 0 || steps[i] < steps[j] ? 1 : 0;
      second += steps[i] == 0 || steps[j] < steps[i] ? 1 : 0;
    }
    return first != second ? first > second : a > b;
  };
  std::stable_sort(order.begin(), order.end(), inside);
  std::reverse(order.begin(), order.end());
  return order;
}

std::int64_t LoweredOperation::kept_elements() const { return product_of(kept); }
std::int64_t LoweredOperation::summed_elements() const { return product_of(summed); }

LoweredGraph lower(const FxGraph& graph, const Tape& tape) { return Lowerer(graph, tape).run(); }

}  // namespace plimsoll::program::inductor
