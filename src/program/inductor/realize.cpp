#include "program/inductor/realize.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "plimsoll/units.hpp"

namespace plimsoll::program::inductor {

Realizer::Realizer(const FxGraph& graph, const Tape& tape) : graph_(graph), tape_(tape), users_(graph.users()), boxes_(graph.nodes.size()) {
  is_result_.resize(graph.nodes.size());
  for (const int output : graph.outputs)
    if (output >= 0) is_result_[static_cast<std::size_t>(output)] = true;
}

int Realizer::add_buffer(LoweredBuffer buffer) {
  out_.buffers.push_back(std::move(buffer));
  return static_cast<int>(out_.buffers.size()) - 1;
}

int Realizer::output_of_last(const Dims& sizes, DType type) {
  const int buffer = add_buffer({.operation = static_cast<int>(out_.operations.size()) - 1, .sizes = sizes, .type = type});
  operation().outputs.push_back(buffer);
  return buffer;
}

std::vector<std::int64_t> Realizer::with_whole_rows(const std::vector<std::int64_t>& sizes, std::vector<std::int64_t> strides, DType type) {
  constexpr std::int64_t kPaddedStride = 1024, kWholeBytes = 128;
  if (type == DType::boolean || type == DType::int64) return strides;
  std::vector<std::size_t> inside_out(sizes.size());
  std::iota(inside_out.begin(), inside_out.end(), std::size_t{0});
  std::stable_sort(inside_out.begin(), inside_out.end(), [&](std::size_t a, std::size_t b) { return strides[a] < strides[b]; });
  std::int64_t next = 1;
  for (const std::size_t dimension : inside_out) {
    if (sizes[dimension] == 1) continue;
    if (next > kPaddedStride) next = round_up(next, kWholeBytes / size_of(type));
    strides[dimension] = next;
    next *= sizes[dimension];
  }
  return strides;
}

std::vector<std::int64_t> Realizer::padded_strides(const Dims& sizes, DType type) {
  std::vector<std::int64_t> strides = listed(contiguous_strides(sizes));
  if (type == DType::int64 && sizes.rank() == 2) strides[0] = padded_elements({2, sizes[1]}, type) - sizes[1];
  return strides;
}

void Realizer::place_as(int node, int buffer, const std::vector<std::int64_t>& strides) {
  out_.buffers[static_cast<std::size_t>(buffer)].strides = strides;
  place_within(node, buffer, at(node));
  box(node).view.strides = strides;
}

void Realizer::alias(int node, int of) { place_within(node, storage(of).buffer, at(node)); }

void Realizer::place_within(int node, int buffer, const FxNode& as) {
  storages_.push_back({.buffer = buffer, .sizes = {as.elements()}, .strides = {1}, .type = as.type});
  box(node) = {static_cast<int>(storages_.size()) - 1, {listed(as.sizes), listed(as.strides), 0}};
}

const std::vector<std::int64_t>& Realizer::strides_of(const Storage& s) const {
  return s.strides.empty() ? out_.buffers[static_cast<std::size_t>(s.buffer)].strides : s.strides;
}

void Realizer::load_into(Expression& expression, int node, const View& view) {
  const Storage& source = storage(node);
  if (source.buffer >= 0) {
    add_load(expression.loads, seen_through({source.buffer, strides_of(source), 0}, source.sizes, view));
    return;
  }
  const Expression& seen = source.expression;
  for (const Load& load : seen.loads) add_load(expression.loads, seen_through(load, seen.sizes, view));
  for (const Load& value : seen.values) add_load(expression.values, seen_through(value, seen.sizes, view));
}

View Realizer::broadcast(int argument, const std::vector<std::int64_t>& sizes) {
  const View& own = box(argument).view;
  View view{sizes, std::vector<std::int64_t>(sizes.size()), own.offset};
  const std::size_t added = sizes.size() - own.sizes.size();
  for (std::size_t i = 0; i < own.sizes.size(); ++i)
    view.strides[i + added] = own.sizes[i] == 1 && sizes[i + added] != 1 ? 0 : own.strides[i];
  return view;
}

void Realizer::hold(int node, Expression expression) {
  storages_.push_back({.expression = std::move(expression), .sizes = listed(at(node).sizes), .type = at(node).type});
  box(node) = {static_cast<int>(storages_.size()) - 1, whole_view(at(node).sizes)};
}

int Realizer::operations_of(const Expression& expression) const {
  int count = static_cast<int>(expression.loads.size());
  std::set<Shared> shared;
  std::set<int> counted;
  for (const Load& value : expression.values) {
    const int node = value.buffer;
    count += operations_of(node);
    add_steps(shared, node, hash_of(value));
    if (at(node).op == Aten::slice_scatter) add_bounds(shared, value);
    if (at(node).op == Aten::cat) add_parts(shared, value);
    if (at(node).op == Aten::select_scatter) {  // which element it is, which one is meant, and zero elsewhere
      shared.emplace(kConstant, 0, 0, 0);
      shared.emplace(kIndex, 0, at(node).dimension, hash_of(value));
      shared.emplace(kBound, 0, at(node).number, 0);
    }
    if (at(node).op == Aten::getitem) {  // a variance divides by the larger one of 0 and the count less its correction
      shared.emplace(kConstant, 0, 0, 0);
      shared.emplace(kConstant, 0, node, 1);
    }
    if (!counted.insert(node).second) continue;
    if (at(node).constant) {
      shared.emplace(kConstant, *at(node).constant, 0, 0);
    } else {
      count += rule_of(at(node).op).constants;
    }
  }
  return count + static_cast<int>(shared.size());
}

void Realizer::add_steps(std::set<Shared>& shared, int node, std::size_t way) const {
  const FxNode& n = at(node);
  const auto converted = [&](int arg, DType type) { shared.emplace(kConverted, static_cast<double>(type), arg, way); };
  if (n.op == Aten::convert) converted(n.args[0], n.type);
  if (n.op == Aten::power)
    for (std::int64_t exponent = 2; exponent <= n.number; ++exponent) shared.emplace(kPower, static_cast<double>(exponent), n.args[0], way);
  if (n.args.size() != 2 || at(n.args[0]).type == at(n.args[1]).type || n.op == Aten::cat) return;
  const bool first = size_of(at(n.args[0]).type) < size_of(at(n.args[1]).type);  // the lower one is converted
  converted(n.args[first ? 0 : 1], at(n.args[first ? 1 : 0]).type);
}

void Realizer::add_bounds(std::set<Shared>& shared, const Load& value) const {
  const int node = value.buffer;
  const FxNode& n = at(node);
  const auto dimension = static_cast<std::size_t>(n.dimension);
  const std::int64_t place = in_a_row(listed(n.sizes))[dimension];
  const bool own = value.way == 0 && value.strides.size() == static_cast<std::size_t>(n.sizes.rank());
  const Load index{n.dimension, {own ? value.strides[dimension] / place : 0}, own ? value.offset / place : 0, own ? 0 : hash_of(value)};
  shared.emplace(kConstant, 0, 0, 0);
  shared.emplace(kIndex, 0, n.dimension, hash_of(index));
  if (n.number != 0) shared.emplace(kBound, 0, n.number, 0);
  if (n.step > 1) shared.emplace(kConstant, 0, 1, 0);  // a whole number
  if (ends_inside(node)) shared.emplace(kBound, 0, n.number + at(n.args.front()).sizes[n.dimension], 0);
}

void Realizer::add_parts(std::set<Shared>& shared, const Load& value) const {
  const FxNode& n = at(value.buffer);
  shared.emplace(kIndex, 1, n.dimension, hash_of(value));
  shared.emplace(kConstant, 0, 1, 0);
  std::int64_t end = 0;
  for (const int part : n.args) shared.emplace(kBound, 0, end += at(part).sizes[n.dimension], 0);
}

bool Realizer::ends_inside(int node) const {
  const FxNode& n = at(node);
  return n.step == 1 && n.number + at(n.args.front()).sizes[n.dimension] != n.sizes[n.dimension];
}

int Realizer::operations_of(int node) const {
  const FxNode& n = at(node);
  if (n.op == Aten::slice_scatter) {  // comparisons, and what joins them; of steps the remainder and its comparison; a mask, a choice
    const int comparisons = (n.number != 0 ? 1 : 0) + (ends_inside(node) ? 1 : 0) + (n.step > 1 ? 1 : 0);
    return 2 * comparisons - 1 + (n.step > 1 ? 1 : 0) + 2;
  }
  if (n.op == Aten::getitem) return 3;
  if (n.op == Aten::cat) {  // of each part two comparisons and a mask, of those between what joins them, of all but the last a choice
    const int parts = static_cast<int>(n.args.size());
    return 2 * parts + parts + (parts - 2) + (parts - 1);
  }
  return rule_of(n.op).operations;
}

int Realizer::realize(int node, bool as_it_lies) {
  const Storage& made = storage(node);
  if (made.buffer >= 0) return made.buffer;
  const Expression& expression = made.expression;
  const bool whole = listed(at(node).sizes) == expression.sizes && box(node).view.strides == in_a_row(expression.sizes);
  if (as_it_lies && whole) return put(node, listed(at(node).strides), true);
  // A view of other sizes takes a buffer that may lie anyhow in a row, and not otherwise from then on (ir.py, View.create).
  const bool viewed = std::any_of(users(node).begin(), users(node).end(), [&](int user) { return at(user).op == Aten::view; });
  if (whole && viewed) {
    const int fixed = put(node, in_a_row(expression.sizes), true);
    out_.buffers[static_cast<std::size_t>(fixed)].loose = true;
    return fixed;
  }
  const int buffer = put(node, chosen_strides(node));
  out_.buffers[static_cast<std::size_t>(buffer)].loose = true;
  return buffer;
}

std::vector<std::int64_t> Realizer::chosen_strides(int node) {
  const Expression& expression = storage(node).expression;
  const auto is_read_by = [&](Aten op) {
    return std::any_of(users(node).begin(), users(node).end(), [&](int user) { return at(user).op == op; });
  };
  const bool attended = is_read_by(Aten::attention) || is_read_by(Aten::attention_backward);
  return strides_like(expression.sizes, attended ? with_loose_in_a_row(expression.loads) : expression.loads);
}

std::vector<Load> Realizer::with_loose_in_a_row(std::vector<Load> loads) const {
  for (Load& load : loads) {
    const LoweredBuffer& buffer = out_.buffers[static_cast<std::size_t>(load.buffer)];
    if (!buffer.loose) continue;
    const std::vector<std::int64_t> row = in_a_row(listed(buffer.sizes));
    for (std::int64_t& stride : load.strides) {
      const auto found = std::find(buffer.strides.begin(), buffer.strides.end(), stride);
      if (stride != 0 && found != buffer.strides.end()) stride = row[static_cast<std::size_t>(found - buffer.strides.begin())];
    }
  }
  return loads;
}

int Realizer::put(int node, std::vector<std::int64_t> strides, bool fixed) {
  const Expression expression = std::exchange(storage(node).expression, {});
  return storage(node).buffer = compute(expression, storage(node).type, std::move(strides), fixed);
}

int Realizer::compute(const Expression& expression, DType type, std::vector<std::int64_t> strides, bool fixed) {
  if (!fixed) strides = with_whole_rows(expression.sizes, std::move(strides), type);
  out_.operations.push_back(loops(LoweredOperation::Kind::pointwise, expression.sizes, strides, {}, expression.loads));
  Dims sizes;
  for (const std::int64_t size : expression.sizes) sizes.push_back(size);
  const int buffer = output_of_last(sizes, type);
  out_.buffers[static_cast<std::size_t>(buffer)].strides = std::move(strides);
  return buffer;
}

Region Realizer::region(int node) {
  const Storage& source = storage(node);
  const bool whole = box(node).view.sizes == source.sizes && box(node).view.strides == in_a_row(source.sizes) && box(node).view.offset == 0;
  if (source.buffer >= 0 || whole) return {realize(node, true), at(node).sizes, at(node).strides};
  Expression copy{.sizes = box(node).view.sizes};
  load_into(copy, node, box(node).view);
  return {compute(copy, source.type, listed(at(node).strides), true), at(node).sizes, at(node).strides};
}

Region Realizer::as_it_lies(int node) {
  Region known = region(node);
  const Storage& source = storage(node);
  if (source.buffer != known.buffer) return known;  // a copy
  const Load load = seen_through({source.buffer, strides_of(source), 0}, source.sizes, box(node).view);
  if (load.way != 0 || load.strides.empty() || load.strides.back() != 1) return known;
  for (int i = 0; i < known.sizes.rank(); ++i)
    if (known.sizes[i] != 1) known.strides[i] = load.strides[static_cast<std::size_t>(i)];
  return known;
}

Region Realizer::attended(int node, bool bias) {
  const FxNode& n = at(node);
  if (storage(node).buffer >= 0) return as_it_lies(node);
  View view = box(node).view;
  Dims sizes = n.sizes, strides = n.strides;
  bool expanded = false;
  for (int i = 0; i < n.sizes.rank(); ++i) {
    if (n.strides[i] != 0 || n.sizes[i] == 1) continue;
    expanded = true;
    if (bias) view.sizes[static_cast<std::size_t>(i)] = sizes[i] = 1;
  }
  if (expanded) strides = contiguous_strides(sizes);
  Expression copy{.sizes = view.sizes};
  load_into(copy, node, view);
  const int buffer = compute(copy, n.type, listed(strides), true);
  for (int i = 0; i < n.sizes.rank(); ++i)
    if (sizes[i] != n.sizes[i]) strides[i] = 0;
  return {buffer, n.sizes, strides};
}

Region Realizer::factor(int node) {
  if (storage(node).buffer < 0) put(node, in_a_row(storage(node).expression.sizes), true);
  return {storage(node).buffer, at(node).sizes, at(node).strides};
}

void Realizer::fix(int node) {
  Expression copy{.sizes = box(node).view.sizes};
  load_into(copy, node, box(node).view);
  place(node, compute(copy, storage(node).type, listed(at(node).strides), true));
}

void Realizer::realize_by_rule(int node) {
  constexpr int kMostLoadsOfReused = 4, kMostLoads = 8, kMostOperations = 30, kMostInlined = 100;
  if (box(node).storage < 0) return;
  if (is_result_[static_cast<std::size_t>(node)]) realize(node, true);
  const auto pending = [&] { return storage(node).buffer < 0; };
  const auto loads = [&] { return static_cast<int>(storage(node).expression.loads.size()); };
  const auto count = [&] { return operations_of(storage(node).expression); };
  if (pending() && users(node).size() > 1) {
    const bool read_by_call = std::any_of(users(node).begin(), users(node).end(), [&](int user) {  // needs_realized_inputs
      const Lowering lowering = rule_of(at(user).op).lowering;
      const bool of_several = lowering == Lowering::several && at(user).op != Aten::split && at(user).op != Aten::var_mean;
      return lowering == Lowering::product || lowering == Lowering::call || of_several;
    });
    const bool multiplied = std::any_of(users(node).begin(), users(node).end(), [&](int user) { return at(user).op == Aten::product; });
    if (read_by_call && loads() > 1) {
      // What a product reads is fixed as it lies, or where it is a view of another size as that lies in a row
      // (convert_to_reinterpret_view).
      const std::vector<std::int64_t> sizes = storage(node).expression.sizes;
      if (multiplied) {
        put(node, sizes == listed(at(node).sizes) ? listed(at(node).strides) : in_a_row(sizes), true);
      } else {
        realize(node);
      }
    }
    if (multiplied && pending()) fix(node);
  }
  if (pending() && users(node).size() > 1 && (count() > kMostOperations || loads() > kMostLoadsOfReused)) realize(node);
  if (pending() && (loads() > kMostLoads || count() > kMostOperations) && loads() > 1) realize(node);
  if (pending() && count() > kMostInlined) realize(node);
}

}  // namespace plimsoll::program::inductor
