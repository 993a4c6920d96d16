/// Whose BLAS is being built: hipBLAS and hipBLASLt have cuBLAS's functions under their own names (vendor.hpp).
#pragma once

#include "rehearse/device/core/blas.hpp"
#include "vendor.hpp"

#if PLIMSOLL_HIP
#define BLAS(function) hipblas##function
#define LT(function) hipblasLt##function
#define BLAS_V2(function) hipblas##function  // cuBLAS has a second version of what hipBLAS has one of
#define BLAS_V2_WIDE(function, width) hipblas##function##width
#define BLAS_NAME "hipblas"
#else
#define BLAS(function) cublas##function
#define LT(function) cublasLt##function
#define BLAS_V2(function) cublas##function##_v2
#define BLAS_V2_WIDE(function, width) cublas##function##_v2##width
#define BLAS_NAME "cublas"
#endif

namespace plimsoll::device {

#if PLIMSOLL_HIP
inline constexpr int kBlasSuccess = 0, kBlasInvalidValue = 3, kBlasNotSupported = 7;
/// hipBLAS 2.4 of ROCm 6.4, 3.2 of ROCm 7.2
inline constexpr int kBlasVersion = PLIMSOLL_HIP_MAJOR < 7 ? 20400 : 30200;
#else
inline constexpr int kBlasSuccess = 0, kBlasInvalidValue = 7, kBlasNotSupported = 15;
/// The newest versions whose names are known here.
inline constexpr int kBlasVersion = PLIMSOLL_CUDA_MAJOR < 13 ? 120901 : 130401;
#endif

}  // namespace plimsoll::device
