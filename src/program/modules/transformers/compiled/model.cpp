#include "program/modules/transformers/compiled/model.hpp"

#include <string>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/modules/transformers/compiled/head.hpp"
#include "program/op.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

using inductor::Graph;
using inductor::Value;

namespace {

using Values = std::vector<Value>;

/// Inputs of the operator: the weights around the layers, then each layer's arguments.
enum Around : std::size_t { kTable, kPositionTable, kLastNorm, kLastNormBias, kHead, kAround };

/// Values around the layers that the backward graph reads.
enum Outside : std::size_t { kPositions, kPositionRows, kEmbeddingMask, kOutsides };

/// The values of the graph, and what its backward must know of the model.
struct Parts {
  explicit Parts(const CompiledDecoder& d)
      : first(d.shape),
        rest(d.shape),
        last(d.shape),
        values(d.layers.size()),
        vocabulary(d.table.size(0)),
        positions(d.position_table ? d.position_table.size(0) : 0),
        tied(d.head.impl() == d.table.impl()),
        ends_at_logits(d.ends_at_logits) {
    first.in_model = rest.in_model = last.in_model = true;
    last.checkpointed = last.keeps_middle = last.conv1d = false;
    last.biased = {};  // nn.Linear without a bias
    const bool standard = d.shape.layer_norm && d.shape.casts();
    rest.keeps_middle = !d.shape.checkpointed && !standard;
    first.keeps_middle = rest.keeps_middle && d.position_table;  // a sum of embeddings is one that kernels take in
  }
  /// Of a layer; behind the last one that of the norm and the head.
  const CompiledShape& shape(std::size_t layer) const { return layer == values.size() ? last : layer == 0 ? first : rest; }

  CompiledShape first, rest, last;
  std::vector<CompiledValues> values;
  CompiledValues head{};
  std::array<Value, kOutsides> outside{};
  CompiledLossValues loss{};
  std::int64_t vocabulary, positions;
  bool tied, ends_at_logits;
};

// ---- forward ----------------------------------------------------------------------------------------------------------

/// Which of a batch's documents each position belongs to: a sum over the positions' differences.
Value documents(Graph& graph, const CompiledShape& s, Value positions) {
  const Dims sizes{inductor::padded_elements({s.batch, s.length + 1}, DType::int64)};
  const Value before = graph.pointwise(sizes, DType::int64, {positions});
  const Value joined = graph.pointwise(sizes, DType::int64, {before, positions}, {before});
  graph.skip_name();
  return graph.reduction({s.batch, s.length}, DType::int64, {joined});
}

/// What enters the first layer; the values that all layers read are put into its slots.
Value embed(Graph& graph, const CompiledDecoder& d, Parts& parts) {
  const CompiledShape& s = parts.first;
  CompiledValues& first = parts.values.front();
  const Dims stream{s.batch, s.length, s.hidden};
  Values reads{graph.primal(d.ids), graph.primal(d.table)}, kernel;
  if (d.position_table) {
    parts.outside[kPositions] = graph.pointwise({s.length}, DType::int64, {});
    Value rows = graph.primal(d.position_table);
    if (!s.casts())
      rows = parts.outside[kPositionRows] = graph.pointwise({1, s.length, s.hidden}, s.wide, {parts.outside[kPositions], rows});
    reads.push_back(rows);
  }
  first[kVisible] = documents(graph, s, parts.outside[kPositions]);
  if (s.dropout || s.attention_dropout > 0 || d.embedding_dropout) {
    const auto dropouts = static_cast<std::int64_t>(2 * d.layers.size() + 1);
    first[kSeeds] = graph.pointwise({dropouts}, DType::int64, {});
  }
  if (d.embedding_dropout) {
    kernel = {graph.pointwise(stream, DType::fp32, {first[kSeeds]})};
    parts.outside[kEmbeddingMask] = graph.pointwise(stream, DType::boolean, kernel);
    kernel.push_back(parts.outside[kEmbeddingMask]);
    reads.push_back(parts.outside[kEmbeddingMask]);
  }
  kernel.push_back(graph.pointwise(stream, s.wide, reads));
  graph.fuse(kernel);
  return kernel.back();
}

/// Values that every layer reads: the rotation's frequencies, the mask and the dropouts' seeds.
void share(CompiledValues& values, const CompiledValues& before) {
  for (const CompiledSlot slot : {kCosine, kVisible, kScoreBias, kSeeds}) values[slot] = before[slot];
}

/// The graph up to the logits; what it returns beside them, if anything.
Value forward_graph(Graph& graph, const CompiledDecoder& d, Parts& parts, const Tape& tape) {
  Value stream = embed(graph, d, parts);
  for (std::size_t layer = 0; layer < d.layers.size(); ++layer) {
    CompiledValues& values = parts.values[layer];
    for (std::size_t slot = 0; slot < kArguments; ++slot) {
      if (!values[slot].defined()) values[slot] = graph.primal(d.layers[layer][slot]);
    }
    if (layer > 0) {
      share(values, parts.values[layer - 1]);
    } else {
      values[kCosine] = graph.primal(d.frequencies);
    }
    values[kHidden] = stream;
    stream = make_compiled_layer(graph, parts.shape(layer), values, tape)->forward();
  }
  parts.head[kHidden] = stream;
  parts.head[kInputNorm] = graph.primal(d.norm_weight);
  parts.head[kInputNormBias] = graph.primal(d.norm_bias);
  parts.head[kOutput] = graph.primal(d.head);
  CompiledHead head(graph, parts.last, parts.head, tape, parts.vocabulary, parts.tied);
  parts.loss[kLogits] = head.forward();
  return d.ends_at_logits ? head.normed_output() : Value{};
}

// ---- what the backward graph is given ---------------------------------------------------------------------------------

/// Whether the forward graph makes the value for the backward graph; else it is one of the graph's inputs, or shared with the first layer.
bool is_made(const CompiledShape& s, std::size_t slot, std::size_t layer) {
  if (slot == kScoreBias) return layer == 0;
  return slot >= kArguments || slot == kHidden || (s.casts() && !s.checkpointed && is_product(slot));
}

/// As a layer's own graph, but that of a checkpointed one the mask is kept for all.
bool is_kept(const CompiledShape& s, std::size_t slot) { return slot == kScoreBias || is_saved(s, slot); }

/// What the operator saves, in this order: each layer's slots, the head's, the values outside, the loss's, the ids.
std::size_t saved_index(std::size_t layer, std::size_t slot) { return layer * kSlots + slot; }

/// The graph's input in the slot; undefined: none that the backward reads.
Tensor given(const CompiledDecoder& d, const Parts& parts, std::size_t layer, std::size_t slot) {
  if (layer == d.layers.size()) return slot == kInputNorm ? d.norm_weight : slot == kOutput ? d.head : Tensor();
  if (slot == kCosine) return layer == 0 ? d.frequencies : Tensor();
  return slot < kArguments && is_saved(parts.shape(layer), slot) ? d.layers[layer][slot] : Tensor();
}

/// Calls `visit(values, layer, slot)` for the layers' slots and the head's.
template <class Visit>
void each_slot(Parts& parts, const Visit& visit) {
  for (std::size_t layer = 0; layer <= parts.values.size(); ++layer) {
    CompiledValues& values = layer < parts.values.size() ? parts.values[layer] : parts.head;
    for (std::size_t slot = 0; slot < kSlots; ++slot) visit(values, layer, slot);
  }
}

/// What enters the last norm is computed again where layers are.
bool hands_on(const Parts& parts, const CompiledValues& values, std::size_t layer, std::size_t slot) {
  if (layer == parts.values.size() && slot == kHidden && parts.first.checkpointed) return false;
  return values[slot].defined() && is_kept(parts.shape(layer), slot) && is_made(parts.shape(layer), slot, layer);
}

// ---- backward ---------------------------------------------------------------------------------------------------------

/// The gradient of an embedding: rows added up in fp32.
Value summed_rows(Graph& graph, const CompiledShape& s, std::int64_t rows, const Values& reads, Value stream) {
  const Dims sizes{rows, s.hidden};
  const Value zeros = graph.pointwise(sizes, DType::fp32, {});
  Values all = reads;
  all.insert(all.end(), {stream, zeros});
  const Value summed = graph.pointwise(sizes, DType::fp32, all, {zeros});
  graph.fuse({stream, summed});
  return summed;
}

Value in_type(Graph& graph, const CompiledShape& s, std::int64_t rows, Value summed) {
  return s.wide == DType::fp32 ? summed : graph.pointwise({rows, s.hidden}, s.wide, {summed});
}

using Gradients = std::vector<std::pair<std::size_t, Value>>;  ///< by input

/// The values of the backward graph, in the order in which compiled_decoder saves them; the ids.
Value take_saved(BackwardCall& b, Graph& graph, Parts& parts) {
  each_slot(parts, [&](CompiledValues& values, std::size_t layer, std::size_t slot) {
    Tensor tensor = b.take_saved(saved_index(layer, slot));
    values[slot] = is_made(parts.shape(layer), slot, layer) ? graph.saved(std::move(tensor)) : graph.primal(std::move(tensor));
  });
  for (std::size_t layer = 1; layer < parts.values.size(); ++layer) share(parts.values[layer], parts.values[layer - 1]);
  std::size_t index = saved_index(parts.values.size() + 1, 0);
  for (Value& value : parts.outside) value = graph.saved(b.take_saved(index++));
  for (Value& value : parts.loss) value = graph.saved(b.take_saved(index++));
  return graph.primal(b.take_saved(index));
}

Gradients backward_graph(Graph& graph, Parts& parts, Value ids, Value incoming, Value of_output, const Tape& tape) {
  const CompiledShape& s = parts.first;
  Value logits = incoming;
  if (!parts.ends_at_logits) logits = compiled_loss_backward(graph, s.rows(), parts.vocabulary, s.low, incoming, of_output, parts.loss);
  CompiledHead head(graph, parts.last, parts.head, tape, parts.vocabulary, parts.tied);
  const Value normed = head.project_backward(logits);
  std::size_t layer = parts.values.size() - 1;
  auto graphs = make_compiled_layer(graph, parts.shape(layer), parts.values[layer], tape);
  const Values behind = s.checkpointed ? graphs->recompute() : Values{parts.head[kHidden]};
  const auto of_head = head.backward_behind_norm(normed, behind, parts.ends_at_logits ? of_output : Value{});
  Gradients gradients{{kLastNorm, of_head[kInputNorm]}, {kLastNormBias, of_head[kInputNormBias]}};
  if (!parts.tied) gradients.emplace_back(kHead, of_head[kOutput]);
  Value stream = of_head[kHidden];
  while (true) {
    const auto all = graphs->backward(stream);
    for (std::size_t slot = kHidden + 1; slot < kArguments; ++slot) gradients.emplace_back(kAround + layer * kArguments + slot, all[slot]);
    stream = all[kHidden];
    if (layer-- == 0) break;
    graphs = make_compiled_layer(graph, parts.shape(layer), parts.values[layer], tape);
  }
  const Value mask = parts.outside[kEmbeddingMask];
  const Value rows = summed_rows(graph, s, parts.vocabulary, {ids, mask}, stream);
  gradients.emplace_back(kTable, parts.tied ? head.tied_gradient(rows) : in_type(graph, s, parts.vocabulary, rows));
  if (parts.positions > 0) {
    const Value of_positions = summed_rows(graph, s, parts.positions, {parts.outside[kPositions], mask}, stream);
    gradients.emplace_back(kPositionTable, in_type(graph, s, parts.positions, of_positions));
  }
  return gradients;
}

void backward(BackwardCall& b, Parts parts) {
  const CompiledShape& s = parts.first;
  Graph graph(b.tape);
  const Value incoming = graph.primal(b.take_grad());
  Tensor unused =
      parts.ends_at_logits ? zeros(b.tape, {s.batch, s.length, s.hidden}, s.wide) : zeros(b.tape, {s.rows(), parts.vocabulary}, s.low);
  const Value of_output = graph.primal(std::move(unused));
  const Value ids = take_saved(b, graph, parts);
  const Gradients gradients = backward_graph(graph, parts, ids, incoming, of_output, b.tape);
  for (const auto& [input, value] : gradients) graph.result(value);
  graph.run();
  for (const auto& [input, value] : gradients) {
    if (value.defined()) b.give(input, graph.take(value));
  }
}

/// The loss as a graph of its own.
Tensor loss_apart(const Tensor& logits, const Tensor& labels) {
  CompiledGraph op("compiled_loss", {&logits});
  op.save(logits);
  Graph graph(op.tape());
  CompiledLossValues values{};
  values[kLogits] = graph.primal(logits);
  const Value loss = compiled_loss(graph, labels.size(0), labels.size(1), graph.primal(labels), values);
  for (std::size_t i = kLogits + 1; i < kLossSlots; ++i) graph.result(values[i]);
  graph.result(loss);
  graph.run();
  for (std::size_t i = kLogits + 1; i < kLossSlots; ++i) op.save_output(graph.take(values[i]));
  Tensor result = graph.take(loss);
  return op.done(result, [](BackwardCall& b) {
    Graph backward(b.tape);
    CompiledLossValues saved{};
    const Value incoming = backward.primal(b.take_grad());
    const Tensor read = b.saved(kLogits);
    for (std::size_t i = 0; i < kLossSlots; ++i)
      saved[i] = i == kLogits ? backward.primal(b.take_saved(i)) : backward.saved(b.take_saved(i));
    const Value gradient = compiled_loss_backward(backward, read.size(0), read.size(1), read.dtype(), incoming, {}, saved);
    backward.result(gradient);
    backward.run();
    b.give(0, backward.take(gradient));
  });
}

}  // namespace

CompiledOutputs compiled_decoder(const CompiledDecoder& d) {
  constexpr std::size_t kMostLayers = 512;  // the order of a graph's kernels takes time that grows with its square
  if (d.layers.size() > kMostLayers)
    refuse("torch.compile of a whole model of more than " + std::to_string(kMostLayers) + " layers is not modelled", "compile", "blocks");
  Parts parts(d);
  const Tensor none;
  List<const Tensor*> inputs{&d.table, &d.position_table, &d.norm_weight, &d.norm_bias, parts.tied ? &none : &d.head};
  for (const CompiledArguments& layer : d.layers) {
    for (const Tensor& argument : layer) inputs.push_back(&argument);
  }
  CompiledLayerGraph op("compiled_model", inputs);
  Graph graph(op.tape());
  const Value beside = forward_graph(graph, d, parts, op.tape());
  Value loss;
  if (!d.ends_at_logits) loss = compiled_loss(graph, d.ids.size(0), d.ids.size(1), graph.primal(d.labels), parts.loss);
  each_slot(parts, [&](const CompiledValues& values, std::size_t layer, std::size_t slot) {
    if (hands_on(parts, values, layer, slot)) graph.result(values[slot]);
  });
  for (const Value value : parts.outside) graph.result(value);
  for (const Value value : parts.loss) graph.result(value);
  graph.result(beside);
  graph.result(loss);
  graph.run();

  each_slot(parts, [&](const CompiledValues& values, std::size_t layer, std::size_t slot) {
    op.save_output(hands_on(parts, values, layer, slot) ? graph.take(values[slot]) : given(d, parts, layer, slot));
  });
  for (const Value value : parts.outside) op.save_output(graph.take(value));
  CompiledOutputs outputs{graph.take(loss), graph.take(parts.loss[kLogits])};
  op.save_output(d.ends_at_logits ? Tensor() : outputs.logits);
  for (std::size_t i = kLogits + 1; i < kLossSlots; ++i) op.save_output(graph.take(parts.loss[i]));
  op.save_output(d.ids);
  const Tensor normed = graph.take(beside);  // until the call returns
  Tensor& differentiated = d.ends_at_logits ? outputs.logits : outputs.loss;
  differentiated = op.done(differentiated, [parts](BackwardCall& b) { backward(b, parts); });
  if (d.ends_at_logits) outputs.loss = loss_apart(outputs.logits, d.labels);
  return outputs;
}

}  // namespace plimsoll::program
