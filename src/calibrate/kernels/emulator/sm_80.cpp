#define PLIMSOLL_EMULATE sm_80
#define PLIMSOLL_SM 80
#include "calibrate/kernels/emulator/rows.hpp"
