#include "calibrate/kernels/cpu/variant_table.hpp"

namespace plimsoll::calibrate {
namespace {

struct Variant {
  std::string_view instruction_set;
  const CpuVariantRow* kernels;
};

Variant best_variant() {
#if defined(PLIMSOLL_CPU_X86_64)
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (v4) return {"x86-64-v4", x86_64_v4::kernels};
  if (v3) return {"x86-64-v3", x86_64_v3::kernels};
#endif
  return {"baseline", baseline::kernels};
}

const Variant& chosen() {
  static const Variant variant = best_variant();
  return variant;
}

}  // namespace

CpuKernel cpu_kernel(std::string_view kernel_name) {
  for (const CpuVariantRow* row = chosen().kernels; row->name; ++row) {
    if (kernel_name == row->name) return row->run;
  }
  return nullptr;
}

std::string_view cpu_instruction_set() { return chosen().instruction_set; }

}  // namespace plimsoll::calibrate
