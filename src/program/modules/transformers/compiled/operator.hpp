/// A compiled layer as one operator on the tape.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "plimsoll/model.hpp"
#include "program/module.hpp"
#include "program/modules/transformers/compiled/layer.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// The layer's arguments by slot; undefined where it has none.
using CompiledArguments = std::array<Tensor, kArguments>;

/// The layer's input and, by slot, the weights and biases of the modules at those paths below it.
CompiledArguments arguments_at(Module& layer, const Tensor& hidden, const std::vector<std::pair<CompiledSlot, const char*>>& paths);

/// Throws Error (refused) unless `known`: compiled `layers` with `what` are not modelled.
void require_compiled(bool known, const char* layers, const char* what);

/// Whether flash attention takes heads of that dimension as they are.
bool takes_heads(const AttentionSpec& attention);

/// Of a layer with LayerNorms, a plain MLP and positions that were added to its input.
CompiledShape plain_shape(const Block& block);

/// Completes `shape` with what the arguments tell: types, sizes, biases and autocast. Throws Error (refused): products in fp32, and types
/// that autocast does not explain.
CompiledShape with_arguments(CompiledShape shape, const CompiledArguments& arguments);
/// The same where the graph itself makes the layer's input, of these sizes and in the weights' type.
CompiledShape with_arguments(CompiledShape shape, const CompiledArguments& arguments, const Dims& hidden);

/// The operations of the layer that read parameters, in the order in which they are traced; each by its weight.
std::vector<std::pair<CompiledSlot, ParameterUse>> parameter_uses(const CompiledArguments& arguments);
/// Puts the layer's weights into the parts that `parts` tells by these operations. Throws Error (refused): a part that begins with a norm.
void put_into_parts(CompiledShape& shape, const CompiledArguments& arguments, std::span<const int> parts);
/// The gradients of a cut layer's parameters and input, to those that were `given` to its forward graph.
void hand_back_all(CutGraphs& cut, const CompiledValues& given, const std::array<inductor::Value, kArguments>& gradients);
/// What the backward graph of a cut layer reads of what the forward graph was given and made.
CompiledValues saved_values(CutGraphs& cut, const CompiledShape& shape, const CompiledValues& made);

/// Whether the partitioner saves the value of that slot for the backward graph.
bool is_saved(const CompiledShape& shape, std::size_t slot);
/// Whether the slot is the weight of a product: under autocast the forward graph keeps its copy instead.
bool is_product(std::size_t slot);

/// The graphs of a layer of that shape.
std::unique_ptr<CompiledLayer> make_compiled_layer(inductor::Graph& graph, const CompiledShape& shape, CompiledValues& values,
                                                   const Tape& tape);

/// The layer's forward: its output. The backward is the graph that AOTAutograd makes of it.
Tensor compiled_layer(const CompiledArguments& arguments, const CompiledShape& shape);

}  // namespace plimsoll::program
