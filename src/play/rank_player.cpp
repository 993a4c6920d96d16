#include "play/rank_player.hpp"

#include <algorithm>
#include <cmath>

namespace plimsoll {

using What = Item::What;

// ---- Meetings ------------------------------------------------------------------------------------------------------

void Meetings::send(std::uint32_t channel, std::uint32_t from, std::uint32_t to, double ready) {
  lines_[{channel, from, to}].sent.push_back(ready);
}

Meetings::Id Meetings::receive(std::uint32_t channel, std::uint32_t from, std::uint32_t to, double ready) {
  Line& line = lines_[{channel, from, to}];
  line.received.push_back(ready);
  return {&line, line.received.size() - 1};
}

Meetings::Id Meetings::meet(const Joint& joint, std::size_t index, double ready) {
  std::vector<std::size_t>& list = of_channel_[joint.channel];
  if (list.size() <= index) {  // ranks come to them in order
    list.push_back(collectives_.size());
    collectives_.push_back({0, joint.members});
  }
  Collective& collective = collectives_[list[index]];
  collective.ready = std::max(collective.ready, ready);
  --collective.missing;
  return {nullptr, list[index]};
}

void Meetings::end_repetition(std::uint32_t rank) {
  for (auto& [ends, line] : lines_) {
    if (std::get<1>(ends) == rank) line.end_repetition(line.sends, line.sent.size());
    if (std::get<2>(ends) == rank) line.end_repetition(line.receives, line.received.size());
  }
}

bool Meetings::recur(const Later& later) const {
  return std::all_of(lines_.begin(), lines_.end(), [&](const auto& each) {
    const Line& line = each.second;
    const std::size_t of_repetition = line.sends.each, met = std::min(line.sent.size(), line.received.size());
    if (line.receives.each != of_repetition) return false;
    const std::vector<double>& longer = line.sent.size() > met ? line.sent : line.received;
    for (std::size_t i = met; i < longer.size() && of_repetition > 0; ++i)
      if (i < of_repetition || !later(longer[i - of_repetition], longer[i])) return false;
    return true;
  });
}

void Meetings::postpone(double seconds) {
  for (auto& [ends, line] : lines_) {
    if (line.sends.each == 0) continue;
    const std::size_t met = std::min(line.sent.size(), line.received.size());
    for (std::vector<double>* side : {&line.sent, &line.received})
      for (std::size_t i = met; i < side->size(); ++i) (*side)[i] += seconds;
  }
}

// ---- one rank ------------------------------------------------------------------------------------------------------

RankPlayer::RankPlayer(const Score& score, const PlaySettings& settings, std::uint32_t rank, Meetings& meetings)
    : score_(score.parts()),
      settings_(settings),
      pricing_(*settings.pricing),
      rank_(rank),
      meetings_(meetings),
      streams_(score_.streams),
      events_(score_.events),
      launches_(static_cast<std::size_t>(std::max<std::int64_t>(pricing_.host.queue, 1)), 0.0),
      device_(pricing_),
      began_(score_.streams, 0.0),
      may_stand_(can_stand()) {}

bool RankPlayer::play() {
  for (; step_ < settings_.steps; end_step()) {
    for (;;) {
      if (at_ == score_.repeat_end && repeat()) {
        if (stands_) return false;
        continue;
      }
      if (at_ >= score_.items.size()) break;
      if (!play(score_.items[at_])) return false;
      ++at_;
    }
    if (!settle_all()) return false;
  }
  return true;
}

inline bool RankPlayer::play(const Item& item) {
  if (pricing_.blocking && !await_open(item)) return false;
  switch (item.what) {
    case What::kernel:
    case What::copy:
      return run(item);
    case What::collective:
    case What::meeting:
    case What::send:
    case What::receive: {
      const Joint joint = joint_of(item);
      return joint.members > 1 ? meet(item, joint) : run(item);
    }
    case What::record:
      record(item);
      return true;
    case What::wait:
      return wait(item);
    case What::host:
      host_ = after(host_, host_.time + item.seconds, item.cause);
      return true;
    case What::synchronize:
      return synchronize(item);
  }
  return true;
}

/// Where each launch is waited for (Pricing::blocking): the host goes on when what is open has ended, but for transfers that join it, which are
/// launched with it.
bool RankPlayer::await_open(const Item& item) {
  for (std::size_t id = 0; id < streams_.size(); ++id) {
    Stream& stream = streams_[id];
    const bool joins = id == item.stream && !stream.closed && (item.what == What::send || item.what == What::receive);
    if (stream.open.empty() || joins) continue;
    if (!settle(static_cast<StreamId>(id))) return false;
    await_launch(stream);
  }
  return true;
}

/// The host of a blocking run wakes when what it launched last on the stream has ended.
void RankPlayer::await_launch(const Stream& stream) {
  if (stream.last.time > host_.time) host_ = after(stream.last, stream.last.time + pricing_.host.wakes.value, Cause::host);
}

/// The host issues the item: it is at most a full queue ahead of the device.
inline void RankPlayer::issue(const Item& item) {
  if (item.issue > 0) host_ = after(host_, host_.time + item.issue, Cause::host);
  host_.time = std::max(host_.time, launches_[oldest_launch_]);
}

inline void RankPlayer::launch(double start) {
  launches_[oldest_launch_] = start;
  if (++oldest_launch_ == launches_.size()) oldest_launch_ = 0;
  ++launched_;
}

/// The earliest start of work on the stream that the host has issued.
inline RankPlayer::Moment RankPlayer::ready(const Stream& stream) const {
  Moment moment = stream.last;
  if (moment.time > 0) moment.time += pricing_.gap.value;
  if (stream.held.time > moment.time) moment = stream.held;
  if (host_.time > moment.time) moment = host_;
  return moment;
}

inline bool RankPlayer::run(const Item& item) {
  Stream& stream = streams_[item.stream];
  if (!stream.open.empty() && !settle(item.stream)) return false;
  issue(item);
  const Moment start = ready(stream);
  const bool computes = item.stream == kComputeStream && item.what == What::kernel;
  const double end = computes ? device_.run(item, start.time) : start.time + item.seconds;
  if (item.stream == kComputeStream) count(start, end, item.cause);
  stream.last = after(start, end, item.cause);
  launch(start.time);
  occupy(item.stream, item, start.time, end);
  if (pricing_.blocking) await_launch(stream);
  return true;
}

/// Which ranks a collective or transfer joins: as they say themselves, or those of a lowered pipeline.
Joint RankPlayer::joint_of(const Item& item) const {
  if (settings_.joint != nullptr) return settings_.joint->joints[settings_.joint->program->step[item.instruction].id];
  if (item.what == What::send || item.what == What::receive) return {0, 2};
  if (item.what == What::meeting && settings_.meets[item.id]) return {item.id, settings_.ranks};
  return {};
}

/// A send goes off when it is ready. A receive, or a collective of several, stays open until what it waits for is known; transfers that follow
/// one another join it (a group of NCCL's).
bool RankPlayer::meet(const Item& item, const Joint& joint) {
  Stream& stream = streams_[item.stream];
  const bool transfer = item.what == What::send || item.what == What::receive;
  const bool joins = transfer && !stream.closed && item.stream != kComputeStream;
  if (!stream.open.empty() && !joins && !settle(item.stream)) return false;
  issue(item);
  const Moment start = ready(stream);
  launch(start.time);
  if (item.what == What::send) {
    meetings_.send(joint.channel, rank_, item.id, start.time);
    if (item.stream == kComputeStream) count(start, start.time + item.seconds, item.cause);
    if (stream.open.empty()) stream.last = after(start, start.time + item.seconds, item.cause);
    occupy(item.stream, item, start.time, start.time + item.seconds);
    return true;
  }
  if (!transfer && met_.size() <= joint.channel) met_.resize(joint.channel + std::size_t{1});
  const Meetings::Id meeting =
      transfer ? meetings_.receive(joint.channel, item.id, rank_, start.time) : meetings_.meet(joint, met_[joint.channel]++, start.time);
  stream.closed = false;
  stream.open.push_back({meeting, start, item.seconds, item.instruction, item.cause, item.claim});
  return true;
}

/// Ends the open work of a stream, if everybody it waits for has come.
bool RankPlayer::settle(StreamId id) {
  Stream& stream = streams_[id];
  for (const Open& open : stream.open)
    if (!meetings_.complete(open.meeting)) return false;
  for (const Open& open : stream.open) {
    const double ready = meetings_.ready(open.meeting), end = ready + open.seconds;
    const Moment met = ready > open.start.time ? after(open.start, ready, Cause::bubble) : open.start;
    if (id == kComputeStream) count(met, end, open.cause);
    if (end > stream.last.time) stream.last = after(met, end, open.cause);
    Item item;
    item.instruction = open.instruction;
    item.what = What::receive;
    item.claim = open.claim;
    occupy(id, item, ready, end);
  }
  stream.open.clear();
  stream.closed = false;
  for (RecordedEvent& event : events_) {
    if (!event.open || event.stream != id) continue;
    event.open = false;
    event.moment = stream.last;
  }
  return true;
}

bool RankPlayer::settle_all() {
  for (std::size_t id = 0; id < streams_.size(); ++id)
    if (!streams_[id].open.empty() && !settle(static_cast<StreamId>(id))) return false;
  return true;
}

inline void RankPlayer::record(const Item& item) {
  Stream& stream = streams_[item.stream];
  RecordedEvent& event = events_[item.id];
  event.stream = item.stream;
  event.open = !stream.open.empty();
  if (event.open) stream.closed = true;
  event.moment = stream.held.time > stream.last.time ? stream.held : stream.last;
}

inline bool RankPlayer::wait(const Item& item) {
  const RecordedEvent& event = events_[item.id];
  if (event.open && !settle(event.stream)) return false;
  Moment& held = streams_[item.stream].held;
  if (event.stream != item.stream && event.moment.time > held.time) held = event.moment;
  return true;
}

bool RankPlayer::synchronize(const Item& item) {
  const bool alone = item.id == 1;
  const Stream& own = streams_[item.stream];
  if (alone ? !own.open.empty() && !settle(item.stream) : !settle_all()) return false;
  Moment done = own.held.time > own.last.time ? own.held : own.last;
  for (const Stream& stream : streams_)
    if (!alone && stream.last.time > done.time) done = stream.last;
  if (done.time > host_.time) host_ = done;
  host_ = after(host_, host_.time + pricing_.host.wakes.value, Cause::host);
  return true;
}

inline void RankPlayer::occupy(StreamId id, const Item& item, double start, double end) {
  if (settings_.with_events && step_ + 1 == settings_.steps) played_.push_back({item.instruction, id, Seconds(start), Seconds(end)});
  const bool elsewhere = id < settings_.elsewhere.size() && settings_.elsewhere[id];
  if (id == kComputeStream || item.what == What::copy || elsewhere) return;
  const double delay = device_.add(item, id, start, end);
  streams_[kComputeStream].last.time += delay;
  if (delay > 0) count(streams_[kComputeStream].last, streams_[kComputeStream].last.time, streams_[kComputeStream].last.cause);
}

/// What lasts from one moment to another. What is counted already asks for no link: nobody asks what kept it.
inline RankPlayer::Moment RankPlayer::after(const Moment& before, double time, Cause cause) {
  if (before.time <= counted_) return {time, cause, kNoLink};
  if (before.cause == cause) return {time, cause, before.link};
  links_[next_link_ % kLinks] = before;
  return {time, cause, next_link_++};
}

/// Counts the time from `since` until a moment as what kept it from being earlier, that from being earlier, and so on.
void RankPlayer::blame(Moment until, double since, Parts& parts) const {
  while (until.time > since) {
    const bool known = until.link != kNoLink && until.link + kLinks >= next_link_;
    const Moment before = known ? links_[until.link % kLinks] : Moment{since};
    const double began = std::max(since, before.time);
    parts[static_cast<std::size_t>(until.cause)] += std::max(0.0, until.time - began);
    until = {std::min(began, until.time), before.cause, before.link};
  }
}

/// The compute stream waited until `start`, for what it says, and then did something else.
inline void RankPlayer::count(Moment start, double end, Cause cause) {
  const double gap = pricing_.gap.value;
  if (start.time - counted_ > gap) {
    blame(start, counted_ + gap, parts_);
    counted_ = start.time - gap;
  }
  parts_[static_cast<std::size_t>(cause)] += std::max(0.0, end - counted_);
  counted_ = std::max(counted_, end);
}

void RankPlayer::end_step() {
  ++step_;
  if (step_ == settings_.steps) return;
  at_ = 0;
  repetition_ = 0;
  before_.reset();
  now_.reset();
  may_stand_ = can_stand();
  parts_.fill(0);
  for (std::size_t i = 0; i < streams_.size(); ++i) began_[i] = streams_[i].last.time;
  began_[kComputeStream] = counted_;
}

// ---- repeated micro-batches ------------------------------------------------------------------------------------------

/// Where events are asked for, or ranks meet within the repetitions in more than sends and receives, all of them are played.
bool RankPlayer::can_stand() const {
  bool meets = settings_.with_events;
  for (std::size_t group = 0; group < kGroups; ++group) meets = meets || (score_.repeats_meetings[group] && settings_.meets[group]);
  return score_.repeat_times > 1 && !meets;
}

/// At the end of the repeated items: whether they are played again. It stands still before they are where the last two repetitions were
/// alike.
bool RankPlayer::repeat() {
  if (repetition_ + 1 >= score_.repeat_times) return false;
  ++repetition_;
  at_ = score_.repeat_begin;
  stands_ = may_stand_ && repeated_alike();
  return true;
}

RankPlayer::Standing RankPlayer::standing() const {
  Standing now{host_, counted_, parts_, streams_, {}, launches_, launched_, {}};
  double earliest = host_.time;  // at which anything yet to come can begin
  for (const Stream& stream : streams_)
    for (const Open& open : stream.open) earliest = std::min(earliest, open.start.time);
  now.afloat = device_.afloat(earliest);
  for (const std::uint32_t id : repeated_events_) now.events.push_back(events_[id]);
  return now;
}

/// Whether `b` is `a`, later. A time that did not change keeps nothing waiting: if it did so in one repetition, it would have in the one
/// before. Nor does the start of a launch that the host has passed.
bool RankPlayer::alike(const Standing& a, const Standing& b, const Later& later) const {
  const auto alike = [&](const Moment& before, const Moment& now) { return later(before.time, now.time) || before.time == now.time; };
  const auto passed = [&](double before, double now) { return before <= a.host.time && now <= b.host.time; };
  if (!later(a.host.time, b.host.time) || !later(a.counted, b.counted)) return false;
  for (std::size_t i = 0; i < b.streams.size(); ++i) {
    const Stream &before = a.streams[i], &now = b.streams[i];
    const bool held = alike(before.held, now.held) || passed(before.held.time, now.held.time);
    if (!held || !alike(before.last, now.last) || before.closed != now.closed || before.open.size() != now.open.size()) return false;
    for (std::size_t k = 0; k < now.open.size(); ++k)
      if (before.open[k].instruction != now.open[k].instruction || !later(before.open[k].start.time, now.open[k].start.time)) return false;
  }
  for (std::size_t i = 0; i < b.events.size(); ++i)
    if (a.events[i].open != b.events[i].open || !alike(a.events[i].moment, b.events[i].moment)) return false;
  const std::size_t queue = b.launches.size(), of_repetition = b.launched - a.launched;
  for (std::size_t i = 0; i < queue; ++i) {
    const double before = a.launches[i], now = b.launches[(i + of_repetition) % queue];
    if (!later(before, now) && !passed(before, now)) return false;
  }
  return SharedDevice::alike(a.afloat, b.afloat, later);
}

/// Whether the repetition that ends here was like the one before it, and so will be those that follow.
bool RankPlayer::repeated_alike() {
  if (!now_) find_repeated_events();
  meetings_.end_repetition(rank_);
  before_ = std::exchange(now_, standing());
  if (!before_) return false;
  const Later later(now_->counted - before_->counted);
  Parts more = now_->parts;
  for (std::size_t i = 0; i < kCauses; ++i) more[i] -= before_->parts[i];
  const bool same_parts =
      std::equal(more.begin(), more.end(), each_.begin(), [&](double a, double b) { return std::abs(a - b) <= later.tolerance; });
  each_ = more;
  return same_parts && alike(*before_, *now_, later);
}

void RankPlayer::find_repeated_events() {
  repeated_events_.clear();
  for (std::size_t i = score_.repeat_begin; i < score_.repeat_end; ++i)
    if (score_.items[i].what == What::record) repeated_events_.push_back(score_.items[i].id);
}

void RankPlayer::skip(std::int64_t repetitions, double period) {
  const double times = static_cast<double>(repetitions), seconds = times * period;
  const Later later(period);
  const auto postpone = [&](const Moment& before, Moment& moment) {
    if (later(before.time, moment.time)) moment.time += seconds;
  };
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    postpone(before_->streams[i].last, streams_[i].last);
    postpone(before_->streams[i].held, streams_[i].held);
    for (Open& open : streams_[i].open) open.start.time += seconds;
  }
  for (std::size_t i = 0; i < repeated_events_.size(); ++i) postpone(before_->events[i].moment, events_[repeated_events_[i]].moment);
  for (double& launch : launches_) launch += seconds;
  for (Moment& link : links_) link.time += seconds;
  for (std::size_t i = 0; i < kCauses; ++i) parts_[i] += times * each_[i];
  device_.shift(seconds);
  host_.time += seconds;
  counted_ += seconds;
  repetition_ += repetitions;
  if (left() == 0) at_ = score_.repeat_end;
  may_stand_ = false;
}

// ---- the reading ---------------------------------------------------------------------------------------------------

double RankPlayer::seconds() const {
  double longest = counted_ - began_[kComputeStream];
  for (std::size_t i = 0; i < streams_.size(); ++i) longest = std::max(longest, streams_[i].last.time - began_[i]);
  return longest;
}

/// What is no kernel's time is taken to draw what kernels that are no products do, which is the most it can.
double RankPlayer::power_of(double step) const {
  double kernels = 0;
  for (const Seconds& each : score_.by_kernel) kernels += each.value;
  const double rest = std::max(0.0, step - kernels) * pricing_.cluster.accelerator.gemm.power_elsewhere.value;
  return step > 0 ? std::min(1.0, (score_.drawn.value + rest) / step) : 1.0;
}

/// What a stream beside the compute stream takes longer than it is blamed like a wait for that stream; what other ranks take longer is a bubble.
Timeline RankPlayer::timeline(double slowest) const {
  Timeline timeline{};
  Parts parts = parts_;
  const double own = seconds(), computed = counted_ - began_[kComputeStream];
  for (std::size_t i = 0; i < streams_.size(); ++i)
    if (own > computed && streams_[i].last.time - began_[i] >= own) {
      blame(streams_[i].last, streams_[i].last.time - (own - computed), parts);
      break;
    }
  const auto part = [&](Cause cause) { return Seconds(parts[static_cast<std::size_t>(cause)]); };
  timeline.compute = part(Cause::compute) + part(Cause::nothing);
  timeline.recompute = part(Cause::recompute);
  timeline.optimizer = part(Cause::optimizer);
  timeline.exposed_copies = part(Cause::copy);
  timeline.transfers = part(Cause::transfer);
  timeline.bubble = part(Cause::bubble) + Seconds(std::max(0.0, slowest - own));
  timeline.host = part(Cause::host);
  timeline.host_optimizer = part(Cause::host_optimizer);
  for (std::size_t i = 0; i < kGroups; ++i) timeline.exposed[i] = part(cause_of(static_cast<Group>(i)));
  timeline.step = Seconds(std::max(slowest, own));
  timeline.communication = score_.communication;
  timeline.copies = score_.copies;
  timeline.by_kernel = score_.by_kernel;
  timeline.by_group = score_.by_group;
  timeline.power = power_of(timeline.step.value);
  timeline.dearest = score_.dearest;
  timeline.events = played_;
  for (Event& event : timeline.events) event.start = event.start - Seconds(began_[kComputeStream]), event.end = event.end - Seconds(began_[kComputeStream]);
  return timeline;
}

}  // namespace plimsoll
