/// Traces of real training runs: read into kernels that say what they are (kernel.hpp), and held against the program that plimsoll predicts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/kernel.hpp"
#include "plimsoll/play.hpp"
#include "plimsoll/program.hpp"

namespace plimsoll {

// ---- what a trace holds ------------------------------------------------------------------------------------------------

/// The device that a trace was recorded on, as far as it says. Empty and 0: unknown.
struct TracedDevice {
  std::string name;  ///< "NVIDIA H100 80GB HBM3"
  bool amd = false;
  int major = 0, minor = 0;  ///< compute capability, or the gfx version's first two numbers
  int compute_units = 0;
  std::int64_t memory_bytes = 0;
};

/// One piece of work of a device.
struct TracedWork {
  enum class Kind : std::uint8_t { kernel, collective, copy };
  Kind kind = Kind::kernel;
  bool shaped = false;          ///< of a kernel: everything about it is known, from the operator's shapes or from its name
  std::uint32_t id = 0;         ///< index of Trace::kernels, collectives or copies
  std::uint32_t name = 0;       ///< of Trace::names: the kernel's own
  std::uint32_t operation = 0;  ///< of Trace::operations: the framework's operator that launched it; 0: unknown
  std::uint32_t stream = 0;
  double start = 0, seconds = 0;  ///< start: since the first event
};

/// A collective as its kernel and its call tell it.
struct TracedCollective {
  Collective what;        ///< of the full buffer; its group is not told
  std::int64_t ranks = 0; ///< of the group; 0: unknown
  std::int64_t nodes = 0; ///< on which these are, as eight to a node; 0: unknown

  bool operator==(const TracedCollective&) const = default;
};

/// A step that the program marked (ProfilerStep#7, or the end of Optimizer.step), or the whole trace.
struct TracedStep {
  std::string name;
  double host_start = 0, host_end = 0;  ///< 0, 0: the host was not recorded
  std::size_t begin = 0, end = 0;       ///< of Trace::work
};

/// One device's work, in order of its start.
struct Trace {
  std::string path;
  TracedDevice device;
  std::int64_t rank = -1, world = 0;  ///< −1, 0: not told
  bool shapes = false;                ///< operators were recorded with the shapes of their inputs
  std::vector<std::string> names{""}, operations{""};
  std::vector<Kernel> kernels;  ///< distinct ones
  std::vector<TracedCollective> collectives;
  std::vector<Copy> copies;
  std::vector<TracedWork> work;
  std::vector<TracedStep> steps;  ///< at least one
  std::vector<std::string> notes; ///< what was left out or not told
};

/// Reads a Chrome trace of torch.profiler (Kineto), plain or gzipped, the SQLite export of Nsight Systems, or the kernels' CSV of rocprofv3
/// (with the copies and markers that lie beside it under the same name), in one pass and bounded memory. The file's content says which it is.
/// Throws Error with the place: no trace, cut off, events without time or with clocks that run backwards, no kernels.
Trace read_trace(const std::string& path);

// ---- a program beside a trace ------------------------------------------------------------------------------------------

/// One class of work in a step.
struct TraceLine {
  std::string what;  ///< "gemm", "elementwise", …, "collectives", "copies and sets"
  std::int64_t predicted_count = 0, measured_count = 0;
  double predicted = 0, measured = 0;  ///< seconds
};

/// Kernels of one side that the other lacks, or a pair whose times differ: equal ones together.
struct TraceDifference {
  enum class Kind : std::uint8_t { missing, extra, time };  ///< missing: in the trace alone; extra: in the program alone
  Kind kind = Kind::time;
  std::string what, where;  ///< the kernel; the operator or layer that runs it
  std::int64_t count = 0;
  double predicted = 0, measured = 0;  ///< seconds of all of them
};

struct TraceComparison {
  std::string step;                     ///< which of the trace's
  std::vector<TraceLine> classes, layers;
  std::vector<TraceDifference> differences;  ///< dearest first
  std::int64_t matched = 0;                  ///< kernels that stand on both sides
  double predicted_busy = 0, measured_busy = 0;  ///< seconds in which the device works
  double predicted_step = 0, measured_step = 0;
  double measured_gaps = 0;                      ///< of the step without work; profilers slow the host, so this is at most
  std::vector<std::string> notes;
};

/// Aligns the kernels of a step of the program with those of a step of the trace (the median one by its time), in order.
TraceComparison compare_trace(const StepProgram& program, const Pricing& pricing, const Trace& trace);
std::string to_text(const TraceComparison& comparison, std::size_t most = 20);
/// One object "plimsoll/compare-trace/1" (docs/calibrate.md), with all rows of all tables.
std::string to_json(const TraceComparison& comparison);

}  // namespace plimsoll
