/// The binary record that a rehearsed program leaves: what it asked of the stand-in device, in issue order. Written by the libraries in
/// rehearse/device, read back by this room; both see only this header, so it depends on nothing but <cstdint>.
///
/// A record is one FileHeader, then events back to back, each starting with an EventHeader and padded to a multiple of eight bytes. All
/// numbers are in the byte order of the machine that wrote them (`FileHeader::byte_order` tells). A reader skips a kind it does not know by
/// `EventHeader::bytes`. The file grows in zero-filled chunks, so a process that was killed leaves a readable record: an event of kind
/// `none` (zero), or the end of the file, ends it; one that ended well ends with an `End` event.
///
/// Strings (kernel names, stacks, texts) are entries of a table: a `Name` event comes before the first event that refers to its id; id 0 is
/// the empty string. Streams, events, communicators and graphs have numbers of their own kind, given in order of creation and never used
/// again; stream 0 of each device is its default stream.
#pragma once

#include <cstdint>

namespace plimsoll::rehearse::record {

inline constexpr char kMagic[8] = {'P', 'L', 'I', 'M', 'R', 'E', 'C', '\n'};
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kByteOrder = 0x01020304;

struct FileHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t byte_order;
  std::uint32_t header_bytes;  ///< sizeof(FileHeader); events start there
  std::uint32_t process;       ///< process id
  std::uint64_t started_ns;    ///< nanoseconds since 1970 at the first event
};
static_assert(sizeof(FileHeader) == 32);

enum class Kind : std::uint8_t {
  none = 0,  ///< nothing was written here: the end of a record whose process was killed
  name,
  device,
  kernel,
  gemm,
  collective,
  communicator,
  copy,
  memset,
  event_record,
  stream_wait,
  stream_create,
  stream_destroy,
  synchronize,
  host_function,
  segment,
  mark,
  block,
  graph_begin,
  graph_end,
  graph_launch,
  library_call,
  unmodelled,
  end,
};

/// Flags of EventHeader::flags that hold for every kind of work.
inline constexpr std::uint16_t kCaptured = 1;  ///< went into the graph being captured on its stream, was not run

struct EventHeader {
  Kind kind;
  std::uint8_t device;  ///< the device the event is about
  std::uint16_t flags;
  std::uint32_t bytes;  ///< of the whole event, header and padding included: a multiple of 8
};
static_assert(sizeof(EventHeader) == 8);

/// An entry of the string table; `length` bytes of text follow (no terminating zero needed), padded with zeros.
struct Name {
  EventHeader header;
  std::uint32_t id;
  std::uint32_t length;
};

/// Before the first other event of each device that is used.
struct Device {
  EventHeader header;
  std::uint64_t memory_bytes;   ///< what the device reports as its total
  std::uint64_t context_bytes;  ///< of these, taken before the first allocation
  std::uint32_t name;
  std::uint32_t processors;  ///< SMs or CUs
  std::uint16_t major, minor;
  std::uint32_t lag;  ///< launches by which the device runs behind the host
};

inline constexpr std::uint16_t kCooperative = 2;

/// One launch. Arguments that its work can be told from may follow: each an Argument and its bytes, padded to eight.
struct Kernel {
  EventHeader header;  ///< flags: kCaptured, kCooperative
  std::uint32_t stream;
  std::uint32_t name;  ///< as the program registered it (mangled); 0 when it never did
  std::uint32_t grid[3];
  std::uint32_t block[3];
  std::uint32_t shared_bytes;  ///< dynamic
  std::uint32_t cluster;       ///< blocks of a cluster, 1 without
};
static_assert(sizeof(Kernel) == 48);

/// Before the bytes of an argument in a Kernel event's tail.
struct Argument {
  std::uint16_t parameter;  ///< of the kernel's signature, from 0
  std::uint16_t bytes;      ///< a structure's first ones; a number's or pointer's all
  std::uint32_t reserved;
};
static_assert(sizeof(Argument) == 8);

/// Element types, the same for BLAS and collectives.
enum class Type : std::uint8_t {
  unknown = 0,
  f64,
  f32,
  f16,
  bf16,
  f8_e4m3,  ///< and its fnuz variant on AMD
  f8_e5m2,
  f4_e2m1,
  f6_e2m3,
  f6_e3m2,
  f8_e8m0,
  i64,
  i32,
  i16,
  i8,
  i4,
  u64,
  u32,
  u16,
  u8,
  c64,  ///< two f32
  c128,
};

/// How products are formed and summed.
enum class Compute : std::uint8_t { unknown = 0, f16, f32, tf32, f32_from_bf16, f32_from_f16, f64, i32 };

/// D[m, n] = op(A)[m, k] op(B)[k, n] + C, column-major as BLAS has it; `batch` of them.
struct Gemm {
  EventHeader header;
  std::uint32_t stream;
  std::uint32_t api;  ///< name of the function called
  std::int64_t m, n, k;
  std::uint32_t batch;
  Type a, b, c, d;
  Compute compute;
  std::uint8_t transpose_a, transpose_b;  ///< 0 no, 1 transposed, 2 conjugated
  std::uint8_t row_major;                 ///< a cublasLt layout in row order (the whole of A, B, D)
  std::uint16_t epilogue;                 ///< cublasLtEpilogue_t, 1 for none
  std::uint16_t reserved;
  std::uint64_t workspace_bytes;
};
static_assert(sizeof(Gemm) == 64);

enum class Collective : std::uint8_t {
  all_reduce = 1,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  send,
  receive,
  all_to_all,
  gather,
  scatter,
  all_to_all_v,
};

struct CollectiveCall {
  EventHeader header;
  std::uint32_t stream;
  std::uint32_t communicator;
  std::uint64_t count;  ///< the call's own argument: per rank for all-gather, reduce-scatter and all-to-all, the whole buffer otherwise
  std::uint64_t bytes;  ///< count × size of an element
  std::int32_t peer;    ///< of send and receive; root of broadcast, reduce, gather, scatter; otherwise -1
  Collective op;
  Type type;
  std::uint8_t reduction;  ///< ncclRedOp_t: 0 sum, 1 product, 2 max, 3 min, 4 average
  std::uint8_t reserved;
  std::uint32_t group;  ///< calls between the same ncclGroupStart and ncclGroupEnd share a number; 0 outside
  std::uint32_t padding;
};
static_assert(sizeof(CollectiveCall) == 48);

enum class CommunicatorAction : std::uint8_t { init = 1, split, shrink, finalize, destroy, abort };

/// A communicator is made or ends. The size of a part that a split makes is unknown to one rank alone: `size` is then -1 and `rank` the key
/// (see plimsoll_rehearse_expect_split).
struct Communicator {
  EventHeader header;
  std::uint32_t id;
  std::uint32_t parent;  ///< of a split or shrunk one, else 0
  std::int32_t size;
  std::int32_t rank;
  std::int32_t color, key;  ///< of a split
  std::uint64_t unique_id;  ///< a hash of the ncclUniqueId
  CommunicatorAction action;
  std::uint8_t reserved[3];
  std::uint32_t name;  ///< config.commName, 0 without
};
static_assert(sizeof(Communicator) == 48);

enum class CopyKind : std::uint8_t { host_to_host = 0, host_to_device, device_to_host, device_to_device, peer };

inline constexpr std::uint16_t kPinned = 2;       ///< the host side is page-locked
inline constexpr std::uint16_t kSynchronous = 4;  ///< the host waits for it
inline constexpr std::uint16_t kValues = 8;       ///< the bytes were really copied (small copies are)

struct Copy {
  EventHeader header;  ///< flags: kCaptured, kPinned, kSynchronous, kValues
  std::uint32_t stream;
  CopyKind kind;
  std::uint8_t peer_device;  ///< destination of a peer copy
  std::uint16_t reserved;
  std::uint64_t bytes;
};

struct Memset {
  EventHeader header;  ///< flags: kCaptured
  std::uint32_t stream;
  std::uint32_t value;
  std::uint64_t bytes;
};

struct EventRecord {
  EventHeader header;  ///< flags: kCaptured
  std::uint32_t stream;
  std::uint32_t event;
};

/// What `stream` issues from here on waits for what `event` stood behind when it was last recorded.
struct StreamWait {
  EventHeader header;  ///< flags: kCaptured
  std::uint32_t stream;
  std::uint32_t event;
};

struct StreamCreate {
  EventHeader header;
  std::uint32_t stream;
  std::int32_t priority;
  std::uint32_t non_blocking;  ///< 1: does not order itself with the default stream
  std::uint32_t reserved;
};

struct StreamDestroy {
  EventHeader header;
  std::uint32_t stream;
  std::uint32_t reserved;
};

enum class Waits : std::uint8_t { for_stream = 1, for_event, for_device };

/// The host waits.
struct Synchronize {
  EventHeader header;
  Waits waits;
  std::uint8_t reserved[3];
  std::uint32_t target;   ///< number of the stream or event, 0 for the device
  std::uint64_t host_ns;  ///< since FileHeader::started_ns
};

struct HostFunction {
  EventHeader header;
  std::uint32_t stream;
  std::uint32_t reserved;
};

/// Memory of the device (or page-locked host memory) below any caching allocator.
enum class SegmentAction : std::uint8_t {
  allocate = 1,  ///< cudaMalloc and its like
  free,
  allocate_failed,  ///< out of memory: `bytes` asked, `used_bytes` in use then
  reserve,          ///< address space only (cuMemAddressReserve)
  unreserve,
  create,  ///< physical memory (cuMemCreate); `address` is the handle
  release,
  create_failed,
  map,
  unmap,
  host_allocate,  ///< page-locked host memory
  host_free,
  host_register,
  host_unregister,
  pool_allocate,  ///< stream-ordered (cudaMallocAsync)
  pool_free,
};

struct Segment {
  EventHeader header;
  SegmentAction action;
  std::uint8_t reserved[3];
  std::uint32_t stream;  ///< of stream-ordered calls
  std::uint64_t address;
  std::uint64_t bytes;       ///< as the device rounds them
  std::uint64_t used_bytes;  ///< of this device after the action, context included; of pinned host memory for the host's actions
};
static_assert(sizeof(Segment) == 40);

/// What the program's framework says about where it is (plimsoll_rehearse_mark).
/// A text mark of the device's own, once, where the program asked how much memory is free.
inline constexpr char kAskedForMemory[] = "asked for memory";

enum class MarkKind : std::uint8_t { step_begin = 1, step_end, phase_begin, phase_end, text, warning };

struct Mark {
  EventHeader header;
  MarkKind kind;
  std::uint8_t reserved[3];
  std::uint32_t text;     ///< the phase's name, or the text
  std::int64_t value;     ///< number of the step, or what the text is about
  std::uint64_t host_ns;  ///< since FileHeader::started_ns
};

/// One event of the framework's caching allocator (plimsoll_rehearse_block): PyTorch's trace entries by name.
enum class BlockAction : std::uint8_t {
  allocate = 1,
  free_requested,
  free_completed,
  segment_allocate,
  segment_free,
  segment_map,
  segment_unmap,
  out_of_memory,
  snapshot,
};

struct Block {
  EventHeader header;
  BlockAction action;
  std::uint8_t reserved[3];
  std::uint32_t stack;  ///< "file:line function" by lines, innermost first; 0 without
  std::uint32_t stream;
  std::uint32_t padding;
  std::uint64_t address;
  std::uint64_t bytes;
};

/// From here the work flagged kCaptured on `stream`, and on streams that wait for it, belongs to `graph`.
struct GraphBegin {
  EventHeader header;
  std::uint32_t stream;
  std::uint32_t graph;
};

struct GraphEnd {
  EventHeader header;
  std::uint32_t stream;
  std::uint32_t graph;
  std::uint64_t nodes;
};

/// All work captured into `graph` runs again on `stream`.
struct GraphLaunch {
  EventHeader header;
  std::uint32_t stream;
  std::uint32_t graph;
};

/// Work of a library whose kernels are not seen (cuDNN): `count` numbers that describe it follow, as `name` says ("cudnn.conv_forward
/// n c h w k r s").
struct LibraryCall {
  EventHeader header;
  std::uint32_t stream;
  std::uint32_t name;
  std::uint64_t workspace_bytes;
  std::uint32_t count;
  Type type;
  std::uint8_t reserved[3];
  // std::int64_t numbers[count];
};

/// The first call of an exported function that has no behaviour here: it returned success (or "not supported" where the interface has
/// it) and did nothing.
struct Unmodelled {
  EventHeader header;
  std::uint32_t name;
  std::uint32_t library;  ///< "libcublas.so.13"
};

/// The process ended by itself.
struct End {
  EventHeader header;
  std::uint64_t events;
  std::uint64_t host_ns;
};

}  // namespace plimsoll::rehearse::record
