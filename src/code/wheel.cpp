// A wheel: a zip file (APPNOTE.TXT 6.3), read by its directory, a file at a time.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <unordered_map>
#include <vector>

#include "code/package.hpp"
#include "plimsoll/error.hpp"

#ifndef __EMSCRIPTEN__
#include <zlib.h>
#endif

namespace plimsoll::code {

#ifdef __EMSCRIPTEN__

std::unique_ptr<Package> open_wheel(const std::string& path) { refuse("a page reads no wheels", path); }

#else

namespace {

constexpr std::uint64_t kMostFileBytes = std::uint64_t{1} << 30, kMostDirectoryBytes = std::uint64_t{64} << 20;
constexpr std::size_t kMostFiles = 200'000, kMostComment = 65'535;
constexpr std::size_t kEndBytes = 22, kEntryBytes = 46, kLocalBytes = 30;

std::uint32_t number(const char* at, int bytes) {
  std::uint32_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(at[i]);
  return value;
}

class WheelPackage final : public Package {
 public:
  explicit WheelPackage(std::string path) : path_(std::move(path)), stream_(path_, std::ios::binary) {
    stream_.seekg(0, std::ios::end);
    if (!stream_) fail("cannot be read", path_);
    bytes_ = static_cast<std::uint64_t>(stream_.tellg());
    if (bytes_ > kMostFileBytes) fail("is longer than 1 GiB", path_, "a wheel of a package of Python");
    read_directory();
  }

  std::optional<std::string> read(const std::string& path) const override {
    const auto found = entries_.find(path);
    if (found == entries_.end()) return {};
    const Entry& entry = found->second;
    if (entry.flags & 1) fail("is encrypted", where(path));
    if (entry.whole > kMostTextBytes) fail("is longer than " + std::to_string(kMostTextBytes >> 20) + " MiB", where(path));
    if (entry.method != 0 && entry.method != 8)
      refuse("is packed by method " + std::to_string(entry.method), where(path), "stored or deflated, as wheels are");
    const std::string local = bytes(entry.offset, kLocalBytes, path);
    if (number(local.data(), 4) != 0x04034b50) fail("is not where the directory of the wheel says", where(path));
    const std::uint64_t start = std::uint64_t{entry.offset} + kLocalBytes + number(&local[26], 2) + number(&local[28], 2);
    if (entry.method == 0 && entry.packed != entry.whole) fail("is damaged: its two sizes differ", where(path));
    // A deflated byte unfolds into at most 1032 (zlib.net/zlib_tech.html): more than all of that is never packed.
    if (entry.packed > kMostTextBytes + (kMostTextBytes >> 4)) fail("is damaged: it is packed longer than it is", where(path));
    const std::string packed = bytes(start, entry.packed, path);
    std::string text = entry.method == 0 ? packed : unpacked(packed, entry.whole, path);
    const auto checksum = crc32(crc32(0, nullptr, 0), reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size()));
    if (checksum != entry.checksum) fail("is damaged: its checksum differs", where(path));
    return text;
  }

  std::string where(const std::string& path) const override { return path_ + "/" + path; }

 private:
  struct Entry {
    std::uint32_t flags, method, checksum, packed, whole, offset;
  };

  std::string bytes(std::uint64_t start, std::uint64_t count, const std::string& of) const {
    if (start > bytes_ || count > bytes_ - start) fail("is cut off: it lies behind the end of the wheel", of.empty() ? path_ : where(of));
    std::string piece(count, '\0');
    stream_.clear();
    stream_.seekg(static_cast<std::streamoff>(start));
    stream_.read(piece.data(), static_cast<std::streamsize>(count));
    if (!stream_) fail("cannot be read", path_);
    return piece;
  }

  std::string unpacked(const std::string& packed, std::uint32_t whole, const std::string& path) const {
    std::string text(std::size_t{whole} + 1, '\0');  // one more, so that what is longer than it says shows
    z_stream stream{};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw Error(ErrorCode::internal, "zlib has no memory");
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream.avail_in = static_cast<uInt>(packed.size());
    stream.next_out = reinterpret_cast<Bytef*>(text.data());
    stream.avail_out = static_cast<uInt>(text.size());
    const int answer = inflate(&stream, Z_FINISH);
    const std::uint64_t made = stream.total_out;
    inflateEnd(&stream);
    if (answer != Z_STREAM_END || made != whole) fail("is damaged: it does not unpack to the size that the wheel tells", where(path));
    text.resize(whole);
    return text;
  }

  void read_directory() {
    const std::uint64_t tail = std::min<std::uint64_t>(bytes_, kEndBytes + kMostComment);
    const std::string end = bytes(bytes_ - tail, tail, "");
    std::size_t at = end.size() < kEndBytes ? std::string::npos : end.rfind("PK\x05\x06", end.size() - kEndBytes);
    if (at == std::string::npos) fail("is no wheel: a zip file ends otherwise", path_, "a folder with a package, or its wheel");
    const std::uint32_t count = number(&end[at + 10], 2), size = number(&end[at + 12], 4), start = number(&end[at + 16], 4);
    if (count == 0xffff || size == 0xffffffff || start == 0xffffffff) refuse("is a zip file of the 64-bit kind", path_, "wheels are smaller");
    if (size > kMostDirectoryBytes || count > kMostFiles) fail("its directory is longer than a wheel's can be", path_);
    const std::string directory = bytes(start, size, "");
    std::size_t next = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      if (directory.size() - next < kEntryBytes || number(&directory[next], 4) != 0x02014b50) fail("its directory is damaged", path_);
      const char* entry = &directory[next];
      const std::size_t name = number(entry + 28, 2), more = std::size_t{number(entry + 30, 2)} + number(entry + 32, 2);
      if (directory.size() - next - kEntryBytes < name + more) fail("its directory is cut off", path_);
      const std::string_view path(entry + kEntryBytes, name);
      if (path.ends_with(".py") || path.ends_with(".json"))
        entries_.emplace(path, Entry{number(entry + 8, 2), number(entry + 10, 2), number(entry + 16, 4), number(entry + 20, 4),
                                     number(entry + 24, 4), number(entry + 42, 4)});
      next += kEntryBytes + name + more;
    }
  }

  std::string path_;
  mutable std::ifstream stream_;
  std::uint64_t bytes_ = 0;
  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace

std::unique_ptr<Package> open_wheel(const std::string& path) { return std::make_unique<WheelPackage>(path); }

#endif

}  // namespace plimsoll::code
