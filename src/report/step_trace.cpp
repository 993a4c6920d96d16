// A played step in the Trace Event Format: its streams, its phases, its memory, and what ranks send each other.
#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "plimsoll/error.hpp"
#include "plimsoll/report.hpp"
#include "report/instruction_text.hpp"
#include "report/trace_writer.hpp"

namespace plimsoll {
namespace {

std::string title_of(const StepProgram& program, const Instruction& at) {
  const std::string& label = program.labels[at.label];
  if (at.kind != InstructionKind::collective) return label;
  const std::string kind(name_of(program.collectives[at.id].kind));
  return label.empty() ? kind : kind + ": " + label;
}

std::string stream_name(const StepProgram& program, std::size_t stream) { return stream == kComputeStream ? "compute" : program.streams[stream]; }

void write_work(const StepProgram& program, const Timeline& timeline, std::size_t process, TraceWriter& trace) {
  for (std::size_t id = 0; id < program.streams.size(); ++id) trace.name_thread({process, id}, stream_name(program, id));
  for (const Event& event : timeline.events) {
    const Instruction& at = program.step[event.instruction];
    trace.span({process, event.stream}, title_of(program, at), event.start, event.end, described(program, at));
  }
}

/// Where the compute stream's events are: phases and memory change between them, in the order of issue.
std::vector<Event> computed(const Timeline& timeline) {
  std::vector<Event> events;
  for (const Event& event : timeline.events)
    if (event.stream == kComputeStream) events.push_back(event);
  return events;
}

/// A span from the first event of a phase to that of the next; a phase comes again with each micro-batch.
void write_phases(const StepProgram& program, const Timeline& timeline, std::size_t process, TraceWriter& trace) {
  std::vector<Phase> phase_at(program.step.size(), Phase::forward);
  Phase now = Phase::forward;
  for (std::size_t i = 0; i < program.step.size(); ++i) {
    if (program.step[i].kind == InstructionKind::phase) now = static_cast<Phase>(program.step[i].id);
    phase_at[i] = now;
  }
  const Track track{process, program.streams.size()};
  trace.name_thread(track, "phases");
  const std::vector<Event> events = computed(timeline);
  for (std::size_t begin = 0, end = 0; begin < events.size(); begin = end) {
    const Phase phase = phase_at[events[begin].instruction];
    while (end < events.size() && phase_at[events[end].instruction] == phase) ++end;
    trace.span(track, std::string(name_of(phase)), events[begin].start, end < events.size() ? events[end].start : events[end - 1].end);
  }
}

/// What the allocator holds when an instruction of the steady step is done, and the most on the way to it since the one before that launched.
struct Held {
  Bytes allocated, reserved, most;
  std::uint32_t label = 0;
};

/// By instruction of the step. The allocator is played without a limit: a step that does not fit has a timeline nevertheless.
std::vector<Held> memory_of(const RankTimeline& rank) {
  PlayMemoryOptions options = rank.rank.options;
  options.capacity = Bytes(INT64_MAX);
  const std::vector<MemorySample> samples = memory_timeline(rank.rank.program, options);
  std::vector<Held> held(rank.rank.program.step.size());
  const int last = samples.empty() ? 0 : samples.back().step;
  Held now;
  std::size_t next = 0;
  for (const MemorySample& sample : samples) {
    for (; sample.step == last && next < sample.instruction; ++next) held[next] = now;
    now = {sample.allocated, sample.reserved, sample.allocated, sample.label};
  }
  for (; next < held.size(); ++next) held[next] = now;
  return held;
}

/// The counter, where the compute stream comes to what was allocated and freed since its last piece of work.
void write_memory(const RankTimeline& rank, std::size_t process, TraceWriter& trace) {
  const std::vector<Held> held = memory_of(rank);
  const std::vector<Event> events = computed(rank.timeline);
  Held peak;
  Seconds peak_at;
  std::size_t from = 0;
  for (const Event& event : events) {
    if (event.instruction < from) from = event.instruction;  // a repeated stretch begins again
    Held most = held[event.instruction];
    for (; from <= event.instruction; ++from)
      if (held[from].allocated > most.most) most = held[from];
    const Held& now = held[event.instruction];
    if (most.allocated > now.allocated) trace.memory(process, event.start, most.allocated, most.reserved);
    trace.memory(process, event.start, now.allocated, now.reserved);
    if (most.allocated > peak.allocated) peak = most, peak_at = event.start;
  }
  if (!events.empty() && !held.empty()) trace.memory(process, events.back().end, held.back().allocated, held.back().reserved);
  trace.instant({process, rank.rank.program.streams.size()}, "peak of allocated bytes: " + rank.rank.program.labels[peak.label], peak_at);
}

/// A transfer from one rank to another, as both see it.
using Pair = std::pair<std::size_t, std::size_t>;
struct End {
  Track track;
  Seconds middle;
};

/// The k-th send from one rank to another is the k-th receive there from it.
void write_arrows(const std::vector<RankTimeline>& ranks, TraceWriter& trace) {
  std::map<Pair, std::deque<End>> sent, received;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    for (const Event& event : ranks[i].timeline.events) {
      const StepProgram& program = ranks[i].rank.program;
      const Instruction& at = program.step[event.instruction];
      if (at.kind != InstructionKind::collective) continue;
      const Collective& collective = program.collectives[at.id];
      if (collective.peer == Collective::kNoPeer || collective.group != Group::pipeline) continue;
      const End end{{i, event.stream}, (event.start + event.end) / 2.0};
      const auto peer = static_cast<std::size_t>(collective.peer);
      if (collective.kind == CollectiveKind::send) sent[{i, peer}].push_back(end);
      if (collective.kind == CollectiveKind::receive) received[{peer, i}].push_back(end);
    }
  for (const auto& [pair, sends] : sent) {
    const std::deque<End>& receives = received[pair];
    for (std::size_t k = 0; k < std::min(sends.size(), receives.size()); ++k)
      trace.arrow(sends[k].track, sends[k].middle, receives[k].track, receives[k].middle);
  }
}

}  // namespace

std::string to_step_trace(const std::vector<RankTimeline>& ranks, const std::string& title) {
  TraceWriter trace;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::string stage = ranks.size() > 1 ? fmt::format(", stage {}", ranks[i].stage) : "";
    const std::string alike = ranks[i].count > 1 ? fmt::format(" ({} ranks alike)", ranks[i].count) : "";
    trace.name_process(i, title + stage + alike);
    write_work(ranks[i].rank.program, ranks[i].timeline, i, trace);
    write_phases(ranks[i].rank.program, ranks[i].timeline, i, trace);
    write_memory(ranks[i], i, trace);
  }
  write_arrows(ranks, trace);
  return std::move(trace).finish();
}

std::string to_timeline_trace(const Rehearsal& rehearsal, std::size_t rank) {
  const Recording& recording = rehearsal.recordings.at(rank);
  TraceWriter trace;
  trace.name_process(0, fmt::format("rank {}", recording.rank));
  write_work(recording.program, rehearsal.timelines.at(rank), 0, trace);
  write_phases(recording.program, rehearsal.timelines.at(rank), 0, trace);
  return std::move(trace).finish();
}

}  // namespace plimsoll
