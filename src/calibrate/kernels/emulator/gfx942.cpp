#define PLIMSOLL_EMULATE gfx942
#define PLIMSOLL_GFX 942
#include "calibrate/kernels/emulator/rows.hpp"
