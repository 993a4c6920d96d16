// The CUDA runtime's streams, events and graphs.
#include <cstring>
#include <utility>

#include "streams.hpp"

using namespace plimsoll::device;
using namespace plimsoll::device::cuda;

namespace {

struct UserObject {
  std::shared_ptr<void> object;
  unsigned references;
};

struct IpcEventHandle {
  char bytes[64];
};

}  // namespace

PLIMSOLL_DEVICE_API int cudaStreamCreate(Handle* stream) { return give(new_stream(stream, 0, 0)); }
PLIMSOLL_DEVICE_API int cudaStreamCreateWithFlags(Handle* stream, unsigned flags) { return give(new_stream(stream, flags, 0)); }
PLIMSOLL_DEVICE_API int cudaStreamCreateWithPriority(Handle* stream, unsigned flags, int priority) {
  return give(new_stream(stream, flags, priority));
}
PLIMSOLL_DEVICE_API int cudaStreamDestroy(Handle stream) { return give(destroy_stream(stream)); }
PLIMSOLL_DEVICE_API int cudaStreamSynchronize(Handle stream) { return give(synchronize_stream(stream)); }
PLIMSOLL_DEVICE_API int cudaStreamQuery(Handle stream) { return give(query_stream(stream)); }
PLIMSOLL_DEVICE_API int cudaStreamWaitEvent(Handle stream, Handle event, unsigned) { return give(wait_event(stream, event)); }
PLIMSOLL_DEVICE_API int cudaStreamGetId(Handle stream, unsigned long long* id) { return give(stream_field(stream, &Stream::id, id)); }
PLIMSOLL_DEVICE_API int cudaStreamGetPriority(Handle stream, int* priority) {
  return give(stream_field(stream, &Stream::priority, priority));
}
PLIMSOLL_DEVICE_API int cudaStreamGetFlags(Handle stream, unsigned* flags) { return give(stream_field(stream, &Stream::flags, flags)); }
PLIMSOLL_DEVICE_API int cudaStreamGetDevice(Handle stream, int* device) { return give(stream_field(stream, &Stream::device, device)); }
PLIMSOLL_DEVICE_API int cudaLaunchHostFunc(Handle stream, void (*function)(void*), void* argument) {
  return give(run_on_host(stream, function, argument));
}
PLIMSOLL_DEVICE_API int cudaStreamAddCallback(Handle stream, void (*function)(Handle, int, void*), void* argument, unsigned) {
  const Status status = with_stream(stream, [&](Stream& on) {
    host_function(on);
    return Status::ok;
  });
  if (status == Status::ok) function(stream, 0, argument);
  return give(status);
}

PLIMSOLL_DEVICE_API int cudaEventCreate(Handle* event) { return give(new_event(event, 0)); }
PLIMSOLL_DEVICE_API int cudaEventCreateWithFlags(Handle* event, unsigned flags) { return give(new_event(event, flags)); }
PLIMSOLL_DEVICE_API int cudaEventDestroy(Handle event) { return give(destroy_event(event)); }
PLIMSOLL_DEVICE_API int cudaEventRecord(Handle event, Handle stream) { return give(record_event(event, stream)); }
PLIMSOLL_DEVICE_API int cudaEventRecordWithFlags(Handle event, Handle stream, unsigned) { return give(record_event(event, stream)); }
PLIMSOLL_DEVICE_API int cudaEventQuery(Handle event) { return give(query_event(event)); }
PLIMSOLL_DEVICE_API int cudaEventSynchronize(Handle event) { return give(synchronize_event(event)); }
PLIMSOLL_DEVICE_API int cudaEventElapsedTime(float* milliseconds, Handle from, Handle to) {
  return give(elapsed_between(milliseconds, from, to));
}
PLIMSOLL_DEVICE_API int cudaEventElapsedTime_v2(float* milliseconds, Handle from, Handle to) {
  return give(elapsed_between(milliseconds, from, to));
}
PLIMSOLL_DEVICE_API int cudaIpcGetEventHandle(IpcEventHandle* handle, Handle event) {
  *handle = {};
  std::memcpy(handle->bytes, &event, sizeof event);
  return give(event_of(event) != nullptr ? Status::ok : Status::invalid_handle);
}
PLIMSOLL_DEVICE_API int cudaIpcOpenEventHandle(Handle* event, IpcEventHandle handle) {
  std::memcpy(event, handle.bytes, sizeof *event);
  return give(event_of(*event) != nullptr ? Status::ok : Status::invalid_handle);
}

PLIMSOLL_DEVICE_API int cudaStreamBeginCapture(Handle stream, int) { return give(begin_capture(stream)); }
PLIMSOLL_DEVICE_API int cudaStreamBeginCaptureToGraph(Handle stream, Handle graph, const Handle*, const void*, std::size_t, int) {
  return give(graph == nullptr ? Status::invalid_value : begin_capture(stream, graph));
}
PLIMSOLL_DEVICE_API int cudaStreamEndCapture(Handle stream, Handle* graph) { return give(end_capture(stream, graph)); }
PLIMSOLL_DEVICE_API int cudaStreamIsCapturing(Handle stream, int* status) { return give(capture_info(stream, status)); }
#if PLIMSOLL_CUDA_MAJOR < 13
PLIMSOLL_DEVICE_API int cudaStreamGetCaptureInfo(Handle stream, int* status, unsigned long long* id) {
  return give(capture_info(stream, status, id));
}
PLIMSOLL_DEVICE_API int cudaStreamGetCaptureInfo_v2(Handle stream, int* status, unsigned long long* id, Handle* graph,
                                                    const Handle** dependencies, std::size_t* count) {
  return give(capture_info(stream, status, id, graph, dependencies, nullptr, count));
}
#define PLIMSOLL_CAPTURE_INFO cudaStreamGetCaptureInfo_v3
#else
#define PLIMSOLL_CAPTURE_INFO cudaStreamGetCaptureInfo
#endif
PLIMSOLL_DEVICE_API int PLIMSOLL_CAPTURE_INFO(Handle stream, int* status, unsigned long long* id, Handle* graph,
                                              const Handle** dependencies, const void** edges, std::size_t* count) {
  return give(capture_info(stream, status, id, graph, dependencies, edges, count));
}
PLIMSOLL_DEVICE_API int cudaThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int own = 0;  // global
  std::swap(own, *mode);
  return 0;
}

PLIMSOLL_DEVICE_API int cudaGraphCreate(Handle* graph, unsigned) {
  const auto held = lock();
  *graph = new GraphHandle(machine().create_graph());
  return 0;
}
PLIMSOLL_DEVICE_API int cudaGraphClone(Handle* clone, Handle graph) { return give(copy_graph(clone, graph)); }
PLIMSOLL_DEVICE_API int cudaGraphDestroy(Handle graph) { return give(destroy_graph(graph)); }
PLIMSOLL_DEVICE_API int cudaGraphExecDestroy(Handle executable) { return give(destroy_graph(executable)); }
PLIMSOLL_DEVICE_API int cudaGraphGetNodes(Handle graph, Handle* nodes, std::size_t* count) {
  const Graph& it = **static_cast<GraphHandle*>(graph);
  if (nodes != nullptr)
    for (std::size_t i = 0; i < *count; ++i) nodes[i] = i < it.nodes ? reinterpret_cast<Handle>(i + 1) : nullptr;
  *count = it.nodes;
  return 0;
}
PLIMSOLL_DEVICE_API int cudaGraphInstantiate(Handle* executable, Handle graph, unsigned long long) {
  return give(copy_graph(executable, graph));
}
PLIMSOLL_DEVICE_API int cudaGraphInstantiateWithFlags(Handle* executable, Handle graph, unsigned long long) {
  return give(copy_graph(executable, graph));
}
PLIMSOLL_DEVICE_API int cudaGraphUpload(Handle, Handle) { return 0; }
PLIMSOLL_DEVICE_API int cudaGraphLaunch(Handle executable, Handle stream) { return give(launch_graph(executable, stream)); }
PLIMSOLL_DEVICE_API int cudaGraphDebugDotPrint(Handle, const char*, unsigned) { return give(Status::not_supported); }

// What the program wants kept as long as a graph.
PLIMSOLL_DEVICE_API int cudaUserObjectCreate(Handle* object, void* pointer, void (*destroy)(void*), unsigned references, unsigned) {
  *object = new UserObject{std::shared_ptr<void>(pointer, destroy), references};
  return 0;
}
PLIMSOLL_DEVICE_API int cudaUserObjectRelease(Handle object, unsigned count) {
  auto* it = static_cast<UserObject*>(object);
  it->references -= count < it->references ? count : it->references;
  if (it->references == 0) delete it;
  return 0;
}
PLIMSOLL_DEVICE_API int cudaUserObjectRetain(Handle object, unsigned count) {
  static_cast<UserObject*>(object)->references += count;
  return 0;
}
PLIMSOLL_DEVICE_API int cudaGraphRetainUserObject(Handle graph, Handle object, unsigned count, unsigned flags) {
  const unsigned kMove = 1;  // the caller's references become the graph's
  (*static_cast<GraphHandle*>(graph))->retained.push_back(static_cast<UserObject*>(object)->object);
  return (flags & kMove) != 0 ? cudaUserObjectRelease(object, count) : 0;
}
