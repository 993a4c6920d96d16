// The CPU kernels for AVX2 and FMA.
#define PLIMSOLL_CPU_VARIANT x86_64_v3
#define PLIMSOLL_CPU_VECTOR_BYTES 32
#define Eigen plimsoll_eigen_x86_64_v3
#include "calibrate/kernels/cpu/variant.hpp"
