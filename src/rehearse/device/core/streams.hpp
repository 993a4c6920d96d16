/// Streams, events and graphs as every interface sees them.
#pragma once

#include <memory>

#include "interface.hpp"

namespace plimsoll::device {

using GraphHandle = std::shared_ptr<Graph>;  ///< graphs and their executables point to one

/// Runs `body(machine, stream)` under the lock.
template <class Body>
Status on_stream(Handle handle, Body&& body) {
  return with_stream(handle, [&](Stream& stream) {
    const auto held = lock();
    return body(machine(), stream);
  });
}

/// Runs `body(machine, event)` under the lock.
template <class Body>
Status on_event(Handle handle, Body&& body) {
  Event* event = event_of(handle);
  if (event == nullptr) return Status::invalid_handle;
  const auto held = lock();
  return body(machine(), *event);
}

/// The capture of a stream: its status (0 none, 1 active), number and graph. What it depends on is not kept.
inline Status capture_info(Handle handle, int* status, unsigned long long* id = nullptr, Handle* graph = nullptr,
                           const Handle** dependencies = nullptr, const void** edges = nullptr, std::size_t* count = nullptr) {
  static const Handle none[1] = {nullptr};
  return on_stream(handle, [&](Machine&, Stream& stream) {
    const bool active = stream.capture != nullptr;
    *status = active ? 1 : 0;
    if (id != nullptr) *id = active ? stream.capture->id : 0;
    if (graph != nullptr) *graph = active ? &stream.capture : nullptr;
    if (dependencies != nullptr) *dependencies = none;
    if (edges != nullptr) *edges = nullptr;
    if (count != nullptr) *count = 0;
    return Status::ok;
  });
}

inline Status new_stream(Handle* stream, unsigned flags, int priority) {
  const auto held = lock();
  *stream = machine().create_stream(thread_state().device, flags, priority);
  return Status::ok;
}

inline Status new_event(Handle* event, unsigned flags) {
  const auto held = lock();
  *event = machine().create_event(thread_state().device, flags);
  return Status::ok;
}

inline Status destroy_stream(Handle handle) {
  return on_stream(handle, [](Machine& m, Stream& stream) {
    if (stream.id == 0) return Status::invalid_handle;
    m.destroy_stream(&stream);
    return Status::ok;
  });
}
inline Status destroy_event(Handle handle) {
  return on_event(handle, [](Machine& m, Event& event) {
    m.destroy_event(&event);
    return Status::ok;
  });
}
inline Status synchronize_stream(Handle handle) {
  return on_stream(handle, [](Machine& m, Stream& stream) { return m.synchronize(stream); });
}
inline Status query_stream(Handle handle) {
  return on_stream(handle, [](Machine& m, Stream& stream) { return m.query(stream); });
}
inline Status wait_event(Handle handle, Handle event) {
  return on_stream(handle, [&](Machine& m, Stream& stream) {
    Event* on = event_of(event);
    return on == nullptr ? Status::invalid_handle : m.wait(stream, *on);
  });
}
inline Status record_event(Handle handle, Handle stream) {
  Stream* on = stream_of(stream);
  if (on == nullptr) return Status::invalid_handle;
  return on_event(handle, [&](Machine& m, Event& event) { return m.record_event(event, *on); });
}
inline Status query_event(Handle handle) {
  return on_event(handle, [](Machine& m, Event& event) { return m.query(event); });
}
inline Status synchronize_event(Handle handle) {
  return on_event(handle, [](Machine& m, Event& event) { return m.synchronize(event); });
}
inline Status elapsed_between(float* milliseconds, Handle from, Handle to) {
  Event* until = event_of(to);
  if (until == nullptr) return Status::invalid_handle;
  return on_event(from, [&](Machine& m, Event& event) { return m.elapsed(milliseconds, event, *until); });
}
template <class Field, class Value>
Status stream_field(Handle handle, Field field, Value* value) {
  return on_stream(handle, [&](Machine&, Stream& stream) {
    *value = static_cast<Value>(stream.*field);
    return Status::ok;
  });
}

/// The function runs at once: the host cannot tell, because the work before it has no effect. Not while capturing.
inline Status run_on_host(Handle handle, void (*function)(void*), void* argument) {
  bool captured = false;
  const Status status = with_stream(handle, [&](Stream& stream) {
    captured = stream.capture != nullptr;
    host_function(stream);
    return Status::ok;
  });
  if (status == Status::ok && !captured) function(argument);
  return status;
}

inline Status begin_capture(Handle handle, Handle graph = nullptr) {
  return on_stream(handle, [&](Machine& m, Stream& stream) {
    return m.begin_capture(stream, graph == nullptr ? nullptr : *static_cast<GraphHandle*>(graph));
  });
}
inline Status end_capture(Handle handle, Handle* graph) {
  auto ended = std::make_unique<GraphHandle>();
  const Status status = on_stream(handle, [&](Machine& m, Stream& stream) { return m.end_capture(stream, ended.get()); });
  *graph = status == Status::ok ? ended.release() : nullptr;
  return status;
}
inline Status copy_graph(Handle* copy, Handle graph) {
  if (graph == nullptr) return Status::invalid_value;
  *copy = new GraphHandle(*static_cast<GraphHandle*>(graph));
  return Status::ok;
}
inline Status destroy_graph(Handle graph) {
  delete static_cast<GraphHandle*>(graph);
  return Status::ok;
}
inline Status launch_graph(Handle executable, Handle handle) {
  if (executable == nullptr) return Status::invalid_value;
  return on_stream(handle, [&](Machine& m, Stream& stream) {
    m.launch_graph(**static_cast<GraphHandle*>(executable), stream);
    return Status::ok;
  });
}

}  // namespace plimsoll::device
