/// Marks what one library of the stand-in device gives to the others.
#pragma once

#define PLIMSOLL_DEVICE_CORE __attribute__((visibility("default")))
#define PLIMSOLL_DEVICE_API extern "C" __attribute__((visibility("default")))
