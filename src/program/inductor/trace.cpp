#include "program/inductor/trace.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "plimsoll/error.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program::inductor {

namespace {

constexpr DType kFp32 = DType::fp32, kComplex = DType::complex64;

/// The dimension in which `part` is smaller than `whole`.
int cut_dimension(const Dims& part, const Dims& whole) {
  for (int i = 0; i < whole.rank(); ++i)
    if (part[i] != whole[i]) return i;
  return 0;
}

/// The order in which the dimensions of `from` are those of `to`.
Dims order_of(const Tensor& from, const Tensor& to) {
  Dims order;
  std::vector<bool> taken(static_cast<std::size_t>(from.rank()));
  for (int i = 0; i < to.rank(); ++i) {
    const auto fits = [&](int j) {
      return !taken[static_cast<std::size_t>(j)] && from.size(j) == to.size(i) && from.strides()[j] == to.strides()[i];
    };
    int chosen = fits(i) ? i : 0;
    while (!fits(chosen)) ++chosen;
    taken[static_cast<std::size_t>(chosen)] = true;
    order.push_back(chosen);
  }
  return order;
}

Dims inverse_of(const Dims& order) {
  Dims inverse = order;
  for (int i = 0; i < order.rank(); ++i) inverse[static_cast<int>(order[i])] = i;
  return inverse;
}

/// The operators whose outputs a selective checkpoint may keep.
bool is_saved_by_policies(Aten op) {
  return op == Aten::product || op == Aten::attention || op == Aten::flex_attention || op == Aten::reduce_scatter;
}

}  // namespace

Trace::Trace(Tape& tape, Checkpointing checkpointing) : tape_(tape), checkpointing_(std::move(checkpointing)) { tape_.trace = this; }
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
  graph_.nodes.back().parameter = !inputs_.empty();  // the first is what the module is called with
  inputs_.push_back(node);
  bind(tensor, node);
  return node;
}

std::vector<Tensor> Trace::inputs() const {
  std::vector<Tensor> tensors;
  for (const int node : inputs_) tensors.push_back(meta(node));
  return tensors;
}

void Trace::bind(const Tensor& tensor, int node) {
  known_[tensor.impl()] = node;
  alive_.push_back(tensor);
}

void Trace::record(Ints inputs, Ints outputs, std::function<Ints(const Ints&)> backward) {
  const bool any = std::any_of(inputs.begin(), inputs.end(), [&](int node) { return needs(node); });
  if (any && !backward_) recorded_.push_back({std::move(inputs), std::move(outputs), std::move(backward)});
}

/// Marks the nodes from `first` on as checkpointing has them.
void Trace::tag(const char* name, std::size_t first) {
  if (!checkpointing_.on) return;
  for (std::size_t i = first; i < graph_.nodes.size(); ++i) {
    FxNode& node = graph_.nodes[i];
    if (node.op == Aten::placeholder) continue;
    const bool kept = checkpointing_.policy && is_saved_by_policies(node.op) &&
                      checkpointing_.policy->keeps(node.op == Aten::product ? "mm" : name);
    node.recompute = kept ? Recompute::must_save : Recompute::prefer_recompute;
    if (node.op == Aten::getitem && graph_.at(node.args.front()).recompute == Recompute::must_save) node.recompute = Recompute::unsaid;
  }
}

// ---- operators --------------------------------------------------------------------------------------------------------

int Trace::pointwise(Aten op, const Ints& args, std::optional<DType> type) {
  Tensor result;
  if (args.size() == 1) {
    result = elementwise(tape_, {&meta(args[0])}, type.value_or(meta(args[0]).dtype()));
  } else {
    const Tensor &a = meta(args[0]), &b = meta(args[1]);
    const bool wide = a.dtype() == kFp32 || b.dtype() == kFp32;
    result = elementwise(tape_, {&a, &b}, type.value_or(wide ? kFp32 : a.dtype()));
  }
  return add({.op = op, .args = args}, std::move(result));
}

int Trace::convert(int x, DType type) { return meta(x).dtype() == type ? x : pointwise(Aten::convert, {x}, type); }

/// x.contiguous().
int Trace::row_major(int x) {
  return meta(x).is_contiguous() ? x : add({.op = Aten::clone, .args = {x}}, tape_.empty(meta(x).sizes(), meta(x).dtype()));
}

int Trace::view(int x, const Dims& sizes) { return add({.op = Aten::view, .args = {x}}, program::view(meta(x), sizes)); }

int Trace::permute(int x, const Dims& order) {
  return add({.op = Aten::permute, .args = {x}, .dims = order}, program::permute(meta(x), order));
}

int Trace::slice(int x, int dimension, std::int64_t start, std::int64_t size) {
  Dims sizes = meta(x).sizes();
  sizes[dimension] = size;
  return add({.op = Aten::slice, .args = {x}, .dimension = dimension, .number = start}, tape_.view(meta(x), sizes, meta(x).strides()));
}

int Trace::cat(const Ints& parts, int dimension) {
  Dims sizes = meta(parts.front()).sizes();
  sizes[dimension] = 0;
  for (const int part : parts) sizes[dimension] += meta(part).size(dimension);
  return add({.op = Aten::cat, .args = parts, .dimension = dimension}, tape_.empty(sizes, meta(parts.front()).dtype()));
}

int Trace::sum(int x, const Dims& dimensions, bool keep, Aten op) {
  Dims sizes;
  for (int i = 0; i < meta(x).rank(); ++i) {
    bool summed = false;
    for (int d = 0; d < dimensions.rank(); ++d) summed = summed || dimensions[d] == i;
    if (!summed) sizes.push_back(meta(x).size(i));
    if (summed && keep) sizes.push_back(1);
  }
  return add({.op = op, .args = {x}, .dims = dimensions}, tape_.empty(sizes, meta(x).dtype()));
}

int Trace::product(int a, int b) {
  return add({.op = Aten::product, .args = {a, b}}, tape_.empty({meta(a).size(0), meta(b).size(1)}, meta(a).dtype()));
}

Trace::Ints Trace::several(Aten op, const Ints& args, const std::vector<std::pair<Dims, DType>>& results, std::int64_t number) {
  // The tuple has no tensor: its sizes are those of the first result.
  const int all = add({.op = op, .args = args, .number = number}, tape_.empty(results.front().first, results.front().second));
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

// ---- what the tape's operators are made of, and their gradients --------------------------------------------------------

int Trace::linear(int x, int weight) {
  const Dims wide = meta(x).sizes();
  const int turned = permute(weight, {1, 0});
  const int flat = wide.rank() == 2 ? x : view(x, {-1, wide[-1]});
  const int y = product(flat, turned);
  Dims sizes = wide;
  sizes[-1] = meta(y).size(1);
  const int result = wide.rank() == 2 ? y : view(y, sizes);
  record({x, weight}, {result}, [=, this](const Ints& g) {
    const int gradient = wide.rank() == 2 ? g[0] : view(row_major(g[0]), {-1, meta(g[0]).size(-1)});
    Ints all{-1, -1};
    if (needs(weight)) all[1] = product(permute(gradient, {1, 0}), flat);
    if (needs(x)) {
      const int back = product(gradient, permute(turned, {1, 0}));
      all[0] = wide.rank() == 2 ? back : view(back, wide);
    }
    return all;
  });
  return result;
}

/// _fused_rms_norm.
int Trace::rms_norm(int x, int weight) {
  const DType type = meta(x).dtype();
  const int last = meta(x).rank() - 1;
  const int wide = convert(x, kFp32);
  const int square = pointwise(Aten::power, {wide});
  const int variance = pointwise(Aten::add_number, {sum(square, {last}, true, Aten::mean)});
  const int scale = pointwise(Aten::rsqrt, {variance});
  const int normed = pointwise(Aten::multiply, {wide, scale});
  const int result = convert(pointwise(Aten::multiply, {normed, weight}), type);
  record({x, weight}, {result}, [=, this](const Ints& g) {
    const int gradient = row_major(convert(g[0], kFp32));
    const int input = row_major(convert(x, kFp32));
    const int wide_weight = convert(weight, kFp32);
    const int weighted = pointwise(Aten::multiply, {gradient, wide_weight});
    const int unit = pointwise(Aten::multiply, {input, scale});
    const int total = sum(pointwise(Aten::multiply, {unit, weighted}), {last}, true);
    const int mean = pointwise(Aten::multiply, {pointwise(Aten::divide_by_number, {unit}), total});
    const int of_input = pointwise(Aten::multiply, {pointwise(Aten::subtract, {weighted, mean}), scale});
    Dims leading;
    for (int i = 0; i < last; ++i) leading.push_back(i);
    const int of_weight = sum(pointwise(Aten::multiply, {gradient, unit}), leading, false);
    const int low = convert(of_input, type);
    return Ints{low, convert(of_weight, meta(weight).dtype())};
  });
  return result;
}

int Trace::silu(int x) {
  const DType type = meta(x).dtype();
  const int wide = convert(x, kFp32);
  const int denominator = pointwise(Aten::add_number, {pointwise(Aten::exp, {pointwise(Aten::negate, {wide})})});
  const int result = convert(pointwise(Aten::divide, {wide, denominator}), type);
  record({x}, {result}, [=, this](const Ints& g) {
    const int gradient = convert(g[0], kFp32), input = convert(x, kFp32);
    const int sigmoid = pointwise(Aten::sigmoid, {input});
    const int scaled = pointwise(Aten::multiply, {gradient, sigmoid});
    const int rest = pointwise(Aten::multiply, {input, pointwise(Aten::subtract_from_number, {sigmoid})});
    return Ints{convert(pointwise(Aten::multiply, {scaled, pointwise(Aten::add_number, {rest})}), type)};
  });
  return result;
}

int Trace::multiply(int a, int b) {
  const int result = pointwise(Aten::multiply, {a, b});
  const bool whole = meta(a).sizes() == meta(result).sizes() && (!needs(b) || meta(b).sizes() == meta(result).sizes());
  if (needs(result) && !whole) refuse("a product of tensors of other sizes that take a gradient is not modelled under torch.compile", "compile", "false");
  record({a, b}, {result}, [=, this](const Ints& g) {
    Ints all{-1, -1};
    if (needs(b)) all[1] = pointwise(Aten::multiply, {g[0], a});
    if (needs(a)) all[0] = pointwise(Aten::multiply, {g[0], b});
    return all;
  });
  return result;
}

int Trace::convert_recorded(int x, DType type) {
  const int result = convert(x, type);
  record({x}, {result}, [=, this](const Ints& g) { return Ints{convert(g[0], meta(x).dtype())}; });
  return result;
}

int Trace::viewed(int x, const Dims& sizes) {
  const int result = view(x, sizes);
  record({x}, {result}, [=, this](const Ints& g) { return Ints{view(row_major(g[0]), meta(x).sizes())}; });
  return result;
}

int Trace::copied(int x) {
  const int result = add({.op = Aten::clone, .args = {x}}, tape_.empty(meta(x).sizes(), meta(x).dtype()));
  record({x}, {result}, [](const Ints& g) { return g; });
  return result;
}

/// slice: its gradient lies among zeros.
int Trace::sliced(int x, const Dims& sizes, std::int64_t start) {
  const int dimension = cut_dimension(sizes, meta(x).sizes());
  const int result = slice(x, dimension, start, sizes[dimension]);
  record({x}, {result}, [=, this](const Ints& g) {
    return Ints{add({.op = Aten::slice_scatter, .args = {g[0]}, .dimension = dimension, .number = start},
                    tape_.empty(meta(x).sizes(), meta(x).dtype()))};
  });
  return result;
}

/// cat: its gradient is sliced.
int Trace::joined(const Ints& parts) {
  const Dims part = meta(parts[0]).sizes(), next = meta(parts[1]).sizes();
  const int dimension = part == next ? part.rank() - 1 : cut_dimension(part, next);
  const int result = cat(parts, dimension);
  record(parts, {result}, [=, this](const Ints& g) {
    Ints all;
    std::int64_t start = 0;
    for (const int of : parts) {
      const std::int64_t size = meta(of).size(dimension);
      all.push_back(needs(of) ? slice(g[0], dimension, start, size) : -1);
      start += size;
    }
    return all;
  });
  return result;
}

int Trace::turned(int x, const Tensor& to) {
  const Dims order = order_of(meta(x), to);
  const int result = permute(x, order);
  record({x}, {result}, [=, this](const Ints& g) { return Ints{permute(g[0], inverse_of(order))}; });
  return result;
}

Trace::Ints Trace::split(int x, const std::vector<Tensor>& parts) {
  const int dimension = cut_dimension(parts.front().sizes(), meta(x).sizes());
  const int all = add({.op = Aten::split, .args = {x}, .dimension = dimension}, meta(x));
  Ints items;
  std::int64_t start = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    items.push_back(add({.op = Aten::getitem, .args = {all}, .dimension = dimension, .number = start}, parts[i]));
    start += parts[i].size(dimension);
  }
  record({x}, items, [=, this](const Ints& g) {
    if (std::find(g.begin(), g.end(), -1) != g.end()) refuse("a part of a split that takes no gradient is not modelled under torch.compile");
    return Ints{cat(g, dimension)};
  });
  return items;
}

int Trace::attention(const Ints& heads, bool causal) {
  const Tensor &query = meta(heads[0]), &key = meta(heads[1]), &value = meta(heads[2]);
  const Dims sizes = query.sizes(), key_sizes = key.sizes(), value_sizes = value.sizes();
  const DType type = query.dtype();
  const Ints items = several(Aten::attention, heads,
                             {{sizes, type}, {{sizes[0], sizes[1], sizes[2]}, kFp32}, {{2}, DType::int64}, {{1}, DType::int64}}, causal);
  // In memory as the query: heads within rows.
  metas_[static_cast<std::size_t>(items[0])].impl()->strides = graph_.at(items[0]).strides = elementwise_strides(sizes, {&query});
  record(heads, {items[0]}, [=, this](const Ints& g) {
    Ints args{g[0]};
    args.insert(args.end(), heads.begin(), heads.end());
    args.insert(args.end(), items.begin(), items.end());
    const Ints gradients = several(Aten::attention_backward, args, {{sizes, type}, {key_sizes, type}, {value_sizes, type}}, causal);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const int head = heads[i];
      metas_[static_cast<std::size_t>(gradients[i])].impl()->strides = graph_.at(gradients[i]).strides =
          elementwise_strides(meta(head).sizes(), {&meta(head)});
    }
    return gradients;
  });
  return items[0];
}

int Trace::flex_attention(const Ints& heads) {
  const Dims sizes = meta(heads[0]).sizes(), slim = meta(heads[1]).sizes();
  const DType type = meta(heads[0]).dtype();
  const auto lies_as = [this](int node, int head) {
    metas_[static_cast<std::size_t>(node)].impl()->strides = graph_.at(node).strides = elementwise_strides(meta(head).sizes(), {&meta(head)});
  };
  const Ints items = several(Aten::flex_attention, heads, {{sizes, type}, {{sizes[0], sizes[1], sizes[2]}, kFp32}});
  lies_as(items[0], heads[0]);
  record(heads, {items[0]}, [=, this](const Ints& g) {
    const Ints gradients = several(Aten::flex_attention_backward, {heads[0], heads[1], heads[2], items[0], items[1], g[0]},
                                   {{sizes, type}, {slim, type}, {slim, type}});
    for (std::size_t i = 0; i < gradients.size(); ++i) lies_as(gradients[i], heads[i]);
    return gradients;
  });
  return items[0];
}

int Trace::real_as_complex(int x) {
  const Tensor result = program::view_as_complex(meta(x));
  const int y = add({.op = Aten::view_as_complex, .args = {x}}, result);
  record({x}, {y}, [this](const Ints& g) { return Ints{complex_as_real(g[0])}; });
  return y;
}

int Trace::complex_as_real(int x) {
  const Tensor result = program::view_as_real(meta(x));
  const int y = add({.op = Aten::view_as_real, .args = {x}}, result);
  record({x}, {y}, [this](const Ints& g) { return Ints{real_as_complex(row_major(g[0]))}; });
  return y;
}

int Trace::multiply_complex(int a, int b) {
  const int result = add({.op = Aten::multiply_complex, .args = {a, b}}, elementwise(tape_, {&meta(a), &meta(b)}, kComplex));
  record({a, b}, {result}, [=, this](const Ints& g) {
    Ints all{-1, -1};
    for (const std::size_t i : {1U, 0U}) {
      if (!needs(i == 0 ? a : b)) continue;
      const int other = i == 0 ? b : a;
      const int conjugate = call(Aten::conjugate, {other}, meta(other).sizes(), kComplex);
      const int copy = call(Aten::clone_complex, {conjugate}, meta(other).sizes(), kComplex);
      all[i] = add({.op = Aten::multiply_complex, .args = {g[0], copy}}, elementwise(tape_, {&meta(g[0]), &meta(copy)}, kComplex));
    }
    return all;
  });
  return result;
}

int Trace::gather_sequence(int x, std::int64_t ranks) {
  const int result = gathered(x, ranks);
  record({x}, {result}, [=, this](const Ints& g) { return Ints{scattered(g[0], ranks)}; });
  return result;
}

int Trace::scatter_sequence(int x, std::int64_t ranks) {
  const int result = scattered(x, ranks);
  record({x}, {result}, [=, this](const Ints& g) { return Ints{gathered(g[0], ranks)}; });
  return result;
}

void Trace::ran(const char* name_of_it, const List<const Tensor*>& arguments, std::int64_t number, const std::vector<Tensor>& outputs) {
  const std::string_view name = name_of_it;
  const std::size_t first = graph_.nodes.size();
  OperatorTrace* const told = std::exchange(tape_.trace, nullptr);  // metas are made by operators too
  const GradMode no_grad(tape_, false);
  Ints in;
  for (const Tensor* argument : arguments) {
    if (argument->defined()) in.push_back(input(*argument));
  }
  const Tensor& out = outputs.front();
  const bool complex = out.dtype() == kComplex;
  Ints results;
  if (name == "linear" && in.size() == 2) {
    results = {linear(in[0], in[1])};
  } else if (name == "rms_norm") {
    results = {rms_norm(in[0], in[1])};
  } else if (name == "silu") {
    results = {silu(in[0])};
  } else if (name == "mul" && in.size() == 2) {
    results = {complex ? multiply_complex(in[0], in[1]) : multiply(in[0], in[1])};
  } else if (name == "add" && in.size() == 2) {
    results = {pointwise(Aten::add, {in[0], in[1]})};
    record(in, results, [](const Ints& g) { return Ints{g[0], g[0]}; });
  } else if (name == "to") {
    results = {convert_recorded(in[0], out.dtype())};
  } else if (name == "view" || name == "unsafe_view" || name == "squeeze" || name == "unsqueeze") {
    results = {viewed(in[0], out.sizes())};
  } else if (name == "reshape" || name == "contiguous" || name == "clone") {
    results = {copied(in[0])};
  } else if (name == "transpose" || name == "permute") {
    results = {turned(in[0], out)};
  } else if (name == "split") {
    results = split(in[0], outputs);
  } else if (name == "alias") {
    results = {in[0]};
  } else if (name == "slice") {
    results = {sliced(in[0], out.sizes(), number)};
  } else if (name == "neg") {
    results = {pointwise(Aten::negate, {in[0]})};
    record(in, results, [this](const Ints& g) { return Ints{pointwise(Aten::negate, {g[0]})}; });
  } else if (name == "cat" && in.size() == 2 && out.sizes()[-1] == meta(in[0]).size(-1) + meta(in[1]).size(-1)) {
    results = {joined(in)};
  } else if (name == "view_as_complex") {
    results = {real_as_complex(in[0])};
  } else if (name == "view_as_real") {
    results = {complex_as_real(in[0])};
  } else if (name == "index" && in.size() == 2 && meta(in[1]).size(0) == 1) {
    results = {call(Aten::table_rows, {in[0], view(in[1], {-1})}, out.sizes(), out.dtype())};
  } else if (name == "gather" && in.size() == 2) {
    results = {call(Aten::gather_rows, {in[0], in[1]}, out.sizes(), out.dtype())};
  } else if ((name == "flash_attention" || name == "cudnn_attention" || name == "efficient_attention") && in.size() == 3) {
    results = {attention(in, number != 0)};
  } else if (name == "flex_attention") {
    results = {flex_attention(in)};
  } else if (name == "all_gather") {
    results = {gather_sequence(in[0], out.size(1) / meta(in[0]).size(1))};
  } else if (name == "reduce_scatter") {
    results = {scatter_sequence(in[0], meta(in[0]).size(1) / out.size(1))};
  } else {
    refuse("torch.compile of blocks with the operator '" + std::string(name) + "' is not modelled", "compile", "false");
  }
  tag(name_of_it, first);
  tape_.trace = told;
  for (std::size_t i = 0; i < outputs.size(); ++i) bind(outputs[i], results[i]);
}

// ---- both directions --------------------------------------------------------------------------------------------------

namespace {

/// What the gradients are computed from.
std::vector<bool> needed_backward(const FxGraph& graph) {
  std::vector<bool> needed(graph.nodes.size());
  for (std::size_t i = 1; i < graph.outputs.size(); ++i)
    if (graph.outputs[i] >= 0) needed[static_cast<std::size_t>(graph.outputs[i])] = true;
  for (int node = graph.size() - 1; node >= 0; --node) {
    if (!needed[static_cast<std::size_t>(node)]) continue;
    for (const int arg : graph.at(node).args) needed[static_cast<std::size_t>(arg)] = true;
  }
  return needed;
}

/// fx_graph_cse: a node that computes what an earlier one does is that one, unless only one of them is needed backward.
void merge_equal(FxGraph& graph) {
  const std::vector<bool> needed = needed_backward(graph);
  using Key = std::tuple<Aten, std::vector<int>, std::vector<std::int64_t>, std::vector<std::int64_t>, DType, int, std::int64_t, bool>;
  std::map<Key, int> known;
  std::vector<int> same(graph.nodes.size());
  for (int node = 0; node < graph.size(); ++node) {
    FxNode& n = graph.at(node);
    for (int& arg : n.args) arg = same[static_cast<std::size_t>(arg)];
    same[static_cast<std::size_t>(node)] = node;
    if (n.op == Aten::placeholder) continue;
    const Key key{n.op, n.args, listed(n.dims), listed(n.sizes), n.type, n.dimension, n.number, needed[static_cast<std::size_t>(node)]};
    same[static_cast<std::size_t>(node)] = known.emplace(key, node).first->second;
  }
  for (int& output : graph.outputs)
    if (output >= 0) output = same[static_cast<std::size_t>(output)];
}

/// fx's names: the operator's, numbered from its second node on; inputs are numbered from 1.
void name_nodes(FxGraph& graph, int tangent) {
  std::map<std::string, int> used;
  int inputs = 0;
  for (int node = 0; node < graph.size(); ++node) {
    FxNode& n = graph.at(node);
    if (n.op == Aten::placeholder) {
      n.name = node == tangent ? "tangents_1" : "primals_" + std::to_string(++inputs);
      continue;
    }
    const std::string base = rule_of(n.op).name;
    const int number = used[base]++;
    n.name = number == 0 ? base : base + "_" + std::to_string(number);
  }
}

}  // namespace

JointGraph Trace::joint(const Tensor& result) {
  tape_.trace = nullptr;
  const GradMode no_grad(tape_, false);
  const int output = input(result);
  backward_ = true;
  JointGraph joint;
  joint.tangent = add({.op = Aten::placeholder}, meta(output));  // in memory as the result
  std::vector<int> gradient(static_cast<std::size_t>(joint.tangent) + 1, -1);
  gradient[static_cast<std::size_t>(output)] = joint.tangent;
  const auto arrives = [&](int node, int value) {
    if (value < 0 || !needs(node)) return;
    int& known = gradient[static_cast<std::size_t>(node)];
    known = known < 0 ? value : pointwise(Aten::add, {known, value});
  };
  for (std::size_t i = recorded_.size(); i-- > 0;) {
    const Recorded& operation = recorded_[i];
    Ints arrived;
    bool any = false;
    for (const int made : operation.outputs) {
      arrived.push_back(gradient[static_cast<std::size_t>(made)]);
      any = any || arrived.back() >= 0;
    }
    if (!any) continue;
    const Ints given = operation.backward(arrived);
    for (std::size_t j = 0; j < operation.inputs.size(); ++j) arrives(operation.inputs[j], given[j]);
  }
  graph_.outputs = {output};
  for (const int node : inputs_) graph_.outputs.push_back(gradient[static_cast<std::size_t>(node)]);
  merge_equal(graph_);
  std::vector<int> kept;
  joint.graph = without_dead_code(graph_, kept);
  for (const int node : inputs_) joint.inputs.push_back(kept[static_cast<std::size_t>(node)]);
  joint.tangent = kept[static_cast<std::size_t>(joint.tangent)];
  name_nodes(joint.graph, joint.tangent);
  return joint;
}

}  // namespace plimsoll::program::inductor
