/// What one rank holds of a model's parameters under tensor, pipeline and expert parallelism.
#pragma once

#include <cstdint>
#include <vector>

#include "plimsoll/model.hpp"

namespace plimsoll {

/// How a model is cut. Data parallelism is no part of it: it copies or shards what is counted here.
struct ShardSpec {
  std::int64_t tp = 1;                   ///< tensor parallel
  std::int64_t pp = 1;                   ///< pipeline stages
  std::int64_t vp = 1;                   ///< model chunks per stage (virtual stages)
  std::int64_t ep = 1;                   ///< expert parallel
  std::int64_t expert_tp = 0;            ///< tensor parallel within an expert; 0: as tp
  std::int64_t vocabulary_multiple = 1;  ///< the vocabulary is padded to a multiple of this times tp; Megatron-LM: 128
  bool splits_heads = false;  ///< keys and values of fewer heads than ranks are cut all the same (Megatron-core gathers their products)
};

/// Rows of the embedding after padding: the smallest multiple of multiple · tp that holds the vocabulary
/// (Megatron-LM --make-vocab-size-divisible-by).
std::int64_t padded_vocabulary(std::int64_t vocabulary, std::int64_t tp, std::int64_t multiple = 128);

/// Elements of one parameter on a rank. Keys and values of fewer heads than ranks are held as copies of one head, unless heads are split.
/// Throws Error when a degree does not divide the dimension it cuts.
std::int64_t shard_elements(const ParameterTensor& tensor, const ShardSpec& spec);

/// Layers first … first + count − 1 of a stack.
struct LayerRange {
  std::int64_t first = 0, count = 0;
};

/// The runs of layers of stage `stage`: equal contiguous chunks, chunk i on stage i mod pp. Throws Error when pp · vp does not divide the
/// layers.
std::vector<LayerRange> stage_layers(std::int64_t layers, const ShardSpec& spec, std::int64_t stage);

/// Parameters that one rank of pipeline stage `stage` holds: its layers, the embedding on the first stage, final norm and head on the last.
/// A tied head is a second copy on the last of several stages. Throws Error for a cut that does not come out even, and refuses pipelines of
/// anything but one stack of decoder or encoder layers.
std::int64_t rank_parameters(const Model& model, const ShardSpec& spec, std::int64_t stage = 0);

}  // namespace plimsoll
