/// The memory that PyTorch gives BLAS to work in, by device and release (aten/src/ATen/cuda/CublasHandlePool.cpp and CUDABlas.cpp).
#pragma once

#include <cstdint>

#include "program/target_device.hpp"
#include "program/torch_release.hpp"

namespace plimsoll::program {

struct BlasWorkspaces {
  std::int64_t blas = 0;     ///< bytes of cuBLAS's or hipBLAS's
  std::int64_t blas_lt = 0;  ///< bytes of cuBLASLt's or hipBLASLt's
  bool taken_anew = false;   ///< for each product, and given back behind it; else kept by handle and stream
  bool keeps_lt = false;     ///< where they are kept, the second one too; else it is scratch of each product
  bool lt_alone = false;     ///< every product is the second library's
  bool own_handle = false;   ///< the second library has a handle of its own: its products do not ask for the first one's workspace
};

BlasWorkspaces blas_workspaces(const TargetDevice& device, const TorchRelease& torch);

}  // namespace plimsoll::program
