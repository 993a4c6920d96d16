// A played step in the Trace Event Format, which Perfetto and chrome://tracing read: a row per stream.
#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "plimsoll/report.hpp"

namespace plimsoll {
namespace {

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

}  // namespace

std::string to_timeline_trace(const Rehearsal& rehearsal, std::size_t rank) {
  const StepProgram& program = rehearsal.recordings.at(rank).program;
  std::string text = "{\"traceEvents\":[";
  const auto append = std::back_inserter(text);
  fmt::format_to(append, "\n{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,\"args\":{{\"name\":\"rank {}\"}}}}",
                 rehearsal.recordings[rank].rank);
  for (std::size_t id = 0; id < program.streams.size(); ++id)
    fmt::format_to(append, ",\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":0,\"tid\":{},\"args\":{{\"name\":{}}}}}", id,
                   quoted(id == kComputeStream ? "compute" : program.streams[id]));
  for (const Event& event : rehearsal.timelines.at(rank).events) {
    const Instruction& instruction = program.step[event.instruction];
    fmt::format_to(append, ",\n{{\"ph\":\"X\",\"name\":{},\"pid\":0,\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f}}}",
                   quoted(program.labels[instruction.label]), event.stream, event.start.value * 1e6, (event.end - event.start).value * 1e6);
  }
  return text + "\n],\"displayTimeUnit\":\"ms\"}\n";
}

}  // namespace plimsoll
