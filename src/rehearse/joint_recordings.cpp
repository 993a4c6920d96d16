#include "rehearse/joint_recordings.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "play/joint_ranks.hpp"

namespace plimsoll::rehearse {
namespace {

bool is_transfer(const Collective& collective) {
  return collective.kind == CollectiveKind::send || collective.kind == CollectiveKind::receive;
}

/// Calls `see` with the index of each collective of the last step, as often as it is issued.
template <class See>
void for_each_collective(const Recording& recording, See&& see) {
  for (const Instruction& instruction : recording.program.step)
    if (instruction.kind == InstructionKind::collective) see(instruction.id);
}

bool sends_anything(const Recording& recording) {
  bool sends = false;
  for_each_collective(recording, [&](std::uint32_t id) { sends = sends || is_transfer(recording.program.collectives[id]); });
  return sends;
}

/// Why the ranks are not the whole of a world; empty where they are.
std::string missing_of(const std::vector<Recording>& recordings) {
  std::vector<bool> there(recordings.size());
  for (const Recording& each : recordings) {
    const bool belongs = each.world == static_cast<std::int64_t>(recordings.size()) && each.rank < each.world && !each.device;
    if (!belongs || there[static_cast<std::size_t>(each.rank)])
      return "not all ranks were there: --together runs them, and plays them against each other";
    if (each.program.step.empty()) return fmt::format("rank {} finished no step", each.rank);
    there[static_cast<std::size_t>(each.rank)] = true;
  }
  return {};
}

/// Communicators of a world as its ranks know them.
class Channels {
 public:
  explicit Channels(const std::vector<Recording>& recordings) {
    for (std::size_t i = 0; i < recordings.size(); ++i)
      for (const RecordedMeeting& meeting : recordings[i].meetings) {
        Channel& channel = by_key_.try_emplace(meeting.communicator, Channel{static_cast<std::uint32_t>(by_key_.size()), {}}).first->second;
        channel.members[meeting.rank] = i;
      }
  }

  Joint joint_of(const RecordedMeeting& meeting, bool transfer) const {
    const Channel& channel = by_key_.at(meeting.communicator);
    constexpr std::uint32_t kPair = 2;
    const bool whole = static_cast<std::int64_t>(channel.members.size()) == meeting.size;
    const bool found = transfer ? channel.members.count(meeting.peer) > 0 : whole;
    return {channel.number, !found ? 0 : transfer ? kPair : static_cast<std::uint32_t>(meeting.size)};
  }
  /// Index of the recording that has this rank in the communicator.
  std::size_t member(const RecordedMeeting& meeting, std::int64_t rank) const { return by_key_.at(meeting.communicator).members.at(rank); }

 private:
  struct Channel {
    std::uint32_t number;
    std::map<std::int64_t, std::size_t> members;  ///< rank in it → recording
  };
  std::map<std::uint64_t, Channel> by_key_;
};

/// Writes whom each transfer joins into the rank's program.
JointRank joint_rank(Recording& recording, const Channels& channels, const Cluster& cluster) {
  JointRank rank{&recording.program, pricing_of(recording, cluster), {}};
  for (std::size_t i = 0; i < recording.meetings.size(); ++i) {
    Collective& collective = recording.program.collectives[i];
    const Joint joint = channels.joint_of(recording.meetings[i], is_transfer(collective));
    if (is_transfer(collective) && joint.members > 0)
      collective.peer = static_cast<std::int32_t>(channels.member(recording.meetings[i], recording.meetings[i].peer));
    rank.joints.push_back(joint);
  }
  return rank;
}

/// What of the last step has no counterpart in another rank's; empty where all has.
std::string unmatched(const std::vector<Recording>& recordings, const std::vector<JointRank>& ranks) {
  using Pair = std::tuple<std::uint32_t, std::size_t, std::size_t>;  // channel, from, to
  std::map<Pair, std::pair<std::int64_t, std::int64_t>> sent;        // and received
  std::map<std::uint32_t, std::map<std::size_t, std::int64_t>> met;  // by channel and rank
  std::map<std::uint32_t, std::uint32_t> members;
  std::int64_t nobody = -1;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    for_each_collective(recordings[i], [&](std::uint32_t id) {
      const Collective& collective = recordings[i].program.collectives[id];
      const Joint& joint = ranks[i].joints[id];
      const auto peer = static_cast<std::size_t>(collective.peer);
      if (joint.members < 2 && is_transfer(collective)) nobody = recordings[i].rank;
      if (joint.members < 2) return;
      if (collective.kind == CollectiveKind::send) {
        ++sent[{joint.channel, i, peer}].first;
      } else if (collective.kind == CollectiveKind::receive) {
        ++sent[{joint.channel, peer, i}].second;
      } else {
        ++met[joint.channel][i];
        members[joint.channel] = joint.members;
      }
    });
  if (nobody >= 0) return fmt::format("whom rank {} sends to or receives from is not told", nobody);
  for (const auto& [pair, times] : sent)
    if (times.first != times.second)
      return fmt::format("rank {} sends {} times to rank {} in its last step, which receives {} times", recordings[std::get<1>(pair)].rank,
                         times.first, recordings[std::get<2>(pair)].rank, times.second);
  for (const auto& [channel, ranks_of_it] : met)
    for (const auto& [index, times] : ranks_of_it)
      if (ranks_of_it.size() != members[channel] || times != ranks_of_it.begin()->second)
        return fmt::format("the ranks of a communicator call it {} times in rank {}'s last step, and otherwise in another's", times,
                           recordings[index].rank);
  return {};
}

}  // namespace

JointPlay play_joint(std::vector<Recording>& recordings, const Cluster& cluster) {
  if (std::none_of(recordings.begin(), recordings.end(), sends_anything)) return {};
  if (std::string why = missing_of(recordings); !why.empty()) return {{}, std::move(why)};
  const Channels channels(recordings);
  std::vector<JointRank> ranks;
  for (Recording& each : recordings) ranks.push_back(joint_rank(each, channels, cluster));
  if (std::string why = unmatched(recordings, ranks); !why.empty()) return {{}, std::move(why)};
  std::vector<Timeline> timelines = plimsoll::play_joint(ranks);
  if (timelines.empty()) return {{}, "the ranks' last steps wait for each other"};
  return {std::move(timelines), {}};
}

}  // namespace plimsoll::rehearse
