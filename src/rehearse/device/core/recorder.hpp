/// Writes the record (../../record.hpp) into a file mapped chunk by chunk, so that what was recorded outlives a killed process.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>

#include "../../record.hpp"
#include "export.hpp"

namespace plimsoll::device {

namespace record = rehearse::record;

/// Of a clock that only runs forward.
PLIMSOLL_DEVICE_CORE std::uint64_t now_ns();

/// One per process; every call is made under the machine's lock.
class Recorder {
 public:
  /// Opens the file at the first use. False when no record was asked for, or recording is paused or over.
  bool on() { return running_ && (window_ != nullptr || open()); }

  /// `event.header` needs its device and flags; kind and bytes are filled in. `tail` follows the event, padded with zeros.
  template <class Event>
  void write(record::Kind kind, Event& event, const void* tail = nullptr, std::size_t tail_bytes = 0) {
    if (!on()) return;
    const std::size_t bytes = (sizeof(Event) + tail_bytes + 7) / 8 * 8;
    char* place = reserve(bytes);
    if (place == nullptr) return;
    event.header.kind = kind;
    event.header.bytes = static_cast<std::uint32_t>(bytes);
    std::memcpy(place, &event, sizeof(Event));
    if (tail_bytes > 0) std::memcpy(place + sizeof(Event), tail, tail_bytes);
    ++events_;
  }

  /// The number of a text in the string table, which gets it if it is new. 0 for an empty text and when nothing is recorded.
  std::uint32_t intern(std::string_view text);

  void pause(bool paused) { running_ = !paused && !over_; }
  /// Ends the record well: the process is about to end.
  void finish();
  /// A forked child must not write into its parent's file.
  void abandon();

  /// Since the record began.
  std::uint64_t host_ns() const;
  std::uint64_t events() const { return events_; }
  const std::string& path() const { return path_; }

 private:
  bool open();
  bool map_window();
  char* reserve(std::size_t bytes);
  void stop(const char* why);

  bool running_ = true, over_ = false;
  int file_ = -1;
  std::string path_;
  char* window_ = nullptr;
  std::uint64_t window_start_ = 0, position_ = 0;
  std::uint64_t started_ns_ = 0, events_ = 0;
  std::unordered_map<std::string, std::uint32_t> names_;
};

}  // namespace plimsoll::device
