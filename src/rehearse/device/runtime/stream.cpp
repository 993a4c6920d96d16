// The runtime's streams, events and graphs.
#include <unistd.h>

#include <cstring>
#include <utility>

#include "rehearse/device/core/streams.hpp"
#include "vendor.hpp"

using namespace plimsoll::device;

namespace {

struct UserObject {
  std::shared_ptr<void> object;
  unsigned references;
};

struct IpcEventHandle {
  std::uint64_t process, event;
  char unused[48];
};

}  // namespace

PLIMSOLL_DEVICE_API int NAME(StreamCreate)(Handle* stream) { return give(new_stream(stream, 0, 0)); }
PLIMSOLL_DEVICE_API int NAME(StreamCreateWithFlags)(Handle* stream, unsigned flags) { return give(new_stream(stream, flags, 0)); }
PLIMSOLL_DEVICE_API int NAME(StreamCreateWithPriority)(Handle* stream, unsigned flags, int priority) {
  return give(new_stream(stream, flags, priority));
}
PLIMSOLL_DEVICE_API int NAME(StreamDestroy)(Handle stream) { return give(destroy_stream(stream)); }
PLIMSOLL_DEVICE_API int NAME(StreamSynchronize)(Handle stream) { return give(synchronize_stream(stream)); }
PLIMSOLL_DEVICE_API int NAME(StreamQuery)(Handle stream) { return give(query_stream(stream)); }
PLIMSOLL_DEVICE_API int NAME(StreamWaitEvent)(Handle stream, Handle event, unsigned) { return give(wait_event(stream, event)); }
PLIMSOLL_DEVICE_API int NAME(StreamGetId)(Handle stream, unsigned long long* id) { return give(stream_field(stream, &Stream::id, id)); }
PLIMSOLL_DEVICE_API int NAME(StreamGetPriority)(Handle stream, int* priority) {
  return give(stream_field(stream, &Stream::priority, priority));
}
PLIMSOLL_DEVICE_API int NAME(StreamGetFlags)(Handle stream, unsigned* flags) { return give(stream_field(stream, &Stream::flags, flags)); }
PLIMSOLL_DEVICE_API int NAME(StreamGetDevice)(Handle stream, int* device) { return give(stream_field(stream, &Stream::device, device)); }
PLIMSOLL_DEVICE_API int NAME(LaunchHostFunc)(Handle stream, void (*function)(void*), void* argument) {
  return give(run_on_host(stream, function, argument));
}
PLIMSOLL_DEVICE_API int NAME(StreamAddCallback)(Handle stream, void (*function)(Handle, int, void*), void* argument, unsigned) {
  const Status status = with_stream(stream, [&](Stream& on) {
    host_function(on);
    return Status::ok;
  });
  if (status == Status::ok) function(stream, 0, argument);
  return give(status);
}

PLIMSOLL_DEVICE_API int NAME(EventCreate)(Handle* event) { return give(new_event(event, 0)); }
PLIMSOLL_DEVICE_API int NAME(EventCreateWithFlags)(Handle* event, unsigned flags) { return give(new_event(event, flags)); }
PLIMSOLL_DEVICE_API int NAME(EventDestroy)(Handle event) { return give(destroy_event(event)); }
PLIMSOLL_DEVICE_API int NAME(EventRecord)(Handle event, Handle stream) { return give(record_event(event, stream)); }
PLIMSOLL_DEVICE_API int NAME(EventRecordWithFlags)(Handle event, Handle stream, unsigned) { return give(record_event(event, stream)); }
PLIMSOLL_DEVICE_API int NAME(EventQuery)(Handle event) { return give(query_event(event)); }
PLIMSOLL_DEVICE_API int NAME(EventSynchronize)(Handle event) { return give(synchronize_event(event)); }
PLIMSOLL_DEVICE_API int NAME(EventElapsedTime)(float* milliseconds, Handle from, Handle to) {
  return give(elapsed_between(milliseconds, from, to));
}
PLIMSOLL_DEVICE_API int NAME(EventElapsedTime_v2)(float* milliseconds, Handle from, Handle to) {
  return give(elapsed_between(milliseconds, from, to));
}
PLIMSOLL_DEVICE_API int NAME(IpcGetEventHandle)(IpcEventHandle* handle, Handle event) {
  if (event_of(event) == nullptr) return give(Status::invalid_handle);
  *handle = {static_cast<std::uint64_t>(getpid()), reinterpret_cast<std::uintptr_t>(event), {}};
  return 0;
}
/// In another process: an event behind which nothing is waited for.
PLIMSOLL_DEVICE_API int NAME(IpcOpenEventHandle)(Handle* event, IpcEventHandle handle) {
  if (handle.process != static_cast<std::uint64_t>(getpid())) return give(new_event(event, 0));
  *event = reinterpret_cast<Handle>(handle.event);
  return give(event_of(*event) != nullptr ? Status::ok : Status::invalid_handle);
}

PLIMSOLL_DEVICE_API int NAME(StreamBeginCapture)(Handle stream, int) { return give(begin_capture(stream)); }
PLIMSOLL_DEVICE_API int NAME(StreamBeginCaptureToGraph)(Handle stream, Handle graph, const Handle*, const void*, std::size_t, int) {
  return give(graph == nullptr ? Status::invalid_value : begin_capture(stream, graph));
}
PLIMSOLL_DEVICE_API int NAME(StreamEndCapture)(Handle stream, Handle* graph) { return give(end_capture(stream, graph)); }
PLIMSOLL_DEVICE_API int NAME(StreamIsCapturing)(Handle stream, int* status) { return give(capture_info(stream, status)); }
#if PLIMSOLL_HIP || PLIMSOLL_CUDA_MAJOR < 13
PLIMSOLL_DEVICE_API int NAME(StreamGetCaptureInfo)(Handle stream, int* status, unsigned long long* id) {
  return give(capture_info(stream, status, id));
}
PLIMSOLL_DEVICE_API int NAME(StreamGetCaptureInfo_v2)(Handle stream, int* status, unsigned long long* id, Handle* graph,
                                                      const Handle** dependencies, std::size_t* count) {
  return give(capture_info(stream, status, id, graph, dependencies, nullptr, count));
}
#define PLIMSOLL_CAPTURE_INFO NAME(StreamGetCaptureInfo_v3)
#else
#define PLIMSOLL_CAPTURE_INFO NAME(StreamGetCaptureInfo)
#endif
PLIMSOLL_DEVICE_API int PLIMSOLL_CAPTURE_INFO(Handle stream, int* status, unsigned long long* id, Handle* graph,
                                              const Handle** dependencies, const void** edges, std::size_t* count) {
  return give(capture_info(stream, status, id, graph, dependencies, edges, count));
}
PLIMSOLL_DEVICE_API int NAME(ThreadExchangeStreamCaptureMode)(int* mode) {
  static thread_local int own = 0;  // global
  std::swap(own, *mode);
  return 0;
}

PLIMSOLL_DEVICE_API int NAME(GraphCreate)(Handle* graph, unsigned) {
  const auto held = lock();
  *graph = new GraphHandle(machine().create_graph());
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(GraphClone)(Handle* clone, Handle graph) { return give(copy_graph(clone, graph)); }
PLIMSOLL_DEVICE_API int NAME(GraphDestroy)(Handle graph) { return give(destroy_graph(graph)); }
PLIMSOLL_DEVICE_API int NAME(GraphExecDestroy)(Handle executable) { return give(destroy_graph(executable)); }
PLIMSOLL_DEVICE_API int NAME(GraphGetNodes)(Handle graph, Handle* nodes, std::size_t* count) {
  const Graph& it = **static_cast<GraphHandle*>(graph);
  if (nodes != nullptr)
    for (std::size_t i = 0; i < *count; ++i) nodes[i] = i < it.nodes ? reinterpret_cast<Handle>(i + 1) : nullptr;
  *count = it.nodes;
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(GraphInstantiate)(Handle* executable, Handle graph, unsigned long long) {
  return give(copy_graph(executable, graph));
}
PLIMSOLL_DEVICE_API int NAME(GraphInstantiateWithFlags)(Handle* executable, Handle graph, unsigned long long) {
  return give(copy_graph(executable, graph));
}
PLIMSOLL_DEVICE_API int NAME(GraphUpload)(Handle, Handle) { return 0; }
PLIMSOLL_DEVICE_API int NAME(GraphLaunch)(Handle executable, Handle stream) { return give(launch_graph(executable, stream)); }
PLIMSOLL_DEVICE_API int NAME(GraphDebugDotPrint)(Handle, const char*, unsigned) { return give(Status::not_supported); }

// What the program wants kept as long as a graph.
PLIMSOLL_DEVICE_API int NAME(UserObjectCreate)(Handle* object, void* pointer, void (*destroy)(void*), unsigned references, unsigned) {
  *object = new UserObject{std::shared_ptr<void>(pointer, destroy), references};
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(UserObjectRelease)(Handle object, unsigned count) {
  auto* it = static_cast<UserObject*>(object);
  it->references -= count < it->references ? count : it->references;
  if (it->references == 0) delete it;
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(UserObjectRetain)(Handle object, unsigned count) {
  static_cast<UserObject*>(object)->references += count;
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(GraphRetainUserObject)(Handle graph, Handle object, unsigned count, unsigned flags) {
  const unsigned kMove = 1;  // the caller's references become the graph's
  (*static_cast<GraphHandle*>(graph))->retained.push_back(static_cast<UserObject*>(object)->object);
  return (flags & kMove) != 0 ? NAME(UserObjectRelease)(object, count) : 0;
}
