#define PLIMSOLL_EMULATE gfx90a
#define PLIMSOLL_GFX 900
#include "calibrate/kernels/emulator/rows.hpp"
