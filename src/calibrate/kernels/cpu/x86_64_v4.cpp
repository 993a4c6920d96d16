// The CPU kernels for AVX-512.
#define PLIMSOLL_CPU_VARIANT x86_64_v4
#define PLIMSOLL_CPU_VECTOR_BYTES 64
#define Eigen plimsoll_eigen_x86_64_v4
#include "calibrate/kernels/cpu/variant.hpp"
