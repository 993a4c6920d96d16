// NCCL, and RCCL with it (its interface is NCCL's): every call succeeds at once, moves nothing and is recorded.
#include <unistd.h>

#include <cstring>
#include <ctime>

#include "rehearse/device/core/communicators.hpp"
#include "rehearse/device/core/interface.hpp"
#include "rehearse/device/core/memory.hpp"
#include "rehearse/device/core/settings.hpp"

using namespace plimsoll::device;
using plimsoll::device::record::Collective;
using plimsoll::device::record::CommunicatorAction;
using plimsoll::device::record::Type;

namespace {

constexpr int kSuccess = 0, kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5, kNoColor = -1;
constexpr int kAverage = 4, kWithFactor = 5;  // ncclAvg, and the first of those that ncclRedOpCreatePreMulSum numbers

struct UniqueId {
  char bytes[128];
};

/// What comes first in ncclConfig_t of every version; a version's own size tells how much of it is there.
struct Configuration {
  std::size_t bytes;
  unsigned magic, version;
  int blocking, cluster, least_ctas, most_ctas;
  const char* network;
  int split_share, traffic_class;
  const char* name;
};

const char* name_of(const Configuration* c) {
  return c != nullptr && c->bytes >= sizeof(Configuration) && c->bytes < 4096 ? c->name : nullptr;
}

std::uint64_t hash(const UniqueId& id) {  // FNV-1a
  std::uint64_t h = 0xcbf29ce484222325u;
  for (char c : id.bytes) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

Communicator* known(Handle handle) {
  auto* c = static_cast<Communicator*>(handle);
  return c != nullptr && c->magic == Communicator::kMagic ? c : nullptr;
}

int made(Handle* handle, Communicator* c) {
  *handle = c;
  return c == nullptr ? kSystemError : kSuccess;
}

int init(Handle* handle, int size, const UniqueId& id, int rank, const Configuration* configuration) {
  if (size < 1 || rank < 0 || rank >= size) return kInvalidArgument;
  return made(handle, make_communicator({size, rank, hash(id), name_of(configuration)}));
}

int end(Handle handle, CommunicatorAction action) {
  Communicator* c = known(handle);
  if (c == nullptr) return kInvalidArgument;
  end_communicator(c, action);
  return kSuccess;
}

struct Element {
  Type type;
  std::uint64_t bytes;
};

/// ncclDataType_t
Element element(int type) {
  constexpr Element kElements[] = {{Type::i8, 1},  {Type::u8, 1},  {Type::i32, 4}, {Type::u32, 4},  {Type::i64, 8},     {Type::u64, 8},
                                   {Type::f16, 2}, {Type::f32, 4}, {Type::f64, 8}, {Type::bf16, 2}, {Type::f8_e4m3, 1}, {Type::f8_e5m2, 1}};
  return type >= 0 && type < 12 ? kElements[type] : Element{Type::unknown, 0};
}

thread_local const char* last_error = "";

/// A number that nobody has told: an error is better than a number that is not so.
int told(int value, int* to, const char* what) {
  *to = value;
  if (value >= 0) return kSuccess;
  last_error = what;
  complain(what);
  return kInvalidUsage;
}

int call(Collective op, std::size_t count, int type, Handle handle, Handle stream, int peer = -1, int reduction = 0) {
  const Communicator* c = known(handle);
  Stream* on = stream_of(stream);
  const Element each = element(type);
  if (c == nullptr || on == nullptr || each.bytes == 0 || (c->size > 0 && peer >= c->size)) return kInvalidArgument;
  collective({op, each.type, count, count * each.bytes, peer, reduction}, *c, *on);
  return kSuccess;
}

struct Buffers {
  const void* from;
  void* to;
};

/// What every rank gets a result of. In a communicator of one, NCCL copies what is not in place, and an average or a factor is a kernel
/// that reads and writes as much as a copy (enqueue.cc and onerank.cu, ncclLaunchOneRank).
int call_on(Buffers buffers, Collective op, std::size_t count, int type, Handle handle, Handle stream, int peer = -1, int reduction = 0) {
  const int status = call(op, count, type, handle, stream, peer, reduction);
  if (status != kSuccess || known(handle)->size != 1 || (buffers.from == buffers.to && reduction < kAverage)) return status;
  return copy(buffers.to, buffers.from, count * element(type).bytes, *stream_of(stream), false) == Status::ok ? kSuccess : kInvalidArgument;
}

}  // namespace

PLIMSOLL_DEVICE_API int ncclGetVersion(int* version) {
  *version = settings().nccl_version;
  return kSuccess;
}
PLIMSOLL_DEVICE_API int ncclGetUniqueId(UniqueId* id) {
  static std::uint64_t count = 0;
  const std::uint64_t parts[] = {0x504c494d534f4c4c, static_cast<std::uint64_t>(getpid()), ++count,
                                 static_cast<std::uint64_t>(std::time(nullptr))};
  std::memset(id, 0, sizeof *id);
  std::memcpy(id, parts, sizeof parts);
  return kSuccess;
}
PLIMSOLL_DEVICE_API int ncclCommGetUniqueId(Handle, UniqueId* id) { return ncclGetUniqueId(id); }
PLIMSOLL_DEVICE_API const char* ncclGetErrorString(int status) {
  switch (status) {
    case kSuccess:
      return "no error";
    case kSystemError:
      return "unhandled system error";
    case kInvalidArgument:
      return "invalid argument";
    case kInvalidUsage:
      return "invalid usage";
    default:
      return "unknown result code";
  }
}
PLIMSOLL_DEVICE_API const char* ncclGetLastError(Handle) { return last_error; }

PLIMSOLL_DEVICE_API int ncclCommInitRank(Handle* c, int size, UniqueId id, int rank) { return init(c, size, id, rank, nullptr); }
PLIMSOLL_DEVICE_API int ncclCommInitRankConfig(Handle* c, int size, UniqueId id, int rank, const Configuration* configuration) {
  return init(c, size, id, rank, configuration);
}
PLIMSOLL_DEVICE_API int ncclCommInitRankScalable(Handle* c, int size, int rank, int, const UniqueId* ids,
                                                 const Configuration* configuration) {
  return init(c, size, ids[0], rank, configuration);
}
PLIMSOLL_DEVICE_API int ncclCommInitAll(Handle* all, int count, const int*) {
  UniqueId id;
  ncclGetUniqueId(&id);
  for (int i = 0; i < count; ++i) {
    const int status = init(&all[i], count, id, i, nullptr);
    if (status != kSuccess) return status;
  }
  return kSuccess;
}
PLIMSOLL_DEVICE_API int ncclCommSplit(Handle parent, int color, int key, Handle* c, const Configuration* configuration) {
  const Communicator* from = known(parent);
  if (from == nullptr) return kInvalidArgument;
  *c = nullptr;
  return color == kNoColor ? kSuccess : made(c, split(*from, color, key, name_of(configuration)));
}
PLIMSOLL_DEVICE_API int ncclCommShrink(Handle parent, int*, int excluded, Handle* c, const Configuration* configuration, int) {
  const Communicator* from = known(parent);
  if (from == nullptr) return kInvalidArgument;
  return made(c, shrink(*from, excluded, name_of(configuration)));
}
PLIMSOLL_DEVICE_API int ncclCommFinalize(Handle c) { return end(c, CommunicatorAction::finalize); }
PLIMSOLL_DEVICE_API int ncclCommDestroy(Handle c) { return end(c, CommunicatorAction::destroy); }
PLIMSOLL_DEVICE_API int ncclCommAbort(Handle c) { return end(c, CommunicatorAction::abort); }

PLIMSOLL_DEVICE_API int ncclCommCount(Handle handle, int* size) {
  const Communicator* c = known(handle);
  if (c == nullptr) return kInvalidArgument;
  return told(c->size, size, "the size of a split communicator was asked for and never told (plimsoll_rehearse_expect_split)");
}
PLIMSOLL_DEVICE_API int ncclCommUserRank(Handle handle, int* rank) {
  const Communicator* c = known(handle);
  if (c == nullptr) return kInvalidArgument;
  return told(c->rank, rank, "the rank in a split communicator was asked for and never told (plimsoll_rehearse_expect_split)");
}
PLIMSOLL_DEVICE_API int ncclCommCuDevice(Handle handle, int* device) {
  const Communicator* c = known(handle);
  if (c == nullptr) return kInvalidArgument;
  *device = c->device;
  return kSuccess;
}
PLIMSOLL_DEVICE_API int ncclCommGetAsyncError(Handle, int* error) {
  *error = kSuccess;
  return kSuccess;
}

PLIMSOLL_DEVICE_API int ncclMemAlloc(void** address, std::size_t bytes) {
  return allocate(address, bytes) == Status::ok ? kSuccess : kSystemError;
}
PLIMSOLL_DEVICE_API int ncclMemFree(void* address) { return release(address) == Status::ok ? kSuccess : kInvalidArgument; }
PLIMSOLL_DEVICE_API int ncclCommRegister(Handle, void* buffer, std::size_t, void** handle) {
  *handle = buffer;
  return kSuccess;
}
PLIMSOLL_DEVICE_API int ncclCommDeregister(Handle, void*) { return kSuccess; }
PLIMSOLL_DEVICE_API int ncclCommWindowRegister(Handle, void* buffer, std::size_t, void** window, int) {
  *window = buffer;
  return kSuccess;
}
PLIMSOLL_DEVICE_API int ncclCommWindowDeregister(Handle, void*) { return kSuccess; }
PLIMSOLL_DEVICE_API int ncclWinGetUserPtr(Handle, void* window, void** address) {
  *address = window;
  return kSuccess;
}

PLIMSOLL_DEVICE_API int ncclGroupStart() {
  group_start();
  return kSuccess;
}
PLIMSOLL_DEVICE_API int ncclGroupEnd() { return group_end() ? kSuccess : kInvalidUsage; }
PLIMSOLL_DEVICE_API int ncclGroupSimulateEnd(void*) { return ncclGroupEnd(); }

PLIMSOLL_DEVICE_API int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int reduction, Handle c, Handle stream) {
  return call_on({from, to}, Collective::all_reduce, count, type, c, stream, -1, reduction);
}
PLIMSOLL_DEVICE_API int ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root, Handle c, Handle stream) {
  return call_on({from, to}, Collective::broadcast, count, type, c, stream, root);
}
PLIMSOLL_DEVICE_API int ncclBcast(void*, std::size_t count, int type, int root, Handle c, Handle stream) {
  return call(Collective::broadcast, count, type, c, stream, root);
}
PLIMSOLL_DEVICE_API int ncclReduce(const void* from, void* to, std::size_t count, int type, int reduction, int root, Handle c,
                                   Handle stream) {
  return call_on({from, to}, Collective::reduce, count, type, c, stream, root, reduction);
}
PLIMSOLL_DEVICE_API int ncclAllGather(const void* from, void* to, std::size_t count, int type, Handle c, Handle stream) {
  return call_on({from, to}, Collective::all_gather, count, type, c, stream);
}
PLIMSOLL_DEVICE_API int ncclReduceScatter(const void* from, void* to, std::size_t count, int type, int reduction, Handle c, Handle stream) {
  return call_on({from, to}, Collective::reduce_scatter, count, type, c, stream, -1, reduction);
}
PLIMSOLL_DEVICE_API int ncclSend(const void*, std::size_t count, int type, int peer, Handle c, Handle stream) {
  return call(Collective::send, count, type, c, stream, peer);
}
PLIMSOLL_DEVICE_API int ncclRecv(void*, std::size_t count, int type, int peer, Handle c, Handle stream) {
  return call(Collective::receive, count, type, c, stream, peer);
}
PLIMSOLL_DEVICE_API int ncclAlltoAll(const void*, void*, std::size_t count, int type, Handle c, Handle stream) {
  return call(Collective::all_to_all, count, type, c, stream);
}
PLIMSOLL_DEVICE_API int ncclGather(const void*, void*, std::size_t count, int type, int root, Handle c, Handle stream) {
  return call(Collective::gather, count, type, c, stream, root);
}
PLIMSOLL_DEVICE_API int ncclScatter(const void*, void*, std::size_t count, int type, int root, Handle c, Handle stream) {
  return call(Collective::scatter, count, type, c, stream, root);
}

// RCCL's own names.
PLIMSOLL_DEVICE_API int ncclAllToAll(const void* from, void* to, std::size_t count, int type, Handle c, Handle stream) {
  return ncclAlltoAll(from, to, count, type, c, stream);
}
PLIMSOLL_DEVICE_API int ncclAllToAllv(const void*, const std::size_t counts[], const std::size_t[], void*, const std::size_t[],
                                      const std::size_t[], int type, Handle handle, Handle stream) {
  const Communicator* c = known(handle);
  if (c == nullptr) return kInvalidArgument;
  std::size_t count = 0;
  for (int rank = 0; rank < c->size; ++rank) count += counts[rank];
  return call(Collective::all_to_all_v, count, type, handle, stream);
}

// A reduction with a factor: numbered after the built-in ones.
PLIMSOLL_DEVICE_API int ncclRedOpCreatePreMulSum(int* reduction, void*, int, int, Handle) {
  *reduction = kWithFactor;
  return kSuccess;
}
PLIMSOLL_DEVICE_API int ncclRedOpDestroy(int, Handle) { return kSuccess; }
