/// Why a rank needs the memory and the time that it needs: the instant of the peak, what is alive there, and what would lower either most.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plimsoll/estimate.hpp"
#include "plimsoll/memory.hpp"
#include "plimsoll/play.hpp"
#include "plimsoll/topology.hpp"

namespace plimsoll {

/// Tensors alive at the peak that differ only in which layer made them.
struct PeakGroup {
  Category category;
  std::string module;     ///< "model.layers.0-31.mlp.down_proj": numbers of the path as ranges
  std::string operation;  ///< the operator that made them; empty where the module itself did
  std::int64_t count = 0;
  Bytes bytes;    ///< of all together, as the allocator rounds them
  Bytes largest;  ///< of one; count × largest where all are equal
};

/// One change of the strategy, everything else as it was said.
struct Change {
  std::string flag;                ///< as on the command line: "--recompute full"
  Bytes saved;                     ///< device bytes of the explained rank, expected; negative where it takes more
  Bytes device;                    ///< what is needed with it
  Verdict verdict;                 ///< of the run with it
  std::optional<double> slowdown;  ///< time of a sequence with it over that without, both read the same way; empty where they cannot be
  bool fewer_bits = false;         ///< numbers are held or multiplied in fewer bits with it: the run's results change
  bool larger_batch = false;       ///< a step has more sequences with it: the run's results change
  std::vector<std::pair<std::string, std::string>> options = {};  ///< the same as `flag`, as set_options takes them
  std::vector<std::string> said = {};  ///< the same as the files of the run would say it (ProgramWords); empty: it came from none, or they cannot
};

/// The collectives of a step that are of one kind, in one group and of one type.
struct DearCollective {
  std::string what;           ///< "reduce-scatter of fp32 gradients over 16 GPUs of 2 nodes"
  std::int64_t launches = 0;  ///< of the explained rank, in a step
  Bytes bytes;                ///< of the full buffers, all together
  Seconds seconds, exposed;   ///< of all of them; while nothing else of the step ran beside them
};

/// A change that cannot be compared, and why.
struct Incomparable {
  std::string flag, reason;
};

struct Explanation {
  Report report;
  std::size_t rank = 0;                    ///< the explained one, index in report.ranks
  std::vector<PeakGroup> alive;            ///< largest first; empty where the rank has no program
  std::vector<Change> changes;             ///< those that save memory, the largest saving first
  std::vector<Change> faster;              ///< those that make a sequence take less, the fastest first
  std::vector<std::string> causes;         ///< what the step's time is, beside its kernels: sentences, the largest first
  std::vector<DearCollective> collectives; ///< those of a thousandth of the step or more, the longest first; none where it was not played
  std::vector<Incomparable> incomparable;  ///< played against closed form: their difference would be that of two methods

  const RankReport& explained() const { return report.ranks[rank]; }
};

/// Explains a rank of pipeline stage `stage`; empty: of the one with the least margin. Throws Error as estimate does, and for a stage
/// that does not exist.
Explanation explain(const Model& model, const Cluster& cluster, const Strategy& strategy, std::optional<std::int64_t> stage = {});

/// The change with which a run that does not fit would: of those that do, the one that costs least time; where none is enough, of pairs and
/// threes of them (which that need not save most). Numbers are held in fewer bits only where nothing else helps. Its flags can be
/// appended to the command line as they stand. Empty where nothing that was tried makes it fit. Only changes that `can_be_said` accepts
/// are tried; without it, all.
std::optional<Change> fitting_change(const Model& model, const Cluster& cluster, const Strategy& strategy, const std::function<bool(const Change&)>& can_be_said = {});

/// What of a run's communication could run beside its compute and does not: settings that nobody said, one on another as long as each makes
/// the step shorter and the run still fits. Its flags can be appended to the command line; what it saves is of the ranks with the least margin. Empty
/// where none helps. `report`: of the run without. Throws Error as estimate does.
std::optional<Change> overlapping_change(const Model& model, const Cluster& cluster, const Strategy& strategy, const Report& report);

/// Gathers tensors by category, module without its layer numbers, and operator; largest first.
std::vector<PeakGroup> group_alive(const std::vector<LiveTensor>& alive);

/// The program of a rank and what plays it as estimate does, without a limit where it does not fit.
struct PlayableRank {
  StepProgram program;
  PlayMemoryOptions options;
  std::array<RankGroup, kGroups> groups;  ///< of rank 0, by Group: where its process groups lie among all ranks
};
/// Of a rank of that stage. Throws Error(refused) with the reason where there is no lowering.
PlayableRank playable_rank(const Model& model, const Cluster& cluster, const Strategy& strategy, std::int64_t stage);

/// What prices the programs of that run's ranks, as estimate does. Throws Error where the three contradict each other.
Pricing pricing_of_run(const Model& model, const Cluster& cluster, const Strategy& strategy);

/// The ranks of a pipeline stage, and their steady step in time with every piece of work.
struct RankTimeline {
  std::int64_t stage = 0;
  std::int64_t count = 1;  ///< ranks alike
  PlayableRank rank;
  Timeline timeline;
};
/// Of every stage, played together, in order. Throws Error as estimate does, refused where a stage has no lowering, and for steps of more
/// than a million pieces of work.
std::vector<RankTimeline> rank_timelines(const Model& model, const Cluster& cluster, const Strategy& strategy);

}  // namespace plimsoll
