#include "machine.hpp"

#include <pthread.h>

#include <algorithm>

#include "settings.hpp"

namespace plimsoll::device {
namespace {

// A host that waits by asking again and again must see the device finish: after so many questions without new work, or so long.
constexpr std::uint32_t kPatience = 1000;
constexpr std::uint64_t kIdleNs = 2000000000;
constexpr float kLaunchMs = 0.1f;
// Launches that a device holds back at most: a host that issues more waits until one has begun.
constexpr std::uint64_t kQueue = 1024;

std::mutex& machine_mutex() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}

void before_fork() { machine_mutex().lock(); }
void after_fork_in_parent() { machine_mutex().unlock(); }
void after_fork_in_child() {
  machine().recorder.abandon();
  machine_mutex().unlock();
}

__attribute__((destructor)) void process_ends() {
  const auto held = lock();
  machine().recorder.finish();
}

}  // namespace

std::unique_lock<std::mutex> lock() { return std::unique_lock<std::mutex>(machine_mutex()); }

Machine& machine() {
  static Machine* const once = [] {
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    return new Machine;
  }();
  return *once;
}

bool begin_again() {
  const auto held = lock();
  Machine& it = machine();
  if (it.used()) return false;
  read_settings_again();
  it = Machine();
  return true;
}

ThreadState& thread_state() {
  static thread_local ThreadState state;
  return state;
}

Machine::Machine() : memory_bytes(settings().memory_bytes), lag(settings().lag), devices(static_cast<std::size_t>(settings().devices)) {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    devices[i].index = static_cast<int>(i);
    devices[i].default_stream.device = static_cast<int>(i);
    devices[i].used = devices[i].peak = settings().context_bytes;
  }
}

bool Machine::used() const {
  return !streams_.empty() || recorder.events() > 0 || std::any_of(devices.begin(), devices.end(), [](const Device& each) {
    return each.issued > 0 || each.announced || each.used != settings().context_bytes;
  });
}

Device& Machine::device(int index) {
  Device& it = devices[static_cast<std::size_t>(index)];
  if (!it.announced && recorder.on()) {
    it.announced = true;
    record::Device event{};
    event.memory_bytes = memory_bytes;
    event.context_bytes = settings().context_bytes;
    event.name = recorder.intern(settings().name);
    event.processors = static_cast<std::uint32_t>(settings().processors);
    event.major = static_cast<std::uint16_t>(settings().major);
    event.minor = static_cast<std::uint16_t>(settings().minor);
    event.lag = lag;
    write(record::Kind::device, index, event);
  }
  return it;
}

std::uint64_t Machine::now_done(const Device& device) const { return std::max(device.done, device.issued > lag ? device.issued - lag : 0); }

void Machine::catch_up(Device& device, std::uint64_t work) { device.done = std::max(device.done, work); }

Stream* Machine::create_stream(int device, unsigned flags, int priority) {
  auto* stream = new Stream;
  stream->id = next_stream_++;
  stream->device = device;
  stream->flags = flags;
  stream->priority = priority;
  streams_.insert(stream);
  record::StreamCreate event{};
  event.stream = stream->id;
  event.priority = priority;
  event.non_blocking = flags & 1u;
  write(record::Kind::stream_create, device, event);
  return stream;
}

void Machine::destroy_stream(Stream* stream) {
  record::StreamDestroy event{};
  event.stream = stream->id;
  write(record::Kind::stream_destroy, stream->device, event);
  streams_.erase(stream);
  stream->magic = 0;  // the handle stays recognizable as one that is gone
}

Status Machine::synchronize(Stream& stream) {
  if (stream.capture != nullptr) return Status::capture_unsupported;
  catch_up(devices[static_cast<std::size_t>(stream.device)], stream.last);
  record::Synchronize event{};
  event.waits = record::Waits::for_stream;
  event.target = stream.id;
  event.host_ns = recorder.host_ns();
  write(record::Kind::synchronize, stream.device, event);
  return Status::ok;
}

Status Machine::query(const Stream& stream) {
  if (stream.capture != nullptr) return Status::capture_unsupported;
  Device& on = devices[static_cast<std::size_t>(stream.device)];
  if (stream.last <= now_done(on)) return Status::ok;
  return ask(on, stream.last, on.stream_asked);
}

void Machine::synchronize_device(int index) {
  Device& it = device(index);
  catch_up(it, it.issued);
  record::Synchronize event{};
  event.waits = record::Waits::for_device;
  event.host_ns = recorder.host_ns();
  write(record::Kind::synchronize, index, event);
}

Event* Machine::create_event(int device, unsigned flags) {
  Event* event = nullptr;
  if (retired_.empty()) {
    event = new Event;
  } else {
    event = retired_.back();
    retired_.pop_back();
    *event = Event{};
  }
  event->id = next_event_++;
  event->device = device;
  event->flags = flags;
  return event;
}

void Machine::destroy_event(Event* event) {
  event->magic = 0;
  event->capture.reset();
  retired_.push_back(event);
}

Status Machine::record_event(Event& event, Stream& stream) {
  event.asked = {};
  event.device = stream.device;
  event.capture = stream.capture;
  event.work = stream.last;
  event.ends_collective = stream.collective != 0 && stream.collective == stream.last;
  event.awaited = false;
  stream.collective = 0;
  record::EventRecord entry{};
  entry.stream = stream.id;
  entry.event = event.id;
  write(record::Kind::event_record, stream.device, entry, stream.capture != nullptr ? record::kCaptured : std::uint16_t{0});
  return Status::ok;
}

std::shared_ptr<Graph> Machine::capturing(const Event& event) {
  auto graph = event.capture.lock();
  return graph != nullptr && graph->capturing ? graph : nullptr;
}

/// A collective waits for other ranks: who asks right behind it is told that it is not done. PyTorch from 2.15 asks so (FlightRecorderHook::onPost),
/// and of what is done already its `wait` makes no stream wait. It is done once anybody waits for it, or a queue's length later.
bool Machine::complete(const Event& event) const {
  const Device& on = devices[static_cast<std::size_t>(event.device)];
  if (event.work > now_done(on)) return false;
  return !event.ends_collective || event.awaited || event.work <= on.done || on.issued - event.work >= kQueue;
}

Status Machine::query(Event& event) {
  if (capturing(event) != nullptr) return Status::capture_unsupported;
  if (complete(event)) return Status::ok;
  return ask(devices[static_cast<std::size_t>(event.device)], event.work, event.asked);
}

/// Not ready, unless the host asks and asks without giving the device anything to do.
Status Machine::ask(Device& device, std::uint64_t work, Asked& asked) {
  if (asked.times == 0 || asked.after != device.issued) asked = {0, now_ns(), device.issued};
  if (++asked.times < kPatience && now_ns() - asked.since_ns < kIdleNs) return Status::not_ready;
  catch_up(device, work);
  return Status::ok;
}

Status Machine::synchronize(Event& event) {
  if (capturing(event) != nullptr) return Status::capture_unsupported;
  catch_up(devices[static_cast<std::size_t>(event.device)], event.work);
  record::Synchronize entry{};
  entry.waits = record::Waits::for_event;
  entry.target = event.id;
  entry.host_ns = recorder.host_ns();
  write(record::Kind::synchronize, event.device, entry);
  return Status::ok;
}

Status Machine::wait(Stream& stream, Event& event) {
  if (const auto graph = capturing(event); graph != nullptr) {
    if (stream.capture == nullptr) stream.capture = graph;  // the stream joins the capture
    if (stream.capture != graph) return Status::capture_unmatched;
  }
  if (stream.device == event.device) stream.last = std::max(stream.last, event.work);
  event.awaited = true;
  record::StreamWait entry{};
  entry.stream = stream.id;
  entry.event = event.id;
  write(record::Kind::stream_wait, stream.device, entry, stream.capture != nullptr ? record::kCaptured : std::uint16_t{0});
  return Status::ok;
}

Status Machine::elapsed(float* milliseconds, const Event& from, const Event& to) {
  if (!complete(from) || !complete(to)) return Status::not_ready;
  const auto launches = to.work > from.work ? to.work - from.work : 1;
  *milliseconds = kLaunchMs * static_cast<float>(launches);
  return Status::ok;
}

std::shared_ptr<Graph> Machine::create_graph() {
  auto graph = std::make_shared<Graph>();
  graph->id = next_graph_++;
  return graph;
}

Status Machine::begin_capture(Stream& stream, std::shared_ptr<Graph> graph) {
  if (stream.capture != nullptr) return Status::capture_unmatched;
  stream.capture = graph == nullptr ? create_graph() : std::move(graph);
  stream.capture->capturing = true;
  record::GraphBegin event{};
  event.stream = stream.id;
  event.graph = stream.capture->id;
  write(record::Kind::graph_begin, stream.device, event);
  return Status::ok;
}

Status Machine::end_capture(Stream& stream, std::shared_ptr<Graph>* graph) {
  if (stream.capture == nullptr) return Status::capture_unmatched;
  *graph = stream.capture;
  (*graph)->capturing = false;
  record::GraphEnd event{};
  event.stream = stream.id;
  event.graph = (*graph)->id;
  event.nodes = (*graph)->nodes;
  write(record::Kind::graph_end, stream.device, event);
  for (Stream* each : streams_)  // those that joined leave with it
    if (each->capture == *graph) each->capture = nullptr;
  for (Device& each : devices)
    if (each.default_stream.capture == *graph) each.default_stream.capture = nullptr;
  return Status::ok;
}

void Machine::launch_graph(const Graph& graph, Stream& stream) {
  record::GraphLaunch event{};
  event.stream = stream.id;
  event.graph = graph.id;
  const auto flags = issue(stream);
  if (flags == 0 && graph.nodes > 1) stream.last = devices[static_cast<std::size_t>(stream.device)].issued += graph.nodes - 1;
  write(record::Kind::graph_launch, stream.device, event, flags);
}

}  // namespace plimsoll::device
