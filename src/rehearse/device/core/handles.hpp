/// The program's handles are the addresses of this machine's objects; a handle that is none of ours is told by its first word.
#pragma once

#include "machine.hpp"

namespace plimsoll::device {

/// Null for a handle of no stream. 0, 1 and 2 name the default stream of the thread's device (legacy and per-thread are one here).
inline Stream* stream_of(void* handle) {
  if (reinterpret_cast<std::uintptr_t>(handle) <= 2) return &machine().default_stream(thread_state().device);
  auto* stream = static_cast<Stream*>(handle);
  return stream->magic == Stream::kMagic ? stream : nullptr;
}

inline Event* event_of(void* handle) {
  auto* event = static_cast<Event*>(handle);
  return event != nullptr && event->magic == Event::kMagic ? event : nullptr;
}

/// Runs `body(stream)` when the handle is a stream's.
template <class Body>
Status with_stream(void* handle, Body&& body) {
  Stream* stream = stream_of(handle);
  return stream == nullptr ? Status::invalid_handle : body(*stream);
}

}  // namespace plimsoll::device
