#include "program/modules/transformers/compiled/operator.hpp"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/modules/transformers/compiled/pre_norm.hpp"
#include "program/op.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

using inductor::Graph;
using inductor::Value;

bool is_product(std::size_t slot) {
  return slot == kQkv || slot == kQ || slot == kK || slot == kV || slot == kOutput || slot == kGate || slot == kUp || slot == kDown;
}

namespace {

bool is_bias(std::size_t slot) { return slot == kInputNormBias || slot == kMlpNormBias || (slot > 0 && is_product(slot - 1)); }

/// 16-bit rows of more than `kPaddedRow` elements are padded to whole multiples of `kWholeRow` (torch/_inductor/ir.py,
/// Layout._pad_strides).
constexpr std::int64_t kPaddedRow = 1024, kWholeRow = 64;

CompiledValues values_of(Graph& graph, const CompiledArguments& arguments) {
  CompiledValues values;
  for (std::size_t i = 0; i < kArguments; ++i) values[i] = graph.primal(arguments[i]);
  return values;
}

void backward(BackwardCall& b, const CompiledShape& s) {
  Graph graph(b.tape);
  const Value incoming = graph.primal(b.take_grad());
  CompiledValues values;
  for (std::size_t i = 0; i < kSlots; ++i) {
    const bool made = i >= kArguments || (s.casts() && !s.checkpointed && is_product(i));
    Tensor tensor = b.take_saved(i);
    std::optional<std::int64_t> elements;
    if (i == kProjections && s.rotary) elements = s.rows() * s.kv_width();  // the values among them
    values[i] = made ? graph.saved(std::move(tensor), elements) : graph.primal(std::move(tensor));
  }
  const std::array<Value, kArguments> gradients = make_compiled_layer(graph, s, values, b.tape)->backward(incoming);
  for (const Value value : gradients) graph.result(value);
  graph.run();
  for (std::size_t i = 0; i < kArguments; ++i) {
    if (gradients[i].defined()) b.give(i, graph.take(gradients[i]));
  }
}

}  // namespace

/// Of a whole model's LayerNorms (model_norm.cpp).
static bool keeps_standard(const CompiledShape& s, CompiledSlot norm) { return s.in_model && s.layer_norm && s.standardizes(norm); }

/// What the partitioner saves: a checkpointed graph its arguments; else arguments but biases, and activations that products, norms,
/// rotations and attention read again.
bool is_saved(const CompiledShape& s, std::size_t slot) {
  if (s.checkpointed) return slot < kArguments;
  if (slot == kSeeds) return false;
  if (slot == kProjected) return !s.keeps_middle && !keeps_standard(s, kMlpNorm);
  if (slot == kHidden && keeps_standard(s, kInputNorm)) return false;
  if (slot == kVisible) return false;  // the bias made of it is
  if (slot < kArguments) return !is_bias(slot);
  if (slot == kRawQuery || slot == kRawKey) return s.head_norms;
  if (slot == kRaised) return !s.relu;
  return true;
}

std::unique_ptr<CompiledLayer> make_compiled_layer(Graph& graph, const CompiledShape& s, CompiledValues& values, const Tape& tape) {
  if (s.in_model && s.layer_norm) return std::make_unique<CompiledPreNormLayer>(graph, s, values, tape);
  return std::make_unique<CompiledLayer>(graph, s, values, tape);
}

CompiledArguments arguments_at(Module& layer, const Tensor& hidden, const std::vector<std::pair<CompiledSlot, const char*>>& paths) {
  CompiledArguments arguments;
  arguments[kHidden] = hidden;
  for (const auto& [slot, path] : paths) {
    Module& part = *layer.find(path);
    arguments[slot] = part.tensor("weight");
    arguments[slot + 1] = part.tensor("bias");
  }
  return arguments;
}

void require_compiled(bool known, const char* layers, const char* what) {
  if (!known) refuse("compiled " + std::string(layers) + " with " + what + " are not modelled", "compile");
}

bool takes_heads(const AttentionSpec& attention) { return attention.head_dim % 8 == 0 && attention.head_dim <= 256; }

CompiledShape plain_shape(const Block& block) {
  CompiledShape shape;
  shape.layer_norm = true;
  shape.gated = false;
  shape.rotary = false;
  shape.dropout = block.hidden_dropout > 0;
  shape.attention_dropout = block.attention->dropout;
  shape.heads = shape.kv_heads = block.attention->heads;
  shape.head_dim = block.attention->head_dim;
  shape.inner = block.mlp->intermediate;
  return shape;
}

CompiledShape with_arguments(CompiledShape s, const CompiledArguments& arguments) {
  const Tensor& hidden = arguments[kHidden];
  if (hidden.dtype() != arguments[kOutput].dtype())
    refuse("compiled blocks whose weights and inputs have different types are not modelled", "compile");
  return with_arguments(std::move(s), arguments, hidden.sizes());
}

CompiledShape with_arguments(CompiledShape s, const CompiledArguments& arguments, const Dims& hidden) {
  s.wide = arguments[kOutput].dtype();
  const Autocast& autocast = arguments[kOutput].tape().autocast;
  s.low = autocast.enabled ? autocast.type : s.wide;
  if (s.low == DType::fp32) refuse("compiled blocks with fp32 products are not modelled", "compile");
  for (std::size_t slot = 0; slot + 1 < kArguments; ++slot) s.biased[slot] = is_product(slot) && arguments[slot + 1].defined();
  for (const std::int64_t row : {hidden[2], s.q_width(), s.kv_width(), s.inner}) {
    if (row > kPaddedRow && row % kWholeRow != 0)
      refuse("compiled blocks with rows of " + std::to_string(row) + " elements, which Inductor pads, are not modelled", "compile",
             "sizes that are multiples of " + std::to_string(kWholeRow));
  }
  s.batch = hidden[0];
  s.length = hidden[1];
  s.hidden = hidden[2];
  return s;
}

/// Layers whose graphs are followed where DDP's buckets cut them; a checkpoint is one operation of the traced graph. Others are taken to be
/// one graph.
static bool is_cut(const CompiledShape& s) { return !s.checkpointed && !s.dropout; }

/// The layer's forward in the parts of its graph.
static Tensor cut_layer(const CompiledArguments& arguments, const CompiledShape& s, int parts) {
  Tape& tape = arguments[kHidden].tape();
  CutGraphs cut(tape, parts);
  CompiledValues made = values_of(cut.forward(), arguments);
  const CompiledValues given = made;
  const Value output = make_compiled_layer(cut.forward(), s, made, tape)->forward();
  CompiledValues kept = saved_values(cut, s, made);
  const std::unique_ptr<CompiledLayer> layer = make_compiled_layer(cut.backward(), s, kept, tape);
  layer->follow({&cut, &made});
  hand_back_all(cut, given, layer->backward(cut.gradient_of(output)));
  return cut.run({output}).front();
}

Tensor compiled_layer(const CompiledArguments& arguments, const CompiledShape& s) {
  if (const auto& buckets = arguments[kHidden].tape().ddp_buckets; buckets && is_cut(s)) {
    std::vector<ParameterUse> uses;
    for (auto& [weight, use] : parameter_uses(arguments)) uses.push_back(std::move(use));
    const std::vector<int> parts = parts_of(uses, *buckets);
    if (parts.back() > 0) {
      CompiledShape shape = s;
      put_into_parts(shape, arguments, parts);
      return cut_layer(arguments, shape, parts.back() + 1);
    }
  }
  List<const Tensor*> inputs;
  for (const Tensor& argument : arguments) inputs.push_back(&argument);
  CompiledLayerGraph op("compiled_layer", inputs);

  Graph graph(op.tape());
  CompiledValues values = values_of(graph, arguments);
  const CompiledValues given = values;
  const Value output = make_compiled_layer(graph, s, values, op.tape())->forward();
  graph.result(output);
  const auto kept = [&](std::size_t slot) { return !s.checkpointed && is_saved(s, slot) && values[slot].index != given[slot].index; };
  for (std::size_t i = 0; i < kSlots; ++i) {
    if (kept(i)) graph.result(values[i]);
  }
  graph.run();
  for (std::size_t i = 0; i < kSlots; ++i) {
    if (kept(i)) {
      op.save_output(graph.take(values[i]));
    } else {
      op.save_output(i < kArguments && is_saved(s, i) ? arguments[i] : Tensor());
    }
  }
  Tensor result = graph.take(output);
  return op.done(result, [s](BackwardCall& b) { backward(b, s); });
}

}  // namespace plimsoll::program
