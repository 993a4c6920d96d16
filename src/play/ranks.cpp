// Ranks of a pipeline played together. Work is started in the order of issue: a stream is a queue and an event lies behind what was issued
// before it, so one walk over a rank's items gives every start. A rank stands still where it needs to know when something ends that another
// rank has not come to yet; the others go on, and it is taken up again. Of repeated micro-batches those are passed over that only repeat
// the last.
#include <algorithm>

#include "play/other_devices.hpp"
#include "play/rank_player.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

/// Groups whose collectives join all played ranks: those that all issue equally often.
std::array<bool, kGroups> shared_meetings(const std::vector<const Score::Parts*>& ranks) {
  std::array<bool, kGroups> shared{};
  for (std::size_t group = 0; group < kGroups; ++group) {
    const std::int64_t times = ranks.front()->meetings[group];
    shared[group] = ranks.size() > 1 && times > 0 &&
                    std::all_of(ranks.begin(), ranks.end(), [&](const Score::Parts* rank) { return rank->meetings[group] == times; });
  }
  return shared;
}

/// Where all ranks stand between repetitions that were alike, and so was what is on its way between them, each repetition to come is the
/// last one, later: they pass over as many as all of them have left.
void skip_repetitions(std::vector<RankPlayer>& players, Meetings& meetings) {
  if (!std::all_of(players.begin(), players.end(), [](const RankPlayer& player) { return player.stands(); })) return;
  const double period = players.front().period();
  const Later later(period);
  const auto at_that_pace = [&](const RankPlayer& player) { return later(0, player.period()); };
  if (!std::all_of(players.begin(), players.end(), at_that_pace) || !meetings.recur(later)) return;
  std::int64_t least = players.front().left();
  for (const RankPlayer& player : players) least = std::min(least, player.left());
  for (RankPlayer& player : players) player.skip(least, period);
  meetings.postpone(static_cast<double>(least) * period);
}

/// Whether anybody who stood still goes on.
bool go_on(std::vector<RankPlayer>& players) {
  bool anybody = false;
  for (RankPlayer& player : players) anybody = player.go_on() || anybody;
  return anybody;
}

/// `settings`: of each rank, or one of all. Empty where none goes on.
std::vector<Timeline> play(const std::vector<Score>& ranks, const std::vector<PlaySettings>& settings) {
  Meetings meetings;
  std::vector<RankPlayer> players;
  players.reserve(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i)
    players.emplace_back(ranks[i], settings[settings.size() > 1 ? i : 0], static_cast<std::uint32_t>(i), meetings);
  std::vector<bool> done(ranks.size());
  for (std::size_t left = ranks.size(); left > 0;) {
    const std::size_t before = left;
    bool moved = false;
    for (std::size_t i = 0; i < players.size(); ++i) {
      if (done[i] || players[i].stands()) continue;
      const std::size_t from = players[i].progress();
      done[i] = players[i].play();
      if (done[i]) --left;
      moved = moved || players[i].progress() != from;
    }
    if (left < before || moved) continue;
    skip_repetitions(players, meetings);
    if (!go_on(players)) return {};
  }
  double slowest = 0;
  for (const RankPlayer& player : players) slowest = std::max(slowest, player.seconds());
  std::vector<Timeline> timelines;
  for (const RankPlayer& player : players) timelines.push_back(player.timeline(slowest));
  return timelines;
}

}  // namespace

Seconds Timeline::exposed_communication() const {
  Seconds sum = transfers;
  for (const Seconds& each : exposed) sum += each;
  return sum;
}

Seconds Timeline::sum() const {
  return compute + recompute + optimizer + exposed_communication() + bubble + exposed_copies + host + host_optimizer;
}

std::vector<Timeline> play_ranks(const std::vector<Score>& ranks, const Pricing& pricing, bool with_events) {
  if (ranks.empty()) return {};
  std::vector<const Score::Parts*> scores;
  for (const Score& rank : ranks) scores.push_back(&rank.parts());
  // A pipeline is flushed at the end of a step; one rank alone may have its host ahead into the next.
  PlaySettings settings;
  settings.pricing = &pricing;
  settings.steps = ranks.size() == 1 ? 2 : 1;
  settings.ranks = static_cast<std::uint32_t>(ranks.size());
  settings.meets = shared_meetings(scores);
  settings.with_events = with_events;
  std::vector<Timeline> timelines = play(ranks, {settings});
  if (timelines.empty()) throw Error(ErrorCode::internal, "the sends and receives of a pipeline's ranks do not match");
  return timelines;
}

std::vector<Timeline> play_joint(const std::vector<JointRank>& ranks) {
  std::vector<Score> scores;
  std::vector<PlaySettings> settings(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    scores.push_back(Pricer(ranks[i].pricing).score(*ranks[i].program));
    settings[i].pricing = &ranks[i].pricing;
    settings[i].with_events = true;
    settings[i].joint = &ranks[i];
  }
  return play(scores, settings);
}

namespace {

/// Of one rank alone the host may be ahead into the next step.
Timeline play_alone(const StepProgram& program, const Pricing& pricing, const std::vector<bool>& elsewhere, bool with_events) {
  Pricer pricer(pricing);
  std::vector<Score> ranks;
  ranks.push_back(pricer.score(program));
  ranks.front().stand_alone();
  PlaySettings settings;
  settings.pricing = &pricing;
  settings.steps = 2;
  settings.with_events = with_events;
  settings.elsewhere = elsewhere;
  return play(ranks, {settings}).front();
}

}  // namespace

Timeline play_time(const StepProgram& program, const Pricing& pricing, bool with_events) { return play_alone(program, pricing, {}, with_events); }

Timeline play_time(const StepProgram& program, const Pricing& pricing, const std::vector<bool>& elsewhere) {
  return play_alone(program, pricing, elsewhere, true);
}

}  // namespace plimsoll
