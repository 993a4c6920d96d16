// What the linker starts from: the page calls the C function, and lends it memory for the request.
#include "plimsoll/plimsoll.h"

// A reference is what takes the function out of its archive.
extern "C" __attribute__((used)) char* (*const plimsoll_entry)(const char*) = &plimsoll_call;
