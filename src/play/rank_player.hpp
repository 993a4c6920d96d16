// One rank on its way through its step.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "play/joint_ranks.hpp"
#include "play/score.hpp"
#include "play/shared_device.hpp"

namespace plimsoll {

/// What ranks do together: sends with their receives, in order for each pair of ranks, and collectives.
class Meetings {
  /// From one rank to another.
  struct Line {
    std::vector<double> sent, received;  ///< when each was ready
    struct Side {
      std::size_t until = 0, each = 0;  ///< at the end of its rank's last repetition, and of these within it
    };
    Side sends, receives;
    void end_repetition(Side& side, std::size_t count) { side = {count, count - side.until}; }
  };

 public:
  /// One of a line's receives, or, of no line, a collective.
  struct Id {
    const Line* line = nullptr;
    std::size_t index = 0;
  };

  /// The next send of a channel from one rank to another is ready.
  void send(std::uint32_t channel, std::uint32_t from, std::uint32_t to, double ready);
  /// The next receive from another rank.
  Id receive(std::uint32_t channel, std::uint32_t from, std::uint32_t to, double ready);
  /// The `index`-th collective of the channel, of so many ranks.
  Id meet(const Joint& joint, std::size_t index, double ready);

  /// Whether everybody has come.
  bool complete(const Id& id) const { return id.line != nullptr ? id.index < id.line->sent.size() : collectives_[id.index].missing == 0; }
  /// When the last one came.
  double ready(const Id& id) const {
    return id.line != nullptr ? std::max(id.line->sent[id.index], id.line->received[id.index]) : collectives_[id.index].ready;
  }

  /// A rank is at the end of a repetition.
  void end_repetition(std::uint32_t rank);
  /// Where all ranks are: whether what was sent and not received yet, or the reverse, is what was a repetition before.
  bool recur(const Later& later) const;
  /// All of that comes later by so much.
  void postpone(double seconds);

 private:
  struct Collective {
    double ready = 0;
    std::size_t missing = 0;
  };

  std::vector<Collective> collectives_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, Line> lines_;  ///< by channel, from, to
  std::map<std::uint32_t, std::vector<std::size_t>> of_channel_;                   ///< collectives in order
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

  /// Goes on until the last step is done, another rank is needed, or it stands between two repetitions that were alike; whether it is done.
  bool play();
  /// Rises with everything that is played.
  std::size_t progress() const { return launched_ + at_ + static_cast<std::size_t>(step_) + static_cast<std::size_t>(repetition_) * score_.items.size(); }

  /// Whether it stands between two repetitions that were alike: all that is to come depends on comes later by the same time each.
  bool stands() const { return stands_; }
  /// Whether it stood.
  bool go_on() { return std::exchange(stands_, false); }
  /// Seconds that the last repetition took.
  double period() const { return now_->counted - before_->counted; }
  /// Repetitions to come.
  std::int64_t left() const { return score_.repeat_times - repetition_; }
  /// Of one that stands: so many more repetitions, each of which takes so long.
  void skip(std::int64_t repetitions, double period);

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
    Meetings::Id meeting;
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
  bool can_stand() const;
  bool repeated_alike();
  void find_repeated_events();
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

  /// All that what comes next depends on, and the parts so far.
  struct Standing {
    Moment host;
    double counted = 0;
    Parts parts{};
    std::vector<Stream> streams;
    std::vector<RecordedEvent> events;  ///< of those that a repetition records
    std::vector<double> launches;
    std::size_t launched = 0;
    SharedDevice::Afloat afloat;
  };
  Standing standing() const;
  bool alike(const Standing& a, const Standing& b, const Later& later) const;

  bool may_stand_, stands_ = false;
  std::vector<std::uint32_t> repeated_events_;
  std::optional<Standing> before_, now_;  ///< at the ends of the last repetitions
  Parts each_{};                          ///< what the last of them added
};

}  // namespace plimsoll
