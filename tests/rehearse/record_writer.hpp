// Writes records for tests, event by event.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "rehearse/record.hpp"

namespace plimsoll::rehearse {

class RecordWriter {
 public:
  RecordWriter() {
    record::FileHeader header{};
    std::memcpy(header.magic, record::kMagic, sizeof header.magic);
    header.version = record::kVersion;
    header.byte_order = record::kByteOrder;
    header.header_bytes = sizeof header;
    append(&header, sizeof header);
  }

  template <class Event>
  RecordWriter& write(record::Kind kind, Event event, std::string_view tail = {}) {
    event.header.kind = kind;
    event.header.bytes = static_cast<std::uint32_t>((sizeof event + tail.size() + 7) / 8 * 8);
    append(&event, sizeof event);
    bytes_.append(tail);
    bytes_.append(event.header.bytes - sizeof event - tail.size(), '\0');
    return *this;
  }

  /// The number of a new name.
  std::uint32_t name(std::string_view text) {
    record::Name event{};
    event.id = ++names_;
    event.length = static_cast<std::uint32_t>(text.size());
    write(record::Kind::name, event, text);
    return names_;
  }

  RecordWriter& mark(record::MarkKind kind, std::string_view text = {}, std::int64_t value = 0) {
    record::Mark event{};
    event.kind = kind;
    event.text = text.empty() ? 0 : name(text);
    event.value = value;
    return write(record::Kind::mark, event);
  }
  RecordWriter& phase(std::string_view name) { return mark(record::MarkKind::phase_begin, name); }
  RecordWriter& step_end() { return mark(record::MarkKind::step_end); }

  RecordWriter& allocate(std::uint64_t address, std::uint64_t bytes) { return block(record::BlockAction::allocate, address, bytes); }
  RecordWriter& free(std::uint64_t address, std::uint64_t bytes) { return block(record::BlockAction::free_requested, address, bytes); }

  RecordWriter& segment(record::SegmentAction action, std::uint64_t bytes) {
    record::Segment event{};
    event.action = action;
    event.bytes = bytes;
    return write(record::Kind::segment, event);
  }

  RecordWriter& gemm(std::int64_t m, std::int64_t n, std::int64_t k, std::uint32_t stream = 0) {
    record::Gemm event{};
    event.stream = stream;
    event.m = m;
    event.n = n;
    event.k = k;
    event.batch = 1;
    event.a = event.b = event.c = event.d = record::Type::bf16;
    return write(record::Kind::gemm, event);
  }

  const std::string& bytes() const { return bytes_; }
  std::string& bytes() { return bytes_; }

 private:
  RecordWriter& block(record::BlockAction action, std::uint64_t address, std::uint64_t bytes) {
    record::Block event{};
    event.action = action;
    event.address = address;
    event.bytes = bytes;
    return write(record::Kind::block, event);
  }
  void append(const void* from, std::size_t size) { bytes_.append(static_cast<const char*>(from), size); }

  std::string bytes_;
  std::uint32_t names_ = 0;
};

/// The bytes as a file that lives as long as this.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& bytes) {
    char name[] = "/tmp/plimsoll-record-XXXXXX";
    const int file = mkstemp(name);
    path_ = name;
    std::FILE* stream = fdopen(file, "wb");
    std::fwrite(bytes.data(), 1, bytes.size(), stream);
    std::fclose(stream);
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace plimsoll::rehearse
