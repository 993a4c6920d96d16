#include "program/ops/attention_choice.hpp"

#include <algorithm>
#include <cmath>

namespace plimsoll::program {

namespace {

struct Call {
  const Tensor &query, &key, &value, &mask;
  const AttentionArguments& arguments;

  const TorchRelease& torch() const { return query.tape().torch; }
  bool low_precision() const { return query.dtype() == DType::bf16 || query.dtype() == DType::fp16; }
};

/// check_batch_size_and_num_heads_dense.
bool heads_fit(const Call& c, bool takes_groups) {
  const std::int64_t heads = c.query.size(1), keys = c.key.size(1);
  if (keys != c.value.size(1)) return false;
  if (c.arguments.enable_gqa && takes_groups) return heads % keys == 0;
  return heads == keys || (c.torch().takes_multi_query() && keys == 1);
}

/// check_last_dim_stride_equals_1_dense.
bool rows_lie_dense(const Call& c) {
  const auto dense = [](const Tensor& x) { return x.size(-1) == 1 || x.strides()[-1] == 1; };
  if (!dense(c.query) || !dense(c.key) || !dense(c.value)) return false;
  return !c.mask || c.mask.strides()[-1] == 1;
}

/// check_attn_mask_shape: a mask without gradient, of every pair or broadcast.
bool cudnn_takes_mask(const Call& c) {
  if (!c.mask) return true;
  if (c.mask.requires_grad() || (c.mask.rank() != 2 && c.mask.rank() != 4)) return false;
  const auto fits = [&](int dimension, std::int64_t size) { return c.mask.size(dimension) == 1 || c.mask.size(dimension) == size; };
  if (!fits(-2, c.query.size(2)) || !fits(-1, c.key.size(2))) return false;
  return c.mask.rank() == 2 || (fits(0, c.query.size(0)) && fits(1, c.query.size(1)));
}

/// can_use_cudnn_attention.
bool cudnn_takes(const Call& c) {
  constexpr std::int64_t kMostHeadDim = 256;
  const std::int64_t dim = c.query.size(-1), value_dim = c.value.size(-1);
  const double sixteenths = 16 * c.arguments.dropout;
  if (!c.query.tape().cudnn_attention || !c.low_precision() || !cudnn_takes_mask(c)) return false;
  if (c.torch().cudnn_dropout_in_sixteenths() && sixteenths != std::floor(sixteenths)) return false;
  if (std::max(dim, value_dim) > kMostHeadDim || dim % 8 != 0 || value_dim % 8 != 0 || c.key.size(2) == 1) return false;
  return heads_fit(c, true) && rows_lie_dense(c);
}

/// can_use_flash_attention. Head dimensions that are no multiple of eight are padded.
bool flash_takes(const Call& c) {
  constexpr std::int64_t kMostHeadDim = 256;
  const std::int64_t dim = c.query.size(-1);
  if (!c.low_precision() || c.mask || dim != c.key.size(-1) || dim != c.value.size(-1) || dim > kMostHeadDim) return false;
  if (c.arguments.causal && c.query.size(2) != c.key.size(2)) return false;
  return heads_fit(c, true) && rows_lie_dense(c);
}

/// can_use_mem_efficient_attention: dimensions of whole 16 bytes (minimum_gemm_alignment from sm80 on).
bool efficient_takes(const Call& c) {
  const std::int64_t dim = c.query.size(-1), whole = 16 / size_of(c.query.dtype());
  if (dim != c.key.size(-1) || dim % whole != 0 || c.value.size(-1) % whole != 0) return false;
  return heads_fit(c, c.torch().efficient_takes_grouped_heads()) && rows_lie_dense(c);
}

}  // namespace

SdpaBackend sdpa_backend(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                         const AttentionArguments& arguments) {
  const Call call{query, key, value, mask, arguments};
  if (cudnn_takes(call)) return SdpaBackend::cudnn;
  if (flash_takes(call)) return SdpaBackend::flash;
  return efficient_takes(call) ? SdpaBackend::efficient : SdpaBackend::math;
}

}  // namespace plimsoll::program
