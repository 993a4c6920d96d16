// The parts of a rank's device, each by a function of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/rules.hpp"
#include "plimsoll/engine.hpp"

namespace plimsoll::engine {

/// Layers of a pipeline stage: equal shares, what is left over on the stages before the last one, in vLLM before 0.8 on the last
/// (vllm/distributed/utils.py, get_pp_indices).
struct Stage {
  std::int64_t index = 0, first_layer = 0, layers = 0;
  bool first = true, last = true;
};
std::vector<Stage> stages_of(const Model& model, const EngineSetting& setting);

/// The setting with its defaults, after all that contradicts itself or the model was refused. `notes`: what was taken, in words.
EngineSetting settled(const Model& model, const Cluster& cluster, EngineSetting setting, std::vector<std::string>& notes);

DType compute_type(const EngineSetting& setting);
DType cache_type(const EngineSetting& setting);

/// Parameters and buffers that the engine's own classes put on a rank: the vocabulary padded to 64 rows, keys and values of fewer heads
/// than ranks copied, the rotation's table, an absorbed copy of latent attention's up-projections.
Bytes weights_on_rank(const Model& model, const EngineSetting& setting, const Stage& stage);

/// The attention layers of a stage by what they keep. Throws Error (refused): layers that keep no pages of keys.
std::vector<CacheGroup> cache_groups(const Model& model, const EngineSetting& setting, const Stage& stage);

/// A cache of pages, cut into blocks (vllm/v1/core/kv_cache_utils.py).
class BlockPool {
 public:
  /// `hybrid`: kinds of attention have tables of their own, of equal numbers of layers; else all layers keep every token.
  BlockPool(std::vector<CacheGroup> groups, const EngineSetting& setting, bool hybrid);
  std::int64_t blocks(Bytes cache) const;
  /// As vLLM prints them: blocks over the tables, times a block's tokens.
  std::int64_t tokens(std::int64_t blocks) const { return blocks / tables_ * block_size_; }
  /// Blocks of a request of that length, in all its tables.
  std::int64_t blocks_of(std::int64_t length) const;
  Bytes bytes_of(std::int64_t length) const { return bytes_of_block() * blocks_of(length); }
  Bytes bytes_of_block() const { return page_ * layers_of_table_; }
  /// The longest request that so many blocks hold, of at most `most` tokens.
  std::int64_t longest(std::int64_t blocks, std::int64_t most) const;

 private:
  std::vector<CacheGroup> groups_;
  std::int64_t block_size_, batched_tokens_;
  std::int64_t layers_of_table_ = 0, tables_ = 0;
  Bytes page_;
};

/// The profile pass, played: bytes that the allocator has in use at its peak beside the weights.
struct Profile {
  Bytes peak;
  std::string label;
};
Profile profile_of(const program::ServedRank& rank);

/// Fills in the times of steps and of the rollout that was asked for: device time, by the laws of the cost room. Weights that products do
/// not read as they lie are not priced, nor what the host does between steps.
void price_steps(EnginePlan& plan, const Model& model, const Cluster& cluster, const program::ServedRank& pass, const BlockPool& pool);

/// vLLM's and SGLang's budgets over those parts.
EnginePlan plan_vllm(const Model& model, const Cluster& cluster, const EngineSetting& setting);
EnginePlan plan_sglang(const Model& model, const Cluster& cluster, const EngineSetting& setting);

/// What is in common: sequences by length, levels of sleep, bytes in use.
void finish(EnginePlan& plan, const BlockPool& pool);

}  // namespace plimsoll::engine
