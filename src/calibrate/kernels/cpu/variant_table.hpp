// The kernels of one instruction set, ended by a row without a name.
#pragma once

#include "calibrate/cpu_kernels.hpp"
#include "calibrate/kernels/references.hpp"

namespace plimsoll::calibrate {

struct CpuVariantRow {
  const char* name;
  CpuKernel run;
};

namespace baseline {
extern const CpuVariantRow kernels[];
}
namespace x86_64_v3 {
extern const CpuVariantRow kernels[];
}
namespace x86_64_v4 {
extern const CpuVariantRow kernels[];
}

}  // namespace plimsoll::calibrate
