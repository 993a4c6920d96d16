/// What of PyTorch depends on its release.
#pragma once

#include <string>

namespace plimsoll::program {

/// A release of PyTorch, as major · 100 + minor.
struct TorchRelease {
  static constexpr int kNewest = 215;
  int number = kNewest;

  /// From a version's text ("2.11.0+cu130"); the newest that is modelled where it names none.
  static TorchRelease of(const std::string& version);

  /// Kernels of multi_tensor_apply take 32 KB of arguments instead of 4.
  bool large_kernel_arguments() const { return number >= 212; }
};

}  // namespace plimsoll::program
