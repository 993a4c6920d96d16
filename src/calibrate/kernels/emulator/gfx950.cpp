#define PLIMSOLL_EMULATE gfx950
#define PLIMSOLL_GFX 950
#include "calibrate/kernels/emulator/rows.hpp"
