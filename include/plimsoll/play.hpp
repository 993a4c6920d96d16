/// Playing time: pipeline schedules as events, and a step program on its streams.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
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

// ---- programs ------------------------------------------------------------------------------------------------------

inline constexpr std::size_t kGroups = 8;

/// What a host takes to issue a step. All zero: it is never late.
struct HostPace {
  std::array<Seconds, kHostWorks> work{};  ///< of a piece, by HostWork; of the bytes of HostWork::memory_traffic: a byte
  Seconds launch;                          ///< of each kernel, copy and memory set
  Seconds wakes;                           ///< from the end of what it waited for to its next work
  std::int64_t queue = 1024;               ///< launches that may lie between what it issues and what the device runs
};

/// What prices and plays the work of a program.
struct Pricing {
  Cluster cluster;
  std::array<GroupShape, kGroups> groups;  ///< by Group
  double product_slowdown = 1.0;           ///< of products and attention while a collective holds compute units
  double memory_slowdown = 1.0;            ///< of other kernels while a collective is running
  double communication_slowdown = 1.0;     ///< of collectives on streams of their own: kernels run beside them
  double pace = 1.0;                       ///< time of products and attention on the slowest of the run's devices over that of a usual one
  Seconds gap;                             ///< between two pieces of work of one stream
  HostPace host;
  std::vector<std::string> replayed;       ///< CUDA graphs replay what has one of these in its label: the host issues nothing of it
  double second_wave = 0;                  ///< share of a product's time that its last blocks take where a collective held their units
  bool blocking = false;                   ///< the host waits for each launch to end
  std::array<Seconds, kGroups> meeting{};  ///< host's time at each collective, send and receive of a group whose hosts wait for each other
};

/// The pricing of a framework's run ("transformers", "megatron_te" … as name_of(ModelCode) says; its host's pace stands in
/// hardware/hosts.json, "all" for those that are not there).
Pricing pricing_of(const Cluster& cluster, const std::array<GroupShape, kGroups>& groups, std::string_view framework);

/// One instruction that took time.
struct Event {
  std::uint32_t instruction;  ///< index in StepProgram::step
  StreamId stream;
  Seconds start, end;
};

/// All launches of a step that are the same kernel.
struct KernelShare {
  Kernel kernel;
  std::string label;          ///< who launches it first
  std::int64_t launches = 0;  ///< in a step
  Seconds seconds;            ///< of all of them
};

/// The reading of time of one rank's steady step. The parts are what its compute stream did or waited for; they add up to `step`.
struct Timeline {
  Seconds step;  ///< from the end of one step to the end of the next

  Seconds compute;                       ///< kernels of forward and backward passes
  Seconds recompute;                     ///< those that checkpoints run again
  Seconds optimizer;                     ///< kernels of the optimizer's phase
  std::array<Seconds, kGroups> exposed;  ///< collectives that it ran or waited for, by Group
  Seconds transfers;                     ///< sends and receives themselves
  Seconds bubble;                        ///< waits for what another pipeline rank has not sent yet, or for the slowest rank
  Seconds exposed_copies;
  Seconds host;            ///< nothing was issued yet
  Seconds host_optimizer;  ///< the host itself computed

  Seconds communication;                        ///< sum of all collectives, hidden or not
  Seconds copies;                               ///< sum of all copies
  std::array<Seconds, kKernelKinds> by_kernel;  ///< kernels by KernelKind
  std::array<Seconds, kGroups> by_group;        ///< collectives by Group
  double power = 1;                             ///< board powers that the step draws on average, at most one
  std::vector<KernelShare> dearest;             ///< the kernels that take longest, first
  std::vector<Event> events;                    ///< of the step, where they were asked for

  Seconds exposed_communication() const;
  /// The sum of all parts.
  Seconds sum() const;
};

/// A program with the time of all its work: what is left of it to be played.
class Score {
 public:
  Score();
  ~Score();
  Score(Score&&) noexcept;
  Score& operator=(Score&&) noexcept;

  /// Kernels, copies, collectives and what the host does between them, of a whole step.
  std::int64_t pieces() const;
  /// Its sends and receives find their neighbours ready.
  void stand_alone();

  struct Parts;
  const Parts& parts() const { return *parts_; }

 private:
  friend class Pricer;
  std::unique_ptr<Parts> parts_;
};

/// Prices programs of one run; equal work is priced once however many ranks do it.
class Pricer {
 public:
  explicit Pricer(Pricing pricing);
  ~Pricer();
  Pricer(const Pricer&) = delete;
  Pricer& operator=(const Pricer&) = delete;

  /// Throws Error: work that the device, or the network, has no price for (refused by name); streams and work that are not there.
  Score score(const StepProgram& program);
  const Pricing& pricing() const;
  /// What kernels are priced among; known once a program was.
  Surroundings around() const;

 private:
  struct Tables;
  std::unique_ptr<Tables> tables_;
};

/// Plays the ranks of a pipeline together: every stream is a queue in the order of issue, an event holds who waits for it, a receive and
/// its send end together, and collectives of all ranks begin when the last one comes. Steps are played until one follows another as it will
/// from then on. `ranks` are in the order of their place in the pipeline. Throws Error (internal) where sends and receives do not match.
std::vector<Timeline> play_ranks(const std::vector<Score>& ranks, const Pricing& pricing, bool with_events = false);

/// One rank alone: its neighbours are never late.
Timeline play_time(const StepProgram& program, const Pricing& pricing, bool with_events = true);

}  // namespace plimsoll
