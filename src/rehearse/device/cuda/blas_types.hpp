/// What cuBLAS and cuBLASLt share: compute types and the statuses both use.
#pragma once

#include "rehearse/device/core/blas.hpp"
#include "types.hpp"

namespace plimsoll::device::cuda {

inline constexpr int kBlasSuccess = 0, kBlasInvalidValue = 7, kBlasNotSupported = 15;

/// The newest versions whose names are known here.
inline constexpr int kBlasVersion = PLIMSOLL_CUDA_MAJOR < 13 ? 120901 : 130401;

/// cublasComputeType_t
inline record::Compute compute_of(int code) {
  using record::Compute;
  switch (code) {
    case 64:
    case 65:
      return Compute::f16;
    case 68:
    case 69:
    case 78:
      return Compute::f32;
    case 70:
    case 71:
    case 79:
      return Compute::f64;
    case 72:
    case 73:
      return Compute::i32;
    case 74:
      return Compute::f32_from_f16;
    case 75:
      return Compute::f32_from_bf16;
    case 77:
      return Compute::tf32;
    default:
      return Compute::unknown;
  }
}

}  // namespace plimsoll::device::cuda
