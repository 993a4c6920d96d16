// The events of a Chrome trace, one after the other: the objects in the array "traceEvents" of the file's object, or in the array that the
// file is. What else the object holds (deviceProperties, distributedInfo) is given as text too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "trace/byte_source.hpp"

namespace plimsoll::trace {

/// What a reader of events is given. Texts are JSON, valid during the call.
struct EventHandlers {
  std::function<void(std::string_view event, std::uint64_t offset)> event;
  std::function<void(std::string_view key, std::string_view value)> member;  ///< of the file's object; values of more than 1 MiB are left out
};

/// Reads the file through. Throws Error with the byte: no JSON object or array, no "traceEvents", an event of more than 4 MiB, cut off.
void read_events(ByteSource& source, const EventHandlers& handlers);

}  // namespace plimsoll::trace
