// What every fuzzer asks of a reader: an Error of plimsoll's for what it does not take, and nothing else.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

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

/// The path of a file with these bytes for readers that take a path; the next call changes it. It lies in memory: a disk would be the
/// slowest part of a run.
inline const std::string& file_of(const std::string& bytes) {
  static const int file = memfd_create("input", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (file < 0 || ftruncate(file, 0) != 0 || pwrite(file, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    std::abort();
  return path;
}

}  // namespace plimsoll::fuzz
