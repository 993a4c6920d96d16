// A record as a sequence of events, checked: every event lies within the file and is as long as its kind needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "rehearse/record.hpp"

namespace plimsoll::rehearse {

/// One event where it lies in the file; valid while its RecordFile lives.
class EventView {
 public:
  EventView(const char* bytes, std::size_t size, std::size_t offset) : bytes_(bytes), size_(size), offset_(offset) {}

  record::Kind kind() const { return header().kind; }
  record::EventHeader header() const { return read<record::EventHeader>(); }
  std::size_t offset() const { return offset_; }
  /// The event as its kind has it. RecordFile has checked that it is long enough.
  template <class Event>
  Event as() const {
    return read<Event>();
  }
  /// What follows the event's fixed part.
  std::string_view tail(std::size_t fixed) const { return {bytes_ + fixed, size_ - fixed}; }

 private:
  template <class Value>
  Value read() const {
    Value value;
    std::memcpy(&value, bytes_, sizeof value);
    return value;
  }

  const char* bytes_;
  std::size_t size_, offset_;
};

class RecordFile {
 public:
  /// Reads and checks a whole file. Throws Error: missing, no record, another version or byte order, an event that is cut off or shorter
  /// than its kind needs, a name used before it was given; each with the offset.
  explicit RecordFile(const std::string& path);

  const std::vector<EventView>& events() const { return events_; }
  /// The text of the string table's entry `id`; empty for 0. Throws Error for an id that no event gave.
  const std::string& name(std::uint32_t id) const;
  /// Whether the process ended by itself; else it was killed, and the record ends where it was.
  bool ended() const { return ended_; }
  const std::string& path() const { return path_; }
  /// Up to the last event: a process that was killed leaves a tail of zeros.
  std::size_t bytes() const { return used_; }

 private:
  void check_header() const;
  void read_events();
  void add_name(const EventView& event);
  [[noreturn]] void damaged(std::size_t offset, const std::string& what) const;

  std::string path_, text_;
  std::vector<EventView> events_;
  std::vector<std::string> names_{""};
  std::size_t used_ = 0;
  bool ended_ = false;
};

}  // namespace plimsoll::rehearse
