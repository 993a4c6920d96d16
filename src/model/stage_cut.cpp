// Where a pipeline cuts the chain of layers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "plimsoll/error.hpp"
#include "plimsoll/flops.hpp"
#include "plimsoll/layer_graph.hpp"

namespace plimsoll {
namespace {

constexpr double kRounding = 1e-12;  // relative error of the sums of costs

// The chain cut greedily: every stage takes layers while its cost stays within `bound`. Layers are taken from runs by division, not one by
// one.
class GreedyCut {
 public:
  GreedyCut(const std::vector<LayerRun>& chain, std::int64_t stages, double first_cost, double last_cost)
      : chain_(chain), stages_(stages), first_cost_(first_cost), last_cost_(last_cost) {
    for (const LayerRun& run : chain) total_ += run.count;
  }

  // Layers per stage, or nothing when `bound` is too small for the stages there are.
  std::vector<std::int64_t> within(double bound) const {
    std::vector<std::int64_t> layers;
    std::size_t run = 0;
    std::int64_t used = 0, taken = 0;  // of that run; of the chain
    for (std::int64_t stage = 0; stage < stages_; ++stage) {
      const bool last = stage + 1 == stages_;
      double room = bound - (stage == 0 ? first_cost_ : 0) - (last ? last_cost_ : 0);
      const std::int64_t most = total_ - taken - (stages_ - stage - 1);  // every later stage needs a layer
      std::int64_t count = 0;
      while (run < chain_.size() && count < most) {
        const std::int64_t fit = std::min({chain_[run].count - used, most - count, fitting(room, chain_[run].cost)});
        if (fit == 0) break;
        count += fit;
        used += fit;
        room -= static_cast<double>(fit) * chain_[run].cost;
        if (used == chain_[run].count)
          ++run, used = 0;
        else
          break;
      }
      if (count == 0 || room < -kRounding * bound) return {};
      taken += count;
      layers.push_back(count);
    }
    return taken == total_ ? layers : std::vector<std::int64_t>{};
  }

  // Cost of the most expensive stage of a cut.
  double largest(const std::vector<std::int64_t>& layers) const {
    double worst = 0;
    std::size_t run = 0;
    std::int64_t used = 0;
    for (std::size_t stage = 0; stage < layers.size(); ++stage) {
      double cost = (stage == 0 ? first_cost_ : 0) + (stage + 1 == layers.size() ? last_cost_ : 0);
      for (std::int64_t left = layers[stage]; left > 0;) {
        const std::int64_t here = std::min(left, chain_[run].count - used);
        cost += static_cast<double>(here) * chain_[run].cost;
        left -= here;
        used += here;
        if (used == chain_[run].count) ++run, used = 0;
      }
      worst = std::max(worst, cost);
    }
    return worst;
  }

 private:
  // Layers of one cost that fit into `room`; a rounding error of the sums before must not push out a layer that fits exactly.
  static std::int64_t fitting(double room, double cost) {
    if (cost <= 0) return std::numeric_limits<std::int64_t>::max();
    const double whole = std::floor(room / cost * (1 + kRounding / 2));
    return whole < 1 ? 0 : whole > 9e15 ? std::numeric_limits<std::int64_t>::max() : static_cast<std::int64_t>(whole);
  }

  const std::vector<LayerRun>& chain_;
  std::int64_t stages_, total_ = 0;
  double first_cost_, last_cost_;
};

void check(const std::vector<LayerRun>& chain, std::int64_t stages, double first_cost, double last_cost) {
  std::int64_t layers = 0;
  for (const LayerRun& run : chain) {
    if (run.count < 1 || !(run.cost >= 0) || !std::isfinite(run.cost)) fail("a layer's cost must be a finite number of at least 0");
    layers += run.count;
  }
  if (!(first_cost >= 0) || !(last_cost >= 0) || !std::isfinite(first_cost + last_cost))
    fail("the cost of embedding and head must be a finite number of at least 0");
  if (stages < 1 || stages > layers) fail(fmt::format("{} pipeline stages for {} layers", stages, layers), {}, "every stage needs a layer");
}

}  // namespace

std::vector<std::int64_t> even_stage_cut(std::int64_t layers, std::int64_t stages, const EvenCut& rule) {
  const std::int64_t effective = layers + rule.first_stage_less + rule.last_stage_less;
  if (stages < 1 || layers < stages) fail(fmt::format("{} pipeline stages for {} layers", stages, layers), {}, "every stage needs a layer");
  if (stages == 1) return {layers};
  const std::int64_t share = effective / stages, remainder = effective % stages;
  if (remainder && !rule.remainder_first)
    fail(fmt::format("{} layers are not divisible by {} pipeline stages", effective, stages), {},
         fmt::format("{} or {} layers, or stages that divide them", effective - remainder, effective - remainder + stages));
  std::vector<std::int64_t> cut(static_cast<std::size_t>(stages), share);
  for (std::int64_t stage = 0; stage < remainder; ++stage) ++cut[static_cast<std::size_t>(stage)];
  cut.front() -= rule.first_stage_less;
  cut.back() -= rule.last_stage_less;
  if (cut.front() < 0 || cut.back() < 0)
    fail(fmt::format("a stage of {} layers cannot give up {} for the embedding or {} for the head", share, rule.first_stage_less,
                     rule.last_stage_less));
  return cut;
}

StageCut balanced_stage_cut(const std::vector<LayerRun>& chain, std::int64_t stages, double first_cost, double last_cost) {
  check(chain, stages, first_cost, last_cost);
  const GreedyCut greedy(chain, stages, first_cost, last_cost);
  double infeasible = 0, feasible = first_cost + last_cost;
  for (const LayerRun& run : chain) feasible += static_cast<double>(run.count) * run.cost;
  StageCut best;
  best.layers = greedy.within(feasible);
  // Bisection on the largest stage. A feasible bound is replaced by what its cut really needs, so it ends on a cut's own cost.
  feasible = best.largest = greedy.largest(best.layers);
  while (feasible - infeasible > kRounding * feasible) {
    const double middle = infeasible + (feasible - infeasible) / 2;
    auto layers = greedy.within(middle);
    if (layers.empty()) {
      infeasible = middle;
      continue;
    }
    best.layers = std::move(layers);
    best.largest = greedy.largest(best.layers);
    feasible = std::min(middle, best.largest);
  }
  return best;
}

std::vector<LayerRun> layer_chain(const Model& model, std::int64_t sequence) {
  std::vector<LayerRun> chain;
  for (const Block& block : model.blocks)
    if (block.role == Block::Role::decoder || block.role == Block::Role::encoder)
      chain.push_back({block.repeat, flops::block_forward(block, {sequence, 0}, flops::Mask::causal_exact)});
  return chain;
}

}  // namespace plimsoll
