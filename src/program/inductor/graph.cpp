#include "program/inductor/graph.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "program/inductor/kernels.hpp"
#include "program/op.hpp"

namespace plimsoll::program::inductor {

// ---- building ---------------------------------------------------------------------------------------------------------

Value Graph::add_input(Owner owner, Tensor tensor, std::string name) {
  if (!tensor) return {};
  const int index = static_cast<int>(buffers_.size());
  buffers_.push_back({.name = std::move(name),
                      .owner = owner,
                      .sizes = tensor.sizes(),
                      .type = tensor.dtype(),
                      .bytes = tensor.bytes(),
                      .readers = {},
                      .tensor = std::move(tensor),
                      .returned = {}});
  return {index};
}

Value Graph::primal(Tensor tensor, std::string name) { return add_input(Owner::caller, std::move(tensor), std::move(name)); }
Value Graph::saved(Tensor tensor, std::int64_t elements, std::string name) {
  const Value value = add_input(Owner::forward, std::move(tensor), std::move(name));
  if (value.defined()) at(value.index).bytes = elements * size_of(at(value.index).type);
  return value;
}

Value Graph::add(Operation operation, const Dims& sizes, DType type, Owner owner) {
  const int index = static_cast<int>(buffers_.size()), id = static_cast<int>(operations_.size());
  operation.output = index;
  for (const int read : operation.reads) at(read).readers.push_back(id);
  operations_.push_back(std::move(operation));
  buffers_.push_back({.name = "buf" + std::to_string(names_++),
                      .owner = owner,
                      .sizes = sizes,
                      .type = type,
                      .bytes = owner == Owner::call ? 0 : sizes.product() * size_of(type),
                      .maker = id,
                      .readers = {},
                      .tensor = {},
                      .returned = {}});
  return {index};
}

namespace {

std::vector<int> defined_indices(const std::vector<Value>& values) {
  std::vector<int> indices;
  for (const Value value : values) {
    if (value.defined() && std::find(indices.begin(), indices.end(), value.index) == indices.end()) indices.push_back(value.index);
  }
  return indices;
}

}  // namespace

Value Graph::pointwise(const Dims& sizes, DType type, std::vector<Value> reads, const std::vector<Value>& may_replace) {
  Operation operation{
      .kind = Operation::Kind::pointwise, .reads = defined_indices(reads), .may_replace = defined_indices(may_replace), .run = {}};
  return add(std::move(operation), sizes, type);
}

Value Graph::reduction(const Dims& sizes, DType type, std::vector<Value> reads) {
  return add({.kind = Operation::Kind::reduction, .reads = defined_indices(reads), .may_replace = {}, .run = {}}, sizes, type);
}

Value Graph::product(DType type, std::int64_t rows, std::int64_t columns, std::int64_t inner, std::vector<Value> factors, Turned turned,
                     Value bias) {
  factors.push_back(bias);
  return add({.kind = Operation::Kind::product,
              .reads = defined_indices(factors),
              .may_replace = {},
              .rows = rows,
              .columns = columns,
              .inner = inner,
              .turned = turned,
              .biased = bias.defined(),
              .run = {}},
             {rows, columns}, type);
}

Value Graph::concatenation(const Dims& sizes, DType type, const std::vector<Value>& parts) {
  const Value all = add({.kind = Operation::Kind::concatenation, .reads = defined_indices(parts), .may_replace = {}, .run = {}}, sizes, type);
  for (const Value part : parts) at(part.index).whole = all.index;
  return all;
}

std::vector<Value> Graph::call(std::vector<Value> reads, const std::vector<Output>& outputs,
                               std::function<std::vector<Tensor>(const std::vector<Tensor>& reads)> run, bool single) {
  const Value all = add({.kind = Operation::Kind::call, .reads = defined_indices(reads), .may_replace = {}, .run = std::move(run)}, {},
                        DType::fp32, Owner::call);
  if (single) --names_;
  std::vector<Value> values;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    values.push_back(add({.kind = Operation::Kind::element, .reads = {all.index}, .may_replace = {}, .element = outputs[i].result, .run = {}},
                         outputs[i].sizes, outputs[i].type));
  }
  return values;
}

std::vector<int> Graph::makers(const std::vector<Value>& values) const {
  std::vector<int> operations;
  for (const Value value : values) {
    if (value.defined() && at(value.index).maker >= 0) operations.push_back(at(value.index).maker);
  }
  return operations;
}

void Graph::fuse(const std::vector<Value>& values) { fused_.push_back(makers(values)); }

void Graph::order(const std::vector<Value>& values) { ordered_.push_back(makers(values)); }

void Graph::mix(const std::vector<Value>& across, const std::vector<Value>& parts, const std::vector<Value>& totals, std::int64_t rows,
                std::int64_t columns) {
  std::vector<Value> all = across;
  all.insert(all.end(), parts.begin(), parts.end());
  fuse(all);
  const int maker_of_first = at(parts.front().index).maker;
  const Dims sizes = mixed_order_workspace_sizes(tape_, rows, columns, static_cast<int>(parts.size()));
  Mixed mixed{maker_of_first, static_cast<int>(buffers_.size()), columns, {}};
  buffers_.push_back({.name = "workspace_" + std::to_string(mixed_.size()),
                      .owner = Owner::graph,
                      .sizes = sizes,
                      .type = DType::fp32,
                      .bytes = sizes.product() * size_of(DType::fp32),
                      .workspace = true,
                      .maker = maker_of_first,
                      .readers = {},
                      .tensor = {},
                      .returned = {}});
  for (std::size_t i = 0; i < parts.size(); ++i) {
    operations_[static_cast<std::size_t>(at(parts[i].index).maker)].total = totals[i].index;
    operations_[static_cast<std::size_t>(at(totals[i].index).maker)].made_early = true;
    mixed.parts.push_back(parts[i].index);
  }
  mixed_.push_back(std::move(mixed));
}

void Graph::result(Value value) {
  if (value.defined()) at(value.index).result = true;
}

// ---- nodes ------------------------------------------------------------------------------------------------------------

void Graph::make_nodes() {
  // Each operation knows an earlier one of its kernel, the first one itself; groups that share an operation are one.
  std::vector<int> earlier(operations_.size());
  std::iota(earlier.begin(), earlier.end(), 0);
  const auto first_of = [&](int operation) {
    while (earlier[static_cast<std::size_t>(operation)] != operation) {
      int& before = earlier[static_cast<std::size_t>(operation)];
      operation = before = earlier[static_cast<std::size_t>(before)];
    }
    return operation;
  };
  for (const std::vector<int>& group : fused_) {
    for (const int operation : group) {
      const auto [low, high] = std::minmax({first_of(group.front()), first_of(operation)});
      earlier[static_cast<std::size_t>(high)] = low;
    }
  }
  std::map<int, int> node_of_first;
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    const int first = first_of(static_cast<int>(i));
    const auto [known, added] = node_of_first.emplace(first, static_cast<int>(nodes_.size()));
    if (added) nodes_.emplace_back();
    operations_[i].node = known->second;
    nodes_[static_cast<std::size_t>(known->second)].operations.push_back(static_cast<int>(i));
  }
  for (const std::vector<int>& all : ordered_) nodes_[static_cast<std::size_t>(node_of(all.front()))].operations = all;
}

/// Whether the node makes the buffer.
bool Graph::is_own(int buffer, int node) const { return at(buffer).maker >= 0 && node_of(at(buffer).maker) == node; }

/// Nodes other than its maker's that read the buffer.
std::vector<int> Graph::outside_readers(int buffer) const {
  std::vector<int> readers;
  for (const int operation : at(buffer).readers) {
    const int node = node_of(operation);
    if (!is_own(buffer, node) && std::find(readers.begin(), readers.end(), node) == readers.end()) readers.push_back(node);
  }
  return readers;
}

/// A value that one kernel makes and uses up: it never reaches memory.
bool Graph::within_its_node(int buffer) const {
  const Buffer& b = at(buffer);
  const auto inside = [&](int reader) { return is_own(buffer, node_of(reader)); };
  return b.owner == Owner::graph && !b.result && !b.readers.empty() && !made_early(buffer) &&
         std::all_of(b.readers.begin(), b.readers.end(), inside);
}

/// Whether the scheduler takes a buffer to be let go behind its last reader: an input's name alone tells it so, whoever else holds the
/// tensor (torch/_inductor/utils.py, is_nonfreeable_buffers).
bool Graph::is_let_go(int buffer) const {
  const Buffer& b = at(buffer);
  return b.maker >= 0 || (!b.name.starts_with("primals_") && !b.name.starts_with("tangents_"));
}

std::vector<ScheduledBuffer> Graph::scheduled_buffers() const {
  std::vector<ScheduledBuffer> all;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const Buffer& b = buffers_[i];
    ScheduledBuffer scheduled{.name = b.name, .result = b.result, .readers = outside_readers(static_cast<int>(i))};
    if (b.workspace) {
      scheduled.maker = node_of(b.maker);
    } else if (b.maker < 0) {
      scheduled.input = true;
      if (is_let_go(static_cast<int>(i)) && !b.readers.empty()) scheduled.freed = b.bytes;
    } else {
      scheduled.maker = node_of(b.maker);
      const bool element = operations_[static_cast<std::size_t>(b.maker)].kind == Operation::Kind::element;
      scheduled.freed = b.bytes;
      scheduled.allocated = element ? 0 : b.bytes;
      if (b.owner == Owner::call) {
        for (const int reader : b.readers) scheduled.allocated += at(operations_[static_cast<std::size_t>(reader)].output).bytes;
      }
    }
    all.push_back(std::move(scheduled));
  }
  return all;
}

std::vector<ScheduledNode> Graph::scheduled_nodes() const {
  std::vector<ScheduledNode> all(nodes_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    for (const int id : nodes_[i].operations) {
      const Operation& operation = operations_[static_cast<std::size_t>(id)];
      all[i].writes.push_back(operation.output);
      for (const int read : operation.reads) {
        const Buffer& buffer = at(read);
        const bool own = buffer.maker >= 0 && node_of(buffer.maker) == static_cast<int>(i);
        if (own || !is_let_go(read)) continue;
        if (std::find(all[i].reads.begin(), all[i].reads.end(), read) == all[i].reads.end()) all[i].reads.push_back(read);
      }
    }
  }
  return all;
}

// ---- buffers ----------------------------------------------------------------------------------------------------------

/// Which buffer takes the place of which: within a kernel (SchedulerNode.decide_inplace_update), else one of the same size and type that
/// was let go last (AllocateLine.plan), unless keeping it until then would raise the estimated peak.
class Graph::Planner {
 public:
  Planner(const Graph& graph, const std::vector<int>& order)
      : graph_(graph),
        order_(order),
        memory_(memory_by_step(order, graph.scheduled_buffers())),
        step_(order.size()),
        reused_(graph.buffers_.size()),
        begun_(graph.buffers_.size()) {
    peak_ = *std::max_element(memory_.begin(), memory_.end());
    for (std::size_t i = 0; i < order.size(); ++i) step_[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
    find_last_uses();
  }

  Plan plan() {
    Plan plan{std::vector<int>(graph_.buffers_.size(), -1), std::vector<std::vector<int>>(order_.size())};
    std::vector<bool> gone(graph_.buffers_.size());
    for (std::size_t step = 0; step < order_.size(); ++step) {
      for (const int operation : graph_.nodes_[static_cast<std::size_t>(order_[step])].operations)
        plan_source(plan, operation, static_cast<int>(step), gone);
      if (const Mixed* mixed = graph_.mixed(order_[step]))
        plan.from[static_cast<std::size_t>(mixed->workspace)] = reused(mixed->workspace, static_cast<int>(step));
      for (const int buffer : dying_[step]) {
        if (gone[static_cast<std::size_t>(buffer)]) continue;
        gone[static_cast<std::size_t>(buffer)] = true;
        if (graph_.at(buffer).owner == Owner::graph && graph_.at(buffer).whole < 0) pool_[key(buffer)].push_back({buffer, static_cast<int>(step)});
        plan.let_go[step].push_back(buffer);
      }
    }
    for (std::vector<int>& buffers : plan.let_go) {
      std::erase_if(buffers, [this](int buffer) { return reused_[static_cast<std::size_t>(buffer)]; });
    }
    return plan;
  }

 private:
  struct Free {
    int buffer, step;
  };
  using Key = std::pair<DType, std::int64_t>;

  int output_of(int operation) const { return graph_.operations_[static_cast<std::size_t>(operation)].output; }
  int step_of(int operation) const { return step_[static_cast<std::size_t>(graph_.node_of(operation))]; }
  Key key(int buffer) const { return {graph_.at(buffer).type, graph_.at(buffer).bytes}; }

  /// Nobody else reads the buffer any more: other readers are done, or within the same kernel what the operation itself builds on.
  bool reads_last(int operation, int buffer) const {
    if (graph_.at(buffer).result) return false;
    const std::vector<int>& readers = graph_.at(buffer).readers;
    return std::all_of(readers.begin(), readers.end(), [&](int reader) {
      return reader == operation || step_of(reader) < step_of(operation) ||
             (step_of(reader) == step_of(operation) && builds_on(operation, reader));
    });
  }
  bool builds_on(int operation, int other) const {
    const std::vector<int>& reads = graph_.operations_[static_cast<std::size_t>(operation)].reads;
    return std::any_of(reads.begin(), reads.end(), [&](int read) {
      const int maker = graph_.at(read).maker;
      return maker >= 0 && (maker == other || (step_of(maker) == step_of(operation) && builds_on(maker, other)));
    });
  }

  /// A part of a concatenation brings the whole.
  void plan_source(Plan& plan, int id, int step, std::vector<bool>& gone) {
    const int output = output_of(id), whole = graph_.at(output).whole;
    if (graph_.operations_[static_cast<std::size_t>(id)].kind == Operation::Kind::concatenation) return;
    if (whole < 0) {
      plan.from[static_cast<std::size_t>(output)] = source(id, step, gone);
    } else if (!begun_[static_cast<std::size_t>(whole)]) {
      begun_[static_cast<std::size_t>(whole)] = true;
      plan.from[static_cast<std::size_t>(whole)] = reused(whole, step);
    }
  }

  int source(int id, int step, std::vector<bool>& gone) {
    const Operation& operation = graph_.operations_[static_cast<std::size_t>(id)];
    if (operation.kind == Operation::Kind::call || operation.kind == Operation::Kind::element) return -1;
    if (operation.made_early || operation.total >= 0 || graph_.within_its_node(operation.output)) return -1;
    for (const int candidate : operation.may_replace) {
      if (graph_.at(candidate).owner == Owner::caller || gone[static_cast<std::size_t>(candidate)]) continue;
      if (key(candidate) != key(operation.output) || !reads_last(id, candidate)) continue;
      if (graph_.within_its_node(candidate)) {  // of which the kernel keeps the place alone: new, where it was in nobody's
        if (graph_.maker(candidate).may_replace.empty()) break;
        const int held = held_by(candidate, gone);
        if (held < 0) continue;
        gone[static_cast<std::size_t>(held)] = true;
        return held;
      }
      gone[static_cast<std::size_t>(candidate)] = true;
      return candidate;
    }
    return reused(operation.output, step);
  }

  /// The buffer whose place a value within the kernel takes; -1: none.
  int held_by(int value, const std::vector<bool>& gone) const {
    for (const int candidate : graph_.maker(value).may_replace) {
      const bool own = graph_.at(candidate).owner != Owner::caller && !gone[static_cast<std::size_t>(candidate)];
      if (!own || key(candidate) != key(value) || !reads_last(graph_.at(value).maker, candidate)) continue;
      return graph_.within_its_node(candidate) ? held_by(candidate, gone) : candidate;
    }
    return -1;
  }

  /// The buffer of the same size and type that was let go last; -1: none that is worth keeping.
  int reused(int buffer, int step) {
    std::vector<Free>& free = pool_[key(buffer)];
    if (free.empty() || !worth_keeping(free.back(), step, graph_.at(buffer).bytes)) return -1;
    const Free chosen = free.back();
    free.pop_back();
    for (int between = chosen.step + 1; between < step; ++between)
      memory_[static_cast<std::size_t>(between)] += graph_.at(chosen.buffer).bytes;
    reused_[static_cast<std::size_t>(chosen.buffer)] = true;
    return chosen.buffer;
  }

  bool worth_keeping(const Free& free, int step, std::int64_t bytes) const {
    if (free.step + 1 == step) return true;
    const auto begin = memory_.begin() + free.step + 1, end = memory_.begin() + step;
    return bytes + (begin < end ? *std::max_element(begin, end) : 0) <= peak_;
  }

  /// Of every step the buffers and inputs that it reads or makes last, by name.
  void find_last_uses() {
    dying_.resize(order_.size());
    for (std::size_t i = 0; i < graph_.buffers_.size(); ++i) {
      const Buffer& buffer = graph_.buffers_[i];
      if (buffer.result || graph_.within_its_node(static_cast<int>(i)) || graph_.in_workspace(static_cast<int>(i))) continue;
      int last = buffer.maker < 0 ? -1 : step_of(buffer.maker);
      for (const int reader : buffer.readers) last = std::max(last, step_of(reader));
      if (last >= 0) dying_[static_cast<std::size_t>(last)].push_back(static_cast<int>(i));
    }
    for (std::vector<int>& buffers : dying_)
      std::sort(buffers.begin(), buffers.end(), [this](int a, int b) { return graph_.at(a).name < graph_.at(b).name; });
  }

  const Graph& graph_;
  const std::vector<int>& order_;
  std::vector<std::int64_t> memory_;
  std::vector<int> step_;
  std::int64_t peak_ = 0;
  std::map<Key, std::vector<Free>> pool_;
  std::vector<bool> reused_, begun_;
  std::vector<std::vector<int>> dying_;
};

// ---- running ----------------------------------------------------------------------------------------------------------

struct Graph::Schedule {
  std::vector<int> order;
  Plan plan;
};

void Graph::run(std::shared_ptr<const Schedule>& known) {
  make_nodes();
  for (Buffer& buffer : buffers_) {
    if (buffer.maker < 0 && buffer.readers.empty() && !buffer.result) buffer.tensor.reset();
  }
  if (!known) {
    std::vector<int> order = schedule(scheduled_nodes(), scheduled_buffers());
    Plan plan = Planner(*this, order).plan();
    known = std::make_shared<const Schedule>(Schedule{std::move(order), std::move(plan)});
  }
  for (std::size_t step = 0; step < known->order.size(); ++step) {
    execute(known->order[step], known->plan);
    for (const int buffer : known->plan.let_go[step]) {
      at(buffer).tensor.reset();
      for (std::vector<Tensor>& all = at(buffer).returned; !all.empty();) all.pop_back();  // a tuple lets go of its last one first
    }
  }
}

/// The buffer's memory: new, or that of `from` under another shape.
void Graph::place(int buffer, int from) {
  Buffer& b = at(buffer);
  if (b.whole >= 0) {  // which the first of its parts brings
    b.tensor = tape_.view(at(b.whole).tensor, b.sizes, contiguous_strides(b.sizes));
    b.tensor.impl()->base = {};
    return;
  }
  if (from < 0) {
    // Rows of masks, a byte per element, are padded where rows of wider types need not be.
    b.tensor = b.type == DType::boolean ? handed_to_backward(tape_, b.sizes, b.type) : tape_.empty(b.sizes, b.type);
    return;
  }
  b.tensor = tape_.view(at(from).tensor, b.sizes, contiguous_strides(b.sizes));
  b.tensor.impl()->base = {};  // reinterpret_tensor is no view of autograd's
  at(from).tensor.reset();
}

void Graph::launch_kernel(const Node& node) {
  Operands operands;
  bool sums = true;
  std::vector<int> seen;
  const auto whole = [&](int buffer) { return Operand{at(buffer).bytes / size_of(at(buffer).type), at(buffer).type, Walk::contiguous}; };
  for (const int id : node.operations) {
    const Operation& operation = operations_[static_cast<std::size_t>(id)];
    sums = sums && operation.kind == Operation::Kind::reduction;
    for (const int buffer : operation.reads) {
      if (within_its_node(buffer) || std::find(seen.begin(), seen.end(), buffer) != seen.end()) continue;
      seen.push_back(buffer);
      operands.read(whole(buffer));
    }
  }
  for (const int id : node.operations) {
    const int output = operations_[static_cast<std::size_t>(id)].output;
    if (!within_its_node(output)) operands.write(whole(output));
  }
  std::int64_t widest = 0;
  for (const Operand& operand : operands) widest = std::max(widest, operand.elements);
  if (!sums) return tape_.kernel({Pointwise{Pointwise::Form::fused, widest, operands}});
  const std::int64_t outputs = operands.size() > operands.reads() ? std::max<std::int64_t>(operands[operands.reads()].elements, 1) : 1;
  tape_.kernel({Reduction{Reduction::Axis::outer, outputs, ceil_div(widest, outputs), operands}});
}

/// The node's workspace, if it has one.
const Graph::Mixed* Graph::mixed(int node) const {
  const auto found = std::find_if(mixed_.begin(), mixed_.end(), [&](const Mixed& m) { return node_of(m.operation) == node; });
  return found == mixed_.end() ? nullptr : &*found;
}

void Graph::execute(int number, const Plan& plan) {
  const Node& node = nodes_[static_cast<std::size_t>(number)];
  const Operation& first = operations_[static_cast<std::size_t>(node.operations.front())];
  if (first.kind == Operation::Kind::element) {
    at(first.output).tensor = at(first.reads.front()).returned[first.element];
    return;
  }
  if (first.kind == Operation::Kind::concatenation) return;
  if (first.kind == Operation::Kind::call) {
    std::vector<Tensor> reads;
    for (const int read : first.reads) reads.push_back(at(read).tensor);
    at(first.output).returned = first.run(reads);
    return;
  }
  for (const int id : node.operations) {
    const int output = operations_[static_cast<std::size_t>(id)].output;
    if (const int whole = at(output).whole; whole >= 0 && !at(whole).tensor) place(whole, plan.from[static_cast<std::size_t>(whole)]);
    if (!within_its_node(output) && !in_workspace(output) && !made_early(output))
      place(output, plan.from[static_cast<std::size_t>(output)]);
  }
  if (const Mixed* sums = mixed(number)) {
    place(sums->workspace, plan.from[static_cast<std::size_t>(sums->workspace)]);
    return sum_workspace(*sums, node);
  }
  if (first.made_early && node.operations.size() == 1) return;
  if (first.kind == Operation::Kind::product) {
    multiply(tape_, at(first.output).type, first.rows, first.columns, first.inner, first.turned,
             first.biased ? Epilogue::bias : Epilogue::none);
  } else {
    launch_kernel(node);
  }
}

void Graph::sum_workspace(const Mixed& mixed, const Node& node) {
  launch_kernel(node);
  const Tensor& workspace = at(mixed.workspace).tensor;
  for (const int part : mixed.parts) {
    Buffer& total = at(maker(part).total);
    total.tensor = mixed_order_sum(workspace, mixed.columns, total.type);
  }
}

Tensor Graph::take(Value value) {
  if (!value.defined()) return {};
  return std::move(at(value.index).tensor);
}

}  // namespace plimsoll::program::inductor
