/// Playing time: pipeline schedules as events, overlap of communication with computation, and a step program on its streams.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plimsoll/cost.hpp"
#include "plimsoll/program.hpp"
#include "plimsoll/schedule.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll {

// ---- pipeline ------------------------------------------------------------------------------------------------------

/// Durations of the passes of one model stage. `backward` is a whole backward pass; 0 of the halves: half of it each.
struct StageTimes {
  Seconds forward, backward;
  Seconds input_gradient, weight_gradient;
};

struct PipelineTimes {
  std::vector<StageTimes> stages;  ///< one per model stage (Schedule::model_stages), or one for all
  Seconds point_to_point;          ///< added to a dependency on another rank
  Seconds overlapped_pair;         ///< DualPipe: a forward together with a backward; 0: their sum
};

/// One slot as it was played.
struct PlayedSlot {
  Slot slot;
  Seconds start, end;
};

struct PipelineTimeline {
  Seconds makespan;        ///< latest end − earliest start
  Seconds span;            ///< the longest of any rank's own end − start
  Seconds ideal;           ///< work of the busiest rank
  double bubble_fraction;  ///< 1 − ideal / makespan
  std::vector<std::vector<PlayedSlot>> ranks;
  std::vector<Seconds> busy;  ///< work per rank
};

/// Plays every rank's list: start = max(end of the rank's previous slot, end of every dependency + point-to-point when it is on
/// another rank). F(s) needs F(s−1); B and I of s need F(s) and B or I of s+1; W needs I. Throws Error on a deadlocked schedule.
PipelineTimeline play_pipeline(const Schedule& schedule, const PipelineTimes& times);

/// Closed forms for equal stages (Narayanan 2021, Qi 2023): idle share of the makespan.
double bubble_fraction(int stages, int micro_batches, int chunks = 1);

// ---- overlap -------------------------------------------------------------------------------------------------------

/// DDP: buckets become ready at `ready` and are reduced one after the other; the end of the last reduction.
Seconds ddp_end(const std::vector<Seconds>& ready, const std::vector<Seconds>& reduce);

/// One FSDP unit: its computation, all-gather and reduce-scatter.
struct FsdpUnit {
  Seconds compute, all_gather, reduce_scatter;
};
/// FSDP2's forward: the all-gather of unit i+1 runs under unit i; buffers of two units are alive.
Seconds fsdp_forward(const std::vector<FsdpUnit>& units);
/// FSDP2's backward, units in forward order: all-gathers and reduce-scatters share one in-order queue.
Seconds fsdp_backward(const std::vector<FsdpUnit>& units);
/// The part of a communication that computation does not cover.
Seconds exposed(Seconds communication, Seconds cover);

// ---- a step program ------------------------------------------------------------------------------------------------

inline constexpr int kGroups = 8;

/// What prices the work of a program.
struct Pricing {
  Cluster cluster;
  std::array<GroupShape, kGroups> groups;  ///< by Group
  double compute_slowdown = 1.0;           ///< of kernels while a collective is running
  double communication_slowdown = 1.0;     ///< of collectives while a kernel is running
  Seconds host_per_launch;                 ///< host time per kernel, collective or copy; 0: the host is never late
};

/// One instruction that took time.
struct Event {
  std::uint32_t instruction;  ///< index in StepProgram::step
  StreamId stream;
  Seconds start, end;
};

/// The reading of time of one step.
struct Timeline {
  Seconds step;           ///< last end of any stream
  Seconds compute;        ///< busy time of the compute stream
  Seconds communication;  ///< sum of all collectives
  Seconds copies;
  Seconds exposed_communication;  ///< time when the compute stream waits and a collective runs
  Seconds exposed_copies;
  Seconds idle;                           ///< the compute stream does nothing, and nothing runs elsewhere
  std::array<Seconds, kKernelKinds> by_kernel;  ///< compute by KernelKind
  std::array<Seconds, kGroups> by_group;  ///< collectives by Group
  std::vector<Event> events;
};

/// Plays `program.step` once on its streams. A wait holds its stream until what lies before the event is done.
Timeline play_time(const StepProgram& program, const Pricing& pricing);

}  // namespace plimsoll
