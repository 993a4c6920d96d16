#include "report/trace_writer.hpp"

#include <nlohmann/json.hpp>

namespace plimsoll {
namespace {

double microseconds(Seconds time) { return time.value * 1e6; }

}  // namespace

std::string json_string(const std::string& text) { return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

void TraceWriter::name_process(std::size_t process, const std::string& name) {
  event(R"("ph":"M","name":"process_name","pid":{},"args":{{"name":{}}})", process, json_string(name));
  event(R"("ph":"M","name":"process_sort_index","pid":{},"args":{{"sort_index":{}}})", process, process);
}

void TraceWriter::name_thread(Track track, const std::string& name) {
  event(R"("ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}})", track.process, track.thread, json_string(name));
}

void TraceWriter::span(Track track, const std::string& name, Seconds from, Seconds to, const std::string& what) {
  const std::string arguments = what.empty() ? "" : fmt::format(R"(,"args":{{"what":{}}})", json_string(what));
  event(R"("ph":"X","name":{},"pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}{})", json_string(name), track.process, track.thread, microseconds(from),
        microseconds(to - from), arguments);
}

void TraceWriter::instant(Track track, const std::string& name, Seconds at) {
  event(R"("ph":"i","s":"t","name":{},"pid":{},"tid":{},"ts":{:.3f})", json_string(name), track.process, track.thread, microseconds(at));
}

void TraceWriter::memory(std::size_t process, Seconds at, Bytes allocated, Bytes reserved) {
  event(R"("ph":"C","name":"memory","pid":{},"ts":{:.3f},"args":{{"allocated":{},"reserved":{}}})", process, microseconds(at), allocated.count,
        reserved.count);
}

void TraceWriter::arrow(Track source, Seconds from, Track target, Seconds to) {
  event(R"("ph":"s","cat":"transfer","name":"transfer","id":{},"pid":{},"tid":{},"ts":{:.3f})", arrows_, source.process, source.thread,
        microseconds(from));
  event(R"("ph":"f","bp":"e","cat":"transfer","name":"transfer","id":{},"pid":{},"tid":{},"ts":{:.3f})", arrows_, target.process, target.thread,
        microseconds(to));
  ++arrows_;
}

}  // namespace plimsoll
