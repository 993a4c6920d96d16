#include <algorithm>

#include "engine/parts.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/shards.hpp"

namespace plimsoll::engine {
namespace {

/// Rows to which vocabularies are padded (vocab_parallel_embedding.py, DEFAULT_VOCAB_PADDING_SIZE).
constexpr std::int64_t kVocabularyMultiple = 64;

bool is_quantized(const Operator& op, const ParameterTensor& tensor, const WeightFormat& format) {
  const std::size_t matrix = tensor.expert && tensor.shape.size() > 2 ? 3 : 2;
  if (tensor.shape.size() < matrix) return false;
  if (tensor.expert) return true;
  return op.kind == OperatorKind::linear && !format.experts_only;
}

ShardSpec shards(const EngineSetting& setting) {
  ShardSpec spec;
  spec.tp = setting.tp;
  spec.vocabulary_multiple = kVocabularyMultiple / setting.tp;
  return spec;
}

/// What an expert's padded matrix is of the model's own.
double padding_of(const Block& block, const ParameterTensor& tensor, const EngineSetting& setting, const WeightFormat& format) {
  if (!tensor.expert || !block.moe) return 1;
  const std::int64_t width = block.moe->width(), inner = std::max<std::int64_t>(1, block.moe->expert_intermediate / setting.tp);
  return static_cast<double>(round_up(width, format.width_multiple) * round_up(inner, format.inner_multiple)) /
         static_cast<double>(width * inner);
}

/// Bytes of one repeat of the block; tensors tied to one that this rank has as well are that one.
double block_bytes(const Block& block, const EngineSetting& setting, const WeightFormat& format, bool with_tied) {
  const ShardSpec spec = shards(setting);
  double bytes = 0;
  for (const Operator& op : block.operators) {
    for (const ParameterTensor& tensor : op.parameters) {
      if (!tensor.tied_to.empty() && !with_tied) continue;
      const bool frozen = is_layer(block) && is_quantized(op, tensor, format);
      const double width = frozen ? format.bits / 8 * padding_of(block, tensor, setting, format)
                                  : static_cast<double>(size_of(tensor.type.value_or(compute_type(setting))));
      bytes += width * static_cast<double>(shard_elements(tensor, spec));
    }
  }
  return bytes;
}

/// Whether the release multiplies latent attention's up-projections into those before and behind them (VLLM_MLA_PERFORM_MATRIX_ABSORPTION).
bool absorbs_whole(const EngineSetting& setting) { return setting.engine == RolloutEngine::vllm && !setting.release->since(0, 8); }

/// W_UK and W_UV beside kv_b_proj, from which they are taken once (v1/attention/backends/mla/common.py, process_weights_after_loading);
/// before 0.8 W_Q_UK and W_UV_O beside the query's and the output's projection, in the weights' own width, and W_QR.
std::int64_t absorbed_bytes(const Block& block, const EngineSetting& setting, const WeightFormat& format) {
  if (!block.attention || !block.attention->mla) return 0;
  const MlaSpec& mla = *block.attention->mla;
  const std::int64_t heads = block.attention->heads / setting.tp, width = size_of(compute_type(setting));
  if (!absorbs_whole(setting)) return heads * mla.kv_lora_rank * (mla.qk_nope_head_dim + mla.v_head_dim) * width;
  const std::int64_t hidden = block.attention->hidden, query = mla.q_lora_rank > 0 ? mla.q_lora_rank : hidden;
  return static_cast<std::int64_t>(static_cast<double>(heads * mla.kv_lora_rank * (query + hidden)) * format.bits / 8) +
         heads * query * mla.qk_rope_head_dim * width;
}

/// Cosines and sines of every position, one table for all layers (rotary_embedding.py, cos_sin_cache).
std::int64_t rotation_bytes(const Model& model, const EngineSetting& setting) {
  std::int64_t width = 0;
  for (const Block& block : model.blocks) {
    if (!block.attention || block.attention->positions != Positions::rope) continue;
    const AttentionSpec& spec = *block.attention;
    width = std::max(width, spec.mla ? spec.mla->qk_rope_head_dim : spec.rotary_dim > 0 ? spec.rotary_dim : spec.head_dim);
  }
  return width * std::max(model.max_positions, *setting.max_model_len) * size_of(compute_type(setting));
}

std::int64_t repeats_on(const Block& block, std::int64_t begin, const Stage& stage) {
  if (is_layer(block)) {
    const std::int64_t from = std::max(begin, stage.first_layer), to = std::min(begin + block.repeat, stage.first_layer + stage.layers);
    return std::max<std::int64_t>(0, to - from);
  }
  if (block.role == Block::Role::embedding) return stage.first ? block.repeat : 0;
  if (block.role == Block::Role::final_norm || block.role == Block::Role::head) return stage.last ? block.repeat : 0;
  return block.repeat;
}

}  // namespace

Bytes weights_on_rank(const Model& model, const EngineSetting& setting, const Stage& stage) {
  const WeightFormat format = setting.weights == "auto"
                                  ? WeightFormat{"auto", 8.0 * static_cast<double>(size_of(compute_type(setting))), false, false}
                                  : weight_format(setting.weights);
  double bytes = static_cast<double>(rotation_bytes(model, setting));
  std::int64_t begin = 0;
  for (const Block& block : model.blocks) {
    const std::int64_t repeats = repeats_on(block, begin, stage);
    if (is_layer(block)) begin += block.repeat;
    if (repeats == 0) continue;
    bytes += static_cast<double>(repeats) *
             (block_bytes(block, setting, format, !stage.first) + static_cast<double>(absorbed_bytes(block, setting, format)));
  }
  return Bytes(static_cast<std::int64_t>(bytes));
}

}  // namespace plimsoll::engine
