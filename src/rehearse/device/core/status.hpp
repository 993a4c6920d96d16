/// What a call of the device can come to, numbered as CUDA and HIP number their errors (the two agree on all of these).
#pragma once

#include "export.hpp"

namespace plimsoll::device {

enum class Status : int {
  ok = 0,
  invalid_value = 1,
  out_of_memory = 2,
  not_initialized = 3,
  invalid_configuration = 9,
  no_device = 100,
  invalid_device = 101,
  invalid_image = 200,
  invalid_context = 201,
  peer_access_already_enabled = 704,
  peer_access_not_enabled = 705,
  host_memory_already_registered = 712,
  host_memory_not_registered = 713,
  not_supported = 801,
  invalid_handle = 400,
  not_found = 500,
  not_ready = 600,
  capture_unsupported = 900,
  capture_invalidated = 901,
  capture_unmatched = 903,
  unknown = 999,
};

/// "out of memory" and the like, and the name without its vendor's prefix ("MemoryAllocation"); both null for a number not listed.
PLIMSOLL_DEVICE_CORE const char* text_of(Status status);
PLIMSOLL_DEVICE_CORE const char* name_of(Status status);

}  // namespace plimsoll::device
