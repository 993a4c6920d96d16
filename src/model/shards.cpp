#include "plimsoll/shards.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "model/operators/operators.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll {
namespace {

std::int64_t divided(std::int64_t size, std::int64_t ranks, const std::string& what) {
  if (size % ranks != 0) fail(fmt::format("{} = {} is not divisible by {} ranks", what, size, ranks));
  return size / ranks;
}

/// The cut dimension on one rank: queries evenly, keys and values over at most as many ranks as there are heads.
std::int64_t local_rows(const ParameterTensor& tensor, std::int64_t rows, std::int64_t ranks, bool splits_heads) {
  if (tensor.kv_rows > 0 && ranks <= tensor.kv_heads) (void)divided(tensor.kv_heads, ranks, "key-value heads of " + tensor.name);
  if (tensor.kv_rows == 0 || ranks <= tensor.kv_heads || splits_heads) return divided(rows, ranks, "the cut dimension of " + tensor.name);
  if (ranks % tensor.kv_heads != 0)
    fail(fmt::format("{} tensor-parallel ranks cannot share the {} key-value heads of {} evenly", ranks, tensor.kv_heads, tensor.name));
  const std::int64_t queries = divided(rows - tensor.kv_rows, ranks, "the query rows of " + tensor.name);
  return queries + tensor.kv_rows / tensor.kv_heads;
}

std::int64_t layers_on(const std::vector<LayerRange>& ranges, const Block& block) {
  std::int64_t count = 0;
  for (const auto& range : ranges) {
    const std::int64_t begin = std::max(range.first, block.first), end = std::min(range.first + range.count, block.first + block.repeat);
    count += std::max<std::int64_t>(0, end - begin);
  }
  return count;
}

/// Elements of one repeat of a block; a tied tensor counts where its original is on another stage.
std::int64_t block_elements(const Block& block, const ShardSpec& spec, bool with_tied) {
  std::int64_t total = 0;
  for (const auto& op : block.operators)
    for (const auto& tensor : op.parameters)
      if (tensor.tied_to.empty() || with_tied) total += shard_elements(tensor, spec);
  return total;
}

void require_pipeline_of_one_stack(const Model& model) {
  std::string stack;
  for (const auto& block : model.blocks) {
    const bool known = is_layer(block) || block.role == Block::Role::embedding || block.role == Block::Role::rotary ||
                       block.role == Block::Role::final_norm || block.role == Block::Role::head;
    if (!known) refuse(fmt::format("a pipeline over {}: its block {} belongs to no stage", model.architecture, block.name));
    if (!is_layer(block)) continue;
    if (!stack.empty() && stack != block.name) refuse(fmt::format("a pipeline over {}: it has two stacks", model.architecture));
    stack = block.name;
  }
}

}  // namespace

std::int64_t padded_vocabulary(std::int64_t vocabulary, std::int64_t tp, std::int64_t multiple) {
  return round_up(vocabulary, model::product({multiple, tp}));
}

std::int64_t shard_elements(const ParameterTensor& tensor, const ShardSpec& spec) {
  std::vector<std::int64_t> shape = tensor.shape;
  const std::size_t rows = tensor.expert && shape.size() > 1 ? 1 : 0;  // an expert tensor's first dimension is the expert
  std::int64_t ranks = spec.tp;
  if (tensor.expert) {
    shape.front() = divided(shape.front(), spec.ep, "the experts of " + tensor.name);
    if (spec.expert_tp > 0) ranks = spec.expert_tp;
  }
  switch (tensor.cut) {
    case Cut::replicated:
      break;
    case Cut::rows:
      shape.at(rows) = local_rows(tensor, shape.at(rows), ranks, spec.splits_heads);
      break;
    case Cut::columns:
      shape.at(rows + 1) = local_rows(tensor, shape.at(rows + 1), ranks, spec.splits_heads);
      break;
    case Cut::vocabulary:
      shape.front() = padded_vocabulary(shape.front(), ranks, spec.vocabulary_multiple) / ranks;
      break;
  }
  return model::product(shape);
}

std::vector<LayerRange> stage_layers(std::int64_t layers, const ShardSpec& spec, std::int64_t stage) {
  if (stage < 0 || stage >= spec.pp) fail(fmt::format("there is no pipeline stage {} of {}", stage, spec.pp));
  const std::int64_t chunk = divided(layers, model::product({spec.pp, spec.vp}), "the number of layers");
  std::vector<LayerRange> ranges;
  for (std::int64_t v = 0; v < spec.vp; ++v) ranges.push_back({(v * spec.pp + stage) * chunk, chunk});
  return ranges;
}

std::int64_t rank_parameters(const Model& model, const ShardSpec& spec, std::int64_t stage) {
  if (spec.pp > 1) require_pipeline_of_one_stack(model);
  const bool first = stage == 0, last = stage == spec.pp - 1;
  const auto ranges = spec.pp > 1 ? stage_layers(model.layers, spec, stage) : std::vector<LayerRange>{};
  std::int64_t total = 0;
  for (const auto& block : model.blocks) {
    std::int64_t repeats = block.repeat;
    if (spec.pp > 1 && is_layer(block))
      repeats = layers_on(ranges, block);
    else if (block.role == Block::Role::embedding && !first)
      repeats = 0;
    else if ((block.role == Block::Role::final_norm || block.role == Block::Role::head) && !last)
      repeats = 0;
    if (repeats > 0) total += model::product({repeats, block_elements(block, spec, spec.pp > 1)});
  }
  return total;
}

}  // namespace plimsoll
