#include "estimate/stages.hpp"

#include <algorithm>
#include <numeric>

#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/layer_graph.hpp"
#include "plimsoll/shards.hpp"

namespace plimsoll::estimation {
namespace {

std::int64_t layers_in(const Model& model) {
  std::int64_t layers = 0;
  for (const Block& block : model.blocks)
    if (is_layer(block)) layers += block.repeat;
  return layers;
}

void refuse_two_stacks(const Model& model) {
  const auto holds = [&](Block::Role role) {
    return std::any_of(model.blocks.begin(), model.blocks.end(), [&](const Block& block) { return block.role == role; });
  };
  if (holds(Block::Role::encoder) && holds(Block::Role::decoder))
    refuse("pipeline parallelism of an encoder-decoder model is not modelled", "/pp", "set pp to 1");
}

/// Hands out the model's layers in order.
class LayerSource {
 public:
  explicit LayerSource(const Model& model) {
    for (const Block& block : model.blocks)
      if (is_layer(block)) left_.push_back({&block, block.repeat});
  }
  void take(std::int64_t layers, std::vector<Part>& into) {
    while (layers > 0 && at_ < left_.size()) {
      const std::int64_t taken = std::min(layers, left_[at_].layers);
      into.push_back({left_[at_].block, taken});
      layers -= taken;
      if ((left_[at_].layers -= taken) == 0) ++at_;
    }
  }

 private:
  std::vector<Part> left_;
  std::size_t at_ = 0;
};

std::vector<std::int64_t> layers_per_stage(const Model& model, const Strategy& resolved) {
  const std::int64_t stages = std::int64_t{resolved.pp} * std::max(1, resolved.vp);
  if (resolved.pp_layers.empty()) return even_stage_cut(layers_in(model), stages);
  return {resolved.pp_layers.begin(), resolved.pp_layers.end()};
}

ShardSpec shard_spec(const Strategy& resolved) {
  ShardSpec spec;
  spec.tp = resolved.tp;
  spec.ep = std::max(1, resolved.ep);
  spec.expert_tp = resolved.etp;
  if (engine_of(resolved) == Engine::megatron) {
    spec.vocabulary_multiple = resolved.megatron.make_vocab_size_divisible_by;
    spec.splits_heads = true;
  }
  return spec;
}

}  // namespace

RankElements Stage::elements(const Block& block, const Strategy& resolved, bool with_tied) {
  const ShardSpec spec = shard_spec(resolved);
  RankElements elements;
  for (const Operator& op : block.operators)
    for (const ParameterTensor& tensor : op.parameters)
      if (tensor.tied_to.empty() || with_tied) (tensor.expert ? elements.expert : elements.dense) += shard_elements(tensor, spec);
  return elements;
}

std::int64_t Stage::parameters(const Block& block, const Strategy& resolved, bool with_tied) {
  return elements(block, resolved, with_tied).total();
}

std::int64_t Stage::parameters(const Strategy& resolved) const {
  return std::accumulate(parts.begin(), parts.end(), std::int64_t{0}, [&](std::int64_t sum, const Part& part) {
    return sum + part.layers * parameters(*part.block, resolved, last && !first);
  });
}

std::vector<Stage> stages_of(const Model& model, const Strategy& resolved) {
  if (resolved.pp <= 1) {
    Stage whole;
    whole.first = whole.last = true;
    for (const Block& block : model.blocks) whole.parts.push_back({&block, block.repeat});
    return {whole};
  }
  refuse_two_stacks(model);
  const auto cut = layers_per_stage(model, resolved);
  if (std::accumulate(cut.begin(), cut.end(), std::int64_t{0}) != layers_in(model))
    refuse("pipeline parallelism of a model with several kinds of layers is not modelled", "/pp", "set pp to 1");
  std::vector<Stage> stages(cut.size());
  stages.front().first = stages.back().last = true;
  const auto first_layer = std::find_if(model.blocks.begin(), model.blocks.end(), is_layer);
  for (auto block = model.blocks.begin(); block != first_layer; ++block) stages.front().parts.push_back({&*block, block->repeat});
  LayerSource source(model);
  for (std::size_t i = 0; i < cut.size(); ++i) source.take(cut[i], stages[i].parts);
  for (auto block = first_layer; block != model.blocks.end(); ++block)
    if (!is_layer(*block)) stages.back().parts.push_back({&*block, block->repeat});
  return stages;
}

}  // namespace plimsoll::estimation
