// The CPU kernels for whatever the compiler assumes of every machine.
#define PLIMSOLL_CPU_VARIANT baseline
#define PLIMSOLL_CPU_VECTOR_BYTES 16
#define Eigen plimsoll_eigen_baseline
#include "calibrate/kernels/cpu/variant.hpp"
