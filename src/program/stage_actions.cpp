#include "program/stage_actions.hpp"

#include <algorithm>
#include <deque>
#include <set>
#include <tuple>

#include "plimsoll/error.hpp"

namespace plimsoll::program {

namespace {

using Kind = StageAction::Kind;

/// Actions that run as one (OVERLAP_F_B), or a single one.
using Step = std::vector<StageAction>;

Kind kind_of(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return Kind::forward;
    case Pass::backward:
      return Kind::backward;
    case Pass::input_gradient:
      return Kind::input_gradient;
    default:
      return Kind::weight_gradient;
  }
}

bool gives_input_gradient(Kind kind) { return kind == Kind::backward || kind == Kind::input_gradient; }
bool ends_micro_batch(Kind kind) { return kind == Kind::backward || kind == Kind::weight_gradient; }

std::vector<Step> passes_of(const Schedule& schedule, int rank) {
  std::vector<Step> steps;
  bool joined = false;
  for (const Slot& slot : schedule.ranks[static_cast<std::size_t>(rank)]) {
    const StageAction action{kind_of(slot.pass), schedule.stage_of(rank, slot.chunk), slot.micro_batch};
    if (joined) {
      steps.back().push_back(action);
    } else {
      steps.push_back({action});
    }
    joined = slot.with_next;
  }
  return steps;
}

/// The next `count` stages that compute from `from` on.
std::vector<int> next_stages(const std::vector<Step>& steps, std::size_t from, std::size_t count) {
  std::vector<int> stages;
  for (std::size_t i = from; i < steps.size() && stages.size() < count; ++i)
    for (const StageAction& action : steps[i])
      if (std::find(stages.begin(), stages.end(), action.stage) == stages.end()) stages.push_back(action.stage);
  return stages;
}

/// _add_unshard_reshard: up to three stages are gathered, those that compute next.
std::vector<Step> with_gathering(const std::vector<Step>& steps) {
  constexpr std::size_t kMostActive = 3;
  std::vector<Step> all;
  std::vector<int> active;
  const auto in = [](const std::vector<int>& stages, int stage) { return std::find(stages.begin(), stages.end(), stage) != stages.end(); };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::vector<int> next = next_stages(steps, i, kMostActive);
    for (int stage : std::vector<int>(active)) {
      if (in(next, stage)) continue;
      active.erase(std::find(active.begin(), active.end(), stage));
      all.push_back({{Kind::reshard, stage}});
    }
    for (int stage : next) {
      if (in(active, stage)) continue;
      active.push_back(stage);
      all.push_back({{Kind::unshard, stage}});
    }
    all.push_back(steps[i]);
  }
  for (int stage : active) all.push_back({{Kind::reshard, stage}});
  return all;
}

/// _add_reduce_grad: behind a stage's last micro-batch; its reshard is done by the reduction. The wait for it is an action of its own.
std::vector<Step> with_reductions(const std::vector<Step>& steps, int micro_batches) {
  std::vector<Step> all;
  std::vector<int> ended;
  std::set<int> reduced;
  for (const Step& step : steps) {
    const bool done_already = step.front().kind == Kind::reshard && reduced.count(step.front().stage) > 0;
    all.push_back(done_already ? Step{} : step);
    for (const StageAction& action : step) {
      if (!ends_micro_batch(action.kind)) continue;
      ended.push_back(action.stage);
      if (std::count(ended.begin(), ended.end(), action.stage) != micro_batches) continue;
      reduced.insert(action.stage);
      all.push_back({{Kind::reduce, action.stage}});
      all.push_back({});
    }
  }
  return all;
}

/// _add_send_recv: ranks take turns; a sender puts the receive into its neighbour's list, and an action waits until its input is there. With
/// receives before their use the neighbour's list gets them where its own pass needs them.
class ActionLowering {
 public:
  ActionLowering(const Schedule& schedule, Receives receives) : schedule_(schedule), receives_(receives) {
    const auto ranks = schedule.ranks.size();
    lists_.resize(ranks);
    done_.resize(ranks);
    rank_of_.resize(static_cast<std::size_t>(schedule.model_stages()));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const int r = static_cast<int>(rank);
      for (int chunk = 0; chunk < schedule.shape.chunks; ++chunk) rank_of_[static_cast<std::size_t>(schedule.stage_of(r, chunk))] = rank;
      const std::vector<Step> steps = with_reductions(with_gathering(passes_of(schedule, r)), schedule.shape.micro_batches);
      pending_.emplace_back(steps.begin(), steps.end());
    }
  }

  std::vector<std::vector<StageAction>> run() {
    bool progress = true;
    while (progress) {
      progress = false;
      for (std::size_t r = 0; r < pending_.size(); ++r) progress = advance(r) || progress;
    }
    for (const auto& left : pending_)
      if (!left.empty()) throw Error(ErrorCode::internal, "pipeline schedule '" + schedule_.name + "' waits for itself");
    return std::move(lists_);
  }

 private:
  using Done = std::set<std::tuple<Kind, int, int>>;

  bool advance(std::size_t rank) {
    if (pending_[rank].empty()) return false;
    const Step step = pending_[rank].front();
    for (const StageAction& action : step)
      if (!ready(action, done_[rank])) return false;
    pending_[rank].pop_front();
    if (receives_ == Receives::before_use)
      for (const StageAction& action : step) receive(action, rank);
    for (const StageAction& action : step) lists_[rank].push_back(action);
    for (const StageAction& action : step) {
      done_[rank].emplace(action.kind, action.stage, action.micro_batch);
      send(action, rank);
    }
    return true;
  }

  bool ready(const StageAction& action, const Done& done) const {
    const auto has = [&](Kind kind, int stage) { return done.count({kind, stage, action.micro_batch}) > 0; };
    if (action.kind == Kind::forward && action.stage > 0)
      return has(Kind::receive_activation, action.stage) || has(Kind::forward, action.stage - 1);
    if (gives_input_gradient(action.kind) && action.stage + 1 < schedule_.model_stages())
      return has(Kind::receive_gradient, action.stage) || has(Kind::input_gradient, action.stage + 1) ||
             has(Kind::backward, action.stage + 1);
    return true;
  }

  /// What the action needs of another rank.
  void receive(const StageAction& action, std::size_t rank) {
    for (const Kind kind : {Kind::receive_activation, Kind::receive_gradient}) {
      const bool needed = kind == Kind::receive_activation ? action.kind == Kind::forward : gives_input_gradient(action.kind);
      if (needed && done_[rank].count({kind, action.stage, action.micro_batch}) > 0)
        lists_[rank].push_back({kind, action.stage, action.micro_batch});
    }
  }

  void send(const StageAction& action, std::size_t rank) {
    const bool onward = action.kind == Kind::forward;
    if (!onward && !gives_input_gradient(action.kind)) return;
    const int target = onward ? action.stage + 1 : action.stage - 1;
    if (target < 0 || target >= schedule_.model_stages()) return;
    const std::size_t receiver = rank_of_[static_cast<std::size_t>(target)];
    if (receiver == rank) return;
    const Kind kind = onward ? Kind::receive_activation : Kind::receive_gradient;
    if (receives_ == Receives::with_send) lists_[receiver].push_back({kind, target, action.micro_batch});
    done_[receiver].emplace(kind, target, action.micro_batch);
  }

  const Schedule& schedule_;
  Receives receives_;
  std::vector<std::size_t> rank_of_;  ///< by stage
  std::vector<std::deque<Step>> pending_;
  std::vector<std::vector<StageAction>> lists_;
  std::vector<Done> done_;
};

}  // namespace

std::vector<std::vector<StageAction>> actions_of(const Schedule& schedule, Receives receives) { return ActionLowering(schedule, receives).run(); }

}  // namespace plimsoll::program
