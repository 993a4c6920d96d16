/// A training program that ran on the stand-in device (`plimsoll rehearse`), read back from its record: what its framework's own allocator
/// reached, what it launched, and its step as a StepProgram that is priced and played as any other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plimsoll/estimate.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/play.hpp"
#include "plimsoll/program.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll {

/// A communicator that the program made, in order of creation.
struct RecordedGroup {
  std::int64_t size = 1, rank = 0;
  std::vector<std::int64_t> ranks;  ///< global ranks of its members; empty where the program did not say
  Group group = Group::world;       ///< what it is taken to be: from its members and its collectives
};

/// Who a collective joins: its communicator, by which ranks that ran together find each other.
struct RecordedMeeting {
  std::uint64_t communicator = 0;  ///< the same in all its members
  std::int64_t size = 1, rank = 0;
  std::int64_t peer = -1;  ///< of a send or receive: the other's rank in it
};

/// Collectives of one kind, of one step.
struct RecordedCollectives {
  CollectiveKind kind;
  std::int64_t calls = 0;
  std::int64_t bytes_argument = 0;  ///< count × element size of the calls: a rank's share for all-gather and reduce-scatter
};

/// One step: from the first pass after an optimizer step to the next.
struct RecordedStep {
  Bytes peak_allocated, peak_reserved;  ///< of the framework's allocator within the step
  Bytes allocated, reserved;            ///< at its end
  StepWork work;                        ///< as bench/corpus/allocator-launches.json counts
  std::vector<RecordedCollectives> collectives;
  std::int64_t copies = 0, host_waits = 0;
};

/// What a program does beside its training: set-up, passes without gradients, saving.
struct RecordedActivity {
  std::string name;
  Bytes peak_allocated, peak_reserved;
};

/// The allocation that failed.
struct RecordedOutOfMemory {
  int device = 0;  ///< the process's number of it
  Bytes requested, allocated, reserved;
  std::vector<std::string> stack;  ///< "file:line function", innermost last
};

/// How often something happened that the reader should know of.
struct RecordedRemark {
  std::string what;
  std::int64_t times = 1;
};

/// One rank's run.
struct Recording {
  std::string path;
  std::int64_t rank = 0, world = 1;
  std::vector<int> devices;   ///< that its allocator's blocks lie on, and the one that an allocation failed on
  std::optional<int> device;  ///< the one of several whose memory this tells; the work is that of all
  std::vector<bool> elsewhere;            ///< by stream of the program: it is another device's
  StepProgram program;                    ///< init, all steps but the last as first_step, the last as step
  std::vector<std::string> kernel_names;  ///< by index of program.kernels
  std::vector<bool> bytes_known;          ///< likewise: whether the kernel's traffic could be told from its name and grid
  std::vector<RecordedStep> steps;        ///< complete ones
  std::vector<RecordedActivity> activities;  ///< in the order in which they first began
  std::vector<std::string> left_out;         ///< of the host's work: no time of it is in the step
  std::vector<RecordedGroup> groups;
  std::vector<RecordedMeeting> meetings;     ///< by index of program.collectives
  bool has_blocks = false;       ///< the framework's allocator was recorded; else its bytes are unknown and zero
  Bytes init_peak_allocated;     ///< before the first step
  Bytes segments_peak;           ///< device memory that all allocators together held at most, context included
  Bytes device_memory, context;  ///< of the stand-in
  std::string model;             ///< class of the module that ran first; empty when the program did not say
  std::int64_t parameters = 0;   ///< of the module that ran first, whole tensors; 0 when the program did not say
  bool needs_peers = false;      ///< it waited for objects that only other ranks, really running, could tell
  std::int64_t tokens = 0;       ///< that the rank's model read in the last step; 0 when the program did not say
  std::int64_t launches = 0;     ///< kernels of the whole run
  std::int64_t steps_told = 0;   ///< that the program's optimizers took, by its helpers; more than `steps` where not all are in the record
  std::optional<std::vector<std::int64_t>> step_ends;  ///< which of the record's boundaries end steps; all where nobody said
  bool ended = false;                                  ///< the process ended by itself
  std::string ended_because;
  std::string error;  ///< the exception that ended the program, empty without
  std::vector<std::string> error_stack;
  std::optional<RecordedOutOfMemory> out_of_memory;
  std::vector<std::pair<std::string, std::string>> versions;
  std::vector<RecordedRemark> replaced, read, notes, unmodelled;
  std::int64_t events = 0, bytes = 0;  ///< of the record

  /// Largest of the steps after the first (of the first where it is the only one).
  Bytes peak_allocated() const;
  Bytes peak_reserved() const;  ///< of all steps and what was before them
  Bytes peak_reserved_before;   ///< before the first step
};

/// Reads a record; `summary_path` names what its process's helpers wrote down last, for a record that has no summary of its own because the
/// process was killed. Throws Error: missing, or damaged (with the byte).
Recording read_recording(const std::string& path, const std::string& summary_path = {});

/// The same, once for each of the process's devices where it has several: each with its own memory, and the work of all.
std::vector<Recording> read_devices(const std::string& path, const std::string& summary_path = {});

/// What the program's helpers wrote down at its end, without a record: how it ended, and what it read. Throws Error: unreadable, damaged.
Recording read_summary(const std::string& path);

/// Kernels, collectives and copies of the last step of one name, dearest first.
struct KernelTime {
  std::string name;
  KernelKind kind = KernelKind::elementwise;
  bool collective = false, copy = false;
  std::int64_t calls = 0;
  Seconds seconds;  ///< of all calls
  double flops = 0;
  bool bytes_known = true;
};

/// What the ranks of one program say about a cluster.
struct Rehearsal {
  Report report;
  std::vector<Recording> recordings;  ///< in the order of report.ranks
  std::vector<Timeline> timelines;    ///< likewise; without steps where the rank never finished one
  std::vector<std::vector<KernelTime>> kernels;
};

/// Prices and plays the recordings on the cluster. The verdict is what happened: a rank that ran out of memory does not fit. Throws Error
/// when there is no recording, or a group that does not lie on the cluster.
Rehearsal rehearsal_of(std::vector<Recording> recordings, const Cluster& cluster);

/// The pricing of a recording's collectives and kernels on a cluster.
Pricing pricing_of(const Recording& recording, const Cluster& cluster);

// ---- the lowered program and the recorded one, side by side ------------------------------------------------------------------

/// One quantity of both programs.
struct ProgramDifference {
  std::string what;  ///< "gemm 4096 x 8192 x 4096 bf16, calls"
  double lowered = 0, recorded = 0;
  double weight = 0;  ///< share of the step that it stands for: what differences are sorted by
};

struct ProgramComparison {
  std::vector<std::pair<std::string, std::pair<double, double>>> totals;  ///< name, lowered, recorded
  std::vector<ProgramDifference> differences;                             ///< of multisets: shapes, sizes, calls; largest first
  std::int64_t first_difference = -1;                                     ///< index of the first matrix product that differs, -1: none
  std::string first_lowered, first_recorded;                              ///< that product in both, with its label
};

ProgramComparison compare_programs(const StepProgram& lowered, const Recording& recorded);

// ---- models by their names on the hub -----------------------------------------------------------------------------------------

/// The config.json of a shipped model.
struct HubConfig {
  std::string model;  ///< its name here: "llama-3.1-8b"
  std::string text;
};

/// The shipped model that a name on Hugging Face's hub means ("meta-llama/Llama-3.1-8B-Instruct"): instruction-tuned and converted variants
/// have the shape of the model they come from. Empty where none is shipped.
std::optional<HubConfig> hub_config(const std::string& name);

// ---- command lines ------------------------------------------------------------------------------------------------------------

/// What a launcher's line would have started, once per rank.
struct LaunchLine {
  std::vector<std::string> command;                              ///< program and arguments of one process
  std::vector<std::pair<std::string, std::string>> environment;  ///< what the launcher sets for every process
  std::string launcher;                                          ///< "torchrun", "accelerate", "deepspeed", "mpirun", or empty
  std::int64_t processes_per_node = 0, nodes = 0;                ///< 0: the line does not say
  bool every_device = false;                                     ///< one process for each device of the machines: what the launcher takes
  bool rank_argument = false;                                    ///< deepspeed: --local_rank=R goes behind the script

  std::int64_t world() const { return processes_per_node > 0 ? processes_per_node * (nodes > 0 ? nodes : 1) : 0; }
};

/// Understands torchrun, python -m torch.distributed.run, accelerate launch (and the file that its --config_file names), deepspeed and
/// mpirun; anything else is the program itself. Throws Error: no program in it, a count that is no number, a file that is not there.
LaunchLine parse_launch_line(const std::vector<std::string>& words);

}  // namespace plimsoll
