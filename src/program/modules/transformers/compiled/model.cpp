#include "program/modules/transformers/compiled/model.hpp"

#include <algorithm>
#include <span>
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
      : shapes(d.layers.size() + 1, d.shape),
        values(d.layers.size()),
        given(d.layers.size()),
        vocabulary(d.table.size(0)),
        positions(d.position_table ? d.position_table.size(0) : 0),
        tied(d.head.impl() == d.table.impl()),
        ends_at_logits(d.ends_at_logits) {
    const bool standard = d.shape.layer_norm && d.shape.casts();
    for (CompiledShape& each : shapes) {
      each.in_model = true;
      each.keeps_middle = !d.shape.checkpointed && !standard;
    }
    // A sum of embeddings is one that kernels take in.
    shapes.front().keeps_middle = shapes.front().keeps_middle && d.position_table;
    CompiledShape& last = shapes.back();
    last.checkpointed = last.keeps_middle = last.conv1d = false;
    last.biased = {};  // nn.Linear without a bias
    if (const auto& buckets = d.table.tape().ddp_buckets) cut(d, *buckets);
  }
  /// Of a layer; behind the last one that of the norm and the head.
  const CompiledShape& shape(std::size_t layer) const { return shapes[layer]; }
  const CompiledShape& last() const { return shapes.back(); }
  const CompiledShape& first() const { return shapes.front(); }
  /// Whether layers attend in other parts than that of the positions, which hands them the rotation's tables and the mask.
  bool attends_elsewhere() const {
    return std::any_of(shapes.begin(), shapes.end() - 1, [this](const CompiledShape& s) { return s.part[kV] > base; });
  }

  /// Puts what the graph uses into the parts that DDP's buckets make of it.
  void cut(const CompiledDecoder& d, const BucketLimits& buckets);

  std::vector<CompiledShape> shapes;   ///< by layer; the last one is the norm's and the head's
  std::vector<CompiledValues> values;  ///< by layer
  std::vector<CompiledValues> given;   ///< the same, of the graph's inputs alone
  CompiledValues head{};
  CompiledValues head_given{};
  std::array<Value, 2> tables{};  ///< the embedding and the positions
  Value ids;
  Value embedded;           ///< the embedding's rows, where the positions' are in the next part
  int parts = 1, base = 0;  ///< the graph's parts; that of the last embedding
  std::array<Value, kOutsides> outside{};
  CompiledLossValues loss{};
  std::int64_t vocabulary, positions;
  bool tied, ends_at_logits;
};

/// The traced operations that read parameters: of a layer several, or a checkpoint, which is one.
std::vector<std::vector<ParameterUse>> uses_by_layer(const CompiledDecoder& d) {
  std::vector<std::vector<ParameterUse>> layers;
  for (const CompiledArguments& layer : d.layers) {
    std::vector<ParameterUse>& uses = layers.emplace_back();
    for (auto& [weight, use] : parameter_uses(layer)) uses.push_back(std::move(use));
    if (!d.shape.checkpointed) continue;
    ParameterUse together;
    for (const ParameterUse& use : uses) together.insert(together.end(), use.begin(), use.end());
    uses = {std::move(together)};
  }
  return layers;
}

/// Whether what stands behind a layer keeps what its input is the sum of instead. min_cut_rematerialization_partition counts what no kernel
/// must write twice: an fp32 sum is dearer than an fp32 input of its part and a 16-bit product. (A sum whose own summand is one too is not
/// computed again, as it is read behind a product: ban_if_used_far_apart.)
bool adds_again(const CompiledShape& before, bool is_head, const CompiledShape& s) {
  const bool crosses = !is_head && s.apart(kInputNorm, kOutput);
  return s.casts() && before.apart(kOutput, kDown) && !crosses;
}

void Parts::cut(const CompiledDecoder& d, const BucketLimits& buckets) {
  const auto require = [](bool known, const char* where) {
    if (!known)
      refuse("a compiled graph that DDP's buckets cut " + std::string(where) + " is not modelled", "ddp.bucket_cap_mb", "another cap");
  };
  std::vector<ParameterUse> uses{{d.table}};
  if (d.position_table) uses.push_back({d.position_table});
  std::size_t next = uses.size();
  const std::vector<std::vector<ParameterUse>> layers = uses_by_layer(d);
  for (const std::vector<ParameterUse>& layer : layers) uses.insert(uses.end(), layer.begin(), layer.end());
  uses.push_back({d.norm_weight, d.norm_bias});
  uses.push_back({d.head});
  const std::vector<int> all = parts_of(uses, buckets);
  parts = all.back() + 1;
  if (parts == 1) return;
  base = all[next - 1];
  tied = false;  // the parts have a gradient each
  int part = base;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    shapes[layer].part[kHidden] = part;
    put_into_parts(shapes[layer], d.layers[layer], std::span(all).subspan(next, layers[layer].size()));
    next += layers[layer].size();
    part = shapes[layer].part[kDown];
  }
  require(all[next] == part, "at a norm");
  shapes.back().part[kHidden] = shapes.back().part[kInputNorm] = part;
  shapes.back().part[kOutput] = all[next + 1];
  for (std::size_t i = 1; i < shapes.size(); ++i) shapes[i].adds_input_again = adds_again(shapes[i - 1], i + 1 == shapes.size(), shapes[i]);
  for (CompiledShape& each : shapes) each.input_at_hand = each.input_at_hand || each.adds_input_again;
}

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
  const CompiledShape& s = parts.first();
  CompiledValues& first = parts.values.front();
  const Dims stream{s.batch, s.length, s.hidden};
  parts.tables = {graph.primal(d.table), graph.primal(d.position_table)};
  parts.ids = graph.primal(d.ids);
  Values reads{parts.ids, parts.tables[0]}, kernel;
  graph.enter(0);
  if (parts.base > 0) reads = {parts.embedded = graph.pointwise(stream, s.wide, reads)};
  if (d.position_table) {
    parts.outside[kPositions] = graph.pointwise({s.length}, DType::int64, {});
    graph.enter(parts.base);
    Value rows = parts.tables[1];
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
  for (const CompiledSlot slot : {kCosine, kSine, kVisible, kScoreBias, kSeeds}) values[slot] = before[slot];
}

/// What the first part computes of the positions for others: the mask and the rotation's tables.
void hand_on_positions(Graph& graph, const CompiledDecoder& d, Parts& parts) {
  const CompiledShape& s = parts.first();
  CompiledValues& first = parts.values.front();
  first[kVisible] = graph.pointwise({s.batch, 1, s.length, s.length}, DType::boolean, {first[kVisible]});
  if (!d.frequencies) return;
  const Value frequencies = graph.primal(d.frequencies);
  for (const CompiledSlot table : {kCosine, kSine}) first[table] = graph.pointwise({1, s.length, s.head_dim}, s.wide, {frequencies});
  graph.fuse({first[kCosine], first[kSine]});
}

/// The graph up to the logits; what it returns beside them, if anything.
Value forward_graph(Graph& graph, const CompiledDecoder& d, Parts& parts, const Tape& tape) {
  Value stream = embed(graph, d, parts);
  if (parts.attends_elsewhere()) hand_on_positions(graph, d, parts);
  for (std::size_t layer = 0; layer < d.layers.size(); ++layer) {
    CompiledValues& values = parts.values[layer];
    for (std::size_t slot = 0; slot < kArguments; ++slot) {
      if (!values[slot].defined()) values[slot] = graph.primal(d.layers[layer][slot]);
    }
    if (layer > 0) {
      share(values, parts.values[layer - 1]);
      if (parts.shape(layer).part[kV] != parts.shape(layer - 1).part[kV]) values[kScoreBias] = {};  // each part makes its own
    } else if (!values[kCosine].defined()) {
      values[kCosine] = graph.primal(d.frequencies);
    }
    values[kHidden] = stream;
    parts.given[layer] = values;
    stream = make_compiled_layer(graph, parts.shape(layer), values, tape)->forward();
  }
  parts.head[kHidden] = stream;
  const auto remember_sum = [&](CompiledValues& values, std::size_t layer) {
    if (!parts.shape(layer).adds_input_again) return;
    values[kBefore] = parts.values[layer - 1][kMiddle];
    values[kBeforeBranch] = parts.values[layer - 1][kBranch];
  };
  for (std::size_t layer = 1; layer < d.layers.size(); ++layer) remember_sum(parts.values[layer], layer);
  remember_sum(parts.head, d.layers.size());
  parts.head[kInputNorm] = graph.primal(d.norm_weight);
  parts.head[kInputNormBias] = graph.primal(d.norm_bias);
  parts.head[kOutput] = graph.primal(d.head);
  parts.head_given = parts.head;
  CompiledHead head(graph, parts.last(), parts.head, tape, parts.vocabulary, parts.tied);
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
  if (layer == parts.values.size() && slot == kHidden && parts.first().checkpointed) return false;
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

/// The backward graph's builder of a layer, or of the head, that may be cut: of both graphs, and what the forward graph made of each.
struct Cut {
  CutGraphs* graphs = nullptr;
  const Parts* made = nullptr;
  CompiledCut layer(std::size_t layer) const { return {graphs, made != nullptr ? &made->values[layer] : nullptr}; }
  CompiledCut head() const { return {graphs, made != nullptr ? &made->head : nullptr}; }
};

Gradients backward_graph(Graph& graph, Parts& parts, Value ids, Value incoming, Value of_output, const Tape& tape, const Cut& cut = {}) {
  const CompiledShape& s = parts.first();
  Value logits = incoming;
  graph.enter(parts.last().part[kOutput]);
  if (!parts.ends_at_logits) logits = compiled_loss_backward(graph, s.rows(), parts.vocabulary, s.low, incoming, of_output, parts.loss);
  CompiledHead head(graph, parts.last(), parts.head, tape, parts.vocabulary, parts.tied);
  head.follow(cut.head());
  const Value normed = head.project_backward(logits);
  graph.enter(parts.last().part[kInputNorm]);
  std::size_t layer = parts.values.size() - 1;
  const auto builder = [&] {
    auto graphs = make_compiled_layer(graph, parts.shape(layer), parts.values[layer], tape);
    graphs->follow(cut.layer(layer));
    return graphs;
  };
  auto graphs = builder();
  Values behind{parts.head[kHidden]};
  if (s.checkpointed) behind = graphs->recompute();
  if (parts.last().adds_input_again) behind = {parts.head[kBefore], parts.head[kBeforeBranch]};
  const auto of_head = head.backward_behind_norm(normed, behind, parts.ends_at_logits ? of_output : Value{});
  Gradients gradients{{kLastNorm, of_head[kInputNorm]}, {kLastNormBias, of_head[kInputNormBias]}};
  if (!parts.tied) gradients.emplace_back(kHead, of_head[kOutput]);
  Value stream = of_head[kHidden];
  while (true) {
    const auto all = graphs->backward(stream);
    for (std::size_t slot = kHidden + 1; slot < kArguments; ++slot) gradients.emplace_back(kAround + layer * kArguments + slot, all[slot]);
    stream = all[kHidden];
    if (cut.graphs != nullptr)
      stream = cut.graphs->hand_back(cut.made->values[layer][kHidden], stream);  // a checkpoint's input is another part's
    if (layer-- == 0) break;
    graphs = builder();
  }
  const Value mask = parts.outside[kEmbeddingMask];
  graph.enter(0);
  if (parts.base == 0) {
    const Value rows = summed_rows(graph, s, parts.vocabulary, {ids, mask}, stream);
    gradients.emplace_back(kTable, parts.tied ? head.tied_gradient(rows) : in_type(graph, s, parts.vocabulary, rows));
  }
  graph.enter(parts.base);
  if (parts.positions > 0) {
    const Value of_positions = summed_rows(graph, s, parts.positions, {parts.outside[kPositions], mask}, stream);
    gradients.emplace_back(kPositionTable, in_type(graph, s, parts.positions, of_positions));
  }
  if (parts.base > 0) {
    if (mask.defined()) stream = graph.pointwise({s.batch, s.length, s.hidden}, s.wide, {stream, mask}, {stream});
    const Value handed = cut.graphs->hand_back(cut.made->embedded, stream);
    graph.enter(0);
    gradients.emplace_back(kTable, in_type(graph, s, parts.vocabulary, summed_rows(graph, s, parts.vocabulary, {ids}, handed)));
  }
  return gradients;
}

void backward(BackwardCall& b, Parts parts) {
  const CompiledShape& s = parts.first();
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

/// The model's graphs in the parts that DDP's buckets make of them.
CompiledOutputs cut_decoder(const CompiledDecoder& d, Parts& parts) {
  Tape& tape = d.table.tape();
  CutGraphs cut(tape, parts.parts);
  const Value beside = forward_graph(cut.forward(), d, parts, tape);
  Value loss = parts.loss[kLogits];
  const Value logits = loss, labels = cut.forward().primal(d.labels);
  if (!d.ends_at_logits) loss = compiled_loss(cut.forward(), d.ids.size(0), d.ids.size(1), labels, parts.loss);

  Parts read = parts;
  for (std::size_t layer = 0; layer < parts.values.size(); ++layer)
    read.values[layer] = saved_values(cut, parts.shape(layer), parts.values[layer]);
  read.head = saved_values(cut, parts.last(), parts.head);
  for (std::size_t i = 0; i < kOutsides; ++i) read.outside[i] = cut.saved(parts.outside[i]);
  for (std::size_t i = 0; i < kLossSlots; ++i) read.loss[i] = cut.saved(parts.loss[i]);
  if (!parts.first().input_at_hand) cut.keep(parts.outside[kPositionRows]);
  const Value incoming = cut.gradient_of(loss);
  cut.backward().enter(parts.last().part[kOutput]);
  Value of_output;
  const CompiledShape& s = parts.last();
  if (!d.ends_at_logits) of_output = cut.no_gradient({s.rows(), parts.vocabulary}, s.low);
  if (d.ends_at_logits && !s.apart(kInputNorm, kOutput)) of_output = cut.no_gradient({s.batch, s.length, s.hidden}, s.wide);

  const Gradients gradients = backward_graph(cut.backward(), read, cut.saved(parts.ids), incoming, of_output, tape, {&cut, &parts});
  const std::array<Value, kAround> around{parts.tables[0], parts.tables[1], parts.head_given[kInputNorm], parts.head_given[kInputNormBias],
                                          parts.head_given[kOutput]};
  for (const auto& [input, gradient] : gradients) {
    if (!gradient.defined()) continue;
    const std::size_t in_layers = input - kAround;
    cut.backward().enter(cut.backward().part_of(gradient));
    cut.hand_back(input < kAround ? around[input] : parts.given[in_layers / kArguments][in_layers % kArguments], gradient);
  }
  const std::vector<Tensor> results = cut.run({loss, logits, beside});
  return {results[0], results[1]};
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
  if (parts.parts > 1) {
    CompiledOutputs outputs = cut_decoder(d, parts);
    if (d.ends_at_logits) outputs.loss = loss_apart(outputs.logits, d.labels);
    return outputs;
  }
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
