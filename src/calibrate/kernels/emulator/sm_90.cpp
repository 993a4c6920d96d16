#define PLIMSOLL_EMULATE sm_90
#define PLIMSOLL_SM 90
#include "calibrate/kernels/emulator/rows.hpp"
