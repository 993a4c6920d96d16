#include "program/ops/attention_choice.hpp"

#include <algorithm>
#include <cmath>

namespace plimsoll::program {

namespace {

struct Call {
  const Tensor &query, &key, &value, &mask;
  const AttentionArguments& arguments;

  const TorchRelease& torch() const { return query.tape().torch; }
  const TargetDevice& device() const { return query.tape().device; }
  bool sixteen_bits() const { return query.dtype() == DType::bf16 || query.dtype() == DType::fp16; }
  /// check_dtypes_low_precision: before sm_80 no bf16.
  bool low_precision() const {
    return query.dtype() == DType::fp16 || (query.dtype() == DType::bf16 && (device().amd() || device().from(80)));
  }
  bool requires_grad() const { return query.requires_grad() || key.requires_grad() || value.requires_grad(); }
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

/// can_use_cudnn_attention: from sm_80 on; heads of up to 256 on Hopper and data-centre Blackwell, of up to 128 elsewhere.
bool cudnn_takes(const Call& c) {
  const TargetDevice& device = c.device();
  if (!device.from(80)) return false;
  const std::int64_t most = device.major() == 9 || device.major() == 10 ? 256 : 128;
  const std::int64_t dim = c.query.size(-1), value_dim = c.value.size(-1);
  const double sixteenths = 16 * c.arguments.dropout;
  if (!c.query.tape().cudnn_attention || !c.low_precision() || !cudnn_takes_mask(c)) return false;
  if (c.torch().cudnn_dropout_in_sixteenths() && sixteenths != std::floor(sixteenths)) return false;
  if (std::max(dim, value_dim) > most || dim % 8 != 0 || value_dim % 8 != 0 || c.key.size(2) == 1) return false;
  return heads_fit(c, true) && rows_lie_dense(c);
}

/// aotriton::v2::flash::check_gpu: the architectures that AOTriton is compiled for, without those that are experimental
/// (TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL); PyTorch has it since 2.4, for the MI350s since 2.8.
bool aotriton_runs(const Call& c) {
  if (c.device().is_gfx("gfx950")) return c.torch().since(2, 8);
  return (c.device().is_gfx("gfx90a") || c.device().is_gfx("gfx942")) && c.torch().since(2, 4);
}

/// check_flash_attention_hardware_support.
bool flash_runs(const Call& c) { return c.device().amd() ? aotriton_runs(c) : c.device().from(80); }

/// check_head_dim_size_flash: AOTriton 0.9, in PyTorch 2.7, takes heads of up to 512.
std::int64_t most_flash_head_dim(const Call& c) { return c.device().amd() && c.torch().since(2, 7) ? 512 : 256; }

/// check_requires_grad_and_head_dim_gt192_constraints_on_sm86_89_or_120: the backward of such heads has too little shared memory.
bool small_blocks_train_it(const Call& c) {
  const int capability = c.device().capability;
  const bool small = (capability >= 86 && capability <= 89) || capability == 120 || capability == 121;
  const std::int64_t dim = c.query.size(-1);
  return !small || !c.requires_grad() || dim <= 192 || (c.arguments.dropout == 0 && dim > 224);
}

/// can_use_flash_attention. Head dimensions that are no multiple of eight are padded.
bool flash_takes(const Call& c) {
  const std::int64_t dim = c.query.size(-1);
  if (!flash_runs(c) || !small_blocks_train_it(c)) return false;
  if (!c.low_precision() || c.mask || dim != c.key.size(-1) || dim != c.value.size(-1) || dim > most_flash_head_dim(c)) return false;
  if (c.arguments.causal && c.query.size(2) != c.key.size(2)) return false;
  return heads_fit(c, true) && rows_lie_dense(c);
}

/// minimum_gemm_alignment: dimensions of whole 16 bytes, but for fp32 before sm_80, whose products run without tensor cores.
std::int64_t whole_dimensions(const Call& c) {
  if (!c.device().amd() && !c.device().from(80) && !c.sixteen_bits()) return 1;
  return 16 / size_of(c.query.dtype());
}

/// check_head_dim_size_mem_efficient on ROCm, where both kinds are the same kernels.
bool aotriton_takes_efficient(const Call& c) {
  const std::int64_t dim = c.query.size(-1);
  return aotriton_runs(c) && dim == c.value.size(-1) && dim <= 256;
}

/// can_use_mem_efficient_attention: from sm_50 on, in bf16 from sm_80 on. On ROCm no groups of heads.
bool efficient_takes(const Call& c) {
  const std::int64_t dim = c.query.size(-1), whole = whole_dimensions(c);
  if (c.sixteen_bits() && !c.low_precision()) return false;
  if (c.device().amd() && !aotriton_takes_efficient(c)) return false;
  if (dim != c.key.size(-1) || dim % whole != 0 || c.value.size(-1) % whole != 0) return false;
  return heads_fit(c, !c.device().amd() && c.torch().efficient_takes_grouped_heads()) && rows_lie_dense(c);
}

}  // namespace

SdpaBackend sdpa_backend(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                         const AttentionArguments& arguments) {
  if (query.rank() != 4) return SdpaBackend::math;  // check_tensor_shapes
  const Call call{query, key, value, mask, arguments};
  if (cudnn_takes(call)) return SdpaBackend::cudnn;
  if (flash_takes(call)) return SdpaBackend::flash;
  return efficient_takes(call) ? SdpaBackend::efficient : SdpaBackend::math;
}

}  // namespace plimsoll::program
