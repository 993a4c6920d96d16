// The steady step of a run's ranks, played together and kept piece by piece: what a timeline shows.
#include <fmt/core.h>

#include <utility>

#include "estimate/played_time.hpp"
#include "estimate/rank_groups.hpp"
#include "estimate/rank_memory.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/explain.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/topology.hpp"

namespace plimsoll {
namespace {

using namespace estimation;

constexpr std::int64_t kMostPieces = 1'000'000;  ///< a trace of that many is 150 MB, about what viewers take

void refuse_too_many(std::int64_t pieces) {
  if (pieces > kMostPieces)
    fail(fmt::format("the timeline would have {} pieces of work, and may have {}", pieces, kMostPieces), {},
         "a step of fewer micro-batches shows the same: --global-batch, --grad-accum");
}

}  // namespace

Pricing pricing_of_run(const Model& model, const Cluster& cluster, const Strategy& said) {
  const Strategy strategy = resolve(said, model, cluster);
  return run_pricing(cluster, strategy, group_shapes(strategy, Topology(cluster)));
}

std::vector<RankTimeline> rank_timelines(const Model& model, const Cluster& cluster, const Strategy& said) {
  const Strategy strategy = resolve(said, model, cluster);
  RankPrograms programs(model, strategy, cluster);
  PlayedTime time(run_pricing(cluster, strategy, group_shapes(strategy, Topology(cluster))));
  std::vector<RankTimeline> ranks;
  for (int stage = 0; stage < strategy.pp; ++stage) {
    StepProgram program = programs.of_stage(stage);
    time.add(stage, program);
    refuse_too_many(time.pieces());
    RankTimeline rank;
    rank.stage = stage;
    rank.count = strategy.gpus / strategy.pp;
    rank.rank = {std::move(program), {}, rank_groups(strategy)};
    rank.rank.options = play_options(rank.rank.program, model, cluster, strategy);
    ranks.push_back(std::move(rank));
  }
  std::vector<Timeline> timelines = time.timelines();
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i].timeline = std::move(timelines[i]);
  return ranks;
}

}  // namespace plimsoll
