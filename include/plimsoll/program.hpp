/// One training step of one rank, as a program: an ordered list of instructions on streams.
///
/// Memory and time are two readings of the same program. The allocator (memory.hpp) plays the allocations and frees; the
/// player (play.hpp) gives every kernel, collective and copy a duration. Totals are never stored: each is a reading.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/dtype.hpp"
#include "plimsoll/kernel.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll {

/// What a tensor is for; the categories of a memory report.
enum class Category : std::uint8_t {
  parameter,
  gradient,
  optimizer_state,
  activation,             ///< saved by the forward pass for the backward pass
  temporary,              ///< dies within the operator or the pass that made it
  communication_buffer,   ///< gathered parameters, reduce buckets, receive buffers
  workspace,              ///< BLAS and attention scratch that the framework's allocator gives
  input,                  ///< token ids, labels, images
};
inline constexpr int kCategories = 8;
std::string_view name_of(Category category);

/// Streams of a rank. Memory freed in one stream's pool is never reused by another stream.
using StreamId = std::uint16_t;
inline constexpr StreamId kComputeStream = 0;

using TensorId = std::uint32_t;
using EventId = std::uint32_t;

enum class InstructionKind : std::uint8_t {
  alloc,        ///< tensor `id` of `bytes` comes to life in the pool of `stream`
  free,         ///< tensor `id` dies
  kernel,       ///< work[index of kernels]
  collective,   ///< work[index of collectives]
  copy,         ///< work[index of copies]
  record_event, ///< event `id` is now behind everything issued so far on `stream`
  wait_event,   ///< what is issued on `stream` from here on waits for what event `id` was last recorded behind
  record_stream,///< tensor `id` is also used on `stream`: its free is delayed until that stream gets there
  empty_cache,  ///< the framework gives its cached segments back (torch.cuda.empty_cache)
  phase,        ///< `id` = Phase: where in the step we are
  stall,        ///< the device waits for a late peer, the host does not: nothing is done before the host next waits for the device
  synchronize,  ///< the host waits until the device has done all that was issued; `id` 1: all that was issued on `stream`
  host,         ///< the host itself works: `bytes` pieces of HostWork `id`
};

/// What a host does to issue a step, as far as it takes its time; what a piece takes is the framework's and the machine's.
enum class HostWork : std::uint8_t {
  module,           ///< a call of a Python module, its hooks aside
  operation,        ///< an operator, with what autograd notes of it
  cast,             ///< autocast's cast of an argument
  backward_node,    ///< a node that the autograd engine runs
  python_function,  ///< a torch.autograd.Function, either way
  accumulate,       ///< a leaf's gradient arrives
  checkpoint,       ///< a checkpointed region: its entry, and its second run
  saved_hook,       ///< a saved tensor is packed or unpacked by a hook
  unit,             ///< a sharded unit's hooks around one pass (FSDP): flat buffers, views, events
  collective,       ///< a collective of torch.distributed
  optimizer,        ///< a call of step or of zero_grad
  optimizer_tensor, ///< a tensor of a foreach or fused step
  compiled_call,    ///< a compiled function of a few operators is entered: guards, arguments
  compiled_layer,   ///< the same of a whole layer's graph, with all its weights
  memory_traffic,   ///< bytes that an optimizer on the host reads and writes
  zero_module,      ///< ZeRO-3's hooks in front of and behind one pass of a module, whether it has parameters or not
  zero_gather,      ///< parameters that ZeRO-3 gathers at once, their collective aside
  zero_parameter,   ///< one of them, from its part of that to where it is given back
};
inline constexpr std::size_t kHostWorks = 18;
std::string_view name_of(HostWork work);

/// Phases of a step, for attribution of the peak.
/// `rollout`: an engine beside the trainer writes what is learnt of afterwards; `scoring`: passes without gradients over that;
/// `encoding`: frozen encoders make what is learnt of.
enum class Phase : std::uint8_t { init, forward, loss, backward, optimizer, end, rollout, scoring, encoding };
inline constexpr std::size_t kPhases = 9;
std::string_view name_of(Phase phase);

struct Instruction {
  InstructionKind kind;
  StreamId stream = kComputeStream;
  Category category = Category::temporary;  ///< of alloc
  std::uint32_t id = 0;                     ///< tensor, index of the work, stream or phase: see InstructionKind
  std::int64_t bytes = 0;                   ///< of alloc: requested bytes, before the allocator's rounding
  std::uint32_t label = 0;                  ///< index in StepProgram::labels: who did this ("layers.7.mlp.down_proj")
  bool again = false;                       ///< of work: a checkpointed region runs a second time
};

enum class CollectiveKind : std::uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send, receive };
std::string_view name_of(CollectiveKind kind);

/// The process groups of a rank.
enum class Group : std::uint8_t { world, data_shard, data_replicate, tensor, pipeline, context, expert, expert_data };
std::string_view name_of(Group group);

struct Collective {
  CollectiveKind kind;
  Group group;
  std::int64_t bytes = 0;  ///< of the full buffer: all-gather output, reduce-scatter input, all-reduce buffer
  DType type = DType::bf16;
  std::int32_t peer = kNoPeer;  ///< of send and receive: the other's rank in the group; kNoPeer: a neighbour in a ring
  bool expected = false;        ///< products beside it leave it the compute units that it holds: user buffers, symmetric memory

  static constexpr std::int32_t kNoPeer = -1;
  bool operator==(const Collective&) const = default;
};

struct Copy {
  enum class Direction : std::uint8_t {
    host_to_device,
    device_to_host,
    device_to_device,
    set,  ///< a memory set
  } direction;
  std::int64_t bytes = 0;
  bool operator==(const Copy&) const = default;
};

/// A stretch of a step that is written once and run `times` times, each leaving the allocator as it found it: a pipeline's steady
/// micro-batches. Nothing is repeated where it is empty.
struct Repeated {
  std::size_t begin = 0, end = 0;  ///< instructions of StepProgram::step
  std::int64_t times = 1;

  /// How often a step runs its instruction `at`.
  std::int64_t runs_of(std::size_t at) const { return begin <= at && at < end ? times : 1; }
};

/// The program of one rank. `init` runs once; `first_step` where it differs from the steady state (lazily created
/// optimizer states), `second_step` where something happens once at its end (the buckets of a static graph); `step` is every
/// later step. Tensors allocated in one part may be freed in another.
struct StepProgram {
  std::vector<Instruction> init, first_step, second_step, step;
  Repeated repeated;
  std::vector<Kernel> kernels;  ///< distinct ones
  std::vector<Collective> collectives;
  std::vector<Copy> copies;
  std::vector<std::string> labels{""};
  std::vector<std::string> streams{"compute"};
  Bytes host_pinned;        ///< pinned host memory requested (offload)
  Bytes host_pageable;      ///< other host memory of the plan
};

}  // namespace plimsoll
