#include <algorithm>
#include <string>
#include <tuple>

#include "engine/parts.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::engine {
namespace {

CacheGroup kept_by(const AttentionSpec& spec, const EngineSetting& setting) {
  const std::int64_t tokens = *setting.block_size, width = size_of(cache_type(setting));
  if (spec.mla) return {0, 0, "latent", Bytes(tokens * (spec.mla->kv_lora_rank + spec.mla->qk_rope_head_dim) * width)};
  const std::int64_t window = spec.sliding_window.value_or(0);
  const Bytes page(tokens * 2 * program::kv_heads_on_rank(spec.kv_heads, setting.tp) * spec.head_dim * width);
  return {0, window, window == 0 ? "full" : spec.chunked ? "chunked" : "sliding", page};
}

}  // namespace

std::vector<CacheGroup> cache_groups(const Model& model, const EngineSetting& setting, const Stage& stage) {
  std::vector<CacheGroup> groups;
  std::int64_t begin = 0;
  for (const Block& block : model.blocks) {
    if (!is_layer(block)) continue;
    const std::int64_t from = std::max(begin, stage.first_layer), to = std::min(begin + block.repeat, stage.first_layer + stage.layers);
    begin += block.repeat;
    if (block.mamba)
      refuse("the cache of recurrent layers (" + block.name + ") is not modelled: their states are no pages of keys", block.name);
    if (to <= from || !block.attention) continue;
    const CacheGroup kept = kept_by(*block.attention, setting);
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const CacheGroup& group) {
      return std::tie(group.kind, group.window, group.page.count) == std::tie(kept.kind, kept.window, kept.page.count);
    });
    CacheGroup& group = same == groups.end() ? groups.emplace_back(kept) : *same;
    group.layers += to - from;
  }
  if (groups.empty()) refuse("no layer of " + model.name + " keeps keys and values", model.name);
  return groups;
}

BlockPool::BlockPool(std::vector<CacheGroup> groups, const EngineSetting& setting, bool hybrid)
    : groups_(std::move(groups)),
      block_size_(*setting.block_size),
      batched_tokens_(*setting.max_num_batched_tokens),
      page_(groups_.front().page) {
  for (const CacheGroup& group : groups_)
    if (group.page != page_)
      refuse("layers whose pages differ in size share no pool of blocks here", group.kind, "models whose layers keep equally wide keys");
  if (!hybrid) {
    CacheGroup all = groups_.front();
    if (groups_.size() > 1) all = {0, 0, "full", page_};
    all.layers = 0;
    for (const CacheGroup& group : groups_) all.layers += group.layers;
    groups_ = {all};
  }
  layers_of_table_ = groups_.front().layers;
  for (const CacheGroup& group : groups_) layers_of_table_ = std::min(layers_of_table_, group.layers);
  for (const CacheGroup& group : groups_) tables_ += ceil_div(group.layers, layers_of_table_);
}

std::int64_t BlockPool::blocks(Bytes cache) const { return std::max<std::int64_t>(0, cache.count) / bytes_of_block().count; }

std::int64_t BlockPool::blocks_of(std::int64_t length) const {
  std::int64_t blocks = 0;
  for (const CacheGroup& group : groups_) {
    std::int64_t kept = length, more = 0;
    if (group.window > 0) {
      // The window's tokens but the new one, and those that a step adds; a window need not begin where a block does.
      kept = std::min(length, group.window + batched_tokens_ - (group.kind == "sliding" ? 1 : 0));
      more = group.kind == "sliding" ? 1 : 0;
    }
    blocks += (ceil_div(kept, block_size_) + more) * ceil_div(group.layers, layers_of_table_);
  }
  return blocks;
}

std::int64_t BlockPool::longest(std::int64_t blocks, std::int64_t most) const {
  std::int64_t low = 0, high = most;
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    if (blocks_of(middle) <= blocks)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

}  // namespace plimsoll::engine
