#include "program/inductor/realize.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "plimsoll/error.hpp"

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
  check_rows(sizes, type);
  const int buffer = add_buffer({.operation = static_cast<int>(out_.operations.size()) - 1, .sizes = sizes, .type = type});
  operation().outputs.push_back(buffer);
  return buffer;
}

void Realizer::check_rows(const Dims& sizes, DType type) {
  constexpr std::int64_t kPaddedRow = 1024, kWholeBytes = 128;
  if (type == DType::boolean || sizes.rank() < 2 || sizes[-1] <= kPaddedRow || sizes[-1] * size_of(type) % kWholeBytes == 0) return;
  refuse("rows of " + std::to_string(sizes[-1]) + " elements, which Inductor pads, are not modelled under torch.compile", "compile",
         "sizes that are multiples of 64");
}

void Realizer::place(int node, int buffer) {
  out_.buffers[static_cast<std::size_t>(buffer)].strides = listed(at(node).strides);
  place_within(node, buffer, at(node));
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
    add_load(expression, seen_through({source.buffer, strides_of(source), 0}, source.sizes, view));
    return;
  }
  const std::size_t hash = hash_of(view);
  for (const Load& load : source.expression.loads) add_load(expression, seen_through(load, source.expression.sizes, view));
  const bool as_it_is = source.expression.sizes == view.sizes && view.offset == 0;
  for (const auto& [value, how] : source.expression.values) expression.values.emplace(value, as_it_is ? how : how * 31 + hash);
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

void Realizer::add_bounds(std::set<Shared>& shared, int node, std::size_t way) const {
  const FxNode& n = at(node);
  shared.emplace(kConstant, 0, 0);
  shared.emplace(kIndex, n.dimension, way);
  if (n.number != 0) shared.emplace(kBound, static_cast<double>(n.number), 0);
  if (ends_inside(node)) shared.emplace(kBound, static_cast<double>(n.number + at(n.args.front()).sizes[n.dimension]), 0);
}

bool Realizer::ends_inside(int node) const {
  const FxNode& n = at(node);
  return n.step == 1 && n.number + at(n.args.front()).sizes[n.dimension] != n.sizes[n.dimension];
}

int Realizer::operations_of(int node) const {
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

int Realizer::realize(int node, bool as_it_lies) {
  const Storage& made = storage(node);
  if (made.buffer >= 0) return made.buffer;
  const Expression& expression = made.expression;
  const bool whole = listed(at(node).sizes) == expression.sizes && box(node).view.strides == in_a_row(expression.sizes);
  return put(node, as_it_lies && whole ? listed(at(node).strides) : strides_like(expression.sizes, expression.loads));
}

int Realizer::put(int node, std::vector<std::int64_t> strides) {
  const Expression expression = std::exchange(storage(node).expression, {});
  return storage(node).buffer = compute(expression, storage(node).type, std::move(strides));
}

int Realizer::compute(const Expression& expression, DType type, std::vector<std::int64_t> strides) {
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
  return {compute(copy, source.type, listed(at(node).strides)), at(node).sizes, at(node).strides};
}

Region Realizer::factor(int node) {
  if (storage(node).buffer < 0) put(node, in_a_row(storage(node).expression.sizes));
  return {storage(node).buffer, at(node).sizes, at(node).strides};
}

void Realizer::fix(int node) {
  Expression copy{.sizes = box(node).view.sizes};
  load_into(copy, node, box(node).view);
  place(node, compute(copy, storage(node).type, listed(at(node).strides)));
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
    if (read_by_call && loads() > 1) realize(node);
    const bool multiplied = std::any_of(users(node).begin(), users(node).end(), [&](int user) { return at(user).op == Aten::product; });
    if (multiplied && pending()) fix(node);
  }
  if (pending() && users(node).size() > 1 && (count() > kMostOperations || loads() > kMostLoadsOfReused)) realize(node);
  if (pending() && (loads() > kMostLoads || count() > kMostOperations) && loads() > 1) realize(node);
  if (pending() && count() > kMostInlined) realize(node);
}

}  // namespace plimsoll::program::inductor
