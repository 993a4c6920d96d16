// A step program on its streams. Every stream is a queue in the order of issue; a wait holds its stream until the other stream has got to
// where it was when the wait was issued. Work that runs beside other work may slow it down, so time advances from change to change.
#include <algorithm>
#include <deque>
#include <limits>

#include "plimsoll/error.hpp"
#include "plimsoll/play.hpp"

namespace plimsoll {
namespace {

enum class Work : std::uint8_t { kernel, collective, copy, wait };

struct Item {
  Work work;
  std::uint32_t instruction;
  double issued;      // host time
  double remaining;   // seconds at full speed
  std::size_t kind;   // KernelKind, Group
  StreamId target;    // of a wait
  std::size_t until;  // of a wait: items that the target must have finished
};

struct Stream {
  std::deque<Item> queue;
  std::size_t issued = 0, finished = 0;
  bool running = false;
  double started = 0;
};

/// Durations of the program's work, each computed once however often it is issued.
class PriceList {
 public:
  PriceList(const StepProgram& program, const Pricing& pricing)
      : program_(program), pricing_(pricing), kernels_(program.kernels.size(), -1), collectives_(program.collectives.size(), -1) {}

  double kernel(std::uint32_t id) {
    double& known = kernels_.at(id);
    if (known < 0) known = price(program_.kernels[id], pricing_.cluster.accelerator).value;
    return known;
  }
  double collective(std::uint32_t id) {
    double& known = collectives_.at(id);
    const Collective& collective = program_.collectives[id];
    if (known < 0) known = price(collective, pricing_.groups[static_cast<std::size_t>(collective.group)], pricing_.cluster).value;
    return known;
  }
  double copy(std::uint32_t id) const { return price(program_.copies.at(id), pricing_.cluster).value; }

 private:
  const StepProgram& program_;
  const Pricing& pricing_;
  std::vector<double> kernels_, collectives_;
};

class Player {
 public:
  Player(const StepProgram& program, const Pricing& pricing) : program_(program), pricing_(pricing), prices_(program, pricing) {
    streams_.resize(std::max<std::size_t>(program.streams.size(), 1));
  }

  Timeline play() {
    const Repeated& repeated = program_.repeated;
    for (std::uint32_t i = 0; i < program_.step.size(); ++i) {
      if (i == repeated.end) issue_again(repeated);
      issue(i);
    }
    while (pass_waits_and_start(), !all_done()) advance();
    timeline_.step = Seconds(std::max(now_, host_));
    return std::move(timeline_);
  }

 private:
  Stream& stream(StreamId id) {
    if (id >= streams_.size()) throw Error(ErrorCode::internal, "a step program uses a stream that it does not name");
    return streams_[id];
  }

  void issue_again(const Repeated& repeated) {
    for (std::int64_t run = 1; run < repeated.times; ++run)
      for (std::size_t i = repeated.begin; i < repeated.end; ++i) issue(static_cast<std::uint32_t>(i));
  }

  void issue(std::uint32_t index) {
    const Instruction& instruction = program_.step[index];
    Item item{Work::wait, index, host_, 0, 0, 0, 0};
    switch (instruction.kind) {
      case InstructionKind::kernel:
        item.work = Work::kernel;
        item.remaining = prices_.kernel(instruction.id);
        item.kind = static_cast<std::size_t>(program_.kernels[instruction.id].kind());
        break;
      case InstructionKind::collective:
        item.work = Work::collective;
        item.remaining = prices_.collective(instruction.id);
        item.kind = static_cast<std::size_t>(program_.collectives[instruction.id].group);
        break;
      case InstructionKind::copy:
        item.work = Work::copy;
        item.remaining = prices_.copy(instruction.id);
        break;
      case InstructionKind::record_event:
        if (events_.size() <= instruction.id) events_.resize(instruction.id + std::size_t{1}, {instruction.stream, 0});
        events_[instruction.id] = {instruction.stream, stream(instruction.stream).issued};
        return;
      case InstructionKind::wait_event:
        if (instruction.id >= events_.size() || events_[instruction.id].stream == instruction.stream) return;
        item.target = events_[instruction.id].stream;
        item.until = events_[instruction.id].issued;
        break;
      default:
        return;
    }
    if (item.work != Work::wait) host_ += pricing_.host_per_launch.value;
    stream(instruction.stream).queue.push_back(item);
    ++stream(instruction.stream).issued;
  }

  bool all_done() const {
    return std::all_of(streams_.begin(), streams_.end(), [](const Stream& each) { return each.queue.empty(); });
  }

  void finish(Stream& each) {
    each.queue.pop_front();
    each.running = false;
    ++each.finished;
  }

  /// Lets every stream pass the waits that are fulfilled, and starts what may start now.
  void pass_waits_and_start() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Stream& each : streams_) {
        if (each.queue.empty() || each.running) continue;
        const Item& head = each.queue.front();
        if (head.work == Work::wait) {
          if (streams_[head.target].finished < head.until) continue;
          finish(each);
          moved = true;
        } else if (head.issued <= now_) {
          each.running = true;
          each.started = now_;
        }
      }
    }
  }

  bool runs(Work work) const {
    return std::any_of(streams_.begin(), streams_.end(),
                       [&](const Stream& each) { return each.running && each.queue.front().work == work; });
  }

  double speed(const Item& item, bool kernels, bool collectives) const {
    if (item.work == Work::kernel && collectives) return 1 / pricing_.compute_slowdown;
    if (item.work == Work::collective && kernels) return 1 / pricing_.communication_slowdown;
    return 1;
  }

  /// To the next end of running work, or the next issue by the host.
  void advance() {
    const bool kernels = runs(Work::kernel), collectives = runs(Work::collective), copies = runs(Work::copy);
    double step = std::numeric_limits<double>::infinity();
    for (const Stream& each : streams_) {
      if (each.queue.empty()) continue;
      const Item& head = each.queue.front();
      if (each.running)
        step = std::min(step, head.remaining / speed(head, kernels, collectives));
      else if (head.work != Work::wait)
        step = std::min(step, head.issued - now_);
    }
    if (step == std::numeric_limits<double>::infinity())
      throw Error(ErrorCode::internal, "the streams of a step program wait for each other");
    account(step, collectives, copies);
    const double end = now_ + step;
    for (std::size_t id = 0; id < streams_.size(); ++id) {
      Stream& each = streams_[id];
      if (!each.running) continue;
      Item& head = each.queue.front();
      head.remaining -= step * speed(head, kernels, collectives);
      if (head.remaining > 1e-15) continue;
      timeline_.events.push_back({head.instruction, static_cast<StreamId>(id), Seconds(each.started), Seconds(end)});
      finish(each);
    }
    now_ = end;
  }

  void account(double step, bool collectives, bool copies) {
    const Stream& compute = streams_[kComputeStream];
    if (compute.running && compute.queue.front().work == Work::kernel)
      timeline_.compute += Seconds(step);
    else if (collectives)
      timeline_.exposed_communication += Seconds(step);
    else if (copies)
      timeline_.exposed_copies += Seconds(step);
    else
      timeline_.idle += Seconds(step);
    for (const Stream& each : streams_) {
      if (!each.running) continue;
      const Item& head = each.queue.front();
      if (head.work == Work::kernel) timeline_.by_kernel[head.kind] += Seconds(step);
      if (head.work == Work::collective) timeline_.by_group[head.kind] += Seconds(step);
      if (head.work == Work::collective) timeline_.communication += Seconds(step);
      if (head.work == Work::copy) timeline_.copies += Seconds(step);
    }
  }

  const StepProgram& program_;
  const Pricing& pricing_;
  PriceList prices_;
  std::vector<Stream> streams_;
  struct RecordedEvent {
    StreamId stream;
    std::size_t issued;  // items of the stream when it was recorded
  };
  std::vector<RecordedEvent> events_;
  double now_ = 0, host_ = 0;
  Timeline timeline_{};
};

}  // namespace

Timeline play_time(const StepProgram& program, const Pricing& pricing) { return Player(program, pricing).play(); }

}  // namespace plimsoll
