#include "program/wrappers/megatron/torch_fsdp2.hpp"

#include <utility>

namespace plimsoll::program {

namespace {

/// sub_modules_to_wrap, in the order of model.modules(): LanguageModelEmbedding, each TransformerLayer, ColumnParallelLinear.
std::vector<Module*> units_of(const MegatronFsdpModules& modules, bool wraps_output_layer) {
  std::vector<Module*> units{&modules.root->child("embedding")};
  units.insert(units.end(), modules.layers.begin(), modules.layers.end());
  if (wraps_output_layer) units.push_back(&modules.root->child("output_layer"));
  return units;
}

Fsdp2Options options_of(const MegatronTorchFsdp2Options& said) {
  Fsdp2Options options;
  options.mesh = {said.ranks, 1, Group::data_shard, said.rank};
  options.reshard_after_forward = options.reshard_root = said.reshards;
  return options;
}

}  // namespace

MegatronTorchFsdp2::MegatronTorchFsdp2(Tape& tape, const MegatronFsdpModules& modules, const MegatronTorchFsdp2Options& options) {
  const std::vector<Module*> units = units_of(modules, options.wraps_output_layer);
  std::vector<std::vector<Module*>> wrapped;
  for (Module* unit : units) wrapped.push_back({unit});
  sharded_ = std::make_unique<Fsdp2>(tape, *modules.root, wrapped, options_of(options));
  for (std::size_t i = 0; i + 1 < units.size(); ++i) {
    if (options.prefetches_forward) sharded_->prefetch_in_forward(*units[i], *units[i + 1]);
    if (options.prefetches_backward) sharded_->prefetch_in_backward(*units[i + 1], *units[i]);
  }
  sharded_->shard_in_place();
}

std::vector<Tensor> MegatronTorchFsdp2::shards() const {
  std::vector<Tensor> trained;
  for (Tensor& shard : sharded_->shards())
    if (shard.requires_grad()) trained.push_back(std::move(shard));
  return trained;
}

}  // namespace plimsoll::program
