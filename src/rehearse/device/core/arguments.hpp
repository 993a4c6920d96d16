/// Which of a kernel's arguments are worth keeping: what its grid does not tell about its work is in them (how many rows, which strides).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "export.hpp"

namespace plimsoll::device {

struct KeptArgument {
  std::uint16_t parameter = 0;  ///< of the signature, from 0
  std::uint16_t bytes = 0;      ///< from its beginning
};

/// Of the kernel of that (mangled) name: its numbers and pointers by the signature that the name carries, and the first bytes of the
/// structures that PyTorch gives its generic kernels by value. Empty for a name without a signature (C functions, Triton's kernels).
PLIMSOLL_DEVICE_CORE std::vector<KeptArgument> kept_arguments(const char* mangled);

}  // namespace plimsoll::device
