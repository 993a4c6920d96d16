/// The machine behind every interface: devices with one clock each, streams, events, graphs.
///
/// A device runs what it is given in the order of issue and at most `lag` launches behind the host: the n-th piece of work is done once
/// n + lag pieces are issued, or once the host has waited for it. That is all the time there is; an event is complete when the last work
/// before it on its stream is done. But a collective is no work of this device alone: the event right behind it, by which its end is known, is not
/// complete as soon as it is issued (`Machine::complete`).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "export.hpp"
#include "recorder.hpp"
#include "status.hpp"

namespace plimsoll::device {

/// Work captured instead of run. Shared by the capturing streams, the graph's handle and the executables made from it.
struct Graph {
  std::uint32_t id = 0;
  std::uint64_t nodes = 0;
  bool capturing = false;
  std::vector<std::shared_ptr<void>> retained;  ///< what the program wants kept as long as the graph
};

struct Stream {
  std::uint64_t magic = kMagic;
  std::uint32_t id = 0;
  int device = 0;
  int priority = 0;
  unsigned flags = 0;
  std::uint64_t last = 0;        ///< issue number of its last work
  std::uint64_t collective = 0;  ///< likewise of its last collective, until an event is recorded behind it
  std::shared_ptr<Graph> capture;

  static constexpr std::uint64_t kMagic = 0x504c494d53545231;
};

/// Questions in vain whether work is done, since the device was last given any.
struct Asked {
  std::uint32_t times = 0;
  std::uint64_t since_ns = 0;
  std::uint64_t after = 0;  ///< work issued by then
};

struct Event {
  std::uint64_t magic = kMagic;
  std::uint32_t id = 0;
  int device = 0;
  unsigned flags = 0;
  std::uint64_t work = 0;        ///< issue number it stands behind; 0 when never recorded
  bool ends_collective = false;  ///< it is the first that stands right behind a collective
  bool awaited = false;          ///< a stream waits for it
  Asked asked;
  std::weak_ptr<Graph> capture;

  static constexpr std::uint64_t kMagic = 0x504c494d45565431;
};

struct Device {
  int index = 0;
  std::uint64_t issued = 0, done = 0;
  Asked stream_asked;
  Stream default_stream;
  std::uint64_t used = 0, peak = 0;  ///< bytes, the context's included
  bool announced = false;            ///< its Device event is in the record
};

struct Totals {
  std::uint64_t kernels = 0, gemms = 0, collectives = 0, copies = 0, values_read = 0;
  std::uint64_t pinned = 0, peak_pinned = 0, failed = 0, unmodelled = 0;
};

/// The state of the whole process, never destroyed. Hold `lock()` around every use.
class PLIMSOLL_DEVICE_CORE Machine {
 public:
  Recorder recorder;
  Totals totals;
  std::uint64_t memory_bytes;
  std::uint32_t lag;
  bool asked_for_memory = false;  ///< the program knows how much is free
  std::vector<Device> devices;

  Machine();
  /// The device, announced in the record before its first event.
  Device& device(int index);
  Stream& default_stream(int index) { return devices[static_cast<std::size_t>(index)].default_stream; }

  template <class Body>
  void write(record::Kind kind, int index, Body& event, std::uint16_t flags = 0, const void* tail = nullptr, std::size_t tail_bytes = 0) {
    if (!recorder.on()) return;
    device(index);
    event.header.device = static_cast<std::uint8_t>(index);
    event.header.flags = flags;
    recorder.write(kind, event, tail, tail_bytes);
  }

  /// Counts a piece of work on the stream; returns the flags of its event (kCaptured).
  std::uint16_t issue(Stream& stream) {
    if (stream.capture != nullptr) {
      ++stream.capture->nodes;
      return record::kCaptured;
    }
    stream.last = ++devices[static_cast<std::size_t>(stream.device)].issued;
    return 0;
  }

  Stream* create_stream(int device, unsigned flags, int priority);
  void destroy_stream(Stream* stream);
  Status synchronize(Stream& stream);
  Status query(const Stream& stream);
  void synchronize_device(int device);

  Event* create_event(int device, unsigned flags);
  void destroy_event(Event* event);
  Status record_event(Event& event, Stream& stream);
  Status query(Event& event);
  Status synchronize(Event& event);
  Status wait(Stream& stream, Event& event);
  /// Launches between the two, each taken as a tenth of a millisecond: no time is measured here.
  Status elapsed(float* milliseconds, const Event& from, const Event& to);

  /// Into `graph`, or a new one.
  Status begin_capture(Stream& stream, std::shared_ptr<Graph> graph = nullptr);
  Status end_capture(Stream& stream, std::shared_ptr<Graph>* graph);
  void launch_graph(const Graph& graph, Stream& stream);
  std::shared_ptr<Graph> create_graph();

  /// Whether anything was done with it.
  bool used() const;

 private:
  bool complete(const Event& event) const;
  /// The graph that the event was recorded into, while it is being captured.
  static std::shared_ptr<Graph> capturing(const Event& event);
  static Status ask(Device& device, std::uint64_t work, Asked& asked);
  static void catch_up(Device& device, std::uint64_t work);
  std::uint64_t now_done(const Device& device) const;

  std::set<Stream*> streams_;
  std::vector<Event*> retired_;  ///< destroyed, to be used again
  std::uint32_t next_stream_ = 1, next_event_ = 1, next_graph_ = 1;
};

PLIMSOLL_DEVICE_CORE Machine& machine();
PLIMSOLL_DEVICE_CORE std::unique_lock<std::mutex> lock();
/// In a forked child, a machine as the environment says now. False, and nothing, where this one was used.
bool begin_again();

/// The calling thread's device and the last error it was given.
struct ThreadState {
  int device = 0;
  Status last_error = Status::ok;
};
PLIMSOLL_DEVICE_CORE ThreadState& thread_state();

/// Notes a failure as the thread's last error.
inline Status noted(Status status) {
  if (status != Status::ok && status != Status::not_ready) thread_state().last_error = status;
  return status;
}

}  // namespace plimsoll::device
