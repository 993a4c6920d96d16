// What would make a run fit: changes alone, in pairs and in threes, and of those that suffice the one that costs least time.
#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "estimate/tried_changes.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "strategy/flags.hpp"

namespace plimsoll {
namespace {

using namespace estimation;
using Options = std::vector<std::pair<std::string, std::string>>;

constexpr std::size_t kMostEstimates = 20;  // of pairs, and of threes: about as many again as there are changes
constexpr std::size_t kMostUnlikely = 6;    // of those whose savings do not add up to what is missing
constexpr std::size_t kMostInAll = 48;      // of both, without and with changes that round
constexpr double kOneMore = 1.02;           // a change more must pay so much time, or the shorter line is the better one

/// Some of the changes, together, with what they are expected to come to.
struct Together {
  std::vector<std::size_t> which;
  double slowdown = 1, bytes = 0;
};

double slowdown_of(const Change& change) { return change.slowdown.value_or(std::numeric_limits<double>::infinity()); }

/// Time is what decides among those that fit, those first that leave some room.
std::pair<Verdict, double> cost_of(const Change& change, std::size_t changes) {
  double slowdown = slowdown_of(change);
  for (std::size_t i = 1; i < changes; ++i) slowdown *= kOneMore;
  return {change.verdict, slowdown};
}

/// "optimizer" and "activations" are both offloaded; of any other key there is one value.
bool add(const Options& more, Options& all) {
  for (const auto& [key, value] : more) {
    const auto said = std::find_if(all.begin(), all.end(), [&, &name = key](const auto& each) { return each.first == name; });
    if (said == all.end()) {
      all.emplace_back(key, value);
    } else if (key == "offload" && said->second.find(value) == std::string::npos && value.find(said->second) == std::string::npos) {
      said->second += "+" + value;
    } else if (said->second != value) {
      return false;
    }
  }
  return true;
}

/// What is asked of a change before it is tried.
Change untried(const SingleChange& one) {
  Change change{};
  change.flag = one.flag;
  change.options = one.options;
  return change;
}

/// The changes with which a run could fit, each estimated alone.
class Fitting {
 public:
  Fitting(const Model& model, const Cluster& cluster, const Strategy& strategy, const std::function<bool(const Change&)>& can_be_said)
      : model_(model), cluster_(cluster), said_(strategy) {
    explanation_.report = estimate(model, cluster, strategy);
    explanation_.rank = explanation_.report.worst;
    const Strategy resolved = resolve(strategy, model, cluster);
    framework_ = resolved.framework;
    std::vector<SingleChange> changes = memory_changes(strategy, resolved, model, cluster);
    if (can_be_said) std::erase_if(changes, [&](const SingleChange& one) { return !can_be_said(untried(one)); });
    tried_ = savings_of(try_all(model, cluster, changes, explanation_));
  }

  /// Of the changes that leave every number as it is, or (`rounding`) of all.
  std::optional<Change> fastest(bool rounding) {
    changes_.clear();
    for (const Tried& one : tried_)
      if (rounding || !one.change.fewer_bits) changes_.push_back(&one);
    best_.reset();
    for (const Tried* one : changes_) take(one->change, 1);
    if (!best_ && !hopeless()) try_together();
    return best_;
  }

 private:
  void take(const Change& change, std::size_t changes) {
    const auto cost = cost_of(change, changes);
    if (change.verdict == Verdict::does_not_fit || (best_ && !(cost < cost_))) return;
    best_ = change;
    cost_ = cost;
  }

  double needed() const { return explanation_.report.worst_rank().memory.device.expected; }
  double capacity() const { return static_cast<double>(explanation_.report.worst_rank().memory.capacity.count); }

  /// Whether the worst rank is too large for its device even by all that each of the changes saves on its own.
  bool hopeless() const {
    double least = needed();
    for (const Tried* one : changes_) least -= static_cast<double>(one->change.saved.count);
    return least > capacity();
  }

  /// All of `size` changes: those that seem to suffice, the fastest first; then the others by what they seem to need, for two peaks that are
  /// both too high are lowered by two changes of which neither saves much alone.
  std::vector<Together> combinations(std::size_t size) const {
    std::vector<Together> all;
    for (std::size_t i = 0; i < changes_.size(); ++i)
      for (std::size_t j = i + 1; j < changes_.size(); ++j) {
        if (size == 2) all.push_back(expected({i, j}));
        for (std::size_t k = j + 1; size == 3 && k < changes_.size(); ++k) all.push_back(expected({i, j, k}));
      }
    const auto order = [&](const Together& one) {
      const bool suffices = one.bytes <= capacity();
      return std::pair(!suffices, suffices ? one.slowdown : one.bytes);
    };
    std::stable_sort(all.begin(), all.end(), [&](const Together& a, const Together& b) { return order(a) < order(b); });
    return all;
  }

  /// Savings add up and slowdowns multiply, but where two of three were estimated together: what they save twice is not saved twice.
  Together expected(std::vector<std::size_t> which) const {
    Together sum{which, 1, needed()};
    for (const std::size_t i : which) {
      sum.slowdown *= slowdown_of(changes_[i]->change) * (i == which.front() ? 1 : kOneMore);
      sum.bytes -= static_cast<double>(changes_[i]->change.saved.count);
    }
    for (const std::size_t third : which) {
      std::vector<std::size_t> two = which;
      std::erase(two, third);
      if (const auto known = pairs_.find(two); known != pairs_.end())
        sum.bytes = std::max(sum.bytes, known->second - static_cast<double>(changes_[third]->change.saved.count));
    }
    return sum;
  }

  void try_together() {
    pairs_.clear();
    std::set<std::string> seen;
    for (const std::size_t size : {2, 3}) {
      std::size_t estimates = 0, unlikely = 0;
      for (const Together& together : combinations(size)) {
        if (best_ && best_->verdict == Verdict::fits && together.slowdown >= cost_.second) continue;
        const std::optional<SingleChange> change = joined(together);
        if (!change || !seen.insert(change->flag).second) continue;
        if (++estimates > kMostEstimates || (together.bytes > capacity() && ++unlikely > kMostUnlikely)) break;
        if (in_all_++ == kMostInAll) return;
        const auto found = compare(model_, cluster_, *change, explanation_);
        if (!found) continue;
        if (size == 2) pairs_[together.which] = static_cast<double>(found->change.device.count);
        take(found->change, size);
      }
    }
  }

  /// Several changes as one; nothing where they contradict one another, or the run would be another framework's.
  std::optional<SingleChange> joined(const Together& together) const {
    SingleChange change;
    for (const std::size_t i : together.which) {
      const SingleChange& one = changes_[i]->of;
      if (!add(one.options, change.options)) return {};
      change.fewer_bits |= one.fewer_bits;
    }
    try {
      Options all = said_.options;
      all.insert(all.end(), change.options.begin(), change.options.end());
      change.strategy = said_;
      set_options(change.strategy, all);
      if (resolve(change.strategy, model_, cluster_).framework != framework_) return {};
    } catch (const Error& error) {
      if (error.code() == ErrorCode::internal) throw;
      return {};
    }
    change.flag = as_flags(change.options);
    return change;
  }

  const Model& model_;
  const Cluster& cluster_;
  const Strategy& said_;
  std::string framework_;
  Explanation explanation_;
  std::vector<Tried> tried_;
  std::vector<const Tried*> changes_;
  std::optional<Change> best_;
  std::pair<Verdict, double> cost_;
  std::map<std::vector<std::size_t>, double> pairs_;  ///< that were estimated: the bytes that they need
  std::size_t in_all_ = 0;                            ///< of several changes, estimated so far
};

}  // namespace

std::optional<Change> fitting_change(const Model& model, const Cluster& cluster, const Strategy& strategy, const std::function<bool(const Change&)>& can_be_said) {
  Fitting fitting(model, cluster, strategy, can_be_said);
  for (const bool rounding : {false, true})
    if (auto change = fitting.fastest(rounding)) return change;
  return {};
}

}  // namespace plimsoll
