// What clang makes one code object (AMD) or PTX text (NVIDIA) of.
#include "calibrate/kernels/device/kernels.hpp"
