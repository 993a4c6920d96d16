// The bytes of a file, plain or gzipped, piece by piece: a trace of gigabytes is never held.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace plimsoll::trace {

/// Reads forward once.
class ByteSource {
 public:
  /// Throws Error: missing, unreadable, a folder. Gzip is known by its first two bytes, whatever the name.
  explicit ByteSource(const std::string& path);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  /// The next bytes, valid until the next call; empty at the end. Throws Error where the file cannot be read, and for gzip that is cut off or
  /// damaged, with the place.
  std::string_view next();

  const std::string& path() const { return path_; }
  /// Bytes given until now, unpacked.
  std::uint64_t given() const { return given_; }

 private:
  struct Unpacker;
  std::string_view read_file();
  std::string_view unpack();

  std::string path_;
  std::FILE* file_ = nullptr;
  std::unique_ptr<Unpacker> unpacker_;  ///< of gzip
  std::string packed_, unpacked_;
  std::uint64_t read_ = 0, given_ = 0;
};

}  // namespace plimsoll::trace
