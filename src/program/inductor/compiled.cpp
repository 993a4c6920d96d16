#include "program/inductor/compiled.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "program/inductor/attention.hpp"
#include "program/inductor/expressions.hpp"
#include "program/inductor/graph.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program::inductor {

namespace {

/// `tensor` under the sizes and strides by which the graph knows it.
Tensor seen_as(const Tensor& tensor, const Region& region) { return tensor.tape().view(tensor, region.sizes, region.strides); }

Tensor exchanged(const Tensor& from, CollectiveKind kind, const Dims& sizes) {
  Tape& tape = from.tape();
  Tensor all = tape.empty(sizes, from.dtype());
  tape.collective({.kind = kind, .group = Group::tensor, .bytes = std::max(all.bytes(), from.bytes()), .type = from.dtype()},
                  kComputeStream);
  return all;
}

/// query, key, value and the bias of the scores, where there is one, from the `first` argument on.
CompiledHeads heads_of(const std::vector<Tensor>& tensors, const std::vector<Region>& regions, std::size_t first, bool biased = false) {
  const auto at = [&](std::size_t i) { return seen_as(tensors[first + i], regions[first + i]); };
  return {at(0), at(1), at(2), biased ? at(3) : Tensor()};
}

AttentionArguments attention_arguments(const CompiledHeads& heads, const FxNode& node) {
  return {.causal = node.number != 0, .dropout = node.rate, .enable_gqa = heads.key.size(1) < heads.query.size(1)};
}

/// Pairs of fp32 numbers as complex ones, where they are not yet.
Tensor as_complex(const Tensor& tensor, const Region& region) {
  if (tensor.dtype() == DType::complex64) return seen_as(tensor, region);
  Dims sizes = region.sizes, strides;
  for (int i = 0; i < sizes.rank(); ++i) strides.push_back(2 * region.strides[i]);
  sizes.push_back(2), strides.push_back(1);
  return view_as_complex(tensor.tape().view(tensor, sizes, strides));
}

/// What an operator that allocates by itself gives.
std::vector<Tensor> called(const FxNode& node, const std::vector<Region>& regions, const std::vector<Tensor>& in) {
  switch (node.op) {
    case Aten::attention: {
      constexpr std::size_t kHeads = 3;
      const CompiledHeads heads = heads_of(in, regions, 0, node.args.size() > kHeads);
      FlashOutputs all = compiled_attention_forward(heads, attention_arguments(heads, node));
      return {std::move(all.output), std::move(all.log_sum_exp), std::move(all.rng_state), std::move(all.rng_offset)};
    }
    case Aten::attention_backward: {
      constexpr std::size_t kWithoutBias = 8;  // the gradient, three heads, four results of the forward
      const CompiledHeads heads = heads_of(in, regions, 1, node.args.size() > kWithoutBias);
      const std::size_t forward = node.args.size() > kWithoutBias ? 5 : 4;
      FlashGradients all = compiled_attention_backward(heads, seen_as(in[0], regions[0]), seen_as(in[forward], regions[forward]),
                                                       attention_arguments(heads, node));
      return {std::move(all.query), std::move(all.key), std::move(all.value)};
    }
    case Aten::flex_attention: {
      const CompiledHeads heads = heads_of(in, regions, 0);
      FlexOutputs all = flex_attention_forward(heads.query, heads.key, heads.value);
      return {std::move(all.output), std::move(all.log_sum_exp)};
    }
    case Aten::flex_attention_backward: {
      const CompiledHeads heads = heads_of(in, regions, 0);
      FlashGradients all = flex_attention_gradients(heads.query, heads.key, heads.value);
      return {std::move(all.query), std::move(all.key), std::move(all.value)};
    }
    case Aten::table_rows:
      return {table_rows(in[0], seen_as(in[1], regions[1]))};
    case Aten::gather_rows:
      return {gather_rows(in[0], in[1])};
    case Aten::multiply_complex:
      return {multiply_complex(as_complex(in[0], regions[0]), as_complex(in[1], regions[1]))};
    case Aten::clone_complex:
      return {elementwise(in[0].tape(), {&in[0]}, node.type)};
    case Aten::all_gather:
      return {exchanged(in[0], CollectiveKind::all_gather, node.sizes)};
    default:
      return {exchanged(in[0], CollectiveKind::reduce_scatter, node.sizes)};
  }
}

/// One run of a compiled graph.
class Run {
 public:
  Run(const CompiledGraph& compiled, Tape& tape)
      : compiled_(compiled), lowered_(compiled.lowered), graph_(tape), values_(lowered_.buffers.size()), kernels_(lowered_.operations.size()) {
    for (const FusedKernel& kernel : compiled.kernels)
      for (const int operation : kernel.operations) kernels_[static_cast<std::size_t>(operation)] = &kernel;
    for (std::size_t i = 0; i < lowered_.buffers.size(); ++i)
      if (lowered_.buffers[i].input >= 0) inputs_.emplace(lowered_.buffers[i].input, static_cast<int>(i));
  }

  /// An input's tensor; whether it is the caller's, or what the forward graph made for this one.
  void give(int placeholder, Tensor tensor, bool from_forward) {
    const auto found = inputs_.find(placeholder);
    if (found == inputs_.end()) return;  // nobody reads it
    const LoweredBuffer& given = buffer(found->second);
    values_[static_cast<std::size_t>(found->second)] = from_forward ? graph_.saved(std::move(tensor), given.sizes.product(), given.name)
                                                                    : graph_.primal(std::move(tensor), given.name);
  }

  void run() {
    for (const LoweredOperation& operation : lowered_.operations) tell(operation);
    for (const FusedKernel& kernel : compiled_.kernels) tell(kernel);
    for (const Region& result : lowered_.results)
      if (result.buffer >= 0) graph_.result(value(result.buffer));
    graph_.run(compiled_.schedule);
  }

  /// The graph's result; a buffer that is several of them is held by each.
  Tensor take(std::size_t result) {
    const Region& region = lowered_.results[result];
    if (region.buffer < 0) return {};
    Tensor& known = taken_[region.buffer];
    if (!known) known = graph_.take(value(region.buffer));
    if (known.sizes() == region.sizes) return known;
    Tensor seen = seen_as(known, region);  // reinterpret_tensor: no view of autograd's
    seen.impl()->base = {};
    return seen;
  }

 private:
  Value value(int buffer) const { return values_[static_cast<std::size_t>(buffer)]; }
  const LoweredBuffer& buffer(int number) const { return lowered_.buffers[static_cast<std::size_t>(number)]; }
  std::vector<Value> values_of(const std::vector<Region>& regions) const {
    std::vector<Value> all;
    for (const Region& region : regions) all.push_back(value(region.buffer));
    return all;
  }
  void skip_names(int count) {
    for (int i = 0; i < count; ++i) graph_.skip_name();
  }

  void tell(const LoweredOperation& operation) {
    switch (operation.kind) {
      case LoweredOperation::Kind::pointwise:
      case LoweredOperation::Kind::reduction:
        tell_loops(operation);
        break;
      case LoweredOperation::Kind::product: {
        tell_product(operation);
        break;
      }
      case LoweredOperation::Kind::concatenation: {
        const int made = operation.outputs.front();
        values_[static_cast<std::size_t>(made)] =
            graph_.concatenation(memory_of(buffer(made)), buffer(made).type, values_of(operation.arguments));
        break;
      }
      case LoweredOperation::Kind::call:
        tell_call(operation);
    }
    skip_names(operation.names_behind);
  }

  void tell_product(const LoweredOperation& operation) {
    const int made = operation.outputs.front();
    std::vector<Value> factors = values_of(operation.arguments);
    Value bias;
    if (factors.size() > 2) bias = factors.back(), factors.pop_back();
    values_[static_cast<std::size_t>(made)] =
        graph_.product(buffer(made).type, operation.rows, operation.columns, operation.inner, factors, operation.turned, bias);
  }

  void tell_loops(const LoweredOperation& operation) {
    const int made = operation.outputs.front();
    std::vector<Value> reads, replaced;
    for (const Load& load : operation.loads) {
      reads.push_back(value(load.buffer));
      if (buffer(made).whole < 0 && !is_changed(load.buffer) && is_read_where_written(operation, load) && is_read_alike(operation, load))
        replaced.push_back(value(load.buffer));
    }
    if (operation.changes >= 0) replaced = {value(operation.changes)};
    const Dims sizes = memory_of(buffer(made));
    values_[static_cast<std::size_t>(made)] = operation.is_reduction() ? graph_.reduction(sizes, buffer(made).type, reads)
                                                                       : graph_.pointwise(sizes, buffer(made).type, reads, replaced);
  }

  /// The elements that a buffer spans, of padded rows more than it has.
  static Dims memory_of(const LoweredBuffer& buffer) {
    if (buffer.whole >= 0 || buffer.strides.size() != static_cast<std::size_t>(buffer.sizes.rank())) return buffer.sizes;
    std::int64_t span = 1;
    for (int i = 0; i < buffer.sizes.rank(); ++i) span += (buffer.sizes[i] - 1) * buffer.strides[static_cast<std::size_t>(i)];
    return span > buffer.sizes.product() ? Dims{span} : buffer.sizes;
  }

  /// Whether the buffer is another one's memory, written into: nobody's result takes its place (MutationLayout).
  bool is_changed(int buffer) const {
    const int maker = this->buffer(buffer).operation;
    return maker >= 0 && lowered_.operations[static_cast<std::size_t>(maker)].changes >= 0;
  }

  /// Whether an element is read where the result's is written, and nowhere else.
  static bool is_read_where_written(const LoweredOperation& operation, const Load& load) {
    const auto reads =
        std::count_if(operation.loads.begin(), operation.loads.end(), [&](const Load& l) { return l.buffer == load.buffer; });
    return !operation.is_reduction() && reads == 1 && load.strides == operation.places && load.offset == 0 && load.way == 0;
  }

  /// Whether all of the operation's kernel read the buffer as this load does (single_index_in_fused_node).
  bool is_read_alike(const LoweredOperation& operation, const Load& load) const {
    const FusedKernel* kernel = kernels_[static_cast<std::size_t>(&operation - lowered_.operations.data())];
    if (kernel == nullptr) return true;
    const Access walk = walk_of(operation, load);
    for (const int other : kernel->operations) {
      const LoweredOperation& reader = lowered_.operations[static_cast<std::size_t>(other)];
      for (const Load& read : reader.loads)
        if (read.buffer == load.buffer && walk_of(reader, read) != walk) return false;
    }
    return true;
  }

  /// How a load goes through its buffer, whatever the order and number of the loops.
  static Access walk_of(const LoweredOperation& operation, const Load& load) {
    std::vector<std::int64_t> sizes = operation.kept;
    sizes.insert(sizes.end(), operation.summed.begin(), operation.summed.end());
    Access walk{load.buffer, load.offset, load.way, {}, {}};
    for (std::size_t i = 0; i < sizes.size(); ++i)
      if (load.strides[i] != 0) walk.sizes.push_back(sizes[i]), walk.strides.push_back(load.strides[i]);
    return in_order_of_strides(walk);
  }

  void tell_call(const LoweredOperation& operation) {
    std::vector<Graph::Output> outputs;
    for (std::size_t i = 0; i < operation.outputs.size(); ++i) {
      const LoweredBuffer& made = buffer(operation.outputs[i]);
      outputs.push_back({made.sizes, made.type, operation.results.empty() ? i : static_cast<std::size_t>(operation.results[i])});
    }
    const FxNode& node = compiled_.graph.at(operation.node);
    const bool single = rule_of(node.op).lowering == Lowering::call;
    const std::vector<Value> made = graph_.call(
        values_of(operation.arguments), outputs,
        [&node, &operation](const std::vector<Tensor>& in) { return called(node, operation.arguments, in_order(operation, in)); }, single);
    for (std::size_t i = 0; i < made.size(); ++i) values_[static_cast<std::size_t>(operation.outputs[i])] = made[i];
  }

  /// The graph gives every buffer once, in the order in which it is first read.
  static std::vector<Tensor> in_order(const LoweredOperation& operation, const std::vector<Tensor>& given) {
    std::vector<int> buffers;
    std::vector<Tensor> all;
    for (const Region& region : operation.arguments) {
      auto found = std::find(buffers.begin(), buffers.end(), region.buffer);
      if (found == buffers.end()) buffers.push_back(region.buffer), found = buffers.end() - 1;
      all.push_back(given[static_cast<std::size_t>(found - buffers.begin())]);
    }
    return all;
  }
  void tell(const FusedKernel& kernel) {
    const auto outputs = [&](const std::vector<int>& operations) {
      std::vector<Value> all;
      for (const int id : operations) all.push_back(value(lowered_.operations[static_cast<std::size_t>(id)].outputs.front()));
      return all;
    };
    if (kernel.over_rows.empty()) {
      graph_.fuse(outputs(kernel.operations));
      if (!std::is_sorted(kernel.operations.begin(), kernel.operations.end())) graph_.order(outputs(kernel.operations));
      return;
    }
    std::vector<int> across, totals;
    for (const int id : kernel.operations)
      if (std::find(kernel.over_rows.begin(), kernel.over_rows.end(), id) == kernel.over_rows.end()) across.push_back(id);
    for (const int id : kernel.over_rows) totals.push_back(total_of(id));
    const LoweredOperation& first = lowered_.operations[static_cast<std::size_t>(kernel.over_rows.front())];
    const std::int64_t columns = first.whole.empty() ? first.kept_elements() : first.whole[0];
    const std::int64_t rows = first.whole.empty() ? first.summed_elements() : first.whole[1];
    graph_.mix(outputs(across), outputs(kernel.over_rows), outputs(totals), rows, columns);
  }

  /// The second step of a sum in parts.
  int total_of(int part) const {
    const int made = lowered_.operations[static_cast<std::size_t>(part)].outputs.front();
    for (std::size_t i = 0; i < lowered_.operations.size(); ++i) {
      const LoweredOperation& operation = lowered_.operations[i];
      if (operation.is_reduction() && operation.loads.size() == 1 && operation.loads.front().buffer == made) return static_cast<int>(i);
    }
    return part;
  }

  const CompiledGraph& compiled_;
  const LoweredGraph& lowered_;
  Graph graph_;
  std::vector<Value> values_;
  std::vector<const FusedKernel*> kernels_;  ///< of each operation; null: none
  std::unordered_map<int, int> inputs_;      ///< the buffer of each placeholder that is read
  std::map<int, Tensor> taken_;
};

/// Whether the gradient lies as the graph was traced for.
bool lies_as(const FxNode& wanted, const Tensor& gradient) {
  for (int i = 0; i < wanted.sizes.rank(); ++i)
    if (wanted.sizes[i] != 1 && wanted.strides[i] != gradient.strides()[i]) return false;
  return true;
}
/// coerce_to_expected_memory_format: a copy that does.
Tensor restrided(const Tensor& gradient, const FxNode& wanted) {
  Tensor copy = gradient.tape().empty(wanted.sizes, wanted.type);
  copy.impl()->strides = wanted.strides;
  in_place(copy, {&gradient});
  return copy;
}

/// Gradients in the order of the results that have one: what nobody gave is zeros, row by row.
std::vector<Tensor> tangents_of(BackwardCall& b, const CompiledModule& module, std::size_t saved) {
  std::vector<Tensor> all;
  for (std::size_t i = 0; i < module.differentiated.size(); ++i) {
    if (!module.differentiated[i]) continue;
    Tensor given = b.take_grad(all.size());
    const FxNode& wanted = module.backward.graph.nodes[saved + all.size()];
    if (!given) given = zeros(b.tape, wanted.sizes, wanted.type);
    all.push_back(lies_as(wanted, given) ? std::move(given) : restrided(given, wanted));
  }
  return all;
}

void run_backward(BackwardCall& b, const char* name, const CompiledModule& module) {
  b.tape.operator_name = name;
  const std::size_t saved = module.donated.size();
  std::vector<Tensor> tangents = tangents_of(b, module, saved);
  Run run(module.backward, b.tape);
  for (std::size_t i = 0; i < saved; ++i) run.give(static_cast<int>(i), b.take_saved(i), module.donated[i]);
  for (std::size_t i = 0; i < tangents.size(); ++i) run.give(static_cast<int>(saved + i), std::move(tangents[i]), false);
  run.run();
  for (std::size_t i = 0; i < module.inputs; ++i)
    if (Tensor gradient = run.take(i)) b.give(i, std::move(gradient));
}

}  // namespace

CompiledGraph compile(FxGraph graph, const Tape& tape, std::size_t results) {
  LoweredGraph lowered = lower(graph, tape, results);
  std::vector<FusedKernel> kernels = fuse(lowered);
  return {.graph = std::move(graph), .lowered = std::move(lowered), .kernels = std::move(kernels)};
}

/// Whether the buffer of a saved tensor is neither the caller's nor in one of the first `results` of what the forward gives.
static bool is_donated(const LoweredGraph& forward, const std::vector<Region>& given, std::size_t results, int buffer) {
  const auto end = given.begin() + static_cast<std::ptrdiff_t>(results);
  const bool returned = std::any_of(given.begin(), end, [&](const Region& result) { return result.buffer == buffer; });
  return buffer >= 0 && forward.buffers[static_cast<std::size_t>(buffer)].input < 0 && !returned;
}

CompiledModule compile(const JointGraph& joint, const Tape& tape) {
  PartitionedGraph parts = partition(joint);
  const std::size_t results = joint.tangents.size();
  CompiledGraph forward = compile(std::move(parts.forward), tape, results);
  // What is saved lies as the forward graph made it.
  for (std::size_t i = results; i < forward.lowered.results.size(); ++i)
    if (forward.lowered.results[i].buffer >= 0) parts.backward.nodes[i - results].strides = forward.lowered.results[i].strides;
  CompiledModule module{std::move(forward), compile(std::move(parts.backward), tape), joint.inputs.size(), {}, {}};
  for (const int tangent : joint.tangents) module.differentiated.push_back(tangent >= 0);
  const std::vector<Region>& given = module.forward.lowered.results;
  for (std::size_t i = results; i < given.size(); ++i)
    module.donated.push_back(is_donated(module.forward.lowered, given, results, given[i].buffer));
  return module;
}

template <class GraphOp>
static std::vector<Tensor> run_forward(const char* name, const std::shared_ptr<const CompiledModule>& module,
                                       const std::vector<Tensor>& arguments) {
  List<const Tensor*> inputs;
  for (const Tensor& argument : arguments) inputs.push_back(&argument);
  GraphOp op(name, inputs);
  Run run(module->forward, op.tape());
  for (std::size_t i = 0; i < arguments.size(); ++i) run.give(static_cast<int>(i), arguments[i], false);
  run.run();
  const std::size_t results = module->differentiated.size();
  for (std::size_t i = results; i < module->forward.lowered.results.size(); ++i) op.save_output(run.take(i));
  std::vector<Tensor> all, differentiated;
  for (std::size_t i = 0; i < results; ++i) {
    all.push_back(run.take(i));
    all.back().impl()->strides = module->forward.graph.at(module->forward.graph.outputs[i]).strides;
    if (module->differentiated[i]) differentiated.push_back(all.back());
  }
  op.finish_all(differentiated, [name, module](BackwardCall& b) { run_backward(b, name, *module); });
  return all;
}

std::vector<Tensor> run_compiled(const char* name, const std::shared_ptr<const CompiledModule>& module,
                                 const std::vector<Tensor>& arguments, bool guarded) {
  // A graph of the same name as its operator hides it here.
  return guarded ? run_forward<CompiledLayerGraph>(name, module, arguments) : run_forward<program::CompiledGraph>(name, module, arguments);
}

}  // namespace plimsoll::program::inductor
