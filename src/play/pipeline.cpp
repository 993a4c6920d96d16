// Event simulation of pipeline schedules: every rank executes its list in order; a slot starts when the rank is free and everything
// that it needs has arrived.
#include <algorithm>

#include "plimsoll/error.hpp"
#include "plimsoll/play.hpp"

namespace plimsoll {
namespace {

constexpr double kNotDone = -1;

/// Ends of all passes by (copy of the model, stage, micro-batch), and who owns a stage.
class Progress {
 public:
  Progress(const Schedule& schedule, Seconds point_to_point)
      : schedule_(schedule),
        transfer_(point_to_point.value),
        stages_(schedule.model_stages()),
        micro_batches_(schedule.shape.micro_batches) {
    const int copies = schedule.placement == Placement::bidirectional ? 2 : 1;
    const auto cells = static_cast<std::size_t>(copies * stages_);
    owner_.resize(cells);
    ends_.assign(cells * static_cast<std::size_t>(micro_batches_) * 3, kNotDone);
    for (int rank = 0; rank < schedule.shape.stages; ++rank)
      for (int chunk = 0; chunk < schedule.shape.chunks; ++chunk) owner_[cell(copy_of(chunk), schedule.stage_of(rank, chunk))] = rank;
  }

  /// When everything that the slot of `rank` needs is there; negative when something is not done yet.
  double ready(int rank, const Slot& slot) const {
    const int copy = copy_of(slot.chunk);
    const int stage = schedule_.stage_of(rank, slot.chunk);
    if (slot.pass == Pass::forward) return stage == 0 ? 0 : arrival(kForward, copy, stage - 1, slot.micro_batch, rank);
    if (slot.pass == Pass::weight_gradient) return arrival(kInput, copy, stage, slot.micro_batch, rank);
    const double own = arrival(kForward, copy, stage, slot.micro_batch, rank);
    if (own < 0 || stage == stages_ - 1) return own;
    const double next = arrival(kInput, copy, stage + 1, slot.micro_batch, rank);
    return next < 0 ? kNotDone : std::max(own, next);
  }

  void done(int rank, const Slot& slot, double end) {
    const int copy = copy_of(slot.chunk);
    const int stage = schedule_.stage_of(rank, slot.chunk);
    const Kind kind = slot.pass == Pass::forward ? kForward : slot.pass == Pass::weight_gradient ? kWeight : kInput;
    ends_[at(kind, copy, stage, slot.micro_batch)] = end;
  }

 private:
  enum Kind { kForward, kInput, kWeight };

  int copy_of(int chunk) const { return schedule_.placement == Placement::bidirectional ? chunk : 0; }
  std::size_t cell(int copy, int stage) const { return static_cast<std::size_t>(copy * stages_ + stage); }
  std::size_t at(Kind kind, int copy, int stage, int micro_batch) const {
    return (cell(copy, stage) * static_cast<std::size_t>(micro_batches_) + static_cast<std::size_t>(micro_batch)) * 3 + kind;
  }
  double arrival(Kind kind, int copy, int stage, int micro_batch, int rank) const {
    const double end = ends_[at(kind, copy, stage, micro_batch)];
    return end < 0 ? kNotDone : end + (owner_[cell(copy, stage)] == rank ? 0 : transfer_);
  }

  const Schedule& schedule_;
  double transfer_;
  int stages_, micro_batches_;
  std::vector<int> owner_;
  std::vector<double> ends_;
};

const StageTimes& times_of(const PipelineTimes& times, int stage) {
  return times.stages.size() == 1 ? times.stages.front() : times.stages[static_cast<std::size_t>(stage)];
}

Seconds duration(const StageTimes& stage, Pass pass) {
  const bool given = stage.input_gradient.value > 0 || stage.weight_gradient.value > 0;
  switch (pass) {
    case Pass::forward:
      return stage.forward;
    case Pass::backward:
      return stage.backward;
    case Pass::input_gradient:
      return given ? stage.input_gradient : stage.backward / 2;
    case Pass::weight_gradient:
      return given ? stage.weight_gradient : stage.backward / 2;
  }
  return {};
}

/// Plays as much of one rank's list as can be played now.
class RankPlayer {
 public:
  RankPlayer(const Schedule& schedule, const PipelineTimes& times, int rank)
      : schedule_(schedule), times_(times), rank_(rank), slots_(schedule.ranks[static_cast<std::size_t>(rank)]) {}

  bool finished() const { return next_ == slots_.size(); }
  bool advance(Progress& progress);
  std::vector<PlayedSlot> played;
  Seconds busy;

 private:
  Seconds time_of(const Slot& slot) const { return duration(times_of(times_, schedule_.stage_of(rank_, slot.chunk)), slot.pass); }
  void finish(Progress& progress, std::size_t count, double start, Seconds took) {
    for (std::size_t i = 0; i < count; ++i, ++next_) {
      progress.done(rank_, slots_[next_], start + took.value);
      played.push_back({slots_[next_], Seconds(start), Seconds(start + took.value)});
    }
    busy += took;
    free_ = start + took.value;
  }

  const Schedule& schedule_;
  const PipelineTimes& times_;
  int rank_;
  const std::vector<Slot>& slots_;
  std::size_t next_ = 0;
  double free_ = 0;
};

bool RankPlayer::advance(Progress& progress) {
  const std::size_t before = next_;
  while (!finished()) {
    const Slot& slot = slots_[next_];
    const double ready = progress.ready(rank_, slot);
    if (ready < 0) break;
    if (!slot.with_next) {
      finish(progress, 1, std::max(free_, ready), time_of(slot));
      continue;
    }
    const Slot& partner = slots_[next_ + 1];
    const double partner_ready = progress.ready(rank_, partner);
    if (partner_ready < 0) break;
    const Seconds pair = times_.overlapped_pair.value > 0 ? times_.overlapped_pair : time_of(slot) + time_of(partner);
    finish(progress, 2, std::max({free_, ready, partner_ready}), pair);
  }
  return next_ != before;
}

PipelineTimeline read_timeline(std::vector<RankPlayer>& players) {
  PipelineTimeline timeline{};
  double first = players.front().played.empty() ? 0 : players.front().played.front().start.value, last = 0;
  for (auto& player : players) {
    if (player.played.empty()) continue;
    const double start = player.played.front().start.value, end = player.played.back().end.value;
    first = std::min(first, start);
    last = std::max(last, end);
    timeline.span = std::max(timeline.span, Seconds(end - start), [](Seconds a, Seconds b) { return a < b; });
    timeline.ideal = std::max(timeline.ideal, player.busy, [](Seconds a, Seconds b) { return a < b; });
    timeline.busy.push_back(player.busy);
    timeline.ranks.push_back(std::move(player.played));
  }
  timeline.makespan = Seconds(last - first);
  timeline.bubble_fraction = timeline.makespan.value > 0 ? 1 - timeline.ideal / timeline.makespan : 0;
  return timeline;
}

}  // namespace

PipelineTimeline play_pipeline(const Schedule& schedule, const PipelineTimes& times) {
  const auto stages = static_cast<std::size_t>(schedule.model_stages());
  if (times.stages.size() != 1 && times.stages.size() != stages)
    fail("play_pipeline: durations of " + std::to_string(times.stages.size()) + " stages, but the schedule has " + std::to_string(stages));
  Progress progress(schedule, times.point_to_point);
  std::vector<RankPlayer> players;
  for (int rank = 0; rank < schedule.shape.stages; ++rank) players.emplace_back(schedule, times, rank);
  for (bool moved = true; moved;) {
    moved = false;
    for (auto& player : players) moved = player.advance(progress) || moved;
  }
  for (const auto& player : players)
    if (!player.finished()) throw Error(ErrorCode::internal, "schedule " + schedule.name + " waits for itself");
  return read_timeline(players);
}

double bubble_fraction(int stages, int micro_batches, int chunks) {
  return (stages - 1.0) / (static_cast<double>(chunks) * micro_batches + stages - 1.0);
}

}  // namespace plimsoll
