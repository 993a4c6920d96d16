// What every fuzzer asks of a reader: an Error of plimsoll's for what it does not take, and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "plimsoll/error.hpp"

namespace plimsoll::fuzz {

/// Reads the bytes; an Error is an answer unless it calls itself a defect, any other exception ends the run.
template <class Read>
int read(const std::uint8_t* data, std::size_t size, Read reader) {
  try {
    reader(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) std::abort();
  }
  return 0;
}

}  // namespace plimsoll::fuzz
