#define PLIMSOLL_EMULATE sm_90a
#define PLIMSOLL_SM 90
#define PLIMSOLL_WARP_GROUPS 1
#include "calibrate/kernels/emulator/rows.hpp"
