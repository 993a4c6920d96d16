// Small problems for every kernel: with edges that no tile divides, where a kernel takes them.
#pragma once

#include <vector>

#include "calibrate/kernels/kernel_table.hpp"
#include "calibrate/kernels/references.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {

inline std::vector<Sizes> small_problems(const Kernel& kernel) {
  const std::int64_t k = 2 * kMatrixRateBytes / size_of(kernel.type);  // two steps of any GEMM, at least
  switch (kernel.kind) {
    case KernelKind::empty:
      return {{}};
    case KernelKind::cache_read:
      return {{1024, 4, 2}, {8192, 12, 3}};
    case KernelKind::pointer_chase:
      return {{64, 100}};
    case KernelKind::vector_rate:
      return {{1, 3}};
    case KernelKind::matrix_rate:
      return {{1, 3}, {2, 1}};
    case KernelKind::gemm:
      return {{40, 24, 3 * k}, {130, 136, k}};
    case KernelKind::attention:
    case KernelKind::attention_backward:
      return {{1, 1, 128, 0}, {4, 2, 256, 1}};
    case KernelKind::sums:
      return {{8, 1}, {8192, 2}, {3 * 4096 + 8, 4}};
    case KernelKind::rmsnorm:
    case KernelKind::softmax:
    case KernelKind::cross_entropy:
      return {{2, 2048}, {3, 4104}, {1, 8}};
    case KernelKind::transpose:
      return {{64, 64}, {72, 136}};
    case KernelKind::all_reduce:
    case KernelKind::all_gather:
    case KernelKind::reduce_scatter:
      return {{64, 2}, {8 * 3 * 1000, 3}};
    default:
      return {{8}, {2048}, {3 * 1024 + 8}};
  }
}

}  // namespace plimsoll::calibrate
