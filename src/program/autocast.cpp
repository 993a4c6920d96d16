/// torch.autocast: casts of inputs and the cache of cast weights (aten/src/ATen/autocast_mode.cpp, cached_cast).
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// The cast, which a trace knows as part of the operator that asks for it.
Tensor cast_argument(const Tensor& x, DType type) {
  x.tape().host(HostWork::cast);
  if (!x.tape().trace) return to(x, type);
  x.tape().trace->casts = true;
  Tensor cast = to(x, type);
  x.tape().trace->casts = false;
  return cast;
}

}  // namespace

Tensor autocast_low(const Tensor& x) {
  Autocast& autocast = x.tape().autocast;
  const bool castable = x.dtype() == DType::fp32 || x.dtype() == DType::bf16 || x.dtype() == DType::fp16;
  if (!autocast.enabled || !castable || x.dtype() == autocast.type) return x;
  const bool cached = x.dtype() == DType::fp32 && x.requires_grad() && x.is_leaf() && !x.is_view();
  if (!cached) return cast_argument(x, autocast.type);
  const auto at = autocast.cache.find(x.impl());
  if (at != autocast.cache.end()) return at->second.second;
  const Tensor cast = cast_argument(x, autocast.type);
  autocast.cache.emplace(x.impl(), std::make_pair(x, cast));
  return cast;
}

Tensor autocast_fp32(const Tensor& x) {
  const bool low = x.dtype() == DType::bf16 || x.dtype() == DType::fp16;
  if (!x.tape().autocast.enabled || !low) return x;
  return cast_argument(x, DType::fp32);
}

}  // namespace plimsoll::program
