#include "rehearse/record_file.hpp"

#include <fmt/core.h>

#include "plimsoll/error.hpp"
#include "units/files.hpp"

namespace plimsoll::rehearse {
namespace {

/// A rehearsed step has tens of thousands of events of tens of bytes each.
constexpr std::int64_t kMostBytes = std::int64_t{4} << 30;

/// The bytes that an event of that kind has at least; 0 for a kind this reader does not know.
std::size_t least_bytes(record::Kind kind) {
  switch (kind) {
    case record::Kind::none:
      return 0;
    case record::Kind::name:
      return sizeof(record::Name);
    case record::Kind::device:
      return sizeof(record::Device);
    case record::Kind::kernel:
      return sizeof(record::Kernel);
    case record::Kind::gemm:
      return sizeof(record::Gemm);
    case record::Kind::collective:
      return sizeof(record::CollectiveCall);
    case record::Kind::communicator:
      return sizeof(record::Communicator);
    case record::Kind::copy:
      return sizeof(record::Copy);
    case record::Kind::memset:
      return sizeof(record::Memset);
    case record::Kind::event_record:
      return sizeof(record::EventRecord);
    case record::Kind::stream_wait:
      return sizeof(record::StreamWait);
    case record::Kind::stream_create:
      return sizeof(record::StreamCreate);
    case record::Kind::stream_destroy:
      return sizeof(record::StreamDestroy);
    case record::Kind::synchronize:
      return sizeof(record::Synchronize);
    case record::Kind::host_function:
      return sizeof(record::HostFunction);
    case record::Kind::segment:
      return sizeof(record::Segment);
    case record::Kind::mark:
      return sizeof(record::Mark);
    case record::Kind::block:
      return sizeof(record::Block);
    case record::Kind::graph_begin:
      return sizeof(record::GraphBegin);
    case record::Kind::graph_end:
      return sizeof(record::GraphEnd);
    case record::Kind::graph_launch:
      return sizeof(record::GraphLaunch);
    case record::Kind::library_call:
      return sizeof(record::LibraryCall);
    case record::Kind::unmodelled:
      return sizeof(record::Unmodelled);
    case record::Kind::end:
      return sizeof(record::End);
  }
  return 0;
}

}  // namespace

RecordFile::RecordFile(const std::string& path) : path_(path), text_(read_text_file(path, kMostBytes)) {
  check_header();
  read_events();
}

void RecordFile::damaged(std::size_t offset, const std::string& what) const {
  fail(fmt::format("the record is damaged: {}", what), fmt::format("{}, byte {}", path_, offset),
       "rehearse the program again; a killed process leaves a whole record, a cut copy does not");
}

void RecordFile::check_header() const {
  record::FileHeader header;
  if (text_.size() < sizeof header) damaged(text_.size(), fmt::format("a header has {} bytes", sizeof header));
  std::memcpy(&header, text_.data(), sizeof header);
  if (std::memcmp(header.magic, record::kMagic, sizeof header.magic) != 0)
    fail("this is no record of `plimsoll rehearse`", path_, "records are written by plimsoll rehearse --record FILE");
  if (header.byte_order != record::kByteOrder) fail("the record was written on a machine of another byte order", path_);
  if (header.version != record::kVersion || header.header_bytes != sizeof header)
    fail(fmt::format("the record has version {}, this plimsoll reads version {}", header.version, record::kVersion), path_,
         "rehearse the program again");
}

void RecordFile::read_events() {
  std::size_t offset = used_ = sizeof(record::FileHeader);
  while (offset + sizeof(record::EventHeader) <= text_.size()) {
    record::EventHeader header;
    std::memcpy(&header, text_.data() + offset, sizeof header);
    if (header.kind == record::Kind::none) return;
    if (header.bytes < sizeof header || header.bytes % 8 != 0)
      damaged(offset, fmt::format("an event of kind {} says it has {} bytes", static_cast<int>(header.kind), header.bytes));
    if (header.bytes > text_.size() - offset)
      damaged(offset, fmt::format("an event of {} bytes is cut off after {}", header.bytes, text_.size() - offset));
    if (header.bytes < least_bytes(header.kind))
      damaged(offset, fmt::format("an event of kind {} has {} bytes, {} are needed", static_cast<int>(header.kind), header.bytes,
                                  least_bytes(header.kind)));
    const EventView event(text_.data() + offset, header.bytes, offset);
    if (header.kind == record::Kind::name) add_name(event);
    if (header.kind == record::Kind::end) ended_ = true;
    events_.push_back(event);
    used_ = offset += header.bytes;
  }
  if (offset != text_.size()) damaged(offset, "the last event is cut off");
}

void RecordFile::add_name(const EventView& event) {
  const auto entry = event.as<record::Name>();
  const std::string_view tail = event.tail(sizeof entry);
  if (entry.length > tail.size())
    damaged(event.offset(), fmt::format("a name of {} bytes in an event with room for {}", entry.length, tail.size()));
  if (entry.id != names_.size())
    damaged(event.offset(), fmt::format("name {} comes where name {} is next", entry.id, names_.size()));
  names_.emplace_back(tail.substr(0, entry.length));
}

const std::string& RecordFile::name(std::uint32_t id) const {
  if (id >= names_.size()) fail(fmt::format("the record is damaged: no event gave the name {}", id), path_);
  return names_[id];
}

}  // namespace plimsoll::rehearse
