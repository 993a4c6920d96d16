// The Trace Event Format, which Perfetto and chrome://tracing read.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <utility>

#include "plimsoll/units.hpp"

namespace plimsoll {

/// Text as a JSON string, quotes included; bytes that are no UTF-8 become U+FFFD.
std::string json_string(const std::string& text);

/// A row of a trace: processes hold threads.
struct Track {
  std::size_t process = 0, thread = 0;
};

/// Events are written as they come: a trace has one for each piece of work, too many for a tree of objects.
class TraceWriter {
 public:
  void name_process(std::size_t process, const std::string& name);
  void name_thread(Track track, const std::string& name);
  void span(Track track, const std::string& name, Seconds from, Seconds to, const std::string& what = {});
  void instant(Track track, const std::string& name, Seconds at);
  /// A counter of a process: what the allocator holds.
  void memory(std::size_t process, Seconds at, Bytes allocated, Bytes reserved);
  /// An arrow from the span of one row that holds `from` to the span of another that holds `to`.
  void arrow(Track source, Seconds from, Track target, Seconds to);

  std::string finish() && { return text_ + "\n],\"displayTimeUnit\":\"ms\"}\n"; }

 private:
  template <class... Values>
  void event(fmt::format_string<Values...> format, Values&&... values) {
    text_ += std::exchange(first_, false) ? "\n{" : ",\n{";
    fmt::format_to(std::back_inserter(text_), format, std::forward<Values>(values)...);
    text_ += '}';
  }

  std::string text_ = "{\"traceEvents\":[";
  bool first_ = true;
  std::size_t arrows_ = 0;
};

}  // namespace plimsoll
