#include "program/inductor/trace.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/inductor/pad_products.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/pointwise.hpp"

namespace plimsoll::program::inductor {

namespace {

constexpr DType kFp32 = DType::fp32;

/// The operators whose outputs a selective checkpoint may keep.
bool is_saved_by_policies(Aten op) {
  return op == Aten::product || op == Aten::attention || op == Aten::flex_attention || op == Aten::reduce_scatter;
}

}  // namespace

Trace::Trace(Tape& tape, const std::vector<Tensor>& resident, Checkpointing checkpointing)
    : tape_(tape), checkpointing_(std::move(checkpointing)) {
  for (const Tensor& tensor : resident) resident_.insert(tensor.impl());
  recomputes = checkpointing_.on;
  tape_.trace = this;
}
Trace::~Trace() { tape_.trace = nullptr; }

int Trace::add(FxNode node, Tensor meta) {
  node.sizes = meta.sizes(), node.strides = meta.strides(), node.type = meta.dtype();
  node.backward = backward_;
  bool needed = false;
  for (const int arg : node.args) needed = needed || needs(arg);
  needs_.push_back(needed);
  graph_.nodes.push_back(std::move(node));
  metas_.push_back(std::move(meta));
  return graph_.size() - 1;
}

int Trace::input(const Tensor& tensor) {
  if (const auto found = known_.find(tensor.impl()); found != known_.end()) return found->second;
  const int node = add({.op = Aten::placeholder}, tensor);
  needs_.back() = tensor.requires_grad();
  graph_.nodes.back().parameter = resident_.contains(tensor.impl());
  inputs_.push_back(node);
  bind(tensor, node);
  return node;
}

/// Arguments of an operator, before autocast's casts.
void Trace::take_up(const Ints& arguments) {
  for (int node : arguments) {
    while (graph_.at(node).op == Aten::convert) node = graph_.at(node).args.front();
    const auto first = inputs_.begin() + static_cast<std::ptrdiff_t>(taken_up_), found = std::find(first, inputs_.end(), node);
    if (found == inputs_.end()) continue;
    std::rotate(first, found, found + 1);
    ++taken_up_;
  }
}

std::vector<Tensor> Trace::inputs() const {
  std::vector<Tensor> tensors;
  for (const int node : inputs_) tensors.push_back(meta(node));
  return tensors;
}

bool Trace::made(const Tensor& tensor) const {
  const auto found = known_.find(tensor.impl());
  return found != known_.end() && graph_.at(found->second).op != Aten::placeholder;
}

void Trace::breaks(const std::vector<Tensor>&) { refuse("code that breaks a compiled layer's graph is not modelled", "compile", "false"); }

void Trace::bind(const Tensor& tensor, int node) {
  known_[tensor.impl()] = node;
  alive_.push_back(tensor);
}

/// Gives the outputs back.
Trace::Ints Trace::record(Ints inputs, Ints outputs, Gradients backward) {
  const bool any = std::any_of(inputs.begin(), inputs.end(), [&](int node) { return needs(node); });
  if (any && !backward_) recorded_.push_back({std::move(inputs), outputs, std::move(backward)});
  return outputs;
}

/// What autograd's engine makes of a gradient before it hands it on (validate_outputs): summed to the sizes of what it is of, in its type.
/// Sums are among the operators that autocast takes to fp32 (autocast_mode.h, fp32_set_opt_dtype).
int Trace::validated(int gradient, int of) {
  if (gradient < 0 || !needs(of)) return -1;
  const Dims &sizes = meta(of).sizes(), &wide = meta(gradient).sizes();
  if (sizes != wide) {  // sum_to
    const int added = wide.rank() - sizes.rank();
    Dims dimensions;
    for (int i = 0; i < wide.rank(); ++i)
      if (i < added || (sizes[i - added] == 1 && wide[i] != 1)) dimensions.push_back(i);
    gradient = sum(gradient, dimensions, true, Aten::sum, tape_.autocast.enabled ? kFp32 : meta(gradient).dtype());
    if (added > 0) gradient = view(gradient, sizes);
  }
  return convert(gradient, meta(of).dtype());
}

/// Marks the nodes from `first` on as checkpointing has them.
void Trace::tag(const char* name, std::size_t first) {
  if (!recomputes) return;
  for (std::size_t i = first; i < graph_.nodes.size(); ++i) {
    FxNode& node = graph_.nodes[i];
    if (node.op == Aten::placeholder) continue;
    const bool kept =
        checkpointing_.policy && is_saved_by_policies(node.op) && checkpointing_.policy->keeps(node.op == Aten::product ? "mm" : name);
    node.recompute = kept ? Recompute::must_save : Recompute::prefer_recompute;
    node.checkpoint = checkpoint;
    if (node.op == Aten::getitem && graph_.at(node.args.front()).recompute == Recompute::must_save) node.recompute = Recompute::unsaid;
  }
}

// ---- operators of ATen --------------------------------------------------------------------------------------------------------

int Trace::pointwise(Aten op, const Ints& args, std::optional<DType> type, std::int64_t number) {
  Tensor result;
  if (args.size() == 1) {
    result = elementwise(tape_, {&meta(args[0])}, type.value_or(meta(args[0]).dtype()));
  } else {
    const Tensor &a = meta(args[0]), &b = meta(args[1]);
    const bool wide = a.dtype() == kFp32 || b.dtype() == kFp32;
    const DType low = a.dtype() == DType::boolean ? b.dtype() : a.dtype();
    result = elementwise(tape_, {&a, &b}, type.value_or(wide ? kFp32 : low));
  }
  return add({.op = op, .args = args, .number = number}, std::move(result));
}

/// An operator of an element and a number.
int Trace::with_number(Aten op, int x, double number, std::optional<DType> type) {
  const int node = pointwise(op, {x}, type);
  graph_.at(node).constant = number;
  return node;
}

int Trace::convert(int x, DType type) { return meta(x).dtype() == type ? x : pointwise(Aten::convert, {x}, type); }

/// The node lies in memory as a tensor like the other one.
void Trace::lies_as(int node, int other) {
  metas_[static_cast<std::size_t>(node)].impl()->strides = graph_.at(node).strides =
      elementwise_strides(meta(node).sizes(), {&meta(other)});
}

/// Heads of an attention's result lie within rows: [batch, heads, length, width] as [batch, length, heads, width].
void Trace::lies_in_rows(int node) {
  const Dims& sizes = meta(node).sizes();
  metas_[static_cast<std::size_t>(node)].impl()->strides = graph_.at(node).strides =
      Dims{sizes[1] * sizes[2] * sizes[3], sizes[3], sizes[1] * sizes[3], 1};
}

/// x.contiguous().
int Trace::row_major(int x) {
  return meta(x).is_contiguous() ? x : add({.op = Aten::clone, .args = {x}}, tape_.empty(meta(x).sizes(), meta(x).dtype()));
}

int Trace::view(int x, const Dims& sizes, Aten op) { return add({.op = op, .args = {x}}, program::view(meta(x), sizes)); }

/// reshape: a view where strides allow it, else of a copy.
int Trace::reshaped(int x, const Dims& sizes) { return view(can_view(meta(x), sizes) ? x : row_major(x), sizes); }

int Trace::permute(int x, const Dims& order) {
  return add({.op = Aten::permute, .args = {x}, .dims = order}, program::permute(meta(x), order));
}

int Trace::slice(int x, int dimension, std::int64_t start, std::int64_t size, std::int64_t step) {
  Dims sizes = meta(x).sizes(), strides = meta(x).strides();
  sizes[dimension] = size;
  strides[dimension] *= step;
  return add({.op = Aten::slice, .args = {x}, .dimension = dimension, .number = start, .step = step}, tape_.view(meta(x), sizes, strides));
}

int Trace::select(int x, int dimension, std::int64_t index) {
  Dims sizes, strides;
  for (int i = 0; i < meta(x).rank(); ++i) {
    if (i == dimension) continue;
    sizes.push_back(meta(x).size(i));
    strides.push_back(meta(x).strides()[i]);
  }
  return add({.op = Aten::select, .args = {x}, .dimension = dimension, .number = index}, tape_.view(meta(x), sizes, strides));
}

int Trace::cat(const Ints& parts, int dimension) {
  Dims sizes = meta(parts.front()).sizes();
  sizes[dimension] = 0;
  for (const int part : parts) sizes[dimension] += meta(part).size(dimension);
  return add({.op = Aten::cat, .args = parts, .dimension = dimension}, tape_.empty(sizes, meta(parts.front()).dtype()));
}

/// stack (torch/_refs): a view of what is concatenated in a dimension that the parts have; behind their last one they are unsqueezed first.
int Trace::stack(const Ints& parts, int dimension) {
  const Dims& part = meta(parts[0]).sizes();
  Dims sizes;
  for (int i = 0; i <= part.rank(); ++i) {
    if (i == dimension) sizes.push_back(static_cast<std::int64_t>(parts.size()));
    if (i < part.rank()) sizes.push_back(part[i]);
  }
  if (dimension < part.rank()) return view(cat(parts, dimension), sizes);
  sizes[-1] = 1;
  Ints columns;
  for (const int each : parts) columns.push_back(view(each, sizes, Aten::unsqueeze));
  return cat(columns, dimension);
}

int Trace::sum(int x, const Dims& dimensions, bool keep, Aten op, std::optional<DType> type) {
  Dims sizes;
  for (int i = 0; i < meta(x).rank(); ++i) {
    bool summed = false;
    for (int d = 0; d < dimensions.rank(); ++d) summed = summed || dimensions[d] == i;
    if (!summed) sizes.push_back(meta(x).size(i));
    if (summed && keep) sizes.push_back(1);
  }
  const int total = add({.op = op, .args = {x}, .dims = dimensions}, tape_.empty(sizes, type.value_or(meta(x).dtype())));
  if (op == Aten::mean) graph_.at(total).constant = static_cast<double>(meta(x).elements()) / static_cast<double>(sizes.product());
  return total;
}

int Trace::product(int a, int b) {
  return add({.op = Aten::product, .args = {a, b}}, tape_.empty({meta(a).size(0), meta(b).size(1)}, meta(a).dtype()));
}

Trace::Ints Trace::several(Aten op, const Ints& args, const std::vector<std::pair<Dims, DType>>& results, std::int64_t number,
                           double rate) {
  // The tuple has no tensor: its sizes are those of the first result.
  const int all = add({.op = op, .args = args, .number = number, .rate = rate}, tape_.empty(results.front().first, results.front().second));
  Ints items;
  for (std::size_t i = 0; i < results.size(); ++i)
    items.push_back(add({.op = Aten::getitem, .args = {all}, .number = static_cast<std::int64_t>(i)},
                        tape_.empty(results[i].first, results[i].second)));
  return items;
}

int Trace::call(Aten op, const Ints& args, const Dims& sizes, DType type, std::int64_t number) {
  return add({.op = op, .args = args, .number = number}, tape_.empty(sizes, type));
}

/// spmd_types' all-gather of dimension 1: ranks one behind the other, then side by side.
int Trace::gathered(int x, std::int64_t ranks) {
  const int part = row_major(x);
  Dims sizes = meta(part).sizes();
  const std::int64_t batch = sizes[0];
  sizes[0] *= ranks;
  const int all = call(Aten::wait, {call(Aten::all_gather, {part}, sizes, meta(part).dtype(), ranks)}, sizes, meta(part).dtype());
  Ints parts;
  for (std::int64_t rank = 0; rank < ranks; ++rank) parts.push_back(slice(all, 0, rank * batch, batch));
  return cat(parts, 1);
}

/// All dimensions but the last.
Dims Trace::leading(int x) const {
  Dims all;
  for (int i = 0; i + 1 < meta(x).rank(); ++i) all.push_back(i);
  return all;
}

/// Its reduce-scatter: dimension 1 in front, and back.
int Trace::scattered(int x, std::int64_t ranks) {
  Dims order;
  for (int i = 0; i < meta(x).rank(); ++i) order.push_back(i < 2 ? 1 - i : i);
  const int front = row_major(permute(x, order));
  Dims sizes = meta(front).sizes();
  sizes[0] /= ranks;
  const DType type = meta(front).dtype();
  const int part = call(Aten::wait, {call(Aten::reduce_scatter, {front}, sizes, type, ranks)}, sizes, type);
  return permute(part, order);
}

// ---- both directions --------------------------------------------------------------------------------------------------

namespace {

/// What the gradients are computed from: the outputs behind the first `results`.
std::vector<bool> needed_backward(const FxGraph& graph, std::size_t results) {
  std::vector<bool> needed(graph.nodes.size());
  for (std::size_t i = results; i < graph.outputs.size(); ++i)
    if (graph.outputs[i] >= 0) needed[static_cast<std::size_t>(graph.outputs[i])] = true;
  for (int node = graph.size() - 1; node >= 0; --node) {
    if (!needed[static_cast<std::size_t>(node)]) continue;
    for (const int arg : graph.at(node).args) needed[static_cast<std::size_t>(arg)] = true;
  }
  return needed;
}

/// cleanup_recompute_tags: what one checkpoint gives to a later one is kept.
void keep_between_checkpoints(FxGraph& graph) {
  for (const FxNode& node : graph.nodes) {
    if (node.recompute != Recompute::prefer_recompute) continue;
    for (const int arg : node.args) {
      FxNode& before = graph.at(arg);
      if (before.recompute == Recompute::prefer_recompute && before.checkpoint < node.checkpoint) before.recompute = Recompute::must_save;
    }
  }
}

/// pointless_convert: of two conversions in a row the first is skipped, unless its type is the narrower one.
void skip_wider_types(FxGraph& graph) {
  std::vector<int> same(graph.nodes.size());
  for (int node = 0; node < graph.size(); ++node) {
    FxNode& n = graph.at(node);
    for (int& arg : n.args) arg = same[static_cast<std::size_t>(arg)];
    same[static_cast<std::size_t>(node)] = node;
    if (n.op != Aten::convert) continue;
    const FxNode& before = graph.at(n.args.front());
    if (before.op == Aten::convert && size_of(before.type) >= size_of(n.type)) n.args = before.args;
    if (graph.at(n.args.front()).type == n.type) same[static_cast<std::size_t>(node)] = n.args.front();
  }
  for (int& output : graph.outputs)
    if (output >= 0) output = same[static_cast<std::size_t>(output)];
}

/// The nodes in whose memory a result of the graph lies.
std::vector<bool> aliases_of_results(const FxGraph& graph) {
  std::vector<int> owner(graph.nodes.size());
  for (int node = 0; node < graph.size(); ++node) {
    const FxNode& n = graph.at(node);
    const bool of_several =
        !n.args.empty() && rule_of(graph.at(n.args.front()).op).lowering == Lowering::several && graph.at(n.args.front()).op != Aten::split;
    const bool is_view = rule_of(n.op).lowering == Lowering::view && !of_several;
    owner[static_cast<std::size_t>(node)] = is_view ? owner[static_cast<std::size_t>(n.args.front())] : node;
  }
  std::set<int> of_results;
  for (const int output : graph.outputs)
    if (output >= 0) of_results.insert(owner[static_cast<std::size_t>(output)]);
  std::vector<bool> aliases;
  for (const int each : owner) aliases.push_back(of_results.contains(each));
  return aliases;
}

/// fx_graph_cse: a node that computes what an earlier one does is that one, unless only one of them is needed backward. Results of the
/// graph stay apart, as they are in eager mode.
void merge_equal(FxGraph& graph, std::size_t results) {
  const std::vector<bool> needed = needed_backward(graph, results), aliases = aliases_of_results(graph);
  using Sizes = std::vector<std::int64_t>;
  using Key = std::tuple<Aten, std::vector<int>, Sizes, Sizes, DType, int, std::int64_t, std::int64_t, std::optional<double>, bool>;
  std::map<Key, int> known;
  std::vector<int> same(graph.nodes.size());
  for (int node = 0; node < graph.size(); ++node) {
    FxNode& n = graph.at(node);
    for (int& arg : n.args) arg = same[static_cast<std::size_t>(arg)];
    same[static_cast<std::size_t>(node)] = node;
    if (n.op == Aten::placeholder || aliases[static_cast<std::size_t>(node)]) continue;
    const Key key{n.op,        n.args,   listed(n.dims), listed(n.sizes), n.type,
                  n.dimension, n.number, n.step,         n.constant,      needed[static_cast<std::size_t>(node)]};
    same[static_cast<std::size_t>(node)] = known.emplace(key, node).first->second;
  }
  for (int& output : graph.outputs)
    if (output >= 0) output = same[static_cast<std::size_t>(output)];
}

/// How many tensors the operator gives, of which the graph may have fewer, and which of them a node of it is: flash attention's are nine.
struct Results {
  int all;
  std::array<int, 4> place;
};
std::optional<Results> results_of(const FxNode& node) {
  const bool efficient = node.kernels == AttentionKernels::efficient;
  if (node.op == Aten::attention) return efficient ? Results{4, {0, 1, 2, 3}} : Results{9, {0, 1, 6, 7}};
  if (node.op == Aten::attention_backward) return Results{efficient ? 4 : 3, {0, 1, 2, 3}};
  return std::nullopt;
}

/// fx's names: the operator's, numbered from its second node on; inputs are numbered from 1.
void name_nodes(FxGraph& graph, const std::vector<int>& inputs, const std::vector<int>& tangents) {
  std::map<std::string, int> used;
  int first = 0;  // name of the results of an operator of several
  for (std::size_t i = 0; i < inputs.size(); ++i) graph.at(inputs[i]).name = "primals_" + std::to_string(i + 1);
  for (std::size_t i = 0; i < tangents.size(); ++i)
    if (tangents[i] >= 0) graph.at(tangents[i]).name = "tangents_" + std::to_string(i + 1);
  for (int node = 0; node < graph.size(); ++node) {
    FxNode& n = graph.at(node);
    if (n.op == Aten::placeholder) continue;
    const std::string base = rule_of(n.op).name;
    const std::optional<Results> results = n.op == Aten::getitem ? results_of(graph.at(n.args.front())) : std::nullopt;
    if (results && n.number == 0) first = std::exchange(used[base], used[base] + results->all);
    const int number = results ? first + results->place[static_cast<std::size_t>(n.number)] : used[base]++;
    n.name = number == 0 ? base : base + "_" + std::to_string(number);
  }
}

}  // namespace

JointGraph Trace::joint(const std::vector<Tensor>& results) {
  tape_.trace = nullptr;
  const GradMode no_grad(tape_, false);
  recomputes = false;
  JointGraph joint;
  for (const Tensor& result : results) graph_.outputs.push_back(input(result));
  backward_ = true;
  for (const int output : graph_.outputs)  // in memory as the result
    joint.tangents.push_back(needs(output) ? add({.op = Aten::placeholder}, meta(output)) : -1);
  std::vector<int> gradient(graph_.nodes.size(), -1);
  const auto arrives = [&](int node, int value) {
    if (value < 0 || !needs(node)) return;
    int& known = gradient[static_cast<std::size_t>(node)];
    known = known < 0 ? value : pointwise(Aten::add, {known, value});
  };
  for (std::size_t i = 0; i < joint.tangents.size(); ++i) arrives(graph_.outputs[i], joint.tangents[i]);
  for (std::size_t i = recorded_.size(); i-- > 0;) {
    const Recorded& operation = recorded_[i];
    Ints arrived;
    bool any = false;
    for (const int made : operation.outputs) {
      arrived.push_back(gradient[static_cast<std::size_t>(made)]);
      any = any || arrived.back() >= 0;
    }
    if (!any) continue;
    Ints given = operation.backward(arrived);
    for (std::size_t j = 0; j < operation.inputs.size(); ++j) given[j] = validated(given[j], operation.inputs[j]);
    for (std::size_t j = 0; j < operation.inputs.size(); ++j) arrives(operation.inputs[j], given[j]);
  }
  for (const int node : inputs_) graph_.outputs.push_back(gradient[static_cast<std::size_t>(node)]);
  name_nodes(graph_, inputs_, joint.tangents);
  skip_wider_types(graph_);
  std::vector<int> kept, padded;
  graph_ = with_padded_products(graph_, tape_.tf32, padded);
  merge_equal(graph_, results.size());
  joint.graph = without_dead_code(graph_, kept);
  keep_between_checkpoints(joint.graph);  // what was merged reads nothing any more
  const auto place_of = [&](int node) { return kept[static_cast<std::size_t>(padded[static_cast<std::size_t>(node)])]; };
  for (const int node : inputs_) joint.inputs.push_back(place_of(node));
  for (int& tangent : joint.tangents)
    if (tangent >= 0) tangent = place_of(tangent);
  return joint;
}

}  // namespace plimsoll::program::inductor
