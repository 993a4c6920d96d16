/// The autograd engine, after torch/csrc/autograd/engine.cpp and functions/accumulate_grad.h (PyTorch 2.15).
#include <algorithm>
#include <limits>

#include "program/kernels.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/running_node.hpp"
#include "program/streamed_node.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

namespace {

constexpr std::uint64_t kAccumulateFirst = std::numeric_limits<std::uint64_t>::max();

/// Whether a gradient lies as its leaf wants it (obeys_layout_contract of grad_layout_contract.h): by the leaf's strides where it is dense,
/// else row by row.
bool obeys_layout(const Tensor& gradient, const Tensor& variable) {
  const Dims &wanted = variable.strides(), &given = gradient.strides();
  const bool has_gaps = like_strides(variable) != wanted;
  if (has_gaps || variable.is_contiguous()) return gradient.is_contiguous();
  for (int i = 0; i < wanted.rank(); ++i)
    if (variable.sizes()[i] != 1 && given[i] != wanted[i]) return false;
  return true;
}

/// AccumulateGrad: steals a gradient that nobody else holds, clones another, adds to one that is there.
class AccumulateGrad final : public Node {
 public:
  explicit AccumulateGrad(const Tensor& variable) : variable_(variable) {
    tape = &variable.tape();
    name = "AccumulateGrad";
    sequence = kAccumulateFirst;
    label = tape->module_label;
    outputs.push_back({variable.sizes(), variable.dtype()});
    is_accumulator = true;
  }
  ~AccumulateGrad() override { variable_.impl()->accumulator = nullptr; }

  TensorMeta wanted(std::uint16_t) const override {
    const TensorImpl& leaf = *variable_.impl();
    return {leaf.sizes, leaf.grad_dtype.value_or(leaf.dtype), leaf.any_grad_dtype};
  }

  void apply(BackwardCall& call) override {
    // The engine hands over its only reference: pre-hooks see and may replace the gradient.
    Tensor incoming = call.grad();
    if (!incoming) return;
    if (const TensorMeta meta = wanted(0); !meta.takes(incoming.dtype())) {
      incoming.reset();
      const Tensor narrow = call.take_grad();
      incoming = to(narrow, meta.type);
    }
    for (const TensorHook& hook : variable_.impl()->leaf_hooks) hook(incoming);
    accumulate(std::move(incoming));
    for (const LeafHook& hook : variable_.impl()->post_accumulate) hook(variable_);
  }

 private:
  void accumulate(Tensor incoming) {
    Tensor& grad = variable_.grad();
    if (grad) {
      add_in_place(grad, incoming);
      return;
    }
    constexpr std::uint32_t kOurs = 2;  // `incoming` and the engine's input buffer
    if (incoming.impl()->references <= kOurs && obeys_layout(incoming, variable_)) {
      grad = incoming.detach();
    } else {
      grad = clone(incoming.detach());
    }
    Tape::categorize(grad, Category::gradient);
  }

  Tensor variable_;
};

/// Order of torch's ready queue: the higher sequence number first.
bool runs_later(const NodeRef& a, const NodeRef& b) { return a->sequence < b->sequence; }

/// Whether the operator saw its forward input as leaf.t().
bool sees_transposed_leaf(const Node& node, std::size_t input) {
  const NodeRef& function = node.edges[input].function;
  return function && function->is_accumulator && static_cast<int>(input) == node.transposed_input;
}

}  // namespace

struct Tape::GraphTask {
  std::vector<NodeRef> ready;  ///< a heap
  std::vector<std::function<void()>> callbacks;
  std::uint32_t restricted = 0;  ///< exec_info_: the stamp of the nodes that run; 0: all
  bool retains_graph = false;
  std::vector<Edge> inputs;      ///< whose gradients are captured
  std::vector<Tensor> captured;  ///< by input
};

bool Node::should_compute(std::size_t input) const {
  const NodeRef& next = edges[input].function;
  return next && (tape->restricted_ == 0 || next->needed == tape->restricted_);
}

Edge Tape::gradient_edge(const Tensor& tensor) {
  TensorImpl& impl = *tensor.impl();
  if (impl.grad_fn) return {impl.grad_fn, impl.output};
  if (impl.accumulator == nullptr) {
    NodeRef accumulator(new AccumulateGrad(tensor));
    impl.accumulator = accumulator.get();
    return {std::move(accumulator), 0};
  }
  return {NodeRef(impl.accumulator), 0};
}

void Tape::queue_callback(std::function<void()> callback) { tasks_.back()->callbacks.push_back(std::move(callback)); }

std::vector<Node*> Tape::count_dependencies(const std::vector<Edge>& roots) {
  const std::uint32_t visit = ++visit_;
  std::vector<Node*> pending, reached;
  const auto reach = [&](Node* node) {
    if (node->visited == visit) return;
    node->visited = visit;
    node->dependencies = 0;
    node->buffer.clear();
    pending.push_back(node);
    reached.push_back(node);
  };
  for (const Edge& root : roots) reach(root.function.get());
  while (!pending.empty()) {
    Node* node = pending.back();
    pending.pop_back();
    for (const Edge& edge : node->edges) {
      if (!edge.function) continue;
      reach(edge.function.get());
      ++edge.function->dependencies;
    }
  }
  return reached;
}

/// GraphTask::init_to_execute: of the reached nodes those run from which a gradient of `inputs` is found.
void Tape::keep_to(GraphTask& task, std::vector<Node*> reached, const std::vector<Edge>& inputs) {
  task.restricted = visit_;
  task.inputs = inputs;
  task.captured.resize(inputs.size());
  for (const Edge& input : inputs) input.function->needed = visit_;
  // Leaves last in the order of execution: a node's edges lead to lower sequence numbers or to leaves.
  std::sort(reached.begin(), reached.end(), [](const Node* a, const Node* b) {
    return a->is_accumulator != b->is_accumulator ? a->is_accumulator : a->sequence < b->sequence;
  });
  for (Node* node : reached)
    for (const Edge& edge : node->edges)
      if (edge.function && edge.function->needed == visit_) node->needed = visit_;
}

void Tape::backward(const Tensor& root, Tensor gradient) {
  std::vector<Tensor> gradients;
  gradients.push_back(std::move(gradient));
  backward(std::vector<Tensor>{root}, std::move(gradients));
}

void Tape::backward(const std::vector<Tensor>& roots, std::vector<Tensor> gradients) {
  std::vector<Edge> edges;
  for (std::size_t i = 0; i < roots.size(); ++i) {
    if (!gradients[i]) {  // _make_grads: ones_like(out)
      operator_name = "backward";
      gradients[i] = empty(roots[i].sizes(), roots[i].dtype());
      pointwise(gradients[i], {});
    }
    edges.push_back(gradient_edge(roots[i]));
  }
  count_dependencies(edges);
  GraphTask task;
  start(task, edges, std::move(gradients));
}

std::vector<Tensor> Tape::gradients(const std::vector<Edge>& roots, std::vector<Tensor> root_gradients, const std::vector<Edge>& inputs,
                                    bool retain_graph) {
  GraphTask task;
  task.retains_graph = retain_graph;
  keep_to(task, count_dependencies(roots), inputs);
  start(task, roots, std::move(root_gradients));
  return std::move(task.captured);
}

void Tape::start(GraphTask& task, const std::vector<Edge>& roots, std::vector<Tensor> gradients) {
  const GradMode no_grad(*this, false);
  const std::uint32_t restricted_before = std::exchange(restricted_, task.restricted);
  tasks_.push_back(&task);
  for (std::size_t i = 0; i < roots.size(); ++i) accumulate_into(roots[i].function->buffer, roots[i].input, gradients[i]);
  for (const Edge& root : roots) {
    const bool queued = std::find(task.ready.begin(), task.ready.end(), root.function) != task.ready.end();
    if (root.function->dependencies == 0 && !queued) {
      task.ready.push_back(root.function);
      std::push_heap(task.ready.begin(), task.ready.end(), runs_later);
    }
  }
  run(task);
  for (std::size_t i = 0; i < task.callbacks.size(); ++i) task.callbacks[i]();
  tasks_.pop_back();
  restricted_ = restricted_before;
}

/// What arrived at inputs of the task, in the type that they want.
void Tape::capture(GraphTask& task, Node& node) {
  for (std::size_t i = 0; i < task.inputs.size(); ++i) {
    const Edge& input = task.inputs[i];
    if (input.function.get() != &node || node.buffer.size() <= input.input) continue;
    Tensor arrived = std::move(node.buffer[input.input]);
    const TensorMeta wanted = node.wanted(input.input);
    if (arrived && !wanted.takes(arrived.dtype())) arrived = to(arrived, wanted.type);
    task.captured[i] = std::move(arrived);
  }
}

void Tape::run(GraphTask& task) {
  while (!task.ready.empty()) {
    std::pop_heap(task.ready.begin(), task.ready.end(), runs_later);
    const NodeRef node = std::move(task.ready.back());
    task.ready.pop_back();
    evaluate(task, node);
  }
}

namespace {

/// Where a gradient is added to one that has come before it; `current` where nothing is added.
StreamId stream_of_sum(const Edge& edge, StreamId current) {
  const Gradients& buffer = edge.function->buffer;
  if (buffer.size() <= edge.input || !buffer[edge.input]) return current;
  const auto* streamed = dynamic_cast<const StreamedNode*>(edge.function.get());
  return streamed ? streamed->stream : current;
}

}  // namespace

/// Engine::evaluate_function: the gradients go to the next nodes after the saved tensors were released.
void Tape::evaluate(GraphTask& task, const NodeRef& node) {
  if (task.restricted != 0) {
    capture(task, *node);
    bool needed = false;
    for (std::size_t i = 0; i < node->edges.size(); ++i) needed = needed || node->should_compute(i);
    if (!needed) {
      node->buffer.clear();
      return;
    }
  }
  host(node->is_accumulator ? HostWork::accumulate : HostWork::backward_node);
  Gradients outputs(node->edges.size());
  call(*node, std::move(node->buffer), outputs);
  node->buffer.clear();
  if (!task.retains_graph) node->release_saved();
  const auto send = [&](const Edge& edge, Tensor gradient) {
    const StreamScope scope(*this, stream_of_sum(edge, stream));
    accumulate_into(edge.function->buffer, edge.input, std::move(gradient));
    if (--edge.function->dependencies > 0) return;
    task.ready.push_back(edge.function);
    std::push_heap(task.ready.begin(), task.ready.end(), runs_later);
  };
  for (std::size_t i = 0; i < node->edges.size(); ++i)
    if (node->edges[i].function && !sees_transposed_leaf(*node, i)) send(node->edges[i], std::move(outputs[i]));
  // A weight reaches its product transposed: its gradient is cast behind that view's backward, when the other gradients are on their way.
  for (std::size_t i = 0; i < node->edges.size(); ++i) {
    if (!sees_transposed_leaf(*node, i)) continue;
    const Edge& edge = node->edges[i];
    const TensorMeta wanted = edge.function->wanted(edge.input);
    const bool waits = edge.function->dependencies > 1;  // for another use of the weight
    if (waits && outputs[i] && !wanted.takes(outputs[i].dtype())) outputs[i] = to(std::exchange(outputs[i], {}), wanted.type);
    send(edge, std::move(outputs[i]));
  }
}

namespace {
thread_local Node* evaluated = nullptr;
}  // namespace

Node* running_node() { return evaluated; }

/// call_function: hooks, the backward itself, and the casts of validate_outputs; the incoming gradients die on return.
void Tape::call(Node& node, Gradients inputs, Gradients& outputs) {
  const LabelScope label(*this, node.label);
  const char* const operator_before = std::exchange(operator_name, node.name);
  inputs.resize(node.outputs.size());
  for (auto& [output, hook] : node.tensor_hooks) {
    if (inputs[output]) hook(inputs[output]);
  }
  for (auto& hook : node.pre_hooks) hook(inputs);
  {
    Node* const outer = std::exchange(evaluated, &node);
    BackwardCall backward_call(*this, node, inputs, outputs);
    // Where no gradient arrived at all, a node gives none (any_variable_defined of what autograd generates).
    const bool any = inputs.empty() || std::any_of(inputs.begin(), inputs.end(), [](const Tensor& each) { return each.defined(); });
    if (any) node.apply(backward_call);
    evaluated = outer;
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Edge& edge = node.edges[i];
    if (!outputs[i] || !edge.function) continue;
    const TensorMeta wanted = edge.function->wanted(edge.input);
    if (outputs[i].sizes() != wanted.sizes) outputs[i] = sum_to(outputs[i], wanted.sizes);
    if (!wanted.takes(outputs[i].dtype()) && !sees_transposed_leaf(node, i)) outputs[i] = to(outputs[i], wanted.type);
  }
  for (auto& hook : node.post_hooks) hook(outputs);
  operator_name = operator_before;
}

/// InputBuffer::accumulate: in place when the buffer holds the last reference to the tensor and to its storage.
void Tape::accumulate_into(Gradients& buffer, std::size_t position, Tensor gradient) {
  if (!gradient) return;
  if (buffer.size() <= position) buffer.resize(position + 1);
  Tensor& slot = buffer[position];
  if (!slot) {
    slot = std::move(gradient);
    return;
  }
  const bool sole = slot.impl()->references == 1 && slot.impl()->storage->references == 1;
  if (sole) {
    add_in_place(slot, gradient);
  } else {
    slot = add(slot, gradient);
  }
}

}  // namespace plimsoll::program
