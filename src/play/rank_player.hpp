// One rank on its way through its step.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "play/joint_ranks.hpp"
#include "play/score.hpp"
#include "play/shared_device.hpp"

namespace plimsoll {

using MeetingId = std::size_t;

/// What ranks do together: sends with their receives, in order for each pair of ranks, and collectives.
class Meetings {
 public:
  /// The next send of a channel from one rank to another is ready.
  void send(std::uint32_t channel, std::uint32_t from, std::uint32_t to, double ready);
  /// The next receive from another rank.
  MeetingId receive(std::uint32_t channel, std::uint32_t from, std::uint32_t to, double ready);
  /// The `index`-th collective of the channel, of so many ranks.
  MeetingId meet(const Joint& joint, std::size_t index, double ready);

  /// Whether everybody has come.
  bool complete(MeetingId id) const { return all_[id].missing == 0; }
  /// When the last one came.
  double ready(MeetingId id) const { return all_[id].ready; }

 private:
  struct Meeting {
    double ready = 0;
    std::size_t missing = 0;
  };
  struct Pair {
    std::deque<double> sent;         ///< not received yet
    std::deque<MeetingId> received;  ///< not sent yet
  };

  std::vector<Meeting> all_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, Pair> pairs_;  ///< by channel, from, to
  std::map<std::uint32_t, std::vector<MeetingId>> of_channel_;
};

/// How ranks are played.
struct PlaySettings {
  const Pricing* pricing = nullptr;
  int steps = 1;                         ///< the last one is read
  std::uint32_t ranks = 1;               ///< that are played
  std::array<bool, kGroups> meets{};     ///< groups whose collectives wait for all ranks
  bool with_events = false;
  std::vector<bool> elsewhere{};         ///< streams of another device, which take nothing of the compute stream's
  const JointRank* joint = nullptr;      ///< who meets whom, where ranks say it themselves
};

class RankPlayer {
 public:
  RankPlayer(const Score& score, const PlaySettings& settings, std::uint32_t rank, Meetings& meetings);

  /// Goes on until the last step is done or another rank is needed; whether it is done.
  bool play();
  /// Rises with everything that is played.
  std::size_t progress() const { return launched_ + at_ + static_cast<std::size_t>(step_) + static_cast<std::size_t>(repetition_) * score_.items.size(); }
  /// Of the last step: from the end of the one before, on the stream that took longest.
  double seconds() const;
  /// The last step, where the slowest rank's takes so long.
  Timeline timeline(double slowest) const;

 private:
  using LinkId = std::uint32_t;
  static constexpr LinkId kNoLink = 0;
  /// A moment, and what kept it from being earlier: that took from the moment behind its link until then.
  struct Moment {
    double time = 0;
    Cause cause = Cause::nothing;
    LinkId link = kNoLink;
  };
  /// Work that ends when another rank lets it.
  struct Open {
    MeetingId meeting;
    Moment start;
    double seconds;
    std::uint32_t instruction;
    Cause cause;
    Claim claim;
  };
  struct Stream {
    Moment last;        ///< the end of what was issued
    Moment held;        ///< an event that it waits for
    std::vector<Open> open;
    bool closed = false;  ///< an event lies behind the open work: nothing joins it
  };
  struct RecordedEvent {
    Moment moment;
    StreamId stream = kComputeStream;
    bool open = false;  ///< behind work that is open
  };
  using Parts = std::array<double, kCauses>;

  bool play(const Item& item);
  bool run(const Item& item);
  Joint joint_of(const Item& item) const;
  bool meet(const Item& item, const Joint& joint);
  void record(const Item& item);
  bool wait(const Item& item);
  bool synchronize(const Item& item);
  bool repeat();
  bool repeats_alone() const;
  void skip_repeats(double times);
  void end_step();

  bool await_open(const Item& item);
  void await_launch(const Stream& stream);
  void issue(const Item& item);
  void launch(double start);
  Moment ready(const Stream& stream) const;
  /// Board powers that a step of so many seconds draws on average.
  double power_of(double step) const;
  bool settle(StreamId id);
  bool settle_all();
  void occupy(StreamId id, const Item& item, double start, double end);
  void count(Moment start, double end, Cause cause);
  Moment after(const Moment& before, double time, Cause cause);
  void blame(Moment until, double since, Parts& parts) const;

  const Score::Parts& score_;
  const PlaySettings& settings_;
  const Pricing& pricing_;
  std::uint32_t rank_;
  Meetings& meetings_;

  std::size_t at_ = 0;
  int step_ = 0;
  std::int64_t repetition_ = 0;
  Moment host_{0, Cause::host};
  static constexpr std::size_t kLinks = 256;
  std::array<Moment, kLinks> links_{};  ///< a ring: what is longer ago than all these is not asked for
  LinkId next_link_ = kNoLink + 1;
  std::vector<Stream> streams_;
  std::vector<RecordedEvent> events_;
  std::vector<double> launches_;  ///< a ring: when the last launches started
  std::size_t oldest_launch_ = 0, launched_ = 0;
  std::vector<std::size_t> met_;  ///< by channel: collectives that it came to
  SharedDevice device_;
  double counted_ = 0;           ///< the compute stream's time is counted up to here
  std::vector<double> began_;    ///< the step, per stream: when the one before ended
  Parts parts_{};
  std::vector<Event> played_;

  struct Snapshot {
    std::vector<double> streams;
    double host = 0;
    Parts parts{};
  };
  Snapshot snapshot() const;
  static bool alike(const Snapshot& a, const Snapshot& b, const Snapshot& c);
  Snapshot before_, before_that_;  ///< at the ends of the last repetitions
};

}  // namespace plimsoll
