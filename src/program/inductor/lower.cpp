#include "program/inductor/lower.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "plimsoll/error.hpp"
#include "plimsoll/units.hpp"
#include "program/inductor/expressions.hpp"
#include "program/inductor/realize.hpp"

namespace plimsoll::program::inductor {

namespace {

/// Each operator's lowering (torch/_inductor/lowering.py, kernel/mm.py).
class Lowerer : private Realizer {
 public:
  Lowerer(const FxGraph& graph, const Tape& tape) : Realizer(graph, tape) {}

  LoweredGraph run(std::size_t results) {
    for (int node = 0; node < graph_.size(); ++node) {
      lower(node);
      realize_by_rule(node);
    }
    for (const int output : graph_.outputs) {
      const bool saved = out_.results.size() >= results && output >= 0;
      out_.results.push_back(output < 0 ? Region{} : saved ? as_it_lies(output) : region(output));
    }
    return std::move(out_);
  }

 private:
  void lower(int node) {
    switch (rule_of(at(node).op).lowering) {
      case Lowering::input:
        return place(node,
                     add_buffer({.name = at(node).name, .input = node, .operation = -1, .sizes = at(node).sizes, .type = at(node).type}));
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
      case Lowering::scan:
        return lower_scan(node);
      case Lowering::rows:
        return lower_table(node);
      case Lowering::element:
        return lower_element(node);
      case Lowering::scatter:
        return lower_scatter(node);
    }
  }

  /// The expression, of the node's sizes, computes it as well.
  void compute_here(Expression& expression, int node, std::size_t way = 0) const {
    const std::int64_t period = common_period(expression);
    Load value{node, in_a_row(listed(at(node).sizes)), 0, period > 0 ? kPeriodic : way};
    value.period = period;
    add_load(expression.values, std::move(value));
  }

  /// The places after which all begins anew that the expression reads along its last dimension; 0: never.
  std::int64_t common_period(const Expression& expression) const {
    std::int64_t period = 0;
    for (const std::vector<Load>* all : {&expression.loads, &expression.values}) {
      for (const Load& load : *all) {
        const bool copies = all == &expression.values && at(load.buffer).op == Aten::clone;  // which computes nothing
        if (copies || load.strides.empty() || load.strides.back() == 0) continue;
        if (load.period == 0 || (period != 0 && load.period != period)) return 0;
        period = load.period;
      }
    }
    return period;
  }

  void lower_pointwise(int node) {
    Expression expression{.sizes = listed(at(node).sizes)};
    if (at(node).op == Aten::slice_scatter) {
      load_slice(expression, node);
    } else if (at(node).op == Aten::pad) {
      load_part(expression, at(node).args.front(), at(node).dimension, 0);
    } else if (at(node).op == Aten::select_scatter) {
      View everywhere = box(at(node).args.front()).view;
      everywhere.sizes = expression.sizes;
      everywhere.strides.insert(everywhere.strides.begin() + at(node).dimension, 0);
      load_into(expression, at(node).args.front(), everywhere);
    } else if (at(node).op == Aten::index) {
      const View& rows = box(at(node).args.front()).view;
      View everywhere{expression.sizes, {rows.strides[0], 0, 0, 0}, rows.offset};
      everywhere.strides[static_cast<std::size_t>(at(node).dimension)] = rows.strides[1];
      load_into(expression, at(node).args.front(), everywhere);
    } else if (at(node).op == Aten::seed) {
      add_load(expression.loads, {realize(at(node).args.front()), {}, at(node).number});
    } else {
      for (const int argument : at(node).args) load_into(expression, argument, broadcast(argument, expression.sizes));
    }
    compute_here(expression, node);
    hold(node, std::move(expression));
    if (at(node).op == Aten::seeds || at(node).op == Aten::random) realize(node);
    if (at(node).op == Aten::pad) put(node, strides_of_padded(at(node)));  // a loss's labels, which its gradient reads, and what products read
  }

  static std::vector<std::int64_t> strides_of_padded(const FxNode& n) {
    return n.type == DType::int64 ? padded_strides(n.sizes, n.type) : listed(n.strides);
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
    if (const int most = maximum_within(node); most >= 0)
      std::erase_if(expression.loads, [&](const Load& load) { return load.buffer == storage(most).buffer; });
    const bool outer = n.sums(0) && !n.sums(whole.sizes.size() - 1);
    const std::int64_t rows = product_of(summed), columns = product_of(kept);
    const std::int64_t parts = outer ? outer_sum_splits(tape_, rows, columns) : 1;
    if (parts > 1) {
      if (!follow_each_other(expression.loads, kept))
        refuse("a sum over rows of several dimensions is not modelled under torch.compile", "compile", "false");
      sum_in_parts(node, expression, kept.size(), rows, columns, parts);
    } else {
      const std::vector<std::int64_t> strides = strides_like(kept, expression.loads);
      out_.operations.push_back(loops(LoweredOperation::Kind::reduction, kept, strides, summed, expression.loads));
      place(node, output_of_last(n.sizes, n.type));
      spread(node, strides);
    }
    if (n.op == Aten::mean) divide(node);
  }

  /// Of a sum of exponentials of what is less its maximum, the node of that: the kernel of both finds it on its way
  /// (prims.prepare_softmax_online); else -1.
  int maximum_within(int node) const {
    const int exponential = at(node).args.front();
    if (at(node).op != Aten::sum || at(exponential).op != Aten::exp) return -1;
    const FxNode& difference = at(at(exponential).args.front());
    if (difference.op != Aten::subtract || at(difference.args[1]).op != Aten::amax) return -1;
    return at(difference.args[1]).args.front() == difference.args[0] ? difference.args[1] : -1;
  }

  /// A running sum along the last dimension, by a kernel of its own.
  void lower_scan(int node) {
    const FxNode& n = at(node);
    const View& view = box(n.args.front()).view;
    Expression expression{.sizes = view.sizes};
    load_into(expression, n.args.front(), view);
    const std::vector<std::int64_t> kept(view.sizes.begin(), view.sizes.end() - 1), summed{view.sizes.back()};
    std::vector<std::int64_t> places = listed(n.strides);
    places.pop_back();
    out_.operations.push_back(loops(LoweredOperation::Kind::reduction, kept, places, summed, expression.loads));
    place(node, output_of_last(n.sizes, n.type));
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
      if (step > 0) compute_here(expression, node, static_cast<std::size_t>(step));
    }
    hold(node, std::move(expression));
  }

  /// var_mean: mean and squares of what lies along the last dimension by one kernel of three results, of which nobody reads the count
  /// (Welford).
  void lower_var_mean(int node) {
    constexpr std::int64_t kMean = 1;
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

  /// Whether the loads go through the dimensions that are kept as through one.
  static bool follow_each_other(const std::vector<Load>& loads, const std::vector<std::int64_t>& kept) {
    return std::all_of(loads.begin(), loads.end(), [&](const Load& load) {
      for (std::size_t i = 0; i + 1 < kept.size(); ++i)
        if (load.strides[i] != load.strides[i + 1] * kept[i + 1]) return false;
      return true;
    });
  }

  /// A sum over rows in two steps: of each part of them, then of the parts. What is kept is one dimension.
  void sum_in_parts(int node, const Expression& expression, std::size_t kept, std::int64_t rows, std::int64_t columns, std::int64_t parts) {
    const FxNode& n = at(node);
    const std::int64_t each = ceil_div(rows, parts);
    std::vector<Load> loads;
    for (const Load& load : expression.loads) {
      // The loops' dimensions are the columns', then the rows': one each here, where the rows follow each other.
      const std::int64_t column = load.strides[kept - 1], row = load.strides.back();
      loads.push_back({load.buffer, {column, row * each, row}, load.offset, load.way});
    }
    out_.operations.push_back(loops(LoweredOperation::Kind::reduction, {columns, parts}, {1, columns}, {each}, loads));
    operation().whole = {columns, rows};
    const int partial = output_of_last({parts, columns}, DType::fp32);
    out_.operations.push_back(loops(LoweredOperation::Kind::reduction, {columns}, {1}, {parts}, {{partial, {1, columns}, 0}}));
    place(node, output_of_last(n.sizes, n.type));
  }

  /// mean: the sum, times one over the count, which its readers compute; so is a variance of what Welford's kernel gives.
  void divide(int node) {
    Expression expression{.sizes = listed(at(node).sizes), .loads = {{storage(node).buffer, box(node).view.strides, 0}}};
    compute_here(expression, node);
    hold(node, std::move(expression));
  }

  void lower_view(int node) {
    const FxNode& n = at(node);
    const int of = n.args.front();
    if (rule_of(at(of).op).lowering == Lowering::several && at(of).op != Aten::split) return;  // a result, placed with the others
    if (n.type == DType::complex64) return alias(node, of), skip_name();                       // ATen's own
    const Box source = box(of);
    View view = source.view;
    switch (n.op) {
      case Aten::permute:
        for (int i = 0; i < n.dims.rank(); ++i) {
          view.sizes[static_cast<std::size_t>(i)] = source.view.sizes[static_cast<std::size_t>(n.dims[i])];
          view.strides[static_cast<std::size_t>(i)] = source.view.strides[static_cast<std::size_t>(n.dims[i])];
        }
        break;
      case Aten::select:
        view.offset += n.number * view.strides[static_cast<std::size_t>(n.dimension)];
        view.sizes.erase(view.sizes.begin() + n.dimension);
        view.strides.erase(view.strides.begin() + n.dimension);
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
        if (!strides) return view_apart(node, of);
        view = {listed(n.sizes), std::move(*strides), source.view.offset};
      }
    }
    box(node) = {source.storage, std::move(view)};
  }

  /// A view of elements that do not follow each other: readers compute where each is, or copy them.
  void view_apart(int node, int of) {
    const std::vector<std::int64_t> sizes = listed(at(node).sizes);
    Expression elements{.sizes = box(of).view.sizes};
    load_into(elements, of, box(of).view);
    storages_.push_back({.expression = std::move(elements), .sizes = box(of).view.sizes, .type = at(of).type});
    box(node) = {static_cast<int>(storages_.size()) - 1, {sizes, in_a_row(sizes), 0}};
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
    compute_here(expression, node);
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
      return users(part).size() > 1 &&
             (storage(part).buffer < 0 ||
              std::any_of(users(part).begin(), users(part).end(), [&](int user) { return user != node && is_read_element_wise(user); }));
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
      parts.push_back(compute(part, n.type, padded_strides(n.sizes, n.type), true));
    }
    out_.operations.push_back({.kind = LoweredOperation::Kind::concatenation, .node = node});
    for (const int part : parts) {
      const LoweredBuffer& buffer = out_.buffers[static_cast<std::size_t>(part)];
      operation().arguments.push_back({part, buffer.sizes, n.strides});  // wherever in the whole
    }
    place_as(node, output_of_last(n.sizes, n.type), padded_strides(n.sizes, n.type));
    for (const int part : parts) out_.buffers[static_cast<std::size_t>(part)].whole = storage(node).buffer;
  }

  /// A part of the expression that begins at `start` of that dimension: its loads are masked where it is not.
  void load_part(Expression& expression, int argument, int dimension, std::int64_t start) {
    Expression part{.sizes = listed(at(argument).sizes)};
    load_into(part, argument, box(argument).view);
    const auto masked = [&](Load load) {
      const std::int64_t stride = load.strides[static_cast<std::size_t>(dimension)];
      load.offset -= start * stride;
      if (stride != 0) load.way = load.way * 31 + static_cast<std::size_t>(start) + 1, load.once = false;
      return load;
    };
    for (const Load& load : part.loads) add_load(expression.loads, masked(load));
    for (const Load& value : part.values) add_load(expression.values, masked(value));
  }

  /// A slice put among zeros (slice_scatter): its loads go through their buffer as before, from `start` on, every `step`-th in steps of
  /// one.
  void load_slice(Expression& expression, int node) {
    const FxNode& n = at(node);
    const auto dimension = static_cast<std::size_t>(n.dimension);
    Expression slice{.sizes = listed(at(n.args.front()).sizes)};
    load_into(slice, n.args.front(), box(n.args.front()).view);
    const auto shifted = [&](Load load) {
      if (n.step > 1 && load.strides[dimension] != 0) load.way = load.way * 31 + static_cast<std::size_t>(n.number) + 1;
      load.once = false;
      load.offset -= n.number * load.strides[dimension];
      return load;
    };
    for (const Load& load : slice.loads) add_load(expression.loads, shifted(load));
    for (const Load& value : slice.values) add_load(expression.values, shifted(value));
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

  /// The loads of what is computed at a place of the last dimension that another tensor tells.
  void lower_element(int node) {
    const FxNode& n = at(node);
    const int of = n.args[0], which = n.args[1];
    Expression expression{.sizes = listed(n.sizes)}, everywhere{.sizes = box(of).view.sizes};
    load_into(expression, which, box(which).view);
    load_into(everywhere, of, box(of).view);
    const auto there = [&](Load load) {
      if (load.strides.back() != 0) load.way = kByPosition, load.once = false;
      load.strides.back() = 0;
      return load;
    };
    for (const Load& load : everywhere.loads) add_load(expression.loads, there(load));
    for (const Load& value : everywhere.values) add_load(expression.values, there(value));
    compute_here(expression, node);
    hold(node, std::move(expression));
  }

  /// index_put into zeros: a kernel adds what is not masked to their rows, which other tensors tell.
  void lower_scatter(int node) {
    const FxNode& n = at(node);
    const int into = realize(n.args[0]), mask = n.args[1], rows = n.args[2], values = n.args[3];
    Expression expression{.sizes = listed(at(values).sizes)};
    load_into(expression, mask, broadcast(mask, expression.sizes));
    View places = box(rows).view;
    places.sizes.push_back(expression.sizes.back());
    places.strides.push_back(0);
    load_into(expression, rows, places);
    load_into(expression, values, box(values).view);
    add_load(expression.loads, {into, in_a_row(expression.sizes), 0, kByPosition});
    out_.operations.push_back(loops(LoweredOperation::Kind::pointwise, expression.sizes, in_a_row(expression.sizes), {}, expression.loads));
    operation().changes = into;
    place(node, output_of_last(n.sizes, n.type));
  }

  static constexpr std::size_t kByPosition = 1;  ///< the way of a load whose place another one tells

  /// Rows of a table: which one, a load tells.
  void lower_table(int node) {
    const FxNode& n = at(node);
    Expression expression{.sizes = listed(n.sizes)};
    View positions = box(n.args[1]).view;
    positions.sizes.push_back(n.sizes[-1]);
    positions.strides.push_back(0);
    load_into(expression, n.args[1], positions);
    add_load(expression.loads, {storage(n.args[0]).buffer, in_a_row(expression.sizes), 0, kByPosition});
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
    if (n.op == Aten::attention || n.op == Aten::attention_backward) return lower_attention(node);
    add_call(node);
    return place_flex(node);
  }

  /// The operator's results lie as what it is given does, those of the memory-efficient kernels with heads within rows.
  void lower_attention(int node) {
    const FxNode& n = at(node);
    LoweredOperation call{.kind = LoweredOperation::Kind::call, .node = node};
    const bool forward = n.op == Aten::attention;
    const std::size_t heads = forward ? 0 : 1, unbiased = forward ? 3 : 8;
    for (std::size_t i = 0; i < n.args.size(); ++i) call.arguments.push_back(attended(n.args[i], forward && i == unbiased));
    out_.operations.push_back(std::move(call));
    const std::vector<Region> given = operation().arguments;
    for (const int number : {0, 1, 2, 3}) {
      place_results(node, {number});
      if (n.kernels == AttentionKernels::efficient || number > (forward ? 0 : 2)) continue;
      const Region& like = given[heads + static_cast<std::size_t>(number)];
      for (const int item : users(node))
        if (at(item).number == number)
          place_as(item, storage(item).buffer, strides_like(listed(at(item).sizes), {Load{like.buffer, listed(like.strides)}}));
    }
    // The tensors that the forward gives: flash attention's last is empty.
    const int named = n.kernels == AttentionKernels::flash ? 5 : 4;
    if (forward) operation().names_behind += named - static_cast<int>(operation().outputs.size());
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
};

}  // namespace

std::int64_t LoweredOperation::kept_elements() const { return product_of(kept); }
std::int64_t LoweredOperation::summed_elements() const { return product_of(summed); }

LoweredGraph lower(const FxGraph& graph, const Tape& tape, std::size_t results) { return Lowerer(graph, tape).run(results); }

}  // namespace plimsoll::program::inductor
