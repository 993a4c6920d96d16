/// How Megatron-FSDP puts parameters into groups, and a group's parameters into one flat bucket.
/// Source: _get_parameter_groups, build_data_parallel_buffer_index in megatron/core/distributed/fsdp/src/megatron_fsdp/
/// param_and_grad_buffer.py of Megatron-core 0.16.1.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "program/module.hpp"

namespace plimsoll::program {

/// A parameter as the bucketing sees it, in registration order.
struct MegatronFsdpParameter {
  std::shared_ptr<Parameter> parameter;
  std::optional<std::int64_t> unit;  ///< the FSDP unit (layer) that it lies in
  bool expert = false;               ///< ".experts." stands in its name, however many expert-parallel ranks there are
};

struct MegatronFsdpLayoutOptions {
  bool shards = true;             ///< any strategy but no_shard: buckets are padded
  std::int64_t bucket_size = 0;   ///< elements at which a bucket outside of units closes; 0: never
  std::int64_t ranks = 1;         ///< that share the states
  std::int64_t expert_ranks = 1;  ///< that share the experts' states
};

/// A ParameterGroup: parameters that lie in one bucket, are gathered and reduced together.
struct MegatronFsdpLayout {
  struct Item {
    std::shared_ptr<Parameter> parameter;
    std::int64_t begin = 0, end = 0;  ///< elements of the bucket
  };
  /// The part of an item that lies in a rank's share.
  struct Part {
    std::int64_t begin = 0, end = 0;  ///< elements of the bucket; equal where the rank has none of it
    std::int64_t elements() const { return end - begin; }
  };

  std::vector<Item> items;  ///< in the order of the group
  std::optional<std::int64_t> unit;
  bool expert = false;
  DType type = DType::bf16;
  std::int64_t chunk = 1;     ///< chunk_size_factor: items start and shares are cut at multiples of it, where they can
  std::int64_t elements = 0;  ///< of the bucket, padding included
  std::int64_t ranks = 1;

  std::int64_t share() const { return elements / ranks; }
  Part part(const Item& item, std::int64_t rank) const;
};

std::vector<MegatronFsdpLayout> megatron_fsdp_layout(const std::vector<MegatronFsdpParameter>& parameters,
                                                     const MegatronFsdpLayoutOptions& options);

}  // namespace plimsoll::program
