// The course of memory in the Trace Event Format, which Perfetto and chrome://tracing read.
#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "plimsoll/report.hpp"

namespace plimsoll {
namespace {

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

/// Events are written as they come: a trace has one per allocation, too many for a tree of objects.
class TraceWriter {
 public:
  explicit TraceWriter(const std::string& title) {
    metadata("process_name", 0, title);
    metadata("thread_name", 1, "phases (1 us = 1 instruction)");
  }

  void counter(const MemorySample& sample) {
    event(R"("ph":"C","name":"memory","pid":0,"ts":{},"args":{{"allocated":{},"reserved":{}}})", sample.time, sample.allocated.count,
          sample.reserved.count);
  }

  void span(const std::string& name, std::uint64_t from, std::uint64_t to) {
    if (to > from) event(R"("ph":"X","name":{},"pid":0,"tid":1,"ts":{},"dur":{})", quoted(name), from, to - from);
  }

  void instant(const std::string& name, std::uint64_t at) {
    event(R"("ph":"i","s":"p","name":{},"pid":0,"tid":1,"ts":{})", quoted(name), at);
  }

  std::string finish() && { return text_ + "\n],\"displayTimeUnit\":\"ms\"}\n"; }

 private:
  void metadata(const char* what, int thread, const std::string& name) {
    event(R"("ph":"M","name":"{}","pid":0,"tid":{},"args":{{"name":{}}})", what, thread, quoted(name));
  }

  template <class... Values>
  void event(fmt::format_string<Values...> format, Values&&... values) {
    text_ += std::exchange(first_, false) ? "\n{" : ",\n{";
    fmt::format_to(std::back_inserter(text_), format, std::forward<Values>(values)...);
    text_ += '}';
  }

  std::string text_ = "{\"traceEvents\":[";
  bool first_ = true;
};

std::string phase_name(const MemorySample& sample) {
  if (sample.step < 0) return std::string(name_of(Phase::init));
  return fmt::format("{}, step {}", name_of(sample.phase), sample.step + 1);
}

}  // namespace

std::string to_memory_trace(const std::vector<MemorySample>& samples, const std::vector<std::string>& labels, const std::string& title) {
  TraceWriter trace(title);
  std::size_t phase_start = 0, peak = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    trace.counter(samples[i]);
    if (samples[i].allocated > samples[peak].allocated) peak = i;
    if (samples[i].step == samples[phase_start].step && samples[i].phase == samples[phase_start].phase) continue;
    trace.span(phase_name(samples[phase_start]), samples[phase_start].time, samples[i].time);
    phase_start = i;
  }
  if (!samples.empty()) {
    trace.span(phase_name(samples[phase_start]), samples[phase_start].time, samples.back().time + 1);
    const std::uint32_t label = samples[peak].label;
    trace.instant("peak: " + (label < labels.size() ? labels[label] : std::string()), samples[peak].time);
  }
  return std::move(trace).finish();
}

}  // namespace plimsoll
