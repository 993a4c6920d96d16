#include "trace/byte_source.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <zlib.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "plimsoll/error.hpp"

namespace plimsoll::trace {
namespace {

constexpr std::size_t kPiece = 1 << 18;
constexpr int kGzip = 16 + MAX_WBITS;  // zlib reads gzip's header and checksum

}  // namespace

struct ByteSource::Unpacker {
  z_stream stream{};
  bool ended = false;  ///< a member's end was read; another may follow
  Unpacker() { inflateInit2(&stream, kGzip); }
  ~Unpacker() { inflateEnd(&stream); }
};

ByteSource::ByteSource(const std::string& path) : path_(path), packed_(kPiece, '\0'), unpacked_(kPiece, '\0') {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) fail(fmt::format("cannot be read: {}", std::strerror(errno)), path);
  if (S_ISDIR(facts.st_mode)) fail("is a folder", path, "name the trace in it");
  file_ = std::fopen(path.c_str(), "rb");
  if (file_ == nullptr) fail(fmt::format("cannot be read: {}", std::strerror(errno)), path);
  const int first = std::fgetc(file_), second = std::fgetc(file_);
  std::rewind(file_);
  if (first == 0x1f && second == 0x8b) unpacker_ = std::make_unique<Unpacker>();
}

ByteSource::~ByteSource() {
  if (file_ != nullptr) std::fclose(file_);
}

std::string_view ByteSource::read_file() {
  const std::size_t got = std::fread(packed_.data(), 1, packed_.size(), file_);
  if (got == 0 && std::ferror(file_) != 0) fail(fmt::format("cannot be read behind byte {}: {}", read_, std::strerror(errno)), path_);
  read_ += got;
  return std::string_view(packed_).substr(0, got);
}

std::string_view ByteSource::unpack() {
  z_stream& stream = unpacker_->stream;
  stream.next_out = reinterpret_cast<Bytef*>(unpacked_.data());
  stream.avail_out = static_cast<uInt>(unpacked_.size());
  while (stream.avail_out == unpacked_.size()) {
    if (stream.avail_in == 0) {
      const std::string_view piece = read_file();
      if (piece.empty()) {
        if (unpacker_->ended) return {};
        fail(fmt::format("the gzip file is cut off: it ends at byte {} in the middle of a member", read_), path_, "copy the trace again, whole");
      }
      stream.next_in = reinterpret_cast<Bytef*>(packed_.data());
      stream.avail_in = static_cast<uInt>(piece.size());
    }
    if (unpacker_->ended) inflateReset(&stream), unpacker_->ended = false;
    const int answer = inflate(&stream, Z_NO_FLUSH);
    unpacker_->ended = answer == Z_STREAM_END;
    if (answer != Z_OK && answer != Z_STREAM_END)
      fail(fmt::format("the gzip file is damaged before byte {}: {}", read_ - stream.avail_in, stream.msg != nullptr ? stream.msg : "no data"), path_);
  }
  return std::string_view(unpacked_).substr(0, unpacked_.size() - stream.avail_out);
}

std::string_view ByteSource::next() {
  const std::string_view piece = unpacker_ ? unpack() : read_file();
  given_ += piece.size();
  return piece;
}

}  // namespace plimsoll::trace
